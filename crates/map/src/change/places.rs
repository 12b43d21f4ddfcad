//! Several places per extent: copies, drops, and the rule for overwriting in place.
//!
//! Versions of an extent commit in order, each when the flush it needs has succeeded. So a copy followed by
//! the drop of the original is safe by construction. A change that needs two devices is two versions.

use crate::format::value::{Chunk, Location, PLACES_MAX, Place, Record, Released, Value};
use crate::map::Map;
use crate::state::extent_state::ExtentState;
use crate::state::overlay::{AddedBlocks, Needs, NeedsPair, Pending};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use weir_model::{BlockRange, DeviceId, ExtentKey, Mutant, PlaceId, PlaceKind};

/// The maximum number of whole places of an extent, equal to the maximum number of copies.
pub const WHOLE_PLACES_MAX: usize = 2;

/// A set of places.
type PlaceIds = SmallVec<[PlaceId; 8]>;

fn push_unique(names: &mut PlaceIds, name: PlaceId) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// Whether a copy took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The copy took effect; the location `at` belongs to the extent.
    Added,
    /// The extent cannot use the copy; the location `at` still belongs to the caller.
    Refused,
}

impl Map {
    /// Whether the extent may get this place. It may if it has the place already. Otherwise it must have few
    /// enough places, counting those that [`Map::withdraw`] may bring back, and must not be releasing one of
    /// the same name.
    pub fn may_add_place(&self, key: ExtentKey, id: PlaceId) -> bool {
        self.may_add_beside(key, id, None)
    }

    /// Whether the extent may get both of these places.
    pub fn may_add_pair(&self, key: ExtentKey, [one, other]: [PlaceId; 2]) -> bool {
        self.may_add_place(key, one) && self.may_add_beside(key, other, Some(one))
    }

    /// Whether the extent may get this place once it has another one.
    fn may_add_beside(&self, key: ExtentKey, id: PlaceId, other: Option<PlaceId>) -> bool {
        let gives_up = |chunk: &Chunk| {
            id.kind == PlaceKind::Whole && matches!(chunk, Chunk::Whole(w) if w.device == id.device)
        };
        let pending = self.overlay.get(key).map_or(&[][..], |p| &p.versions);
        if pending.iter().flat_map(|v| &v.released).any(gives_up) {
            return false;
        }
        let mut names = PlaceIds::new();
        match self.find(key) {
            ExtentState::Empty => {}
            ExtentState::Direct(whole) => push_unique(&mut names, Location::Whole(whole).id()),
            ExtentState::Record(record) => {
                record.places.iter().for_each(|p| push_unique(&mut names, p.at.id()));
            }
        }
        other.into_iter().for_each(|other| push_unique(&mut names, other));
        let count = |names: &PlaceIds, kind| names.iter().filter(|name| name.kind == kind).count();
        if names.contains(&id) {
            return true;
        }
        if id.kind == PlaceKind::Whole && count(&names, PlaceKind::Whole) >= WHOLE_PLACES_MAX {
            return false;
        }
        self.restorable_places(key).into_iter().for_each(|name| push_unique(&mut names, name));
        let fine = count(&names, PlaceKind::Fine);
        let most = match id.kind {
            // One place is reserved for a whole place, which a write may need.
            PlaceKind::Fine if fine == names.len() => PLACES_MAX - 1,
            PlaceKind::Fine | PlaceKind::Whole => PLACES_MAX,
        };
        names.contains(&id) || names.len() < most
    }

    /// Whether the extent, which has no whole place, may get one by [`Map::attach_place`]. It may not while
    /// [`Map::withdraw`] could revert pending changes to a state with too many places, or with a whole place
    /// of the same name for other blocks. The next commit then changes the answer.
    ///
    /// If all these changes need the device of the earlier whole place, everything in the later one is lost
    /// with them, and the later one is released.
    pub fn may_attach_place(&self, key: ExtentKey) -> bool {
        let mut names = self.restorable_places(key);
        if names.is_empty() {
            return true;
        }
        let needs = || self.overlay.get(key).into_iter().flat_map(|p| &p.versions).flat_map(|v| v.needs());
        let clashes = |name: &PlaceId| {
            name.kind == PlaceKind::Whole && needs().any(|needs| needs.device != name.device)
        };
        if names.iter().any(clashes) {
            return false;
        }
        if let ExtentState::Record(record) = self.find(key) {
            record.places.iter().for_each(|p| push_unique(&mut names, p.at.id()));
        }
        names.len() < PLACES_MAX
    }

