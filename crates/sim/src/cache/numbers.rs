//! Dense numbers for blocks.

use rustc_hash::FxHashMap;
use weir_policy::eviction::Block;

/// Number of keys looked up together, so that their memory loads overlap.
const BATCH: usize = 128;
/// Number of adjacent keys that share a page, as a power of two.
const PAGE_BITS: u32 = 8;
const PAGE: usize = 1 << PAGE_BITS;
/// Maximum number of page entries per key, in addition to [`SPARSE_ENTRIES`]; above it a hash table takes
/// less memory.
const SPARSE: usize = 3;
/// 16 MiB of entries, for traces that touch scattered blocks of a disk before they return to them.
const SPARSE_ENTRIES: usize = 4 << 20;
/// Marks the absence of a number.
const NONE: u32 = u32::MAX;

/// Numbers keys in the order of their first appearance, from 0. Uses 14 to 20 bytes per key, and up to 16
/// MiB.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    keys: Vec<u64>,
    index: Index,
}

/// Index from keys to numbers.
#[derive(Debug)]
enum Index {
    /// For clustered keys, such as the blocks of a disk.
    Pages(Pages),
    /// For scattered keys.
    Hashed(Table),
}

impl Default for Index {
    fn default() -> Self {
        Self::Pages(Pages::default())
    }
}

/// A table of pages; each holds the numbers of [`PAGE`] adjacent keys.
#[derive(Debug, Default)]
struct Pages {
    /// Start of a page's entries, as a multiple of [`PAGE`].
    directory: FxHashMap<u64, u32>,
    entries: Vec<u32>,
}

impl Pages {
    /// Returns the entry of the key, adding a page if needed.
    #[inline]
    fn slot(&mut self, key: u64) -> usize {
        let entries = &mut self.entries;
        let page = *self.directory.entry(key >> PAGE_BITS).or_insert_with(|| {
            let page = (entries.len() / PAGE) as u32;
            entries.resize(entries.len() + PAGE, NONE);
            page
        });
        page as usize * PAGE + key as usize % PAGE
    }

    /// Returns the key's number, if it has one.
    fn find(&self, key: u64) -> Option<u32> {
        let page = *self.directory.get(&(key >> PAGE_BITS))? as usize;
        Some(self.entries[page * PAGE + key as usize % PAGE]).filter(|number| *number != NONE)
    }

    /// Reports whether a hash table of this many keys would take less memory.
    fn is_sparse(&self, keys: usize) -> bool {
        self.entries.len() > SPARSE * keys + SPARSE_ENTRIES
    }
}

/// An open-addressing hash table of numbers; the key of each is in `keys`. Unlike a library's table, it can
/// look up a batch of keys in steps in which no key waits for another.
#[derive(Debug)]
struct Table {
    /// Length is a power of two; at most two thirds are in use.
    slots: Vec<u32>,
    /// Right shift that turns a hash into a slot.
    shift: u32,
}

impl Table {
    const SLOTS_MIN: usize = 64;

    /// Creates a table of these keys.
    fn of(keys: &[u64]) -> Self {
        let len = (keys.len() * 3 / 2 + 1).next_power_of_two().max(Self::SLOTS_MIN);
        let mut table = Self { slots: vec![NONE; len], shift: 64 - len.trailing_zeros() };
        for (number, key) in (0..).zip(keys) {
            let free = table.probe(table.preferred_slot(*key), |number| number == NONE);
            table.slots[free] = number;
        }
        table
    }

