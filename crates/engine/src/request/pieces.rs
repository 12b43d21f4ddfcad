//! Pieces made, waiting, going on and ended.

use crate::Base;
use crate::core::Core;
use crate::ids::{ActiveId, PieceId};
use crate::request::Requests;
use crate::request::piece::{Piece, PieceState, WaitsFor};
use smallvec::SmallVec;
use weir_model::{BlockRange, ExtentKey};

impl Requests {
    /// Makes a piece, which its request waits for.
    #[inline]
    pub(crate) fn insert_piece(&mut self, piece: Piece) -> PieceId {
        self.active[piece.request.0].left += 1;
        PieceId(self.pieces.insert(piece) as u32)
    }

    /// Makes a piece; a changing one runs once it has its blocks.
    pub(crate) fn add_piece(&mut self, piece: Piece) {
        let (key, range) = (piece.key, piece.range);
        let takes_blocks = piece.takes_blocks;
        let id = self.insert_piece(piece);
        if !takes_blocks || self.locks.take(key, range, id) {
            self.ready.push(id);
        } else {
            self.wait(id, WaitsFor::Blocks);
        }
    }

    /// The piece, which has no command in flight, waits.
    pub(crate) fn wait(&mut self, id: PieceId, what: WaitsFor) {
        self.pieces[id.0 as usize].state = PieceState::Waits(what);
    }

    /// The piece got what it waited for, or begins again.
    pub(crate) fn go_on(&mut self, id: PieceId) {
        self.wait(id, WaitsFor::Turn);
        self.ready.push(id);
    }

    /// Has the request answered after a commit, if changes of the extent must be durable by then.
    #[inline]
    pub(crate) fn wait_for_extent(&mut self, core: &Core, request: ActiveId, key: ExtentKey) {
        let asked = &self.active[request.0].request;
        let is_durable = || core.map_is_durable_when_acknowledged(asked.volume, asked.fua);
        if core.map.pending() > 0 && is_durable() && core.map.has_pending(key) {
            self.active[request.0].commit = true;
        }
    }

    /// If what the map says must be durable when the request is acknowledged, and what it found or did
    /// in the extent is not, it waits for a commit.
    #[inline]
    pub(crate) fn wait_for_pending(&mut self, core: &Core, id: PieceId) {
        let piece = &self.pieces[id.0 as usize];
        let (key, request) = (piece.key, piece.request);
        self.wait_for_extent(core, request, key);
    }

    /// A read that met a write, or a clearing of what it was reading, takes its blocks, as a write would: it
    /// has its turn after those that are waiting now, and before all that come later.
    pub(crate) fn read_in_turn(&mut self, id: PieceId) {
        let piece = &mut self.pieces[id.0 as usize];
        let (key, range) = (piece.key, piece.range);
        let has_them = std::mem::replace(&mut piece.takes_blocks, true);
        if has_them || self.locks.take(key, range, id) {
            self.go_on(id);
        } else {
            self.wait(id, WaitsFor::Blocks);
        }
    }

    /// Blocks are cleared: reads of them that are under way begin again. Cost: a look at each piece under
    /// way.
    pub(crate) fn reread_cleared(&mut self, key: ExtentKey, range: BlockRange) {
        for (_, piece) in self.pieces.iter_mut().filter(|(_, piece)| piece.is_reading(key, range)) {
            piece.begin_again(None);
        }
    }
}

impl Base {
    /// The piece is done: gives its blocks back and tells its request.
    pub(crate) fn piece_ended(&mut self, id: PieceId) {
        // Only what is needed is copied out of the table: a piece is large.
        let piece = &self.requests.pieces[id.0 as usize];
        let (request, found) = (piece.request, piece.found());
        let taken = piece.takes_blocks.then_some((piece.key, piece.range));
        if piece.error.is_some() {
            let active = &mut self.requests.active[request.0];
            active.error = active.error.or(piece.error);
        }
        self.requests.pieces.remove(id.0 as usize);
        if let Some((key, range)) = taken {
            self.give_back_blocks(key, range);
        }
        let active = &mut self.requests.active[request.0];
        active.found.0 |= found.0;
        active.found.1 |= found.1;
        active.left -= 1;
        if active.left == 0 {
            self.request_ended(request);
        }
    }

    fn give_back_blocks(&mut self, key: ExtentKey, range: BlockRange) {
        let mut granted = SmallVec::new();
        if self.requests.locks.release(key, range, &mut granted) {
            self.core.map.give_back(key);
            self.durability.note_change(&self.core);
            if self.space.state.is_waited_for() && self.core.map.releasing() > 0 {
                self.durability.request_commit();
            }
        }
        if !granted.is_empty() {
            granted.into_iter().for_each(|id| self.requests.go_on(id));
        }
    }
}
