//! Drops: blocks valid in several places become invalid in one; never in the last one on a device that is not
//! lost.
//!
//! A drop changes only the map. It follows the copy it relies on in the order of the extent's versions, so
//! that after a power loss every block is valid somewhere.

use crate::DataPath;
use crate::core::Core;
use crate::lookup;
use crate::mover;
use weir_map::{BlockSet, Place, Record};
use weir_model::{BlockRange, ExtentKey, PlaceId, PlaceKind};

impl DataPath {
    /// Makes the blocks that `to` is valid for invalid everywhere else, except blocks that a piece has
    /// locked.
    pub(crate) fn drop_elsewhere(&mut self, key: ExtentKey, to: PlaceId, blocks: BlockRange) {
        // Volumes with two copies keep both.
        let Some(record) = lookup::record(&self.base.core.map, key).filter(|r| r.copies == 1) else { return };
        let Some(mut there) = record.place(to).map(|p| p.valid.clone()) else { return };
        there.subtract(&self.base.requests.locks.begin_tracking(key));
        let others: Vec<_> = record.places.iter().map(|p| p.at.id()).filter(|id| *id != to).collect();
        for from in others {
            self.drop_blocks(key, blocks, from, &there);
        }
    }

    /// Makes the blocks invalid in the place as far as another one is valid for them, except blocks that a
    /// piece has locked.
    pub(crate) fn drop_from(&mut self, key: ExtentKey, blocks: BlockRange, from: PlaceId) {
        let Some(blocks) = mover::clamp_range(&self.base.core, blocks, from) else { return };
        let all = self.base.core.map.extent().blocks();
        let Some(record) = lookup::record(&self.base.core.map, key) else { return };
        if self.base.requests.locks.begin_move(key, all) {
            let mut valid = BlockSet::none(all);
            // Duplexed blocks, in slots of two devices and not at home, stay so for safety.
            let counts = |p: &&Place| from.kind == PlaceKind::Whole || p.at.id().kind == PlaceKind::Whole;
            record.places.iter().filter(counts).for_each(|p| valid.union(&p.valid));
            if record.copies == 1 {
                valid.subtract(&self.base.requests.locks.begin_tracking(key));
                self.drop_blocks(key, blocks, from, &valid);
            }
            self.leave_extent(key);
        }
    }

    /// Makes the blocks of `which` invalid in the place as far as usable places are valid for them.
    fn drop_blocks(&mut self, key: ExtentKey, blocks: BlockRange, from: PlaceId, selected: &BlockSet) {
        let all = self.base.core.map.extent().blocks();
        let Some(record) = lookup::record(&self.base.core.map, key) else { return };
        let mut going = valid_elsewhere(&self.base.core, &record, from);
        going.intersect(&record.shared_blocks(from, all));
        going.intersect(selected);
        let mut at = blocks.first;
        while let Some(run) = going.next_run(at, blocks.end()) {
            at = run.end();
            if self.base.core.map.drop_copy(key, from, run) {
                self.base.space.dropped += u64::from(run.count);
                self.base.durability.note_change(&self.base.core);
            }
        }
    }
}

/// Returns the blocks that places other than `from` are valid for on devices that are not lost.
fn valid_elsewhere(core: &Core, record: &Record, from: PlaceId) -> BlockSet {
    let mut valid = BlockSet::none(core.map.extent().blocks());
    let others = record.places.iter().filter(|p| p.at.id() != from && core.is_usable(p.device()));
    others.for_each(|p| valid.union(&p.valid));
    valid
}
