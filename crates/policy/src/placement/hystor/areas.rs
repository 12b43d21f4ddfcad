//! The content of the fast device: the remap area with its resident list, and the write-back area with its
//! dirty blocks. The counts are from the last look; the map is authoritative, and is consulted before every
//! action.

use super::recency::{Area, Recency, Run};
use crate::placement::{PlaceView, Places};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{ExtentKey, PlaceId};

/// The number of an extent's blocks on the fast device, and of those that are not at home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) blocks: u16,
    pub(super) dirty: u16,
}

impl Extent {
    /// Returns the counts from the map.
    pub(super) fn of(places: &Places, fine: PlaceId) -> Self {
        places.place(fine).map_or(Self::default(), |place| Self::of_place(&place))
    }

    /// Returns the counts of an extent's slots on the fast device.
    pub(super) fn of_place(place: &PlaceView) -> Self {
        Self { blocks: place.of_extent, dirty: place.dirty }
    }

    /// Returns the counts with this many more clean blocks, of at most `all`.
    pub(super) fn with_clean(self, more: u16, all: u16) -> Self {
        Self { blocks: (self.blocks + more).min(all), ..self }
    }

    /// Returns the counts after a write of `written` blocks, of which `fresh` are new there.
    pub(super) fn with_dirty(self, written: u16, fresh: u16, all: u16) -> Self {
        Self { blocks: (self.blocks + fresh).min(all), dirty: (self.dirty + written).min(all) }
    }
}

/// The areas.
#[derive(Clone, Debug, Default)]
pub(super) struct Areas {
    extents: Recency,
    resident_blocks: u64,
    buffered_blocks: u64,
    dirty: u64,
    /// Buffered extents with dirty blocks, by home address, and the position of the scrubber.
    dirty_order: BTreeSet<ExtentKey>,
    scrub_position: ExtentKey,
    /// Extents requested to be scrubbed, and the number of rounds since.
    requested: BTreeMap<ExtentKey, u8>,
}

/// The number of rounds after which an extent that is still dirty is requested again.
const RETRY_ROUNDS: u8 = 20;
/// The number of extents examined for a clean one.
const CLEAN_SCAN_MAX: usize = 256;

impl Areas {
    pub(super) fn resident_blocks(&self) -> u64 {
        self.resident_blocks
    }

    pub(super) fn buffered_blocks(&self) -> u64 {
        self.buffered_blocks
    }

    /// Returns the blocks of both areas.
    pub(super) fn blocks(&self) -> u64 {
        self.resident_blocks + self.buffered_blocks
    }

    /// Returns the dirty blocks of the write-back area.
    pub(super) fn dirty(&self) -> u64 {
        self.dirty
    }

    pub(super) fn contains(&self, key: ExtentKey) -> bool {
        self.extents.get(key).is_some()
    }

    pub(super) fn is_resident(&self, key: ExtentKey) -> bool {
        self.in_area(Area::Remap, key).is_some()
    }

    /// Returns the counts of an extent that is in this area.
    fn in_area(&self, area: Area, key: ExtentKey) -> Option<Extent> {
        self.extents.get(key).filter(|(of, _)| *of == area).map(|(_, extent)| extent)
    }

    /// Reads what noting a use will need. Changes nothing.
    pub(super) fn prefetch(&self, key: ExtentKey) {
        self.extents.prefetch(key);
    }

    /// Notes a use: the extent goes to the top of its list.
    pub(super) fn touch(&mut self, key: ExtentKey) {
        self.extents.touch(key);
    }

