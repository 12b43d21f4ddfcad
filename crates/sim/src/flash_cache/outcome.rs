//! The outcome of a cache on flash.

use super::keeper::Owner;
use super::plan::{Evict, FlashCache, WarmUp};
use crate::cache::{CacheOutcome, Counts};
use crate::flash::{Endurance, Lifetime, SpareSpace, WearFigures};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_flash::{Counters, SegmentInfo, SegmentState, Wear};
use weir_model::{Bytes, Nanos};

/// The outcome of a trace with one cache on flash, after the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashCacheOutcome {
    /// Hits, cache writes and back-end writes. The eviction policy is `gc` if the cleaner evicts; `evicted`
    /// and `back_end_evicted` are then blocks that it dropped, and wrote back for that.
    pub cache: CacheOutcome,
    /// The flash.
    pub flash: FlashFigures,
}

/// What the flash below a cache did, after the warm-up.
// In JSON sizes are in bytes and end in `_bytes`, times are in nanoseconds and end in `_ns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlashFigures {
    /// Victim policy of the log's cleaner.
    pub victims: String,
    /// Share of the capacity that the cleaner leaves valid, 0 to 1; `null` if the cache evicts.
    pub guarantee: Option<f64>,
    /// Bytes per day that the cache may write; `null` without a limit.
    pub write_budget_bytes: Option<u64>,
    /// What warmed the cache and is not counted: the whole trace, or its first requests.
    pub warm_up: String,
    /// The random seed.
    pub seed: u64,
    /// Space of the log, by all conventions.
    pub space: SpareSpace,
    /// Pages of a segment.
    pub segment_pages: u32,
    /// Blocks of `cache_writes` that were written because a write hit.
    pub write_hit_writes: u64,
    /// Blocks of `cache_writes` that were written because a write missed and was admitted.
    pub write_miss_writes: u64,
    /// Pages of the log.
    pub pages: LogPages,
    /// Flash-level write amplification: pages programmed per block that the cache wrote; `null` if it wrote
    /// none.
    pub flwa: Option<f64>,
    /// Total write amplification: pages programmed per block that the user wrote; `null` if the user wrote
    /// none.
    pub tcwa: Option<f64>,
    /// Erase counts of the segments.
    pub wear: WearFigures,
    /// Valid pages at the end.
    pub valid_pages: u64,
    /// Invalid pages of the closed segments at the end.
    pub invalid_pages: u64,
    /// Standard deviation of the closed segments' numbers of valid pages at the end.
    pub valid_deviation: f64,
    /// Closed segments at the end by valid share, in ten bars of equal width.
    pub valid_histogram: Vec<u64>,
    /// The containers, that of all other addresses last; empty if there is only one.
    pub containers: Vec<ContainerFigures>,
    /// Bytes programmed per day, copies of cleaning included; `null` if the trace has no times.
    pub programmed_bytes_per_day: Option<f64>,
    /// How long the flash lasts if the cache goes on like this: its user is the cache.
    pub lifetime: Lifetime,
}

/// Numbers of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogPages {
    /// Pages that the cache wrote.
    pub written: u64,
    /// Valid pages that cleaning copied.
    pub copied: u64,
    /// Valid pages that cleaning dropped.
    pub dropped: u64,
    /// Pages that the cache trimmed.
    pub trimmed: u64,
    /// Segments erased.
    pub erases: u64,
}

/// A container.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerFigures {
    /// Capacity in blocks.
    pub capacity_blocks: u32,
    /// Blocks that the cleaner leaves valid.
    pub guaranteed_blocks: u64,
    /// Valid blocks at the end.
    pub valid_blocks: u64,
    /// Requests that begin in it.
    pub requests: u64,
    /// Share of its requests' bytes in blocks that hit, 0 to 1.
    pub byte_hit_ratio: f64,
}

/// What was measured.
pub(super) struct Measured<'a> {
    pub(super) plan: &'a FlashCache,
    pub(super) cache: CacheOutcome,
    pub(super) write_hits: u64,
    pub(super) done: Counters,
    pub(super) space: SpareSpace,
    pub(super) data_pages: u32,
    /// The segments at the end, each with its erases before counting began.
    pub(super) segments: Vec<(SegmentInfo, u32)>,
    pub(super) valid_histogram: Vec<u64>,
    pub(super) containers: Vec<(u32, Owner, [Counts; 2])>,
    pub(super) duration: Nanos,
}

