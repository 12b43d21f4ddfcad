//! Tests of stacked logs.

mod naive;

use super::*;
use crate::flash::{self, FlashMode, FlashPlan, Nand, OverProvisioning, Precondition, Separation};
use crate::units::{duration, size};
use crate::{Load, SimError, load};
use proptest::prelude::*;
use weir_flash::{Thresholds, WearLevelling};
use weir_model::{Bytes, Nanos, Seed};
use weir_policy::reclaim;

const PAGE: Bytes = Bytes::kib(4);
/// Writes of single pages to 4,096 pages.
const UNIFORM: &str = "uniform reads=0% over=16MiB rate=1000";
const HOT: &str = "hotcold hot=first part=10% hits=90% reads=0% over=16MiB rate=1000";

fn words(words: &str) -> Box<dyn Load> {
    load::parse(words, 1, size, duration).expect("a load")
}

/// A layer with segments of so many pages.
fn layer(size: Bytes, pages: u64) -> LayerPlan {
    LayerPlan {
        size,
        segment: Bytes(pages * PAGE.0),
        shares: vec![1.0],
        reserve: 0.1,
        policy: reclaim::by_name("greedy").expect("a policy"),
        metadata: LogMetadata::default(),
        trim: false,
    }
}

fn stack(layers: Vec<LayerPlan>) -> StackPlan {
    StackPlan {
        page: PAGE,
        layers,
        defragger: None,
        precondition: StackPrecondition::Empty,
        repetition: Repetition { warm_up_max: 0.0, measured: 6.0 },
        seed: Seed(1),
    }
}

/// An upper log of 24 MiB with segments of 16 pages, on a lower one of capacity ratio 0.8.
fn two(lower_pages: u64) -> StackPlan {
    let upper = layer(Bytes::mib(24), 16);
    let lower = LayerPlan::size_for_ratio(upper.size, 0.8, 0.1);
    stack(vec![upper, layer(lower, lower_pages)])
}

fn outcome(load: &str, plan: &StackPlan) -> StackOutcome {
    simulate(&mut *words(load), plan).expect("a result")
}

/// Full layers clean from the first write, aged ones as much as they will in the end; what filled them is
/// no page of the user.
#[test]
fn filled_and_aged_layers_clean_from_the_first_write() {
    let first = |precondition| {
        let mut plan = StackPlan { precondition, ..two(64) };
        plan.repetition.measured = 0.5;
        let found = outcome(UNIFORM, &plan);
        assert!((found.measured_overwrites - 0.5).abs() < 0.01 && found.user_pages == 2048, "{found:?}");
        found.total_amplification
    };
    let steady = StackPlan { repetition: Repetition { warm_up_max: 20.0, measured: 4.0 }, ..two(64) };
    let steady = outcome(UNIFORM, &steady).total_amplification;
    let [empty, filled, aged] =
        [StackPrecondition::Empty, StackPrecondition::Fill, StackPrecondition::Age].map(first);
    assert!(empty < 1.01 && empty < filled && filled < aged, "{empty} empty, {filled} filled, {aged} aged");
    assert!((aged / steady - 1.0).abs() < 0.15, "{aged} aged, {steady} in the steady state");
}

/// A log that never cleans adds nothing, above or below; a single log is the device of a flash simulation.
/// A load that first writes all of its data in order, and then at random.
fn filling() -> Box<dyn Load> {
    words(
        "scan reads=0% size=4KiB over=16MiB rate=4096 for=1s / uniform reads=0% over=16MiB rate=1000 for=1h",
    )
}

