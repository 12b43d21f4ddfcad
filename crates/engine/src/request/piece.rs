//! Pieces: a piece is the part of a request within one extent.

use crate::ids::ActiveId;
use crate::lookup::Address;
use crate::request::mirror::MirroredWrite;
use smallvec::{SmallVec, smallvec};
use weir_model::{BLOCK, BlockRange, Buffer, DeviceId, ExtentKey, PlaceId, PlaceKind, RequestError, Span};

/// The operation of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Read the span.
    Read,
    /// Write the span: the client's bytes, or zeros (the part-blocks at the ends of a write-zeroes).
    Write {
        /// Whether the bytes are zeros; blocks that read as zeros anyway are then skipped.
        zeros: bool,
    },
    /// Make blocks read as zeros without writing.
    Clear(Clear),
}

/// The fate of the space of cleared blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clear {
    /// An extent without valid blocks frees its space, unless an earlier `Keep` reserves it.
    Zero,
    /// The extent keeps its space from now on, even without valid blocks.
    Keep,
    /// The extent frees its space, even if an earlier `Keep` reserved it.
    Deallocate,
}

/// The target of a write piece, once it is selected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
    /// The bytes written, as offsets in the extent: wider than the span where whole blocks are written.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Whether some block becomes valid by this write.
    pub(crate) makes_valid: bool,
    /// Whether the extent has other places, which may be left without valid blocks.
    pub(crate) has_other_places: bool,
    /// Whether it goes to several places: its piece then has [`Writing::copies`].
    pub(crate) mirrored: bool,
}

/// The target of a write piece's first blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetRun {
    pub(crate) address: Address,
    /// The second address, if the blocks are written to two.
    pub(crate) second: Option<Address>,
    /// The blocks of the piece that go there.
    pub(crate) run: BlockRange,
}

impl TargetRun {
    /// Returns a choice of one address.
    pub(crate) const fn single((address, run): (Address, BlockRange)) -> Self {
        Self { address, second: None, run }
    }
}

impl Target {
    /// Returns a target of these bytes, with all flags off.
    pub(crate) const fn at(address: Address, start: u32, end: u32) -> Self {
        Self { address, start, end, makes_valid: false, has_other_places: false, mirrored: false }
    }

    /// Widens the target to all of this block.
    pub(crate) fn widen(&mut self, block: u16) {
        let start = u32::from(block) * BLOCK as u32;
        self.start = self.start.min(start);
        self.end = self.end.max(start + BLOCK as u32);
    }
}

/// Scratch blocks with the old contents of the blocks at a write's ends, each with its block index.
pub(crate) type OldBlocks = SmallVec<[(Buffer, u16); 2]>;

/// The part of a request within one extent.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) request: ActiveId,
    pub(crate) key: ExtentKey,
    pub(crate) span: Span,
    pub(crate) work: Work,
    /// The blocks touched.
    pub(crate) range: BlockRange,
    /// Whether the piece locks its blocks ([`crate::request::block_locks`]): every change does, and a read
    /// that met a change.
    pub(crate) locks_blocks: bool,
    /// Whether the access was reported to the policy.
    pub(crate) reported: bool,
    /// For reads and writes: the buffer of the touched blocks.
    pub(crate) buffer: Buffer,
    pub(crate) error: Option<RequestError>,
    pub(crate) state: PieceState,
}

/// The state of a piece, with the data of that state.
#[derive(Debug)]
pub(crate) enum PieceState {
    /// The piece has no device command in flight.
    Waiting(WaitsFor),
    /// The piece's blocks are being read.
    Reading(Reading),
    /// Old blocks of a read-modify-write are being read.
    ReadingOld(Writing),
    /// The piece's bytes are being written.
    Writing(Writing),
}

/// The thing that a piece without a command in flight waits for. Pieces that wait for the same thing are in
/// one queue, in the order in which they continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Its turn: it can continue ([`crate::request::ready`]), or was just created.
    Turn,
    /// Its block locks ([`crate::request::block_locks`]).
    Blocks,
    /// Space on the devices ([`crate::space`]).
    Space,
    /// A scratch block.
    Scratch,
    /// A commit, after which it may overwrite its blocks.
    Commit,
    /// A mover's write to the blocks that it wants to write.
    Mover,
    /// A fetch of the extent cache ([`crate::cache`]).
    Fetch,
    /// Buffer memory ([`crate::read::restart`]).
    Memory,
}

