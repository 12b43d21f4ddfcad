//! Flash page writes a second (new and copied pages) of a log in its steady state, one thread: uniform random
//! writes, 128 pages a segment, 20 % spare, one append point. Time is the thread's processor time, which
//! other work on the machine changes less than the time of day.
//!
//! `WEIR_LARGE=1` adds devices of 100 GB and of 4 TB, whose fill needs 17 GB of memory. The memory of their
//! logs is printed: computed always, and as the resident size grows if they are measured.

#![allow(clippy::disallowed_macros, clippy::disallowed_methods, reason = "a benchmark prints its figures")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use weir_flash::{DenseMap, Log, LogConfig, Metadata, Simulated, Stream, precondition};
use weir_model::{Rng, Seed};
use weir_policy::reclaim::{self, Greedy, LogSize, Reclaim};

/// User pages of the device: 8 GiB of 4 KiB pages, as far as 4 KiB count.
const PAGES: u32 = 2_097_152;
/// Pages that the user writes in one iteration.
const WRITES: u64 = 1 << 20;
/// The most pages that the user writes before the measurement, twice.
const WRITES_MAX: u64 = 1 << 26;
/// Large devices: user bytes.
const LARGE: [(&str, f64); 2] = [("100 GB", 100e9), ("4 TB", 4e12)];
const SPARE: f64 = 0.2;
const BLOCK: u32 = 128;

type Device<R> = Log<DenseMap, R>;

/// Returns a device near its steady state.
fn filled<R: Reclaim>(pages: u32, random: &mut Rng, policy: impl FnOnce(LogSize) -> R) -> Device<R> {
    let config = LogConfig::for_device(pages, SPARE, BLOCK, Metadata::default()).expect("valid settings");
    let mut log = Log::new(config, DenseMap::new(pages), policy).expect("valid settings");
    precondition::greedy(&mut log, random).expect("the log is empty");
    log
}

fn write<R: Reclaim>(log: &mut Device<R>, random: &mut Rng, writes: u64) {
    let pages = log.valid();
    let mut addresses = [0; 64];
    for _ in 0..writes.div_ceil(64) {
        addresses.fill_with(|| random.below(pages));
        log.write_all(&addresses, Stream(0), &mut Simulated).expect("there is spare space");
    }
}

fn bench<R: Reclaim>(c: &mut Criterion, name: &str, pages: u32, policy: impl FnOnce(LogSize) -> R) {
    let mut random = Rng::new(Seed(1));
    let resident = resident();
    let mut log = filled(pages, &mut random, policy);
    if pages > PAGES {
        println!("{name}: {:.2} GB of memory", (self::resident() - resident) / 1e9);
    }
    // The fill is the steady state of greedy cleaning, so that large devices need no half of an overwrite.
    let writes = u64::from(pages / 2).min(WRITES_MAX);
    write(&mut log, &mut random, writes);
    let before = *log.counters();
    write(&mut log, &mut random, writes);
    let amplification = log.counters().since(&before).amplification().unwrap_or(1.0);
    println!("{name}: {pages} pages, write amplification {amplification:.3}");
    let mut group = c.benchmark_group("log");
    group.throughput(Throughput::Elements((WRITES as f64 * amplification) as u64)).sample_size(10);
    group.bench_function(BenchmarkId::from_parameter(name), |b| {
        b.iter_custom(|iterations| {
            let start = processor_time();
            write(&mut log, &mut random, WRITES * iterations);
            processor_time() - start
        });
    });
    group.finish();
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Bytes of a log with a dense map: places, addresses, valid bits, and about 30 bytes a segment.
fn memory(pages: f64) -> f64 {
    let flash = pages / (1.0 - SPARE);
    4.0 * pages + flash * (4.0 + 1.0 / 8.0) + flash / f64::from(BLOCK) * 30.0
}

/// Returns the resident size of the program in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    size.and_then(|size| size.parse().ok()).unwrap_or(0.0) * 1024.0
}

fn log(c: &mut Criterion) {
    for (name, bytes) in LARGE {
        println!("{name} of 4 KiB pages: {:.2} GB of memory", memory(bytes / 4096.0) / 1e9);
    }
    let quick = std::env::args().any(|argument| argument == "--test");
    let pages = if quick { PAGES / 64 } else { PAGES };
    bench(c, "greedy", pages, Greedy::new);
    for policy in reclaim::ALL {
        let name = format!("{} by name", policy.name);
        bench(c, &name, pages, |size| (policy.create)(size, Seed(1)));
    }
    if std::env::var_os("WEIR_LARGE").is_some() {
        for (name, bytes) in LARGE {
            bench(c, &format!("greedy, {name}"), (bytes / 4096.0) as u32, Greedy::new);
        }
    }
}

criterion_group!(benches, log);
criterion_main!(benches);
