//! Tests that `adaptive` makes no room on the fast device during a burst that the disk can just keep up with.

use super::pool;
use crate::{Mode, Outcome, Plan, place};
use weir_model::Seed;
use weir_model::{Bytes, Nanos};
use weir_policy::placement::by_name;

/// Bursts of five seconds in twenty: large reads, most of them once, as many as the disk can just serve, and
/// small writes.
const BURSTS: &str = "uniform size=64KiB run=4 over=2GiB rate=600 for=5s / uniform size=64KiB run=4 over=2GiB rate=1 for=15s | \
                      uniform reads=0% over=2GiB rate=100 for=5s / uniform reads=0% over=2GiB rate=0.1 for=15s";

fn outcome(policy: &str, seed: u64) -> Outcome {
    let number = |text: &str, unit: &str| text.strip_suffix(unit).and_then(|n| n.parse().ok());
    let size = |text: &str| match (number(text, "KiB"), number(text, "GiB")) {
        (Some(kib), _) => Ok(Bytes::kib(kib)),
        (_, Some(gib)) => Ok(Bytes::gib(gib)),
        _ => Err("a size".to_owned()),
    };
    let time = |text: &str| number(text, "s").map(Nanos::secs).ok_or_else(|| "a time".to_owned());
    let mut load = crate::load::parse(BURSTS, seed, size, time).expect("words that make sense");
    let plan = Plan {
        mode: Mode::Open,
        duration: Nanos::secs(400),
        requests: u64::MAX,
        warm_up: None,
        windows: 20,
        seed: Seed(seed),
    };
    place(&pool(0.1, 1.3), by_name(policy).expect("a policy"), &mut *load, &plan).expect("it ran")
}

#[test]
fn demotion_does_not_delay_read_bursts() {
    for seed in [1, 7] {
        let [ours, striped] = ["adaptive", "stripe"].map(|policy| outcome(policy, seed).all);
        let figures = [("mean", ours.mean, striped.mean), ("p99", ours.p99, striped.p99)];
        for (figure, ours, striped) in figures {
            assert!(
                ours.as_secs_f64() <= 1.05 * striped.as_secs_f64(),
                "seed {seed}, {figure}: {ours} for {striped}"
            );
        }
    }
}
