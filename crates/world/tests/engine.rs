//! Tests of the real engine in the simulated world against the oracle: the whole path from a request to the
//! devices, with and without crashes.

mod common;

use weir_engine::{DurableWrites, FlushRules, MOVER_SHARE, WhenFull};
use weir_map::Hardening;
use weir_model::{Bytes, ExtentSize, Nanos, Op, VolumeOffset};
use weir_policy::harm::MoveControl;
use weir_world::campaign::{self, HistoryKind};
use weir_world::driver::{Crash, HistoryStep, Replacement, RequestSpec, Setup, VolumeSpec};
use weir_world::{DeviceSpec, History, Pace, Planted, Seed, Statistics, StopKind};

/// Number of shorter histories tried when one fails.
const SHRINK_MAX: u64 = 3_000;

/// Runs histories from `seeds` seeds; together they must answer at least `requests` requests.
fn histories(kind: HistoryKind, seeds: u64, requests: u64) -> Statistics {
    let mut total = Statistics::default();
    let first = common::seed().0;
    for seed in (0..seeds * common::rounds()).map(|number| Seed(first.wrapping_add(number << 32))) {
        let history = History::new(seed, &kind);
        total += &run(&history);
    }
    common::say(format_args!("{total} from WEIR_SEED={first}"));
    assert!(total.requests >= requests, "{total}: too few to mean anything");
    total
}

/// Runs one history, which must not fail.
fn run(history: &History) -> Statistics {
    let outcome = history.run();
    if let Some((failure, _)) = outcome.failure {
        let mut left = SHRINK_MAX;
        let shrunk = campaign::shrink(history, || {
            left -= 1;
            left > 0
        });
        let shrunk = shrunk.map_or_else(String::new, |shrunk| shrunk.to_string());
        panic!("seed {}: {failure}\n{shrunk}repeat with WEIR_SEED={}", history.setup.seed, common::seed());
    }
    outcome.statistics
}

#[test]
fn replies_match_the_oracle() {
    histories(HistoryKind::fault_free(1500), 95, 100_000);
}

#[test]
fn freed_space_is_reused() {
    histories(HistoryKind { crowded: true, ..HistoryKind::with_crashes(8, 60) }, 70, 20_000);
}

#[test]
fn durable_data_survives_crashes() {
    histories(HistoryKind::with_crashes(10, 100), 80, 50_000);
}

#[test]
fn device_failures_lose_only_unprotected_data() {
    histories(HistoryKind { faults: true, ..HistoryKind::with_crashes(4, 60) }, 160, 10_000);
}

#[test]
fn silent_faults_are_detected_in_metadata() {
    let total = histories(HistoryKind { rot: true, ..HistoryKind::with_crashes(12, 100) }, 80, 20_000);
    assert!(total.damage_detected > 0 && total.damage_tolerated > 0 && total.damaged_data > 0, "{total:?}");
}

/// Returns the setup of a volume of two extents, striped over two devices with write caches that respond
/// within `response`.
fn striped(seed: Seed, response: Nanos) -> Setup {
    let device = DeviceSpec {
        size: Bytes::mib(4),
        pace: Pace::Random(response),
        write_cache: true,
        sector: 512,
        faults: vec![],
    };
    Setup {
        seed,
        extent: ExtentSize::new(Bytes::kib(64)).expect("a valid size"),
        policy: "stripe".to_owned(),
        devices: vec![device.clone(), device],
        journal_pages: 32,
        meta_pages: 96,
        mirrored: false,
        deadline: Nanos::secs(30),
        volumes: vec![VolumeSpec {
            size: Bytes::kib(128),
            hardening: Hardening::Flush,
            copies: 1,
            policy: None,
        }],
        when_full: WhenFull::Error,
        mover_share: MOVER_SHARE,
        extra: None,
        quiet: None,
        extent_cache: Bytes(0),
        moves: MoveControl::default(),
        flushes: FlushRules::default(),
        memory: Bytes::mib(4),
        depth: 1,
        durable_writes: DurableWrites::OneCommand,
        verified: false,
        planted: Planted::NONE,
        served: None,
    }
}

#[test]
fn data_read_after_kill_survives_power_loss() {
    let ask = |op| {
        HistoryStep::Request(RequestSpec {
            volume: 0,
            op,
            offset: VolumeOffset(0),
            len: Bytes::kib(128),
            fua: false,
        })
    };
    let crash = |how| HistoryStep::Crash(Crash { kind: how, ..Crash::power_loss_now() });
    // The writes are in place over durable blocks, so that only the data is at stake, and striped, so that
    // some of it is not on the device with the map.
    let steps = [ask(Op::Write), ask(Op::Flush), HistoryStep::Wait(2), ask(Op::Write), HistoryStep::Wait(1)];
    let steps =
        [&steps[..], &[crash(StopKind::Kill), HistoryStep::Check, crash(StopKind::PowerLoss)]].concat();
    for seed in 0..20 {
        let setup = striped(Seed(seed), Nanos::millis(1));
        run(&History { setup, steps: steps.clone() });
    }
}

