mod conversions;
mod fits;

use super::*;
use crate::output::Width;
use weir_model::{Bytes, Nanos};

#[test]
fn status_text_includes_warnings() {
    let reads = Commands { count: 100, bytes: 409_600, response_ns: Some(10_000) };
    let traffic =
        Traffic { reads, overruns_share: 0.05, figures_invalid: true, no_space: 2, ..Traffic::default() };
    let device = DevicePart {
        name: "slow".into(),
        pace: Some("hdd-7200".into()),
        traffic: Some(traffic),
        metadata: true,
        lost_reason: Some("it did not answer in time".into()),
        lost_ns: Some(61_000_000_000),
        blocks_in_doubt: 3,
        ..DevicePart::default()
    };
    let migration_estimate = parts::MigrationEstimate {
        stopped_ns: Some(90_000_000_000),
        stops: 1,
        commands: 400,
        mean_ns: 5_000_000,
        counterfactual_mean_ns: 1_000_000,
    };
    let fragmentation = FragmentationPart {
        fragmented_extents: 17,
        extra_bytes: 2 << 20,
        extra_limit_bytes: Some(3 << 20),
        redirects: 4711,
    };
    let pool = PoolPart { policy: "hystor".into(), migration_estimate, fragmentation, ..PoolPart::default() };
    let status = Status { pool, devices: vec![device], ..Status::default() };
    assert!(status.metrics().contains("weir_migration_stopped{pool=\"\"} 1"), "{}", status.metrics());
    let text = status.human(Width::UNLIMITED);
    for part in [
        "slow",
        "100 in 10.0 us",
        "metadata, paced as hdd-7200, figures invalid",
        "weir volume create",
        "moves: 5.0 ms a command, and without moves 1.0 ms",
        "2 MiB beyond one place (at most 3 MiB); 17 fragmented extents, 4711 writes redirected",
        "LOST for 61.00 s: it did not answer in time, 3 blocks IN DOUBT, 2 writes found NO SPACE below",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let warnings = status.warnings();
    assert!(
        warnings[0].contains("policy hystor moves nothing for 90.00 s: requests took 5.0 ms"),
        "{warnings:?}"
    );
    assert!(warnings[1].contains("slow 5.0 %"), "{warnings:?}");
    assert!(text.contains("space: 0 B of 0 B used (0 %)"), "{text}");
    let json = serde_json::to_string(&status).expect("it is JSON");
    assert_eq!(serde_json::from_str::<Status>(&json).ok(), Some(status));
}

#[test]
fn a_pool_that_fills_up_says_so() {
    let gib = |n| Bytes::gib(n).get();
    let mut pool = PoolPart {
        capacity_bytes: gib(100),
        used_bytes: gib(81),
        provisioned_bytes: gib(500),
        full_in_ns: Some(Nanos::secs(3 * 3600).get()),
        recovery_ns: 420_000_000,
        warning_percent: Some(80),
        ..PoolPart::default()
    };
    let text = pool.space();
    for part in ["81 GiB of 100 GiB used (81 %)", "500 GiB provisioned", "in about 3 h", "about 420 ms"] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert!(pool.warnings()[0].starts_with("more than 80 % of the space for data"));
    pool.full = Some("data".into());
    assert!(pool.warnings()[0].starts_with("no space is left"), "{:?}", pool.warnings());
    assert_eq!(pool.warnings().len(), 1);
}
