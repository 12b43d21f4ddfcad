//! The free space of one device: which of its extents are owned.
//!
//! Extents are allocated in sequence, as in a log (virtual allocation), so that data written together is
//! adjacent. For fine places extents are divided into slots of one block: slots come from extents already
//! divided, and an extent whose last slot is released is whole and free again.

use crate::format::value::Slot;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::DeviceExtent;

/// A bitmap of extents with a summary bit per 64 extents, so that the next free one is found in a few steps
/// however full the device is.
#[derive(Clone, Debug)]
pub struct Space {
    extents: u32,
    free: u32,
    /// A set bit: owned, or not yet reusable.
    allocated: Vec<u64>,
    /// A set bit: the word of `taken` has no zero.
    full: Vec<u64>,
    /// The start of the search for the next free extent.
    cursor: u32,
    /// Extents divided into slots.
    slotted: BTreeMap<DeviceExtent, Slots>,
    /// Those of them with a free slot.
    with_free_slots: BTreeSet<DeviceExtent>,
    /// The owned and the free slots of all these extents.
    slots: u32,
    free_slots: u32,
}

/// The slots of a divided extent.
#[derive(Clone, Debug)]
struct Slots {
    /// One bit per block, set if the slot is owned.
    owned: Vec<u64>,
    free: u16,
}

impl Slots {
    fn new(blocks: u16) -> Self {
        Self { owned: vec![0; usize::from(blocks).div_ceil(64)], free: blocks }
    }

    /// Returns the first free slot; there must be one.
    fn first_free(&self) -> u16 {
        let word = self.owned.iter().position(|w| *w != u64::MAX).unwrap_or(0);
        word as u16 * 64 + (!self.owned[word]).trailing_zeros() as u16
    }

    fn is_owned(&self, block: u16) -> bool {
        self.owned.get(usize::from(block / 64)).is_none_or(|w| w >> (block % 64) & 1 == 1)
    }

    fn take(&mut self, block: u16) {
        self.owned[usize::from(block / 64)] |= 1 << (block % 64);
        self.free -= 1;
    }

    fn release(&mut self, block: u16) {
        self.owned[usize::from(block / 64)] &= !(1 << (block % 64));
        self.free += 1;
    }
}

impl Space {
    /// Creates the space of a device with `extents`, all free.
    pub fn new(extents: u32) -> Self {
        let words = (extents as usize).div_ceil(64);
        let mut space = Self {
            extents,
            free: extents,
            allocated: vec![0; words],
            full: vec![0; words.div_ceil(64)],
            cursor: 0,
            slotted: BTreeMap::new(),
            with_free_slots: BTreeSet::new(),
            slots: 0,
            free_slots: 0,
        };
        // Bits past the end count as taken.
        if !extents.is_multiple_of(64) {
            space.allocated[words - 1] = u64::MAX << (extents % 64);
        }
        if !words.is_multiple_of(64) {
            space.full[words / 64] = u64::MAX << (words % 64);
        }
        space
    }

    /// Returns the number of extents.
    pub fn extents(&self) -> u32 {
        self.extents
    }

    /// Returns the number of extents free for allocation.
    #[inline]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Returns the number of extents divided into slots.
    pub fn slotted(&self) -> u32 {
        self.slotted.len() as u32
    }

    /// Allocates the next free extent in sequence.
    pub fn allocate(&mut self) -> Option<DeviceExtent> {
        if self.free == 0 {
            return None;
        }
        let extent = self.next_free(self.cursor).or_else(|| self.next_free(0))?;
        self.set(extent);
        self.cursor = if extent + 1 < self.extents { extent + 1 } else { 0 };
        Some(DeviceExtent(extent))
    }

