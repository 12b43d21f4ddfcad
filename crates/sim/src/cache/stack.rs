//! LRU stack depth of every access: one number that serves all sizes of an LRU cache.
//!
//! Source: R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger, "Evaluation techniques for storage
//! hierarchies", IBM Systems Journal 9(2), 1970; moments counted by a tree as in B. T. Bennett, V. J.
//! Kruskal, "LRU stack processing", IBM Journal of Research and Development 19(4), 1975, here P. M. Fenwick's
//! (1994) over bits.
//!
//! Rule: an LRU cache of n blocks contains the n most recently used, so an access hits in every cache at
//! least as large as the block's depth, and in no smaller one. A removed block leaves a *hole*, which is free
//! space in the caches that contained the block. The next access to a deeper or new block fills the highest
//! hole and leaves one at the block's old position: caches as large as that still have free space; those
//! between the two had some and now have none.

use std::collections::BinaryHeap;
use weir_policy::eviction::Block;

/// Marks a block that is not in the stack.
const ABSENT: u32 = u32::MAX;
/// Number of words of 64 moments per counter of the tree.
const WORDS: usize = 8;
const GROUP: usize = 64 * WORDS;

/// Returns the number of groups for this many entries: between two renumberings there are as many uses as
/// blocks.
const fn groups(entries: u32) -> usize {
    (2 * entries as usize).div_ceil(GROUP) + 1
}

/// Blocks in the order of their last uses. Memory: 4 bytes and two bits per block.
///
/// A use takes time logarithmic in the number of blocks.
#[derive(Debug)]
pub struct Stack {
    /// Moment of each block's last use.
    last_use: Vec<u32>,
    /// One bit per moment: set if a block or a hole dates from it.
    marks: Vec<u64>,
    /// Number of set bits in each group of words, as a Fenwick tree: from 1.
    tree: Vec<u32>,
    now: u32,
    /// Number of blocks and holes.
    entries: u32,
    /// Moments of the holes, the highest first.
    holes: BinaryHeap<u32>,
}

impl Stack {
    /// Creates an empty stack with room for block numbers below `blocks`; it grows for others.
    pub fn new(blocks: u32) -> Self {
        let groups = groups(blocks);
        Self {
            last_use: vec![ABSENT; blocks as usize],
            marks: vec![0; groups * WORDS],
            tree: vec![0; groups + 1],
            now: 0,
            entries: 0,
            holes: BinaryHeap::new(),
        }
    }

    /// Uses a block; returns its depth before, from 1. `None` if it was not in the stack.
    #[inline]
    pub fn touch(&mut self, block: Block) -> Option<u32> {
        if self.now as usize == 64 * self.marks.len() {
            self.renumber();
        }
        if block.index() >= self.last_use.len() {
            self.last_use.resize(block.index() + 1, ABSENT);
        }
        let last = self.last_use[block.index()];
        let depth = self.depth(last);
        match self.holes.peek() {
            Some(hole) if depth.is_none() || *hole > last => {
                let hole = *hole;
                self.holes.pop();
                self.mark(hole, false);
                if depth.is_some() {
                    self.holes.push(last);
                }
            }
            _ if depth.is_some() => self.mark(last, false),
            _ => self.entries += 1,
        }
        self.mark(self.now, true);
        self.last_use[block.index()] = self.now;
        self.now += 1;
        depth
    }

    /// Removes a block; returns its depth.
    pub(super) fn remove(&mut self, block: Block) -> Option<u32> {
        let last = std::mem::replace(self.last_use.get_mut(block.index())?, ABSENT);
        let depth = self.depth(last);
        if depth.is_some() {
            self.holes.push(last);
        }
        depth
    }

    /// Keeps only these blocks, whose numbers ascend, and renumbers them from 0. Holes are dropped as well.
    pub(crate) fn retain(&mut self, kept: &[u32]) {
        let moment = |old: &u32| self.last_use.get(*old as usize).copied().unwrap_or(ABSENT);
        let mut order: Vec<_> = (0..).zip(kept).map(|(new, old)| (moment(old), Block(new))).collect();
        order.retain(|(moment, _)| *moment != ABSENT);
        order.sort_unstable_by_key(|(moment, _)| *moment);
        *self = Self::new(kept.len() as u32);
        for (_, block) in order {
            self.touch(block);
        }
    }