/// The load's own first requests fill the layers, and are in no figure.
#[test]
fn first_requests_of_a_load_are_not_counted() {
    let mut load = filling();
    let mut first = 0;
    let mut now = Nanos(0);
    loop {
        now = load.next_arrival(now).at;
        if now >= Nanos::secs(1) {
            break;
        }
        first += 1;
    }
    let pages = 16 * 256;
    assert!(first > pages * 9 / 10, "{first}");
    let with = |precondition| {
        let plan = StackPlan { precondition, ..two(32) };
        simulate(&mut *filling(), &plan).expect("a result")
    };
    let (counted, not) = (with(StackPrecondition::Empty), with(StackPrecondition::Requests(first)));
    assert!((not.warm_up_overwrites - first as f64 / f64::from(pages as u32)).abs() < 1e-9);
    let written = |outcome: &StackOutcome| (outcome.user_pages, outcome.layers[0].received_pages);
    assert_eq!(written(&not), (6 * pages, 6 * pages), "what was filled is not among them");
    assert_eq!(written(&counted), written(&not));
    let copied = |outcome: &StackOutcome| outcome.layers[0].logs[0].copied_pages;
    assert!(copied(&not) > copied(&counted), "{} {}", copied(&not), copied(&counted));
    assert!(not.windows.iter().all(|window| window.measured && window.overwrites > 0.9));
}

#[test]
fn one_log_on_a_trivial_log_equals_a_flash_simulation() {
    let nand = Nand { block: 64, over_provisioning: OverProvisioning::OfAll(0.2), ..Nand::default() };
    let flash = FlashPlan {
        nand,
        capacity: None,
        policy: reclaim::by_name("greedy").expect("a policy"),
        separation: Separation::None,
        thresholds: Thresholds { start: 8, stop: 8 },
        wear: WearLevelling::default(),
        precondition: Precondition::Empty,
        warm_up_max: 0.0,
        measured: 6.0,
        mode: FlashMode::Closed(1),
        rated_cycles: 3000,
        bytes_per_day: None,
        seed: Seed(1),
    };
    let device = flash::simulate(&mut *words(UNIFORM), &flash).expect("a result");
    let one = LayerPlan { reserve: 0.085, ..layer(Bytes(u64::from(device.space.segments) << 18), 64) };
    let huge = layer(Bytes::mib(400), 64);
    let expected = (device.pages.user, device.pages.copied, device.pages.erases);
    let counts = |log: &LogFigures| (log.written_pages, log.copied_pages, log.erases);
    for plan in [vec![one.clone()], vec![one.clone(), huge]] {
        let found = outcome(UNIFORM, &stack(plan));
        assert_eq!(counts(&found.layers[0].logs[0]), expected, "{found:?}");
        assert_eq!(found.layers[0].logs[0].reserve_segments, device.space.reserve_segments);
        assert_eq!(found.layers[0].logs[0].wear, device.wear);
        assert!((found.total_amplification - device.amplification).abs() < 1e-12, "{found:?}");
        assert!((found.first_amplification - device.amplification).abs() < 1e-12, "{found:?}");
    }
}

/// A stack with much to clean below.
fn tight(lower_pages: u64) -> StackPlan {
    let mut plan = two(lower_pages);
    plan.layers[1].size = LayerPlan::size_for_ratio(plan.layers[0].size, 0.9, 0.1);
    plan
}

/// Cleaning above makes whole segments free below if those are equal or smaller, and parts of larger ones.
#[test]
fn lower_segments_beyond_the_upper_ones_cost_copies() {
    let flwa = [8, 16, 32, 64].map(|pages| outcome(HOT, &tight(pages)).last_amplification);
    assert!((flwa[0] - 1.0).abs() < 1e-12 && (flwa[1] - 1.0).abs() < 1e-12, "{flwa:?}");
    assert!(flwa[2] > 1.05 && flwa[3] > 1.05 * flwa[2], "{flwa:?}");
}

/// With pages of something else in front, an upper segment is in two lower ones.
#[test]
fn segments_out_of_alignment_cost_copies() {
    let mut shifted = tight(16);
    shifted.layers[1].metadata = LogMetadata { shift: 5, ..LogMetadata::default() };
    for plan in [shifted, tight(24), tight(12)] {
        let flwa = outcome(HOT, &plan).last_amplification;
        assert!(flwa > 1.01, "{:?}: {flwa}", plan.layers[1]);
    }
}

