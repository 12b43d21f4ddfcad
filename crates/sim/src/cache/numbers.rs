//! Dense numbers for blocks.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;
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
    /// For keys that are scattered: numbers, by the hash of what is in `keys`.
    Hashed(HashTable<u32>),
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

impl Numbers {
    /// Appends the numbers of keys, new ones for those that have none. There may be 2^32 - 1 at most.
    pub(crate) fn number_all(&mut self, keys: &[u64], numbers: &mut Vec<Block>) {
        for batch in keys.chunks(BATCH) {
            match &mut self.index {
                Index::Pages(pages) => number_by_pages(pages, &mut self.keys, batch, numbers),
                Index::Hashed(table) => {
                    numbers.extend(batch.iter().map(|key| number_by_hash(table, &mut self.keys, *key)));
                }
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
            Index::Hashed(table) => number_by_hash(table, &mut self.keys, key),
        };
        if self.keys.len() > known {
            self.hash_if_sparse();
        }
        number
    }

    fn hash_if_sparse(&mut self) {
        if matches!(&self.index, Index::Pages(pages) if pages.are_sparse(self.keys.len())) {
            self.index = Index::Hashed(hashed(&self.keys));
        }
    }

    /// The number of a key, if it has one.
    pub(crate) fn find(&self, key: u64) -> Option<Block> {
        match &self.index {
            Index::Pages(pages) => pages.find(key).map(Block),
            Index::Hashed(table) => {
                table.find(hash(key), |n| self.keys[*n as usize] == key).map(|n| Block(*n))
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

#[inline]
fn number_by_hash(table: &mut HashTable<u32>, keys: &mut Vec<u64>, key: u64) -> Block {
    let is_it = |n: &u32| keys[*n as usize] == key;
    match table.entry(hash(key), is_it, |n| hash(keys[*n as usize])) {
        Entry::Occupied(entry) => Block(*entry.get()),
        Entry::Vacant(entry) => {
            let number = keys.len() as u32;
            entry.insert(number);
            keys.push(key);
            Block(number)
        }
    }
}

/// A table of these keys.
fn hashed(keys: &[u64]) -> HashTable<u32> {
    let mut table = HashTable::with_capacity(keys.len());
    for (number, key) in (0..).zip(keys) {
        table.insert_unique(hash(*key), number, |n| hash(keys[*n as usize]));
    }
    table
}

fn hash(key: u64) -> u64 {
    FxBuildHasher.hash_one(key)
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
                numbers.index = Index::Hashed(HashTable::new());
            }
            let mut twin = BTreeMap::new();
            let mut keys = Vec::new();
            for piece in pieces {
                let key = |(disk, block)| (disk << 50) + block * spread;
                let piece: Vec<u64> = piece.into_iter().map(key).collect();
                let mut found = Vec::new();
                numbers.number_all(&piece, &mut found);
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
