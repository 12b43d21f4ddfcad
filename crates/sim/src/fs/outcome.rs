//! What a simulation of a file system comes to.

use crate::Responses;
use schemars::JsonSchema;
use serde::Serialize;

/// The results of a load on a file system.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FsOutcome {
    /// Virtual time that was measured, in seconds.
    pub measured_seconds: f64,
    /// Units of work done in it.
    pub work: u64,
    /// What a unit of work is, in the plural.
    pub work_unit: &'static str,
    /// Units of work per second.
    pub work_per_second: f64,
    /// Bytes that programs read and wrote, per second.
    pub bytes_per_second: f64,
    /// Response times of all operations.
    #[schemars(with = "crate::responses::ResponsesPart")]
    pub all: Responses,
    /// Response times of reads of data or metadata.
    #[schemars(with = "crate::responses::ResponsesPart")]
    pub reads: Responses,
    /// Response times of creations, appends and removals.
    #[schemars(with = "crate::responses::ResponsesPart")]
    pub writes: Responses,
    /// Where accesses to existing metadata and data found it.
    pub hits: HitShares,
    /// Bytes that entered the fast tier: creations, appends and promotions.
    pub entered_bytes: u64,
    /// Bytes that left it because they were evicted.
    pub evicted_bytes: u64,
    /// Of these, bytes whose container was still valid, so that nothing was written.
    pub evicted_clean_bytes: u64,
    /// Bytes that left it because their file was removed.
    pub removed_bytes: u64,
    /// Bytes in it when the measurement began.
    pub resident_bytes_at_first: u64,
    /// Bytes in it at the end.
    pub resident_bytes: u64,
    /// Bytes that were promoted.
    pub promoted_bytes: u64,
    /// Operations that waited for space in the fast tier, or for a tier with too much unwritten data.
    pub waits: u64,
    /// Time that operations waited for that, in seconds: the sum over all of them.
    pub waited_seconds: f64,
    /// The greatest number of items in the fast tier.
    pub items_max: u64,
    /// The greatest memory of the eviction policy's heap, in bytes.
    pub heap_bytes_max: u64,
    /// The tiers, in the order of the command line.
    pub tiers: Vec<TierOutcome>,
}

/// Shares of accesses, from 0 to 1; `null` without accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct HitShares {
    /// In the fast tier.
    pub fast: Option<f64>,
    /// In the page cache.
    pub memory: Option<f64>,
    /// In a container.
    pub tiers: Option<f64>,
}

impl HitShares {
    /// Creates the shares of these numbers of accesses.
    pub(super) fn new([fast, memory, tiers]: [u64; 3]) -> Self {
        let all = fast + memory + tiers;
        let share = |count: u64| (all > 0).then(|| count as f64 / all as f64);
        Self { fast: share(fast), memory: share(memory), tiers: share(tiers) }
    }
}

/// The results of a tier.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TierOutcome {
    /// The modelled drive.
    pub drive: String,
    /// The file system on it.
    pub file_system: String,
    /// Whether the drive has an arm, so that the largest items suit it best.
    pub seeks: bool,
    /// Reads of the drive.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes to the drive, metadata of the file system included.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes that were evicted to it.
    pub evicted_bytes: u64,
    /// Share of all bytes written by evictions that went to it; `null` without evictions.
    pub evicted_share: Option<f64>,
    /// Share of the time in which it had something to do.
    pub busy: f64,
    /// Bytes moved per second of that time; `null` if it had nothing to do.
    pub bytes_per_busy_second: Option<f64>,
}
