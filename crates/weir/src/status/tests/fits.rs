//! Status reports with long names and large figures fit the terminal.

use super::super::*;
use crate::output::Width;
use crate::output::testing::{LONG_NAME, assert_fits};

fn status() -> Status {
    let commands = Commands { count: 123_456_789_012, bytes: 1 << 50, response_ns: Some(999_900_000) };
    let load = LoadPart { busy_share: 1.0, queue_depth: 1234.5, ..LoadPart::default() };
    let traffic = Traffic {
        reads: commands,
        writes: commands,
        flushes: 987_654_321,
        failed: 123_456,
        load,
        figures_invalid: true,
        ..Traffic::default()
    };
    let device = |name: &str| DevicePart {
        name: name.into(),
        class: "remote".into(),
        used_bytes: (1u64 << 50) - 1,
        capacity_bytes: 1 << 50,
        pace: Some("intel-x25-m-g1-log".into()),
        metadata: true,
        lost_reason: Some("it did not answer in time".into()),
        lost_ns: Some(61_000_000_000),
        blocks_in_doubt: 3,
        traffic: Some(traffic),
        responses: vec![ResponsesPart {
            direction: "writes".into(),
            count: 123_456_789_012,
            ..Default::default()
        }],
        ..DevicePart::default()
    };
    let volume = |name: &str| VolumePart {
        name: name.into(),
        size_bytes: 1 << 50,
        used_bytes: (1 << 45) + 1,
        copies: 2,
        degraded_bytes: Some(1 << 41),
        ..VolumePart::default()
    };
    let mut status = Status::default();
    status.pool.name = LONG_NAME.into();
    status.devices = vec![device("fast"), device(LONG_NAME), device("磁盘阵列中的第一块磁盘")];
    status.volumes = vec![volume("v"), volume(LONG_NAME), volume("卷")];
    status
}

#[test]
fn a_status_fits_the_terminal() {
    let status = status();
    assert_fits(|width| status.human(width));
}

#[test]
fn a_pool_at_80_columns_shows_what_matters_in_its_table() {
    let text = status().human(Width::columns(80));
    assert!(text.contains("\nDEVICE  "), "{text}");
    let lines: Vec<_> = text.lines().skip_while(|line| !line.starts_with("DEVICE")).collect();
    for heading in ["CLASS", "USED", "OF", "READS"] {
        assert!(lines[0].contains(heading), "{heading} in {}", lines[0]);
    }
    assert!(lines.iter().any(|line| line.starts_with("  ") && line.contains("FAILED 123456")), "{text}");
    // Cells whose columns do not fit are shown below their row.
    assert!(text.contains("LOST for 61.00 s: it did not answer in time"), "{text}");
}
