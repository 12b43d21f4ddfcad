//! Taking back changes whose data a device lost.
//!
//! A version of an extent whose data was lost can never become durable (rule 1 of
//! docs/internals/invariants.md), and the versions after it contain what it made valid. Each of them is
//! revised in turn: a block that is valid on the device, but not at the same location in the value before,
//! reverts to what that value, revised, says of it. What other devices hold stays.

use crate::format::value::{Chunk, Location, Place, Record, Released, Value};
use crate::state::overlay::{Brings, Epoch, Needs, Version};
use crate::{BlockSet, Map};
use smallvec::SmallVec;
use weir_model::{BlockRange, DeviceId, ExtentKey, Mutant, Planted};

impl Map {
    /// Takes back what was written to `device` and not flushed: `flushed` is the last epoch known to
    /// be durable there. Blocks that became valid by those writes read from now on as they would
    /// after a power cut: as the durable map, or a version before, has them. Whoever must not read
    /// them has to be told by the caller.
    ///
    /// Returns the extents concerned. Places in them may be left that hold nothing: [`Map::give_back`]
    /// releases them once nobody writes there. Cost: a walk over all pending changes.
    pub fn withdraw(&mut self, device: DeviceId, flushed: Option<Epoch>) -> Vec<ExtentKey> {
        let is_lost = |needs: &Needs| needs.device == device && flushed.is_none_or(|f| f < needs.epoch);
        let mut concerned = Vec::new();
        let keys: Vec<_> = self.overlay.keys().collect();
        for key in keys {
            let durable = || self.durable(key).0;
            let Some(pending) = self.overlay.get(key) else { continue };
            let lost = |v: &Version| v.needs().any(|n| is_lost(&n));
            let Some(first) = pending.versions.iter().position(lost) else { continue };
            let base = match first.checked_sub(1) {
                Some(before) => pending.versions[before].value.clone(),
                None => durable(),
            };
            let (blocks, planted) = (self.blocks, self.planted);
            let mut base = Base { device, blocks, record: base.into_record(blocks), planted };
            let Some(pending) = self.overlay.get_mut(key) else { continue };
            let mut moved = Moved::default();
            let end =
                if planted.is(Mutant::WithdrawFirstVersionOnly) { first + 1 } else { pending.versions.len() };
            for version in &mut pending.versions[first..end] {
                version.needs = version.needs.map(|n| n.filter(|n| !is_lost(n)));
                let value = std::mem::take(&mut version.value);
                version.value = base.revise(value, &mut moved).canonical(blocks);
                base.record = version.value.clone().into_record(blocks);
            }
            // Slots an earlier version had and this one has not are in the release of some version.
            moved.given_up.clear();
            let current = base.revise(pending.take_current(), &mut moved).canonical_place(blocks);
            let newest = pending.versions.last().map_or(0, |v| v.value.places());
            pending.tentative = current.places() > newest;
            if !planted.is(Mutant::WithdrawKeepsReleases) {
                self.releasing.remove(&take_back(&mut pending.versions[first..], &moved.regained));
            }
            self.releasing.add(&release_later(&mut pending.versions[first..], &moved.regained, &current));
            pending.set_current(current);
            pending.note_all_shared();
            self.releasing.add(&moved.given_up);
            if let Some(last) = pending.versions.last_mut() {
                last.released.extend(moved.given_up);
            }
            concerned.push(key);
        }
        concerned
    }

    /// The blocks whose copy on `device` [`Self::withdraw`] may take back, though somebody may know better
    /// than what they would then fall back on; and the epoch that has to be durable before it cannot any
    /// more. `None` if there are no such changes. Cost: a walk over the extent's pending changes.
    pub fn unsure(
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
        let base = |value: Value| Base { device, blocks, record: value.into_record(blocks), planted };
        let before = if first == 0 { Some(self.durable(key).0) } else { None };
        let versions = pending.versions[first.saturating_sub(1)..].iter().map(|v| v.value.clone());
        let bases: SmallVec<[Base; 4]> = before.into_iter().chain(versions).map(base).collect();
        let mut unsure = BlockSet::none(blocks);
        let record = pending.current().clone().into_record(blocks)?;
        for place in record.places.iter().filter(|p| p.device() == device) {
            let is_new = |block: &u16| bases.iter().any(|base| !base.has(place, *block));
            place.valid.iter().filter(is_new).for_each(|block| unsure.insert(one(block)));
        }
        Some((unsure, epoch))
    }

    /// The extent's places on `device` no longer hold the truth for those of the blocks that another
    /// device holds too: their copy there is in doubt.
    pub fn doubt(&mut self, key: ExtentKey, device: DeviceId, doubtful: &BlockSet) {
        self.doubt_pending(key, device, doubtful);
        let (record, blocks) = self.current_record(key);
        let Some(mut record) = record else { return self.overlay.forget_if_settled(key) };
        let mut released = Released::new();
        record.doubt(device, doubtful, &mut released);
        self.set_current(key, Value::Record(record).canonical_place(blocks));
        self.push(key, Brings::Nothing, None, released);
    }

