//! Miss-ratio curves: the share of accesses that a cache misses, by its size.
//!
//! For LRU the curve comes from stack distances, exactly if all blocks are tracked. For any policy it comes
//! from a [`Sample`], whose accesses are played to proportionally smaller caches: C. A. Waldspurger et al.,
//! "Cache modeling and optimization using miniature simulations", USENIX ATC 2017. The misses of the sample
//! are multiplied by the ratio of all blocks to its blocks, and divided by the number of all accesses, which
//! is known; not by the accesses that happen to be in the sample, because a single very hot block may or may
//! not be among its blocks (the authors' SHARDS-adj also removes that error, by using the expected number of
//! accesses).
//!
//! The stated error is one standard error, estimated from the sample itself: its blocks are divided into
//! eight groups by their hash, each group is played like a sample of its own, and the spread of their results
//! gives the error of their mean (random groups; K. M. Wolter, "Introduction to variance estimation", 2nd
//! edition 2007, chapter 2).

use super::{Distances, LookedAt, Sample};
use crate::cache::{
    AdmissionPolicy, AdmissionSettings, BlockTraceError, EvictionPolicy, Loader, Setup, Stack, WriteMode,
    play,
};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::{BLOCK, Bytes, Hint, Nanos, Op, VolumeOffset};
use weir_policy::eviction::{AccessKind, Block};
use weir_trace::{Disk, Record};

/// Miss ratios of caches of several sizes that admit every miss.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Curve {
    /// Eviction policy.
    pub policy: &'static str,
    /// Share of the blocks that the curve is computed from; 1 if it is exact.
    pub rate: f64,
    /// Blocks that the curve is computed from.
    pub sampled_blocks: u64,
    /// The caches, by ascending size.
    pub points: Vec<Point>,
}

/// A cache of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// Capacity in blocks.
    pub size_blocks: u64,
    /// Misses to accesses, 0 to 1.
    pub miss_ratio: f64,
    /// One standard error of the miss ratio; 0 if it is exact, `null` if the sample is too small to tell.
    pub error: Option<f64>,
}

const LRU: &str = "lru";
/// Number of groups of a sample.
const GROUPS: u64 = 8;

/// Returns the sizes of a curve, in blocks: 0.1, 0.2 and 0.5 % of a trace's blocks, and 1 to 100 % in steps
/// of 1 %; ascending, at least 1, without duplicates.
pub fn sizes(blocks: u64) -> Vec<u64> {
    let thousandths = [1, 2, 5].into_iter().chain((1..=100).map(|percent| percent * 10));
    let mut sizes: Vec<_> = thousandths.map(|n| (u128::from(blocks) * n / 1000).max(1) as u64).collect();
    sizes.dedup();
    sizes
}

impl Curve {
    /// Computes the exact curve of LRU.
    pub fn exact(distances: &Distances, sizes: &[u64]) -> Self {
        Self::of_lru(distances, distances.accesses(), None, sizes)
    }

    /// Computes LRU's curve over `accesses` accesses: exactly, or from some of the blocks. A smaller sample
    /// then gives its error, as errors shrink with the square root of the number of blocks.
    pub(super) fn of_lru(
        distances: &Distances,
        accesses: u64,
        some: Option<(LookedAt, &Sample)>,
        sizes: &[u64],
    ) -> Self {
        let misses = distances.misses(sizes).into_iter();
        let ratios = misses.map(|misses| (misses as f64 / accesses.max(1) as f64).min(1.0));
        let errors = match some {
            None => vec![Some(0.0); sizes.len()],
            Some((looked_at, sample)) => lru_errors(looked_at, sample, sizes),
        };
        let points = sizes.iter().zip(ratios).zip(errors);
        let points =
            points.map(|((size, miss_ratio), error)| Point { size_blocks: *size, miss_ratio, error });
        let (rate, blocks) = match some {
            None => (1.0, distances.blocks()),
            Some((looked_at, _)) => (looked_at.share, looked_at.blocks),
        };
        Self { policy: LRU, rate, sampled_blocks: blocks, points: points.collect() }
    }

    /// Estimates a policy's curve from a sample; sizes ascend.
    ///
    /// # Errors
    /// Fails if the sample has more accesses than can be played.
    pub fn sampled(
        sample: &Sample,
        policy: &'static EvictionPolicy,
        sizes: &[u64],
    ) -> Result<Self, BlockTraceError> {
        let whole = SampleGroup::new(sample, sample.accesses().collect());
        let ratios = whole.miss_ratios(policy, sizes)?;
        // All blocks are in it, so nothing is estimated.
        let errors =
            if sample.rate() >= 1.0 { vec![Some(0.0); sizes.len()] } else { errors(sample, policy, sizes)? };
        let point = |((size, ratio), error): ((&u64, f64), Option<f64>)| Point {
            size_blocks: *size,
            miss_ratio: ratio,
            error,
        };
        Ok(Self {
            policy: policy.name,
            rate: sample.rate(),
            sampled_blocks: sample.blocks() as u64,
            points: sizes.iter().zip(ratios).zip(errors).map(point).collect(),
        })
    }

