//! Withdrawal of changes whose data a device lost.
//!
//! A version of an extent whose data was lost can never become durable (rule 1 of
//! docs/internals/invariants.md), and the versions after it include the blocks that it made valid. Each of
//! them is revised in turn: a block that is valid on the device, but not at the same location in the previous
//! value, reverts to its state in that value, as revised. Blocks on other devices stay.

use crate::format::value::{Chunk, Location, Place, Record, Released, Value};
use crate::state::overlay::{AddedBlocks, Epoch, Needs, Version};
use crate::{BlockSet, Map};
use smallvec::SmallVec;
use std::sync::Arc;
use weir_model::{BlockRange, DeviceId, ExtentKey, Mutant, Planted};

impl Map {
    /// Withdraws the writes to `device` that were not flushed: `flushed` is the last epoch known to be
    /// durable there. Blocks that those writes made valid read from now on as after a power loss: as in the
    /// durable map, or in an earlier version. The caller must notify the parties that must not read them.
    ///
    /// Returns the affected extents. Places in them may be left without valid blocks:
    /// [`Map::release_empty_places`] releases them once no write there is in flight. Cost: a walk over all
    /// pending changes.
    pub fn withdraw(&mut self, device: DeviceId, flushed: Option<Epoch>) -> Vec<ExtentKey> {
        let is_lost = |needs: &Needs| needs.device == device && flushed.is_none_or(|f| f < needs.epoch);
        let mut concerned = Vec::new();
        let keys: Vec<_> = self.overlay.keys().collect();
        for key in keys {
            let durable = || self.durable_value(key).0;
            let Some(pending) = self.overlay.get(key) else { continue };
            let lost = |v: &Version| v.needs().any(|n| is_lost(&n));
            let Some(first) = pending.versions.iter().position(lost) else { continue };
            let base = match first.checked_sub(1) {
                Some(before) => pending.versions[before].value.clone(),
                None => durable(),
            };
            let (blocks, planted) = (self.blocks, self.planted);
            let mut base = Fallback { device, blocks, record: base.into_record(blocks), planted };
            let Some(pending) = self.overlay.get_mut(key) else { continue };
            let mut moved = OwnershipChanges::default();
            let end =
                if planted.is(Mutant::WithdrawFirstVersionOnly) { first + 1 } else { pending.versions.len() };
            for version in &mut pending.versions[first..end] {
                version.needs = version.needs.map(|n| n.filter(|n| !is_lost(n)));
                let value = std::mem::take(&mut version.value);
                version.value = base.revise(value, &mut moved).canonical(blocks);
                base.record = version.value.clone().into_record(blocks);
            }
            // Slots that an earlier version had and this one has not are in the release list of some version.
            moved.lost_slots.clear();
            let current = base.revise(pending.take_current(), &mut moved).canonical_place(blocks);
            let newest = pending.versions.last().map_or(0, |v| v.value.place_count());
            pending.tentative = current.place_count() > newest;
            if !planted.is(Mutant::WithdrawKeepsReleases) {
                self.pending_releases
                    .remove(&cancel_releases(&mut pending.versions[first..], &moved.regained));
            }
            self.pending_releases.add(&release_later(
                &mut pending.versions[first..],
                &moved.regained,
                &current,
            ));
            pending.set_current(current);
            pending.note_all_shared();
            self.pending_releases.add(&moved.lost_slots);
            if let Some(last) = pending.versions.last_mut() {
                last.released.extend(moved.lost_slots);
            }
            concerned.push(key);
        }
        concerned
    }

