//! TRIM and write-zeroes: blocks become zeros in the map, without data being written.

use crate::DataPath;
use crate::ids::PieceId;
use crate::request::piece::{Clear, Work};
use weir_map::{ExtentState, SpaceReservation};
use weir_model::{BLOCK, Memory, Mutant, PlaceKind, RequestError, Span};

impl DataPath {
    /// Clears blocks in the map. It writes to no device, except through `zero_in_place`.
    #[inline(never)]
    pub(crate) fn start_clear<M: Memory>(&mut self, id: PieceId, clear: Clear, memory: &mut M) {
        let piece = &self.base.requests.pieces[id.0 as usize];
        let (key, range) = (piece.key, piece.range);
        if self.base.core.changes_have_stopped() {
            return self.base.piece_failed(id, RequestError::ReadOnly);
        }
        if !self.base.core.is_planted(Mutant::CacheKeepsCleared) {
            self.base.cache.invalidate(key, range);
        }
        self.base.report_access(id, |base| base.places_of_blocks(key, range));
        let whole = range.count == self.base.core.map.extent().blocks();
        let takes_a_record = matches!(self.base.core.map.find(key), ExtentState::Direct(_))
            && (!whole || clear == Clear::Keep);
        if takes_a_record && !self.base.core.map.has_metadata_space() {
            return self.zero_in_place(id, memory);
        }
        let (placed, holds, kept) = match self.base.core.map.find(key) {
            ExtentState::Empty => (false, false, false),
            ExtentState::Direct(_) => (true, !range.is_empty(), false),
            ExtentState::Record(r) => {
                let whole = |p: &weir_map::Place| p.at.id().kind == PlaceKind::Whole;
                (
                    r.places.iter().any(whole),
                    r.places.iter().any(|p| p.valid.contains_any(range)),
                    r.space_reserved,
                )
            }
        };
        let keep = match clear {
            Clear::Zero => SpaceReservation::Unchanged,
            Clear::Keep => SpaceReservation::Reserve,
            Clear::Deallocate => SpaceReservation::Release,
        };
        if clear == Clear::Keep && !placed {
            if !self.base.core.map.may_attach_place(key) {
                return self.base.durability.wait_to_overwrite(&mut self.base.requests, id);
            }
            let Some(whole) = self.base.allocate(id, key) else { return };
            self.base.counts.place(&mut self.base.core, &mut self.base.host, key, whole);
        }
        let changes = holds
            || match clear {
                Clear::Zero => false,
                Clear::Keep => !kept,
                Clear::Deallocate => kept,
            };
        self.base.durability.doubt.settle(key, range);
        if changes {
            if !self.base.core.is_planted(Mutant::ReadNotRepeatedAfterClear) {
                self.base.requests.restart_reads(key, range);
            }
            self.base.core.map.clear_blocks(key, range, keep);
            self.base.requests.locks.request_tidying(key);
            self.base.durability.note_change(&self.base.core);
        }
        if !self.base.core.is_planted(Mutant::ClearNotAwaited) {
            self.base.requests.wait_for_pending(&self.base.core, id);
        }
        self.base.piece_ended(id);
    }

    /// Writes zeros to the blocks, because the metadata area has no space for the record that clearing part
    /// of a whole extent (or keeping its space) needs.
    ///
    /// The space stays allocated. The request to keep it is not recorded; while the metadata area is full, a
    /// TRIM of part of the extent frees nothing either.
    fn zero_in_place<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        if piece.range.is_empty() {
            return self.base.piece_ended(id);
        }
        let block = BLOCK as u32;
        piece.work = Work::Write { zeros: true };
        piece.span =
            Span { start: u32::from(piece.range.first) * block, len: u32::from(piece.range.count) * block };
        self.start_write(id, memory);
    }
}
