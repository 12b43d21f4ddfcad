//! `lru`: the least recently used block leaves first.
//!
//! Source: folklore; the baseline of all others. Rule: a hit makes a block the newest.
//!
//! When not: one scan larger than the cache evicts everything else.

use super::items::{History, Ranking};
use super::queue::Queue;
use super::{AccessKind, Block, CacheSize, Eviction, Insertion};

/// Least recently used.
#[derive(Debug)]
pub struct Lru(Queue);

impl Lru {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        Self(Queue::new(size))
    }
}

impl Eviction for Lru {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let is_in = self.0.contains(block);
        if is_in {
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

/// Least recently used, for items: ranked by their last access.
#[derive(Debug)]
pub(super) struct LruRanking;

impl Ranking for LruRanking {
    fn rank(&self, item: &History) -> f64 {
        item.accessed as f64
    }
}