    /// Returns the blocks whose copy on `device` may be withdrawn by [`Self::withdraw`] although newer data
    /// may be known than the state they would fall back on, and the epoch that must be durable before this
    /// becomes impossible. `None` if there are no such changes. Cost: a walk over the extent's pending
    /// changes.
    pub fn withdrawable_blocks(
        &self,
        key: ExtentKey,
        device: DeviceId,
        flushed: Option<Epoch>,
    ) -> Option<(BlockSet, Epoch)> {
        let pending = self.overlay.get(key)?;
        let waits = |n: &Needs| n.device == device && flushed.is_none_or(|f| f < n.epoch);
        let first = pending.versions.iter().position(|v| v.needs().any(|n| waits(&n)))?;
        let needs = pending.versions[first..].iter().flat_map(Version::needs);
        let epoch = needs.filter(waits).map(|n| n.epoch).max()?;
        let blocks = self.blocks;
        let planted = self.planted;
        let base = |value: Value| Fallback { device, blocks, record: value.into_record(blocks), planted };
        let before = if first == 0 { Some(self.durable_value(key).0) } else { None };
        let versions = pending.versions[first.saturating_sub(1)..].iter().map(|v| v.value.clone());
        let bases: SmallVec<[Fallback; 4]> = before.into_iter().chain(versions).map(base).collect();
        let mut unsure = BlockSet::none(blocks);
        let record = pending.current().clone().into_record(blocks)?;
        for place in record.places.iter().filter(|p| p.device() == device) {
            let is_new = |block: &u16| bases.iter().any(|base| !base.has_same_location(place, *block));
            place.valid.iter().filter(is_new).for_each(|block| unsure.insert(single_block(block)));
        }
        Some((unsure, epoch))
    }

    /// Makes the extent's places on `device` invalid for those of the blocks that another device has too:
    /// their copy there is in doubt.
    pub fn invalidate_doubtful(&mut self, key: ExtentKey, device: DeviceId, doubtful: &BlockSet) {
        self.invalidate_doubtful_pending(key, device, doubtful);
        let (record, blocks) = self.current_record(key);
        let Some(mut record) = record else { return self.overlay.remove_if_durable(key) };
        let mut released = Released::new();
        record.invalidate_doubtful(device, doubtful, &mut released);
        self.set_current(key, Value::from(record).canonical_place(blocks));
        self.push(key, AddedBlocks::Nothing, None, released);
    }

    /// Does the same in every version outside any commit, whatever the visible state: one of them may become
    /// durable without the others.
    pub fn invalidate_doubtful_pending(&mut self, key: ExtentKey, device: DeviceId, doubtful: &BlockSet) {
        let blocks = self.blocks;
        let pending = self.overlay.get_mut(key);
        let open = pending.into_iter().flat_map(|p| p.versions.iter_mut().skip(p.committing as usize));
        let open = open.filter(|_| !self.planted.is(Mutant::DistrustedInEffectOnly));
        for version in open {
            if let Value::Record(record) = &mut version.value {
                // The space is released by a later version, or below.
                Arc::make_mut(record).invalidate_doubtful(device, doubtful, &mut Released::new());
                version.value = version.value.canonical(blocks);
            }
        }
    }
}

impl Record {
    /// Makes places on the device invalid for those of the blocks that a place on another device is valid
    /// for.
    fn invalidate_doubtful(&mut self, device: DeviceId, doubtful: &BlockSet, released: &mut Released) {
        for block in doubtful.iter() {
            if self.places.iter().any(|p| p.device() != device && p.valid.contains(block)) {
                for place in self.places.iter_mut().filter(|p| p.device() == device) {
                    place.clear(single_block(block), released);
                }
            }
        }
    }
}

const fn single_block(block: u16) -> BlockRange {
    BlockRange { first: block, count: 1 }
}

/// The space whose ownership changes when values are revised.
#[derive(Default)]
struct OwnershipChanges {
    /// Space released by a later version, and needed again.
    regained: Released,
    /// Slots of lost blocks.
    lost_slots: Released,
}

/// The value that an extent falls back on.
struct Fallback {
    device: DeviceId,
    blocks: u16,
    record: Option<Record>,
    planted: Planted,
}

impl Fallback {
    /// Returns the value without the data that the device lost.
    fn revise(&self, value: Value, changes: &mut OwnershipChanges) -> Value {
        let untouched = match &value {
            Value::Empty => true,
            Value::Direct(whole) => whole.device != self.device,
            Value::Record(record) => record.places.iter().all(|p| p.device() != self.device),
        };
        if untouched {
            return value;
        }
        let Some(mut record) = value.into_record(self.blocks) else { return Value::Empty };
        let mut lost = SmallVec::<[u16; 32]>::new();
        for place in record.places.iter_mut().filter(|p| p.device() == self.device) {
            let unknown = place.valid.iter().filter(|b| !self.has_same_location(place, *b));
            let unknown: SmallVec<[u16; 32]> = unknown.collect();
            unknown.iter().for_each(|b| place.clear(single_block(*b), &mut changes.lost_slots));
            lost.extend(unknown);
        }
        for block in lost {
            if !record.places.iter().any(|p| p.valid.contains(block)) {
                self.restore(&mut record, block, changes);
            }
        }
        self.keep_intents(&mut record);
        Value::from(record)
    }

