//! Tests on figures computed by hand, and of optimized code against naive implementations.

mod bounded;

use super::timeline::TimelineCollector;
use super::*;
use crate::cache::{
    AdmissionPolicy, AdmissionSettings, BlockTrace, EvictionPolicy, Loader, Setup, Stack, WriteMode, play,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_model::{Bytes, Hint, Nanos, Op, VolumeOffset};
use weir_policy::eviction::{AccessKind, Block};
use weir_trace::{Disk, Record};

fn record(at: u64, op: Op, block: u64, blocks: u64) -> Record {
    let (offset, len) = (VolumeOffset(block * 4096), Bytes(blocks * 4096));
    Record { at: Nanos(at), disk: Disk(0), op, offset, len, hint: Hint::None }
}

fn analyse(records: &[Record], sampling: Sampling) -> (Analysis, Sample) {
    let mut analyzer = Analyzer::new(Settings { sampling, ..Settings::default() });
    records.iter().for_each(|record| analyzer.take(record));
    analyzer.finish().expect("a trace")
}

fn load(records: &[Record]) -> BlockTrace {
    let mut loader = Loader::default();
    records.iter().for_each(|record| loader.take(record));
    loader.finish().expect("a trace")
}

fn setup(eviction: &str, admission: &str, capacity: u32) -> Setup {
    Setup {
        eviction: EvictionPolicy::by_name(eviction).expect("an eviction policy"),
        admission: AdmissionPolicy::by_name(admission).expect("an admission policy"),
        settings: AdmissionSettings::default(),
        capacity,
        mode: WriteMode::Through,
    }
}

/// A naive stack, most recently used block first.
fn naive(accesses: &[u32]) -> Vec<Option<u32>> {
    let mut stack: Vec<u32> = Vec::new();
    let mut distance = |block: &u32| {
        let at = stack.iter().position(|other| other == block);
        at.map(|at| stack.remove(at));
        stack.insert(0, *block);
        at.map(|at| at as u32)
    };
    accesses.iter().map(&mut distance).collect()
}

/// Access sequences long enough to exhaust the slots several times, with skewed frequencies.
fn accesses() -> impl Strategy<Value = Vec<u32>> {
    (1u32..900).prop_flat_map(|blocks| {
        prop::collection::vec((0..blocks, 0..blocks).prop_map(|(a, b)| a.min(b)), 1..4_000)
    })
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let op = prop_oneof![2 => Just(Op::Read), 1 => Just(Op::Write)];
    let one = (0u64..3_000_000_000, op, 0u64..3_000, 1u64..6, 0u32..2);
    let one = one.prop_map(|(gap, op, block, blocks, disk)| Record {
        disk: Disk(disk),
        ..record(gap, op, block * block / 900, blocks)
    });
    prop::collection::vec(one, 1..300).prop_map(|mut records: Vec<Record>| {
        let mut at = Nanos(0);
        for record in &mut records {
            at += record.at;
            record.at = at;
        }
        records
    })
}

proptest! {
    #[test]
    fn distances_are_those_of_a_stack(accesses in accesses()) {
        let mut stack = Stack::new(0);
        let depths = accesses.iter().map(|block| stack.touch(Block(*block)));
        let found: Vec<_> = depths.map(|depth| depth.map(|depth| depth - 1)).collect();
        prop_assert_eq!(found, naive(&accesses));
    }

    /// The exact curve equals the misses of simulated caches of each size.
    #[test]
    fn exact_curve_matches_lru(records in records()) {
        let (analysis, _) = analyse(&records, Sampling::default());
        let trace = load(&records);
        prop_assert_eq!(u64::from(trace.blocks()), analysis.blocks);
        for point in &analysis.curves[0].points {
            let misses = play(&trace, &setup("lru", "all", point.size_blocks as u32)).all().misses;
            prop_assert_eq!(point.miss_ratio, misses as f64 / trace.accesses().len() as f64);
        }
    }

    /// A sample of all blocks involves no estimation, whatever the policy.
    #[test]
    fn a_whole_sample_is_the_trace(records in records()) {
        let (analysis, sample) = analyse(&records, Sampling::fixed(1.0));
        let trace = load(&records);
        for policy in EvictionPolicy::ALL {
            let curve = analysis.curve(&sample, policy).expect("played");
            for point in curve.points.iter().step_by(7) {
                let misses = play(&trace, &setup(policy.name, "all", point.size_blocks as u32)).all().misses;
                prop_assert_eq!(point.miss_ratio, misses as f64 / trace.accesses().len() as f64);
                prop_assert_eq!(point.error, Some(0.0));
            }
        }
    }

    /// Lowering the rate later gives the same result as the lower rate from the start.
    #[test]
    fn lowering_the_limit_equals_a_smaller_sample(
        accesses in accesses(),
        whole_up_to in 1usize..200,
        blocks_max in prop::option::of(1usize..200),
        least in 0.01..0.5f64,
    ) {
        let sampled = |sampling| {
            let mut sampler = Sampler::new(sampling);
            accesses.iter().for_each(|block| sampler.take((*block).into(), AccessKind::Read));
            sampler.finish()
        };
        let lowered = sampled(Sampling { share: least, whole_up_to, blocks_max });
        prop_assert!(blocks_max.is_some() || lowered.probability >= least * 0.999_999);
        let is_least = lowered.probability <= least * 1.000_001;
        prop_assert!(lowered.blocks() <= whole_up_to || is_least, "{:?}", lowered);
        prop_assert!(blocks_max.is_none_or(|most| lowered.blocks() <= most), "{:?}", lowered);
        let fixed = sampled(Sampling::fixed(lowered.probability));
        let blocks = |sample: &Sample| sample.accesses().collect::<Vec<_>>();
        prop_assert_eq!(blocks(&lowered), blocks(&fixed));
        prop_assert_eq!(lowered.seen, accesses.len() as u64);
        let distinct = naive(&accesses).iter().filter(|distance| distance.is_none()).count() as f64;
        let counted = lowered.distinct_blocks;
        prop_assert!((counted - distinct).abs() <= 3.0, "{counted} of {distinct}");
    }

    /// A cache of the critical size never evicts, and one block less is too few.
    #[test]
    fn critical_caches_are_just_large_enough(records in records()) {
        let (analysis, _) = analyse(&records, Sampling::default());
        let trace = load(&records);
        for critical in &analysis.critical {
            let evicted = |blocks: u64| {
                play(&trace, &setup("fifo", critical.admission, blocks as u32)).evicted
            };
            prop_assert_eq!(evicted(critical.blocks.max(1)), 0, "{:?}", critical);
            // TinyLFU rejects blocks instead.
            if critical.blocks > 1 && critical.admission != "tinylfu" {
                prop_assert!(evicted(critical.blocks - 1) > 0, "{:?}", critical);
            }
        }
    }

    /// Windows and regions hold the right counts however often they were widened.
    #[test]
    fn timeline_matches_naive_counts(
        requests in prop::collection::vec((0u64..1 << 20, 0u64..1 << 24, 1u64..600, any::<bool>()), 1..200),
    ) {
        let (mut places, mut at, mut requests) = (TimelineCollector::default(), 0, requests);
        for (nth, request) in requests.iter_mut().enumerate() {
            at += request.0;
            request.0 = at;
            places.add(at, request.1..=request.1 + request.2 - 1, request.3, nth as u64 + 1);
        }
        let found = places.finish();
        prop_assert!(found.windows.len() as u64 <= WINDOWS && found.heat[0].len() as u64 <= REGIONS);
        let mut heat: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for &(at, first, count, _) in &requests {
            for block in first..first + count {
                *heat.entry((at / found.window, (block - found.first_block) / found.region_blocks)).or_default() += 1;
            }
        }
        for (window, (stretch, row)) in (0..).zip(found.windows.iter().zip(&found.heat)) {
            prop_assert_eq!(stretch.start, window * found.window);
            let of = |is_write| {
                requests.iter().filter(|r| r.0 / found.window == window && r.3 == is_write).count() as u64
            };
            prop_assert_eq!((stretch.reads, stretch.writes), (of(false), of(true)));
            prop_assert_eq!(stretch.footprint, requests.iter().filter(|r| r.0 < (window + 1) * found.window).count() as u64);
            for (region, accesses) in (0..).zip(row) {
                prop_assert_eq!(*accesses, heat.remove(&(window, region)).unwrap_or(0));
            }
        }
        prop_assert!(heat.is_empty());
    }
}

#[test]
fn small_trace_has_the_expected_figures() {
    let ms = 1_000_000;
    let (analysis, _) = analyse(
        &[
            record(5 * ms, Op::Write, 0, 2),
            record(6 * ms, Op::Read, 0, 1),
            record(6 * ms, Op::Trim, 0, 100),
            record(8 * ms, Op::Read, 1, 1),
            record(9 * ms, Op::Write, 0, 1),
            Record { disk: Disk(1), len: Bytes(512), ..record(13 * ms, Op::Read, 0, 1) },
            record(13 * ms, Op::Write, 0, 1),
        ],
        Sampling::default(),
    );
    let counted = |requests, bytes, blocks| Counted { requests, bytes, blocks };
    assert_eq!(
        (analysis.reads, analysis.writes, analysis.trims),
        (counted(3, 8704, 3), counted(3, 16_384, 2), counted(1, 409_600, 0))
    );
    assert_eq!((analysis.accesses, analysis.blocks), (7, 3));
    assert_eq!((analysis.read_share, analysis.aligned_share), (0.5, 5.0 / 6.0));
    let times = analysis.reuse_times.expect("times");
    let only = |spread: &Spread| (spread.count, spread.min, spread.max);
    assert_eq!(only(&times.read_after_write), (2, ms, 3 * ms));
    assert_eq!(only(&times.write_after_read), (1, 3 * ms, 3 * ms));
    assert_eq!(only(&times.write_after_write), (1, 4 * ms, 4 * ms));
    assert_eq!(only(&times.read_after_read), (0, 0, 0));
    // The accesses are blocks 0 1 | 0 | 1 | 0 | other disk | 0.
    assert_eq!((analysis.reuse_distances.count, analysis.reuse_distances.max), (4, 1));
    assert_eq!(analysis.sequentiality.after_previous, 1.0 / 6.0, "block 1 after block 0");
    assert_eq!(analysis.sequentiality.run_requests.count, 5);
    let popularity = analysis.popularity;
    assert_eq!(popularity.shares[0], Share { of_blocks: 0.001, of_accesses: 4.0 / 7.0 });
    assert_eq!(popularity.regions[0], Region { disk: 0, first_block: 0, accesses: 6, blocks: 2 });
    let arrivals = analysis.arrivals.expect("times");
    assert_eq!((arrivals.gaps.count, arrivals.gaps.min, arrivals.gaps.max), (5, 0, 4 * ms));
    // Gaps of 1, 2, 1, 4 and 0 ms.
    let variation = arrivals.variation.expect("gaps");
    assert!((variation - 0.847_791).abs() < 1e-5, "{variation}");
    assert_eq!((arrivals.bursts, arrivals.out_of_order), (vec![], 0));
}

#[test]
fn runs_are_found_in_interleaved_streams() {
    let mut records = Vec::new();
    for step in 0..10 {
        records.extend([record(0, Op::Read, step * 2, 2), record(0, Op::Write, 1000 + step, 1)]);
        records.push(record(0, Op::Read, 5000 + 7 * step, 1));
    }
    let (analysis, _) = analyse(&records, Sampling::default());
    let found = analysis.sequentiality;
    assert_eq!((found.after_previous, found.after_recent), (0.0, 18.0 / 30.0));
    assert_eq!((found.run_requests.count, found.run_requests.max), (12, 10));
    assert_eq!((found.run_bytes.max, found.run_bytes.min), (20 * 4096, 4096));
}

/// A Poisson process has a coefficient of variation and an index of dispersion of 1; requests that arrive by
/// the hundred do not.
#[test]
fn bursts_differ_from_steady_arrivals() {
    let mut random = weir_model::Rng::new(weir_model::Seed(7));
    let mut at = 0.0;
    let mut poisson = |count: u64| {
        at += -1e9 / 500.0 * (1.0 - random.word() as f64 / 2f64.powi(64)).ln();
        (0..count).map(|n| record(at as u64, Op::Read, n, 1)).collect::<Vec<_>>()
    };
    let steady: Vec<_> = (0..50_000).flat_map(|_| poisson(1)).collect();
    let bursts: Vec<_> = (0..5_000).flat_map(|_| poisson(10)).collect();
    let arrivals = |records: &[Record]| analyse(records, Sampling::default()).0.arrivals.expect("times");
    let (steady, bursts) = (arrivals(&steady), arrivals(&bursts));
    let variation = |arrivals: &Arrivals| arrivals.variation.expect("gaps");
    assert!((variation(&steady) - 1.0).abs() < 0.03, "{steady:?}");
    // Nine gaps of ten are 0: the square of the variation is 2 * 10 - 1.
    assert!((variation(&bursts) - 19f64.sqrt()).abs() < 0.2, "{bursts:?}");
    assert_eq!(steady.bursts.len(), 2, "{steady:?}");
    for (steady, bursts) in steady.bursts.iter().zip(&bursts.bursts) {
        assert!((0.6..1.5).contains(&steady.dispersion), "{steady:?}");
        assert!((6.0..15.0).contains(&bursts.dispersion), "{bursts:?}");
    }
}

#[test]
fn spreads_are_exact_at_powers_of_two() {
    let mut spreading = distribution::DistributionCollector::default();
    [0, 1, 1, 3, 4096, 4096, 4096, 4096, 8191, u64::MAX].into_iter().for_each(|number| spreading.add(number));
    let spread = spreading.spread();
    assert_eq!((spread.count, spread.min, spread.p50, spread.max), (10, 0, 4096, 1 << 62));
    let full: Vec<_> = spread.buckets.iter().filter(|b| b.count > 0).map(|b| (b.from, b.count)).collect();
    assert_eq!(full, [(1, 3), (2, 1), (4096, 5), (1 << 62, 1)]);
}

/// The mean of a sample's curve is near the exact one, and its stated error is about as large as its actual
/// error.
#[test]
fn samples_report_their_standard_error() {
    let mut random = weir_model::Rng::new(weir_model::Seed(3));
    // Many blocks with skewed frequencies.
    let mut draw = || {
        let share = random.word() as f64 / 2f64.powi(64);
        (share.powi(3) * 100_000.0) as u64
    };
    let records: Vec<_> = (0..300_000).map(|n| record(n, Op::Read, draw(), 1)).collect();
    for name in ["lru", "s3fifo"] {
        let policy = EvictionPolicy::by_name(name).expect("a policy");
        let (whole, all) = analyse(&records, Sampling::fixed(1.0));
        let truth = whole.curve(&all, policy).expect("played");
        let (analysis, sample) = analyse(&records, Sampling::fixed(0.1));
        let estimate = analysis.curve(&sample, policy).expect("played");
        assert!(estimate.distance(&truth) < 0.01, "{name}: {}", estimate.distance(&truth));
        let near = estimate.points.iter().zip(&truth.points).filter(|(estimate, truth)| {
            (estimate.miss_ratio - truth.miss_ratio).abs() <= 2.5 * estimate.error.expect("an error") + 1e-3
        });
        assert!(near.count() * 10 >= truth.points.len() * 9, "{name}");
        let largest = estimate.points.iter().filter_map(|point| point.error).fold(0.0, f64::max);
        assert!(largest < 0.03, "{name}: {largest}");
    }
}

#[test]
fn impossible_requests_are_rejected() {
    let finish = |record: Option<Record>| {
        let mut analyzer = Analyzer::new(Settings::default());
        record.iter().for_each(|record| analyzer.take(record));
        analyzer.finish().map(|(analysis, _)| analysis.blocks).map_err(|error| error.to_string())
    };
    assert!(finish(None).unwrap_err().starts_with("nothing is read or written"));
    assert!(finish(Some(record(0, Op::Trim, 0, 1))).unwrap_err().starts_with("nothing is read"));
    assert!(finish(Some(record(0, Op::Read, 0, 1 << 30))).unwrap_err().contains("more than 4 GiB"));
    assert!(finish(Some(record(0, Op::Read, 1 << 50, 1))).unwrap_err().contains("out of reach"));
    assert_eq!(finish(Some(record(0, Op::Read, (1 << 50) - 1, 1))), Ok(1));
}
