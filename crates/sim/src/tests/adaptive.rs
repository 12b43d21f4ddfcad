//! Tests that `adaptive` settles after a change of load, and then stays stable.

use super::{pool, run};
use crate::{Mode, Outcome, Plan, PoolSpec};
use weir_model::{Bytes, Nanos, Seed};

const REQUEST: f64 = 4096.0;

fn plan(seconds: u64, window: u64) -> Plan {
    Plan {
        mode: Mode::Open,
        duration: Nanos::secs(seconds),
        requests: u64::MAX,
        warm_up: None,
        windows: (seconds / window) as u32,
        seed: Seed(7),
    }
}

/// Returns the bytes moved per byte of user I/O in each window.
fn moved(outcome: &Outcome, seconds: f64) -> Vec<f64> {
    let share = |w: &crate::Window| w.moved.0 as f64 / (w.rate * seconds * REQUEST).max(1.0);
    outcome.windows.iter().map(share).collect()
}

fn mean(outcome: &Outcome, from: usize, to: usize) -> f64 {
    let windows = &outcome.windows[from..to];
    windows.iter().map(|w| w.mean.as_secs_f64()).sum::<f64>() / windows.len() as f64
}

fn adaptive(pool: &PoolSpec, load: &str, plan: &Plan) -> Outcome {
    run(pool, "adaptive", load, plan).expect("it ran")
}

#[test]
fn adaptive_settles_within_a_minute() {
    // The hot set changes half-way, and so does the share of reads.
    let load = "zipf theta=1.2 hot=1 reads=70% size=4KiB over=128MiB rate=60 for=300s / zipf theta=1.2 hot=2 reads=95% \
                size=4KiB over=128MiB rate=60 for=300s";
    let outcome = adaptive(&pool(0.2, 1.2), load, &plan(600, 20));
    let moved = moved(&outcome, 20.0);
    // Windows 15 to 17 are the minute after the change.
    for (first, last) in [(3, 15), (18, 30)] {
        let share = moved[first..last].iter().sum::<f64>() / (last - first) as f64;
        assert!(share < 0.1, "{share} of the traffic from window {first} on: {moved:.2?}");
        let (soon, late) = (mean(&outcome, first, first + 3), mean(&outcome, last - 3, last));
        assert!(soon < 2.0 * late, "{soon} s a minute after the change, {late} s in the end");
    }
}

/// A pool of one device, or of identical devices, performs no worse than with a policy that moves nothing.
#[test]
fn adaptive_costs_nothing_without_possible_gain() {
    let load = "zipf theta=1.1 reads=60% size=4KiB over=32MiB rate=60";
    for models in [&["hdd-7200"][..], &["ssd-nvme"], &["ssd-sata", "ssd-sata"], &["hdd-7200", "hdd-7200"]] {
        let mut alike = pool(1.3, 1.3);
        alike.devices.truncate(models.len());
        alike.devices.iter_mut().zip(models).for_each(|(device, model)| device.model = (*model).into());
        let [ours, plain] = ["adaptive", "hierarchy"]
            .map(|policy| run(&alike, policy, load, &plan(120, 20)).expect("it ran").all.mean.as_secs_f64());
        assert!(ours < 1.05 * plain, "{models:?}: {ours} s for {plain} s");
    }
}

#[test]
fn adaptive_does_not_oscillate_over_an_hour() {
    let load = "zipf theta=1.1 reads=80% size=4KiB over=16MiB rate=20";
    let outcome = adaptive(&pool(0.2, 1.2), load, &plan(3600, 60));
    let moved = moved(&outcome, 60.0);
    // The disk is idle nearly always, so copies cost next to nothing, and more are made than on a busy disk.
    let share = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (first, last) = (share(&moved[1..30]), share(&moved[30..]));
    assert!(last < 0.1 && last < 1.1 * first, "{first} in the first half, {last} in the second: {moved:.3?}");
    // Response times are stable as well: no later window is far from the median.
    let mut means: Vec<f64> = outcome.windows[10..].iter().map(|w| w.mean.as_secs_f64()).collect();
    means.sort_by(f64::total_cmp);
    let usual = means[means.len() / 2];
    assert!(means[means.len() - 1] < 2.0 * usual, "{usual} s usually: {means:.6?}");
    assert_eq!(outcome.stops, 0, "its moves are not found to do harm");
}

/// Three sets are read in turn, and two of them fit the fast device. What is read next is what was read
/// longest ago: replacing it in idle time gains nothing and wears the device.
#[test]
fn hot_sets_in_turn_do_not_replace_one_another() {
    let idle = "uniform at=1MiB over=1MiB rate=1 for=100s";
    let set = |at: u64| format!("uniform size=128KiB at={at}MiB over=128MiB rate=400 for=20s / {idle}");
    let words = [1, 512, 1024].map(set).join(" / ");
    let outcome = adaptive(&pool(0.22, 1.3), &words, &plan(3600, 60));
    let written = outcome.devices[0].writes.bytes;
    assert!(written < Bytes::mib(256), "{written} written to the fast device in an hour");
}
