//! `lrw`: what was written to the cache longest ago leaves first.
//!
//! Source: HEC (mechanisms, section 8; the dissertation behind it, chapter 3), for caches on flash: the
//! order of the log is the order of eviction, and reads, which write nothing, cost nothing.
//!
//! Rule: a block is written when it comes in and whenever it is hit by a write; a hit by a read changes nothing.
//!
//! When not: for loads that read the same blocks again and again and write others.

use super::lists::Lists;
use super::{Block, Eviction, Insertion, Room, Turnover, Use, turn_over};

/// Least recently written.
#[derive(Debug)]
pub struct Lrw {
    capacity: u32,
    queue: Lists<1>,
}

impl Lrw {
    /// An empty cache.
    pub fn new(room: Room) -> Self {
        Self { capacity: room.capacity, queue: Lists::new(room.blocks) }
    }
}

impl Eviction for Lrw {
    #[inline]
    fn hit(&mut self, block: Block, used: Use) -> bool {
        let is_in = self.queue.contains(block);
        if is_in && used == Use::Write {
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

impl Turnover for Lrw {
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
