//! What whoever looks after the pool should know, for the log.

use crate::units::Percent;
use std::collections::VecDeque;
use std::fmt;
use weir_model::{Bytes, DeviceId, DeviceOffset, IoError, IoKind, Nanos, VolumeId, VolumeOffset};
use weir_policy::harm::Estimate;

/// Notices nobody fetched, beyond which the oldest are forgotten.
const KEPT: usize = 64;

/// What a pool may run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceKind {
    /// Space for data.
    Data,
    /// Space for the map: many small pieces of large volumes are in use.
    Metadata,
}

/// Why a device is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostWhy {
    /// It did not answer a command within its deadline.
    Hung,
    /// It is gone.
    Gone,
    /// It was not there when the pool was opened.
    Absent,
    /// It has become shorter than its superblock says: a file that was truncated.
    CutShort,
    /// Its last page no longer holds its superblock: a file that was truncated and has grown again, or
    /// something else wrote there.
    Replaced,
}

impl LostWhy {
    /// Whether data that was durable is gone with it, or may be.
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::CutShort | Self::Replaced)
    }
}

impl fmt::Display for LostWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hung => "it did not answer in time",
            Self::Gone => "it is gone",
            Self::Absent => "it was not there when the pool was opened",
            Self::CutShort => "it has become shorter than its superblock says",
            Self::Replaced => {
                "the superblock in its last page is gone: it was truncated and has grown again, or something else wrote to it"
            }
        })
    }
}

/// Something whoever looks after the pool should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A warning threshold was passed.
    Filling {
        /// What is filling up.
        room: SpaceKind,
        /// The threshold.
        at: Percent,
        /// How much is used.
        used: Bytes,
        /// Of how much.
        total: Bytes,
    },
    /// A write needed space and got none, for want of this.
    Full(SpaceKind),
    /// A write got space after one that got none.
    RoomAgain,
    /// A device command failed.
    Failed {
        /// The device.
        device: DeviceId,
        /// What it was asked.
        kind: IoKind,
        /// Where.
        at: DeviceOffset,
        /// How much.
        len: Bytes,
        /// What it answered.
        error: IoError,
        /// It is tried again.
        again: bool,
    },
    /// Writes since the device's last good flush are lost, or may be.
    Doubt {
        /// The device.
        device: DeviceId,
        /// Blocks whose only copy is concerned: they read as EIO until they are rewritten.
        blocks: u64,
    },
    /// A device is no longer used.
    Lost {
        /// The device.
        device: DeviceId,
        /// Why.
        why: LostWhy,
    },
    /// There was no space for a write below a device: its file system is full, or a thin device.
    FullBelow {
        /// The device.
        device: DeviceId,
        /// Where on it.
        at: DeviceOffset,
        /// How much was to be written.
        len: Bytes,
        /// What the write met.
        error: IoError,
    },
    /// A device's file was removed, or another took its place: it is used until it is closed, and gone then.
    Removed {
        /// The device.
        device: DeviceId,
    },
    /// Lost devices alone hold these bytes: they cannot be read until the pool is opened with the device, or
    /// they are written again.
    Unreachable {
        /// One of the lost devices that hold them.
        device: DeviceId,
        /// Whose they are.
        volume: VolumeId,
        /// Where they begin.
        offset: VolumeOffset,
        /// How many.
        len: Bytes,
    },
    /// There are more such ranges than were told one by one.
    UnreachableInAll {
        /// All of them.
        ranges: u64,
        /// Their bytes.
        bytes: Bytes,
    },
    /// What a policy moves made requests slower: it moves nothing for now.
    MovesStopped {
        /// The volume whose own policy it is; the pool's without one.
        volume: Option<VolumeId>,
        /// The policy.
        policy: &'static str,
        /// What the sampled commands took, and would have taken.
        estimate: Estimate,
        /// For how long.
        pause: Nanos,
    },
    /// It may move again.
    MovesAgain {
        /// As above.
        volume: Option<VolumeId>,
        /// The policy.
        policy: &'static str,
    },
    /// A policy has something to say: it cannot be done as it was asked for.
    Remark {
        /// As above.
        volume: Option<VolumeId>,
        /// The policy.
        policy: &'static str,
        /// What it is.
        remark: &'static str,
    },
    /// That is over.
    RemarkOver {
        /// As above.
        volume: Option<VolumeId>,
        /// The policy.
        policy: &'static str,
        /// What it was.
        remark: &'static str,
    },
    /// The map can no longer be made durable: changes are refused until the pool is opened again.
    ReadOnly {
        /// What failed last.
        error: IoError,
    },
}

/// Notices nobody has fetched yet.
#[derive(Debug, Default)]
pub(crate) struct Notices(VecDeque<Notice>);

impl Notices {
    pub(crate) fn push(&mut self, notice: Notice) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(notice);
    }

    pub(crate) fn pop(&mut self) -> Option<Notice> {
        self.0.pop_front()
    }
}
