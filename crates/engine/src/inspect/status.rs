//! The pool's status, as plain data.

use crate::Engine;
use crate::StoppedChanges;
use crate::admin::VolumeInfo;
use crate::cache::CacheStatus;
use crate::counts::written::BytesWritten;
use crate::device::Availability;
use crate::device::ErrorCounts;
use crate::device::measure::{Load, ResponsesBySize};
use crate::device::pacing::MoverShare;
use crate::mover::MoverStatus;
use crate::notice::LossReason;
use crate::policy::harm::MovesStatus;
use crate::policy::index::PolicyIndex;
use crate::policy::rounds::Remark;
use crate::space::SpaceStatus;
use crate::space::extra::Spread;
use weir_map::{ExtentState, MapMemory, MapSpace};
use weir_model::{BLOCK, BlockRange, Bytes, DeviceClass, DeviceId, ExtentKey, Nanos, VolumeId, VolumeOffset};

/// Whether a device is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// The device is in use.
    InUse,
    /// The device gets no more commands until the pool is opened again.
    Lost {
        /// The reason.
        reason: LossReason,
        /// The time since the loss.
        duration: Nanos,
    },
}

/// The status of a device.
#[derive(Clone, Debug)]
pub struct DeviceStatus {
    /// Its id.
    pub id: DeviceId,
    /// Its name in the pool file.
    pub name: String,
    /// Its class.
    pub class: DeviceClass,
    /// Space for user data.
    pub total: Bytes,
    /// Space that no volume owns in the visible state.
    pub free: Bytes,
    /// Free space that cannot be allocated yet: the map that releases it is not durable, or commands that may
    /// touch it are in flight.
    pub releasing: Bytes,
    /// Reads completed, and their bytes.
    pub reads: (u64, Bytes),
    /// Writes completed, including the map's, and their bytes.
    pub writes: (u64, Bytes),
    /// The moving average of the response time of reads; `None` before the first.
    pub read_response: Option<Nanos>,
    /// The moving average of the response time of writes; `None` before the first.
    pub write_response: Option<Nanos>,
    /// The response time of a 4 KiB read when idle.
    pub idle_response: Option<Nanos>,
    /// Flushes completed.
    pub flushes: u64,
    /// Failed commands, including retried ones.
    pub errors: ErrorCounts,
    /// Commands in flight.
    pub in_flight: u64,
    /// The mover's use of its time.
    pub mover: MoverShare,
    /// Its recent load.
    pub load: Load,
    /// The distributions of response times by direction and size, of all commands, including those of the map
    /// and the mover.
    pub responses: Vec<ResponsesBySize>,
    /// Whether it is in use, and why not.
    pub state: DeviceState,
    /// Whether its file was removed or replaced while in use: its data is gone once it is closed.
    pub removed: bool,
    /// Blocks whose last write was lost by a failed flush: they read as EIO until rewritten.
    pub doubtful: u64,
    /// Whether it contains the map.
    pub metadata: bool,
}

/// The status of the pool.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its extent size.
    pub extent: Bytes,
    /// The placement policy.
    pub policy: &'static str,
    /// Its devices, by id.
    pub devices: Vec<DeviceStatus>,
    /// Its volumes.
    pub volumes: Vec<VolumeInfo>,
    /// The memory of the map.
    pub memory: MapMemory,
    /// The use of the metadata area.
    pub metadata: MapSpace,
    /// The use of space.
    pub space: SpaceStatus,
    /// The bytes written since the start.
    pub written: BytesWritten,
    /// The placement of extents on the devices.
    pub spread: Spread,
    /// The mover's counters.
    pub mover: MoverStatus,
    /// The extent cache.
    pub cache: CacheStatus,
    /// The measured effect of the moves of the pool's policy.
    pub moves: MovesStatus,
    /// The policies' remarks.
    pub remarks: Vec<Remark>,
    /// Requests in flight.
    pub requests: usize,
    /// Data that only lost devices have, as of the last walk.
    pub unreachable: Bytes,
    /// Whether changes are refused because the map can no longer be written.
    pub read_only: bool,
}

/// A run of a volume's bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStatus {
    /// The length.
    pub len: Bytes,
    /// The kind.
    pub kind: RunKind,
}

/// The kind of a run of a volume's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// The run has data.
    Data,
    /// The run reads as zeros, and its space is allocated: a write there cannot run out of space for data.
    Zeros,
    /// The run reads as zeros and has no space.
    Hole,
}

/// The maximum number of extents that one [`Engine::block_status`] examines: some tens of microseconds.
pub const STATUS_EXTENTS_MAX: usize = 1024;

