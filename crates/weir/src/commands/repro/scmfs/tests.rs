use super::*;
use files::Files;
use weir_model::Bytes;
use weir_policy::eviction::items::FileKey;
use weir_sim::memory::{Counts, Picos};

fn setting() -> Setting {
    Setting::without_files(&REPRODUCTION.publication().expect("valid data"))
}

fn prepared(name: &str, scale: f64) -> Prepared {
    let Some(Experiment::Run(setup)) = Experiment::parse(name) else { panic!("{name}") };
    prepare(&setting().parameters, setup, 1, scale).expect("usable parameters")
}

fn metric(name: &str, scale: f64, metric: &str) -> f64 {
    run::run(&prepared(name, scale), 1e10).expect("a result")[metric]
}

/// 2.33 GHz, a line of 64 bytes on a bus of 10 GB/s, two caches of 2 MiB.
#[test]
fn the_machine_has_the_published_sizes() {
    let spec = prepared("random read, 4 KiB, scmfs-1", 1.0).machine;
    assert_eq!((spec.cycle, spec.transfer), (Picos(429), Picos(6400)));
    assert_eq!((spec.cores, spec.caches, spec.cache), (4, 2, Bytes::mib(2)));
    assert_eq!((spec.small_tlb.entries, spec.large_tlb.entries), (256, 32));
}

/// Each page of a file of 4 MiB misses once, or each of two large pages; the rest is the buffer's and the
/// metadata's.
#[test]
fn large_pages_miss_the_tlb_less() {
    let misses = |system: &str| metric(&format!("random read, 64 KiB, {system}"), 1.0 / 64.0, "TLB misses");
    let (small, large) = (misses("scmfs-1"), misses("scmfs-1 by 2 MiB"));
    assert!((1024.0..1400.0).contains(&small) && large < 100.0, "{small} and {large}");
}

/// Null files help writes, and order costs both writes and reads.
#[test]
fn builds_differ_by_what_they_have() {
    let rate = |load: &str, build: u32| metric(&format!("postmark {load}, scmfs-{build}"), 0.002, "rate");
    let [plain, null_files, ordered] = [1, 2, 3].map(|build| rate("writes", build));
    assert!(null_files > plain && ordered < null_files, "{plain}, {null_files}, {ordered}");
    assert!(rate("reads", 3) < rate("reads", 2));
}

/// Without order nothing is flushed; with it, an inode that is changed is, and the log if it counts.
#[test]
fn only_order_is_charged_for_flushes() {
    let counts = |name: &str, has_log: bool| -> Counts {
        let mut job = prepared(name, 1.0);
        job.has_log = has_log;
        let mut files = Files::new(&job, 1, 64 << 20).expect("a file system");
        files.create(0, FileKey(0)).expect("space");
        files.machine(weir_sim::memory::Machine::restart);
        files.write(0, FileKey(0), 0, 4096).expect("space");
        assert_eq!(files.size(FileKey(0)), 4096);
        files.machine(|machine| machine.counts())
    };
    assert_eq!(counts("postmark writes, scmfs-2", true).flushes, 0);
    let [without, with] = [false, true].map(|has_log| counts("postmark writes, scmfs-3", has_log).flushes);
    assert!(without >= 4096 / 64 && with > without, "{without} and {with}");
}

/// A mean is geometric, extremes are those of the ratios, and what is missing leaves no figure.
#[test]
fn records_are_summed_up() {
    let pairs = match Experiment::parse("random read, all records, scmfs-1 to ext2") {
        Some(Experiment::Compared(pairs)) => pairs,
        other => panic!("{other:?}"),
    };
    let slow = pairs[3][0];
    let metric = |setup: &Setup, name: &str| match name {
        "rate" if *setup == slow => 2.0,
        "rate" => 8.0,
        _ => f64::NAN,
    };
    let found = ratios(&pairs, metric);
    assert!((found[&least("rate")] - 0.25).abs() < 1e-9 && (found[&greatest("rate")] - 1.0).abs() < 1e-9);
    assert!(!found.contains_key(&least("bytes")));
    let mean = means(&[slow, pairs[0][0]], metric);
    assert!((mean["rate"] - 4.0).abs() < 1e-9 && !mean.contains_key("bytes"));
}

/// Threads share the bus, so that four are less than four times as fast as one.
#[test]
fn threads_share_the_bus() {
    let rate = |threads: &str| metric(&format!("random read, 64 KiB{threads}, scmfs-1"), 1.0 / 16.0, "rate");
    let (one, four) = (rate(""), rate(", 4 threads"));
    assert!(one < four && four <= 1e10, "{one} and {four}");
}
