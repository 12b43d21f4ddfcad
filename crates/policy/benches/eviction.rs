//! The throughput of eviction policies, with one thread: Zipf's law with exponent 1 over a million blocks,
//! the cache a tenth of those that are touched.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weir_model::{Rng, Seed};
use weir_policy::eviction::*;

const ACCESSES: usize = 4_000_000;
const OBJECTS: usize = 1_000_000;

/// Generates accesses to blocks numbered in the order in which they appear, like those of a loaded trace.
fn zipf() -> (Vec<Block>, u32) {
    let mut random = Rng::new(Seed(1));
    let mut weights = 0.0;
    let cumulated: Vec<f64> = (1..=OBJECTS)
        .map(|rank| {
            weights += 1.0 / rank as f64;
            weights
        })
        .collect();
    let mut numbers = vec![u32::MAX; OBJECTS];
    let mut known = 0;
    let draw = |_| {
        let at = random.word() as f64 / u64::MAX as f64 * weights;
        let rank = cumulated.partition_point(|below| *below < at).min(OBJECTS - 1);
        if numbers[rank] == u32::MAX {
            numbers[rank] = known;
            known += 1;
        }
        Block(numbers[rank])
    };
    ((0..ACCESSES).map(draw).collect(), known)
}

/// Returns the misses of a cache that admits each.
fn misses(mut cache: impl Eviction, accesses: &[Block]) -> u64 {
    let mut misses = 0;
    for (at, block) in accesses.iter().enumerate() {
        cache.advance_to(at as u32);
        if !cache.hit(*block, AccessKind::Read) {
            cache.insert(*block, |_| true);
            misses += 1;
        }
    }
    misses
}

fn eviction(c: &mut Criterion) {
    let (accesses, blocks) = zipf();
    let room = CacheSize { blocks, capacity: blocks / 10 };
    let future = NextUses::new(&accesses, blocks);
    let mut group = c.benchmark_group("eviction");
    group.throughput(Throughput::Elements(ACCESSES as u64)).sample_size(10);
    macro_rules! bench {
        ($($name:literal: $module:ident::$policy:ident;)*) => {
            $(group.bench_function(BenchmarkId::from_parameter($name), |b| {
                b.iter(|| misses($policy::new(room), &accesses));
            });)*
        };
    }
    weir_policy::every_eviction_policy!(bench);
    group.bench_function(BenchmarkId::from_parameter("belady"), |b| {
        b.iter(|| misses(Belady::new(room, &accesses, &future), &accesses));
    });
    group.finish();
}

criterion_group!(benches, eviction);
criterion_main!(benches);
