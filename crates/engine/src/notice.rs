//! Events for the administrator, to be logged.

use crate::units::Percent;
use std::collections::VecDeque;
use std::fmt;
use weir_model::{Bytes, DeviceId, DeviceOffset, IoError, IoKind, Nanos, VolumeId, VolumeOffset};
use weir_policy::harm::Estimate;

/// The number of unfetched notices kept; older ones are dropped.
const NOTICES_MAX: usize = 64;

/// The space that a pool may run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceKind {
    /// Space for data.
    Data,
    /// Space for the map: many small ranges of large volumes are in use.
    Metadata,
}

/// The reason why a device is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The device did not answer a command within its deadline.
    Hung,
    /// The device is gone.
    Disconnected,
    /// The device was absent when the pool was opened.
    Absent,
    /// The device is shorter than its superblock says: its file was truncated.
    Truncated,
    /// The device's last page no longer contains its superblock: its file was truncated and has grown again,
    /// or another program wrote there.
    Replaced,
}

impl LossReason {
    /// Whether durable data is lost with the device, or may be.
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::Truncated | Self::Replaced)
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hung => "it did not answer in time",
            Self::Disconnected => "it is gone",
            Self::Absent => "it was not there when the pool was opened",
            Self::Truncated => "it has become shorter than its superblock says",
            Self::Replaced => {
                "the superblock in its last page is gone: it was truncated and has grown again, or something else wrote to it"
            }
        })
    }
}

/// An event for the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A space warning threshold was passed.
    Filling {
        /// The space that is filling up.
        space: SpaceKind,
        /// The threshold.
        at: Percent,
        /// The space used.
        used: Bytes,
        /// The total space.
        total: Bytes,
    },
    /// A write found no space of this kind.
    Full(SpaceKind),
    /// A write got space after an earlier one got none.
    SpaceAvailable,
    /// A device command failed.
    Failed {
        /// The device.
        device: DeviceId,
        /// The command.
        kind: IoKind,
        /// Its offset on the device.
        at: DeviceOffset,
        /// Its length.
        len: Bytes,
        /// The error.
        error: IoError,
        /// Whether the command is retried.
        is_retried: bool,
    },
    /// Writes since the device's last successful flush are lost, or may be.
    WritesInDoubt {
        /// The device.
        device: DeviceId,
        /// Blocks whose only copy is affected: they read as EIO until they are rewritten.
        blocks: u64,
    },
    /// A device is no longer used.
    Lost {
        /// The device.
        device: DeviceId,
        /// The reason.
        reason: LossReason,
    },
    /// A write found no space below a device: its file system is full, or its thin device is.
    BackingStoreFull {
        /// The device.
        device: DeviceId,
        /// The write's offset on the device.
        at: DeviceOffset,
        /// The write's length.
        len: Bytes,
        /// The error.
        error: IoError,
    },
    /// A device's file was removed or replaced. The device stays in use until it is closed; then its data is
    /// gone.
    Removed {
        /// The device.
        device: DeviceId,
    },
    /// Only lost devices contain these bytes. They are unreadable until the pool is opened with the device,
    /// or until they are rewritten.
    Unreachable {
        /// One of the lost devices that contain them.
        device: DeviceId,
        /// The volume.
        volume: VolumeId,
        /// The offset in the volume.
        offset: VolumeOffset,
        /// The length.
        len: Bytes,
    },
    /// There are more unreachable ranges than were reported one by one.
    UnreachableTotal {
        /// The number of all ranges.
        ranges: u64,
        /// The bytes of all ranges.
        bytes: Bytes,
    },
    /// A policy's moves made requests slower, so its moves are paused.
    MovesStopped {
        /// The volume that has this policy as its own; `None` for the pool's policy.
        volume: Option<VolumeId>,
        /// The policy.
        policy: &'static str,
        /// The measured and the counterfactual cost of the sampled commands.
        estimate: Estimate,
        /// The length of the pause.
        pause: Nanos,
    },
    /// A policy's moves are no longer paused.
    MovesResumed {
        /// The volume that has this policy as its own; `None` for the pool's policy.
        volume: Option<VolumeId>,
        /// The policy.
        policy: &'static str,
    },
    /// A policy cannot do as configured, and says why.
    Remark {
        /// The volume that has this policy as its own; `None` for the pool's policy.
        volume: Option<VolumeId>,
        /// The policy.
        policy: &'static str,
        /// The explanation.
        remark: &'static str,
    },
    /// An earlier remark no longer applies.
    RemarkCleared {
        /// The volume that has this policy as its own; `None` for the pool's policy.
        volume: Option<VolumeId>,
        /// The policy.
        policy: &'static str,
        /// The explanation.
        remark: &'static str,
    },
    /// The map can no longer be made durable: changes are refused until the pool is opened again.
    ReadOnly {
        /// The last error.
        error: IoError,
    },
}

/// The notices that have not been fetched.
#[derive(Debug, Default)]
pub(crate) struct Notices(VecDeque<Notice>);

impl Notices {
    pub(crate) fn push(&mut self, notice: Notice) {
        if self.0.len() == NOTICES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(notice);
    }

    pub(crate) fn pop(&mut self) -> Option<Notice> {
        self.0.pop_front()
    }
}
