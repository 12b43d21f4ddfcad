//! The outcome of a cache simulation.

use super::requests::Request;
use super::{BlockSize, BlockTrace, Setup};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_model::Bytes;
use weir_policy::eviction::AccessKind;

/// What was accessed in one direction or both, and what of it the cache missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Accesses: one for each block of each request.
    pub accesses: u64,
    /// Accesses that missed.
    pub misses: u64,
    /// Requests.
    pub requests: u64,
    /// Requests with a block that missed.
    #[serde(rename = "missed_requests")]
    pub missed: u64,
    /// Bytes of the requests, without the rest of blocks that they touch in part.
    pub bytes: u64,
    /// Bytes of these in blocks that missed.
    pub missed_bytes: u64,
}

impl Counts {
    /// Returns the ratio of misses to accesses; 0 without accesses.
    pub fn miss_ratio(&self) -> f64 {
        share(self.misses, self.accesses)
    }
    /// Returns the ratio of hits to accesses.
    pub fn hit_ratio(&self) -> f64 {
        share(self.accesses - self.misses, self.accesses)
    }
    /// Returns the share of requests whose blocks were all hit.
    pub fn request_hit_ratio(&self) -> f64 {
        share(self.requests - self.missed, self.requests)
    }
    /// Returns the share of bytes in blocks that were hit.
    pub fn byte_hit_ratio(&self) -> f64 {
        share(self.bytes - self.missed_bytes, self.bytes)
    }

    /// Adds a request for this many blocks, of which some missed.
    #[inline]
    pub(crate) fn add_request(&mut self, request: Request, blocks: u64, missed: Missed, block: BlockSize) {
        let size = block.bytes().0;
        let (before, behind) = (request.leading_bytes(), request.trailing_bytes());
        let in_part = if missed.first { before } else { 0 } + if missed.last { behind } else { 0 };
        self.accesses += blocks;
        self.misses += missed.blocks;
        self.requests += 1;
        self.missed += u64::from(missed.blocks > 0);
        self.bytes += blocks * size - before - behind;
        self.missed_bytes += missed.blocks * size - in_part;
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            accesses: self.accesses + other.accesses,
            misses: self.misses + other.misses,
            requests: self.requests + other.requests,
            missed: self.missed + other.missed,
            bytes: self.bytes + other.bytes,
            missed_bytes: self.missed_bytes + other.missed_bytes,
        }
    }
}

/// What of a request missed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missed {
    /// Number of its blocks.
    pub(crate) blocks: u64,
    /// Whether its first block was among them.
    pub(crate) first: bool,
    /// Whether its last block was.
    pub(crate) last: bool,
}

fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

/// The outcome of a trace with one cache. Numbers are of whole blocks, unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheOutcome {
    /// Eviction policy.
    pub policy: &'static str,
    /// Admission policy.
    pub admission: &'static str,
    /// Block size.
    pub block: BlockSize,
    /// Capacity in blocks.
    pub size_blocks: u32,
    /// Counts of reads.
    pub reads: Counts,
    /// Counts of writes. With write-around, all writes count as missed.
    pub writes: Counts,
    /// Blocks written to the cache because of read misses.
    pub filled: u64,
    /// Blocks written to the cache because of user writes.
    pub written: u64,
    /// Blocks evicted for others.
    pub evicted: u64,
    /// Blocks written to the disk at the time of the user's write.
    pub back_end_direct: u64,
    /// Dirty blocks written back because there were too many.
    pub back_end_flushed: u64,
    /// Dirty blocks written back at their eviction.
    pub back_end_evicted: u64,
    /// Dirty blocks at the end.
    pub dirty: u64,
}

impl CacheOutcome {
    /// Creates an outcome with all counts zero.
    pub(super) fn of_setup(trace: &BlockTrace, setup: &Setup) -> Self {
        Self {
            policy: setup.eviction.name,
            admission: setup.admission.name,
            block: trace.block(),
            size_blocks: setup.capacity,
            ..Self::default()
        }
    }

    /// Returns the capacity in bytes.
    pub fn size(&self) -> Bytes {
        Bytes(u64::from(self.size_blocks) * self.block.bytes().0)
    }

