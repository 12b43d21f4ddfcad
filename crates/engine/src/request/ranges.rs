//! TRIM and write-zeroes over many extents: their pieces are made some at a time.

use crate::Base;
use crate::core::Core;
use crate::ids::ActiveId;
use crate::request::Requests;
use crate::request::piece::{Clear, Piece, Work};
use std::collections::VecDeque;
use weir_map::Found;
use weir_model::{BLOCK, BlockRange, Buffer, Bytes, ExtentIndex, ExtentKey, Mutant, Op, Span, VolumeOffset};

/// Pieces a long request makes at a time, and has in flight at most.
const PIECES_AT_A_TIME: u32 = 256;

/// Requests over many extents that still have pieces to make.
#[derive(Debug, Default)]
pub(crate) struct Ranges(VecDeque<ActiveId>);

impl Ranges {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The one whose turn it is.
    pub(crate) fn next(&mut self) -> Option<ActiveId> {
        self.0.pop_front()
    }
}

impl Requests {
    fn clear_pieces(&mut self, core: &Core, id: ActiveId, key: ExtentKey, span: Span) {
        let op = self.active[id.0].request.op;
        let outward = op == Op::Trim && core.is_planted(Mutant::TrimRoundsOutward);
        let covered = if outward { span.touched() } else { span.covered() };
        let piece =
            |work, span: Span, range| Piece { range, ..Piece::new(id, key, span, work, Buffer::EMPTY) };
        let whole = span.start == 0 && u64::from(span.len) >= within(core, key);
        let clear = match op {
            Op::WriteZeroes { no_hole: true } => Clear::Keep,
            Op::WriteZeroes { no_hole: false } => Clear::Zero,
            _ if whole => Clear::GiveUp,
            _ => Clear::Zero,
        };
        if !covered.is_empty() || clear == Clear::Keep {
            self.add_piece(piece(Work::Clear(clear), span, covered));
        }
        if op == Op::Trim {
            return;
        }
        // Part-blocks at the ends are written with zeros.
        let block = BLOCK as u32;
        let edge = |start: u32, end: u32| (end > start).then_some(Span { start, len: end - start });
        let head_end = span.start.next_multiple_of(block).min(span.end());
        let tail_start = (span.end() / block * block).max(head_end);
        for edge in [edge(span.start, head_end), edge(tail_start, span.end())].into_iter().flatten() {
            let range = BlockRange { first: (edge.start / block) as u16, count: 1 };
            self.add_piece(piece(Work::Write { zeros: true }, edge, range));
        }
    }
}

/// How many bytes of an extent are the volume's: of its last one, perhaps not all.
fn within(core: &Core, key: ExtentKey) -> u64 {
    let extent = core.map.extent();
    let size = core.map.volume(key.volume).map_or(u64::MAX, |volume| volume.size.0);
    extent.bytes().0.min(size.saturating_sub(extent.start(key.index).0))
}

impl Base {
    /// Makes pieces of a TRIM or write-zeroes from where it stands: a batch, the rest in the next
    /// [`crate::Engine::tick`].
    pub(crate) fn advance_range(&mut self, id: ActiveId) {
        let request = self.requests.active[id.0].request;
        let end = request.offset + request.len;
        let extent = self.core.map.extent();
        let no_hole = request.op == Op::WriteZeroes { no_hole: true };
        self.requests.active[id.0].left += 1;
        let mut budget = PIECES_AT_A_TIME;
        let mut at = self.requests.active[id.0].next;
        while at.0 < end.0 && budget > 0 {
            budget -= 1;
            let key = ExtentKey { volume: request.volume, index: extent.index(at) };
            // Not past a write that was submitted before and has not taken effect: it would come after this.
            let is_hole =
                matches!(self.core.map.find(key), Found::Empty) && !self.requests.locks.is_taken(key);
            if !no_hole && is_hole {
                self.requests.wait_for_extent(&self.core, id, key);
                self.settle_unmapped(key, at, end);
                at = self.skip_unmapped(key, end);
                continue;
            }
            let start = extent.within(at);
            let len = (extent.bytes().0 - u64::from(start)).min(end.0 - at.0) as u32;
            self.requests.clear_pieces(&self.core, id, key, Span { start, len });
            at = at + Bytes(len.into());
        }
        self.requests.active[id.0].next = at;
        if at.0 < end.0 {
            self.requests.ranges.0.push_back(id);
        } else {
            self.piece_made(id);
        }
    }

    /// Where the next extent begins that may hold anything, or that a change in flight is about to write to.
    /// Cost: the changes in flight.
    fn skip_unmapped(&self, key: ExtentKey, end: VolumeOffset) -> VolumeOffset {
        let taken =
            self.requests.locks.next_taken(key).map_or(end, |index| self.core.map.extent().start(index));
        VolumeOffset(self.next_used(key).0.min(taken.0).min(end.0))
    }

    /// Where the next extent of the volume begins that holds anything or is in doubt; far away without any.
    pub(crate) fn next_used(&self, key: ExtentKey) -> VolumeOffset {
        let after = ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key };
        let used = self.core.map.next_used(key.volume, after.index);
        let next = used.into_iter().chain(self.durability.doubt.next(after)).min();
        next.map_or(VolumeOffset(u64::MAX), |index| self.core.map.extent().start(index))
    }

    /// Doubtful blocks of an extent that holds nothing are zeros from now on, as far as the range goes.
    fn settle_unmapped(&mut self, key: ExtentKey, at: VolumeOffset, end: VolumeOffset) {
        let extent = self.core.map.extent();
        let start = extent.within(at);
        let len = (extent.bytes().0 - u64::from(start)).min(end.0 - at.0) as u32;
        self.durability.doubt.settle(key, Span { start, len }.covered());
    }
}
