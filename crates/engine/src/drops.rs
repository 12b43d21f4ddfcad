//! Drops: of blocks that several places hold, one place holds them no more.
//!
//! Nothing is written for it but the map. A drop follows the copy it relies on in the order of the extent's
//! versions, so that after a cut there is never a block that nobody holds.

use crate::Engine;
use weir_map::BlockSet;
use weir_model::{BlockRange, ExtentKey, PlaceId};

impl Engine {
    /// What `to` holds of the blocks is nowhere else any more, but for blocks somebody is writing.
    pub(crate) fn drop_elsewhere(&mut self, key: ExtentKey, to: PlaceId, blocks: BlockRange) {
        let Some(record) = self.record(key) else { return };
        let Some(there) = record.place(to).map(|p| p.valid.clone()) else { return };
        let others: Vec<_> = record.places.iter().map(|p| p.at.id()).filter(|id| *id != to).collect();
        for from in others {
            self.drop_blocks(key, blocks, from, &there);
        }
    }

    /// The blocks are not in the place any more as far as another one holds them, but for those
    /// somebody is writing.
    pub(crate) fn drop_from(&mut self, key: ExtentKey, blocks: BlockRange, from: PlaceId) {
        let Some(blocks) = self.sound(blocks, from) else { return };
        let all = self.map.extent().blocks();
        let Some(record) = self.record(key) else { return };
        if self.locks.begin_move(key, all) {
            let shared = record.shared(from, all);
            self.drop_blocks(key, blocks, from, &shared);
            self.leave_extent(key);
        }
    }

    fn drop_blocks(&mut self, key: ExtentKey, blocks: BlockRange, from: PlaceId, which: &BlockSet) {
        let all = self.map.extent().blocks();
        // Two copies are kept where two are wanted.
        let Some(record) = self.record(key).filter(|r| r.copies == 1) else { return };
        let mut going = record.shared(from, all);
        going.intersect(which);
        going.subtract(&self.locks.watch(key));
        let mut at = blocks.first;
        while let Some(run) = going.next_run(at, blocks.end()) {
            at = run.end();
            if self.map.dropped(key, from, run) {
                self.mover.note_dropped(run.count);
                self.note_change();
            }
        }
    }
}
