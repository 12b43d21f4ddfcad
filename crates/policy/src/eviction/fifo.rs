//! `fifo`: the block inserted first leaves first.
//!
//! Source: folklore. Rule: a hit changes nothing.
//!
//! When not: where some blocks are used again and again; they leave all the same.

use super::queue::Queue;
use super::{Block, Eviction, Insertion, Room, Use};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo(Queue);

impl Fifo {
    /// Creates an empty cache.
    pub fn new(room: Room) -> Self {
        Self(Queue::new(room))
    }
}

impl Eviction for Fifo {
    #[inline]
    fn hit(&mut self, block: Block, _: Use) -> bool {
        self.0.contains(block)
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        self.0.insert(block, may_replace)
    }

    fn remove(&mut self, block: Block) -> bool {
        self.0.remove(block)
    }
}