    /// Returns the counts of reads and writes together.
    pub fn all(&self) -> Counts {
        self.reads.plus(&self.writes)
    }

    pub(crate) fn counts_mut(&mut self, used: AccessKind) -> &mut Counts {
        match used {
            AccessKind::Read => &mut self.reads,
            AccessKind::Write => &mut self.writes,
        }
    }

    /// Returns the number of blocks written to the cache.
    pub fn cache_writes(&self) -> u64 {
        self.filled + self.written
    }

    /// Returns the cache-level write amplification: blocks written to the cache per block written by the user
    /// (HEC); `None` without user writes.
    pub fn clwa(&self) -> Option<f64> {
        (self.writes.accesses > 0).then(|| self.cache_writes() as f64 / self.writes.accesses as f64)
    }

    /// Returns the number of blocks read from the disk: the read misses.
    pub fn back_end_reads(&self) -> u64 {
        self.reads.misses
    }

    /// Returns the number of blocks written to the disk, excluding blocks still dirty at the end.
    pub fn back_end_writes(&self) -> u64 {
        self.back_end_direct + self.back_end_flushed + self.back_end_evicted
    }
}

/// The result of one cache. The counts and ratios at this level are of reads and writes together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheFigures {
    /// The eviction policy.
    pub policy: String,
    /// The admission policy.
    pub admission: String,
    /// Capacity of the cache in blocks.
    pub size_blocks: u32,
    /// Capacity of the cache.
    pub size_bytes: u64,
    /// Of reads and writes together.
    #[serde(flatten)]
    pub all: Ratios,
    /// Reads.
    pub reads: Ratios,
    /// Writes. With write mode `around` all of them count as missed.
    pub writes: Ratios,
    /// Blocks written to the cache.
    pub cache_writes: u64,
    /// Blocks of `cache_writes` that were written because a read missed.
    pub cache_fills: u64,
    /// Cache-level write amplification: `cache_writes` for each block that the user wrote; `null` if the user
    /// wrote none.
    pub clwa: Option<f64>,
    /// Blocks evicted to make room for others.
    pub evictions: u64,
    /// Blocks read from the disk behind the cache: those that reads missed.
    pub back_end_reads: u64,
    /// Blocks written to the disk behind the cache.
    pub back_end_writes: u64,
    /// Blocks of `back_end_writes` that were written because too many blocks were dirty.
    pub flushed: u64,
    /// Blocks of `back_end_writes` that were evicted while dirty.
    pub evicted_dirty: u64,
    /// Blocks that are dirty at the end of the trace; not part of `back_end_writes`.
    pub dirty_at_end: u64,
}

/// Counts and their ratios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratios {
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// Misses to accesses, 0 to 1; 0 without accesses.
    pub miss_ratio: f64,
    /// Hits to accesses, 0 to 1; 0 without accesses.
    pub hit_ratio: f64,
    /// Requests of which every block hit, to all requests, 0 to 1.
    pub request_hit_ratio: f64,
    /// Bytes in blocks that hit, to all bytes, 0 to 1.
    pub byte_hit_ratio: f64,
}

impl From<Counts> for Ratios {
    fn from(counts: Counts) -> Self {
        Self {
            counts,
            miss_ratio: counts.miss_ratio(),
            hit_ratio: counts.hit_ratio(),
            request_hit_ratio: counts.request_hit_ratio(),
            byte_hit_ratio: counts.byte_hit_ratio(),
        }
    }
}

impl From<&CacheOutcome> for CacheFigures {
    fn from(outcome: &CacheOutcome) -> Self {
        Self {
            policy: outcome.policy.into(),
            admission: outcome.admission.into(),
            size_blocks: outcome.size_blocks,
            size_bytes: outcome.size().0,
            all: outcome.all().into(),
            reads: outcome.reads.into(),
            writes: outcome.writes.into(),
            cache_writes: outcome.cache_writes(),
            cache_fills: outcome.filled,
            clwa: outcome.clwa(),
            evictions: outcome.evicted,
            back_end_reads: outcome.back_end_reads(),
            back_end_writes: outcome.back_end_writes(),
            flushed: outcome.back_end_flushed,
            evicted_dirty: outcome.back_end_evicted,
            dirty_at_end: outcome.dirty,
        }
    }
}
