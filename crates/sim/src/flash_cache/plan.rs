//! What is simulated: the cache, its log, and the course of the simulation.

use crate::cache::{AdmissionPolicy, AdmissionSettings, BlockTrace, EvictionPolicy, WriteMode};
use crate::flash::SpareSpace;
use thiserror::Error;
use weir_flash::{ConfigError, CopyTo, LogConfig, LogError, Metadata, Thresholds, WearLevelling};
use weir_model::{Bytes, Seed};
use weir_policy::reclaim::{LogSize, Reclaim, ReclaimPolicy, Score, Scored, Weights};

/// A cache on flash.
#[derive(Clone, Debug)]
pub struct FlashCache {
    /// Capacity in blocks, V; at least 1.
    pub capacity: u32,
    /// Admission policy.
    pub admission: &'static AdmissionPolicy,
    /// Settings of the admission policy.
    pub settings: AdmissionSettings,
    /// Bytes per day that the cache may write to the flash: no miss is admitted while it has written more.
    /// Write hits are written always. `None` for no limit. Needs a trace with times.
    pub write_budget: Option<Bytes>,
    /// What evicts.
    pub evict: Evict,
    /// Treatment of writes.
    pub mode: WriteMode,
    /// The log.
    pub log: CacheLog,
    /// Address ranges with a share of the capacity; the rest of the capacity is for all other addresses.
    pub containers: Vec<Container>,
    /// What is not counted.
    pub warm_up: WarmUp,
    /// Rated erases of the flash.
    pub rated_cycles: u32,
    /// The random seed, for victim policies that draw.
    pub seed: Seed,
}

/// What evicts blocks.
#[derive(Clone, Copy, Debug)]
pub enum Evict {
    /// A policy of the cache, when a block enters a full cache (cache-based eviction).
    Cache(&'static EvictionPolicy),
    /// The cleaner of the log (GC-based eviction).
    Cleaner(Guarantee),
}

/// What the cleaner may drop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guarantee {
    /// Share of the capacity that stays valid once so much is cached, 0 to 1.
    pub share: f64,
    /// What is decided on at once.
    pub drop: Drop,
}

/// What the cleaner decides on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// Each page: it is dropped if more than the guarantee is valid.
    Page,
    /// A segment: its valid pages are dropped if at least the guarantee stays valid, otherwise all are
    /// copied.
    Segment,
}

/// The log of the cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheLog {
    /// Flash beyond the capacity, as a share of the capacity: `(P - V) / V`, P all flash.
    pub over_provisioning: f64,
    /// Size of a segment.
    pub segment: SegmentSize,
    /// Share of the segments that cleaning keeps free, 0 to 1; at least one segment.
    pub kept_free: f64,
    /// Whether copied pages have an append point of their own.
    pub separate_copies: bool,
    /// What is cleaned.
    pub victims: Victims,
}

/// Size of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentSize {
    /// So large that there are about this many.
    Count(u32),
    /// This many bytes.
    Bytes(Bytes),
}

/// Selects the segments to clean.
#[derive(Clone, Copy, Debug)]
pub enum Victims {
    /// A policy.
    Policy(&'static ReclaimPolicy),
    /// The weighted sum of space, age and the containers' excess.
    Weighted(Weights),
}

impl Victims {
    /// Returns the name of the policy.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.name,
            Self::Weighted(_) => "weighted",
        }
    }

    pub(super) fn create(&self, size: LogSize, seed: Seed) -> Box<dyn Reclaim + Send> {
        match self {
            Self::Policy(policy) => (policy.create)(size, seed),
            Self::Weighted(weights) => Box::new(Scored::new(size, Score::Weighted(*weights))),
        }
    }
}

/// An address range with a share of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Container {
    /// Its size: it begins where the previous one ends, the first at the start of each disk.
    pub size: Bytes,
    /// Share of the capacity, above 0 and below 1.
    pub share: f64,
}

/// The part of the simulation that warms the cache and is not counted. The state of the admission policy is
/// discarded at its end, contents and log stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// This many of the first requests, or all.
    Requests(usize),
    /// The whole trace, which is then played again and counted.
    Pass,
}

/// Why a cache cannot be simulated.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum FlashCacheError {
    /// The log's settings are invalid.
    #[error("{capacity} blocks cannot be cached on this flash: {error}; raise over-provisioning or the size")]
    Config {
        /// Capacity in blocks.
        capacity: u32,
        /// What is wrong.
        error: ConfigError,
    },
    /// The log cannot go on.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The eviction policy cannot be used.
    #[error("{0} knows the future and evicts from no log; choose another eviction policy")]
    Offline(&'static str),
    /// Containers take the whole cache, or too little.
    #[error("the containers' shares of {capacity} blocks leave nothing for one of them; change the shares")]
    Containers {
        /// Capacity in blocks.
        capacity: u32,
    },
    /// A write budget without times.
    #[error("the trace has no times, which a write budget needs; leave the budget out")]
    NoTimes,
}

