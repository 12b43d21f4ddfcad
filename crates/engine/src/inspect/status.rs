//! What the pool is doing, as plain data.

use crate::Engine;
use crate::StoppedChanges;
use crate::admin::VolumeInfo;
use crate::cache::CacheStatus;
use crate::counts::written::Written;
use crate::device::Availability;
use crate::device::ErrorCounts;
use crate::device::measure::{Load, ResponsesBySize};
use crate::device::pacing::MoverShare;
use crate::mover::MoverStatus;
use crate::notice::LostWhy;
use crate::policy::harm::MovesStatus;
use crate::policy::rounds::Remark;
use crate::policy::which::Which;
use crate::space::SpaceStatus;
use crate::space::extra::Spread;
use weir_map::{Found, MapMemory, MapRoom};
use weir_model::{BLOCK, BlockRange, Bytes, DeviceClass, DeviceId, ExtentKey, Nanos, VolumeId, VolumeOffset};

/// Whether a device is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// It is.
    InUse,
    /// It gets no more commands until the pool is opened again.
    Lost {
        /// Why.
        why: LostWhy,
        /// How long it has been so.
        for_: Nanos,
    },
}

/// A device's share of the pool and how it performs.
#[derive(Clone, Debug)]
pub struct DeviceStatus {
    /// Its id.
    pub id: DeviceId,
    /// Its name in the pool file.
    pub name: String,
    /// What kind of device it is.
    pub class: DeviceClass,
    /// Space for user data.
    pub total: Bytes,
    /// Of it, not owned by any volume, as its extents are in effect.
    pub free: Bytes,
    /// Of what is free, what was given up so lately that it cannot be handed out again yet: once the map that
    /// says so is durable, and commands that may touch it have ended.
    pub releasing: Bytes,
    /// Reads completed, and their bytes.
    pub reads: (u64, Bytes),
    /// Writes completed (the map's included), and their bytes.
    pub writes: (u64, Bytes),
    /// Mean response to reads, recent ones counting more; `None` before the first.
    pub read_response: Option<Nanos>,
    /// Mean response to writes, recent ones counting more; `None` before the first.
    pub write_response: Option<Nanos>,
    /// Response to a 4 KiB read when idle.
    pub idle_response: Option<Nanos>,
    /// Flushes completed.
    pub flushes: u64,
    /// Commands that failed, retried ones included.
    pub errors: ErrorCounts,
    /// Commands in flight.
    pub in_flight: u64,
    /// What the mover has of its time.
    pub mover: MoverShare,
    /// What it does of late.
    pub load: Load,
    /// How its responses are distributed, by direction and size; of all commands, the map's and the
    /// mover's included.
    pub responses: Vec<ResponsesBySize>,
    /// Whether it is used, and why not.
    pub state: DeviceState,
    /// Its file was removed or replaced while it was used: it is gone once it is closed.
    pub removed: bool,
    /// Blocks whose last write was lost with a failed flush: they read as EIO until rewritten.
    pub doubtful: u64,
    /// It carries the map.
    pub metadata: bool,
}

/// The pool as it is.
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
    /// Memory the map takes.
    pub memory: MapMemory,
    /// How full the metadata area is.
    pub metadata: MapRoom,
    /// How full it is.
    pub space: SpaceStatus,
    /// What was written since the start.
    pub written: Written,
    /// How extents lie on the devices.
    pub spread: Spread,
    /// What the mover has done, and is doing.
    pub mover: MoverStatus,
    /// The extent cache.
    pub cache: CacheStatus,
    /// What the moves of the pool's policy came to.
    pub moves: MovesStatus,
    /// What the policies have to say.
    pub remarks: Vec<Remark>,
    /// Requests in flight.
    pub requests: usize,
    /// What lost devices alone hold, as found when the last one was lost.
    pub unreachable: Bytes,
    /// Changes are refused: the map can no longer be written.
    pub read_only: bool,
}

/// A run of a volume's bytes that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How many bytes.
    pub len: Bytes,
    /// What is there.
    pub kind: RunKind,
}

/// What a run of a volume's bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// It holds data.
    Data,
    /// It reads as zeros, and its space is kept: a write there cannot run out of space for data.
    Zeros,
    /// It reads as zeros and has no space.
    Hole,
}

