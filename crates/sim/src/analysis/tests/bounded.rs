//! Tests of analyses of more blocks than are tracked, against a naive implementation and against exact
//! results.

use super::*;
use crate::analysis::popularity::{Regions, shares};

fn bounded(records: &[Record], blocks: u32) -> Analysis {
    let mut analyzer = Analyzer::new(Settings { blocks, ..Settings::default() });
    records.iter().for_each(|record| analyzer.take(record));
    analyzer.finish().expect("a trace").0
}

/// Returns the keys of a request's blocks, each a unique number.
fn keys(record: &Record) -> impl Iterator<Item = u64> {
    let (disk, first) = (u64::from(record.disk.0) << 50, record.offset.0 / 4096);
    (first..first + record.len.0 / 4096).map(move |block| disk | block)
}

/// Returns whether each request begins where one of the last 32 to its disk ended.
fn sequential(records: &[Record]) -> Vec<bool> {
    let end = |record: &Record| record.offset.0 + record.len.0;
    let of = |(nth, record): (usize, &Record)| {
        let before = records[..nth].iter().rev().filter(|other| other.disk == record.disk);
        before.take(32).any(|other| end(other) == record.offset.0)
    };
    records.iter().enumerate().map(of).collect()
}

/// A naive fixed-size SHARDS, with a list as its stack.
#[derive(Default)]
struct NaiveShards {
    halvings: u32,
    stack: Vec<u64>,
    /// By block: the number of accesses, whether it was read and written, and the time of the last one,
    /// doubled, plus 1 for a write.
    blocks: BTreeMap<u64, (u32, [bool; 2], u64)>,
    /// Distances, each with the number of accesses it stands for.
    distances: Vec<(u64, u64)>,
    first: u64,
    /// Accesses after one of each kind, and the times between them.
    after: [u64; 4],
}

impl NaiveShards {
    fn is_tracked(&self, key: u64) -> bool {
        u128::from(super::super::sample::hash(key)) < 1 << (64 - self.halvings)
    }

    fn access(&mut self, key: u64, at: u64, is_write: bool, most: usize) {
        if !self.is_tracked(key) {
            return;
        }
        let weight = 1 << self.halvings;
        let (accesses, kinds, last) = self.blocks.entry(key).or_default();
        if let Some(depth) = self.stack.iter().position(|other| *other == key) {
            self.stack.remove(depth);
            self.distances.push((depth as u64 * weight, weight));
            self.after[(*last % 2 + 2 * u64::from(is_write)) as usize] += weight;
        } else {
            self.first += weight;
        }
        self.stack.insert(0, key);
        *accesses += 1;
        kinds[usize::from(is_write)] = true;
        *last = at * 2 + u64::from(is_write);
        while self.stack.len() > most {
            self.halvings += 1;
            let gone: Vec<_> = self.stack.iter().copied().filter(|key| !self.is_tracked(*key)).collect();
            self.stack.retain(|key| !gone.contains(key));
            self.blocks.retain(|key, _| !gone.contains(key));
        }
    }
}

