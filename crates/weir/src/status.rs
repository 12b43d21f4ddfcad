//! The document of `weir pool status`: a pool, its devices and their traffic, its volumes.
//!
//! `--json` prints the same document. The doc comments of its fields are the descriptions of its schema
//! (docs/reference/schemas/pool-status.json).

mod clients;
mod fragmentation;
mod gather;
mod human;
mod metrics;
mod parts;
mod removed;
mod warnings;

pub use clients::ClientsPart;
pub use fragmentation::FragmentationPart;
pub use human::volumes_table;
pub use parts::{CachePart, LoadPart, MigrationEstimate, MigrationPart, MoverPart, ResponsesPart};
pub use removed::MovedPart;
pub use warnings::OVERRUN_EXPLANATION;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_serve::control::Hardening;

/// State of a pool that no server holds.
pub const IDLE: &str = "idle";
/// State of a pool that a server serves.
pub const SERVED: &str = "served";

/// Name that stands for the pool's policy, in place of a policy of a volume.
pub const POOLS_POLICY: &str = "pool";

/// The status of a pool: the document of `weir pool create`, `pool status`, `pool set` and `pool replace`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "weir pool status")]
pub struct Status {
    /// The pool as a whole.
    pub pool: PoolPart,
    /// The devices, in the order of the pool file.
    pub devices: Vec<DevicePart>,
    /// The volumes, sorted by name.
    pub volumes: Vec<VolumePart>,
}

/// The pool as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Pool")]
pub struct PoolPart {
    /// The name in the pool file.
    pub name: String,
    /// The random UUID that the pool got when it was created, in hexadecimal.
    pub id: String,
    /// `served` by a running server, or `idle`.
    #[schemars(extend("enum" = [IDLE, SERVED]))]
    pub state: String,
    /// The placement policy in force.
    pub policy: String,
    /// The policy of the pool file, which the next server uses; `null` if it is the one in force.
    #[serde(default)]
    pub policy_after_restart: Option<String>,
    /// Size of an extent.
    pub extent_bytes: u64,
    /// Capacity for data of all devices.
    pub capacity_bytes: u64,
    /// Capacity that extents occupy, flushed or not. Every place counts: copies, cached copies, and space
    /// that clients reserve (WRITE_ZEROES with NO_HOLE).
    pub used_bytes: u64,
    /// Freed space that is quarantined until its release is durable; not part of `used_bytes`.
    #[serde(default)]
    pub quarantined_bytes: u64,
    /// Sum over the volumes of size times copies; above `capacity_bytes` the pool is over-provisioned.
    pub provisioned_bytes: u64,
    /// Net growth of `used_bytes` a second, a mean in which a change weighs 1/e after half an hour; negative
    /// while space is freed, 0 while the pool is idle.
    pub growth_bytes_per_second: f64,
    /// Time until the pool is full at that rate; `null` if it does not grow or is full, in the first minute,
    /// if the last five minutes were more than four times faster or slower, and beyond 366 days.
    pub full_in_ns: Option<u64>,
    /// Highest threshold of `warn_at` that use has passed; it stays until use is 1 % of the capacity below
    /// it. `null` if use has passed none.
    pub warning_percent: Option<u8>,
    /// What the last write that needed space did not get: `data` or `metadata`; `null` if it got space, or
    /// once there is some again.
    #[schemars(extend("enum" = ["data", "metadata", null]))]
    pub full: Option<String>,
    /// Parts of writes, by extent, that wait for space.
    pub waiting_writes: u64,
    /// Parts of writes, by extent, that failed for lack of space since the server started.
    pub refused_writes: u64,
    /// Capacity for metadata.
    pub metadata_capacity_bytes: u64,
    /// Capacity for metadata in use.
    pub metadata_used_bytes: u64,
    /// As `warning_percent`, for metadata.
    pub metadata_warning_percent: Option<u8>,
    /// Metadata written since the server started.
    pub metadata_written_bytes: u64,
    /// Data written for clients since the server started.
    pub data_written_bytes: u64,
    /// Expected duration of recovery if the power failed now.
    pub recovery_ns: u64,
    /// Memory that the map occupies.
    pub map_memory_bytes: u64,
    /// Migrations since the server started.
    #[serde(default)]
    pub migration: MigrationPart,
    /// How extents are laid out on the devices.
    #[serde(default)]
    pub fragmentation: FragmentationPart,
    /// The extent cache in memory.
    #[serde(default)]
    pub extent_cache: CachePart,
    /// Data that only lost devices hold, as found when the last one was lost.
    #[serde(default)]
    pub unreachable_bytes: u64,
    /// What migration gains or costs, as the engine estimates.
    #[serde(default)]
    pub migration_estimate: MigrationEstimate,
    /// Settings that have no effect: what a policy cannot do with these devices, and keys of the pool file
    /// that do not apply to a pool that exists.
    #[serde(default)]
    pub configuration_warnings: Vec<String>,
    /// The metadata can no longer be written: the pool refuses changes.
    pub read_only: bool,
    /// NBD clients and control sessions; `null` while the pool is idle.
    #[serde(default)]
    pub clients: Option<ClientsPart>,
}

