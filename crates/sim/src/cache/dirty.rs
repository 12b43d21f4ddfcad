//! The dirty blocks of a cache.

use weir_policy::eviction::{AccessKind, Block, CacheSize, Eviction, Fifo, Insertion};

/// The dirty blocks: a queue in the order in which they became dirty, bounded by the allowed number.
#[derive(Debug)]
pub(crate) struct Dirty {
    queue: Fifo,
    len: u64,
}

impl Dirty {
    /// Creates an empty queue of at most this share of the cache.
    pub(crate) fn new(room: CacheSize, share: f64) -> Self {
        let most = (f64::from(room.capacity) * share) as u32;
        Self { queue: Fifo::new(CacheSize { capacity: most.clamp(1, room.capacity), ..room }), len: 0 }
    }

    /// Marks a block dirty; returns whether another had to be written to the disk for it.
    pub(crate) fn mark_dirty(&mut self, block: Block) -> bool {
        if self.queue.hit(block, AccessKind::Write) {
            return false;
        }
        let flushed = self.queue.insert(block, |_| true) != Insertion::Added;
        self.len += u64::from(!flushed);
        flushed
    }

    /// Returns the number of dirty blocks.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Whether a block is dirty.
    pub(crate) fn contains(&mut self, block: Block) -> bool {
        self.queue.hit(block, AccessKind::Read)
    }

    /// Marks a block clean; returns whether it was dirty.
    pub(crate) fn mark_clean(&mut self, block: Block) -> bool {
        let was = self.queue.remove(block);
        self.len -= u64::from(was);
        was
    }
}