proptest! {
    #[test]
    fn bounded_analysis_matches_naive_shards(records in records(), most in 4u32..400) {
        let found = bounded(&records, most);
        let mut twin = NaiveShards::default();
        for record in &records {
            let is_write = record.op == Op::Write;
            keys(record).for_each(|key| twin.access(key, record.at.0, is_write, most as usize));
        }
        let unit = 1u64 << twin.halvings;
        let with = |kind: usize| twin.blocks.values().filter(|(_, kinds, _)| kinds[kind]).count() as u64 * unit;
        let all = twin.blocks.len() as u64 * unit;
        prop_assert_eq!((found.blocks, found.reads.blocks, found.writes.blocks), (all, with(0), with(1)));
        prop_assert_eq!(found.critical[0].blocks, all);
        let looked_at = found.sampled.map(|some| (some.blocks, some.share));
        let is_some = twin.halvings > 0;
        prop_assert_eq!(looked_at, is_some.then_some((twin.blocks.len() as u64, 1.0 / unit as f64)));
        let times = found.reuse_times.expect("times");
        let counts = [times.read_after_read, times.read_after_write, times.write_after_read, times.write_after_write];
        prop_assert_eq!(counts.map(|spread| spread.count), twin.after);
        for point in &found.curves[0].points {
            // Size of the scaled cache for the tracked blocks.
            let small = ((point.size_blocks + unit / 2) / unit).max(1);
            let deep = twin.distances.iter().filter(|(distance, _)| distance / unit >= small);
            let misses = twin.first + deep.map(|(_, weight)| weight).sum::<u64>();
            prop_assert_eq!(point.miss_ratio, (misses as f64 / found.accesses as f64).min(1.0));
        }
        prop_assert_eq!(found.popularity.shares, shares(twin.blocks.values().map(|(accesses, ..)| *accesses)));
    }

    /// Figures that do not depend on blocks are exact, however few blocks are tracked.
    #[test]
    fn per_request_figures_are_exact(records in records(), most in 4u32..100) {
        let (some, all) = (bounded(&records, most), bounded(&records, u32::MAX));
        let requests = |of: &Analysis| (of.reads.requests, of.reads.bytes, of.writes.requests, of.accesses);
        prop_assert_eq!(requests(&some), requests(&all));
        prop_assert_eq!((&some.read_sizes, &some.sequentiality), (&all.read_sizes, &all.sequentiality));
        let apart = &all.sizes_apart;
        prop_assert_eq!(apart, &some.sizes_apart);
        prop_assert_eq!(apart.sequential_reads.count + apart.other_reads.count, all.reads.requests);
        let sequential = (apart.sequential_reads.count + apart.sequential_writes.count) as f64;
        let requests = (all.reads.requests + all.writes.requests) as f64;
        prop_assert!((sequential / requests - all.sequentiality.after_recent).abs() < 1e-9);
        prop_assert_eq!((&some.arrivals, &some.timeline.heat), (&all.arrivals, &all.timeline.heat));
        prop_assert_eq!(&some.popularity.regions, &all.popularity.regions);
    }

    /// Requests are counted in the finest regions that are few enough, and each kind apart.
    #[test]
    fn addresses_are_counted_apart(records in records(), most in 4u32..100) {
        let found = bounded(&records, most);
        let first = |record: &Record| record.offset.0 / 4096;
        let (least, end) = (records.iter().map(first).min(), records.iter().map(first).max());
        let (least, end) = (least.unwrap_or(0), end.unwrap_or(0));
        let region = (0..).map(|shift| 1 << shift).find(|blocks| end / blocks - least / blocks < REGIONS);
        let region = region.expect("one is large enough");
        let Addresses {
            region_blocks, first_block, sequential_reads, other_reads, sequential_writes, other_writes
        } = found.addresses;
        prop_assert_eq!((region_blocks, first_block), (region, least / region * region));
        let regions = (end / region - least / region + 1) as usize;
        // By operation and sequentiality: the number of each region, and the sizes.
        let mut expected = [[vec![0; regions], vec![0; regions]], [vec![0; regions], vec![0; regions]]];
        let mut bytes = [[0.0; 2]; 2];
        for (record, is_sequential) in records.iter().zip(sequential(&records)) {
            let (is_write, is_sequential) = (usize::from(record.op == Op::Write), usize::from(is_sequential));
            expected[is_write][is_sequential][(first(record) / region - least / region) as usize] += 1;
            bytes[is_write][is_sequential] += record.len.0 as f64;
        }
        prop_assert_eq!([[other_reads, sequential_reads], [other_writes, sequential_writes]], expected);
        let sum = |of: &Spread| of.mean * of.count as f64;
        let apart = &found.sizes_apart;
        let of_reads = [sum(&apart.other_reads), sum(&apart.sequential_reads)];
        let of_writes = [sum(&apart.other_writes), sum(&apart.sequential_writes)];
        for (found, expected) in [of_reads, of_writes].iter().flatten().zip(bytes.iter().flatten()) {
            prop_assert!((found - expected).abs() < 1.0, "{} {}", found, expected);
        }
    }

    /// No region is counted too high, and none misses more accesses than stated, which is few.
    #[test]
    fn region_undercount_is_an_upper_bound(
        accesses in prop::collection::vec((0u64..60, 0u64..60, 1u64..600), 1..400),
        most in 2usize..40,
    ) {
        let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
        let mut regions = Regions::new(most);
        for (a, b, blocks) in accesses {
            let first = a.min(b) * REGION_BLOCKS + b;
            regions.add(first..=first + blocks - 1);
            (first..first + blocks).for_each(|block| *counted.entry(block / REGION_BLOCKS).or_default() += 1);
        }
        let (hottest, missing) = regions.hottest();
        let total: u64 = counted.values().sum();
        prop_assert!(missing <= total / (most as u64 / 2).max(1), "{} of {}", missing, total);
        prop_assert!(counted.len() > most || missing == 0);
        prop_assert!(hottest.is_sorted_by_key(|region| std::cmp::Reverse(region.accesses)));
        for region in &hottest {
            let true_count = counted[&(region.first_block / REGION_BLOCKS)];
            prop_assert!((region.accesses..=region.accesses + missing).contains(&true_count), "{:?}", region);
        }
        let busiest = counted.values().max().copied().unwrap_or_default();
        prop_assert!(hottest.first().map_or(0, |region| region.accesses) + missing >= busiest);
    }
}

