//! Pieces: the part of a request that falls into one extent.

use crate::ids::ActiveId;
use crate::lookup::Spot;
use smallvec::SmallVec;
use weir_model::{BLOCK, BlockRange, Buffer, DeviceId, ExtentKey, PlaceId, PlaceKind, RequestError, Span};

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
