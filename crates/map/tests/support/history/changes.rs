//! The changes that histories make to extents, and the expected states.

use super::{History, Run};
use crate::support::twin::{ModelExtent, ModelPlace, Version};
use weir_map::{Chunk, CopyOutcome, Location, SpaceReservation};
use weir_model::{BlockRange, DeviceId, ExtentKey, PlaceId, PlaceKind};

impl History {
    pub(super) fn place(&mut self, key: ExtentKey, device: u8) {
        let mut held = self.current(key);
        if held.places.len() >= 3 {
            return;
        }
        if !self.map.has_metadata_space() {
            self.coverage.no_metadata_room += 1;
            return;
        }
        let device = DeviceId(device % 2);
        if held.places.iter().any(|p| p.id == PlaceId { device, kind: PlaceKind::Whole }) {
            return;
        }
        let Some(whole) = self.map.allocate(device) else {
            self.coverage.no_space += 1;
            return;
        };
        assert!(self.allocated.insert(Chunk::Whole(whole)), "{whole:?} was handed out twice");
        self.map.attach_place(key, whole);
        held.places.push(ModelPlace::whole(whole, 0..0));
        self.change(key, held, None);
    }

    pub(super) fn write(&mut self, key: ExtentKey, place: u8, run: Run, durable: bool) {
        let mut held = self.current(key);
        let wholes: Vec<_> = held.places.iter().filter_map(|p| p.whole).collect();
        if wholes.is_empty() {
            return;
        }
        let range = self.range(run);
        let whole = wholes[usize::from(place) % wholes.len()];
        let needs = (!durable).then(|| self.needs(whole.device));
        self.map.mark_written(key, whole, range, needs);
        held.fill(&whole.into(), range);
        held.narrow(Location::from(whole).id(), range);
        self.change(key, held, Some(needs));
    }

    /// Allocates slots for a run, if there are enough.
    fn slots(&mut self, device: DeviceId, range: BlockRange) -> Option<Location> {
        let at = self.map.allocate_slots(device, range.count);
        let Some(Location::Fine { slots, .. }) = &at else {
            self.coverage.no_space += 1;
            return None;
        };
        for slot in slots {
            assert!(self.allocated.insert(Chunk::Slot(device, *slot)), "{slot:?} was handed out twice");
        }
        at
    }

    pub(super) fn write_fine(&mut self, key: ExtentKey, device: u8, run: Run) {
        let (device, range) = (DeviceId(device % 2), self.range(run));
        let room =
            self.map.has_metadata_space() && self.may_have(key, PlaceId { device, kind: PlaceKind::Fine });
        let Some(at) = room.then(|| self.slots(device, range)).flatten() else { return };
        let needs = Some(self.needs(device));
        let mut held = self.current(key);
        self.map.mark_written(key, at.clone(), range, needs);
        held.fill(&at, range);
        held.narrow(at.id(), range);
        self.coverage.fine += 1;
        self.change(key, held, Some(needs));
    }

    /// Pending changes may have to be reverted, which may leave less space.
    fn may_have(&mut self, key: ExtentKey, id: PlaceId) -> bool {
        let mut held = self.current(key);
        let wholes = held.places.iter().filter(|p| p.whole.is_some()).count();
        let most = if id.kind == PlaceKind::Fine && wholes == 0 { 3 } else { 4 };
        let room = held.places.len() < most && (id.kind == PlaceKind::Fine || wholes < 2);
        let may = held.place(id).is_some() || room;
        let does = self.map.may_add_place(key, id);
        assert!(does == may || (may && self.map.has_pending(key)), "{key} may have {id:?}: {does}");
        does
    }

    /// Copies the first adjacent blocks that some place is valid for.
    pub(super) fn copy_valid_blocks(&mut self, key: ExtentKey, to: PlaceId, durable: bool) {
        let held = self.current(key);
        let Some(first) = (0..self.blocks).find(|b| held.holder_count(*b) > 0) else { return };
        let count = (first..self.blocks).take_while(|b| held.holder_count(*b) > 0).count() as u16;
        self.copy_range(key, to, BlockRange { first, count }, durable);
    }

    pub(super) fn copy(&mut self, key: ExtentKey, to: PlaceId, run: Run, durable: bool) {
        self.copy_range(key, to, self.range(run), durable);
    }

