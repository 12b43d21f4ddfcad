//! The *device port*: the commands that the engine sends to devices.
//!
//! Every implementation (real, paced, simulated) keeps this contract:
//!
//! - Commands to one device may be executed in any order; a caller that needs an order waits for the
//!   completion. Every command is answered exactly once.
//! - A write is durable when a [`IoKind::Flush`] *submitted after the write's completion* has succeeded, or
//!   at its own completion with `fua`. Until then a power loss may lose it, completely or in 512-byte
//!   sectors, in any subset.
//! - A failed flush or `fua` write guarantees nothing about any write since the last successful flush; a
//!   later flush does not change that, nor does one in flight at the same time.
//! - The buffer belongs to the device from submission to completion.

use crate::{Buffer, Bytes, DeviceId, DeviceOffset, IoError};
use std::fmt;

/// The id of a device command in flight, chosen by the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// The operation of a device command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Fill the buffer.
    Read,
    /// Write the buffer.
    Write {
        /// Whether the write is durable at completion.
        fua: bool,
    },
    /// Make every completed write durable. Address, length and buffer are empty.
    Flush,
}

impl IoKind {
    /// Whether it fills a buffer.
    #[inline]
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Read)
    }
}

impl fmt::Display for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write { .. } => "write",
            Self::Flush => "flush",
        })
    }
}

/// A command to a device.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// The id, returned with the completion.
    pub id: IoId,
    /// The device.
    pub device: DeviceId,
    /// The operation.
    pub kind: IoKind,
    /// The offset; a multiple of the device's logical sector.
    pub at: DeviceOffset,
    /// The bytes, a multiple of the device's logical sector. [`Buffer::EMPTY`] for a flush.
    pub buffer: Buffer,
}

impl Io {
    /// Returns the number of bytes to transfer; zero for a flush.
    #[inline]
    pub const fn len(&self) -> Bytes {
        Bytes(self.buffer.len as u64)
    }
    /// Whether it transfers nothing.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.buffer.len == 0
    }
}

/// The completion of a device command.
#[derive(Clone, Copy, Debug)]
pub struct IoCompletion {
    /// The command's id.
    pub id: IoId,
    /// Whether the whole command succeeded.
    pub result: Result<(), IoError>,
}
