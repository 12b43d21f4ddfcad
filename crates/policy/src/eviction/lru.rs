//! `lru`: the least recently used block leaves first.
//!
//! Source: folklore; the baseline of all others. Rule: a hit makes a block the newest.
//!
//! When not: one scan larger than the cache evicts everything else.

use super::queue::Queue;
use super::{Block, Eviction, Insertion, Room, Use};

/// Least recently used.
#[derive(Debug)]
pub struct Lru(Queue);

impl Lru {
    /// Creates an empty cache.
    pub fn new(room: Room) -> Self {
        Self(Queue::new(room))
    }
}

impl Eviction for Lru {
    #[inline]
    fn hit(&mut self, block: Block, _: Use) -> bool {
        let is_in = self.0.contains(block);
        if is_in {
            self.0.renew(block);
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
}
