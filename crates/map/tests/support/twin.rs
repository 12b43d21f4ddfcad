//! The naive twin of the map: sorted maps of what every extent holds.

use std::collections::{BTreeMap, BTreeSet};
use weir_map::delta::Delta;
use weir_map::{Chunk, Epoch, Found, Intent, Location, Map, Needs, Record, Slot, Value, Whole};
use weir_model::{BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, PlaceId, PlaceKind, VolumeId};

/// A place: where each block it holds is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPlace {
    pub id: PlaceId,
    /// Of a whole place.
    pub whole: Option<Whole>,
    pub blocks: BTreeMap<u16, Slot>,
}

/// The places of an extent, whether space is kept, the blocks with a write intent, and the copies wanted.
#[derive(Clone, Debug)]
pub struct Held {
    pub places: Vec<HeldPlace>,
    pub keep: bool,
    pub intent: BTreeSet<u16>,
    pub copies: u8,
}

impl Default for Held {
    fn default() -> Self {
        Self { places: Vec::new(), keep: false, intent: BTreeSet::new(), copies: 1 }
    }
}

/// How many copies histories want of a volume's extents.
pub fn copies_of(volume: VolumeId) -> u8 {
    1 + (volume.0 % 2) as u8
}

/// Nothing says how many copies are wanted of what is nowhere.
impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        let alike = self.copies == other.copies || self.places.is_empty();
        alike && (&self.places, self.keep, &self.intent) == (&other.places, other.keep, &other.intent)
    }
}

impl Eq for Held {}

impl HeldPlace {
    pub fn whole(whole: Whole, blocks: impl Iterator<Item = u16>) -> Self {
        let id = PlaceId { device: whole.device, kind: PlaceKind::Whole };
        let slot = |block| (block, Slot { extent: whole.extent, block });
        Self { id, whole: Some(whole), blocks: blocks.map(slot).collect() }
    }

    fn of(place: &weir_map::Place) -> Self {
        let whole = match place.at {
            Location::Whole(whole) => Some(whole),
            Location::Fine { .. } => None,
        };
        let slot = |block| (block, place.slot(block).expect("a slot for every block it holds"));
        Self { id: place.at.id(), whole, blocks: place.valid.iter().map(slot).collect() }
    }

    fn chunks(&self) -> Vec<Chunk> {
        match self.whole {
            Some(whole) => vec![Chunk::Whole(whole)],
            None => self.blocks.values().map(|slot| Chunk::Slot(self.id.device, *slot)).collect(),
        }
    }
}

impl Held {
    /// As it is in the durable map: places that hold nothing are not there, unless kept.
    pub fn settled(&self) -> Self {
        let mut held = self.clone();
        if !held.keep {
            held.places.retain(|place| !place.blocks.is_empty());
        }
        if held.places.is_empty() {
            held.keep = false;
            held.intent.clear();
        }
        held
    }

    /// A whole place, full, and no more places, copies or intents.
    pub fn is_one_full(&self, blocks: u16) -> bool {
        let [place] = &self.places[..] else { return false };
        let says_no_more = self.intent.is_empty() && self.copies == 1;
        place.whole.is_some() && place.blocks.len() == usize::from(blocks) && says_no_more
    }

    pub fn chunks(&self) -> BTreeSet<Chunk> {
        self.places.iter().flat_map(HeldPlace::chunks).collect()
    }

    pub fn place(&mut self, id: PlaceId) -> Option<&mut HeldPlace> {
        self.places.iter_mut().find(|p| p.id == id)
    }

    /// How many places hold the block.
    pub fn holders(&self, block: u16) -> usize {
        self.places.iter().filter(|p| p.blocks.contains_key(&block)).count()
    }

    /// Whether this state would take a place for a copy of another one, and the two differ, once blocks of the place
    /// are written where it is now: blocks another place holds, and no intent covers that says so of copies.
    pub fn differs_if_written(&self, now: &HeldPlace, range: BlockRange) -> bool {
        let Some(place) = self.places.iter().find(|p| p.id == now.id) else { return false };
        let is_there = |b: &u16| {
            let slot = place.blocks.get(b);
            slot.is_some_and(|slot| now.blocks.get(b).is_none_or(|now| now == slot))
        };
        let mut blocks = (range.first..range.end()).filter(is_there);
        blocks.any(|b| self.holders(b) > 1 && !(self.copies > 1 && self.intent.contains(&b)))
    }

    /// The blocks are in the place, at these slots (or where they are in a whole one).
    pub fn fill(&mut self, at: &Location, range: BlockRange) {
        if self.place(at.id()).is_none() {
            let whole = match at {
                Location::Whole(whole) => Some(*whole),
                Location::Fine { .. } => None,
            };
            self.places.push(HeldPlace { id: at.id(), whole, blocks: BTreeMap::new() });
        }
        for (i, block) in (range.first..range.end()).enumerate() {
            let slot = match at {
                Location::Whole(whole) => Slot { extent: whole.extent, block },
                Location::Fine { slots, .. } => slots[i],
            };
            self.place(at.id()).expect("just made").blocks.insert(block, slot);
        }
    }

