//! Reads the development traces completely. They are not part of the repository: `WEIR_TRACES` names their
//! folder; by default it is `../shared/traces` beside the repository. Missing traces are skipped.

#![expect(clippy::disallowed_types, clippy::disallowed_macros, reason = "a test may read a file")]

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use weir_model::{BLOCK, Op};
use weir_trace::{Reader, Trace};

/// File, format, number of requests, share of reads, distinct 4 KiB blocks, as counted by `trace_stats.py`.
const EXPECTED: &[(&str, &str, usize, f64, usize)] = &[
    ("workloads/cloudphysics_vm.csv.gz", "vscsi", 113_872, 0.412, 269_210),
    ("workloads/dtrs_release_server.trace.gz", "mqsim", 127_043, 0.890, 1_272_267),
    ("workloads/websearch_small.trace.gz", "mqsim", 24_783, 1.0, 93_029),
    ("workloads/msr_hm_rw_20_80_105.trace.gz", "ms-bytes", 10_000, 0.202, 7_385),
    ("workloads/msr_hm_rw_40_60_1370.trace.gz", "ms-bytes", 10_000, 0.405, 8_968),
    ("workloads/hplajw_1week.csv.gz", "hpl", 44_519, 0.293, 7_344),
    ("workloads/sqlite_wal_ext4.blkev.gz", "blkev", 5_007, 0.001, 2_174),
    ("device/nvme_tencent_rw_60_40_490.csv.gz", "replayed", 50_000, 0.600, 14_972),
    ("device/nvme_tencent_most_size_thpt_222.csv.gz", "replayed", 50_000, 0.833, 7_970),
    ("page_refs/arc_OLTP.lis.gz", "arc-pages", 914_145, 1.0, 186_880),
    ("page_refs/arc_P2.lis.gz", "arc", 666_176, 1.0, 120_308),
    ("samples/msr_hm0_sample.csv.gz", "msr", 1_000, 0.508, 1_917),
    ("device/hdd_cheetah9LP.trace.gz", "disksim-validate", 10_000, 0.659, 11_519),
    ("device/hdd_atlas10k.trace.gz", "disksim-validate", 10_000, 0.657, 11_506),
    ("device/hdd_hp_c2247a.trace.gz", "disksim-validate", 9_999, 0.512, 25_395),
    ("samples/systor17_sample.csv.gz", "systor", 999, 0.827, 9_831),
];

fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    std::env::var_os("WEIR_TRACES").map_or_else(beside, PathBuf::from)
}

#[test]
fn the_development_traces_have_the_known_counts() {
    for &(name, format, requests, reads, blocks) in EXPECTED {
        let Ok(file) = File::open(folder().join(name)) else {
            println!("left out: {name} is not in {}; set WEIR_TRACES", folder().display());
            continue;
        };
        let reader = Reader::open(name, BufReader::new(file), None).expect("a trace");
        println!("{name}: {}, {}", reader.format().name, reader.note().unwrap_or("no doubt"));
        let trace = Trace::load(reader, true).expect("a whole trace");
        assert_eq!(trace.format.name, format, "{name}");
        let requested: Vec<_> = trace.records.iter().filter(|r| r.op != Op::Trim).collect();
        assert_eq!(requested.len(), requests, "{name}");
        let share = requested.iter().filter(|r| r.op == Op::Read).count() as f64 / requests as f64;
        assert!((share - reads).abs() < 0.001, "{name}: {share} of the requests are reads");
        let touched = |r: &&weir_trace::Record| {
            let disk = r.disk;
            let (first, last) = (r.offset.0 / BLOCK, (r.offset.0 + r.len.0 - 1) / BLOCK);
            (first..=last).map(move |block| (disk, block))
        };
        let mut all: Vec<_> = requested.iter().copied().flat_map(|r| touched(&r)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), blocks, "{name}");
    }
}