/// The server stops for a little longer than a deadline, with or without the devices.
#[test]
fn clock_jump_fails_no_device() {
    let ask = |op| {
        HistoryStep::Request(RequestSpec {
            volume: 0,
            op,
            offset: VolumeOffset(0),
            len: Bytes::kib(128),
            fua: false,
        })
    };
    let sleep = HistoryStep::Jump { after: 0, time: Nanos::millis(3_100) };
    let steps =
        [ask(Op::Write), ask(Op::Flush), HistoryStep::Wait(2), ask(Op::Read), sleep, HistoryStep::Wait(1)];
    for seed in 0..20 {
        let setup = Setup { deadline: Nanos::secs(3), depth: 4, ..striped(Seed(seed), Nanos::millis(20)) };
        run(&History { setup, steps: steps.to_vec() });
    }
}

/// A write is refused for one extent at once and answered much later, because of another one. Meanwhile the
/// volume that had the space has been removed.
#[test]
fn refused_write_is_judged_at_refusal_time() {
    let kib = |volume, at, len: u64| RequestSpec {
        volume,
        op: Op::Write,
        offset: VolumeOffset(Bytes::kib(at).0),
        len: Bytes::kib(len),
        fua: false,
    };
    let device = |size, pace| DeviceSpec {
        size: Bytes::kib(size),
        pace: Pace::Random(pace),
        write_cache: true,
        sector: 512,
        faults: vec![],
    };
    let volume = |extents: u64| VolumeSpec {
        size: Bytes::kib(64 * extents),
        hardening: Hardening::Flush,
        copies: 1,
        policy: None,
    };
    let setup = Setup {
        seed: Seed(1),
        extent: ExtentSize::new(Bytes::kib(64)).expect("a valid size"),
        policy: "sequential".to_owned(),
        devices: vec![device(772, Nanos::micros(1)), device(324, Nanos::secs(1))],
        journal_pages: 16,
        meta_pages: 120,
        mirrored: false,
        deadline: Nanos::secs(30),
        volumes: vec![volume(16), volume(2)],
        when_full: WhenFull::Error,
        mover_share: MOVER_SHARE,
        extra: None,
        quiet: None,
        extent_cache: Bytes(0),
        moves: MoveControl::default(),
        flushes: FlushRules::default(),
        memory: Bytes::mib(4),
        depth: 8,
        durable_writes: DurableWrites::OneCommand,
        verified: false,
        planted: Planted::NONE,
        served: None,
    };
    let full = [kib(1, 0, 64), kib(0, 0, 1024)].map(HistoryStep::Request);
    let steps = [
        &full[..],
        &[
            HistoryStep::Wait(2),
            HistoryStep::Request(kib(1, 0, 128)),
            HistoryStep::Replace(Replacement { volume: 0, meanwhile: vec![] }),
            HistoryStep::Wait(1),
        ],
    ];
    let statistics = run(&History { setup, steps: steps.concat() });
    assert_eq!(statistics.no_space, 2);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..8 {
        let history =
            History::new(Seed(seed), &HistoryKind { faults: true, ..HistoryKind::with_crashes(3, 60) });
        let (first, second) = (history.run(), history.run());
        assert_eq!((first.digest, first.statistics), (second.digest, second.statistics));
    }
}

/// The seeds that failed once, divided among two tests: they take longer than all others here, and two
/// processors run both at once.
fn past_failing_seeds() -> [Vec<Seed>; 2] {
    let mut seeds = [vec![], vec![]];
    let lines = include_str!("../seeds/failed.txt").lines().filter(|line| !line.starts_with('#'));
    for (number, line) in lines.enumerate() {
        let seed = line.split_whitespace().next().and_then(|word| word.parse().ok()).map(Seed);
        seeds[number % 2].push(seed.unwrap_or_else(|| panic!("{line:?} does not begin with a seed")));
    }
    seeds
}

#[test]
fn past_failing_seeds_pass() {
    let [seeds, _] = past_failing_seeds();
    run_seeds(&seeds);
}

#[test]
fn other_past_failing_seeds_pass() {
    let [_, seeds] = past_failing_seeds();
    run_seeds(&seeds);
}

fn run_seeds(seeds: &[Seed]) {
    let mut total = Statistics::default();
    for &seed in seeds {
        let outcome = History::new(seed, &HistoryKind::of(seed)).run();
        if let Some((failure, step)) = outcome.failure {
            panic!("step {step}: {failure}\nrepeat with: cargo xtask crash --seed {seed}");
        }
        total += &outcome.statistics;
    }
    common::say(format_args!("{total} from seeds that failed once"));
    assert!(total.crashes > 0);
}
