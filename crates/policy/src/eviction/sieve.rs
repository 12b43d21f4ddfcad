//! `sieve`: a hand evicts blocks that were not used since it last passed; used blocks keep their position.
//!
//! Source: Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson, K. V. Rashmi, "SIEVE is Simpler than LRU", NSDI 2024.
//!
//! Rule: a queue in the order of arrival and one bit per block, clear on insertion, set by a hit. The hand
//! begins at the oldest and moves towards newer ones, from the newest back to the oldest; where the bit is
//! set it clears it and moves on, else that block leaves and its newer neighbour gets the hand.
//!
//! When not: where the working set changes permanently, and with scans: the blocks of a scan are evicted
//! slowly.

use super::lists::Lists;
use super::reference_bits::ReferenceBits;
use super::{AccessKind, Block, CacheSize, Eviction, EvictionSteps, Insertion, insert_stepwise};

/// SIEVE.
#[derive(Debug)]
pub struct Sieve {
    capacity: u32,
    queue: Lists<1>,
    marks: ReferenceBits,
    /// The position of the hand; `None` for the oldest.
    hand: Option<Block>,
}

impl Sieve {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        let marks = ReferenceBits::new(size.blocks);
        Self { capacity: size.capacity, queue: Lists::new(size.blocks), marks, hand: None }
    }
}

impl Eviction for Sieve {
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
            if self.hand == Some(block) {
                self.hand = self.queue.newer(block);
            }
            self.queue.remove(0, block);
        }
        was_in
    }
}

impl EvictionSteps for Sieve {
    #[inline]
    fn is_full(&self) -> bool {
        self.queue.len(0) >= self.capacity
    }

    #[inline]
    fn candidate(&mut self) -> Option<Block> {
        loop {
            let at = self.hand.or_else(|| self.queue.oldest(0))?;
            if !self.marks.clear(at) {
                self.hand = Some(at);
                return Some(at);
            }
            self.hand = self.queue.newer(at);
        }
    }

    #[inline]
    fn enter(&mut self, block: Block) {
        self.queue.push(0, block);
        self.marks.insert(block);
    }
}
