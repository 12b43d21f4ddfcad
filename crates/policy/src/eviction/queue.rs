//! A cache that is a single queue, whose oldest block leaves.

use super::lists::Lists;
use super::{Block, CacheSize, Insertion};

/// The common part of [`Fifo`](super::Fifo), [`Lru`](super::Lru) and [`Lrw`](super::Lrw), which differ in the
/// uses that renew a block.
#[derive(Debug)]
pub(super) struct Queue {
    capacity: u32,
    blocks: Lists<1>,
}

impl Queue {
    pub(super) fn new(size: CacheSize) -> Self {
        Self { capacity: size.capacity, blocks: Lists::new(size.blocks) }
    }

    #[inline]
    pub(super) fn contains(&self, block: Block) -> bool {
        self.blocks.contains(block)
    }

    /// Makes a cached block the newest.
    #[inline]
    pub(super) fn move_to_newest(&mut self, block: Block) {
        self.blocks.move_to_newest(0, block);
    }

    /// As [`Eviction::insert`](super::Eviction::insert).
    #[inline]
    pub(super) fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let is_full = self.blocks.len(0) >= self.capacity;
        let leaving = if is_full { self.blocks.oldest(0) } else { None };
        if let Some(leaving) = leaving {
            if !may_replace(leaving) {
                return Insertion::Refused;
            }
            self.blocks.remove(0, leaving);
        }
        self.blocks.push(0, block);
        leaving.map_or(Insertion::Added, Insertion::Replaced)
    }

    /// Removes a block. Returns whether it was in.
    pub(super) fn remove(&mut self, block: Block) -> bool {
        self.blocks.remove_if_present(block)
    }
}