/// Each log begins with as many pages of its own as shift the rest, and these stay valid.
#[test]
fn every_log_is_shifted_by_pages_of_its_own() {
    let mut plan = two(64);
    plan.layers[0].shares = vec![1.0; 2];
    plan.layers[0].metadata.shift = 5;
    plan.layers[1].metadata.shift = 3;
    let layers = layer::stack(&plan.layers, PAGE, 4096, Seed(1)).expect("logs");
    let pages = |nth: usize| {
        let logs = layers[nth].logs.iter();
        logs.map(|one| (one.log.counters().user, one.log.valid())).collect::<Vec<_>>()
    };
    assert_eq!((pages(0), pages(1)), (vec![(5, 5); 2], vec![(13, 13)]));
}

#[test]
fn trim_of_upper_segments_relieves_the_lower_log() {
    let mut plan = two(64);
    let without = outcome(UNIFORM, &plan);
    plan.layers[0].trim = true;
    let with = outcome(UNIFORM, &plan);
    assert_eq!(with.first_amplification, without.first_amplification, "the upper log is the same");
    assert!(with.last_amplification < 0.95 * without.last_amplification, "{with:?}");
    assert!(with.layers[1].logs[0].trimmed_pages > 0 && without.layers[1].logs[0].trimmed_pages == 0);
}

/// Each log writes a checkpoint.
#[test]
fn more_logs_write_more_metadata() {
    let footprint = |logs: usize| {
        let mut plan = two(64);
        plan.layers[0].shares = vec![1.0; logs];
        plan.layers[0].metadata.checkpoint_every = 50;
        let found = outcome(UNIFORM, &plan);
        let written: u64 = found.layers[0].logs.iter().map(|log| log.written_pages).sum();
        (written - found.user_pages) as f64 / found.user_pages as f64
    };
    for (logs, share) in [(1, 0.02), (2, 0.04), (6, 0.12)] {
        assert!((footprint(logs) - share).abs() < 5e-4, "{logs} logs: {}", footprint(logs));
    }
}

#[test]
fn logs_of_different_activity_are_as_active_as_their_data() {
    let mut plan = two(64);
    plan.layers[0].shares = vec![0.1, 0.9];
    let found = outcome(HOT, &plan);
    let [hot, cold] = &found.layers[0].logs[..] else { panic!("{found:?}") };
    let share = hot.written_pages as f64 / found.user_pages as f64;
    assert!((share - 0.9).abs() < 0.02, "{share}");
    assert!(hot.segments * 8 < cold.segments && hot.wear.mean > 5.0 * cold.wear.mean, "{hot:?}, {cold:?}");
}

#[test]
fn the_defragger_pays_and_gains() {
    let with = |defragger| {
        let mut plan = StackPlan { defragger, ..two(64) };
        plan.layers[0].shares = vec![1.0; 3];
        outcome(HOT, &plan)
    };
    let without = with(None);
    assert!(without.defragger.is_none());
    for classes in [1, 4] {
        let defragger = Defragger { time: DefragTime::Every(0.5), share: 0.2, classes };
        let found = with(Some(defragger));
        let done = found.defragger.expect("it ran");
        assert_eq!(done.runs, 12);
        let segments: u32 = found.layers[0].logs.iter().map(|log| log.segments).sum();
        assert!(done.pages <= done.runs * 16 * u64::from(segments.div_ceil(5)) && done.pages > 0);
        let paid = done.pages as f64 / found.user_pages as f64;
        assert!((found.first_amplification - without.first_amplification - paid).abs() < 1e-9);
        assert!(found.last_amplification < without.last_amplification, "{found:?}");
    }
}

