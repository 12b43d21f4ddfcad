//! Dense numbers for blocks.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;
use weir_policy::eviction::Block;

/// Numbers keys in the order in which they come, from 0. Takes 14 to 20 bytes a key.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    keys: Vec<u64>,
    /// Numbers, by the hash of what is in `keys`.
    table: HashTable<u32>,
}

impl Numbers {
    /// The number of a key, a new one if it has none. There may be 2^32 - 1 at most.
    #[inline]
    pub(crate) fn number(&mut self, key: u64) -> Block {
        let keys = &mut self.keys;
        let is_it = |n: &u32| keys[*n as usize] == key;
        match self.table.entry(hash(key), is_it, |n| hash(keys[*n as usize])) {
            Entry::Occupied(entry) => Block(*entry.get()),
            Entry::Vacant(entry) => {
                let number = keys.len() as u32;
                entry.insert(number);
                keys.push(key);
                Block(number)
            }
        }
    }

    /// The number of a key, if it has one.
    pub(crate) fn find(&self, key: u64) -> Option<Block> {
        self.table.find(hash(key), |n| self.keys[*n as usize] == key).map(|n| Block(*n))
    }

    /// Forgets the other keys and numbers these anew, in the same order; the numbers they had.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) -> Vec<u32> {
        let kept: Vec<_> = (0..).zip(&self.keys).filter(|(_, key)| keep(**key)).map(|(old, _)| old).collect();
        self.keys.retain(|key| keep(*key));
        let keys = &self.keys;
        self.table.clear();
        for (number, key) in (0..).zip(keys) {
            self.table.insert_unique(hash(*key), number, |n| hash(keys[*n as usize]));
        }
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

fn hash(key: u64) -> u64 {
    FxBuildHasher.hash_one(key)
}