    fn copy_range(&mut self, key: ExtentKey, to: PlaceId, range: BlockRange, durable: bool) {
        let mut held = self.current(key);
        let all_held = (range.first..range.end()).all(|b| held.holder_count(b) > 0);
        if !self.may_have(key, to) || !self.map.has_metadata_space() {
            return;
        }
        let there = held.place(to).and_then(|p| p.whole);
        let at = match (to.kind, there) {
            (PlaceKind::Whole, Some(whole)) => Some(whole.into()),
            (PlaceKind::Whole, None) => self.map.allocate(to.device).map(|whole| {
                assert!(self.allocated.insert(Chunk::Whole(whole)), "{whole:?} was handed out twice");
                whole.into()
            }),
            (PlaceKind::Fine, _) => self.slots(to.device, range),
        };
        let Some(at) = at else { return };
        let source = (!durable).then(|| self.needs(DeviceId(1 - to.device.0)));
        let needs = (!durable).then(|| self.needs(to.device));
        let took = self.map.add_copy(key, at.clone(), range, source, needs);
        let mut copy = held.clone();
        copy.fill(&at, range);
        if took == CopyOutcome::Refused {
            assert!(!all_held, "{key}: a copy to {at:?} was refused");
            let mut fresh = ModelExtent::default();
            fresh.fill(&at, range);
            let unused = fresh.chunks().difference(&held.chunks()).copied().collect::<Vec<_>>();
            for chunk in unused {
                self.map.reuse(chunk);
                assert!(self.allocated.remove(&chunk));
            }
            return;
        }
        assert!(all_held, "{key}: a copy of what is nowhere");
        self.coverage.copies += 1;
        if source.is_some() {
            self.change(key, held, Some(source));
        }
        self.change(key, copy, Some(needs));
    }

    fn nth_place(&self, key: ExtentKey, place: u8) -> Option<PlaceId> {
        let places = self.current(key).places;
        (!places.is_empty()).then(|| places[usize::from(place) % places.len()].id)
    }

    pub(super) fn drop_place(&mut self, key: ExtentKey, place: u8, run: Run) {
        let Some(from) = self.nth_place(key, place) else { return };
        let range = self.range(run);
        let mut held = self.current(key);
        let blocks: Vec<_> = held.place(from).expect("named").blocks.keys().copied().collect();
        let may = blocks.iter().filter(|b| range.contains(**b)).all(|b| held.holder_count(*b) > 1);
        let record = held.space_reserved || !held.is_one_full(self.blocks);
        assert_eq!(self.map.drop_copy(key, from, range), may && record, "{key}: a drop from {from:?}");
        if may && record {
            held.place(from).expect("named").blocks.retain(|b, _| !range.contains(*b));
            self.coverage.drops += 1;
            self.change(key, held, Some(None));
        }
    }

    pub(super) fn narrow(&mut self, key: ExtentKey, place: u8, run: Run) {
        let Some(to) = self.nth_place(key, place) else { return };
        let range = self.range(run);
        let before = self.current(key);
        self.map.invalidate_others(key, to, range);
        let mut held = before.clone();
        held.narrow(to, range);
        let here: Vec<_> = held.place(to).expect("named").blocks.keys().copied().collect();
        held.intent.retain(|b| !(range.contains(*b) && here.contains(b) && before.holder_count(*b) > 1));
        if held != before {
            self.change(key, held.clone(), Some(None));
        }
        self.narrow_pending(key, &held, to);
    }

    /// Narrows the versions outside any commit so that the place is the only valid one for its present sole
    /// blocks; a version without needs precedes those that have some.
    fn narrow_pending(&mut self, key: ExtentKey, now: &ModelExtent, to: PlaceId) {
        let last_taken =
            self.effects[self.durable..].iter().rev().flat_map(|e| &e.extents).find(|(k, _)| *k == key);
        let taken = last_taken.map(|(_, held)| held).or(self.state.extents.get(&key));
        let mut first = taken.cloned().unwrap_or_default();
        let Some(live) = self.live.get_mut(&key) else { return };
        let Some(to) = now.places.iter().find(|p| p.id == to) else { return };
        let alone: Vec<u16> = to.blocks.keys().copied().filter(|b| now.holder_count(*b) == 1).collect();
        let narrow = |held: &mut ModelExtent| {
            let before = held.clone();
            for block in &alone {
                let one = BlockRange { first: *block, count: 1 };
                if held.differs_if_written(to, one) {
                    held.narrow(to.id, one);
                }
            }
            *held = held.after_recovery();
            *held != before
        };
        let waits = live.versions.first().is_some_and(|version| version.needs.is_some());
        live.versions.iter_mut().for_each(|version| {
            narrow(&mut version.held);
        });
        if waits && narrow(&mut first) {
            live.versions.insert(0, Version { needs: None, held: first });
            self.coverage.narrowed_first += 1;
        }
    }

