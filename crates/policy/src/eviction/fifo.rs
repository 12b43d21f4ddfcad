//! `fifo`: the block inserted first leaves first.
//!
//! Source: folklore. Rule: a hit changes nothing.
//!
//! When not: where some blocks are used again and again; they leave all the same.

use super::items::{History, Ranking};
use super::queue::Queue;
use super::{AccessKind, Block, CacheSize, Eviction, Insertion};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo(Queue);

impl Fifo {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        Self(Queue::new(size))
    }
}

impl Eviction for Fifo {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        self.0.contains(block)
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

/// First in, first out, for items: ranked by their insertion.
#[derive(Debug)]
pub(super) struct FifoRanking;

impl Ranking for FifoRanking {
    fn rank(&self, item: &History) -> f64 {
        item.inserted as f64
    }
}