const SECONDS_PER_DAY: f64 = 86_400.0;

impl FlashCacheOutcome {
    pub(super) fn new(measured: Measured<'_>) -> Self {
        let Measured { plan, cache, write_hits, done, space, data_pages, segments, .. } = measured;
        let days = measured.duration.as_secs_f64() / SECONDS_PER_DAY;
        let block = cache.block.bytes().0;
        let per_day = |pages: u64| (days > 0.0).then(|| (pages * block) as f64 / days);
        let wear = Wear::of(segments.iter().map(|(segment, before)| segment.erases - before));
        let closed = segments.iter().filter(|(segment, _)| segment.state == SegmentState::Closed);
        let closed: Vec<u64> = closed.map(|(segment, _)| segment.valid.into()).collect();
        let user = cache.writes.accesses;
        let flash = FlashFigures {
            victims: plan.log.victims.name().into(),
            guarantee: match plan.evict {
                Evict::Cache(_) => None,
                Evict::Cleaner(guarantee) => Some(guarantee.share),
            },
            write_budget_bytes: plan.write_budget.map(|budget| budget.0),
            warm_up: warm_up(plan.warm_up),
            seed: plan.seed.0,
            space,
            segment_pages: data_pages,
            write_hit_writes: write_hits,
            write_miss_writes: cache.written - write_hits,
            pages: pages(&done),
            flwa: done.amplification(),
            tcwa: (user > 0).then(|| done.programmed() as f64 / user as f64),
            wear: wear.into(),
            valid_pages: segments.iter().map(|(segment, _)| u64::from(segment.valid)).sum(),
            invalid_pages: closed.len() as u64 * u64::from(data_pages) - closed.iter().sum::<u64>(),
            valid_deviation: deviation(closed.iter().copied()),
            valid_histogram: measured.valid_histogram,
            containers: measured.containers.into_iter().map(container).collect(),
            programmed_bytes_per_day: per_day(done.programmed()),
            lifetime: lifetime(plan, (&done, wear), space, per_day(done.user)),
        };
        Self { cache, flash }
    }
}

fn warm_up(warm_up: WarmUp) -> String {
    match warm_up {
        WarmUp::Pass => "the whole trace".into(),
        WarmUp::Requests(0) => "none".into(),
        WarmUp::Requests(requests) => format!("the first {requests} requests"),
    }
}

fn pages(done: &Counters) -> LogPages {
    LogPages {
        written: done.user,
        copied: done.copied,
        dropped: done.dropped,
        trimmed: done.trimmed,
        erases: done.erases,
    }
}

/// Returns how long the flash lasts if the cache writes so many bytes a day.
fn lifetime(
    plan: &FlashCache,
    (done, wear): (&Counters, Wear),
    space: SpareSpace,
    bytes_per_day: Option<f64>,
) -> Lifetime {
    let endurance = Endurance {
        cycles: plan.rated_cycles,
        flash: Bytes(space.flash_bytes),
        capacity: Bytes(space.capacity_bytes),
        amplification: done.amplification().unwrap_or(1.0),
        bytes_per_day,
        unevenness: if wear.mean > 0.0 { f64::from(wear.most) / wear.mean } else { 1.0 },
    };
    endurance.lifetime()
}

fn container((capacity_blocks, owner, [reads, writes]): (u32, Owner, [Counts; 2])) -> ContainerFigures {
    let all = reads.plus(&writes);
    ContainerFigures {
        capacity_blocks,
        guaranteed_blocks: owner.guarantee,
        valid_blocks: owner.valid,
        requests: all.requests,
        byte_hit_ratio: all.byte_hit_ratio(),
    }
}

/// Returns the standard deviation; 0 without numbers.
fn deviation(numbers: impl Iterator<Item = u64> + Clone) -> f64 {
    let count = numbers.clone().count().max(1) as f64;
    let mean = numbers.clone().sum::<u64>() as f64 / count;
    (numbers.map(|number| (number as f64 - mean).powi(2)).sum::<f64>() / count).sqrt()
}
