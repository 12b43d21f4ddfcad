//! Tests against published ratios for real traces: of another simulator (libCacheSim), block by block, and of
//! the authors of ARC. The traces are not part of the repository: `WEIR_TRACES` names their folder; by
//! default it is `../shared/traces` beside the repository. Missing traces are skipped.

#![expect(clippy::disallowed_types, clippy::disallowed_macros, reason = "a test may read a file")]

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use weir_sim::cache::{
    AdmissionPolicy, AdmissionSettings, BlockSize, BlockTrace, EvictionPolicy, Loader, Setup, WriteMode, play,
};
use weir_trace::{Reader, Tally};

const CLOUD_PHYSICS: &str = "workloads/cloudphysics_vm.csv.gz";

/// 1, 5, 10 and 20 % of the blocks.
const SIZES: [u32; 4] = [2_692, 13_460, 26_921, 53_842];

/// Miss ratios of libCacheSim aa0fc40 with its defaults, ignoring sizes.
const PUBLISHED: [(&str, [&str; 4]); 8] = [
    ("fifo", ["0.8977", "0.8873", "0.8729", "0.8109"]),
    ("lru", ["0.8969", "0.8871", "0.8741", "0.8129"]),
    ("clock", ["0.8970", "0.8868", "0.8729", "0.8021"]),
    ("arc", ["0.8979", "0.8555", "0.8245", "0.7813"]),
    ("s3fifo", ["0.8932", "0.8654", "0.8110", "0.7264"]),
    ("sieve", ["0.9032", "0.8653", "0.8329", "0.7457"]),
    ("lfu", ["0.9366", "0.8823", "0.8154", "0.7457"]),
    ("belady", ["0.8646", "0.7703", "0.6761", "0.5466"]),
];

fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    std::env::var_os("WEIR_TRACES").map_or_else(beside, PathBuf::from)
}

/// Returns the trace, and the sum of the block numbers over all accesses.
fn load(name: &str) -> Option<(BlockTrace, u64)> {
    let Ok(file) = File::open(folder().join(name)) else {
        println!("left out: {name} is not in {}; set WEIR_TRACES", folder().display());
        return None;
    };
    let mut reader = Reader::open(name, BufReader::new(file), None).expect("a trace");
    let (mut loader, mut sum) = (Loader::default(), 0);
    Tally::read(&mut reader, true, |record| {
        sum += BlockSize::default().touched(&record).sum::<u64>();
        loader.take(&record);
    })
    .expect("a whole trace");
    Some((loader.finish().expect("accesses"), sum))
}

#[test]
fn miss_ratios_of_a_real_trace_are_the_published_ones() {
    let Some((trace, sum)) = load(CLOUD_PHYSICS) else { return };
    assert_eq!((trace.accesses().len(), trace.blocks(), sum), (1_141_869, 269_210, 4_458_118_962_007));
    let admission = AdmissionPolicy::by_name("all").expect("a policy");
    for (name, published) in PUBLISHED {
        let eviction = EvictionPolicy::by_name(name).expect("a policy");
        let ratio = |capacity| {
            let mode = WriteMode::Back { dirty: 0.5 };
            let outcome = play(
                &trace,
                &Setup { eviction, admission, settings: AdmissionSettings::default(), capacity, mode },
            );
            assert_eq!(outcome.writes.accesses, 656_169, "{name}");
            format!("{:.4}", outcome.all().miss_ratio())
        };
        assert_eq!(SIZES.map(ratio), published, "{name}");
    }
}

const OLTP: &str = "page_refs/arc_OLTP.lis.gz";

/// Published hit ratios in per cent, N. Megiddo, D. S. Modha, FAST 2003, with caches of these sizes in pages.
const OLTP_SIZES: [u32; 5] = [1_000, 2_000, 5_000, 10_000, 15_000];
const OLTP_PUBLISHED: [(&str, [f64; 5]); 2] =
    [("lru", [32.83, 42.47, 53.65, 60.70, 64.63]), ("arc", [38.93, 46.08, 55.25, 61.87, 65.40])];

/// ARC's `p` is real here and an integer there, which makes a difference of at most 0.02 points.
#[test]
fn hit_ratios_of_the_arc_papers_oltp_trace_are_the_published_ones() {
    let Some((trace, _)) = load(OLTP) else { return };
    let admission = AdmissionPolicy::by_name("all").expect("a policy");
    for (name, published) in OLTP_PUBLISHED {
        let eviction = EvictionPolicy::by_name(name).expect("a policy");
        for (capacity, published) in OLTP_SIZES.into_iter().zip(published) {
            let outcome = play(
                &trace,
                &Setup {
                    eviction,
                    admission,
                    settings: AdmissionSettings::default(),
                    capacity,
                    mode: WriteMode::Through,
                },
            );
            let found = outcome.all().hit_ratio() * 100.0;
            assert!((found - published).abs() < 0.026, "{name} of {capacity}: {found:.2}, not {published}");
        }
    }
}