    /// Returns the number of blocks in caches of these sizes.
    pub(super) fn occupancy(&self, sizes: &[u32]) -> Vec<u32> {
        let mut holes: Vec<_> = self.holes.iter().filter_map(|hole| self.depth(*hole)).collect();
        holes.sort_unstable();
        let held =
            |size: &u32| *size.min(&self.entries) - holes.partition_point(|depth| depth <= size) as u32;
        sizes.iter().map(held).collect()
    }

    /// Returns the depth of the entry that dates from a moment.
    #[inline]
    fn depth(&self, moment: u32) -> Option<u32> {
        (moment != ABSENT).then(|| self.entries - self.count_older(moment))
    }

    /// Returns the number of older entries.
    #[inline]
    fn count_older(&self, moment: u32) -> u32 {
        let (word, group) = (moment as usize / 64, moment as usize / GROUP);
        let earlier = self.marks[word] & ((1 << (moment % 64)) - 1);
        let mut sum = earlier.count_ones();
        for word in &self.marks[group * WORDS..word] {
            sum += word.count_ones();
        }
        let mut node = group;
        while node > 0 {
            sum += self.tree[node];
            node &= node - 1;
        }
        sum
    }

    /// Sets or clears the mark of a moment.
    #[inline]
    fn mark(&mut self, moment: u32, is: bool) {
        self.marks[moment as usize / 64] ^= 1 << (moment % 64);
        let one = if is { 1 } else { u32::MAX };
        let mut node = moment as usize / GROUP + 1;
        while node < self.tree.len() {
            self.tree[node] = self.tree[node].wrapping_add(one);
            node += node & node.wrapping_neg();
        }
    }

    /// Replaces moments by their ranks.
    #[cold]
    fn renumber(&mut self) {
        let holes = std::mem::take(&mut self.holes);
        self.holes = holes.into_iter().map(|hole| self.count_older(hole)).collect();
        let mut used = std::mem::take(&mut self.last_use);
        for last in used.iter_mut().filter(|last| **last != ABSENT) {
            *last = self.count_older(*last);
        }
        self.last_use = used;
        let groups = groups(self.entries).max(self.tree.len() - 1);
        self.marks.clear();
        self.marks.resize(groups * WORDS, 0);
        self.tree.clear();
        self.tree.resize(groups + 1, 0);
        for moment in 0..self.entries {
            self.mark(moment, true);
        }
        self.now = self.entries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_policy::eviction::{AccessKind, CacheSize, Eviction, Lru};

    proptest! {
        /// Compares the depths with LRU caches of every size.
        #[test]
        fn depth_determines_which_sizes_hit(steps in prop::collection::vec((0u32..40, 0u8..8), 0..3000)) {
            let blocks = 40;
            // The stack has to grow during the test.
            let mut stack = Stack::new(blocks / 4);
            let mut caches: Vec<_> =
                (1..=50).map(|capacity| (capacity, 0, Lru::new(CacheSize { blocks, capacity }))).collect();
            for (block, what) in steps {
                let block = Block(block);
                let depth = if what == 0 { stack.remove(block) } else { stack.touch(block) };
                for (capacity, held, cache) in &mut caches {
                    let is_removal = what == 0;
                    let has = if is_removal { cache.remove(block) } else { cache.hit(block, AccessKind::Read) };
                    prop_assert_eq!(has, depth.is_some_and(|depth| depth <= *capacity), "{} blocks", capacity);
                    if what == 0 {
                        *held -= u32::from(has);
                    } else if !has {
                        let was_full = *held == *capacity;
                        cache.insert(block, |_| true);
                        *held += u32::from(!was_full);
                    }
                    prop_assert_eq!(stack.occupancy(&[*capacity]), [*held]);
                }
            }
        }
    }
}
