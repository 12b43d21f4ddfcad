//! Tests a write-back area that fills up: writes must then continue at least at the slow device's speed.

use super::{closed, pool, run};
use crate::{Outcome, Plan};
use weir_model::{Nanos, Seed};

const LOAD: &str = "uniform reads=0% size=4KiB over=1024MiB";

/// Plans windows of five seconds with 16 writes in flight.
fn plan(windows: u32) -> Plan {
    Plan {
        mode: closed(16),
        duration: Nanos::secs(5 * u64::from(windows)),
        requests: u64::MAX,
        warm_up: None,
        windows,
        seed: Seed(7),
    }
}

fn rates(outcome: &Outcome) -> Vec<f64> {
    outcome.windows.iter().map(|window| window.rate).collect()
}

#[test]
fn no_window_is_slower_than_the_disk_alone() {
    let mut devices = pool(0.3125, 1.375);
    devices.devices[0].model = "ssd-sata".into();
    let mut disk = devices.clone();
    disk.devices.remove(0);
    let bare = rates(&run(&disk, "sequential", LOAD, &plan(6)).expect("it ran"));
    let bare = bare.iter().sum::<f64>() / bare.len() as f64;
    for policy in ["adaptive", "hystor", "wardrop", "hierarchy"] {
        let rates = rates(&run(&devices, policy, LOAD, &plan(24)).expect("it ran"));
        let lowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(lowest >= 0.9 * bare, "{policy}: {rates:.0?} a second, {bare:.0} from the disk alone");
    }
}
