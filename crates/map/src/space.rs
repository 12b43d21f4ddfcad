//! Free space of one device: which of its extents are owned.
//!
//! Extents are handed out in sequence, as in a log (virtual allocation, mechanisms section 5), so
//! that data written together lies together.

use crate::value::Slot;
use std::collections::BTreeMap;
use weir_model::DeviceExtent;

/// One bit per extent, with a summary bit per 64 extents, so that the next free one is found in
/// a few steps however full the device is.
#[derive(Clone, Debug)]
pub struct Space {
    extents: u32,
    free: u32,
    /// Set: owned, or not yet reusable.
    taken: Vec<u64>,
    /// Set: the word of `taken` has no zero.
    full: Vec<u64>,
    /// Where the search for the next one begins.
    cursor: u32,
    /// Extents cut into slots: a bit per block, set if the slot is owned.
    slotted: BTreeMap<DeviceExtent, Vec<u64>>,
}

impl Space {
    /// All `extents` free.
    pub fn new(extents: u32) -> Self {
        let words = (extents as usize).div_ceil(64);
        let mut space = Self {
            extents,
            free: extents,
            taken: vec![0; words],
            full: vec![0; words.div_ceil(64)],
            cursor: 0,
            slotted: BTreeMap::new(),
        };
        // Bits past the end count as taken.
        if !extents.is_multiple_of(64) {
            space.taken[words - 1] = u64::MAX << (extents % 64);
        }
        if !words.is_multiple_of(64) {
            space.full[words / 64] = u64::MAX << (words % 64);
        }
        space
    }

    /// Extents there are.
    pub fn extents(&self) -> u32 {
        self.extents
    }

    /// Extents free for allocation.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// The next free extent in sequence, now taken.
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
        let here = !self.taken.get(word)? & (u64::MAX << (from % 64));
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
        Some(word as u32 * 64 + (!self.taken[word]).trailing_zeros())
    }

    fn set(&mut self, extent: u32) {
        let word = (extent / 64) as usize;
        self.taken[word] |= 1 << (extent % 64);
        if self.taken[word] == u64::MAX {
            self.full[word / 64] |= 1 << (word % 64);
        }
        self.free -= 1;
    }

    /// Whether an extent is owned (or does not exist).
    pub fn is_taken(&self, extent: DeviceExtent) -> bool {
        extent.0 >= self.extents || self.taken[(extent.0 / 64) as usize] >> (extent.0 % 64) & 1 == 1
    }

    /// Marks an extent as owned. `false` if it was, or does not exist: two owners of one place.
    #[must_use]
    pub fn take(&mut self, extent: DeviceExtent) -> bool {
        if self.is_taken(extent) {
            return false;
        }
        self.set(extent.0);
        true
    }

    /// Marks a slot, and with its first slot the extent, as owned. `false` if the slot was.
    #[must_use]
    pub fn take_slot(&mut self, slot: Slot, blocks: u16) -> bool {
        if !self.slotted.contains_key(&slot.extent) {
            if !self.take(slot.extent) {
                return false;
            }
            self.slotted.insert(slot.extent, vec![0; usize::from(blocks).div_ceil(64)]);
        }
        let Some(bits) = self.slotted.get_mut(&slot.extent) else { return false };
        let (word, mask) = (usize::from(slot.block / 64), 1 << (slot.block % 64));
        let free = bits[word] & mask == 0;
        bits[word] |= mask;
        free
    }

    /// Gives an extent back.
    ///
    /// # Panics
    /// If it was not owned: handing it out twice would mix two owners' data.
    pub fn release(&mut self, extent: DeviceExtent) {
        assert!(extent.0 < self.extents && self.is_taken(extent), "release of free extent {}", extent.0);
        let word = (extent.0 / 64) as usize;
        self.taken[word] &= !(1 << (extent.0 % 64));
        self.full[word / 64] &= !(1 << (word % 64));
        self.free += 1;
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        (self.taken.capacity() + self.full.capacity()) * 8
            + self.slotted.values().map(|b| b.capacity() * 8 + 48).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Beside a naive twin: one flag per extent and a linear search.
        #[test]
        fn hands_out_the_next_free_in_sequence(
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

    #[test]
    fn a_second_owner_is_noticed() {
        let mut space = Space::new(4);
        assert!(space.take(DeviceExtent(2)) && !space.take(DeviceExtent(2)) && !space.take(DeviceExtent(4)));
        let slot = Slot { extent: DeviceExtent(3), block: 5 };
        assert!(space.take_slot(slot, 32) && !space.take_slot(slot, 32));
        assert!(!space.take_slot(Slot { extent: DeviceExtent(2), block: 0 }, 32));
        assert!(space.take_slot(Slot { extent: DeviceExtent(3), block: 6 }, 32));
        assert_eq!(space.free(), 2);
    }
}
