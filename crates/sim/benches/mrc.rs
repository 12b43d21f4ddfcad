//! Benchmark of LRU miss-ratio curves on one thread, from the addresses of accesses in memory: exact, and
//! from 1 % of the blocks. The loads are Zipf's law with exponent 1 over a million blocks, and the
//! development traces if `WEIR_TRACES` names their folder.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::path::PathBuf;
use weir_model::{Bytes, Nanos, Op};
use weir_policy::eviction::{AccessKind, Block};
use weir_sim::Load as _;
use weir_sim::analysis::{Curve, Distances, Sampler, Sampling, sizes};
use weir_sim::cache::{EvictionPolicy, Stack};
use weir_trace::{Reader, Tally};

const ACCESSES: usize = 4_000_000;

/// Returns blocks drawn by Zipf's law.
fn zipf() -> Vec<u64> {
    let size = |text: &str| text.parse().map(Bytes::kib).map_err(|_| "KiB".to_owned());
    let time = |text: &str| text.parse().map(Nanos::secs).map_err(|_| "seconds".to_owned());
    let load = weir_sim::Synthetic::parse("zipf theta=1 over=4000000", 1, size, time);
    let mut load = load.expect("a load");
    (0..ACCESSES).map(|_| load.next_arrival(Nanos(0)).offset.0 / 4096).collect()
}

/// Returns the accesses of a trace.
#[expect(clippy::disallowed_types, reason = "a benchmark may read a file")]
fn trace(name: &str) -> Option<Vec<u64>> {
    let folder = std::env::var_os("WEIR_TRACES").map(PathBuf::from)?;
    let file = std::fs::File::open(folder.join(name)).ok()?;
    let mut reader = Reader::open(name, std::io::BufReader::new(file), None).ok()?;
    let mut keys = Vec::new();
    let tally = Tally::read(&mut reader, true, |record| {
        if record.op != Op::Trim {
            let disk = u64::from(record.disk.0) << 50;
            let last = (record.offset.0 + record.len.0 - 1) / 4096;
            keys.extend((record.offset.0 / 4096..=last).map(|block| disk + block));
        }
    });
    tally.ok().map(|_| keys)
}

fn exact(keys: &[u64]) -> Curve {
    let (mut numbers, mut stack, mut distances) =
        (rustc_hash::FxHashMap::default(), Stack::new(0), Distances::default());
    for key in keys {
        let next = numbers.len() as u32;
        let number = *numbers.entry(*key).or_insert(next);
        distances.add(stack.touch(Block(number)));
    }
    Curve::exact(&distances, &sizes(numbers.len() as u64))
}

fn sampled(keys: &[u64]) -> Curve {
    let mut sampler = Sampler::new(Sampling::fixed(0.01));
    keys.iter().for_each(|key| sampler.take(*key, AccessKind::Read));
    let sample = sampler.finish();
    let blocks = sample.distinct_blocks as u64;
    Curve::sampled(&sample, EvictionPolicy::by_name("lru").expect("a policy"), &sizes(blocks))
        .expect("played")
}

fn mrc(c: &mut Criterion) {
    let traces = [
        "workloads/cloudphysics_vm.csv.gz",
        "workloads/dtrs_release_server.trace.gz",
        "page_refs/arc_OLTP.lis.gz",
        "page_refs/arc_P2.lis.gz",
    ];
    let loaded = traces.into_iter().filter_map(|name| trace(name).map(|keys| (name, keys)));
    let mut group = c.benchmark_group("mrc");
    group.sample_size(10);
    for (name, keys) in std::iter::once(("zipf", zipf())).chain(loaded) {
        group.throughput(Throughput::Elements(keys.len() as u64));
        group.bench_function(BenchmarkId::new("exact", name), |b| b.iter(|| exact(&keys)));
        group.bench_function(BenchmarkId::new("1 %", name), |b| b.iter(|| sampled(&keys)));
    }
    group.finish();
}

criterion_group!(benches, mrc);
criterion_main!(benches);
