//! Pieces: the part of a request that falls into one extent.

use crate::ids::ActiveId;
use crate::lookup::Address;
use crate::request::mirror::MirroredWrite;
use smallvec::{SmallVec, smallvec};
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
    pub(crate) address: Address,
    /// Bytes written, counted from the start of the extent: wider than the span where blocks are
    /// completed.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Some block becomes valid by this write.
    pub(crate) changes: bool,
    /// The extent has other places, which may hold nothing afterwards.
    pub(crate) several: bool,
    /// It goes to several places: its piece has [`Writing::copies`].
    pub(crate) mirrored: bool,
}

/// Where a write piece's first blocks go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) address: Address,
    /// There, too.
    pub(crate) second: Option<Address>,
    /// These blocks of it.
    pub(crate) run: BlockRange,
}

impl Chosen {
    /// To one address.
    pub(crate) const fn one((address, run): (Address, BlockRange)) -> Self {
        Self { address, second: None, run }
    }
}

impl Target {
    /// Bytes from here to there, as they are.
    pub(crate) const fn at(address: Address, start: u32, end: u32) -> Self {
        Self { address, start, end, changes: false, several: false, mirrored: false }
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
    pub(crate) reported: bool,
    /// Reads and writes: the touched blocks.
    pub(crate) buffer: Buffer,
    pub(crate) error: Option<RequestError>,
    pub(crate) state: PieceState,
}

/// How far a piece is, with what only that needs.
#[derive(Debug)]
pub(crate) enum PieceState {
    /// It has no device command in flight.
    Waits(WaitsFor),
    /// Its blocks are being read.
    Reads(Reading),
    /// The old contents of blocks that it writes in part are being read.
    Completes(Writing),
    /// Its bytes are being written.
    Writes(Writing),
}

/// What a piece without a command in flight waits for. Those that wait for the same are in one queue, in the
/// order in which they go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Its turn: it can go on ([`crate::request::ready`]), or has just been made.
    Turn,
    /// Its blocks ([`crate::request::block_locks`]).
    Blocks,
    /// Space on the devices ([`crate::space`]).
    Space,
    /// A scratch block.
    Scratch,
    /// A commit, after which it may write where it wants to.
    Commit,
    /// A mover's write to where it wants to write.
    Mover,
    /// What the extent cache fetches ([`crate::cache`]).
    Fetch,
    /// Buffer memory ([`crate::read::restart`]).
    Memory,
}

/// A piece whose blocks are being read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Device commands still to end.
    pub(crate) left: u32,
    /// Some blocks hold data; some are zeros.
    pub(crate) found: (bool, bool),
    /// What few reads have. Apart: a piece is copied into its table.
    rare: Option<Box<Rare>>,
}

/// What few reads have.
#[derive(Debug, Default)]
struct Rare {
    /// It begins again when its last command has ended, and what it would have failed with, if anything
    /// failed.
    again: Option<Option<RequestError>>,
    /// Runs that are read once the command over them and the holes between them has ended.
    rest: Rest,
}

/// Runs of a piece that are read later.
pub(crate) type Rest = SmallVec<[BlockRange; 4]>;

/// A piece that is being written.
#[derive(Debug)]
pub(crate) struct Writing {
    /// Device commands still to end.
    pub(crate) left: u32,
    /// Where the bytes go.
    pub(crate) target: Target,
    /// Scratch blocks with the old contents of part-blocks, and which blocks those are. Apart: few writes
    /// complete blocks.
    pub(crate) old: Option<Box<Old>>,
    /// Of a write to several places, how each of them is. Apart: few writes are mirrored.
    pub(crate) copies: Option<Box<MirroredWrite>>,
    /// It chooses anew when its last command has ended.
    again: bool,
}

impl Reading {
    /// So many commands have begun, for blocks of which some hold data, or some are zeros.
    #[inline(always)]
    pub(crate) const fn new(left: u32, found: (bool, bool)) -> Self {
        Self { left, found, rare: None }
    }

    /// These runs are read later.
    pub(crate) fn with_rest(self, rest: Rest) -> Self {
        Self { rare: Some(Box::new(Rare { again: None, rest })), ..self }
    }

    /// What is read now that the command over it has ended.
    pub(crate) fn take_rest(&mut self) -> Rest {
        self.rare.as_mut().map(|rare| std::mem::take(&mut rare.rest)).unwrap_or_default()
    }