    /// Returns the preferred slot of a key.
    #[inline]
    fn preferred_slot(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Returns the first matching slot from `slot` on.
    #[inline]
    fn probe(&self, mut slot: usize, is_meant: impl Fn(u32) -> bool) -> usize {
        while !is_meant(self.slots[slot]) {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        slot
    }

    /// Returns the key's slot, or the free slot for it.
    #[inline]
    fn slot(&self, keys: &[u64], key: u64, home: usize) -> usize {
        self.probe(home, |number| number == NONE || keys[number as usize] == key)
    }

    /// Grows the table if another key would not fit.
    #[inline]
    fn grow(&mut self, keys: &[u64]) {
        if keys.len() * 3 > self.slots.len() * 2 {
            *self = Self::of(keys);
        }
    }
}

impl Numbers {
    /// Appends the numbers of keys, with new numbers for new keys. There may be at most 2^32 - 1 numbers.
    pub(crate) fn number_all(&mut self, keys: &[u64], numbers: &mut Vec<Block>) {
        for batch in keys.chunks(BATCH) {
            match &mut self.index {
                Index::Pages(pages) => number_by_pages(pages, &mut self.keys, batch, numbers),
                Index::Hashed(table) => number_by_hash(table, &mut self.keys, batch, numbers),
            }
            self.hash_if_sparse();
        }
    }

    /// Returns the number of a key, a new one if it is new.
    #[inline]
    pub(crate) fn number(&mut self, key: u64) -> Block {
        let known = self.keys.len();
        let number = match &mut self.index {
            Index::Pages(pages) => {
                let slot = pages.slot(key);
                number_at(&mut pages.entries[slot], &mut self.keys, key)
            }
            Index::Hashed(table) => {
                let slot = table.slot(&self.keys, key, table.preferred_slot(key));
                let number = number_at(&mut table.slots[slot], &mut self.keys, key);
                table.grow(&self.keys);
                number
            }
        };
        if self.keys.len() > known {
            self.hash_if_sparse();
        }
        number
    }

    fn hash_if_sparse(&mut self) {
        if matches!(&self.index, Index::Pages(pages) if pages.is_sparse(self.keys.len())) {
            self.index = Index::Hashed(Table::of(&self.keys));
        }
    }

    /// Returns the number of a key, if it has one.
    pub(crate) fn find(&self, key: u64) -> Option<Block> {
        match &self.index {
            Index::Pages(pages) => pages.find(key).map(Block),
            Index::Hashed(table) => {
                let slot = table.slot(&self.keys, key, table.preferred_slot(key));
                Some(table.slots[slot]).filter(|number| *number != NONE).map(Block)
            }
        }
    }

    /// Removes the other keys and renumbers the remaining ones in the same order; returns their old numbers.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) -> Vec<u32> {
        let kept: Vec<_> = (0..).zip(&self.keys).filter(|(_, key)| keep(**key)).map(|(old, _)| old).collect();
        self.keys.retain(|key| keep(*key));
        let keys = std::mem::take(&mut self.keys);
        self.index = Index::default();
        self.number_all(&keys, &mut Vec::with_capacity(keys.len()));
        kept
    }

    /// Returns the keys, by number.
    pub(crate) fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Returns the keys, by number, and drops the index.
    pub(crate) fn into_keys(self) -> Vec<u64> {
        self.keys
    }
}

/// Looks up a batch in three steps; within a step no key waits for another.
fn number_by_pages(pages: &mut Pages, keys: &mut Vec<u64>, batch: &[u64], numbers: &mut Vec<Block>) {
    let (mut slots, mut found) = ([0; BATCH], [NONE; BATCH]);
    for (slot, key) in slots.iter_mut().zip(batch) {
        *slot = pages.slot(*key);
    }
    for (number, slot) in found.iter_mut().zip(&slots[..batch.len()]) {
        *number = pages.entries[*slot];
    }
    for ((number, slot), key) in found.iter_mut().zip(slots).zip(batch) {
        if *number == NONE {
            // The key may occur twice in the batch.
            *number = number_at(&mut pages.entries[slot], keys, *key).0;
        }
    }
    numbers.extend(found[..batch.len()].iter().map(|number| Block(*number)));
}

/// Returns the entry's number, or assigns a new one.
#[inline]
fn number_at(entry: &mut u32, keys: &mut Vec<u64>, key: u64) -> Block {
    if *entry == NONE {
        *entry = keys.len() as u32;
        keys.push(key);
    }
    Block(*entry)
}

/// Looks up a batch in the hash table in the same way; most keys are in their preferred slots.
fn number_by_hash(table: &mut Table, keys: &mut Vec<u64>, batch: &[u64], numbers: &mut Vec<Block>) {
    let (mut homes, mut found, mut there) = ([0; BATCH], [NONE; BATCH], [0; BATCH]);
    for (home, key) in homes.iter_mut().zip(batch) {
        *home = table.preferred_slot(*key);
    }
    for (number, home) in found.iter_mut().zip(&homes[..batch.len()]) {
        *number = table.slots[*home];
    }
    for (key, number) in there.iter_mut().zip(&found[..batch.len()]) {
        *key = keys.get(*number as usize).copied().unwrap_or_default();
    }
    for ((number, there), key) in found.iter_mut().zip(there).zip(batch) {
        if *number == NONE || there != *key {
            // The table may have grown within the batch.
            let slot = table.slot(keys, *key, table.preferred_slot(*key));
            *number = number_at(&mut table.slots[slot], keys, *key).0;
            table.grow(keys);
        }
    }
    numbers.extend(found[..batch.len()].iter().map(|number| Block(*number)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Keys near each other and far apart, in pieces of any length, indexed by pages and by hashes.
        #[test]
        fn keys_are_numbered_by_first_appearance(
            pieces in prop::collection::vec(prop::collection::vec((0u64..4, 0u64..600), 0..300), 0..8),
            spread in prop::sample::select(vec![1u64, 7, 1 << 20, 1 << 40]),
            is_hashed in any::<bool>(),
            kept in 0u64..600,
        ) {
            let mut numbers = Numbers::default();
            if is_hashed {
                numbers.index = Index::Hashed(Table::of(&[]));
            }
            let mut twin = BTreeMap::new();
            let mut keys = Vec::new();
            for piece in pieces {
                let key = |(disk, block)| (disk << 50) + block * spread;
                let piece: Vec<u64> = piece.into_iter().map(key).collect();
                let mut found = Vec::new();
                match piece.len() % 2 {
                    0 => numbers.number_all(&piece, &mut found),
                    _ => found.extend(piece.iter().map(|key| numbers.number(*key))),
                }
                for (key, number) in piece.iter().zip(found) {
                    let next = twin.len() as u32;
                    let expected = *twin.entry(*key).or_insert_with(|| {
                        keys.push(*key);
                        next
                    });
                    prop_assert_eq!(number, Block(expected));
                }
            }
            prop_assert_eq!(numbers.keys(), &keys[..]);
            let some = |key: u64| key % 600 < kept;
            let had = numbers.retain(some);
            let all = (0..).zip(&keys);
            let expected: Vec<u32> = all.filter(|(_, key)| some(**key)).map(|(n, _)| n).collect();
            prop_assert_eq!(&had, &expected);
            for (new, old) in (0..).zip(&had) {
                prop_assert_eq!(numbers.find(keys[*old as usize]), Some(Block(new)));
            }
            prop_assert_eq!(numbers.find(u64::MAX), None);
        }
    }

    #[test]
    fn scattered_keys_are_hashed_and_close_ones_are_not() {
        let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let mut numbers = Numbers::default();
        numbers.number_all(&(0..100_000).map(scattered).collect::<Vec<_>>(), &mut Vec::new());
        assert!(matches!(numbers.index, Index::Hashed(_)));
        assert_eq!(numbers.find(scattered(77)), Some(Block(77)));
        let mut numbers = Numbers::default();
        // The blocks of a disk of 16 GiB, in permuted order.
        numbers.number_all(&(0..1 << 22).map(|n| n * 7 % (1 << 22)).collect::<Vec<_>>(), &mut Vec::new());
        assert!(matches!(numbers.index, Index::Pages(_)));
        assert_eq!(numbers.find(7), Some(Block(1)));
    }
}
