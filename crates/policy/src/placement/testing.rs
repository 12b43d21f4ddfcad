//! A small pool for the tests of policies, with a map that the test sets.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{
    BlockRange, Bytes, ExtentIndex, ExtentKey, ExtentSize, Hint, Op, PlaceId, PlaceKind, Rng, Seed, VolumeId,
};

/// A pool that executes actions at once.
pub(super) struct Pool {
    pub(super) now: Nanos,
    pub(super) devices: Vec<DeviceView>,
    /// The number of questions so far.
    questions: u64,
    pub(super) random: Rng,
    pub(super) map: Map,
}

/// The valid blocks, one bit each, of the places of each extent; and the extents that are in memory.
#[derive(Default)]
pub(super) struct Map(pub(super) BTreeMap<ExtentKey, BTreeMap<PlaceId, u32>>, pub(super) BTreeSet<ExtentKey>);

impl Map {
    fn view(&self, key: ExtentKey, blocks: u32) -> Places {
        let Some(places) = self.0.get(&key) else { return Places::NONE };
        let view = |(id, valid): (&PlaceId, &u32)| {
            let others =
                places.iter().filter(|(other, _)| *other != id).fold(0, |all, (_, valid)| all | valid);
            let wholes = places.iter().filter(|(id, _)| id.kind == PlaceKind::Whole);
            let wholes = wholes.fold(0, |all, (_, valid)| all | valid);
            PlaceView {
                id: *id,
                blocks: (valid & blocks).count_ones() as u16,
                of_extent: valid.count_ones() as u16,
                sole: (valid & !others).count_ones() as u16,
                dirty: (valid & !wholes).count_ones() as u16,
            }
        };
        places.iter().map(view).collect()
    }

    pub(super) fn places(&self, key: ExtentKey) -> Places {
        self.view(key, u32::MAX)
    }

    /// Puts all of an extent in one place.
    pub(super) fn put(&mut self, index: u64, place: PlaceId) {
        self.0.insert(key(index), BTreeMap::from([(place, u32::MAX)]));
    }
}

impl PlaceLookup for Map {
    fn places(&self, key: ExtentKey) -> Places {
        self.view(key, u32::MAX)
    }

    fn is_in_memory_besides(&self, key: ExtentKey, _: BlockRange) -> bool {
        self.1.contains(&key)
    }

    fn next(&self, from: ExtentKey) -> Option<ExtentKey> {
        self.0.range(from..).next().map(|(key, _)| *key)
    }
}

fn mask(blocks: BlockRange) -> u32 {
    (((1u64 << blocks.count) - 1) << blocks.first) as u32
}

pub(super) fn key(index: u64) -> ExtentKey {
    ExtentKey { volume: VolumeId(1), index: ExtentIndex(index) }
}

pub(super) fn whole(device: u8) -> PlaceId {
    PlaceId { device: DeviceId(device), kind: PlaceKind::Whole }
}

pub(super) fn fine(device: u8) -> PlaceId {
    PlaceId { device: DeviceId(device), kind: PlaceKind::Fine }
}

/// Returns a device with this many extents; its idle response is in microseconds.
pub(super) fn device(id: u8, extents: u32, idle_us: u64) -> DeviceView {
    DeviceView { idle_response: Nanos::micros(idle_us), ..DeviceView::new(DeviceId(id), extents) }
}

impl Pool {
    pub(super) fn new(devices: Vec<DeviceView>) -> Self {
        Self { now: Nanos(0), devices, questions: 0, random: Rng::new(Seed(1)), map: Map::default() }
    }

