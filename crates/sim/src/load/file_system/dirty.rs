//! The dirty blocks of a file system's memory.

use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};
use weir_model::Nanos;

/// Blocks in memory that differ from the disk, with the time of the first change.
#[derive(Debug, Default)]
pub(super) struct DirtyBlocks {
    since: FxHashMap<u64, Nanos>,
    /// The same in the order of that time, and blocks that have been written back meanwhile.
    oldest: VecDeque<(Nanos, u64)>,
    /// Those that belong to no file.
    unowned: BTreeSet<u64>,
}

impl DirtyBlocks {
    pub(super) fn len(&self) -> usize {
        self.since.len()
    }

    pub(super) fn contains(&self, block: u64) -> bool {
        self.since.contains_key(&block)
    }

    /// Adds a block unless it is dirty already.
    pub(super) fn insert(&mut self, block: u64, now: Nanos, is_owned: bool) {
        if let Entry::Vacant(vacant) = self.since.entry(block) {
            vacant.insert(now);
            self.oldest.push_back((now, block));
            if !is_owned {
                self.unowned.insert(block);
            }
        }
    }

    /// Removes a block; returns whether it was dirty.
    pub(super) fn remove(&mut self, block: u64) -> bool {
        let was_dirty = self.since.remove(&block).is_some();
        if was_dirty {
            self.unowned.remove(&block);
        }
        was_dirty
    }

    pub(super) fn clear(&mut self) {
        self.since.clear();
        self.oldest.clear();
        self.unowned.clear();
    }

    /// Returns the block that has been dirty longest, and since when.
    pub(super) fn oldest(&mut self) -> Option<(Nanos, u64)> {
        loop {
            let (since, block) = *self.oldest.front()?;
            if self.since.get(&block) == Some(&since) {
                return Some((since, block));
            }
            self.oldest.pop_front();
        }
    }

    /// Returns the dirty blocks that belong to no file, in address order.
    pub(super) fn unowned(&self) -> impl Iterator<Item = u64> + '_ {
        self.unowned.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As a list in the order of the first change; the last third of the blocks belong to no file.
        #[test]
        fn blocks_are_as_in_a_list(steps in prop::collection::vec((0..3u8, 0..30u64), 1..100)) {
            let (mut dirty, mut list) = (DirtyBlocks::default(), Vec::<(Nanos, u64)>::new());
            for (now, (what, block)) in (0..).map(Nanos).zip(steps) {
                let was_dirty = list.iter().any(|(_, other)| *other == block);
                if what > 0 {
                    dirty.insert(block, now, block < 20);
                    list.extend((!was_dirty).then_some((now, block)));
                } else {
                    prop_assert_eq!(dirty.remove(block), was_dirty);
                    list.retain(|(_, other)| *other != block);
                }
                let mut unowned: Vec<u64> =
                    list.iter().map(|(_, block)| *block).filter(|block| *block >= 20).collect();
                unowned.sort_unstable();
                prop_assert_eq!(dirty.unowned().collect::<Vec<_>>(), unowned);
                prop_assert_eq!((dirty.len(), dirty.oldest()), (list.len(), list.first().copied()));
                let is_listed = |block| list.iter().any(|(_, other)| *other == block);
                prop_assert!((0..30).all(|block| dirty.contains(block) == is_listed(block)));
            }
        }
    }
}