/// A piece whose blocks are being read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The number of device commands in flight.
    pub(crate) in_flight: u32,
    /// Whether some blocks have data, and whether some are zeros.
    pub(crate) found: (bool, bool),
    /// The fields that few reads need, boxed because a piece is copied into its table.
    extras: Option<Box<ReadExtras>>,
}

/// The fields that few reads need.
#[derive(Debug, Default)]
struct ReadExtras {
    /// Set if the piece restarts when its last command has ended; it contains the error that it would have
    /// failed with, if any.
    restart_error: Option<Option<RequestError>>,
    /// Runs to read once a gap read has ended.
    rest: DeferredRuns,
}

/// Runs of a piece that are read later.
pub(crate) type DeferredRuns = SmallVec<[BlockRange; 4]>;

/// A piece that is being written.
#[derive(Debug)]
pub(crate) struct Writing {
    /// The number of device commands in flight.
    pub(crate) in_flight: u32,
    /// The target.
    pub(crate) target: Target,
    /// Scratch blocks with the old contents of part-blocks, boxed because few writes need them.
    pub(crate) old: Option<Box<OldBlocks>>,
    /// For a write to several places: the state of each, boxed because few writes are mirrored.
    pub(crate) copies: Option<Box<MirroredWrite>>,
    /// Whether the piece selects its target again when its last command has ended.
    must_restart: bool,
}

impl Reading {
    /// Returns the state after `left` commands have begun.
    #[inline(always)]
    pub(crate) const fn new(in_flight: u32, found: (bool, bool)) -> Self {
        Self { in_flight, found, extras: None }
    }

    /// Adds the runs to read later.
    pub(crate) fn with_rest(self, rest: DeferredRuns) -> Self {
        Self { extras: Some(Box::new(ReadExtras { restart_error: None, rest })), ..self }
    }

    /// Takes the runs to read now that the gap read has ended.
    pub(crate) fn take_rest(&mut self) -> DeferredRuns {
        self.extras.as_mut().map(|rare| std::mem::take(&mut rare.rest)).unwrap_or_default()
    }

    /// Returns whether the piece, whose last command has ended, restarts, and the error that it would have
    /// failed with.
    #[inline(always)]
    pub(crate) fn take_restart(&mut self) -> Option<Option<RequestError>> {
        self.extras.take().and_then(|rare| rare.restart_error)
    }
}

impl Writing {
    /// Returns the state after `left` commands have begun.
    #[inline(always)]
    pub(crate) const fn new(in_flight: u32, target: Target, old: Option<Box<OldBlocks>>) -> Self {
        Self { in_flight, target, old, copies: None, must_restart: false }
    }

    /// Adds the state of a write to several places, if given.
    pub(crate) fn with_copies(self, copies: Option<Box<MirroredWrite>>) -> Self {
        Self { copies, ..self }
    }

    /// Returns the addresses written to: those of its copies, if it has any.
    pub(crate) fn addresses(&self) -> SmallVec<[Address; 2]> {
        match &self.copies {
            Some(copies) => copies.legs.iter().map(|leg| leg.address).collect(),
            None => smallvec![self.target.address],
        }
    }

    /// Whether the piece, whose last command has ended, selects its target again.
    pub(crate) const fn must_restart(&self) -> bool {
        self.must_restart
    }
}

impl Piece {
    /// Creates a piece of the blocks that its span touches.
    #[inline]
    pub(crate) fn new(request: ActiveId, key: ExtentKey, span: Span, work: Work, buffer: Buffer) -> Self {
        Self {
            request,
            key,
            span,
            work,
            range: span.touched(),
            locks_blocks: work != Work::Read,
            reported: false,
            buffer,
            error: None,
            state: PieceState::Waiting(WaitsFor::Turn),
        }
    }