    /// Returns the places of values that [`Map::withdraw`] may fall back on: those before versions whose data
    /// is not durable.
    fn restorable_places(&self, key: ExtentKey) -> PlaceIds {
        let mut names = PlaceIds::new();
        let Some(pending) = self.overlay.get(key) else { return names };
        let mut own = |value: &Value| match value {
            Value::Empty => {}
            Value::Direct(whole) => push_unique(&mut names, Location::Whole(*whole).id()),
            Value::Record(record) => record.places.iter().for_each(|p| push_unique(&mut names, p.at.id())),
        };
        for (i, _) in pending.versions.iter().enumerate().filter(|(_, v)| v.may_be_lost()) {
            match i.checked_sub(1) {
                Some(before) => own(&pending.versions[before].value),
                None => own(&self.durable_value(key).0),
            }
        }
        names
    }

    /// Makes the place at `at` valid for these blocks too; the extent gets the place if it has none of this
    /// kind on this device. The bytes were copied there from another place, and nothing has written to them
    /// since they were read. Slots of a fine place, one per block, now belong to the extent.
    ///
    /// `source`: the flush that makes the data read durable; `needs`: the one that makes the copy durable.
    /// Both must precede the map's claim that the places have the same data: otherwise a power loss could
    /// revert a write in one of them.
    #[must_use]
    pub fn add_copy(
        &mut self,
        key: ExtentKey,
        at: impl Into<Location>,
        range: BlockRange,
        source: Option<Needs>,
        needs: Option<Needs>,
    ) -> CopyOutcome {
        let at = at.into();
        let held = match self.find(key) {
            ExtentState::Empty => false,
            ExtentState::Direct(whole) => {
                at.id() != Location::Whole(whole).id() || at == Location::Whole(whole)
            }
            ExtentState::Record(record) => {
                let fits = match (&at, record.place(at.id())) {
                    (Location::Whole(_), Some(place)) => place.at == at,
                    _ => true,
                };
                fits && (range.first..range.end()).all(|b| record.has_block(b))
            }
        };
        if !held || !self.may_add_place(key, at.id()) {
            return CopyOutcome::Refused;
        }
        if source.is_some() && !self.planted.is(Mutant::MoveSourceNotFlushed) {
            let _ = self.current_record(key).0.map(|record| self.set_current(key, Value::from(record)));
            self.push(key, AddedBlocks::Nothing, source, Released::new());
        }
        self.change(key, AddedBlocks::Copies, needs, |record, blocks, released| {
            record.fill(&at, range, blocks, released);
        });
        self.note_expected_pages(key);
        CopyOutcome::Added
    }

    /// Makes the place invalid for these blocks. Refuses, changing nothing, unless another place is valid for
    /// each of them that this one is valid for. Slots are released at once; the extent of a whole place only
    /// by [`Self::release_empty_places`].
    #[must_use]
    pub fn drop_copy(&mut self, key: ExtentKey, from: PlaceId, range: BlockRange) -> bool {
        let ExtentState::Record(record) = self.find(key) else { return false };
        let shared = record.shared_blocks(from, self.blocks);
        let Some(place) = record.place(from) else { return false };
        if !(range.first..range.end()).all(|b| shared.contains(b) || !place.valid.contains(b)) {
            return false;
        }
        self.change(key, AddedBlocks::Nothing, None, |record, _, released| {
            if let Some(place) = record.place_mut(from) {
                place.clear(range, released);
            }
        });
        true
    }

    /// Opens write intents: recovery must select one of the copies of these blocks, or the only one, which
    /// may not be durable. In a volume with two copies they may differ from now on: writes to them must wait
    /// until they [may](Self::may_overwrite).
    pub fn open_intent(&mut self, key: ExtentKey, range: BlockRange) {
        self.change(key, AddedBlocks::Nothing, None, |record, blocks, _| record.open_intent(range, blocks));
    }

    /// Closes the intents of these blocks: their copies are the same again, once the data written to them is
    /// durable, and no write to them is in flight. `needs`: the flushes of the devices with copies.
    pub fn close_intent(&mut self, key: ExtentKey, range: BlockRange, needs: [Option<Needs>; 2]) {
        self.change_with_needs(key, AddedBlocks::Nothing, needs, |record, _, _| record.close_intent(range));
    }

