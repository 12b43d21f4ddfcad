//! Failed pieces: the space allocated for them is freed.

use crate::Base;
use crate::ids::PieceId;
use crate::lookup::Address;
use weir_map::{Chunk, Slot};
use weir_model::{BlockRange, Mutant, RequestError};

impl Base {
    /// Fails the piece before anything was written.
    pub(crate) fn piece_failed(&mut self, id: PieceId, error: RequestError) {
        self.requests.pieces[id.0 as usize].error = Some(error);
        self.change_failed(id);
    }

    /// Ends a failed piece; a place allocated for it may have no valid blocks.
    pub(crate) fn change_failed(&mut self, id: PieceId) {
        let piece = &mut self.requests.pieces[id.0 as usize];
        let key = piece.key;
        let addresses = piece.take_addresses();
        self.give_up_addresses(id, &addresses);
        self.requests.locks.request_tidying(key);
        self.piece_ended(id);
    }

    /// Frees the targets of a piece that has failed, or selects its target again.
    pub(crate) fn give_up_addresses(&mut self, id: PieceId, addresses: &[Address]) {
        let range = self.requests.pieces[id.0 as usize].range;
        addresses.iter().for_each(|address| self.give_up_address(*address, range));
    }

    /// Quarantines the slots of a failed piece until no command can touch them.
    pub(crate) fn give_up_address(&mut self, address: Address, range: BlockRange) {
        if self.core.is_planted(Mutant::RefusedSlotsLeaked) {
            return;
        }
        if let Address::Slots { device, first, fresh: true } = address {
            for i in 0..range.count {
                if self.core.is_planted(Mutant::FailedSlotsReused) {
                    self.core.map.reuse(Chunk::Slot(device, Slot { block: first.block + i, ..first }));
                    continue;
                }
                self.quarantine(Chunk::Slot(device, Slot { block: first.block + i, ..first }));
            }
        }
    }
}