    /// No place but this one holds what it holds of the range.
    pub fn narrow(&mut self, id: PlaceId, range: BlockRange) {
        let Some(place) = self.place(id) else { return };
        let held: Vec<_> = place.blocks.keys().copied().filter(|b| range.contains(*b)).collect();
        for place in self.places.iter_mut().filter(|p| p.id != id) {
            place.blocks.retain(|b, _| !held.contains(b));
        }
    }

    pub fn of_record(record: &Record) -> Self {
        Self {
            places: record.places.iter().map(HeldPlace::of).collect(),
            keep: record.keep,
            intent: record.intent.iter().flat_map(|i| i.iter()).collect(),
            copies: record.copies,
        }
    }

    pub fn of_value(value: &Value, blocks: u16) -> Self {
        match value {
            Value::Empty => Self::default(),
            Value::Direct(whole) => Self::full(*whole, blocks),
            Value::Record(record) => Self::of_record(record),
        }
    }

    pub fn of_found(found: &Found<'_>, blocks: u16) -> Self {
        match found {
            Found::Empty => Self::default(),
            Found::Direct(whole) => Self::full(*whole, blocks),
            Found::Record(record) => Self::of_record(record),
        }
    }

    pub fn full(whole: Whole, blocks: u16) -> Self {
        Self { places: vec![HeldPlace::whole(whole, 0..blocks)], ..Self::default() }
    }
}

/// Everything durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub volumes: BTreeMap<VolumeId, (String, Bytes)>,
    pub intents: BTreeMap<u32, Intent>,
    pub extents: BTreeMap<ExtentKey, Held>,
}

impl State {
    /// What an opened map says is durable.
    pub fn of(map: &Map) -> Self {
        let catalogue = map.catalogue();
        let mut state = Self { intents: catalogue.intents.clone(), ..Self::default() };
        for (id, volume) in &catalogue.volumes {
            state.volumes.insert(*id, (volume.name.clone(), volume.size));
            map.for_each(*id, |index, value| {
                let held = Held::of_value(value, map.extent().blocks());
                state.extents.insert(ExtentKey { volume: *id, index }, held);
            });
        }
        state
    }

    /// A frame's worth of changes.
    pub fn apply(&mut self, effect: &Effect) {
        for delta in &effect.admin {
            match delta.clone() {
                Delta::Volume { id, name, size, .. } => drop(self.volumes.insert(id, (name, size))),
                Delta::DropVolume { id } => drop(self.volumes.remove(&id)),
                Delta::Intent { id, intent } => drop(self.intents.insert(id, intent)),
                Delta::EndIntent { id } => drop(self.intents.remove(&id)),
                other => panic!("{other:?} was never queued"),
            }
        }
        for (key, held) in &effect.extents {
            if held.places.is_empty() {
                self.extents.remove(key);
            } else {
                self.extents.insert(*key, held.clone());
            }
        }
    }

    /// After a recovery: of intended blocks the first place that holds one keeps it.
    pub fn recovered(mut self) -> Self {
        for held in self.extents.values_mut() {
            for block in std::mem::take(&mut held.intent) {
                if let Some(id) = held.places.iter().find(|p| p.blocks.contains_key(&block)).map(|p| p.id) {
                    held.narrow(id, BlockRange { first: block, count: 1 });
                }
            }
            *held = held.settled();
        }
        self.extents.retain(|_, held| !held.places.is_empty());
        self
    }

    /// Everything some extent names; panics if two name the same.
    pub fn owned(&self) -> BTreeSet<Chunk> {
        let mut owned = BTreeSet::new();
        for (key, held) in &self.extents {
            for chunk in held.places.iter().flat_map(HeldPlace::chunks) {
                assert!(owned.insert(chunk), "{chunk:?} has two owners, one is {key}");
            }
        }
        owned
    }
}

/// What a frame changes, and where it went.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Byte offset on the metadata device.
    pub at: u64,
    pub bytes: Vec<u8>,
    pub sequence: u64,
    /// Highest sequence it calls durable.
    pub durable: u64,
    pub admin: Vec<Delta>,
    pub extents: Vec<(ExtentKey, Held)>,
}

/// A state an extent passed through.
#[derive(Clone, Debug)]
pub struct Version {
    pub needs: Option<Needs>,
    /// Settled.
    pub held: Held,
}

/// An extent with changes that are not durable.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub current: Held,
    pub versions: Vec<Version>,
}

/// A device's flush epochs in miniature.
#[derive(Clone, Copy, Debug, Default)]
pub struct MiniDevice {
    pub epoch: u64,
    pub flushed: Option<Epoch>,
}

impl Live {
    /// How many versions, oldest first, are ready to commit.
    pub fn ready(&self, devices: &[MiniDevice]) -> usize {
        let is_ready = |v: &&Version| {
            v.needs.is_none_or(|n| devices[n.device.index()].flushed.is_some_and(|f| f >= n.epoch))
        };
        self.versions.iter().take_while(is_ready).count()
    }
}

pub fn key(volume: VolumeId, index: u64) -> ExtentKey {
    ExtentKey { volume, index: ExtentIndex(index) }
}

pub fn whole(device: u8, extent: u32) -> Whole {
    Whole { device: DeviceId(device), extent: weir_model::DeviceExtent(extent) }
}