    /// Records that blocks were written, with the same bytes, to both of these places, which are now the only
    /// valid ones. A whole place must belong to the extent already; slots, one per block, do from now on.
    /// `needs`: the flushes that make the data durable. If one of them fails, the blocks on that device are
    /// withdrawn, and the other copy stays.
    pub fn mark_duplexed_written(
        &mut self,
        key: ExtentKey,
        at: [impl Into<Location>; 2],
        range: BlockRange,
        needs: [Option<Needs>; 2],
    ) {
        let at = at.map(Into::into);
        let (record, blocks) = self.current_record(key);
        let slots = matches!(at, [Location::Fine { .. }, Location::Fine { .. }]);
        let record = record.or_else(|| slots.then(|| self.empty_record(key)));
        let Some(mut record) = record else { return self.overlay.remove_if_durable(key) };
        let needs = if self.planted.is(Mutant::DuplexNeedsOneFlush) { [needs[0], None] } else { needs };
        let mut released = Released::new();
        at.iter().for_each(|at| record.fill(at, range, blocks, &mut released));
        let others = |place: &&mut Place| at.iter().all(|at| at.id() != place.at.id());
        record.places.iter_mut().filter(others).for_each(|place| place.clear(range, &mut released));
        self.set_current(key, Value::from(record).canonical_place(blocks));
        self.push_with_needs(key, AddedBlocks::Data, needs, released);
    }

    /// Rule 3 of docs/internals/invariants.md: whether blocks of a place may be overwritten in place. They
    /// may not if a power loss could make the map take the place for a copy of another one while the two
    /// differ. So in no state that is durable, may become so, or is visible may this place and another one be
    /// valid for one of these blocks without a write intent. A fine place whose slots were others counts as
    /// another place. Cost: one load with nothing pending and a direct entry, some more where no such state
    /// has the blocks in several places.
    pub fn may_overwrite(&self, key: ExtentKey, id: PlaceId, range: BlockRange) -> bool {
        if self.planted.is(Mutant::IntentSkipped) {
            return true;
        }
        match self.overlay.get(key) {
            None => match self.find_durable(key) {
                ExtentState::Empty | ExtentState::Direct(_) => true,
                ExtentState::Record(record) => record.may_overwrite(id, range),
            },
            Some(pending) if pending.may_be_shared(range) => {
                self.may_overwrite_all_states(key, pending, id, range)
            }
            Some(pending) => {
                debug_assert!(
                    self.may_overwrite_all_states(key, pending, id, range),
                    "{key} {id:?} {range:?}"
                );
                true
            }
        }
    }