    /// Asks a question. Also returns the actions requested.
    pub(super) fn ask<T>(&mut self, question: impl FnOnce(&mut PolicyContext<'_>) -> T) -> (T, Vec<Action>) {
        let mut actions = Vec::new();
        // The devices may have been changed since.
        self.questions += 1;
        let mut context = PolicyContext {
            now: self.now,
            devices: &self.devices,
            measured: self.questions,
            extent: ExtentSize::DEFAULT,
            map: &self.map,
            random: &mut self.random,
            actions: &mut actions,
            actions_max: 64,
        };
        let answer = question(&mut context);
        (answer, actions)
    }

    /// Returns an access of this length to the first blocks of an extent.
    pub(super) fn access(&self, index: u64, op: Op, bytes: Bytes) -> Access {
        self.access_at(index, 0, op, bytes)
    }

    /// Returns an access of this length from a block of an extent on.
    pub(super) fn access_at(&self, index: u64, first: u16, op: Op, bytes: Bytes) -> Access {
        let blocks = BlockRange { first, count: bytes.0.div_ceil(4096) as u16 };
        let places = self.map.view(key(index), mask(blocks));
        Access { key: key(index), blocks, op, bytes, run: bytes, hint: Hint::None, places }
    }

    /// Executes actions, at once and completely.
    pub(super) fn act(&mut self, actions: &[Action]) {
        for action in actions {
            let Some(places) = self.map.0.get_mut(&action.key()) else { continue };
            let all = places.values().fold(0, |all, valid| all | valid);
            match action {
                Action::Copy { blocks, to, .. } => *places.entry(*to).or_default() |= mask(*blocks) & all,
                Action::Move { blocks, to, .. } => {
                    *places.entry(*to).or_default() |= mask(*blocks) & all;
                    places
                        .iter_mut()
                        .filter(|(id, _)| *id != to)
                        .for_each(|(_, valid)| *valid &= !mask(*blocks));
                }
                Action::Drop { blocks, from, .. } => {
                    let counts = |id: &PlaceId| id.kind == PlaceKind::Whole || from.kind == PlaceKind::Whole;
                    let others = places.iter().filter(|(id, _)| *id != from && counts(id));
                    let others = others.fold(0, |all, (_, v)| all | v);
                    if let Some(valid) = places.get_mut(from) {
                        *valid &= !(mask(*blocks) & others);
                    }
                }
                Action::Refresh { .. } => {
                    let wholes = places.iter_mut().filter(|(id, _)| id.kind == PlaceKind::Whole);
                    wholes.for_each(|(_, valid)| *valid = all);
                }
            }
            places.retain(|_, valid| *valid != 0);
        }
    }

    /// Writes blocks as the engine does: reports the access to the policy and asks for the target.
    pub(super) fn write(
        &mut self,
        policy: &mut dyn Placement,
        index: u64,
        first: u16,
        bytes: Bytes,
    ) -> WriteTo {
        let access = self.access_at(index, first, Op::Write, bytes);
        let (to, actions) = self.ask(|context| policy.write(context, &access));
        let fine = match to {
            WriteTo::Fine(device) => Some(fine(device.0)),
            WriteTo::FineDuplexed([device, _]) => Some(fine(device.0)),
            WriteTo::Whole(device) => Some(whole(device.0)),
            WriteTo::InPlace => None,
        };
        for block in access.blocks.first..access.blocks.end() {
            let one = mask(BlockRange { first: block, count: 1 });
            let holders =
                self.map.0.get(&key(index)).into_iter().flatten().filter(|(_, valid)| *valid & one != 0);
            let holders: Vec<_> = holders.map(|(id, _)| id.kind).collect();
            if fine.is_none() && holders == [PlaceKind::Fine, PlaceKind::Fine] {
                // Duplexed blocks in slots of two devices stay there.
                continue;
            }
            let holding =
                self.map.0.get(&key(index)).into_iter().flatten().find(|(_, valid)| *valid & one != 0);
            // Fine slots, else the present place, else the whole place, created if there is none.
            let place = fine.or(holding.map(|(id, _)| *id));
            let place = place.or_else(|| self.map.places(key(index)).whole(|_| true).map(|p| p.id));
            let place = place.or_else(|| {
                let device = self.ask(|context| policy.allocate(context, &access)).0?;
                Some(PlaceId { device, kind: PlaceKind::Whole })
            });
            let places = self.map.0.entry(key(index)).or_default();
            places.values_mut().for_each(|valid| *valid &= !one);
            if let Some(place) = place {
                *places.entry(place).or_default() |= one;
            }
            if let WriteTo::FineDuplexed([_, second]) = to {
                *places.entry(self::fine(second.0)).or_default() |= one;
            }
            places.retain(|_, valid| *valid != 0);
        }
        self.act(&actions);
        to
    }

    /// Reads blocks as the engine does.
    pub(super) fn read(&mut self, policy: &mut dyn Placement, index: u64, first: u16, bytes: Bytes) {
        let access = self.access_at(index, first, Op::Read, bytes);
        let (_, actions) = self.ask(|context| policy.accessed(context, &access));
        self.act(&actions);
    }

    /// Makes the first write to an extent. Returns the allocated device, if there is space.
    pub(super) fn allocate(&mut self, policy: &mut dyn Placement, index: u64) -> Option<DeviceId> {
        let access = self.access(index, Op::Write, ExtentSize::DEFAULT.bytes());
        let device = self.ask(|context| policy.allocate(context, &access)).0?;
        self.devices[device.index()].free -= 1;
        self.map.put(index, whole(device.0));
        Some(device)
    }

    /// Runs a round.
    pub(super) fn round(&mut self, policy: &mut dyn Placement) -> Vec<Action> {
        self.ask(|context| policy.round(context)).1
    }
}