impl Engine {
    /// Returns the status of the pool. Cost: walks the leaves of every volume, so call it rarely, not per
    /// request.
    pub fn status(&self) -> PoolStatus {
        let map = &self.data.base.core.map;
        let extent = map.extent().bytes();
        let device = |sb: &weir_map::Superblock| {
            let device = &self.data.base.core.devices[sb.device.index()];
            let (total, free) = self.data.base.core.device_space(sb.device);
            let releasing = u64::from(self.data.base.core.releasing_extents(sb.device));
            DeviceStatus {
                id: sb.device,
                name: sb.device_name.clone(),
                class: sb.class,
                total,
                free,
                releasing: Bytes(releasing * extent.0),
                reads: device.load.completed(false),
                writes: device.load.completed(true),
                read_response: self.data.base.core.views.device(sb.device).reads.response.get(),
                write_response: self.data.base.core.views.device(sb.device).writes.response.get(),
                idle_response: device.idle.response,
                flushes: device.load.flushes(),
                errors: device.errors,
                in_flight: device.in_flight().into(),
                mover: device.pacing.status(self.data.mover.share()),
                load: device.load.load(self.data.base.core.now),
                responses: device.load.responses(),
                state: match device.state {
                    Availability::InUse => DeviceState::InUse,
                    Availability::Lost { reason: why, since } => {
                        DeviceState::Lost { reason: why, duration: self.data.base.core.now.since(since) }
                    }
                },
                removed: self.data.base.verification.is_removed(sb.device),
                doubtful: self.data.base.durability.doubt.block_count(sb.device),
                metadata: map.members().contains(&sb.device),
            }
        };
        PoolStatus {
            name: map.devices().first().map(|sb| sb.pool_name.clone()).unwrap_or_default(),
            extent,
            policy: self.data.base.host.policies.name(),
            devices: map.devices().iter().map(device).collect(),
            volumes: self.volumes().collect(),
            memory: map.memory(),
            metadata: map.metadata_space(),
            space: self.data.base.space_status(),
            written: self.data.base.counts.written,
            spread: self.data.base.space.spread(&self.data.base.core, &self.data.base.host),
            mover: self.mover_status(),
            cache: self.data.base.cache.status(),
            moves: self.data.base.host.moves_status(&self.data.base.core, PolicyIndex(0)),
            remarks: self.data.base.remarks().collect(),
            requests: self.data.base.requests.active.len(),
            unreachable: self.background.unreachable.found(),
            read_only: self.data.base.core.stopped_changes == Some(StoppedChanges::MetadataFailed),
        }
    }

    /// Appends to `out` the runs of a range that have data or read as zeros: at most `most` runs, from the
    /// start of the range. The runs cover fewer bytes than requested if `most` is too small, if the volume
    /// ends, or after [`STATUS_EXTENTS_MAX`] extents (a run of unmapped extents counts as one), so that no
    /// other request waits for a walk through terabytes.
    pub fn block_status(
        &self,
        volume: VolumeId,
        offset: VolumeOffset,
        len: Bytes,
        most: usize,
        out: &mut Vec<BlockStatus>,
    ) {
        let Some(size) = self.data.base.core.map.volume(volume).map(|v| v.size.0) else { return };
        let end = offset.0.saturating_add(len.0).min(size);
        let first = out.len();
        let mut push = |len: u64, kind: RunKind| {
            let full = out.len() - first == most;
            match out[first..].last_mut() {
                Some(last) if last.kind == kind => last.len += Bytes(len),
                _ if full => return false,
                _ => out.push(BlockStatus { len: Bytes(len), kind }),
            }
            true
        };
        let extent = self.data.base.core.map.extent();
        let mut at = offset.0;
        for _ in 0..STATUS_EXTENTS_MAX {
            if at >= end {
                return;
            }
            let key = ExtentKey { volume, index: extent.index(VolumeOffset(at)) };
            let extent_end = extent.start(weir_model::ExtentIndex(key.index.0 + 1)).0.min(end);
            let (run_end, kind) = match self.data.base.core.map.find(key) {
                ExtentState::Empty if !self.data.base.durability.doubt.contains(key) => {
                    (self.data.base.next_used(key).0.min(end), RunKind::Hole)
                }
                ExtentState::Direct(_) => (extent_end, RunKind::Data),
                found => {
                    let first = (u64::from(extent.within(VolumeOffset(at))) / BLOCK) as u16;
                    // A block in doubt is no hole: a client that took it for zeros would not notice the loss.
                    let data_at = |b| {
                        found.has_block(b)
                            || self.data.base.durability.doubt.losing_device(key, single_block(b)).is_some()
                    };
                    let data = data_at(first);
                    let blocks = extent.blocks();
                    let past = (first..blocks).find(|b| data_at(*b) != data).unwrap_or(blocks);
                    let run_end = extent.start(key.index).0 + u64::from(past) * BLOCK;
                    let keeps = matches!(&found, ExtentState::Record(record) if record.space_reserved);
                    let kind = match (data, keeps) {
                        (true, _) => RunKind::Data,
                        (false, true) => RunKind::Zeros,
                        (false, false) => RunKind::Hole,
                    };
                    (run_end.min(end), kind)
                }
            };
            if !push(run_end - at, kind) {
                return;
            }
            at = run_end;
        }
    }
}

const fn single_block(block: u16) -> BlockRange {
    BlockRange { first: block, count: 1 }
}
