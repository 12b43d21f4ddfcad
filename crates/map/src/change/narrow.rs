//! Narrowing: of several places that are valid for a block, one becomes the only one, so that it can be
//! overwritten there.
//!
//! Rule 3 of docs/internals/invariants.md forbids to overwrite blocks that any state that is durable, or may
//! become so, has in several places. A state that is not durable yet need never become so: it is revised, as
//! if there had been no other copy. It waits for the same flushes as before, and a version after it releases
//! the space that it no longer names. So only a state that is durable already, or is being committed, has to
//! be waited for, and that needs no flush.

use crate::format::value::{Place, Record, Released, Value};
use crate::map::Map;
use crate::state::overlay::{AddedBlocks, Version};
use crate::{BlockSet, ExtentState};
use weir_model::{BlockRange, ExtentKey, Mutant, PlaceId};

impl Map {
    /// Makes every other place invalid for the blocks of `range` that this place is valid for. The change is
    /// visible at once, and applies to every state outside any commit. A write there must wait until it
    /// [may](Self::may_overwrite): for a commit at most, not for any flush. Cost: a walk over the extent's
    /// pending changes.
    pub fn invalidate_others(&mut self, key: ExtentKey, to: PlaceId, range: BlockRange) {
        let shared = match self.find(key) {
            ExtentState::Record(record) => Some(record.shared_blocks(to, self.blocks)),
            ExtentState::Empty | ExtentState::Direct(_) => None,
        };
        if let Some(shared) = shared.filter(|shared| shared.contains_any(range)) {
            self.change(key, AddedBlocks::Nothing, None, |record, _, released| {
                record.invalidate_others(to, range, released);
                for block in shared.iter().filter(|block| range.contains(*block)) {
                    record.close_intent(BlockRange { first: block, count: 1 });
                }
            });
        }
        self.invalidate_others_pending(key, to);
    }

    /// Makes this place the only valid one for its sole blocks in every version outside any commit. If that
    /// says more than the durable state, a version without flushes is inserted before these.
    fn invalidate_others_pending(&mut self, key: ExtentKey, to: PlaceId) {
        let (blocks, planted) = (self.blocks, self.planted);
        let durable = self.durable_value(key).0;
        let Some(pending) = self.overlay.get_mut(key) else { return };
        let now = pending.current().clone().into_record(blocks);
        let Some(alone) = now.as_ref().and_then(|record| SoleBlocks::of(record, to, blocks)) else { return };
        let committing = pending.committing as usize;
        let (taken, open) = pending.versions.split_at_mut(committing);
        let Some(first) = open.first() else { return };
        let is_unsure = first.may_be_lost();
        for version in open {
            if alone.invalidate_others(&mut version.value, blocks)
                && planted.is(Mutant::RevisedStateNeedsNothing)
            {
                version.needs = [None; 2];
            }
        }
        let mut before = taken.last().map_or(&durable, |version| &version.value).clone();
        if is_unsure && alone.invalidate_others(&mut before, blocks) {
            let version = Version {
                needs: [None; 2],
                value: before,
                added: AddedBlocks::Nothing,
                released: Released::new(),
            };
            pending.versions.insert(committing, version);
        }
        self.overlay.update_shared(key, &durable);
    }
}

/// The blocks for which a place is the only valid one.
struct SoleBlocks<'a> {
    place: &'a Place,
    blocks: BlockSet,
}

impl<'a> SoleBlocks<'a> {
    /// Returns `None` if there are no such blocks.
    fn of(record: &'a Record, id: PlaceId, blocks: u16) -> Option<Self> {
        let place = record.place(id)?;
        let mut alone = place.valid.clone();
        alone.subtract(&record.shared_blocks(id, blocks));
        (!alone.is_empty()).then_some(Self { place, blocks: alone })
    }

    /// Makes every other place of this value invalid for the blocks that the place has at the same location,
    /// unless an intent says that they may differ. Returns whether that changes the value. A later version
    /// releases the space.
    fn invalidate_others(&self, value: &mut Value, blocks: u16) -> bool {
        let Value::Record(record) = &*value else { return false };
        let Some(then) = record.place(self.place.at.id()) else { return false };
        let mut shared = record.shared_blocks(self.place.at.id(), blocks);
        shared.intersect(&self.blocks);
        if let Some(differ) = record.may_differ() {
            shared.subtract(differ);
        }
        let stays = |block: &u16| then.slot(*block) == self.place.slot(*block);
        let narrowed: Vec<u16> = shared.iter().filter(stays).collect();
        if narrowed.is_empty() {
            return false;
        }
        let mut record = Record::clone(record);
        for block in narrowed {
            record.invalidate_others(
                self.place.at.id(),
                BlockRange { first: block, count: 1 },
                &mut Released::new(),
            );
        }
        *value = Value::from(record).canonical(blocks);
        true
    }
}
