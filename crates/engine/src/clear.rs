//! TRIM and write-zeroes: blocks that read as zeros from now on, without writing them.

use crate::Engine;
use crate::piece::{Clear, PieceId};
use weir_map::{Found, KeepSpace};
use weir_model::{Op, RequestError};

impl Engine {
    pub(crate) fn start_clear(&mut self, id: PieceId, clear: Clear) {
        let piece = &self.pieces[id.0 as usize];
        let (key, range) = (piece.key, piece.range);
        if self.changes_have_stopped() {
            return self.piece_failed(id, RequestError::ReadOnly);
        }
        let whole = range.count == self.map.extent().blocks();
        if !whole && matches!(self.map.find(key), Found::Direct(_)) && !self.map.has_metadata_room() {
            return self.no_room_for_a_record(id);
        }
        let (placed, holds, kept) = match self.map.find(key) {
            Found::Empty => (false, false, false),
            Found::Direct(_) => (true, !range.is_empty(), false),
            Found::Record(r) => {
                (!r.places.is_empty(), r.places.iter().any(|p| p.valid.contains_any(range)), r.keep)
            }
        };
        let keep = match clear {
            Clear::Zero => KeepSpace::AsIs,
            Clear::Keep => KeepSpace::Yes,
            Clear::GiveUp => KeepSpace::No,
        };
        if clear == Clear::Keep && !placed {
            let Some(whole) = self.allocate(id, key) else { return };
            self.map.place(key, whole);
        }
        let changes = holds
            || match clear {
                Clear::Zero => false,
                Clear::Keep => !kept,
                Clear::GiveUp => kept,
            };
        if changes {
            self.map.cleared(key, range, keep);
            self.locks.tidy_later(key);
            self.note_change();
        }
        self.wait_for_pending(id);
        self.piece_ended(id);
    }

    /// Clearing part of a whole extent takes a record, and the metadata area has no room for more. TRIM
    /// may do nothing; zeros that were promised cannot be had.
    fn no_room_for_a_record(&mut self, id: PieceId) {
        let request = self.pieces[id.0 as usize].request;
        match self.active[request.0].request.op {
            Op::Trim => self.piece_ended(id),
            _ => self.piece_failed(id, RequestError::NoSpace),
        }
    }
}
