//! What the engine asks of a device: the *device port*.
//!
//! The contract every implementation (real, paced, simulated) keeps:
//!
//! - Commands to one device may be carried out in any order; whoever needs an order waits for
//!   the completion. Every command is answered exactly once.
//! - A write is durable when a [`IoKind::Flush`] *submitted after the write's completion* has
//!   succeeded, or at its own completion with `fua`. Until then a power cut may lose it, whole or
//!   in 512-byte sectors, in any subset.
//! - A failed flush or `fua` write promises nothing about any write since the last successful flush; a
//!   later flush does not mend that, nor does one that was under way at the same time.
//! - The buffer belongs to the device from submission to completion.

use crate::{Buffer, Bytes, DeviceId, DeviceOffset, IoError};
use std::fmt;

/// Names a device command among those in flight; chosen by the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// What the device is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Fill the buffer.
    Read,
    /// Store the buffer.
    Write {
        /// Durable at completion.
        fua: bool,
    },
    /// Make every completed write durable. Address, length and buffer are empty.
    Flush,
}

impl IoKind {
    /// It fills a buffer.
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
    /// Returned with the completion.
    pub id: IoId,
    /// The device.
    pub device: DeviceId,
    /// What to do.
    pub kind: IoKind,
    /// Where; a multiple of the device's logical sector.
    pub at: DeviceOffset,
    /// The bytes, a multiple of the device's logical sector. [`Buffer::EMPTY`] for a flush.
    pub buffer: Buffer,
}

impl Io {
    /// Bytes to transfer; zero for a flush.
    #[inline]
    pub const fn len(&self) -> Bytes {
        Bytes(self.buffer.len as u64)
    }
    /// Transfers nothing.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.buffer.len == 0
    }
}

/// The end of a device command.
#[derive(Clone, Copy, Debug)]
pub struct IoDone {
    /// The command's id.
    pub id: IoId,
    /// Whether all of it was done.
    pub result: Result<(), IoError>,
}
