//! The naive twin of the map: sorted maps of every extent's blocks.

use std::collections::{BTreeMap, BTreeSet};
use weir_map::delta::Delta;
use weir_map::{Chunk, Epoch, ExtentState, Intent, Location, Map, Needs, Record, Slot, Value, Whole};
use weir_model::{BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, PlaceId, PlaceKind, VolumeId};

/// A place: the location of each valid block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPlace {
    pub id: PlaceId,
    /// The extent of a whole place.
    pub whole: Option<Whole>,
    pub blocks: BTreeMap<u16, Slot>,
}

/// The places of an extent, its reservation, the blocks with a write intent, and the copies wanted.
#[derive(Clone, Debug)]
pub struct ModelExtent {
    pub places: Vec<ModelPlace>,
    pub space_reserved: bool,
    pub intent: BTreeSet<u16>,
    pub copies: u8,
}

impl Default for ModelExtent {
    fn default() -> Self {
        Self { places: Vec::new(), space_reserved: false, intent: BTreeSet::new(), copies: 1 }
    }
}

/// Returns how many copies histories want of a volume's extents.
pub fn copies_of(volume: VolumeId) -> u8 {
    1 + (volume.0 % 2) as u8
}

/// The number of copies of an unmapped extent is not recorded.
impl PartialEq for ModelExtent {
    fn eq(&self, other: &Self) -> bool {
        let alike = self.copies == other.copies || self.places.is_empty();
        alike
            && (&self.places, self.space_reserved, &self.intent)
                == (&other.places, other.space_reserved, &other.intent)
    }
}

impl Eq for ModelExtent {}

impl ModelPlace {
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

impl ModelExtent {
    /// Returns its form in the durable map: without empty places, unless space is reserved.
    pub fn after_recovery(&self) -> Self {
        let mut held = self.clone();
        if !held.space_reserved {
            held.places.retain(|place| !place.blocks.is_empty());
        }
        if held.places.is_empty() {
            held.space_reserved = false;
            held.intent.clear();
        }
        held
    }

    /// Whether it is a full whole place, and has no more places, copies or intents.
    pub fn is_one_full(&self, blocks: u16) -> bool {
        let [place] = &self.places[..] else { return false };
        let says_no_more = self.intent.is_empty() && self.copies == 1;
        place.whole.is_some() && place.blocks.len() == usize::from(blocks) && says_no_more
    }

    pub fn chunks(&self) -> BTreeSet<Chunk> {
        self.places.iter().flat_map(ModelPlace::chunks).collect()
    }

    pub fn place(&mut self, id: PlaceId) -> Option<&mut ModelPlace> {
        self.places.iter_mut().find(|p| p.id == id)
    }

    /// Returns how many places are valid for the block.
    pub fn holder_count(&self, block: u16) -> usize {
        self.places.iter().filter(|p| p.blocks.contains_key(&block)).count()
    }

    /// Whether this state would take a place for a copy of another one although the two differ, once blocks
    /// of the place are overwritten at their present location: blocks that another place is valid for, and
    /// that no intent covers.
    pub fn differs_if_written(&self, now: &ModelPlace, range: BlockRange) -> bool {
        let Some(place) = self.places.iter().find(|p| p.id == now.id) else { return false };
        let is_there = |b: &u16| {
            let slot = place.blocks.get(b);
            slot.is_some_and(|slot| now.blocks.get(b).is_none_or(|now| now == slot))
        };
        let mut blocks = (range.first..range.end()).filter(is_there);
        blocks.any(|b| self.holder_count(b) > 1 && !(self.copies > 1 && self.intent.contains(&b)))
    }

    /// Makes the blocks valid in the place, in these slots (or in place in a whole one).
    pub fn fill(&mut self, at: &Location, range: BlockRange) {
        if self.place(at.id()).is_none() {
            let whole = match at {
                Location::Whole(whole) => Some(*whole),
                Location::Fine { .. } => None,
            };
            self.places.push(ModelPlace { id: at.id(), whole, blocks: BTreeMap::new() });
        }
        for (i, block) in (range.first..range.end()).enumerate() {
            let slot = match at {
                Location::Whole(whole) => Slot { extent: whole.extent, block },
                Location::Fine { slots, .. } => slots[i],
            };
            self.place(at.id()).expect("just made").blocks.insert(block, slot);
        }
    }