    fn next_free(&self, from: u32) -> Option<u32> {
        let word = (from / 64) as usize;
        let here = !self.allocated.get(word)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(word as u32 * 64 + here.trailing_zeros());
        }
        let next = word + 1;
        let mut at = next / 64;
        let mut open = !*self.full.get(at)? & (u64::MAX << (next % 64));
        while open == 0 {
            at += 1;
            open = !*self.full.get(at)?;
        }
        let word = at * 64 + open.trailing_zeros() as usize;
        Some(word as u32 * 64 + (!self.allocated[word]).trailing_zeros())
    }

    fn set(&mut self, extent: u32) {
        let word = (extent / 64) as usize;
        self.allocated[word] |= 1 << (extent % 64);
        if self.allocated[word] == u64::MAX {
            self.full[word / 64] |= 1 << (word % 64);
        }
        self.free -= 1;
    }

    /// Whether an extent is owned (or does not exist).
    pub fn is_allocated(&self, extent: DeviceExtent) -> bool {
        extent.0 >= self.extents || self.allocated[(extent.0 / 64) as usize] >> (extent.0 % 64) & 1 == 1
    }

    /// Marks an extent as owned. Returns `false` if it already was, or does not exist: the space would have
    /// two owners.
    #[must_use]
    pub fn mark_owned(&mut self, extent: DeviceExtent) -> bool {
        if self.is_allocated(extent) {
            return false;
        }
        self.set(extent.0);
        true
    }

    /// Marks a slot, and with its first slot the extent, as owned. Returns `false` if the slot already was.
    #[must_use]
    pub fn mark_slot_owned(&mut self, slot: Slot, blocks: u16) -> bool {
        if !self.slotted.contains_key(&slot.extent) {
            if !self.mark_owned(slot.extent) {
                return false;
            }
            self.divide(slot.extent, blocks);
        }
        let Some(slots) = self.slotted.get_mut(&slot.extent) else { return false };
        if slots.is_owned(slot.block) {
            return false;
        }
        slots.take(slot.block);
        (self.slots, self.free_slots) = (self.slots + 1, self.free_slots - 1);
        if slots.free == 0 {
            self.with_free_slots.remove(&slot.extent);
        }
        true
    }

    fn divide(&mut self, extent: DeviceExtent, blocks: u16) {
        self.slotted.insert(extent, Slots::new(blocks));
        self.with_free_slots.insert(extent);
        self.free_slots += u32::from(blocks);
    }

    /// Allocates a free slot: of the first divided extent that has one, else of the next free extent, which
    /// is divided.
    pub fn allocate_slot(&mut self, blocks: u16) -> Option<Slot> {
        let extent = match self.with_free_slots.first() {
            Some(extent) => *extent,
            None => {
                let extent = self.allocate()?;
                self.divide(extent, blocks);
                extent
            }
        };
        let slots = self.slotted.get_mut(&extent)?;
        let block = slots.first_free();
        slots.take(block);
        (self.slots, self.free_slots) = (self.slots + 1, self.free_slots - 1);
        if slots.free == 0 {
            self.with_free_slots.remove(&extent);
        }
        Some(Slot { extent, block })
    }

    /// Returns the number of owned slots, in all divided extents.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the number of slots available without a free extent.
    #[inline]
    pub fn free_slots(&self) -> u32 {
        self.free_slots
    }

    /// Releases a slot; the last one of its extent releases the extent.
    ///
    /// # Panics
    /// Panics if it was not owned: allocating it twice would mix two owners' data.
    pub fn release_slot(&mut self, slot: Slot, blocks: u16) {
        let slots = self.slotted.get_mut(&slot.extent).filter(|s| s.is_owned(slot.block));
        let Some(slots) = slots else {
            panic!("release of free slot {} of extent {}", slot.block, slot.extent.0)
        };
        slots.release(slot.block);
        (self.slots, self.free_slots) = (self.slots - 1, self.free_slots + 1);
        self.with_free_slots.insert(slot.extent);
        if slots.free == blocks {
            self.free_slots -= u32::from(blocks);
            self.slotted.remove(&slot.extent);
            self.with_free_slots.remove(&slot.extent);
            self.release(slot.extent);
        }
    }

    /// Releases an extent.
    ///
    /// # Panics
    /// Panics if it was not owned: allocating it twice would mix two owners' data.
    pub fn release(&mut self, extent: DeviceExtent) {
        assert!(extent.0 < self.extents && self.is_allocated(extent), "release of free extent {}", extent.0);
        assert!(!self.slotted.contains_key(&extent), "release of extent {}, whose slots are owned", extent.0);
        let word = (extent.0 / 64) as usize;
        self.allocated[word] &= !(1 << (extent.0 % 64));
        self.full[word / 64] &= !(1 << (word % 64));
        self.free += 1;
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        (self.allocated.capacity() + self.full.capacity()) * 8
            + self.slotted.values().map(|s| s.owned.capacity() * 8 + 64).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a naive twin: one flag per extent and a linear search.
        #[test]
        fn allocates_in_sequence(
            extents in 1u32..9000,
            steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..200),
            bulk in 0u32..9000,
        ) {
            let mut space = Space::new(extents);
            let mut twin = vec![false; extents as usize];
            let mut cursor = 0usize;
            let mut step = |kind: u8, pick: usize| {
                if kind == 0 {
                    if twin[pick] {
                        twin[pick] = false;
                        space.release(DeviceExtent(pick as u32));
                    }
                } else {
                    let expected = (0..twin.len()).map(|i| (cursor + i) % twin.len()).find(|i| !twin[*i]);
                    assert_eq!(space.allocate(), expected.map(|e| DeviceExtent(e as u32)));
                    if let Some(e) = expected {
                        twin[e] = true;
                        cursor = (e + 1) % twin.len();
                    }
                }
                assert_eq!(space.free() as usize, twin.iter().filter(|t| !**t).count());
            };
            for _ in 0..bulk.min(extents).min(300) { step(1, 0); }
            for (kind, pick) in steps { step(kind, pick.index(extents as usize)); }
        }
    }

    proptest! {
        /// Compares with a naive twin: the set of slots owned, by extent, and a linear search.
        #[test]
        fn slots_fill_divided_extents_first(
            extents in 1u32..12,
            blocks in prop_oneof![Just(16u16), Just(64), Just(128)],
            steps in prop::collection::vec((0u8..8, any::<prop::sample::Index>(), 1u16..100), 1..120),
        ) {
            let mut space = Space::new(extents);
            let mut wholes = BTreeSet::new();
            let mut cut: BTreeMap<u32, BTreeSet<u16>> = BTreeMap::new();
            for (kind, pick, count) in steps {
                for _ in 0..count {
                    match kind {
                        0 => wholes.extend(space.allocate().map(|e| e.0)),
                        1 if !wholes.is_empty() => {
                            let extent = *wholes.iter().nth(pick.index(wholes.len())).unwrap();
                            wholes.remove(&extent);
                            space.release(DeviceExtent(extent));
                        }
                        2..=4 => {
                            let open = cut.iter().find(|(_, owned)| owned.len() < usize::from(blocks));
                            let expected = open.map(|(e, owned)| (*e, (0..blocks).find(|b| !owned.contains(b)).unwrap()));
                            let full = wholes.len() + cut.len() == extents as usize;
                            let slot = space.allocate_slot(blocks);
                            prop_assert_eq!(slot.is_none(), expected.is_none() && full);
                            let Some(slot) = slot else { continue };
                            prop_assert!(expected.is_none_or(|e| e == (slot.extent.0, slot.block)));
                            prop_assert!(!wholes.contains(&slot.extent.0));
                            prop_assert!(cut.entry(slot.extent.0).or_default().insert(slot.block), "handed out twice");
                        }
                        _ if !cut.is_empty() => {
                            let nth = pick.index(cut.len());
                            let (extent, owned) = cut.iter_mut().nth(nth).unwrap();
                            let block = *owned.iter().nth(pick.index(owned.len())).unwrap();
                            owned.remove(&block);
                            space.release_slot(Slot { extent: DeviceExtent(*extent), block }, blocks);
                            cut.retain(|_, owned| !owned.is_empty());
                        }
                        _ => {}
                    }
                }
                let owned: usize = cut.values().map(BTreeSet::len).sum();
                prop_assert_eq!(space.free() as usize, extents as usize - wholes.len() - cut.len());
                prop_assert_eq!(space.slots() as usize, owned);
                prop_assert_eq!(space.free_slots() as usize, cut.len() * usize::from(blocks) - owned);
                let mut rebuilt = Space::new(extents);
                for (extent, owned) in &cut {
                    let slot = |block: &u16| Slot { extent: DeviceExtent(*extent), block: *block };
                    prop_assert!(owned.iter().all(|b| rebuilt.mark_slot_owned(slot(b), blocks)));
                }
                prop_assert_eq!(rebuilt.free_slots(), space.free_slots());
            }
        }
    }

    #[test]
    fn double_ownership_is_detected() {
        let mut space = Space::new(4);
        assert!(
            space.mark_owned(DeviceExtent(2))
                && !space.mark_owned(DeviceExtent(2))
                && !space.mark_owned(DeviceExtent(4))
        );
        let slot = Slot { extent: DeviceExtent(3), block: 5 };
        assert!(space.mark_slot_owned(slot, 32) && !space.mark_slot_owned(slot, 32));
        assert!(!space.mark_slot_owned(Slot { extent: DeviceExtent(2), block: 0 }, 32));
        assert!(space.mark_slot_owned(Slot { extent: DeviceExtent(3), block: 6 }, 32));
        assert_eq!(space.free(), 2);
    }
}
