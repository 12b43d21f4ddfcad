//! TRIM and write-zeroes over many extents: their pieces are made in batches.

use crate::Base;
use crate::core::Core;
use crate::ids::ActiveId;
use crate::request::Requests;
use crate::request::piece::{Clear, Piece, Work};
use std::collections::VecDeque;
use weir_map::ExtentState;
use weir_model::{BLOCK, BlockRange, Buffer, Bytes, ExtentIndex, ExtentKey, Mutant, Op, Span, VolumeOffset};

/// The maximum number of pieces that a long request makes at a time and has in flight.
const PIECES_MAX: u32 = 256;

/// Requests over many extents that still have pieces to make.
#[derive(Debug, Default)]
pub(crate) struct Ranges(VecDeque<ActiveId>);

impl Ranges {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns their number.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the request whose turn it is.
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
        let whole = span.start == 0 && u64::from(span.len) >= extent_len(core, key);
        let clear = match op {
            Op::WriteZeroes { no_hole: true } => Clear::Keep,
            Op::WriteZeroes { no_hole: false } => Clear::Zero,
            _ if whole => Clear::Deallocate,
            _ => Clear::Zero,
        };
        if !covered.is_empty() || clear == Clear::Keep {
            self.add_piece(piece(Work::Clear(clear), span, covered));
        }
        if op == Op::Trim {
            return;
        }
        // Part-blocks at the ends are overwritten with zeros.
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

/// Returns how many bytes of an extent belong to the volume: all, except perhaps in its last extent.
fn extent_len(core: &Core, key: ExtentKey) -> u64 {
    let extent = core.map.extent();
    let size = core.map.volume(key.volume).map_or(u64::MAX, |volume| volume.size.0);
    extent.bytes().0.min(size.saturating_sub(extent.start(key.index).0))
}

impl Base {
    /// Makes the next batch of pieces of a TRIM or write-zeroes; the next [`crate::Engine::tick`] makes more.
    pub(crate) fn advance_range(&mut self, id: ActiveId) {
        let request = self.requests.active[id.0].request;
        let end = request.offset + request.len;
        let extent = self.core.map.extent();
        let no_hole = request.op == Op::WriteZeroes { no_hole: true };
        self.requests.active[id.0].pieces_left += 1;
        let mut budget = PIECES_MAX;
        let mut at = self.requests.active[id.0].next_offset;
        while at.0 < end.0 && budget > 0 {
            budget -= 1;
            let key = ExtentKey { volume: request.volume, index: extent.index(at) };
            // A write submitted before that has not taken effect is not skipped: it would take effect after
            // this request.
            let is_hole =
                matches!(self.core.map.find(key), ExtentState::Empty) && !self.requests.locks.is_in_use(key);
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
        self.requests.active[id.0].next_offset = at;
        if at.0 < end.0 {
            self.requests.ranges.0.push_back(id);
        } else {
            self.pieces_complete(id);
        }
    }

    /// Returns the start of the next extent that may have data, or that a change in flight is about to write
    /// to. Cost: linear in the changes in flight.
    fn skip_unmapped(&self, key: ExtentKey, end: VolumeOffset) -> VolumeOffset {
        let taken =
            self.requests.locks.next_in_use(key).map_or(end, |index| self.core.map.extent().start(index));
        VolumeOffset(self.next_used(key).0.min(taken.0).min(end.0))
    }

    /// Returns the start of the volume's next extent that has data or is in doubt; a very large offset if
    /// there is none.
    pub(crate) fn next_used(&self, key: ExtentKey) -> VolumeOffset {
        let after = ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key };
        let used = self.core.map.next_used(key.volume, after.index);
        let next = used.into_iter().chain(self.durability.doubt.next(after)).min();
        next.map_or(VolumeOffset(u64::MAX), |index| self.core.map.extent().start(index))
    }

    /// Settles the blocks in doubt of an unmapped extent as zeros, within the range.
    fn settle_unmapped(&mut self, key: ExtentKey, at: VolumeOffset, end: VolumeOffset) {
        let extent = self.core.map.extent();
        let start = extent.within(at);
        let len = (extent.bytes().0 - u64::from(start)).min(end.0 - at.0) as u32;
        self.durability.doubt.settle(key, Span { start, len }.covered());
    }
}