    /// Makes every other place invalid for the blocks of the range that this place is valid for.
    pub fn narrow(&mut self, id: PlaceId, range: BlockRange) {
        let Some(place) = self.place(id) else { return };
        let held: Vec<_> = place.blocks.keys().copied().filter(|b| range.contains(*b)).collect();
        for place in self.places.iter_mut().filter(|p| p.id != id) {
            place.blocks.retain(|b, _| !held.contains(b));
        }
    }

    pub fn of_record(record: &Record) -> Self {
        Self {
            places: record.places.iter().map(ModelPlace::of).collect(),
            space_reserved: record.space_reserved,
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

    pub fn of_found(found: &ExtentState<'_>, blocks: u16) -> Self {
        match found {
            ExtentState::Empty => Self::default(),
            ExtentState::Direct(whole) => Self::full(*whole, blocks),
            ExtentState::Record(record) => Self::of_record(record),
        }
    }

    pub fn full(whole: Whole, blocks: u16) -> Self {
        Self { places: vec![ModelPlace::whole(whole, 0..blocks)], ..Self::default() }
    }
}

/// The durable state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub volumes: BTreeMap<VolumeId, (String, Bytes)>,
    pub intents: BTreeMap<u32, Intent>,
    pub extents: BTreeMap<ExtentKey, ModelExtent>,
}

impl State {
    /// Returns the durable state of an opened map.
    pub fn of(map: &Map) -> Self {
        let catalogue = map.catalogue();
        let mut state = Self { intents: catalogue.intents.clone(), ..Self::default() };
        for (id, volume) in &catalogue.volumes {
            state.volumes.insert(*id, (volume.name.clone(), volume.size));
            map.for_each(*id, |index, value| {
                let held = ModelExtent::of_value(value, map.extent().blocks());
                state.extents.insert(ExtentKey { volume: *id, index }, held);
            });
        }
        state
    }

    /// Applies a frame's changes.
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

    /// Returns the state after a recovery: for intended blocks, only the first valid place stays valid.
    pub fn recovered(mut self) -> Self {
        for held in self.extents.values_mut() {
            for block in std::mem::take(&mut held.intent) {
                if let Some(id) = held.places.iter().find(|p| p.blocks.contains_key(&block)).map(|p| p.id) {
                    held.narrow(id, BlockRange { first: block, count: 1 });
                }
            }
            *held = held.after_recovery();
        }
        self.extents.retain(|_, held| !held.places.is_empty());
        self
    }

    /// Returns all space that some extent names; panics if two name the same.
    pub fn owned(&self) -> BTreeSet<Chunk> {
        let mut owned = BTreeSet::new();
        for (key, held) in &self.extents {
            for chunk in held.places.iter().flat_map(ModelPlace::chunks) {
                assert!(owned.insert(chunk), "{chunk:?} has two owners, one is {key}");
            }
        }
        owned
    }
}

/// The changes of a frame, and its location.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The byte offset on the metadata device.
    pub at: u64,
    pub bytes: Vec<u8>,
    pub sequence: u64,
    /// The highest sequence that it says is durable.
    pub durable: u64,
    pub admin: Vec<Delta>,
    pub extents: Vec<(ExtentKey, ModelExtent)>,
}

/// A state that an extent passed through.
#[derive(Clone, Debug)]
pub struct Version {
    pub needs: Option<Needs>,
    /// The value, settled.
    pub held: ModelExtent,
}

/// An extent with changes that are not durable.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub current: ModelExtent,
    pub versions: Vec<Version>,
}

/// A simplified model of a device's flush epochs.
#[derive(Clone, Copy, Debug, Default)]
pub struct MiniDevice {
    pub epoch: u64,
    pub flushed: Option<Epoch>,
}

impl Live {
    /// Returns how many versions, oldest first, are ready to commit.
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
