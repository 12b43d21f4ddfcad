//! `lrw`: the least recently written block leaves first.
//!
//! Source: HEC (the dissertation behind it, chapter 3), for caches on flash: the order of the log is the
//! order of eviction, and reads, which write nothing, cost nothing.
//!
//! Rule: a block is written when it is inserted and whenever a write hits it; a hit by a read changes
//! nothing.
//!
//! When not: for loads that read the same blocks again and again and write others.

use super::queue::Queue;
use super::{AccessKind, Block, CacheSize, Eviction, Insertion};

/// Least recently written.
#[derive(Debug)]
pub struct Lrw(Queue);

impl Lrw {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        Self(Queue::new(size))
    }
}

impl Eviction for Lrw {
    #[inline]
    fn hit(&mut self, block: Block, used: AccessKind) -> bool {
        let is_in = self.0.contains(block);
        if is_in && used == AccessKind::Write {
            self.0.move_to_newest(block);
        }
        is_in
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        self.0.insert(block, may_replace)
    }

    fn remove(&mut self, block: Block) -> bool {
        self.0.remove(block)
    }

    #[inline]
    fn prefetch(&self, blocks: &[Block]) {
        self.0.prefetch(blocks);
    }
}
