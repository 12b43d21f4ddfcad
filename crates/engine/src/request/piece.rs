//! Pieces: the part of a request that falls into one extent; and the device commands under way.

use crate::device::pacing::Whose;
use crate::lookup::Spot;
use crate::mover::MoveId;
use crate::read::cache::CachedId;
use crate::request::active::ActiveId;
use smallvec::SmallVec;
use weir_map::{Epoch, PLACES_MAX};
use weir_model::{
    BLOCK, BlockRange, Buffer, Bytes, DeviceId, DeviceOffset, ExtentKey, IoError, IoKind, Nanos, PlaceId,
    PlaceKind, Planted, RequestError, Span,
};

/// A piece in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PieceId(pub(crate) u32);

/// What a piece does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Fetch the span.
    Read,
    /// Store the span: the client's bytes, or zeros (the part-blocks at the ends of a write-zeroes).
    Write {
        /// The bytes are zeros, and there is nothing to do for blocks that read as zeros anyway.
        zeros: bool,
    },
    /// Make blocks read as zeros without writing.
    Clear(Clear),
}

/// What becomes of the space of cleared blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clear {
    /// An extent that holds nothing any more gives its space back, unless told to keep it.
    Zero,
    /// The extent has its space from now on, whatever it holds.
    Keep,
    /// The extent gives its space back, even if told to keep it before.
    GiveUp,
}

/// Where a write piece goes, once that is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) spot: Spot,
    /// Bytes written, counted from the start of the extent: wider than the span where blocks are
    /// completed.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Some block becomes valid by this write.
    pub(crate) changes: bool,
    /// The extent has other places, which may hold nothing afterwards.
    pub(crate) several: bool,
    /// It goes to as many places as [`crate::write::copies`] has noted.
    pub(crate) mirrored: bool,
}

impl Target {
    /// Bytes from here to there, as they are.
    pub(crate) const fn at(spot: Spot, start: u32, end: u32) -> Self {
        Self { spot, start, end, changes: false, several: false, mirrored: false }
    }

    /// All of a block at one of the ends is written.
    pub(crate) fn widen(&mut self, block: u16) {
        let start = u32::from(block) * BLOCK as u32;
        self.start = self.start.min(start);
        self.end = self.end.max(start + BLOCK as u32);
    }
}

/// Scratch blocks with the old contents of the blocks at a write's ends, and which blocks those are.
pub(crate) type Old = SmallVec<[(Buffer, u16); 2]>;

/// The part of a request that falls into one extent.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) request: ActiveId,
    pub(crate) key: ExtentKey,
    pub(crate) span: Span,
    pub(crate) work: Work,
    /// The blocks touched.
    pub(crate) range: BlockRange,
    /// It takes them in [`crate::request::block_locks`]: what changes anything does, and a read that met a
    /// change.
    pub(crate) takes_blocks: bool,
    /// The policy has been told of it.
    pub(crate) told: bool,
    /// Reads and writes: the touched blocks.
    pub(crate) buffer: Buffer,
    /// Device commands still to end.
    pub(crate) left: u32,
    pub(crate) error: Option<RequestError>,
    /// Reads: some blocks hold data; some are zeros.
    pub(crate) found: (bool, bool),
    /// Writes: where the bytes go.
    pub(crate) target: Option<Target>,
    /// Writes: scratch blocks with the old contents of part-blocks, and which blocks those are. Apart: few
    /// writes complete blocks, and a piece is copied into its table.
    pub(crate) old: Option<Box<Old>>,
}

impl Piece {
    /// A piece that has not begun, about the blocks its span touches.
    #[inline]
    pub(crate) fn new(request: ActiveId, key: ExtentKey, span: Span, work: Work, buffer: Buffer) -> Self {
        Self {
            request,
            key,
            span,
            work,
            range: span.touched(),
            takes_blocks: work != Work::Read,
            told: false,
            buffer,
            left: 0,
            error: None,
            found: (false, false),
            target: None,
            old: None,
        }
    }

    /// The buffer of some of its blocks.
    pub(crate) fn part(&self, blocks: BlockRange) -> Buffer {
        let offset = u32::from(blocks.first - self.range.first) * BLOCK as u32;
        self.buffer.part(offset, u32::from(blocks.count) * BLOCK as u32)
    }

