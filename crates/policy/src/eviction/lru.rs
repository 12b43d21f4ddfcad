//! `lru`: what was used longest ago leaves first.
//!
//! Source: folklore; the measure of all others. Rule: a hit makes a block the newest.
//!
//! When not: one scan larger than the cache empties it of everything else.

use super::lists::Lists;
use super::{Block, Eviction, Insertion, Room, Turnover, Use, turn_over};

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    capacity: u32,
    queue: Lists<1>,
}

impl Lru {
    /// An empty cache.
    pub fn new(room: Room) -> Self {
        Self { capacity: room.capacity, queue: Lists::new(room.blocks) }
    }
}

impl Eviction for Lru {
    #[inline]
    fn hit(&mut self, block: Block, _: Use) -> bool {
        let is_in = self.queue.contains(block);
        if is_in {
            self.queue.renew(0, block);
        }
        is_in
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        turn_over(self, block, may_replace)
    }

    fn remove(&mut self, block: Block) -> bool {
        self.queue.forget(block)
    }
}

impl Turnover for Lru {
    #[inline]
    fn is_full(&self) -> bool {
        self.queue.len(0) >= self.capacity
    }

    #[inline]
    fn candidate(&mut self) -> Option<Block> {
        self.queue.oldest(0)
    }

    #[inline]
    fn enter(&mut self, block: Block) {
        self.queue.push(0, block);
    }
}
