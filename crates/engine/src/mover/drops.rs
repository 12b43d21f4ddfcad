//! Drops: of blocks that several places hold, one place holds them no more; never the last one on a device
//! that is not lost.
//!
//! Nothing is written for it but the map. A drop follows the copy it relies on in the order of the extent's
//! versions, so that after a cut there is never a block that nobody holds.

use crate::Engine;
use crate::lookup;
use weir_map::{BlockSet, Place, Record};
use weir_model::{BlockRange, ExtentKey, PlaceId, PlaceKind};

impl Engine {
    /// What `to` holds of the blocks is nowhere else any more, but for blocks somebody is writing.
    pub(crate) fn drop_elsewhere(&mut self, key: ExtentKey, to: PlaceId, blocks: BlockRange) {
        let Some(record) = lookup::record(&self.core.map, key) else { return };
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
        let all = self.core.map.extent().blocks();
        let Some(record) = lookup::record(&self.core.map, key) else { return };
        if self.requests.locks.begin_move(key, all) {
            let mut held = BlockSet::none(all);
            // What is in two places in slots, and not at home, is so for safety's sake.
            let counts = |p: &&Place| from.kind == PlaceKind::Whole || p.at.id().kind == PlaceKind::Whole;
            record.places.iter().filter(counts).for_each(|p| held.union(&p.valid));
            self.drop_blocks(key, blocks, from, &held);
            self.leave_extent(key);
        }
    }

    /// What places other than `from` hold on devices that are not lost: a lost one may hold it in vain.
    fn held_besides(&self, record: &Record, from: PlaceId) -> BlockSet {
        let mut held = BlockSet::none(self.core.map.extent().blocks());
        let others = record.places.iter().filter(|p| p.at.id() != from && self.core.is_usable(p.device()));
        others.for_each(|p| held.union(&p.valid));
        held
    }

    fn drop_blocks(&mut self, key: ExtentKey, blocks: BlockRange, from: PlaceId, which: &BlockSet) {
        let all = self.core.map.extent().blocks();
        // Two copies are kept where two are wanted.
        let Some(record) = lookup::record(&self.core.map, key).filter(|r| r.copies == 1) else { return };
        let mut going = self.held_besides(&record, from);
        going.intersect(&record.shared(from, all));
        going.intersect(which);
        going.subtract(&self.requests.locks.watch(key));
        let mut at = blocks.first;
        while let Some(run) = going.next_run(at, blocks.end()) {
            at = run.end();
            if self.core.map.dropped(key, from, run) {
                self.mover.note_dropped(run.count);
                self.durability.note_change(&self.core);
            }
        }
    }
}
