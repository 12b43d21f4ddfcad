//! The naive twin of the map: sorted maps of what every extent holds.

use std::collections::{BTreeMap, BTreeSet};
use weir_map::delta::Delta;
use weir_map::{Epoch, Found, Intent, Location, Map, Needs, Record, Value, Whole};
use weir_model::{BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, VolumeId};

/// The places of an extent with a bit per valid block (extents have at most 64), and whether space
/// is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub places: Vec<(Whole, u64)>,
    pub keep: bool,
}

pub fn bits(range: BlockRange) -> u64 {
    (range.first..range.end()).fold(0, |bits, block| bits | 1 << block)
}

impl Held {
    /// As it is in the durable map: places that hold nothing are not there, unless kept.
    pub fn settled(&self, blocks: u16) -> Self {
        let mut held = self.clone();
        if !held.keep {
            held.places.retain(|(_, valid)| *valid != 0);
        }
        held.keep &= !held.places.is_empty() && !held.is_one_full(blocks);
        held
    }

    pub fn is_one_full(&self, blocks: u16) -> bool {
        self.places.len() == 1 && self.places[0].1 == bits(BlockRange { first: 0, count: blocks })
    }

    pub fn of_record(record: &Record) -> Self {
        let place = |place: &weir_map::Place| match place.at {
            Location::Whole(whole) => (whole, place.valid.iter().fold(0, |bits, block| bits | 1 << block)),
            Location::Fine { .. } => panic!("nobody made a fine place"),
        };
        Self { places: record.places.iter().map(place).collect(), keep: record.keep }
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
        Self { places: vec![(whole, bits(BlockRange { first: 0, count: blocks }))], keep: false }
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

    /// Every place some extent names; panics if two name the same.
    pub fn owned(&self) -> BTreeSet<Whole> {
        let mut owned = BTreeSet::new();
        for (key, held) in &self.extents {
            for (whole, _) in &held.places {
                assert!(owned.insert(*whole), "{whole:?} has two owners, one is {key}");
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