    /// Returns the mean distance of two curves of the same sizes.
    pub fn distance(&self, other: &Self) -> f64 {
        let pairs = self.points.iter().zip(&other.points);
        let sum: f64 = pairs.map(|(a, b)| (a.miss_ratio - b.miss_ratio).abs()).sum();
        sum / self.points.len().max(1) as f64
    }
}

/// Returns one standard error at each size.
fn errors(
    sample: &Sample,
    policy: &'static EvictionPolicy,
    sizes: &[u64],
) -> Result<Vec<Option<f64>>, BlockTraceError> {
    let ratios = |group| SampleGroup::new(sample, group).miss_ratios(policy, sizes);
    let groups = sample.groups(GROUPS).into_iter().map(ratios).collect::<Result<Vec<_>, _>>()?;
    let count = GROUPS as f64;
    let error = |at: usize| {
        let mean = groups.iter().map(|ratios| ratios[at]).sum::<f64>() / count;
        let squares: f64 = groups.iter().map(|ratios| (ratios[at] - mean).powi(2)).sum();
        // Finite-population correction: the sampled part of the blocks has no error.
        (squares / (count * (count - 1.0)) * (1.0 - sample.rate())).sqrt()
    };
    let is_enough = sample.blocks() as u64 >= GROUPS;
    Ok((0..sizes.len()).map(|at| is_enough.then(|| error(at))).collect())
}

/// Returns one standard error of LRU's curve, from that of a smaller sample of the same trace.
fn lru_errors(looked_at: LookedAt, sample: &Sample, sizes: &[u64]) -> Vec<Option<f64>> {
    // The relative error from the blocks that are not in a sample; zero if all are.
    let open = |share: f64, blocks: f64| ((1.0 - share) / blocks.max(1.0)).sqrt();
    let of_sample = open(sample.rate(), sample.blocks() as f64);
    let factor = open(looked_at.share, looked_at.blocks as f64) / of_sample;
    let policy = EvictionPolicy::by_name(LRU).filter(|_| of_sample > 0.0);
    let errors = policy.and_then(|policy| errors(sample, policy, sizes).ok());
    match errors {
        Some(errors) => errors.into_iter().map(|error| error.map(|error| error * factor)).collect(),
        None => vec![None; sizes.len()],
    }
}

/// A sample, or a group of one.
struct SampleGroup {
    /// Its share of all blocks.
    rate: f64,
    /// Number of accesses of the whole trace.
    trace_accesses: u64,
    distances: Distances,
    accesses: Vec<(Block, AccessKind)>,
}

impl SampleGroup {
    fn new(sample: &Sample, accesses: Vec<(Block, AccessKind)>) -> Self {
        let (mut stack, mut distances) = (Stack::new(sample.blocks() as u32), Distances::default());
        accesses.iter().for_each(|(block, _)| distances.add(stack.touch(*block)));
        let rate = distances.blocks() as f64 / sample.distinct_blocks.max(1.0);
        Self { rate, trace_accesses: sample.seen, distances, accesses }
    }

    fn miss_ratios(
        &self,
        policy: &'static EvictionPolicy,
        sizes: &[u64],
    ) -> Result<Vec<f64>, BlockTraceError> {
        let small = |size: &u64| ((*size as f64 * self.rate).round() as u32).max(1);
        let small: Vec<_> = sizes.iter().map(small).collect();
        let misses = if policy.name == LRU { self.lru(&small) } else { self.play(policy, &small)? };
        let expected = (self.trace_accesses as f64 * self.rate).max(1.0);
        Ok(misses.into_iter().map(|misses| (misses as f64 / expected).min(1.0)).collect())
    }

    fn lru(&self, sizes: &[u32]) -> Vec<u64> {
        let sizes: Vec<_> = sizes.iter().map(|size| u64::from(*size)).collect();
        self.distances.misses(&sizes)
    }

    fn play(&self, policy: &'static EvictionPolicy, sizes: &[u32]) -> Result<Vec<u64>, BlockTraceError> {
        let mut loader = Loader::default();
        for (block, used) in &self.accesses {
            let op = if *used == AccessKind::Write { Op::Write } else { Op::Read };
            let offset = VolumeOffset(u64::from(block.0) * BLOCK);
            loader.take(&Record {
                at: Nanos(0),
                disk: Disk(0),
                op,
                offset,
                len: Bytes(BLOCK),
                hint: Hint::None,
            });
        }
        let trace = match loader.finish() {
            // An empty sample misses nothing.
            Err(BlockTraceError::Empty) => return Ok(vec![0; sizes.len()]),
            trace => trace?,
        };
        let mut known: Option<(u32, u64)> = None;
        let misses = sizes.iter().map(|capacity| match known {
            // Several sizes may become equal after scaling, and no cache misses less than one that holds all
            // blocks.
            Some((same, misses)) if same == *capacity || same >= trace.blocks() => misses,
            _ => {
                let admission = &AdmissionPolicy::ALL[0];
                let setup = Setup {
                    eviction: policy,
                    admission,
                    settings: AdmissionSettings::default(),
                    capacity: *capacity,
                    mode: WriteMode::Through,
                };
                let misses = play(&trace, &setup).all().misses;
                known = Some((*capacity, misses));
                misses
            }
        });
        Ok(misses.collect())
    }
}
