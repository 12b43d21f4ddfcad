//! `slru`: four queues; a hit moves a block one up, a block that does not fit its queue moves one down.
//!
//! Source: R. Karedla, J. S. Love, B. G. Wherry, "Caching strategies to improve disk system performance",
//! 1994, with two segments; four as in libCacheSim, of a quarter of the capacity each (the remainder belongs
//! to the lowest one).
//!
//! Rule: a block is inserted in the lowest segment with space, else in the lowest. A hit makes it the newest
//! of the next segment up, in the highest of its own; the oldest of a segment that is too large then becomes
//! the newest of the next one down. The oldest of the lowest non-empty segment leaves.
//!
//! When not: where the working set changes often: it takes several hits to be safe.

use super::lists::Lists;
use super::{AccessKind, Block, CacheSize, Eviction, EvictionSteps, Insertion, insert_stepwise};

const SEGMENTS: usize = 4;
const OUT: u8 = u8::MAX;

/// Segmented LRU.
#[derive(Debug)]
pub struct Slru {
    capacity: u32,
    segments: Lists<SEGMENTS>,
    /// The segment of each block.
    segment: Vec<u8>,
    most: [u32; SEGMENTS],
}

impl Slru {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        let quarter = size.capacity / SEGMENTS as u32;
        let mut most = [quarter; SEGMENTS];
        most[0] = size.capacity - quarter * (SEGMENTS as u32 - 1);
        let segment = vec![OUT; size.blocks as usize];
        Self { capacity: size.capacity, segments: Lists::new(size.blocks), segment, most }
    }

    /// Makes a block of one segment the newest of another.
    fn shift(&mut self, block: Block, from: usize, to: usize) {
        self.segments.shift(from, to, block);
        self.segment[block.index()] = to as u8;
    }
}

impl Eviction for Slru {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let segment = self.segment[block.index()];
        if segment == OUT {
            return false;
        }
        let from = usize::from(segment);
        let to = (from + 1).min(SEGMENTS - 1);
        self.shift(block, from, to);
        for over in (1..=to).rev() {
            match self.segments.oldest(over) {
                Some(oldest) if self.segments.len(over) > self.most[over] => {
                    self.shift(oldest, over, over - 1);
                }
                _ => break,
            }
        }
        true
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        insert_stepwise(self, block, may_replace)
    }

    fn remove(&mut self, block: Block) -> bool {
        let segment = std::mem::replace(&mut self.segment[block.index()], OUT);
        if segment != OUT {
            self.segments.remove(segment.into(), block);
        }
        segment != OUT
    }
}

impl EvictionSteps for Slru {
    #[inline]
    fn is_full(&self) -> bool {
        (0..SEGMENTS).map(|segment| self.segments.len(segment)).sum::<u32>() >= self.capacity
    }

    #[inline]
    fn candidate(&mut self) -> Option<Block> {
        (0..SEGMENTS).find_map(|segment| self.segments.oldest(segment))
    }

    #[inline]
    fn enter(&mut self, block: Block) {
        let has_room = |segment: &usize| self.segments.len(*segment) < self.most[*segment];
        let segment = (0..SEGMENTS).find(has_room).unwrap_or(0);
        self.segments.push(segment, block);
        self.segment[block.index()] = segment as u8;
    }
}
