//! `clock`: first in, first out, with a second chance for used blocks.
//!
//! Source: F. J. Corbató, "A paging experiment with the Multics system", 1968.
//!
//! Rule: one bit per block, clear on insertion, set by a hit. To evict, the oldest block with its bit set has
//! it cleared and becomes the newest, until the oldest has it clear: that one leaves.
//!
//! When not: as LRU, which it approximates at a fraction of the cost of a hit.

use super::lists::Lists;
use super::marks::Marks;
use super::{Block, Eviction, Insertion, Room, Turnover, Use, turn_over};

/// The CLOCK policy.
#[derive(Debug)]
pub struct Clock {
    capacity: u32,
    queue: Lists<1>,
    marks: Marks,
}

impl Clock {
    /// Creates an empty cache.
    pub fn new(room: Room) -> Self {
        let marks = Marks::new(room.blocks);
        Self { capacity: room.capacity, queue: Lists::new(room.blocks), marks }
    }
}

impl Eviction for Clock {
    #[inline]
    fn hit(&mut self, block: Block, _: Use) -> bool {
        self.marks.hit(block)
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        turn_over(self, block, may_replace)
    }

    #[inline]
    fn remove(&mut self, block: Block) -> bool {
        let was_in = self.marks.leave(block);
        if was_in {
            self.queue.remove(0, block);
        }
        was_in
    }
}

impl Turnover for Clock {
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
            self.queue.renew(0, oldest);
        }
    }

    #[inline]
    fn enter(&mut self, block: Block) {
        self.queue.push(0, block);
        self.marks.enter(block);
    }
}
