//! Device commands in flight: the purpose and progress of each.

use crate::ids::{CachedId, MoveId, PieceId};
use weir_map::{Epoch, PLACES_MAX};
use weir_model::{
    Buffer, Bytes, DeviceId, DeviceOffset, Errno, IoError, IoKind, Mutant, Nanos, Planted, RequestError,
};

/// The party that a device command serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The command carries a client's data.
    Client,
    /// The command belongs to the mover.
    Mover,
    /// Nobody waits for this command alone.
    Other,
}

/// The devices that failed to deliver a block. A block has at most one more place than these.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FailedDevices([Option<DeviceId>; PLACES_MAX - 1]);

impl FailedDevices {
    /// Returns this set with one more device, or `None` if the set is full.
    pub(crate) fn with(mut self, device: DeviceId) -> Option<Self> {
        *self.0.iter_mut().find(|slot| slot.is_none())? = Some(device);
        Some(self)
    }

    pub(crate) fn contains(self, device: DeviceId) -> bool {
        self.0.contains(&Some(device))
    }
}

/// The purpose of a device command, grouped by the module that issued it and handles its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// A client's read (`read/`).
    Read(ReadIo),
    /// A client's write (`write/`).
    Write(WriteIo),
    /// A move (`mover/`).
    Mover(MoverIo),
    /// Metadata, on each of its members (`durability/`).
    Metadata(MetadataIo),
    /// Makes an epoch's data durable (`durability/commit.rs`).
    DataFlush(Epoch),
    /// Verifies that the device still matches its superblock (`verify.rs`).
    Verify,
    /// Reads a block that may describe a file system's metadata (`background/survey.rs`).
    Survey,
    /// Measures an idle device; the number counts the probes (`background/probe.rs`).
    Probe(u32),
    /// Adds a point to the latency curve of a device that has no other load (`policy/harm.rs`).
    CurveProbe,
    /// Nobody waits for the result any more: it was answered when the device was lost.
    Abandoned,
}

/// The purpose of a read's device command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadIo {
    /// Reads a run of the piece's blocks.
    Run(PieceId),
    /// Reads several runs together with the holes between them ([`crate::read::gap_read`]).
    Gap(PieceId),
    /// Reads blocks that other places failed to deliver.
    Failover(PieceId, FailedDevices),
    /// Reads the blocks around a read, for the cache.
    Fetch(CachedId),
}

/// The purpose of a write's device command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteIo {
    /// Writes the piece's bytes.
    Data(PieceId),
    /// Reads an old block whose remaining part the write does not carry.
    ReadOld(PieceId),
    /// Reads an old block that other places failed to deliver.
    ReadOldFailover(PieceId, FailedDevices),
}

/// The purpose of a move's device command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MoverIo {
    /// Reads the source.
    Read(MoveId),
    /// Writes the destination.
    Write(MoveId),
}

/// The purpose of a command to a metadata member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataIo {
    /// Writes a journal frame.
    Frame,
    /// Writes pages of a checkpoint.
    Pages,
    /// Makes a checkpoint's pages durable.
    PagesFlush,
    /// Writes the root of a checkpoint.
    Root,
    /// Writes a superblock that records which member was left behind.
    Superblock,
}

impl Purpose {
    /// Returns the purpose of a client's read of a run of the piece's blocks.
    pub(crate) const fn run(id: PieceId) -> Self {
        Self::Read(ReadIo::Run(id))
    }

    /// Returns the purpose of a client's write of the piece's bytes.
    pub(crate) const fn data(id: PieceId) -> Self {
        Self::Write(WriteIo::Data(id))
    }

    /// Returns the client's piece that this command serves, directly or by reading old blocks for it.
    pub(crate) const fn piece(&self) -> Option<PieceId> {
        match self {
            Self::Read(ReadIo::Run(id) | ReadIo::Gap(id) | ReadIo::Failover(id, _))
            | Self::Write(WriteIo::Data(id) | WriteIo::ReadOld(id) | WriteIo::ReadOldFailover(id, _)) => {
                Some(*id)
            }
            _ => None,
        }
    }

    /// Returns the piece whose bytes this command writes.
    pub(crate) const fn written(&self) -> Option<PieceId> {
        match self {
            Self::Write(WriteIo::Data(id)) => Some(*id),
            _ => None,
        }
    }

