//! TRIM and write-zeroes: blocks that read as zeros from now on, without writing them.

use crate::Engine;
use crate::piece::{Clear, PieceId};
use weir_map::{Found, KeepSpace};
use weir_model::{IoError, RequestError};

impl Engine {
    pub(crate) fn start_clear(&mut self, id: PieceId, clear: Clear) {
        let piece = &self.pieces[id.0 as usize];
        let (key, range) = (piece.key, piece.range);
        if self.changes_have_stopped() {
            return self.piece_failed(id, RequestError::ReadOnly);
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

    /// A command of the engine's own failed beyond repair: the map can no longer be made durable.
    pub(crate) fn metadata_failed(&mut self, _: IoError) {
        self.stopped_changes = Some(crate::StoppedChanges::MetadataFailed);
        self.commits.metadata_failed = true;
        self.fail_commit_waiters(RequestError::ReadOnly);
        self.retry_waiting_space();
    }
}
