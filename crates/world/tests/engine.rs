//! The real engine in the simulated world against the oracle: the whole path from a request to
//! the devices, with and without crashes.

#[path = "common/history.rs"]
mod history;

mod common;

use common::property;
use history::{Kind, history};
use proptest::test_runner::TestCaseError;
use std::cell::Cell;
use weir_world::Driver;
use weir_world::driver::{Failure, Setup, Step, Tally};

fn run(setup: Setup, steps: &[Step]) -> Result<(Tally, u64), Failure> {
    let mut driver = Driver::new(setup)?;
    let tally = driver.run(steps)?;
    Ok((tally, driver.digest()))
}

/// Runs random histories until so many requests were answered, at least.
fn histories(kind: Kind, cases: u32, requests: u64) {
    let total = Cell::new(Tally::default());
    property(cases, history(kind), |(setup, steps)| {
        let (tally, _) = run(setup, &steps).map_err(|failure| TestCaseError::fail(failure.to_string()))?;
        total.set(total.get() + tally);
        Ok(())
    });
    let total = total.get();
    common::say(format_args!("{total} from WEIR_SEED={}", common::seed()));
    assert!(total.requests >= requests, "{total}: too few to mean anything");
}

#[test]
fn every_answer_is_one_the_oracle_admits() {
    histories(Kind::calm(2000), 150, 100_000);
}

#[test]
fn space_goes_from_hand_to_hand() {
    histories(Kind { crashes: true, crowded: true, ..Kind::calm(800) }, 100, 20_000);
}

#[test]
fn what_was_promised_survives_crashes() {
    histories(Kind { crashes: true, ..Kind::calm(800) }, 160, 40_000);
}

#[test]
fn failing_devices_cost_only_what_they_must() {
    histories(Kind { crashes: true, faults: true, ..Kind::calm(400) }, 160, 10_000);
}

#[test]
fn what_a_killed_server_left_is_not_lost_after_it_was_read() {
    use weir_model::{Bytes, ExtentSize, Nanos, Op, VolumeOffset};
    use weir_world::driver::{Ask, Crash};
    use weir_world::{DeviceSpec, Pace, Seed, Stop};
    let ask =
        |op| Step::Ask(Ask { volume: 0, op, offset: VolumeOffset(0), len: Bytes::kib(128), fua: false });
    let crash = |how| Step::Crash(Crash { how, again: vec![] });
    // In place over durable blocks, so that nothing but the data is at stake, and striped, so that
    // some of it is not on the device with the map.
    let steps = [ask(Op::Write), ask(Op::Flush), Step::Wait(2), ask(Op::Write), Step::Wait(1)];
    let steps = [&steps[..], &[crash(Stop::Kill), Step::Check, crash(Stop::PowerCut)]].concat();
    for seed in 0..20 {
        let device = DeviceSpec {
            size: Bytes::mib(4),
            pace: Pace::Random(Nanos::millis(1)),
            write_cache: true,
            sector: 512,
            faults: vec![],
        };
        let setup = Setup {
            seed: Seed(seed),
            extent: ExtentSize::new(Bytes::kib(64)).expect("a valid size"),
            policy: "stripe".to_owned(),
            devices: vec![device.clone(), device],
            volumes: vec![Bytes::kib(128)],
            memory: Bytes::mib(8),
            depth: 1,
        };
        if let Err(failure) = run(setup, &steps) {
            panic!("seed {seed}: {failure}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    property(8, history(Kind { crashes: true, faults: true, ..Kind::calm(200) }), |(setup, steps)| {
        let fail = |failure: Failure| TestCaseError::fail(failure.to_string());
        let first = run(setup.clone(), &steps).map_err(fail)?;
        let second = run(setup, &steps).map_err(fail)?;
        proptest::prop_assert_eq!(first, second);
        Ok(())
    });
}