    /// Whether the piece, whose last command has ended, begins again, and what it would have failed with.
    #[inline(always)]
    pub(crate) fn take_again(&mut self) -> Option<Option<RequestError>> {
        self.rare.take().and_then(|rare| rare.again)
    }
}

impl Writing {
    /// So many commands have begun.
    #[inline(always)]
    pub(crate) const fn new(left: u32, target: Target, old: Option<Box<Old>>) -> Self {
        Self { left, target, old, copies: None, again: false }
    }

    /// It goes to several places, if these are given.
    pub(crate) fn with_copies(self, copies: Option<Box<MirroredWrite>>) -> Self {
        Self { copies, ..self }
    }

    /// The addresses it goes to: of its copies, if it has any.
    pub(crate) fn addresses(&self) -> SmallVec<[Address; 2]> {
        match &self.copies {
            Some(copies) => copies.legs.iter().map(|leg| leg.address).collect(),
            None => smallvec![self.target.address],
        }
    }

    /// Whether the piece, whose last command has ended, chooses anew.
    pub(crate) const fn begins_again(&self) -> bool {
        self.again
    }
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
            reported: false,
            buffer,
            error: None,
            state: PieceState::Waits(WaitsFor::Turn),
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
        matches!(&self.state, PieceState::Reads(reading) if reading.left > 0) && self.key == key && overlaps
    }

    /// What was found of its blocks, if it is a read: some hold data, some are zeros.
    #[inline(always)]
    pub(crate) fn found(&self) -> (bool, bool) {
        match &self.state {
            PieceState::Reads(reading) => reading.found,
            _ => (false, false),
        }
    }

    /// The write it is in the middle of.
    #[inline(always)]
    pub(crate) fn writing(&mut self) -> Option<&mut Writing> {
        match &mut self.state {
            PieceState::Completes(writing) | PieceState::Writes(writing) => Some(writing),
            PieceState::Waits(_) | PieceState::Reads(_) => None,
        }
    }

    /// Where its bytes were to go: it writes nothing any more. Its scratch blocks have been put back.
    pub(crate) fn take_addresses(&mut self) -> SmallVec<[Address; 2]> {
        let Some(writing) = self.writing() else { return SmallVec::new() };
        let addresses = writing.addresses();
        self.state = PieceState::Waits(WaitsFor::Turn);
        addresses
    }

    /// It begins again when its last command has ended: one that would have failed with `error`, or a read in
    /// turn with the changes of its blocks.
    pub(crate) fn begin_again(&mut self, error: Option<RequestError>) {
        match &mut self.state {
            PieceState::Reads(reading) => {
                let before = reading.rare.get_or_insert_default().again.get_or_insert_default();
                *before = before.or(error);
            }
            PieceState::Completes(writing) | PieceState::Writes(writing) => writing.again = true,
            PieceState::Waits(_) => {}
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_begins_again_once_and_with_the_first_error_there_was() {
        let span = Span { start: 0, len: BLOCK as u32 };
        let mut piece = Piece::new(ActiveId(0), ExtentKey::default(), span, Work::Read, Buffer::EMPTY);
        piece.begin_again(None);
        assert!(!piece.is_reading(piece.key, piece.range), "no command of it is in flight");
        piece.state = PieceState::Reads(Reading::new(1, (true, false)));
        assert!(piece.is_reading(piece.key, piece.range));
        let error = |device| Some(RequestError::FlushFailed(DeviceId(device)));
        [None, error(1), error(2), None].into_iter().for_each(|error| piece.begin_again(error));
        let PieceState::Reads(reading) = &mut piece.state else { panic!("{piece:?}") };
        assert_eq!((reading.take_again(), reading.take_again()), (Some(error(1)), None));
    }

    #[test]
    fn a_write_that_gives_up_its_target_waits_for_its_turn() {
        let span = Span { start: 0, len: BLOCK as u32 };
        let work = Work::Write { zeros: false };
        let mut piece = Piece::new(ActiveId(0), ExtentKey::default(), span, work, Buffer::EMPTY);
        assert!(piece.take_addresses().is_empty());
        let whole = weir_map::Whole { device: DeviceId(0), extent: weir_model::DeviceExtent(3) };
        let target = Target::at(Address::Whole(whole), 0, span.len);
        piece.state = PieceState::Completes(Writing::new(1, target, None));
        piece.begin_again(None);
        assert!(piece.writing().is_some_and(|writing| writing.begins_again()));
        assert_eq!(piece.take_addresses()[..], [Address::Whole(whole)]);
        assert!(matches!(piece.state, PieceState::Waits(WaitsFor::Turn)));
    }
}
