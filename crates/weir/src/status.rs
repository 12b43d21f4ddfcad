//! What `weir pool status` shows: a pool, its devices and their traffic, its volumes.
//!
//! The same document is printed with `--json`, so its fields are a promise: docs/reference/json.md
//! describes them, and a field may be added but not renamed.

mod clients;
mod gather;
mod human;
mod measures;
mod metrics;
mod removed;
mod spread;
mod warnings;

pub use clients::ClientsPart;
pub use human::volumes_table;
pub use measures::{CachePart, JudgedPart, LoadPart, MoverPart, MovesPart, ResponsesPart};
pub use removed::MovedPart;
pub use spread::SpreadPart;
pub use warnings::OVERRUN_WHY;

use serde::{Deserialize, Serialize};
use weir_serve::control::Hardening;

/// The state of a pool that no server holds.
pub const IDLE: &str = "idle";
/// The state of a pool that a server serves.
pub const SERVED: &str = "served";

/// What stands for the pool's policy where a volume's is named.
pub const POOLS_POLICY: &str = "pool";

/// A pool at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The pool.
    pub pool: PoolPart,
    /// Its devices, in the order of the pool file.
    pub devices: Vec<DevicePart>,
    /// Its volumes, by name.
    pub volumes: Vec<VolumePart>,
}

/// The pool as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolPart {
    /// Its name.
    pub name: String,
    /// Its random identity, in hexadecimal.
    pub id: String,
    /// `idle`, or `served` by a running server.
    pub state: String,
    /// The placement policy.
    pub policy: String,
    /// The one the pool file has, if that is another: `policy` was set and ends with the server.
    #[serde(default)]
    pub policy_after_restart: Option<String>,
    /// The extent size.
    pub extent_bytes: u64,
    /// Room for data on all devices.
    pub data_bytes: u64,
    /// How much of it is taken.
    pub used_bytes: u64,
    /// Given up, and free once the map that says so is durable; no part of `used_bytes`.
    #[serde(default)]
    pub releasing_bytes: u64,
    /// The sizes of all volumes together: what clients may come to use.
    pub promised_bytes: u64,
    /// Net growth of what is taken per second of late; negative while space is freed, 0 while idle.
    pub filling_bytes_per_second: f64,
    /// When the pool is full if that goes on.
    pub full_in_ns: Option<u64>,
    /// The highest of the pool's `warn_at` thresholds that has been passed, in percent.
    pub warning_percent: Option<u8>,
    /// What the pool has run out of: `data` or `metadata`.
    pub full: Option<String>,
    /// Parts of writes that wait for space.
    pub waiting: u64,
    /// Parts of writes refused for want of space since the server started.
    pub refused: u64,
    /// Room for metadata.
    pub metadata_bytes: u64,
    /// How much of it is taken.
    pub metadata_used_bytes: u64,
    /// As `warning_percent`, of metadata.
    pub metadata_warning_percent: Option<u8>,
    /// Written to the metadata since the server started.
    pub metadata_written_bytes: u64,
    /// Written for clients since the server started.
    pub data_written_bytes: u64,
    /// How long recovery would take if the power went now.
    pub recovery_ns: u64,
    /// Memory the map takes.
    pub map_memory_bytes: u64,
    /// What has been moved since the server started.
    #[serde(default)]
    pub moves: MovesPart,
    /// How extents lie on the devices.
    #[serde(default)]
    pub spread: SpreadPart,
    /// The extent cache.
    #[serde(default)]
    pub cache: CachePart,
    /// Data that lost devices alone hold, as found when the last one was lost.
    #[serde(default)]
    pub unreachable_bytes: u64,
    /// Whether they make requests faster.
    #[serde(default)]
    pub judged: JudgedPart,
    /// What policies cannot do as they were told to.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// The metadata can no longer be written: changes are refused.
    pub read_only: bool,
    /// Its clients; absent while idle.
    #[serde(default)]
    pub clients: Option<ClientsPart>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DevicePart {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// `nvm`, `ssd`, `hdd` or `remote`.
    pub class: String,
    /// Whether the pool's metadata lives here, and is up to date.
    pub metadata: bool,
    /// Its copy of the pool's metadata is not the newest: the pool went on without it.
    #[serde(default)]
    pub left_behind: bool,
    /// It was not there when the pool was opened.
    #[serde(default)]
    pub absent: bool,
    /// The modelled drive it is paced to.
    pub pace: Option<String>,
    /// Its size when it joined the pool.
    pub size_bytes: u64,
    /// How long it is now: other than `size_bytes` if it was truncated or enlarged since; `null` if it is not open.
    #[serde(default)]
    pub size_now_bytes: Option<u64>,
    /// It goes through the page cache, since its file system refuses O_DIRECT.
    #[serde(default)]
    pub page_cache: bool,
    /// It is lost because it was truncated or overwritten while it was served: data that was durable is gone with it.
    #[serde(default)]
    pub damaged: bool,
    /// Its file was removed, or another took its place: all that is on it is gone once the server ends.
    #[serde(default)]
    pub removed: bool,
    /// Where it can be copied from until then.
    #[serde(default)]
    pub open_file: Option<String>,
    /// Its path leads to nothing, or to something else, though it has a name: the next start does not find
    /// it.
    #[serde(default)]
    pub moved: Option<MovedPart>,
    /// Room for data on it.
    pub data_bytes: u64,
    /// How much of it is taken.
    pub used_bytes: u64,
    /// `ok`; `moved`, `removed`: see there; `doubtful`: a flush failed, and blocks written before are lost
    /// until rewritten; `lost`: it gets no more commands until the pool is opened again.
    pub state: String,
    /// Why it is lost.
    pub lost_why: Option<String>,
    /// How long it has been lost.
    pub lost_ns: Option<u64>,
    /// Blocks of 4 KiB whose last write is lost: they read as EIO until rewritten or trimmed.
    pub doubtful_blocks: u64,
    /// What it has done since the server started; absent while idle.
    pub traffic: Option<Traffic>,
    /// How its responses are distributed since then, by direction and size; empty while idle.
    #[serde(default)]
    pub responses: Vec<ResponsesPart>,
}

