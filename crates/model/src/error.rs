//! Errors by what the caller must do.

use crate::{Bytes, DeviceId, DeviceOffset, Errno, IoKind, VolumeOffset};
use thiserror::Error;

/// What whoever meets the error has to do about it; also the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Correct the command line or the configuration.
    Usage,
    /// The step would be unsafe as things are; the message names the way to make it safe.
    Refused,
    /// Stored data is damaged; nothing was changed.
    Corrupt,
    /// The machine stands in the way: permission, device, network.
    Environment,
}

impl ErrorKind {
    /// The exit code of a command that ends with this kind of error.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Corrupt => 4,
            Self::Environment => 5,
        }
    }
}

/// A device did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IoError {
    /// What the operating system says.
    #[error("{0}")]
    Os(Errno),
    /// Fewer bytes than asked for; the device is shorter than it was.
    #[error("device ended early")]
    Short,
    /// The device's file has no name any more: it was removed, or another took its place. It is gone once it is closed.
    #[error("the device's file was removed or replaced")]
    Removed,
    /// The device is gone or was given up.
    #[error("device lost")]
    Lost,
}

/// Why a client's request failed. The client sees the errno; the log has the device and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// EIO: a device failed for these bytes.
    #[error("device {device}: {kind} of {len} at {at} failed: {error}")]
    Io {
        /// The failing device.
        device: DeviceId,
        /// What it was asked.
        kind: IoKind,
        /// Where.
        at: DeviceOffset,
        /// How much.
        len: Bytes,
        /// What it answered.
        error: IoError,
    },
    /// ENOSPC: the write needs new space and no device has any.
    #[error("no device has free space; free some with TRIM, remove a volume, or add a device")]
    NoSpace,
    /// EINVAL: of no bytes, or otherwise not a request.
    #[error("a request of {len} at {offset} is empty, or its buffer does not fit")]
    Misaligned {
        /// Where it was to start.
        offset: VolumeOffset,
        /// How long it was to be.
        len: Bytes,
    },
    /// EINVAL (reads) or ENOSPC (writes): past the end of the volume.
    #[error("a request of {len} at {offset} passes the end of the volume ({size})")]
    OutOfRange {
        /// Where it was to start.
        offset: VolumeOffset,
        /// How long it was to be.
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
