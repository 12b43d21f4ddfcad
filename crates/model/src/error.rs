//! Errors, classified by the action they require.

use crate::{Bytes, DeviceId, DeviceOffset, Errno, IoKind, VolumeOffset};
use thiserror::Error;

/// The action that an error requires; it also determines the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Correct the command line or the configuration.
    Usage,
    /// Follow the message: the step is unsafe in the present state, and the message names a safe way.
    Refused,
    /// Repair or restore: stored data is damaged, and nothing was changed.
    Corrupt,
    /// Correct the environment: permission, device, network.
    Environment,
}

impl ErrorKind {
    /// Returns the exit code of a command that ends with this kind of error.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Corrupt => 4,
            Self::Environment => 5,
        }
    }
}

/// An error of a device command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IoError {
    /// An error of the operating system.
    #[error("{0}")]
    Os(Errno),
    /// Fewer bytes than requested; the device is shorter than it was.
    #[error("device ended early")]
    Short,
    /// The device's file has no name any more: it was removed or replaced, and its data is gone once it is
    /// closed.
    #[error("the device's file was removed or replaced")]
    Removed,
    /// The device is gone or was given up.
    #[error("device lost")]
    Lost,
}

/// The reason why a client's request failed. The client sees the errno; the log has the device and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// EIO: a device failed for these bytes.
    #[error("device {device}: {kind} of {len} at {at} failed: {error}")]
    Io {
        /// The failing device.
        device: DeviceId,
        /// The command.
        kind: IoKind,
        /// The offset.
        at: DeviceOffset,
        /// The length.
        len: Bytes,
        /// The device's error.
        error: IoError,
    },
    /// ENOSPC: the write needs new space and no device has any.
    #[error("no device has free space; free some with TRIM, remove a volume, or add a device")]
    NoSpace,
    /// EINVAL: the length is zero, or the request is otherwise invalid.
    #[error("a request of {len} at {offset} is empty, or its buffer does not fit")]
    Misaligned {
        /// The offset.
        offset: VolumeOffset,
        /// The length.
        len: Bytes,
    },
    /// EINVAL (reads) or ENOSPC (writes): past the end of the volume.
    #[error("a request of {len} at {offset} passes the end of the volume ({size})")]
    OutOfRange {
        /// The offset.
        offset: VolumeOffset,
        /// The length.
        len: Bytes,
        /// The volume's size.
        size: Bytes,
    },
    /// ENXIO: no such volume, or it is being removed.
    #[error("no such volume")]
    NoVolume,
    /// EIO: an earlier write this flush covers was lost with its device.
    #[error("device {0}: flush failed; writes since the last successful flush are in doubt")]
    FlushFailed(DeviceId),
    /// EIO: the block's last write was lost in a failed flush, or with its device.
    #[error(
        "device {device}: the last write here was lost in a failed flush; write or trim the whole block, or open the pool again to read what is left"
    )]
    InDoubt {
        /// The device.
        device: DeviceId,
    },
    /// ESHUTDOWN: the pool is stopping or its metadata can no longer be written.
    #[error(
        "the pool no longer accepts changes: its metadata device failed; restart it once the device is back"
    )]
    ReadOnly,
}