    /// The same in every version that no commit has taken, whatever is in effect: one of them may become
    /// durable without the others.
    pub fn doubt_pending(&mut self, key: ExtentKey, device: DeviceId, doubtful: &BlockSet) {
        let blocks = self.blocks;
        let pending = self.overlay.get_mut(key);
        let open = pending.into_iter().flat_map(|p| p.versions.iter_mut().skip(p.committing as usize));
        let open = open.filter(|_| !self.planted.is(Mutant::DistrustedInEffectOnly));
        for version in open {
            if let Value::Record(record) = &mut version.value {
                // What is given up here is given up by a later version, or below.
                record.doubt(device, doubtful, &mut Released::new());
                version.value = version.value.canonical(blocks);
            }
        }
    }
}

impl Record {
    /// Places on the device no longer hold those of the blocks that a place on another one holds too.
    fn doubt(&mut self, device: DeviceId, doubtful: &BlockSet, released: &mut Released) {
        for block in doubtful.iter() {
            if self.places.iter().any(|p| p.device() != device && p.valid.contains(block)) {
                for place in self.places.iter_mut().filter(|p| p.device() == device) {
                    place.clear(one(block), released);
                }
            }
        }
    }
}

const fn one(block: u16) -> BlockRange {
    BlockRange { first: block, count: 1 }
}

/// Space that changes hands when values are revised.
#[derive(Default)]
struct Moved {
    /// Given up by a later version, and needed again.
    regained: Released,
    /// Slots for blocks that are lost.
    given_up: Released,
}

/// What an extent falls back on.
struct Base {
    device: DeviceId,
    blocks: u16,
    record: Option<Record>,
    planted: Planted,
}

impl Base {
    /// The value without what the device lost.
    fn revise(&self, value: Value, moved: &mut Moved) -> Value {
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
            let unknown = place.valid.iter().filter(|b| !self.has(place, *b));
            let unknown: SmallVec<[u16; 32]> = unknown.collect();
            unknown.iter().for_each(|b| place.clear(one(*b), &mut moved.given_up));
            lost.extend(unknown);
        }
        for block in lost {
            if !record.places.iter().any(|p| p.valid.contains(block)) {
                self.restore(&mut record, block, moved);
            }
        }
        self.keep_intents(&mut record);
        Value::Record(record)
    }

    /// That copies are the same again may have needed what was lost: those that several places hold may still differ
    /// where the fallback says so. And what is back where it was may not be durable there.
    fn keep_intents(&self, record: &mut Record) {
        let Some(intent) = self.record.as_ref().and_then(|before| before.intent.as_ref()) else { return };
        if self.planted.is(Mutant::WithdrawDropsIntents) {
            return;
        }
        let holders = |block: u16| record.places.iter().filter(|p| p.valid.contains(block)).count();
        let is_back =
            |block: u16| record.places.iter().any(|p| p.valid.contains(block) && self.has(p, block));
        let kept = intent.iter().filter(|block| holders(*block) > 1 || is_back(*block));
        let kept: SmallVec<[u16; 32]> = kept.collect();
        if !kept.is_empty() {
            let all = record.intent.get_or_insert_with(|| BlockSet::none(self.blocks));
            kept.iter().for_each(|block| all.insert(one(*block)));
        }
    }

    /// Whether the fallback has the block at the very same location.
    fn has(&self, place: &Place, block: u16) -> bool {
        let known = self.record.as_ref().and_then(|r| r.place(place.at.id()));
        known.is_some_and(|known| known.slot(block).is_some() && known.slot(block) == place.slot(block))
    }

    /// The block is where the fallback has it, in places that may have to come back.
    fn restore(&self, record: &mut Record, block: u16, moved: &mut Moved) {
        for old in self.record.iter().flat_map(|r| &r.places) {
            let Some(slot) = old.slot(block) else { continue };
            let (at, chunk) = match old.at {
                Location::Whole(whole) => (old.at.clone(), Chunk::Whole(whole)),
                Location::Fine { device, .. } => {
                    (Location::Fine { device, slots: vec![slot] }, Chunk::Slot(device, slot))
                }
            };
            // A whole place that took this one's place since holds nothing any more.
            record.places.retain(|p| match p.at {
                Location::Whole(whole) if p.at.id() == at.id() && p.at != at && p.valid.is_empty() => {
                    moved.given_up.push(Chunk::Whole(whole));
                    false
                }
                _ => true,
            });
            moved.regained.push(chunk);
            record.fill(&at, one(block), self.blocks, &mut moved.given_up);
        }
    }
}

/// What was needed again, but not up to now, is released by the first version that does without; that.
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

/// What is needed again is not released; what was to be.
fn take_back(versions: &mut [Version], regained: &[Chunk]) -> Released {
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
