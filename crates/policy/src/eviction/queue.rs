//! A cache that is a single queue, whose oldest block leaves.

use super::{Block, CacheSize, Insertion};

/// The common part of [`Fifo`](super::Fifo), [`Lru`](super::Lru) and [`Lrw`](super::Lrw), which differ in the
/// uses that renew a block.
///
/// The queue is a sequence of renewals, of which a block's last one counts. To renew a block takes a store
/// and an append; a linked list would have to load three neighbours, one after the other. Memory: 4 bytes per
/// block, and up to 16 per block of the capacity, but at most 12 per block in all.
#[derive(Debug)]
pub(super) struct Queue {
    capacity: u32,
    /// The number of blocks in the queue.
    len: u32,
    /// The index of each block's last renewal; [`NONE`] for a block that is not in the queue.
    last: Vec<u32>,
    /// Renewals in their order. One that is not its block's last is obsolete.
    renewals: Vec<Block>,
    /// Index in `renewals` up to which all are obsolete.
    oldest: usize,
    /// The length of `renewals` at which the obsolete ones are removed.
    renewals_max: usize,
}

/// The index of a block that is not in the queue.
const NONE: u32 = u32::MAX;

/// Minimum number of renewals between two removals of obsolete ones.
const RENEWALS_MIN: u64 = 64;

impl Queue {
    pub(super) fn new(size: CacheSize) -> Self {
        let (blocks, capacity) = (u64::from(size.blocks), u64::from(size.capacity.min(size.blocks)));
        let obsolete = (3 * capacity).min(blocks).max(RENEWALS_MIN);
        let renewals_max = (capacity + obsolete).min(u64::from(NONE)) as usize;
        Self {
            capacity: size.capacity,
            len: 0,
            last: vec![NONE; size.blocks as usize],
            renewals: Vec::with_capacity(renewals_max),
            oldest: 0,
            renewals_max,
        }
    }

    #[inline]
    pub(super) fn contains(&self, block: Block) -> bool {
        self.last[block.index()] != NONE
    }

    /// Makes a cached block the newest.
    #[inline]
    pub(super) fn move_to_newest(&mut self, block: Block) {
        if self.renewals.last() != Some(&block) {
            self.append(block);
        }
    }

    /// As [`Eviction::insert`](super::Eviction::insert).
    #[inline]
    pub(super) fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let leaving = if self.len >= self.capacity { self.oldest() } else { None };
        if let Some(leaving) = leaving {
            if !may_replace(leaving) {
                return Insertion::Refused;
            }
            self.remove(leaving);
        }
        self.append(block);
        self.len += 1;
        leaving.map_or(Insertion::Added, Insertion::Replaced)
    }

    /// Removes a block. Returns whether it was in.
    #[inline]
    pub(super) fn remove(&mut self, block: Block) -> bool {
        let is_in = self.contains(block);
        self.last[block.index()] = NONE;
        self.len -= u32::from(is_in);
        is_in
    }

    /// As [`Eviction::prefetch`](super::Eviction::prefetch): for these blocks, and for as many that may leave
    /// for them.
    #[inline]
    pub(super) fn prefetch(&self, blocks: &[Block]) {
        let leaving = self.renewals.iter().skip(self.oldest).take(blocks.len());
        // Only the loads count.
        std::hint::black_box(blocks.iter().chain(leaving).filter(|block| self.contains(**block)).count());
    }

    /// Returns the block that was not renewed for the longest time.
    #[inline]
    fn oldest(&mut self) -> Option<Block> {
        loop {
            let block = *self.renewals.get(self.oldest)?;
            if self.is_last(block, self.oldest) {
                return Some(block);
            }
            self.oldest += 1;
        }
    }

    /// Whether the renewal at an index is its block's last.
    #[inline]
    fn is_last(&self, block: Block, index: usize) -> bool {
        self.last[block.index()] as usize == index
    }

    #[inline]
    fn append(&mut self, block: Block) {
        if self.renewals.len() == self.renewals_max {
            self.remove_obsolete();
        }
        self.last[block.index()] = self.renewals.len() as u32;
        self.renewals.push(block);
    }

    /// Removes the obsolete renewals: all but one per block. The rest is at most the capacity, so that the
    /// cost per append is constant, amortised.
    #[cold]
    fn remove_obsolete(&mut self) {
        let mut kept = 0;
        for index in self.oldest..self.renewals.len() {
            let block = self.renewals[index];
            if self.is_last(block, index) {
                self.renewals[kept] = block;
                self.last[block.index()] = kept as u32;
                kept += 1;
            }
        }
        self.renewals.truncate(kept);
        self.oldest = 0;
    }
}