/// Number of pages of the smallest segment.
const PAGES_MIN: u64 = 2;

impl CacheLog {
    /// Returns the settings of the log below a cache.
    ///
    /// # Errors
    /// Fails if cached data, free segments and the open one leave no spare space.
    pub(super) fn config(
        &self,
        capacity: u32,
        block: Bytes,
        evict: &Evict,
    ) -> Result<LogConfig, FlashCacheError> {
        let refused = |error| FlashCacheError::Config { capacity, error };
        let physical = (f64::from(capacity) * (1.0 + self.over_provisioning)).ceil() as u64;
        let pages = match self.segment {
            SegmentSize::Count(count) => (physical as f64 / f64::from(count.max(1))).round() as u64,
            SegmentSize::Bytes(bytes) => bytes.0 / block.0,
        };
        let pages = pages.clamp(PAGES_MIN, 1 << 24);
        let segments = physical.div_ceil(pages);
        let start = ((segments as f64 * self.kept_free).ceil() as u32).max(1);
        let guaranteed = match evict {
            Evict::Cache(_) => u64::from(capacity),
            Evict::Cleaner(guarantee) => (f64::from(capacity) * guarantee.share) as u64,
        };
        let config = LogConfig {
            segments: u32::try_from(segments).unwrap_or(u32::MAX),
            pages: pages as u32,
            limit: Some(guaranteed),
            append_points: 1 + u8::from(self.separate_copies),
            copies: if self.separate_copies { CopyTo::Last } else { CopyTo::Same },
            thresholds: Thresholds { start, stop: start },
            metadata: Metadata::default(),
            wear: WearLevelling::default(),
        };
        // The cleaner drops what is beyond its guarantee, so the log itself has no limit then.
        config.validate().map_err(refused)?;
        let limit = matches!(evict, Evict::Cache(_)).then_some(guaranteed);
        Ok(LogConfig { limit, ..config })
    }
}

/// Returns the space of a log below a cache of that many blocks, by all conventions.
pub(super) fn space(config: &LogConfig, capacity: u32, block: Bytes) -> SpareSpace {
    let segment = u64::from(config.pages) * block.0;
    let spare = config.spare(capacity.into());
    SpareSpace {
        capacity_bytes: u64::from(capacity) * block.0,
        in_use_bytes: u64::from(config.in_use()) * segment,
        flash_bytes: u64::from(config.segments) * segment,
        spare_factor: spare,
        over_provisioning: spare / (1.0 - spare),
        segments: config.segments,
        reserve_segments: config.thresholds.start,
        open_segments: config.append_points.into(),
    }
}

impl FlashCache {
    /// Returns the container of each block; empty if there is only one.
    pub(super) fn owners(&self, trace: &BlockTrace) -> Vec<u8> {
        if self.containers.is_empty() {
            return Vec::new();
        }
        let ends = self.containers.iter().scan(0_u64, |end, container| {
            *end = end.saturating_add(container.size.0);
            Some(*end)
        });
        let ends: Vec<u64> = ends.collect();
        let size = trace.block().bytes().0;
        let owner = |key: &u64| {
            let (_, block) = crate::cache::split_key(*key);
            ends.iter().position(|end| block * size < *end).unwrap_or(ends.len()) as u8
        };
        trace.keys().iter().map(owner).collect()
    }

    /// Returns the capacity of each container in blocks; the last one is that of all other addresses.
    ///
    /// # Errors
    /// Fails if one of them has none.
    pub(super) fn capacities(&self) -> Result<Vec<u32>, FlashCacheError> {
        let refused = FlashCacheError::Containers { capacity: self.capacity };
        let shared = |container: &Container| (f64::from(self.capacity) * container.share) as u32;
        let mut all: Vec<u32> = self.containers.iter().map(shared).collect();
        let used: u64 = all.iter().map(|capacity| u64::from(*capacity)).sum();
        let Some(rest) = u64::from(self.capacity).checked_sub(used) else { return Err(refused) };
        all.push(rest as u32);
        if all.len() > MOST_CONTAINERS || all.contains(&0) { Err(refused) } else { Ok(all) }
    }
}

/// The most containers, that of all other addresses included.
const MOST_CONTAINERS: usize = 250;