/// Errors of figures from one block of sixteen are as large as stated.
#[test]
fn sampled_figures_approximate_exact_figures() {
    let mut random = weir_model::Rng::new(weir_model::Seed(5));
    let mut draw = || {
        let share = random.word() as f64 / 2f64.powi(64);
        (share.powi(3) * 200_000.0) as u64
    };
    let records: Vec<_> =
        (0..600_000).map(|n| record(n, if n % 3 == 0 { Op::Write } else { Op::Read }, draw(), 1)).collect();
    let (some, all) = (bounded(&records, 16_384), bounded(&records, u32::MAX));
    let looked_at = some.sampled.expect("not all");
    assert!(looked_at.share == 1.0 / 16.0 && all.sampled.is_none(), "{looked_at:?}");
    let near = |found: u64, truth: u64| {
        let off = (found as f64 - truth as f64).abs() / all.blocks as f64;
        assert!(off <= 3.0 * looked_at.error, "{found}, not {truth}: {off} of {}", looked_at.error);
    };
    near(some.blocks, all.blocks);
    near(some.reads.blocks, all.reads.blocks);
    near(some.writes.blocks, all.writes.blocks);
    some.critical.iter().zip(&all.critical).for_each(|(some, all)| near(some.blocks, all.blocks));
    let (found, truth) = (&some.curves[0], &all.curves[0]);
    assert_eq!((found.rate, found.sampled_blocks), (looked_at.share, looked_at.blocks));
    // The sizes of the two curves differ slightly.
    let truth_at = |size: u64| {
        let after =
            truth.points.partition_point(|point| point.size_blocks < size).clamp(1, truth.points.len() - 1);
        let [a, b] = [&truth.points[after - 1], &truth.points[after]];
        let between = (size as f64 - a.size_blocks as f64) / (b.size_blocks - a.size_blocks) as f64;
        a.miss_ratio + (b.miss_ratio - a.miss_ratio) * between
    };
    let off = |point: &Point| (point.miss_ratio - truth_at(point.size_blocks)).abs();
    let mean = found.points.iter().map(off).sum::<f64>() / found.points.len() as f64;
    let stated = found.points.iter().filter_map(|point| point.error).fold(0.0, f64::max);
    assert!(mean < 0.005 && stated > 0.0 && stated < 0.02, "{mean} {stated}");
    let near = found.points.iter().filter(|point| off(point) <= 2.5 * point.error.expect("an error") + 1e-3);
    assert!(near.count() * 10 >= found.points.len() * 9, "{:?}", found.points);
}

/// A few blocks with more accesses than fit: the sample ends there, and says so.
#[test]
fn full_sample_stops() {
    let sampled = |sampling| {
        let mut sampler = Sampler::new(sampling);
        (0..(1u64 << 23) + 500).for_each(|n| sampler.take(n % 3, AccessKind::Read));
        sampler.finish()
    };
    let sample = sampled(Sampling::default());
    assert_eq!((sample.is_whole, sample.seen, sample.blocks()), (false, (1 << 23) + 1, 3));
    let sample = sampled(Sampling::fixed(1.0));
    assert_eq!((sample.is_whole, sample.seen), (true, (1 << 23) + 500));
}