/// What a device has done since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads.
    pub reads: Commands,
    /// Writes, the map's included.
    pub writes: Commands,
    /// Flushes.
    pub flushes: u64,
    /// Commands that failed, those that were then tried again included.
    pub failed: u64,
    /// Of these, reads.
    pub failed_reads: u64,
    /// Of these, writes.
    pub failed_writes: u64,
    /// Of these, flushes.
    pub failed_flushes: u64,
    /// Writes for which there was no space in the file system, or thin pool, the device is in: not failed, but not done.
    #[serde(default)]
    pub no_space: u64,
    /// Commands in flight.
    pub in_flight: u64,
    /// What it does of late.
    #[serde(default)]
    pub load: LoadPart,
    /// What moves take of its time.
    #[serde(default)]
    pub mover: MoverPart,
    /// Response to a 4 KiB read when the pool was idle.
    pub idle_response_ns: Option<u64>,
    /// Some blocks are in doubt.
    pub in_doubt: bool,
    /// Commands that a paced device answered later than its model wanted, of all its commands.
    pub overruns_share: f64,
    /// The figures do not describe the modelled drive: more than 3 and more than 1 % of the commands were
    /// late, and lateness is more than 5 % of the modelled responses.
    pub figures_invalid: bool,
}

/// Commands of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Commands {
    /// How many ended.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Their mean response, from submission to completion, recent ones counting more.
    pub response_ns: Option<u64>,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumePart {
    /// Its name, which is its NBD export name.
    pub name: String,
    /// The size clients see.
    pub size_bytes: u64,
    /// Space it takes on the devices, as its map is in effect: all copies, cached ones and kept space included.
    pub used_bytes: u64,
    /// When its map changes are durable: `flush` or `write`.
    pub hardening: Hardening,
    /// Copies kept of every block.
    pub copies: u8,
    /// Its own placement policy; `null` if it has the pool's.
    #[serde(default)]
    pub policy: Option<String>,
    /// What it will be after a restart of the server, `pool` for the pool's, if that is another: `policy` was set and
    /// ends with the server.
    #[serde(default)]
    pub policy_after_restart: Option<String>,
    /// Whether what that policy moves makes requests faster; `null` if it has none of its own.
    #[serde(default)]
    pub judged: Option<JudgedPart>,
    /// Space in extents some blocks of which have fewer copies for now; `null` as long as nobody has looked:
    /// while the pool is idle, and for a moment after it is opened.
    pub degraded_bytes: Option<u64>,
    /// What its superblock says is a file system's metadata; `null` if no policy wants to know, or none was found.
    #[serde(default)]
    pub metadata_bytes: Option<u64>,
}

#[cfg(test)]
mod tests;