    /// Returns the buffer of some of its blocks.
    pub(crate) fn part(&self, blocks: BlockRange) -> Buffer {
        let offset = u32::from(blocks.first - self.range.first) * BLOCK as u32;
        self.buffer.part(offset, u32::from(blocks.count) * BLOCK as u32)
    }

    /// Whether it is a client's read of some of these blocks with commands in flight.
    pub(crate) fn is_reading(&self, key: ExtentKey, range: BlockRange) -> bool {
        let overlaps = self.range.first < range.end() && range.first < self.range.end();
        matches!(&self.state, PieceState::Reading(reading) if reading.in_flight > 0)
            && self.key == key
            && overlaps
    }

    /// For a read: whether some blocks have data, and whether some are zeros.
    #[inline(always)]
    pub(crate) fn found(&self) -> (bool, bool) {
        match &self.state {
            PieceState::Reading(reading) => reading.found,
            _ => (false, false),
        }
    }

    /// Returns the state of the write in progress.
    #[inline(always)]
    pub(crate) fn writing(&mut self) -> Option<&mut Writing> {
        match &mut self.state {
            PieceState::ReadingOld(writing) | PieceState::Writing(writing) => Some(writing),
            PieceState::Waiting(_) | PieceState::Reading(_) => None,
        }
    }

    /// Takes the addresses of a write that has been stopped. Its scratch blocks must have been returned.
    pub(crate) fn take_addresses(&mut self) -> SmallVec<[Address; 2]> {
        let Some(writing) = self.writing() else { return SmallVec::new() };
        let addresses = writing.addresses();
        self.state = PieceState::Waiting(WaitsFor::Turn);
        addresses
    }

    /// Makes the piece restart when its last command has ended: one that would have failed with `error`, or a
    /// read that must lock its blocks.
    pub(crate) fn restart(&mut self, error: Option<RequestError>) {
        match &mut self.state {
            PieceState::Reading(reading) => {
                let before = reading.extras.get_or_insert_default().restart_error.get_or_insert_default();
                *before = before.or(error);
            }
            PieceState::ReadingOld(writing) | PieceState::Writing(writing) => writing.must_restart = true,
            PieceState::Waiting(_) => {}
        }
    }
}

/// The preferred one of several places that are valid for a block to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlacePreference {
    /// No preference.
    Any,
    /// The place on this device.
    On(DeviceId),
    /// A whole place.
    Home,
}

impl PlacePreference {
    pub(crate) fn matches(self, place: PlaceId) -> bool {
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
    fn read_restarts_once_with_the_first_error() {
        let span = Span { start: 0, len: BLOCK as u32 };
        let mut piece = Piece::new(ActiveId(0), ExtentKey::default(), span, Work::Read, Buffer::EMPTY);
        piece.restart(None);
        assert!(!piece.is_reading(piece.key, piece.range), "no command of it is in flight");
        piece.state = PieceState::Reading(Reading::new(1, (true, false)));
        assert!(piece.is_reading(piece.key, piece.range));
        let error = |device| Some(RequestError::FlushFailed(DeviceId(device)));
        [None, error(1), error(2), None].into_iter().for_each(|error| piece.restart(error));
        let PieceState::Reading(reading) = &mut piece.state else { panic!("{piece:?}") };
        assert_eq!((reading.take_restart(), reading.take_restart()), (Some(error(1)), None));
    }

    #[test]
    fn write_without_target_waits_for_its_turn() {
        let span = Span { start: 0, len: BLOCK as u32 };
        let work = Work::Write { zeros: false };
        let mut piece = Piece::new(ActiveId(0), ExtentKey::default(), span, work, Buffer::EMPTY);
        assert!(piece.take_addresses().is_empty());
        let whole = weir_map::Whole { device: DeviceId(0), extent: weir_model::DeviceExtent(3) };
        let target = Target::at(Address::Whole(whole), 0, span.len);
        piece.state = PieceState::ReadingOld(Writing::new(1, target, None));
        piece.restart(None);
        assert!(piece.writing().is_some_and(|writing| writing.must_restart()));
        assert_eq!(piece.take_addresses()[..], [Address::Whole(whole)]);
        assert!(matches!(piece.state, PieceState::Waiting(WaitsFor::Turn)));
    }
}