    /// Returns the party to which the command's device time is charged.
    pub(crate) const fn origin(&self) -> Origin {
        match self {
            Self::Read(_) | Self::Write(_) => Origin::Client,
            Self::Mover(_) => Origin::Mover,
            _ => Origin::Other,
        }
    }
}

/// A device command in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) purpose: Purpose,
    pub(crate) device: DeviceId,
    pub(crate) kind: IoKind,
    pub(crate) at: DeviceOffset,
    pub(crate) buffer: Buffer,
    pub(crate) started: Nanos,
    pub(crate) generation: u64,
    /// The busy time that each class of commands had used on the device when this command began.
    pub(crate) busy_at_start: Nanos,
    /// Commands at the device when this one began, itself included.
    pub(crate) depth: u32,
    /// The sequence number among the device's flushes and durable writes, if this is one.
    pub(crate) durability_number: Option<u64>,
    /// The number of attempts, this one included.
    pub(crate) attempt: u8,
    /// The current step of a durable write that takes two commands.
    pub(crate) step: DurableStep,
}

/// The step of a device command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DurableStep {
    /// The command is sent as a single device command.
    Whole,
    /// The bytes of a durable write are being written.
    Writing,
    /// The bytes of a durable write are written, and the device is being flushed.
    Flushing,
}

/// A device command to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewIo {
    pub(crate) device: DeviceId,
    pub(crate) kind: IoKind,
    pub(crate) at: DeviceOffset,
    pub(crate) buffer: Buffer,
}

impl NewIo {
    pub(crate) fn flight(self, purpose: Purpose) -> Flight {
        let Self { device, kind, at, buffer } = self;
        let none = Nanos(0);
        Flight {
            purpose,
            device,
            kind,
            at,
            buffer,
            started: none,
            generation: 0,
            busy_at_start: none,
            depth: 0,
            durability_number: None,
            attempt: 1,
            step: DurableStep::Whole,
        }
    }

    pub(crate) fn flush(device: DeviceId) -> Self {
        Self { device, kind: IoKind::Flush, at: DeviceOffset(0), buffer: Buffer::EMPTY }
    }
}

impl Flight {
    /// Returns the bytes transferred.
    pub(crate) fn len(&self) -> Bytes {
        Bytes(self.buffer.len.into())
    }

    /// Returns the devices that failed to deliver this read, given that it failed; `None` if no other place
    /// can exist.
    pub(crate) fn failed_devices(&self) -> Option<FailedDevices> {
        let before = match self.purpose {
            Purpose::Read(ReadIo::Failover(_, tried))
            | Purpose::Write(WriteIo::ReadOldFailover(_, tried)) => tried,
            _ => FailedDevices::default(),
        };
        before.with(self.device)
    }

    /// Returns the command that the device is executing.
    #[inline]
    pub(crate) const fn command(&self) -> IoKind {
        match self.step {
            DurableStep::Whole => self.kind,
            DurableStep::Writing => IoKind::Write { fua: false },
            DurableStep::Flushing => IoKind::Flush,
        }
    }

    /// Whether success of the command means that data is durable.
    #[inline]
    pub(crate) const fn is_durability_command(&self) -> bool {
        matches!(self.kind, IoKind::Flush | IoKind::Write { fua: true })
    }

    /// Whether a failure may report that an earlier write was lost. The first step of a durable write cannot
    /// report that.
    pub(crate) const fn may_fail_durability(&self) -> bool {
        self.is_durability_command() && !matches!(self.step, DurableStep::Writing)
    }

    /// Converts a device error to the error for the client.
    pub(crate) fn error(&self, error: IoError) -> RequestError {
        let kind = self.command();
        if is_out_of_space(kind, error, Planted::NONE) {
            return RequestError::NoSpace;
        }
        RequestError::Io { device: self.device, kind, at: self.at, len: self.len(), error }
    }
}

/// Whether the command did nothing because the storage below has no space: a plain write to a sparse file on
/// a full file system, or to a thin device. A durable write may instead report an earlier write's error.
pub(crate) fn is_out_of_space(command: IoKind, error: IoError, planted: Planted) -> bool {
    let did_nothing = match command {
        IoKind::Write { fua } => !fua || planted.is(Mutant::FullDurableWriteIgnored),
        IoKind::Read | IoKind::Flush => false,
    };
    did_nothing && matches!(error, IoError::Os(Errno::ENOSPC | Errno::EDQUOT))
}