    /// The general case of [`Self::may_overwrite`]: checks every state that exists or may come to exist.
    #[inline(never)]
    fn may_overwrite_all_states(
        &self,
        key: ExtentKey,
        pending: &Pending,
        id: PlaceId,
        range: BlockRange,
    ) -> bool {
        let now = match pending.current() {
            Value::Record(record) => record.place(id),
            _ => None,
        };
        let safe = |found: &ExtentState<'_>| match found {
            ExtentState::Empty | ExtentState::Direct(_) => true,
            ExtentState::Record(record) => {
                (range.first..range.end()).all(|b| match (record.place(id), now) {
                    (Some(then), Some(now)) if now.valid.contains(b) && then.slot(b) != now.slot(b) => true,
                    _ => record.may_overwrite(id, BlockRange { first: b, count: 1 }),
                })
            }
        };
        safe(&ExtentState::of(pending.current()))
            && (self.planted.is(Mutant::OverwriteIgnoresPending)
                || pending.versions.iter().all(|v| safe(&ExtentState::of(&v.value))))
            && (self.planted.is(Mutant::OverwriteIgnoresDurable) || safe(&self.find_durable(key)))
    }

    /// Whether this place may become valid for some of these blocks again without a write: it is valid for
    /// them in the durable map, or in a version that a withdrawal may fall back on. A write of data there
    /// that is not the blocks' current data on its own device must wait until that is impossible.
    pub fn may_become_valid_again(&self, key: ExtentKey, id: PlaceId, range: BlockRange) -> bool {
        let holds = |found: &ExtentState<'_>| match found {
            ExtentState::Empty => false,
            ExtentState::Direct(whole) => Location::Whole(*whole).id() == id,
            ExtentState::Record(record) => {
                record.place(id).is_some_and(|place| place.valid.contains_any(range))
            }
        };
        self.overlay.get(key).is_some_and(|pending| {
            let versions = || pending.versions.iter().any(|version| holds(&ExtentState::of(&version.value)));
            (!self.planted.is(Mutant::ReturningPlaceWithoutVersions) && versions())
                || holds(&self.find_durable(key))
        })
    }

    /// Returns the number of device extents that anything names: the durable map, a change that is not
    /// durable yet, or space whose release is not durable. Cost: walks everything, so it is for checks.
    pub fn owned_extents(&self) -> u64 {
        let mut owned = BTreeSet::new();
        let mut own = |value: &Value| match value {
            Value::Empty => {}
            Value::Direct(whole) => drop(owned.insert((whole.device, whole.extent))),
            Value::Record(record) => record.places.iter().for_each(|place| match &place.at {
                Location::Whole(whole) => drop(owned.insert((whole.device, whole.extent))),
                Location::Fine { device, slots } => owned.extend(slots.iter().map(|s| (*device, s.extent))),
            }),
        };
        self.catalogue.volumes.keys().for_each(|volume| self.for_each(*volume, |_, value| own(value)));
        let pending = || self.overlay.keys().filter_map(|key| self.overlay.get(key));
        for pending in pending() {
            own(pending.current());
            pending.versions.iter().for_each(|version| own(&version.value));
        }
        let released = pending().flat_map(|p| &p.versions).flat_map(|v| &v.released);
        owned.extend(released.map(|chunk| match chunk {
            Chunk::Whole(whole) => (whole.device, whole.extent),
            Chunk::Slot(device, slot) => (*device, slot.extent),
        }));
        owned.len() as u64
    }

    /// Changes an extent that has places, as a version.
    pub(crate) fn change(
        &mut self,
        key: ExtentKey,
        added: AddedBlocks,
        needs: Option<Needs>,
        change: impl FnOnce(&mut Record, u16, &mut Released),
    ) {
        self.change_with_needs(key, added, [needs, None], change);
    }

    /// Like `change`, with a version that waits for two devices.
    fn change_with_needs(
        &mut self,
        key: ExtentKey,
        added: AddedBlocks,
        needs: NeedsPair,
        change: impl FnOnce(&mut Record, u16, &mut Released),
    ) {
        let (record, blocks) = self.current_record(key);
        let Some(mut record) = record else { return self.overlay.remove_if_durable(key) };
        let mut released = Released::new();
        change(&mut record, blocks, &mut released);
        self.set_current(key, Value::from(record).canonical_place(blocks));
        self.push_with_needs(key, added, needs, released);
    }

    /// Whether extents may have fine places: a record with all the slots it could ever name must fit a
    /// journal frame. It does unless extents are large and the journal is tiny.
    pub fn has_fine_places(&self) -> bool {
        let blocks = usize::from(self.blocks);
        let record = PLACES_MAX * (2 + blocks / 8 + 6 * blocks) + blocks / 8;
        record + 128 <= self.commit.builder.capacity()
    }

    /// Allocates slots of a device for a run of blocks, one per block, all or none.
    pub fn allocate_slots(&mut self, device: DeviceId, blocks: u16) -> Option<Location> {
        if !self.has_fine_places() {
            return None;
        }
        let mut slots = Vec::with_capacity(usize::from(blocks));
        for _ in 0..blocks {
            match self.allocate_slot(device) {
                Some(slot) => slots.push(slot),
                None => {
                    slots.into_iter().for_each(|slot| self.reuse(Chunk::Slot(device, slot)));
                    return None;
                }
            }
        }
        Some(Location::Fine { device, slots })
    }
}

impl Record {
    fn may_overwrite(&self, id: PlaceId, range: BlockRange) -> bool {
        let Some(place) = self.place(id) else { return true };
        let others = || self.places.iter().filter(|p| p.at.id() != id);
        let intended = |b| self.may_differ().is_some_and(|differ| differ.contains(b));
        let shared = |b| place.valid.contains(b) && others().any(|p| p.valid.contains(b));
        (range.first..range.end()).all(|b| !shared(b) || intended(b))
    }
}
