//! What is on the fast device: the remap area with its resident list, and the write-back area with
//! what is dirty in it. Counts are what was seen last; the map knows better, and is asked before
//! anything is done.

use crate::Lru;
use crate::placement::{PlaceView, Places};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{ExtentKey, PlaceId};

/// How many of an extent's blocks are on the fast device, and how many of these are not at home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) blocks: u16,
    pub(super) dirty: u16,
}

impl Extent {
    /// As the map has it.
    pub(super) fn of(places: &Places, fine: PlaceId) -> Self {
        places.place(fine).map_or(Self::default(), |place| Self::of_place(&place))
    }

    /// … in its slots on the fast device.
    pub(super) fn of_place(place: &PlaceView) -> Self {
        Self { blocks: place.of_extent, dirty: place.dirty }
    }

    /// With so many more clean ones, of at most `all`.
    pub(super) fn with_clean(self, more: u16, all: u16) -> Self {
        Self { blocks: (self.blocks + more).min(all), ..self }
    }

    /// After a write to so many, of which so many are new there.
    pub(super) fn with_dirty(self, written: u16, fresh: u16, all: u16) -> Self {
        Self { blocks: (self.blocks + fresh).min(all), dirty: (self.dirty + written).min(all) }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Areas {
    residents: Lru<ExtentKey, Extent>,
    buffered: Lru<ExtentKey, Extent>,
    resident_blocks: u64,
    buffered_blocks: u64,
    dirty: u64,
    /// Buffered extents with dirty blocks, by home address; where the scrubber is.
    dirty_order: BTreeSet<ExtentKey>,
    at: ExtentKey,
    /// Extents to be scrubbed already, and how many rounds ago.
    asked: BTreeMap<ExtentKey, u8>,
}

/// Rounds after which an extent that is still dirty is asked for again.
const PATIENCE: u8 = 20;
/// Extents looked at for a clean one.
const LOOKS: usize = 256;

impl Default for Areas {
    fn default() -> Self {
        let unbounded = || Lru::new(usize::MAX);
        Self {
            residents: unbounded(),
            buffered: unbounded(),
            resident_blocks: 0,
            buffered_blocks: 0,
            dirty: 0,
            dirty_order: BTreeSet::new(),
            at: ExtentKey::default(),
            asked: BTreeMap::new(),
        }
    }
}

impl Areas {
    pub(super) fn resident_blocks(&self) -> u64 {
        self.resident_blocks
    }

    pub(super) fn buffered_blocks(&self) -> u64 {
        self.buffered_blocks
    }

    /// Of both areas.
    pub(super) fn blocks(&self) -> u64 {
        self.resident_blocks + self.buffered_blocks
    }

    /// Dirty blocks of the write-back area.
    pub(super) fn dirty(&self) -> u64 {
        self.dirty
    }

    pub(super) fn knows(&self, key: ExtentKey) -> bool {
        self.is_resident(key) || self.buffered.get(&key).is_some()
    }

    pub(super) fn is_resident(&self, key: ExtentKey) -> bool {
        self.residents.get(&key).is_some()
    }

    /// It was used: to the top of its list.
    pub(super) fn touch(&mut self, key: ExtentKey) {
        if self.residents.touch(key).is_none() {
            self.buffered.touch(key);
        }
    }

    /// It is in neither area.
    pub(super) fn forget(&mut self, key: ExtentKey) {
        if let Some(old) = self.residents.remove(&key) {
            self.resident_blocks -= u64::from(old.blocks);
        }
        if let Some(old) = self.buffered.remove(&key) {
            self.buffered_blocks -= u64::from(old.blocks);
            self.dirty -= u64::from(old.dirty);
        }
        self.dirty_order.remove(&key);
        self.asked.remove(&key);
    }

    /// It is in the remap area.
    pub(super) fn remapped(&mut self, key: ExtentKey, extent: Extent) {
        if let Some(known) = self.residents.touch(key) {
            self.resident_blocks = self.resident_blocks + u64::from(extent.blocks) - u64::from(known.blocks);
            *known = extent;
            return;
        }
        self.forget(key);
        self.residents.insert(key, extent);
        self.resident_blocks += u64::from(extent.blocks);
    }

    /// It is in the write-back area.
    pub(super) fn buffered(&mut self, key: ExtentKey, extent: Extent) {
        if let Some(known) = self.buffered.touch(key).filter(|known| known.dirty > 0 && extent.dirty > 0) {
            // It stays as it is in the order of what is dirty, and is scrubbed if that was asked for.
            self.buffered_blocks = self.buffered_blocks + u64::from(extent.blocks) - u64::from(known.blocks);
            self.dirty = self.dirty + u64::from(extent.dirty) - u64::from(known.dirty);
            *known = extent;
            return;
        }
        let asked = self.asked.get(&key).copied();
        self.forget(key);
        self.buffered.insert(key, extent);
        self.buffered_blocks += u64::from(extent.blocks);
        self.dirty += u64::from(extent.dirty);
        if extent.dirty > 0 {
            self.dirty_order.insert(key);
            if let Some(rounds) = asked {
                self.asked.insert(key, rounds);
            }
        }
    }

    /// What the map has of a buffered extent; it keeps its place in the list.
    pub(super) fn saw(&mut self, key: ExtentKey, extent: Extent) {
        let Some(known) = self.buffered.get_mut(&key) else { return };
        let old = std::mem::replace(known, extent);
        self.buffered_blocks = self.buffered_blocks + u64::from(extent.blocks) - u64::from(old.blocks);
        self.dirty = self.dirty + u64::from(extent.dirty) - u64::from(old.dirty);
        if extent.dirty > 0 {
            self.dirty_order.insert(key);
        } else {
            self.dirty_order.remove(&key);
        }
        if extent.blocks == 0 {
            self.forget(key);
        }
    }

    /// The bottom of the resident list.
    pub(super) fn oldest_resident(&self) -> Option<ExtentKey> {
        self.residents.iter_oldest().next().map(|(key, _)| key)
    }

    /// The clean extent of the write-back area used longest ago, if it is among the oldest.
    pub(super) fn oldest_clean(&self) -> Option<ExtentKey> {
        self.buffered.iter_oldest().take(LOOKS).find(|(_, e)| e.dirty == 0).map(|(key, _)| key)
    }

    /// Looks again at the extents that are to be scrubbed.
    pub(super) fn look_at_asked(&mut self, mut places: impl FnMut(ExtentKey) -> Extent) {
        for (key, rounds) in std::mem::take(&mut self.asked) {
            let extent = places(key);
            self.saw(key, extent);
            if extent.dirty > 0 && rounds < PATIENCE {
                self.asked.insert(key, rounds + 1);
            }
        }
    }

    /// Dirty blocks beside those of extents that are to be scrubbed already.
    pub(super) fn dirty_not_asked(&self) -> u64 {
        let asked = self.asked.keys().filter_map(|key| self.buffered.get(key));
        self.dirty.saturating_sub(asked.map(|e| u64::from(e.dirty)).sum())
    }

    /// The next extent to be scrubbed, in home order, again and again; it counts as asked for.
    pub(super) fn next_dirty(&mut self) -> Option<ExtentKey> {
        let free = |key: &&ExtentKey| !self.asked.contains_key(*key);
        let next = self.dirty_order.range(self.at..).find(free);
        let key = *next.or_else(|| self.dirty_order.range(..self.at).find(free))?;
        self.at = ExtentKey { index: weir_model::ExtentIndex(key.index.0 + 1), ..key };
        self.asked.insert(key, 0);
        Some(key)
    }
}
