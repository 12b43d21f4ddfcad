//! Device commands under way: what each is for, and how far it is.

use crate::ids::{CachedId, MoveId, PieceId};
use weir_map::{Epoch, PLACES_MAX};
use weir_model::{
    Buffer, Bytes, DeviceId, DeviceOffset, Errno, IoError, IoKind, Mutant, Nanos, Planted, RequestError,
};

/// Whose a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// It carries a client's data.
    Client,
    /// The mover's.
    Mover,
    /// Nobody's who waits for it alone.
    Other,
}

/// Devices that could not deliver a block: there are no more places to try than these and one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried([Option<DeviceId>; PLACES_MAX - 1]);

impl Tried {
    /// These, and one more; `None` if that is as many as there can be.
    pub(crate) fn and(mut self, device: DeviceId) -> Option<Self> {
        *self.0.iter_mut().find(|slot| slot.is_none())? = Some(device);
        Some(self)
    }

    pub(crate) fn contains(self, device: DeviceId) -> bool {
        self.0.contains(&Some(device))
    }
}

/// What a device command is for, by its owner: whoever began it finishes it.
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
    /// Verifies that the device still is what its superblock says (`verify.rs`).
    Verify,
    /// A block that may say what is a file system's metadata (`background/survey.rs`).
    Survey,
    /// Measures an idle device: the how manieth time (`background/probe.rs`).
    Probe(u32),
    /// Adds to the curve of a device that nothing else adds to (`policy/harm.rs`).
    CurveProbe,
    /// Nothing any more: whoever waited was told that its device is lost.
    Abandoned,
}

/// What a command of a read is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadIo {
    /// A run of the piece's blocks.
    Run(PieceId),
    /// Several runs, with the holes between them ([`crate::read::gap_read`]).
    Gap(PieceId),
    /// What other places could not deliver.
    Failover(PieceId, Tried),
    /// What lies around the blocks of a read, for the cache.
    Fetch(CachedId),
}

/// What a command of a write is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteIo {
    /// The piece's bytes.
    Data(PieceId),
    /// An old block, for the part of it that the write does not carry.
    Old(PieceId),
    /// An old block that other places could not deliver.
    OldFailover(PieceId, Tried),
}

/// What a command of a move is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MoverIo {
    /// What is copied.
    Read(MoveId),
    /// The copy.
    Write(MoveId),
}

/// What a command to a metadata member is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataIo {
    /// A journal frame.
    Frame,
    /// Pages of a checkpoint.
    Pages,
    /// Makes a checkpoint's pages durable.
    PagesFlush,
    /// The root of a checkpoint.
    Root,
    /// A superblock that says which member was left behind.
    Superblock,
}

impl Purpose {
    /// A client's read, of a run of the piece's blocks.
    pub(crate) const fn run(id: PieceId) -> Self {
        Self::Read(ReadIo::Run(id))
    }

    /// A client's write, of the piece's bytes.
    pub(crate) const fn data(id: PieceId) -> Self {
        Self::Write(WriteIo::Data(id))
    }

    /// The client's piece whose bytes it carries, or those that are needed to write these.
    pub(crate) const fn piece(&self) -> Option<PieceId> {
        match self {
            Self::Read(ReadIo::Run(id) | ReadIo::Gap(id) | ReadIo::Failover(id, _))
            | Self::Write(WriteIo::Data(id) | WriteIo::Old(id) | WriteIo::OldFailover(id, _)) => Some(*id),
            _ => None,
        }
    }

    /// The piece whose bytes it writes.
    pub(crate) const fn written(&self) -> Option<PieceId> {
        match self {
            Self::Write(WriteIo::Data(id)) => Some(*id),
            _ => None,
        }
    }

    /// Whose the command is, as far as devices' time is concerned.
    pub(crate) const fn whose(&self) -> Whose {
        match self {
            Self::Read(_) | Self::Write(_) => Whose::Client,
            Self::Mover(_) => Whose::Mover,
            _ => Whose::Other,
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
    /// What each command had taken of the device's time when it began.
    pub(crate) taken: Nanos,
    /// Commands at the device when it began, itself included.
    pub(crate) depth: u32,
    /// Its number among the flushes and durable writes of its device, if it is one.
    pub(crate) promise: Option<u64>,
    /// How often it has been tried, this time included.
    pub(crate) attempt: u8,
    /// Of a durable write that takes two commands: which of them the device has.
    pub(crate) step: DurableStep,
}

/// How far a device command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DurableStep {
    /// It is one command.
    Whole,
    /// A durable write: the bytes are being written.
    Writing,
    /// A durable write: the bytes are written, and the device is being flushed.
    Flushing,
}

/// A device command to be started.
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
            taken: none,
            depth: 0,
            promise: None,
            attempt: 1,
            step: DurableStep::Whole,
        }
    }

    pub(crate) fn flush(device: DeviceId) -> Self {
        Self { device, kind: IoKind::Flush, at: DeviceOffset(0), buffer: Buffer::EMPTY }
    }
}

impl Flight {
    /// Bytes transferred.
    pub(crate) fn len(&self) -> Bytes {
        Bytes(self.buffer.len.into())
    }

    /// The devices that could not deliver what it was to read, if it has failed; `None` if there can be no
    /// other.
    pub(crate) fn tried(&self) -> Option<Tried> {
        let before = match self.purpose {
            Purpose::Read(ReadIo::Failover(_, tried)) | Purpose::Write(WriteIo::OldFailover(_, tried)) => {
                tried
            }
            _ => Tried::default(),
        };
        before.and(self.device)
    }

    /// What the device has of it.
    #[inline]
    pub(crate) const fn command(&self) -> IoKind {
        match self.step {
            DurableStep::Whole => self.kind,
            DurableStep::Writing => IoKind::Write { fua: false },
            DurableStep::Flushing => IoKind::Flush,
        }
    }

    /// Whether it is to say that something is durable.
    #[inline]
    pub(crate) const fn promises(&self) -> bool {
        matches!(self.kind, IoKind::Flush | IoKind::Write { fua: true })
    }

    /// Whether its failure may report that an earlier write was lost. That of the first step of a durable
    /// write does not.
    pub(crate) const fn fails_promise(&self) -> bool {
        self.promises() && !matches!(self.step, DurableStep::Writing)
    }

    /// What a client is told.
    pub(crate) fn error(&self, error: IoError) -> RequestError {
        let kind = self.command();
        if is_full(kind, error, Planted::NONE) {
            return RequestError::NoSpace;
        }
        RequestError::Io { device: self.device, kind, at: self.at, len: self.len(), error }
    }
}

/// Whether a command did nothing because there is no space below: a plain write to a sparse file on a file
/// system that is full, or to a thin device. A durable write may have met an earlier one's error.
pub(crate) fn is_full(command: IoKind, error: IoError, planted: Planted) -> bool {
    let did_nothing = match command {
        IoKind::Write { fua } => !fua || planted.is(Mutant::FullDurableWriteIgnored),
        IoKind::Read | IoKind::Flush => false,
    };
    did_nothing && matches!(error, IoError::Os(Errno::ENOSPC | Errno::EDQUOT))
}
