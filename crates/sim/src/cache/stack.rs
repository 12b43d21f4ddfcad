//! How deep each block lies below those used after it: one number for all sizes of an LRU cache.
//!
//! Source: R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger, "Evaluation techniques for storage hierarchies", IBM
//! Systems Journal 9(2), 1970; moments counted by a tree as in B. T. Bennett, V. J. Kruskal, "LRU stack processing",
//! IBM Journal of Research and Development 19(4), 1975, here P. M. Fenwick's (1994) over bits.
//!
//! Rule: an LRU cache of n blocks has the n used last, so a block is hit by all caches that hold as many as it lies deep, and
//! by no smaller one. What is taken out leaves a *hole*, which is room in the caches that had the block. The next use of a block that
//! lies deeper, or is new, fills the highest hole and leaves one where the block was: caches as large as that still have room, those
//! between the two had some and have none now.

use std::collections::BinaryHeap;
use weir_policy::eviction::Block;

/// Of a block that is not in the stack.
const NEVER: u32 = u32::MAX;
/// Moments that have one counter of the tree, in words of 64.
const WORDS: usize = 8;
const GROUP: usize = 64 * WORDS;

/// Groups for so many entries: between two renumberings there are as many uses as blocks.
const fn groups(entries: u32) -> usize {
    (2 * entries as usize).div_ceil(GROUP) + 1
}

/// Blocks in the order of their last uses. Takes 4 bytes a block, and two bits.
///
/// A use takes time in the logarithm of the number of blocks.
#[derive(Debug)]
pub struct Stack {
    /// When each block was used last.
    used: Vec<u32>,
    /// The moments from which a block or a hole is in the stack: a bit each.
    marks: Vec<u64>,
    /// How many bits are set in each group of words, as Fenwick's tree: from 1.
    tree: Vec<u32>,
    now: u32,
    /// Blocks and holes.
    entries: u32,
    /// The highest first.
    holes: BinaryHeap<u32>,
}

impl Stack {
    /// Empty, with room for blocks with numbers below `blocks`; more is made for others.
    pub fn new(blocks: u32) -> Self {
        let groups = groups(blocks);
        Self {
            used: vec![NEVER; blocks as usize],
            marks: vec![0; groups * WORDS],
            tree: vec![0; groups + 1],
            now: 0,
            entries: 0,
            holes: BinaryHeap::new(),
        }
    }

    /// Uses a block; how deep it lay, from 1. `None` if it was not in.
    #[inline]
    pub fn touch(&mut self, block: Block) -> Option<u32> {
        if self.now as usize == 64 * self.marks.len() {
            self.renumber();
        }
        if block.index() >= self.used.len() {
            self.used.resize(block.index() + 1, NEVER);
        }
        let last = self.used[block.index()];
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
        self.used[block.index()] = self.now;
        self.now += 1;
        depth
    }

    /// Takes a block out; how deep it lay.
    pub(super) fn take_out(&mut self, block: Block) -> Option<u32> {
        let last = std::mem::replace(self.used.get_mut(block.index())?, NEVER);
        let depth = self.depth(last);
        if depth.is_some() {
            self.holes.push(last);
        }
        depth
    }

    /// Only these blocks, whose numbers ascend, were ever used: they are numbered anew from 0. What left a hole is forgotten,
    /// too.
    pub(crate) fn retain(&mut self, kept: &[u32]) {
        let moment = |old: &u32| self.used.get(*old as usize).copied().unwrap_or(NEVER);
        let mut order: Vec<_> = (0..).zip(kept).map(|(new, old)| (moment(old), Block(new))).collect();
        order.retain(|(moment, _)| *moment != NEVER);
        order.sort_unstable_by_key(|(moment, _)| *moment);
        *self = Self::new(kept.len() as u32);
        for (_, block) in order {
            self.touch(block);
        }
    }

    /// The blocks that caches of these sizes have.
    pub(super) fn held(&self, sizes: &[u32]) -> Vec<u32> {
        let mut holes: Vec<_> = self.holes.iter().filter_map(|hole| self.depth(*hole)).collect();
        holes.sort_unstable();
        let held =
            |size: &u32| *size.min(&self.entries) - holes.partition_point(|depth| depth <= size) as u32;
        sizes.iter().map(held).collect()
    }

    /// How deep what dates from a moment lies.
    #[inline]
    fn depth(&self, moment: u32) -> Option<u32> {
        (moment != NEVER).then(|| self.entries - self.before(moment))
    }

    /// Entries that are older.
    #[inline]
    fn before(&self, moment: u32) -> u32 {
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

    /// There is an entry of a moment now, or not any more.
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

    /// Moments become the ranks of what dates from them.
    #[cold]
    fn renumber(&mut self) {
        let holes = std::mem::take(&mut self.holes);
        self.holes = holes.into_iter().map(|hole| self.before(hole)).collect();
        let mut used = std::mem::take(&mut self.used);
        for last in used.iter_mut().filter(|last| **last != NEVER) {
            *last = self.before(*last);
        }
        self.used = used;
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
    use weir_policy::eviction::{Eviction, Lru, Room, Use};

    proptest! {
        /// Beside LRU caches of every size.
        #[test]
        fn depth_tells_the_sizes_that_hit(steps in prop::collection::vec((0u32..40, 0u8..8), 0..3000)) {
            let blocks = 40;
            // Room for more blocks is made on the way.
            let mut stack = Stack::new(blocks / 4);
            let mut caches: Vec<_> =
                (1..=50).map(|capacity| (capacity, 0, Lru::new(Room { blocks, capacity }))).collect();
            for (block, what) in steps {
                let block = Block(block);
                let depth = if what == 0 { stack.take_out(block) } else { stack.touch(block) };
                for (capacity, held, cache) in &mut caches {
                    let has = if what == 0 { cache.remove(block) } else { cache.hit(block, Use::Read) };
                    prop_assert_eq!(has, depth.is_some_and(|depth| depth <= *capacity), "{} blocks", capacity);
                    if what == 0 {
                        *held -= u32::from(has);
                    } else if !has {
                        let was_full = *held == *capacity;
                        cache.insert(block, |_| true);
                        *held += u32::from(!was_full);
                    }
                    prop_assert_eq!(stack.held(&[*capacity]), [*held]);
                }
            }
        }
    }
}
