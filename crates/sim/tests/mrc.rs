//! Tests of miss-ratio curves on the development traces: LRU's exact curve against simulated caches, and
//! estimates from samples against exact curves. The traces are not part of the repository: `WEIR_TRACES`
//! names their folder; by default it is `../shared/traces` beside the repository. Missing traces are skipped.

#![expect(clippy::disallowed_types, clippy::disallowed_macros, reason = "a test may read a file")]

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use weir_model::Op;
use weir_sim::analysis::{Analysis, Analyzer, Curve, Point, Sample, Sampling, Settings};
use weir_sim::cache::{
    AdmissionPolicy, AdmissionSettings, BlockTrace, EvictionPolicy, Loader, Setup, WriteMode, play,
};
use weir_trace::{Reader, Record, Tally};

/// A trace with known figures: requests that begin where the previous one ended, and where one of the last 32
/// ended; and accesses that are not the first of their blocks. All are in per cent as counted by
/// `trace_stats.py`, which rounds the former to hundredths and the latter to tenths.
const TRACES: &[(&str, [f64; 3])] = &[
    ("workloads/cloudphysics_vm.csv.gz", [26.0, 58.3, 76.4]),
    ("workloads/dtrs_release_server.trace.gz", [20.1, 84.7, 27.7]),
    ("workloads/websearch_small.trace.gz", [9.6, 33.3, 0.3]),
    ("workloads/msr_hm_rw_20_80_105.trace.gz", [2.8, 22.8, 55.4]),
    ("workloads/msr_hm_rw_40_60_1370.trace.gz", [8.1, 25.0, 42.9]),
    ("workloads/hplajw_1week.csv.gz", [1.4, 10.0, 90.0]),
    ("workloads/sqlite_wal_ext4.blkev.gz", [6.7, 13.3, 87.1]),
    ("device/nvme_tencent_rw_60_40_490.csv.gz", [0.9, 8.0, 89.8]),
    ("device/nvme_tencent_most_size_thpt_222.csv.gz", [1.6, 15.7, 97.5]),
    ("page_refs/arc_OLTP.lis.gz", [14.9, 31.9, 79.6]),
    ("page_refs/arc_P2.lis.gz", [11.6, 21.8, 94.6]),
    ("samples/msr_hm0_sample.csv.gz", [3.9, 24.4, 22.5]),
    ("samples/systor17_sample.csv.gz", [11.0, 34.0, 6.1]),
];

fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    std::env::var_os("WEIR_TRACES").map_or_else(beside, PathBuf::from)
}

/// Returns the reads and writes of a trace.
fn records(name: &str) -> Option<Vec<Record>> {
    let Ok(file) = File::open(folder().join(name)) else {
        println!("left out: {name} is not in {}; set WEIR_TRACES", folder().display());
        return None;
    };
    let mut reader = Reader::open(name, BufReader::new(file), None).expect("a trace");
    let mut records = Vec::new();
    Tally::read(&mut reader, true, |record| records.push(record)).expect("a whole trace");
    records.retain(|record| record.op != Op::Trim);
    Some(records)
}

fn analyse(records: &[Record], sampling: Sampling) -> (Analysis, Sample) {
    let mut analyzer = Analyzer::new(Settings { sampling, ..Settings::default() });
    records.iter().for_each(|record| analyzer.take(record));
    analyzer.finish().expect("a trace")
}

fn policy(name: &str) -> &'static EvictionPolicy {
    EvictionPolicy::by_name(name).expect("a policy")
}

fn load(records: &[Record]) -> BlockTrace {
    let mut loader = Loader::default();
    records.iter().for_each(|record| loader.take(record));
    loader.finish().expect("accesses")
}

#[test]
fn exact_curves_match_lru_and_known_figures() {
    let admission = AdmissionPolicy::by_name("all").expect("a policy");
    for (name, known) in TRACES {
        let Some(records) = records(name) else { continue };
        let (analysis, _) = analyse(&records, Sampling::fixed(0.01));
        let sequential = &analysis.sequentiality;
        let shares = [sequential.after_previous, sequential.after_recent, analysis.reaccess_share];
        for (found, known) in shares.map(|share| share * 100.0).into_iter().zip(known) {
            assert!((found - known).abs() < 0.056, "{name}: {found}, not {known}");
        }
        let trace = load(&records);
        assert_eq!(
            (trace.blocks().into(), trace.accesses().len() as u64),
            (analysis.blocks, analysis.accesses)
        );
        let points = &analysis.curves[0].points;
        for point in [0, 1, 3, 7, 12, 22, 32, 52, 77, 101].iter().filter_map(|at| points.get(*at)) {
            let (eviction, capacity) = (policy("lru"), point.size_blocks as u32);
            let setup = Setup {
                eviction,
                admission,
                settings: AdmissionSettings::default(),
                capacity,
                mode: WriteMode::Through,
            };
            let misses = play(&trace, &setup).all().misses;
            let told = point.miss_ratio * analysis.accesses as f64;
            assert!((told - misses as f64).abs() < 1e-3, "{name}, {capacity} blocks: {told}, not {misses}");
        }
    }
}

/// Counts the points of a curve that are within two of their standard errors of the truth, or a thousandth.
fn near(curve: &Curve, truth: &Curve) -> usize {
    let is_near = |found: &Point, truth: &Point| {
        (found.miss_ratio - truth.miss_ratio).abs() <= 2.0 * found.error.unwrap_or(0.0) + 1e-3
    };
    curve.points.iter().zip(&truth.points).filter(|(found, truth)| is_near(found, truth)).count()
}

/// Samples of one per cent of the blocks, and at least 8,192 of them where there are as many: the mean
/// distance of the curves is at most 0.02. With exactly one per cent this holds where that is 900 blocks or
/// more; elsewhere the distance is printed.
#[test]
fn samples_of_one_per_cent_give_the_curves_within_two_hundredths() {
    let (mut points, mut in_reach) = (0, 0);
    for (name, _) in TRACES {
        let Some(records) = records(name) else { continue };
        let (analysis, sample) = analyse(&records, Sampling::default());
        let (_, strict) = analyse(&records, Sampling::fixed(0.01));
        let (_, whole) = analyse(&records, Sampling::fixed(1.0));
        for eviction in ["lru", "s3fifo"].map(policy) {
            let truth = analysis.curve(&whole, eviction).expect("played");
            if eviction.name == "lru" {
                assert_eq!(truth.distance(&analysis.curves[0]), 0.0, "{name}");
            }
            let [found, few] =
                [&sample, &strict].map(|sample| analysis.curve(sample, eviction).expect("played"));
            let [error, few_error] = [found.distance(&truth), few.distance(&truth)];
            println!(
                "{name} {}: {:.2} %, {} blocks: {error:.4}; 1 %, {} blocks: {few_error:.4}",
                eviction.name,
                found.rate * 100.0,
                found.sampled_blocks,
                few.sampled_blocks
            );
            assert!(error <= 0.02, "{name} {}: {error}", eviction.name);
            assert!(few_error <= 0.02 || few.sampled_blocks < 900, "{name} {}: {few_error}", eviction.name);
            if found.rate < 1.0 {
                points += truth.points.len();
                in_reach += near(&found, &truth);
            }
        }
    }
    println!("{in_reach} of {points} points within two standard errors");
    assert!(in_reach * 10 >= points * 8, "{in_reach} of {points}");
}
