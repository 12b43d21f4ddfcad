//! The dirty blocks of a file system's memory.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZero;
use weir_model::Nanos;

/// Blocks in memory that differ from the disk, with the time of the first change.
#[derive(Debug)]
pub(super) struct DirtyBlocks {
    /// One more than the time, for each dirty block of the disk.
    since: Vec<Option<NonZero<u64>>>,
    count: usize,
    /// The same in the order of that time, and blocks that have been written back meanwhile.
    oldest: VecDeque<(Nanos, u64)>,
    /// Those that belong to no file.
    unowned: BTreeSet<u64>,
}

impl DirtyBlocks {
    /// Returns none, of a disk of `blocks`.
    pub(super) fn new(blocks: u64) -> Self {
        let since = vec![None; blocks as usize];
        Self { since, count: 0, oldest: VecDeque::new(), unowned: BTreeSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn contains(&self, block: u64) -> bool {
        self.since.get(block as usize).is_some_and(Option::is_some)
    }

    /// Adds a block unless it is dirty already.
    pub(super) fn insert(&mut self, block: u64, now: Nanos, is_owned: bool) {
        let since = &mut self.since[block as usize];
        if since.is_none() {
            *since = mark(now);
            self.count += 1;
            self.oldest.push_back((now, block));
            if !is_owned {
                self.unowned.insert(block);
            }
        }
    }

    /// Removes a block; returns whether it was dirty.
    pub(super) fn remove(&mut self, block: u64) -> bool {
        let was_dirty = self.since.get_mut(block as usize).is_some_and(|since| since.take().is_some());
        if was_dirty {
            self.count -= 1;
            self.unowned.remove(&block);
        }
        was_dirty
    }

    pub(super) fn clear(&mut self) {
        // Every dirty block is among these.
        self.oldest.drain(..).for_each(|(_, block)| self.since[block as usize] = None);
        self.count = 0;
        self.unowned.clear();
    }

    /// Returns the block that has been dirty longest, and since when.
    pub(super) fn oldest(&mut self) -> Option<(Nanos, u64)> {
        loop {
            let (since, block) = *self.oldest.front()?;
            if self.since[block as usize] == mark(since) {
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

fn mark(time: Nanos) -> Option<NonZero<u64>> {
    NonZero::new(time.0.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As a list in the order of the first change; the last third of the blocks belong to no file.
        #[test]
        fn blocks_are_as_in_a_list(steps in prop::collection::vec((0..3u8, 0..30u64), 1..100)) {
            let (mut dirty, mut list) = (DirtyBlocks::new(30), Vec::<(Nanos, u64)>::new());
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
