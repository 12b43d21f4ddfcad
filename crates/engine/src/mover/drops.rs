//! Drops: of blocks that several places hold, one place holds them no more; never the last one on a device
//! that is not lost.
//!
//! Nothing is written for it but the map. A drop follows the copy it relies on in the order of the extent's
//! versions, so that after a cut there is never a block that nobody holds.

use crate::DataPath;
use crate::core::Core;
use crate::lookup;
use crate::mover;
use weir_map::{BlockSet, Place, Record};
use weir_model::{BlockRange, ExtentKey, PlaceId, PlaceKind};

impl DataPath {
    /// What `to` holds of the blocks is nowhere else any more, but for blocks somebody is writing.
    pub(crate) fn drop_elsewhere(&mut self, key: ExtentKey, to: PlaceId, blocks: BlockRange) {
        // Two copies are kept where two are wanted.
        let Some(record) = lookup::record(&self.base.core.map, key).filter(|r| r.copies == 1) else { return };
        let Some(mut there) = record.place(to).map(|p| p.valid.clone()) else { return };
        there.subtract(&self.base.requests.locks.watch(key));
        let others: Vec<_> = record.places.iter().map(|p| p.at.id()).filter(|id| *id != to).collect();
        for from in others {
            self.drop_blocks(key, blocks, from, &there);
        }
    }

    /// The blocks are not in the place any more as far as another one holds them, but for those
    /// somebody is writing.
    pub(crate) fn drop_from(&mut self, key: ExtentKey, blocks: BlockRange, from: PlaceId) {
        let Some(blocks) = mover::sound(&self.base.core, blocks, from) else { return };
        let all = self.base.core.map.extent().blocks();
        let Some(record) = lookup::record(&self.base.core.map, key) else { return };
        if self.base.requests.locks.begin_move(key, all) {
            let mut valid = BlockSet::none(all);
            // What is in two places in slots, and not at home, is so for safety's sake.
            let counts = |p: &&Place| from.kind == PlaceKind::Whole || p.at.id().kind == PlaceKind::Whole;
            record.places.iter().filter(counts).for_each(|p| valid.union(&p.valid));
            if record.copies == 1 {
                valid.subtract(&self.base.requests.locks.watch(key));
                self.drop_blocks(key, blocks, from, &valid);
            }
            self.leave_extent(key);
        }
    }

    /// The blocks of `which` are not in the place any more as far as places that can be used hold them.
    fn drop_blocks(&mut self, key: ExtentKey, blocks: BlockRange, from: PlaceId, which: &BlockSet) {
        let all = self.base.core.map.extent().blocks();
        let Some(record) = lookup::record(&self.base.core.map, key) else { return };
        let mut going = valid_elsewhere(&self.base.core, &record, from);
        going.intersect(&record.shared(from, all));
        going.intersect(which);
        let mut at = blocks.first;
        while let Some(run) = going.next_run(at, blocks.end()) {
            at = run.end();
            if self.base.core.map.dropped(key, from, run) {
                self.base.space.dropped += u64::from(run.count);
                self.base.durability.note_change(&self.base.core);
            }
        }
    }
}

/// What places other than `from` hold on devices that are not lost: a lost one may hold it in vain.
fn valid_elsewhere(core: &Core, record: &Record, from: PlaceId) -> BlockSet {
    let mut valid = BlockSet::none(core.map.extent().blocks());
    let others = record.places.iter().filter(|p| p.at.id() != from && core.is_usable(p.device()));
    others.for_each(|p| valid.union(&p.valid));
    valid
}
