//! `fifo`: what came first leaves first.
//!
//! Source: folklore. Rule: a hit changes nothing.
//!
//! When not: whenever some blocks are asked for again and again, they leave all the same.

use super::lists::Lists;
use super::{Block, Eviction, Insertion, Room, Turnover, Use, turn_over};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    capacity: u32,
    queue: Lists<1>,
}

impl Fifo {
    /// An empty cache.
    pub fn new(room: Room) -> Self {
        Self { capacity: room.capacity, queue: Lists::new(room.blocks) }
    }
}

impl Eviction for Fifo {
    #[inline]
    fn hit(&mut self, block: Block, _: Use) -> bool {
        self.queue.contains(block)
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        turn_over(self, block, may_replace)
    }

    fn remove(&mut self, block: Block) -> bool {
        self.queue.forget(block)
    }
}

impl Turnover for Fifo {
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