    pub(super) fn open_intent(&mut self, key: ExtentKey, run: Run, settled: bool) {
        let range = self.range(run);
        let mut held = self.current(key);
        if held.places.is_empty() {
            return;
        }
        if settled {
            self.map.close_intent(key, range, [None; 2]);
            held.intent.retain(|b| !range.contains(*b));
        } else {
            self.map.open_intent(key, range);
            held.intent.extend(range.first..range.end());
        }
        self.change(key, held, Some(None));
    }

    /// Checks rule 3 of docs/internals/invariants.md against every state that exists or may come to exist.
    pub(super) fn check_overwrites(&self, key: ExtentKey) {
        let versions = self.live.get(&key).into_iter().flat_map(|l| l.versions.iter().map(|v| &v.held));
        let on_the_way = self.effects[self.durable..].iter().flat_map(|e| &e.extents);
        let on_the_way = on_the_way.filter(|(k, _)| *k == key).map(|(_, held)| held);
        let states: Vec<_> = versions.chain(on_the_way).chain(self.state.extents.get(&key)).collect();
        let current = self.current(key);
        for place in &current.places {
            for first in 0..self.blocks {
                let range = BlockRange { first, count: 1 };
                let strict = states.iter().any(|s| s.differs_if_written(place, range));
                let differs = strict || current.differs_if_written(place, range);
                if self.map.may_overwrite(key, place.id, range) {
                    assert!(!current.differs_if_written(place, range), "{key} block {first}");
                    // A version that another replaced before it was committed never becomes durable.
                    assert!(!self.state_differs(key, place, range), "{key} block {first}");
                } else {
                    assert!(differs, "{key} block {first} of {:?}", place.id);
                }
            }
        }
    }

    fn state_differs(&self, key: ExtentKey, now: &ModelPlace, range: BlockRange) -> bool {
        let on_the_way = self.effects[self.durable..].iter().flat_map(|e| &e.extents);
        let mut states = on_the_way.filter(|(k, _)| *k == key).map(|(_, held)| held);
        let durable = self.state.extents.get(&key);
        states.any(|s| s.differs_if_written(now, range))
            || durable.is_some_and(|s| s.differs_if_written(now, range))
    }

    pub(super) fn clear(&mut self, key: ExtentKey, run: Run, keep: SpaceReservation) {
        let range = self.range(run);
        self.map.clear_blocks(key, range, keep);
        let mut held = self.current(key);
        if held.places.is_empty() {
            return;
        }
        held.places.iter_mut().for_each(|p| p.blocks.retain(|b, _| !range.contains(*b)));
        held.intent.retain(|b| !range.contains(*b));
        held.space_reserved = match keep {
            SpaceReservation::Unchanged => held.space_reserved,
            SpaceReservation::Reserve => true,
            SpaceReservation::Release => false,
        };
        self.change(key, held, Some(None));
    }

    pub(super) fn release_empty_places(&mut self, key: ExtentKey) {
        self.map.release_empty_places(key);
        let mut held = self.current(key);
        let wholes = || held.places.iter().filter(|p| p.whole.is_some());
        let used = wholes().filter(|p| !p.blocks.is_empty()).count();
        let spare = if held.space_reserved { usize::from(held.copies).saturating_sub(used) } else { 0 };
        let kept: Vec<_> = wholes().filter(|p| p.blocks.is_empty()).map(|p| p.id).take(spare).collect();
        let before = held.places.len();
        held.places.retain(|p| !p.blocks.is_empty() || kept.contains(&p.id));
        if held.places.len() < before {
            if held.places.is_empty() {
                held = ModelExtent { copies: held.copies, ..ModelExtent::default() };
            }
            self.change(key, held, Some(None));
        }
    }
}