    /// Whether it is a client's read of some of these blocks, with commands under way.
    pub(crate) fn is_reading(&self, key: ExtentKey, range: BlockRange) -> bool {
        let overlaps = self.range.first < range.end() && range.first < self.range.end();
        self.work == Work::Read && self.left > 0 && self.key == key && overlaps
    }
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

/// What a device command is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Bytes of a read piece.
    Read(PieceId),
    /// Bytes of a read piece, with the holes between its runs ([`crate::read::gap_read`]).
    ReadThrough(PieceId),
    /// Bytes of a read piece that other places could not deliver.
    ReadElsewhere(PieceId, Tried),
    /// What lies around the blocks of a read, for the cache.
    Fetch(CachedId),
    /// An old block, for the part of it a write does not carry.
    Merge(PieceId),
    /// An old block that other places could not deliver.
    MergeElsewhere(PieceId, Tried),
    /// The bytes of a write piece.
    Write(PieceId),
    /// What the mover copies.
    MoveRead(MoveId),
    /// Its copy.
    MoveWrite(MoveId),
    /// A block that may say what is metadata.
    Survey,
    /// Measures an idle device: the how manieth time.
    Probe(u32),
    /// Adds to the curve of a device that nothing else adds to.
    CurveProbe,
    /// Verifies that the device still is what its superblock says ([`crate::device::verify`]).
    Verify,
    /// Makes an epoch's data durable.
    DataFlush(Epoch),
    /// A journal frame.
    Frame,
    /// Pages of a checkpoint.
    CheckpointPages,
    /// Makes a checkpoint's pages durable.
    CheckpointFlush,
    /// The root of a checkpoint.
    Root,
    /// A superblock that says which member was left behind.
    Superblock,
    /// Nothing any more: whoever waited was told that its device is lost.
    Abandoned,
}

impl Purpose {
    /// The client's piece whose bytes it carries, or those that are needed to write these.
    pub(crate) const fn piece(&self) -> Option<PieceId> {
        match self {
            Self::Read(id)
            | Self::ReadThrough(id)
            | Self::ReadElsewhere(id, _)
            | Self::Merge(id)
            | Self::MergeElsewhere(id, _)
            | Self::Write(id) => Some(*id),
            _ => None,
        }
    }

    /// Whose the command is, as far as devices' time is concerned.
    pub(crate) const fn whose(&self) -> Whose {
        match self {
            Self::Read(_)
            | Self::ReadThrough(_)
            | Self::ReadElsewhere(..)
            | Self::Fetch(_)
            | Self::Merge(_)
            | Self::MergeElsewhere(..)
            | Self::Write(_) => Whose::Client,
            Self::MoveRead(_) | Self::MoveWrite(_) => Whose::Mover,
            _ => Whose::Other,
        }
    }
}

/// A device command under way.
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
    pub(crate) step: Step,
}

/// How far a device command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
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
            step: Step::Whole,
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
            Purpose::ReadElsewhere(_, tried) | Purpose::MergeElsewhere(_, tried) => tried,
            _ => Tried::default(),
        };
        before.and(self.device)
    }

    /// What the device has of it.
    #[inline]
    pub(crate) const fn command(&self) -> IoKind {
        match self.step {
            Step::Whole => self.kind,
            Step::Writing => IoKind::Write { fua: false },
            Step::Flushing => IoKind::Flush,
        }
    }

    /// Whether it is to say that something is durable.
    #[inline]
    pub(crate) const fn promises(&self) -> bool {
        matches!(self.kind, IoKind::Flush | IoKind::Write { fua: true })
    }

    /// Whether its failure says that something is not: the first step of a durable write says nothing of
    /// others.
    pub(crate) const fn fails_promise(&self) -> bool {
        self.promises() && !matches!(self.step, Step::Writing)
    }

    /// What a client is told.
    pub(crate) fn error(&self, error: IoError) -> RequestError {
        let kind = self.command();
        if crate::io::retry::is_full(kind, error, Planted::NONE) {
            return RequestError::NoSpace;
        }
        RequestError::Io { device: self.device, kind, at: self.at, len: self.len(), error }
    }
}

/// Which of several places that hold a block is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Preferred {
    /// None of them more than another.
    Any,
    /// One on this device.
    On(DeviceId),
    /// A whole place.
    Home,
}

impl Preferred {
    pub(crate) fn is(self, place: PlaceId) -> bool {
        match self {
            Self::Any => false,
            Self::On(device) => place.device == device,
            Self::Home => place.kind == PlaceKind::Whole,
        }
    }
}