/// A segment is contiguous below until it is written again, also the one that was written last.
#[test]
fn what_is_defragmented_stays_so() {
    let plan = two(64);
    let mut layers = layer::stack(&plan.layers, PAGE, 4096, Seed(1)).expect("logs");
    let write = |layers: &mut [layer::Layer], pages: std::ops::Range<u64>| {
        for page in pages {
            layer::write(layers, page).expect("space");
        }
    };
    let all = Defragger { time: DefragTime::Every(1.0), share: 1.0, classes: 1 };
    write(&mut layers, 0..160);
    let run = |layers: &mut [layer::Layer]| defrag::run(layers, &all).expect("space");
    assert_eq!([run(&mut layers), run(&mut layers)], [160, 0], "ten segments of 16 pages, once");
    write(&mut layers, 160..192);
    assert_eq!(run(&mut layers), 32);
}

/// Gaps in the arrivals are idle time.
#[test]
fn the_defragger_waits_for_idle_time() {
    let runs = |idle| {
        let defragger = Defragger { time: DefragTime::Idle(idle), share: 1.0, classes: 1 };
        let plan = StackPlan { defragger: Some(defragger), ..two(64) };
        outcome(UNIFORM, &plan).defragger.expect("a defragger").runs
    };
    // Gaps are exponential with a mean of 1 ms: 24,576 of them are shorter than 20 ms.
    let (rare, never) = (runs(Nanos::millis(8)), runs(Nanos::millis(40)));
    assert!((1..100).contains(&rare) && never == 0, "{rare}, {never}");
}

#[test]
fn same_seed_gives_the_same_outcome() {
    for policy in reclaim::ALL {
        let mut plan = two(64);
        plan.layers.iter_mut().for_each(|layer| layer.policy = policy);
        plan.repetition.measured = 2.0;
        assert_eq!(outcome(HOT, &plan), outcome(HOT, &plan), "{}", policy.name);
    }
}

#[test]
fn warm_up_ends_in_the_steady_state_and_is_not_counted() {
    // A small log is never steady.
    let mut plan = StackPlan { repetition: Repetition { warm_up_max: 20.0, measured: 1.0 }, ..two(64) };
    plan.layers.iter_mut().for_each(|layer| layer.size = Bytes(16 * layer.size.0));
    let found = outcome("uniform reads=0% over=256MiB rate=1000", &plan);
    let warm = found.warm_up_overwrites;
    assert!(warm > 3.0 && warm < 20.0, "{warm}");
    assert_eq!(found.user_pages, 65_536);
    let measured: Vec<_> = found.windows.iter().filter(|window| window.measured).collect();
    let mean = measured.iter().map(|window| window.total_amplification).sum::<f64>() / measured.len() as f64;
    assert!((mean / found.total_amplification - 1.0).abs() < 1e-9, "{mean}");
}

#[test]
fn impossible_stacks_are_refused() {
    let fails = |plan: &StackPlan, load: &str| simulate(&mut *words(load), plan).map(drop);
    let small = stack(vec![layer(Bytes::mib(24), 16), layer(Bytes::kib(768), 64)]);
    assert!(matches!(fails(&small, UNIFORM), Err(SimError::LogTooSmall { layer: 2, segments: 3, .. })));
    let full = stack(vec![layer(Bytes::mib(17), 16), layer(Bytes::mib(40), 16)]);
    assert!(matches!(fails(&full, UNIFORM), Err(SimError::StackedLog { layer: 1, log: 1, .. })));
    let full = stack(vec![layer(Bytes::mib(24), 16), layer(Bytes::mib(25), 16)]);
    assert!(matches!(fails(&full, UNIFORM), Err(SimError::StackedLog { layer: 2, log: 1, .. })));
    assert!(matches!(fails(&two(16), "uniform over=16MiB"), Err(SimError::NoWrites(_))));
}

