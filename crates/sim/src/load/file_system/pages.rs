//! The blocks of a file system that are in memory.

/// The neighbours of a block in the order of use: their numbers plus [`FIRST`], so that the links of a block
/// that was never in memory are zero, and the kernel need not provide memory for them.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    newer: u32,
    older: u32,
}

/// Not in memory.
const ABSENT: u32 = 0;
/// The end of the order.
const END: u32 = 1;
/// Block 0.
const FIRST: u32 = 2;

/// Blocks in memory in the order of their last use; beyond a bound the least recently used one leaves. It is
/// what [`Lru`](weir_policy::Lru) is, for block numbers that are dense: one load finds a block, where a table
/// by hash takes several, and most of the time of a simulated file server was spent there. Takes 8 bytes for
/// each block of the disk that has ever been in memory, or is beside one that has.
#[derive(Debug)]
pub(super) struct Pages {
    links: Vec<Links>,
    count: usize,
    capacity: usize,
    newest: u32,
    oldest: u32,
}

impl Pages {
    /// Returns memory for `capacity` blocks, at least one, of a disk of `blocks`.
    pub(super) fn new(capacity: usize, blocks: u64) -> Self {
        let links = vec![Links::default(); blocks as usize];
        Self { links, count: 0, capacity: capacity.max(1), newest: END, oldest: END }
    }

    /// Returns the number of blocks that fit.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether a block is in memory.
    #[inline]
    pub(super) fn contains(&self, block: u64) -> bool {
        self.links[block as usize].newer != ABSENT
    }

    /// Makes a block the most recently used, if it is in memory; returns whether it is.
    #[inline]
    pub(super) fn touch(&mut self, block: u64) -> bool {
        let is_here = self.contains(block);
        if is_here && self.newest != block as u32 + FIRST {
            self.unlink(block);
            self.link_newest(block);
        }
        is_here
    }

    /// Adds a block, as the most recently used. Returns the one that leaves for it.
    pub(super) fn insert(&mut self, block: u64) -> Option<u64> {
        if self.touch(block) {
            return None;
        }
        let gone = (self.count == self.capacity).then(|| u64::from(self.oldest - FIRST));
        gone.into_iter().for_each(|oldest| self.remove(oldest));
        self.count += 1;
        self.link_newest(block);
        gone
    }

    /// Removes a block, if it is in memory.
    pub(super) fn remove(&mut self, block: u64) {
        if self.contains(block) {
            self.unlink(block);
            self.links[block as usize] = Links::default();
            self.count -= 1;
        }
    }

    /// Iterates over the blocks, from the most to the least recently used.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let block = |link: u32| link.checked_sub(FIRST).map(u64::from);
        std::iter::successors(block(self.newest), move |at| block(self.links[*at as usize].older))
    }

    fn unlink(&mut self, block: u64) {
        let Links { newer, older } = self.links[block as usize];
        match newer.checked_sub(FIRST) {
            Some(newer) => self.links[newer as usize].older = older,
            None => self.newest = older,
        }
        match older.checked_sub(FIRST) {
            Some(older) => self.links[older as usize].newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, block: u64) {
        let (before, link) = (self.newest, block as u32 + FIRST);
        self.links[block as usize] = Links { newer: END, older: before };
        match before.checked_sub(FIRST) {
            Some(before) => self.links[before as usize].newer = link,
            None => self.oldest = link,
        }
        self.newest = link;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_policy::Lru;

    proptest! {
        /// As the table by hash.
        #[test]
        fn blocks_leave_as_from_an_lru(
            capacity in 1usize..9,
            steps in prop::collection::vec((0u8..4, 0u64..16), 1..200),
        ) {
            let (mut pages, mut twin) = (Pages::new(capacity, 16), Lru::new(capacity));
            for (what, block) in steps {
                match what {
                    0 => prop_assert_eq!(pages.touch(block), twin.touch(block).is_some()),
                    1 => {
                        pages.remove(block);
                        twin.remove(&block);
                    }
                    _ => {
                        let gone = twin.insert(block, ()).map(|(gone, ())| gone);
                        prop_assert_eq!(pages.insert(block), gone.filter(|gone| *gone != block));
                    }
                }
                prop_assert!(pages.iter().eq(twin.iter().map(|(block, ())| block)));
                prop_assert!((0..16).all(|block| pages.contains(block) == twin.get(&block).is_some()));
            }
        }
    }
}