/// A device of the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Device")]
pub struct DevicePart {
    /// The name in the pool file.
    pub name: String,
    /// The path of its file or block device.
    pub path: String,
    /// What kind of device it is.
    #[schemars(extend("enum" = ["nvm", "ssd", "hdd", "remote"]))]
    pub class: String,
    /// It holds an up-to-date copy of the pool's metadata.
    pub metadata: bool,
    /// Its copy of the pool's metadata is stale: the pool went on without it.
    #[serde(default)]
    pub metadata_stale: bool,
    /// It did not exist when the pool was opened.
    #[serde(default)]
    pub absent: bool,
    /// The modelled drive whose service times it is paced to; `null` if it is not paced.
    pub pace: Option<String>,
    /// Size when it joined the pool.
    pub size_bytes: u64,
    /// Present size, which differs from `size_bytes` if it was truncated or enlarged since; `null` if it is
    /// not open.
    #[serde(default)]
    pub current_size_bytes: Option<u64>,
    /// Its file system refuses O_DIRECT, so its data goes through the page cache.
    #[serde(default)]
    pub page_cache: bool,
    /// It is lost because it was truncated or overwritten while it was served; durable data is gone.
    #[serde(default)]
    pub damaged: bool,
    /// Its file was removed or replaced; the data on it is gone once the server ends.
    #[serde(default)]
    pub removed: bool,
    /// Path from which the removed file can be copied until the server ends; `null` if it was not removed.
    #[serde(default)]
    pub open_file: Option<String>,
    /// Where it is instead, if its path leads to nothing or to something else, so that the next start does
    /// not find it; else `null`.
    #[serde(default)]
    pub moved: Option<MovedPart>,
    /// Capacity for data.
    pub capacity_bytes: u64,
    /// Capacity that extents occupy, as in `pool`.
    pub used_bytes: u64,
    /// `lost`: it gets no more commands until the pool is opened again; `removed` and `moved`: see these
    /// fields; `in_doubt`: a flush failed, and `blocks_in_doubt` lost their last write; else `ok`.
    #[schemars(extend("enum" = ["ok", "moved", "removed", "in_doubt", "lost"]))]
    pub state: String,
    /// Why it is lost; `null` if it is not.
    pub lost_reason: Option<String>,
    /// Time since it was lost; `null` if it is not.
    pub lost_ns: Option<u64>,
    /// Blocks of 4 KiB that lost their last write; reads of them return EIO until they are rewritten or
    /// trimmed.
    pub blocks_in_doubt: u64,
    /// Its commands since the server started; `null` while the pool is idle.
    pub traffic: Option<Traffic>,
    /// Response times since the server started, by direction and size; empty while the pool is idle.
    #[serde(default)]
    pub responses: Vec<ResponsesPart>,
}

/// The commands of a device since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Reads.
    pub reads: Commands,
    /// Writes, those of the map included.
    pub writes: Commands,
    /// Flushes.
    pub flushes: u64,
    /// Commands that failed, those that were retried included.
    pub failed: u64,
    /// Reads that failed; part of `failed`.
    pub failed_reads: u64,
    /// Writes that failed; part of `failed`.
    pub failed_writes: u64,
    /// Flushes that failed; part of `failed`.
    pub failed_flushes: u64,
    /// Writes that got no space in the file system or thin pool below the device; not part of `failed`.
    #[serde(default)]
    pub no_space: u64,
    /// Commands in flight.
    pub in_flight: u64,
    /// Load over the last complete second, or longer if no command has ended since.
    #[serde(default)]
    pub load: LoadPart,
    /// The share of the device that the mover may use, and has used.
    #[serde(default)]
    pub mover: MoverPart,
    /// Response time of a 4 KiB read while the pool was idle; `null` before the first.
    pub idle_response_ns: Option<u64>,
    /// Some of its blocks are in doubt.
    pub in_doubt: bool,
    /// Share of its commands that a paced device answered later than its model, 0 to 1.
    pub overruns_share: f64,
    /// The figures do not describe the modelled drive: more than 3 and more than 1 % of the commands were
    /// late, and lateness is more than 5 % of the modelled responses.
    pub figures_invalid: bool,
}

/// Commands of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Commands {
    /// Commands that ended.
    pub count: u64,
    /// Bytes that they transferred.
    pub bytes: u64,
    /// Mean response time, from submission to completion, in which recent commands weigh more; `null` before
    /// the first.
    pub response_ns: Option<u64>,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Volume")]
pub struct VolumePart {
    /// The name, which is also the NBD export name.
    pub name: String,
    /// Size that clients see.
    pub size_bytes: u64,
    /// Space that it occupies on the devices, in slots of 4 KiB; every place counts, as in `pool`.
    pub used_bytes: u64,
    /// When the map changes of a write are durable.
    pub hardening: Hardening,
    /// Copies that are kept of every block, each on another device.
    pub copies: u8,
    /// Its own placement policy; `null` if it uses the pool's.
    #[serde(default)]
    pub policy: Option<String>,
    /// The policy of the pool file, which the next server uses (`pool`: the pool's); `null` if it is the one
    /// in force.
    #[serde(default)]
    pub policy_after_restart: Option<String>,
    /// What migration by its own policy gains or costs; `null` if it uses the pool's policy.
    #[serde(default)]
    pub migration_estimate: Option<MigrationEstimate>,
    /// Space in extents some blocks of which have fewer than `copies` copies; `null` until it has been
    /// counted, and while the pool is idle.
    pub degraded_bytes: Option<u64>,
    /// Data that only lost devices hold, so that it cannot be read; 0 while the pool is idle.
    #[serde(default)]
    pub unreachable_bytes: u64,
    /// Metadata of the file system in the volume, as its superblock says; `null` if no policy asks for it, or
    /// weir finds no file system.
    #[serde(default)]
    pub file_system_metadata_bytes: Option<u64>,
}

/// The document of `weir volume create`, `set`, `list` and `remove`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir volume list")]
pub struct Volumes<'a> {
    /// The volumes, sorted by name, as they are after the command.
    pub volumes: &'a [VolumePart],
}

#[cfg(test)]
mod tests;
