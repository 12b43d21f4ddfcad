//! Dense numbers for blocks.

use rustc_hash::FxHashMap;
use weir_policy::eviction::Block;

/// Keys that are looked up together: their loads from memory overlap.
const BATCH: usize = 128;
/// Keys side by side that share a page, as a power of two.
const PAGE_BITS: u32 = 8;
const PAGE: usize = 1 << PAGE_BITS;
/// Pages have at most so many entries for each key, besides [`SPARSE_ENTRIES`]: then a hash table takes less
/// memory.
const SPARSE: usize = 3;
/// 16 MiB of entries, for traces that touch a disk far and wide before they come back.
const SPARSE_ENTRIES: usize = 4 << 20;
/// No number.
const NONE: u32 = u32::MAX;

/// Numbers keys in the order in which they come, from 0. Takes 14 to 20 bytes a key, and up to 16 MiB.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    keys: Vec<u64>,
    index: Index,
}

/// How a key's number is found.
#[derive(Debug)]
enum Index {
    /// For keys that lie close together, as blocks of a disk do.
    Pages(Pages),
    /// For keys that are scattered.
    Hashed(Table),
}

impl Default for Index {
    fn default() -> Self {
        Self::Pages(Pages::default())
    }
}

/// The numbers of [`PAGE`] keys side by side each.
#[derive(Debug, Default)]
struct Pages {
    /// Where a page's entries begin, as a multiple of [`PAGE`].
    directory: FxHashMap<u64, u32>,
    entries: Vec<u32>,
}

impl Pages {
    /// Where the key's number is, or is to be.
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

    /// The key's number, if it has one.
    fn find(&self, key: u64) -> Option<u32> {
        let page = *self.directory.get(&(key >> PAGE_BITS))? as usize;
        Some(self.entries[page * PAGE + key as usize % PAGE]).filter(|number| *number != NONE)
    }

    /// Whether a hash table of so many keys would take less memory.
    fn are_sparse(&self, keys: usize) -> bool {
        self.entries.len() > SPARSE * keys + SPARSE_ENTRIES
    }
}

/// An open hash table of numbers: the key of each is in `keys`. Unlike a table of a library, it can look a
/// batch of keys up in steps of which none waits for another key's.
#[derive(Debug)]
struct Table {
    /// A power of two; at most two thirds are in use.
    slots: Vec<u32>,
    /// A hash shifted right by this is a slot.
    shift: u32,
}

impl Table {
    const LEAST: usize = 64;

    /// Of these keys.
    fn of(keys: &[u64]) -> Self {
        let len = (keys.len() * 3 / 2 + 1).next_power_of_two().max(Self::LEAST);
        let mut table = Self { slots: vec![NONE; len], shift: 64 - len.trailing_zeros() };
        for (number, key) in (0..).zip(keys) {
            let free = table.probe(table.home(*key), |number| number == NONE);
            table.slots[free] = number;
        }
        table
    }

    /// Where a key's number is, unless others' are there.
    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// The first slot from here on that is meant.
    #[inline]
    fn probe(&self, mut slot: usize, is_meant: impl Fn(u32) -> bool) -> usize {
        while !is_meant(self.slots[slot]) {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        slot
    }

    /// The key's slot, or the free one where it belongs.
    #[inline]
    fn slot(&self, keys: &[u64], key: u64, home: usize) -> usize {
        self.probe(home, |number| number == NONE || keys[number as usize] == key)
    }

    /// Makes room for another key.
    #[inline]
    fn grow(&mut self, keys: &[u64]) {
        if keys.len() * 3 > self.slots.len() * 2 {
            *self = Self::of(keys);
        }
    }
}

impl Numbers {
    /// Appends the numbers of keys, new ones for those that have none. There may be 2^32 - 1 at most.
    pub(crate) fn number_all(&mut self, keys: &[u64], numbers: &mut Vec<Block>) {
        for batch in keys.chunks(BATCH) {
            match &mut self.index {
                Index::Pages(pages) => number_by_pages(pages, &mut self.keys, batch, numbers),
                Index::Hashed(table) => number_by_hash(table, &mut self.keys, batch, numbers),
            }
            self.hash_if_sparse();
        }
    }

    /// The number of a key, a new one if it has none.
    #[inline]
    pub(crate) fn number(&mut self, key: u64) -> Block {
        let known = self.keys.len();
        let number = match &mut self.index {
            Index::Pages(pages) => {
                let slot = pages.slot(key);
                number_at(&mut pages.entries[slot], &mut self.keys, key)
            }
            Index::Hashed(table) => {
                let slot = table.slot(&self.keys, key, table.home(key));
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
        if matches!(&self.index, Index::Pages(pages) if pages.are_sparse(self.keys.len())) {
            self.index = Index::Hashed(Table::of(&self.keys));
        }
    }

    /// The number of a key, if it has one.
    pub(crate) fn find(&self, key: u64) -> Option<Block> {
        match &self.index {
            Index::Pages(pages) => pages.find(key).map(Block),
            Index::Hashed(table) => {
                let slot = table.slot(&self.keys, key, table.home(key));
                Some(table.slots[slot]).filter(|number| *number != NONE).map(Block)
            }
        }
    }

    /// Forgets the other keys and numbers these anew, in the same order; the numbers they had.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) -> Vec<u32> {
        let kept: Vec<_> = (0..).zip(&self.keys).filter(|(_, key)| keep(**key)).map(|(old, _)| old).collect();
        self.keys.retain(|key| keep(*key));
        let keys = std::mem::take(&mut self.keys);
        self.index = Index::default();
        self.number_all(&keys, &mut Vec::with_capacity(keys.len()));
        kept
    }

    /// The keys, by number.
    pub(crate) fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// The same; what else is known is given up.
    pub(crate) fn into_keys(self) -> Vec<u64> {
        self.keys
    }
}

/// In three steps, of which none waits for another key's.
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
            // It may have come twice in the batch.
            *number = number_at(&mut pages.entries[slot], keys, *key).0;
        }
    }
    numbers.extend(found[..batch.len()].iter().map(|number| Block(*number)));
}

/// The number that is there, or a new one.
#[inline]
fn number_at(entry: &mut u32, keys: &mut Vec<u64>, key: u64) -> Block {
    if *entry == NONE {
        *entry = keys.len() as u32;
        keys.push(key);
    }
    Block(*entry)
}

/// The same: most keys are in their home slots.
fn number_by_hash(table: &mut Table, keys: &mut Vec<u64>, batch: &[u64], numbers: &mut Vec<Block>) {
    let (mut homes, mut found, mut there) = ([0; BATCH], [NONE; BATCH], [0; BATCH]);
    for (home, key) in homes.iter_mut().zip(batch) {
        *home = table.home(*key);
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
            let slot = table.slot(keys, *key, table.home(*key));
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
        /// Keys near each other, and far apart, in pieces of any length; kept by pages and by hashes.
        #[test]
        fn keys_are_numbered_in_the_order_in_which_they_come(
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
        // The blocks of a disk of 16 GiB, in an order of their own.
        numbers.number_all(&(0..1 << 22).map(|n| n * 7 % (1 << 22)).collect::<Vec<_>>(), &mut Vec::new());
        assert!(matches!(numbers.index, Index::Pages(_)));
        assert_eq!(numbers.find(7), Some(Block(1)));
    }
}