fn plans() -> impl Strategy<Value = StackPlan> {
    let metadata =
        (0_u32..2, prop_oneof![Just(0_u32), 5_u32..40], prop_oneof![Just(0_u64), 20_u64..90], 0_u32..9)
            .prop_map(|(summary, journal_every, checkpoint_every, shift)| LogMetadata {
                summary,
                journal_every,
                checkpoint_every,
                shift,
            });
    let one = (1_usize..4, 6_u64..20, metadata, any::<bool>(), 0..reclaim::ALL.len());
    let defragger = prop_oneof![
        Just(None),
        (0.1_f64..1.0, 0.05_f64..1.0, 1_u32..4).prop_map(|(every, share, classes)| {
            Some(Defragger { time: DefragTime::Every(every), share, classes })
        })
    ];
    (prop::collection::vec(one, 1..4), defragger, 0.4_f64..0.6).prop_map(|(layers, defragger, ratio)| {
        let mut above = Bytes::mib(1);
        let layers = layers.into_iter().map(|(logs, pages, metadata, trim, policy)| {
            let shares = (0..logs).map(|log| 1.0 + log as f64).collect();
            above = LayerPlan::size_for_ratio(above, ratio, 0.2);
            let plain = layer(above, pages);
            LayerPlan { shares, metadata, trim, reserve: 0.1, policy: &reclaim::ALL[policy], ..plain }
        });
        StackPlan { layers: layers.collect(), defragger, ..stack(Vec::new()) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every page written is counted once in each layer.
    #[test]
    fn nothing_is_lost_between_layers(plan in plans(), seed in 1_u64..100) {
        let mut load = load::parse("hotcold reads=10% over=1MiB", seed, size, duration).expect("a load");
        let found = simulate(&mut *load, &StackPlan { seed: Seed(seed), ..plan.clone() });
        let Ok(found) = found else {
            prop_assert!(matches!(found, Err(SimError::StackedLog { .. })), "{:?}", found);
            return Err(TestCaseError::reject("a log without space"));
        };
        let shifted = |nth: usize| {
            let layer = &plan.layers[nth];
            layer.shares.len() as u64 * u64::from(layer.metadata.shift)
        };
        let mut above = (found.user_pages, found.user_pages, 0);
        let defragged = found.defragger.map_or(0, |done| done.pages);
        for (nth, layer) in found.layers.iter().enumerate() {
            let LayerFigures { received_pages, programmed_pages, .. } = *layer;
            let of = |count: fn(&LogFigures) -> u64| layer.logs.iter().map(count).sum::<u64>();
            // The pages that shift the others were written before the measurement began.
            prop_assert_eq!(received_pages, above.1 + above.2);
            let every = plan.layers[nth].metadata.checkpoint_every;
            let total = received_pages + (0..nth).map(shifted).sum::<u64>();
            let checkpoints = |total: u64| total.checked_div(every).unwrap_or(0) * layer.logs.len() as u64;
            let written = of(|log| log.written_pages);
            if nth == 0 {
                prop_assert_eq!(written, received_pages + checkpoints(total));
            } else {
                prop_assert!(written >= received_pages);
            }
            let programmed = written + of(|log| log.copied_pages) + of(|log| log.metadata_pages);
            prop_assert_eq!(programmed_pages, programmed);
            for log in &layer.logs {
                let pages = log.segment_bytes / PAGE.0;
                let all = log.written_pages + log.copied_pages + log.metadata_pages;
                prop_assert!(all <= (log.erases + u64::from(log.segments)) * pages);
                prop_assert!(log.utilisation > 0.0 && log.utilisation < 1.0);
            }
            above = (received_pages, programmed_pages, if nth == 0 { defragged } else { 0 });
        }
        let product = found.first_amplification
            * found.layers.iter().skip(1).map(|layer| layer.amplification).product::<f64>();
        if found.layers.len() > 1 {
            prop_assert!((product / found.total_amplification - 1.0).abs() < 1e-9);
        }
    }
}
