//! `lfu`: the block used least often since its insertion leaves first.
//!
//! Source: folklore; in constant time as in K. Shah, A. Mitra, D. Matani, "An O(1) algorithm for implementing
//! the LFU cache eviction scheme", 2010.
//!
//! Rule: a block is inserted with frequency 1, a hit adds 1, and a block that leaves is forgotten. Among
//! those with the lowest frequency, the one that has had it longest leaves.
//!
//! When not: where the working set changes: blocks used often long ago stay.

use super::{AccessKind, Block, CacheSize, Eviction, EvictionSteps, Insertion, insert_stepwise};

/// The value for no block and no class.
const NONE: u32 = u32::MAX;

/// Least frequently used.
#[derive(Debug)]
pub struct Lfu {
    capacity: u32,
    len: u32,
    /// The entries by block.
    entries: Vec<Entry>,
    classes: Vec<Class>,
    /// The unused classes.
    free: Vec<u32>,
    /// The class of the lowest frequency.
    lowest: u32,
}

/// A block's neighbours in its class.
#[derive(Clone, Copy, Debug)]
struct Entry {
    newer: u32,
    older: u32,
    /// [`NONE`] for a block that is not in the cache.
    class: u32,
}

/// The blocks of one frequency, in the order in which they got it.
#[derive(Clone, Copy, Debug)]
struct Class {
    frequency: u32,
    newest: u32,
    oldest: u32,
    /// The classes of the adjacent frequencies that exist.
    higher: u32,
    lower: u32,
}

impl Lfu {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        let out = Entry { newer: NONE, older: NONE, class: NONE };
        let entries = vec![out; size.blocks as usize];
        Self { capacity: size.capacity, len: 0, entries, classes: Vec::new(), free: Vec::new(), lowest: NONE }
    }

    /// Returns the class of a frequency that follows that of `lower`, or is the lowest if that is none,
    /// creating it if necessary.
    fn class(&mut self, frequency: u32, lower: u32) -> u32 {
        let higher = self.classes.get(lower as usize).map_or(self.lowest, |class| class.higher);
        if self.classes.get(higher as usize).is_some_and(|class| class.frequency == frequency) {
            return higher;
        }
        let class = Class { frequency, newest: NONE, oldest: NONE, higher, lower };
        let at = match self.free.pop() {
            Some(at) => {
                self.classes[at as usize] = class;
                at
            }
            None => {
                self.classes.push(class);
                self.classes.len() as u32 - 1
            }
        };
        self.join(lower, at);
        self.join(at, higher);
        at
    }

    /// Makes two classes neighbours; either may be none.
    fn join(&mut self, lower: u32, higher: u32) {
        match self.classes.get_mut(lower as usize) {
            Some(class) => class.higher = higher,
            None => self.lowest = higher,
        }
        if let Some(class) = self.classes.get_mut(higher as usize) {
            class.lower = lower;
        }
    }

    /// Makes a block its class's newest.
    #[inline]
    fn link(&mut self, block: Block, class: u32) {
        let older = std::mem::replace(&mut self.classes[class as usize].newest, block.0);
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = block.0,
            None => self.classes[class as usize].oldest = block.0,
        }
        self.entries[block.index()] = Entry { newer: NONE, older, class };
    }

    /// Removes a block from its class, which is freed if it becomes empty.
    #[inline]
    fn unlink(&mut self, block: Block) {
        let Entry { newer, older, class: at } = self.entries[block.index()];
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.classes[at as usize].newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.classes[at as usize].oldest = newer,
        }
        let class = self.classes[at as usize];
        if class.oldest == NONE {
            self.join(class.lower, class.higher);
            self.free.push(at);
        }
    }
}

impl Eviction for Lfu {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let Entry { newer, older, class: at } = self.entries[block.index()];
        let Some(class) = self.classes.get(at as usize) else { return false };
        let frequency = class.frequency.saturating_add(1);
        let next = self.classes.get(class.higher as usize).map(|class| class.frequency);
        if newer == NONE && older == NONE && next != Some(frequency) {
            // The block is alone in its class, which takes the next frequency.
            self.classes[at as usize].frequency = frequency;
        } else {
            let class = self.class(frequency, at);
            self.unlink(block);
            self.link(block, class);
        }
        true
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        insert_stepwise(self, block, may_replace)
    }

    fn remove(&mut self, block: Block) -> bool {
        let was_in = self.entries[block.index()].class != NONE;
        if was_in {
            self.unlink(block);
            self.entries[block.index()].class = NONE;
            self.len -= 1;
        }
        was_in
    }
}

impl EvictionSteps for Lfu {
    #[inline]
    fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    #[inline]
    fn candidate(&mut self) -> Option<Block> {
        self.classes.get(self.lowest as usize).map(|class| Block(class.oldest))
    }

    #[inline]
    fn enter(&mut self, block: Block) {
        let class = self.class(1, NONE);
        self.link(block, class);
        self.len += 1;
    }
}
