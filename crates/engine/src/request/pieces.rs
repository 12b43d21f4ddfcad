//! The life of a piece: created, waiting, continuing, ended.

use crate::Base;
use crate::core::Core;
use crate::ids::{ActiveId, PieceId};
use crate::request::Requests;
use crate::request::piece::{Piece, PieceState, WaitsFor};
use smallvec::SmallVec;
use weir_model::{BlockRange, ExtentKey};

impl Requests {
    /// Creates a piece, which its request waits for.
    #[inline]
    pub(crate) fn insert_piece(&mut self, piece: Piece) -> PieceId {
        self.active[piece.request.0].pieces_left += 1;
        PieceId(self.pieces.insert(piece) as u32)
    }

    /// Creates a piece; one that changes data runs once it has locked its blocks.
    pub(crate) fn add_piece(&mut self, piece: Piece) {
        let (key, range) = (piece.key, piece.range);
        let takes_blocks = piece.locks_blocks;
        let id = self.insert_piece(piece);
        if !takes_blocks || self.locks.lock(key, range, id) {
            self.ready.push(id);
        } else {
            self.wait(id, WaitsFor::Blocks);
        }
    }

    /// Makes the piece, which has no command in flight, wait.
    pub(crate) fn wait(&mut self, id: PieceId, wait_reason: WaitsFor) {
        self.pieces[id.0 as usize].state = PieceState::Waiting(wait_reason);
    }

    /// Queues the piece as ready: its wait is over, or it restarts.
    pub(crate) fn make_ready(&mut self, id: PieceId) {
        self.wait(id, WaitsFor::Turn);
        self.ready.push(id);
    }

    /// Delays the request's answer until a commit, if pending changes of the extent must be durable by then.
    #[inline]
    pub(crate) fn wait_for_extent(&mut self, core: &Core, request: ActiveId, key: ExtentKey) {
        let asked = &self.active[request.0].request;
        let is_durable = || core.needs_durable_map(asked.volume, asked.fua);
        if core.map.pending_extents() > 0 && is_durable() && core.map.has_pending(key) {
            self.active[request.0].needs_commit = true;
        }
    }

    /// Makes the request wait for a commit if it must be durable when acknowledged, and if the state that the
    /// piece found or changed in the map is not durable yet.
    #[inline]
    pub(crate) fn wait_for_pending(&mut self, core: &Core, id: PieceId) {
        let piece = &self.pieces[id.0 as usize];
        let (key, request) = (piece.key, piece.request);
        self.wait_for_extent(core, request, key);
    }

    /// Makes a read that met a write, or a clearing of its blocks, lock them like a write: it follows the
    /// pieces that wait now, and precedes all later ones.
    pub(crate) fn lock_read(&mut self, id: PieceId) {
        let piece = &mut self.pieces[id.0 as usize];
        let (key, range) = (piece.key, piece.range);
        let has_them = std::mem::replace(&mut piece.locks_blocks, true);
        if has_them || self.locks.lock(key, range, id) {
            self.make_ready(id);
        } else {
            self.wait(id, WaitsFor::Blocks);
        }
    }

    /// Restarts the reads in flight of blocks that are cleared, or that no copy took. Cost: linear in the
    /// pieces in flight.
    pub(crate) fn restart_reads(&mut self, key: ExtentKey, range: BlockRange) {
        for (_, piece) in self.pieces.iter_mut().filter(|(_, piece)| piece.is_reading(key, range)) {
            piece.restart(None);
        }
    }
}

impl Base {
    /// Ends a piece: unlocks its blocks and updates its request.
    pub(crate) fn piece_ended(&mut self, id: PieceId) {
        // Only the fields needed are copied out of the table, because a piece is large.
        let piece = &self.requests.pieces[id.0 as usize];
        let (request, found) = (piece.request, piece.found());
        let taken = piece.locks_blocks.then_some((piece.key, piece.range));
        if piece.error.is_some() {
            let active = &mut self.requests.active[request.0];
            active.error = active.error.or(piece.error);
        }
        self.requests.pieces.remove(id.0 as usize);
        if let Some((key, range)) = taken {
            self.unlock_blocks(key, range);
        }
        let active = &mut self.requests.active[request.0];
        active.found.0 |= found.0;
        active.found.1 |= found.1;
        active.pieces_left -= 1;
        if active.pieces_left == 0 {
            self.request_ended(request);
        }
    }

    fn unlock_blocks(&mut self, key: ExtentKey, range: BlockRange) {
        let mut granted = SmallVec::new();
        if self.requests.locks.release(key, range, &mut granted) {
            self.core.map.release_empty_places(key);
            self.durability.note_change(&self.core);
            if self.space.state.has_waiters() && self.core.map.pending_release_count() > 0 {
                self.durability.request_commit();
            }
        }
        if !granted.is_empty() {
            granted.into_iter().for_each(|id| self.requests.make_ready(id));
        }
    }
}