    /// Returns up to 64 consecutive extents, to note uses of them.
    pub(super) fn run(&mut self, first: ExtentKey, count: u64) -> Run<'_> {
        self.extents.run(first, count)
    }

    /// Removes the extent from both areas.
    pub(super) fn forget(&mut self, key: ExtentKey) {
        match self.extents.remove(key) {
            Some((Area::Remap, old)) => self.resident_blocks -= u64::from(old.blocks),
            Some((Area::WriteBack, old)) => {
                self.buffered_blocks -= u64::from(old.blocks);
                self.dirty -= u64::from(old.dirty);
            }
            None => {}
        }
        self.dirty_order.remove(&key);
        self.requested.remove(&key);
    }

    /// Puts the extent in the remap area.
    pub(super) fn add_resident(&mut self, key: ExtentKey, extent: Extent) {
        match self.in_area(Area::Remap, key) {
            Some(known) => self.resident_blocks -= u64::from(known.blocks),
            None => self.forget(key),
        }
        self.extents.insert(Area::Remap, key, extent);
        self.resident_blocks += u64::from(extent.blocks);
    }

    /// Notes that a block of a resident extent leaves.
    pub(super) fn remove_resident_block(&mut self, key: ExtentKey) {
        if let Some(known) = self.extents.get_mut(Area::Remap, key).filter(|known| known.blocks > 0) {
            known.blocks -= 1;
            self.resident_blocks -= 1;
        }
    }

    /// Puts the extent in the write-back area.
    pub(super) fn add_buffered(&mut self, key: ExtentKey, extent: Extent) {
        let known = self.in_area(Area::WriteBack, key);
        if let Some(known) = known.filter(|known| known.dirty > 0 && extent.dirty > 0) {
            // The extent keeps its position among the dirty ones, and its scrub request.
            self.buffered_blocks = self.buffered_blocks + u64::from(extent.blocks) - u64::from(known.blocks);
            self.dirty = self.dirty + u64::from(extent.dirty) - u64::from(known.dirty);
            return self.extents.insert(Area::WriteBack, key, extent);
        }
        let asked = self.requested.get(&key).copied();
        self.forget(key);
        self.extents.insert(Area::WriteBack, key, extent);
        self.buffered_blocks += u64::from(extent.blocks);
        self.dirty += u64::from(extent.dirty);
        if extent.dirty > 0 {
            self.dirty_order.insert(key);
            if let Some(rounds) = asked {
                self.requested.insert(key, rounds);
            }
        }
    }

    /// Updates the counts of a buffered extent from the map; its position in the list stays.
    pub(super) fn update(&mut self, key: ExtentKey, extent: Extent) {
        let Some(known) = self.extents.get_mut(Area::WriteBack, key) else { return };
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

    /// Returns the bottom of the resident list.
    pub(super) fn oldest_resident(&mut self) -> Option<ExtentKey> {
        self.extents.iter_oldest(Area::Remap).next().map(|(key, _)| key)
    }

    /// Returns the least recently used clean extent of the write-back area, if it is among the oldest.
    pub(super) fn oldest_clean(&mut self) -> Option<ExtentKey> {
        let mut oldest = self.extents.iter_oldest(Area::WriteBack).take(CLEAN_SCAN_MAX);
        oldest.find(|(_, e)| e.dirty == 0).map(|(key, _)| key)
    }

    /// Updates the extents requested to be scrubbed from the map.
    pub(super) fn refresh_requested(&mut self, mut places: impl FnMut(ExtentKey) -> Extent) {
        for (key, rounds) in std::mem::take(&mut self.requested) {
            let extent = places(key);
            self.update(key, extent);
            if extent.dirty > 0 && rounds < RETRY_ROUNDS {
                self.requested.insert(key, rounds + 1);
            }
        }
    }

    /// Returns the dirty blocks without those of extents requested to be scrubbed.
    pub(super) fn dirty_unrequested(&self) -> u64 {
        let asked = self.requested.keys().filter_map(|key| self.in_area(Area::WriteBack, *key));
        self.dirty.saturating_sub(asked.map(|e| u64::from(e.dirty)).sum())
    }

    /// Returns the next extent to scrub, in home order, cyclically; it counts as requested.
    pub(super) fn next_dirty(&mut self) -> Option<ExtentKey> {
        let free = |key: &&ExtentKey| !self.requested.contains_key(*key);
        let next = self.dirty_order.range(self.scrub_position..).find(free);
        let key = *next.or_else(|| self.dirty_order.range(..self.scrub_position).find(free))?;
        self.scrub_position = ExtentKey { index: weir_model::ExtentIndex(key.index.0 + 1), ..key };
        self.requested.insert(key, 0);
        Some(key)
    }
}