/// Extents that one [`Engine::block_status`] looks at: some tens of microseconds.
pub const STATUS_EXTENTS_MAX: usize = 1024;

impl Engine {
    /// The pool as it is. Walks the leaves of every volume: for people, not for every request.
    pub fn status(&self) -> PoolStatus {
        let map = &self.data.base.core.map;
        let extent = map.extent().bytes();
        let device = |sb: &weir_map::Superblock| {
            let (device, space) = (&self.data.base.core.devices[sb.device.index()], map.space(sb.device));
            let releasing = u64::from(self.data.base.core.releasing_extents(sb.device));
            DeviceStatus {
                id: sb.device,
                name: sb.device_name.clone(),
                class: sb.class,
                total: Bytes(u64::from(space.extents()) * extent.0),
                free: Bytes((u64::from(space.free()) + releasing) * extent.0),
                releasing: Bytes(releasing * extent.0),
                reads: device.load.completed(false),
                writes: device.load.completed(true),
                read_response: self.data.base.core.views.of(sb.device).reads.response.get(),
                write_response: self.data.base.core.views.of(sb.device).writes.response.get(),
                idle_response: device.idle.response,
                flushes: device.load.flushes(),
                errors: device.errors,
                in_flight: device.in_flight().into(),
                mover: device.pacing.status(self.data.mover.share()),
                load: device.load.load(self.data.base.core.now),
                responses: device.load.responses(),
                state: match device.state {
                    Availability::InUse => DeviceState::InUse,
                    Availability::Lost { why, since } => {
                        DeviceState::Lost { why, for_: self.data.base.core.now.since(since) }
                    }
                },
                removed: self.data.base.verification.is_removed(sb.device),
                doubtful: self.data.base.durability.doubt.blocks(sb.device),
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
            metadata: map.room(),
            space: self.data.base.space_status(),
            written: self.data.base.counts.written,
            spread: self.data.base.space.spread(&self.data.base.core, &self.data.base.host),
            mover: self.mover_status(),
            cache: self.data.base.cache.status(),
            moves: self.data.base.host.moves_status(&self.data.base.core, Which(0)),
            remarks: self.data.base.remarks().collect(),
            requests: self.data.base.requests.active.len(),
            unreachable: self.background.unreachable.found(),
            read_only: self.data.base.core.stopped_changes == Some(StoppedChanges::MetadataFailed),
        }
    }

    /// Which bytes of a range hold data and which read as zeros: runs appended to `out`, at most
    /// `most`, from the start of the range; fewer bytes than asked for if that is not enough, if
    /// the volume ends, or after [`STATUS_EXTENTS_MAX`] extents (holes between extents count as one):
    /// nobody else waits for a walk through terabytes.
    pub fn block_status(
        &self,
        volume: VolumeId,
        offset: VolumeOffset,
        len: Bytes,
        most: usize,
        out: &mut Vec<Status>,
    ) {
        let Some(size) = self.data.base.core.map.volume(volume).map(|v| v.size.0) else { return };
        let end = offset.0.saturating_add(len.0).min(size);
        let first = out.len();
        let mut push = |len: u64, kind: RunKind| {
            let full = out.len() - first == most;
            match out[first..].last_mut() {
                Some(last) if last.kind == kind => last.len += Bytes(len),
                _ if full => return false,
                _ => out.push(Status { len: Bytes(len), kind }),
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
                Found::Empty if !self.data.base.durability.doubt.has(key) => {
                    (self.data.base.next_used(key).0.min(end), RunKind::Hole)
                }
                Found::Direct(_) => (extent_end, RunKind::Data),
                found => {
                    let first = (u64::from(extent.within(VolumeOffset(at))) / BLOCK) as u16;
                    // What is in doubt is no hole: who took it for zeros would not notice the loss.
                    let data_at =
                        |b| found.holds(b) || self.data.base.durability.doubt.about(key, one(b)).is_some();
                    let data = data_at(first);
                    let blocks = extent.blocks();
                    let past = (first..blocks).find(|b| data_at(*b) != data).unwrap_or(blocks);
                    let run_end = extent.start(key.index).0 + u64::from(past) * BLOCK;
                    let keeps = matches!(&found, Found::Record(record) if record.keep);
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

const fn one(block: u16) -> BlockRange {
    BlockRange { first: block, count: 1 }
}