    /// Keeps the fallback's intents: the claim that copies are the same again may have needed the lost data,
    /// so blocks valid in several places may still differ where the fallback says so; and a block back at its
    /// old location may not be durable there.
    fn keep_intents(&self, record: &mut Record) {
        let Some(intent) = self.record.as_ref().and_then(|before| before.intent.as_ref()) else { return };
        if self.planted.is(Mutant::WithdrawDropsIntents) {
            return;
        }
        let holders = |block: u16| record.places.iter().filter(|p| p.valid.contains(block)).count();
        let is_back = |block: u16| {
            record.places.iter().any(|p| p.valid.contains(block) && self.has_same_location(p, block))
        };
        let kept = intent.iter().filter(|block| holders(*block) > 1 || is_back(*block));
        let kept: SmallVec<[u16; 32]> = kept.collect();
        if !kept.is_empty() {
            let all = record.intent.get_or_insert_with(|| BlockSet::none(self.blocks));
            kept.iter().for_each(|block| all.insert(single_block(*block)));
        }
    }

    /// Whether the fallback has the block at the very same location.
    fn has_same_location(&self, place: &Place, block: u16) -> bool {
        let known = self.record.as_ref().and_then(|r| r.place(place.at.id()));
        known.is_some_and(|known| known.slot(block).is_some() && known.slot(block) == place.slot(block))
    }

    /// Restores the block to its locations in the fallback, in places that may have to be added again.
    fn restore(&self, record: &mut Record, block: u16, changes: &mut OwnershipChanges) {
        for old in self.record.iter().flat_map(|r| &r.places) {
            let Some(slot) = old.slot(block) else { continue };
            let (at, chunk) = match old.at {
                Location::Whole(whole) => (old.at.clone(), Chunk::Whole(whole)),
                Location::Fine { device, .. } => {
                    (Location::Fine { device, slots: vec![slot] }, Chunk::Slot(device, slot))
                }
            };
            // A whole place that has replaced this one since has no valid blocks any more.
            record.places.retain(|p| match p.at {
                Location::Whole(whole) if p.at.id() == at.id() && p.at != at && p.valid.is_empty() => {
                    changes.lost_slots.push(Chunk::Whole(whole));
                    false
                }
                _ => true,
            });
            changes.regained.push(chunk);
            record.fill(&at, single_block(block), self.blocks, &mut changes.lost_slots);
        }
    }
}

/// Adds space that was regained, but that the current value does not name, to the release list of the first
/// version that does not need it. Returns that space.
fn release_later(versions: &mut [Version], regained: &[Chunk], current: &Value) -> Released {
    let mut later = Released::new();
    for (i, chunk) in regained.iter().enumerate() {
        if current.names(*chunk) || regained[..i].contains(chunk) {
            continue;
        }
        let after = versions.iter().rposition(|v| v.value.names(*chunk)).map_or(0, |last| last + 1);
        let at = after.min(versions.len().saturating_sub(1));
        if let Some(version) = versions.get_mut(at) {
            version.released.push(*chunk);
            later.push(*chunk);
        }
    }
    later
}

/// Removes regained space from the versions' release lists. Returns the space that was in them.
fn cancel_releases(versions: &mut [Version], regained: &[Chunk]) -> Released {
    let mut back = Released::new();
    for version in versions {
        back.extend(version.released.iter().filter(|chunk| regained.contains(chunk)).copied());
        version.released.retain(|chunk| !regained.contains(chunk));
    }
    back
}

impl Value {
    /// Whether the chunk is, or is part of, one of the places.
    fn names(&self, chunk: Chunk) -> bool {
        match self {
            Self::Empty => false,
            Self::Direct(whole) => chunk == Chunk::Whole(*whole),
            Self::Record(record) => record.places.iter().any(|place| match (&place.at, chunk) {
                (Location::Whole(whole), Chunk::Whole(wanted)) => *whole == wanted,
                (Location::Fine { device, slots }, Chunk::Slot(wanted, slot)) => {
                    *device == wanted && slots.contains(&slot)
                }
                _ => false,
            }),
        }
    }
}
