//! `clock`: first in, first out, with a second chance for used blocks.
//!
//! Source: F. J. Corbató, "A paging experiment with the Multics system", 1968.
//!
//! Rule: one bit per block, clear on insertion, set by a hit. To evict, the oldest block with its bit set has
//! it cleared and becomes the newest, until the oldest has it clear: that one leaves.
//!
//! When not: as LRU, which it approximates at a fraction of the cost of a hit.

use super::lists::Lists;
use super::reference_bits::ReferenceBits;
use super::{AccessKind, Block, CacheSize, Eviction, EvictionSteps, Insertion, insert_stepwise};

/// The CLOCK policy.
#[derive(Debug)]
pub struct Clock {
    capacity: u32,
    queue: Lists<1>,
    marks: ReferenceBits,
}

impl Clock {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        let marks = ReferenceBits::new(size.blocks);
        Self { capacity: size.capacity, queue: Lists::new(size.blocks), marks }
    }
}

impl Eviction for Clock {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        self.marks.hit(block)
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        insert_stepwise(self, block, may_replace)
    }

    #[inline]
    fn remove(&mut self, block: Block) -> bool {
        let was_in = self.marks.remove(block);
        if was_in {
            self.queue.remove(0, block);
        }
        was_in
    }
}

impl EvictionSteps for Clock {
    #[inline]
    fn is_full(&self) -> bool {
        self.queue.len(0) >= self.capacity
    }

    #[inline]
    fn candidate(&mut self) -> Option<Block> {
        loop {
            let oldest = self.queue.oldest(0)?;
            if !self.marks.clear(oldest) {
                return Some(oldest);
            }
            self.queue.move_to_newest(0, oldest);
        }
    }

    #[inline]
    fn enter(&mut self, block: Block) {
        self.queue.push(0, block);
        self.marks.insert(block);
    }
}
