//! `wtinylfu-libcachesim`: W-TinyLFU exactly as libCacheSim implements it, which differs from the
//! publication.
//!
//! Source: libCacheSim 0.3.5, `cache/eviction/WTinyLFU.c`, `cache/eviction/SLRU.c` and
//! `dataStructure/minimalIncrementCBF.c`, with their defaults; its objects are of size 1 and have the blocks'
//! numbers.
//!
//! Rule: as [`WTinyLfu`](super::WTinyLfu), but
//!
//! - a hit in the window is not counted, and a block is counted once more when it leaves the window;
//! - counts are halved after as many hits in the main cache as 32 times its capacity, which few traces have;
//!   they have no upper bound, there is no doorkeeper, and they are kept in a counting Bloom filter of 14.4
//!   counters for each block of the main cache;
//! - until the cache is full all blocks are in the window. Then the window's oldest go to the main cache, a
//!   fifth of it to probation, the others directly to the protected blocks;
//! - a fifth and four fifths of the main cache are rounded down. If a block is left over, a hit that moves a
//!   protected block back to probation makes the oldest there leave, and the window takes one more until the
//!   main cache fills again.
//!
//! Constants: as there. A window of less than a block, in caches below 100 blocks, is one here; there such a
//! cache stays empty.
//!
//! When not: to judge the published policy; this one is for comparing figures.

use super::lists::Lists;
use super::{AccessKind, Block, CacheSize, Eviction, Insertion};

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;
/// The list of a block that counts as out, but keeps its place in the cache until another block needs it:
/// [`Eviction::hit`] cannot evict.
const DROPPED: u8 = 3;
const OUT: u8 = 4;

/// The window's share of the capacity.
const WINDOW_SHARE: f64 = 0.01;
/// The number of hits in the main cache after which counts are halved, per block of it.
const SAMPLE: u64 = 32;

/// libCacheSim's W-TinyLFU.
#[derive(Debug)]
pub struct WTinyLfuLibCacheSim {
    capacity: u32,
    most_main: u32,
    most_probation: u32,
    most_protected: u32,
    lists: Lists<4>,
    /// The list of each block.
    list: Vec<u8>,
    counts: Counts,
    /// The hits in the main cache since counts were halved.
    hits: u64,
}

impl WTinyLfuLibCacheSim {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        let most_main = size.capacity - size.share(WINDOW_SHARE).max(1);
        let share = |fifths: f64| (fifths / 5.0 * f64::from(most_main)) as u32;
        Self {
            capacity: size.capacity,
            most_main,
            most_probation: share(1.0).max(1),
            most_protected: share(4.0),
            lists: Lists::new(size.blocks),
            list: vec![OUT; size.blocks as usize],
            counts: Counts::new(most_main),
            hits: 0,
        }
    }

    #[inline]
    fn len(&self, list: u8) -> u32 {
        self.lists.len(list.into())
    }

    #[inline]
    fn shift(&mut self, block: Block, to: u8) {
        let from = std::mem::replace(&mut self.list[block.index()], to);
        self.lists.shift(from.into(), to.into(), block);
    }

    fn main(&self) -> u32 {
        self.len(PROBATION) + self.len(PROTECTED)
    }

    /// Moves the window's oldest to the main cache: to the protected blocks if only they have space.
    fn admit(&mut self, block: Block) {
        let has_room =
            self.len(PROBATION) >= self.most_probation && self.len(PROTECTED) < self.most_protected;
        self.shift(block, if has_room { PROTECTED } else { PROBATION });
    }

    /// Makes a block on probation protected, because it was used.
    fn protect(&mut self, block: Block) {
        self.shift(block, PROTECTED);
        if self.len(PROTECTED) <= self.most_protected {
            return;
        }
        if let Some(oldest) = self.lists.oldest(PROTECTED.into()) {
            self.shift(oldest, PROBATION);
        }
        if self.len(PROBATION) > self.most_probation
            && let Some(oldest) = self.lists.oldest(PROBATION.into())
        {
            self.shift(oldest, DROPPED);
        }
    }

    /// Returns the block that leaves a full cache: a dropped one, or the window's oldest or the main cache's,
    /// whichever was counted less often. Moves the window's oldest to the main cache while that has space.
    fn candidate(&mut self) -> Option<Block> {
        if let Some(dropped) = self.lists.oldest(DROPPED.into()) {
            return Some(dropped);
        }
        while self.main() < self.most_main
            && let Some(oldest) = self.lists.oldest(WINDOW.into())
        {
            self.admit(oldest);
            self.counts.add(oldest);
        }
        let main = self.lists.oldest(PROBATION.into()).or_else(|| self.lists.oldest(PROTECTED.into()));
        match (self.lists.oldest(WINDOW.into()), main) {
            (Some(oldest), Some(main)) if self.counts.of(oldest) > self.counts.of(main) => Some(main),
            (window, main) => window.or(main),
        }
    }

    /// Removes the candidate; if it was the main cache's, the window's oldest replaces it.
    fn evict(&mut self, leaving: Block) {
        if self.list[leaving.index()] == DROPPED {
            self.remove(leaving);
            return;
        }
        let oldest = self.lists.oldest(WINDOW.into());
        self.remove(leaving);
        if let Some(oldest) = oldest {
            if oldest != leaving {
                self.admit(oldest);
            }
            self.counts.add(oldest);
        }
    }
}

impl Eviction for WTinyLfuLibCacheSim {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let list = self.list[block.index()];
        match list {
            DROPPED | OUT => return false,
            PROBATION => self.protect(block),
            _ => self.lists.move_to_newest(list.into(), block),
        }
        if list != WINDOW {
            self.counts.add(block);
            self.hits += 1;
            if self.hits >= SAMPLE * u64::from(self.most_main) {
                self.hits = 0;
                self.counts.halve();
            }
        }
        true
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let taken = (WINDOW..=DROPPED).map(|list| self.len(list)).sum::<u32>();
        let leaving = if taken >= self.capacity { self.candidate() } else { None };
        if let Some(leaving) = leaving {
            if !may_replace(leaving) {
                return Insertion::Refused;
            }
            self.evict(leaving);
        }
        // A dropped block that is used again leaves first.
        self.remove(block);
        self.lists.push(WINDOW.into(), block);
        self.list[block.index()] = WINDOW;
        self.counts.add(block);
        leaving.map_or(Insertion::Added, Insertion::Replaced)
    }

    fn remove(&mut self, block: Block) -> bool {
        let list = std::mem::replace(&mut self.list[block.index()], OUT);
        if list != OUT {
            self.lists.remove(list.into(), block);
        }
        list != OUT
    }
}

/// A counting Bloom filter. It increments all counters of a block, unlike its name there suggests.
#[derive(Debug)]
pub(super) struct Counts {
    counters: Vec<u32>,
}

/// The number of counters of a block: for one false positive in a thousand, like the next constant.
const HASHES: u32 = 10;
/// The number of counters per block of the main cache: -ln(0.001) / ln(2)^2.
const PER_BLOCK: f64 = 6.907_755_278_982_137 / 0.480_453_013_918_201;
const SEEDS: [u64; 2] = [0x1234_5678, 0x1234_4321];

impl Counts {
    pub(super) fn new(blocks: u32) -> Self {
        let counters = (PER_BLOCK * f64::from(blocks)).ceil().min(f64::from(i32::MAX)) as usize;
        let enough = if counters < HASHES as usize { 2 * HASHES as usize } else { counters };
        Self { counters: vec![0; enough] }
    }

    /// Returns the indices of a block's counters.
    #[inline]
    fn places(&self, block: Block) -> impl Iterator<Item = usize> + use<> {
        let [first, step] = SEEDS.map(|seed| xxh64(block.0.into(), seed) as u32);
        let count = self.counters.len() as u32;
        (0..HASHES).map(move |nth| (first.wrapping_add(nth.wrapping_mul(step)) % count) as usize)
    }

    #[inline]
    pub(super) fn of(&self, block: Block) -> u32 {
        self.places(block).map(|at| self.counters[at]).min().unwrap_or(0)
    }

    #[inline]
    pub(super) fn add(&mut self, block: Block) {
        for at in self.places(block) {
            self.counters[at] = self.counters[at].wrapping_add(1);
        }
    }

    pub(super) fn halve(&mut self) {
        self.counters.iter_mut().for_each(|counter| *counter >>= 1);
    }
}

/// Returns XXH64 of eight bytes, the lowest first.
#[inline]
const fn xxh64(value: u64, seed: u64) -> u64 {
    const PRIMES: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    let [one, two, three, four, five] = PRIMES;
    let word = value.wrapping_mul(two).rotate_left(31).wrapping_mul(one);
    let sum = seed.wrapping_add(five).wrapping_add(8) ^ word;
    let sum = sum.rotate_left(27).wrapping_mul(one).wrapping_add(four);
    let sum = (sum ^ sum >> 33).wrapping_mul(two);
    let sum = (sum ^ sum >> 29).wrapping_mul(three);
    sum ^ sum >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the xxhash library's `xxh64_intdigest` for these bytes.
    #[test]
    fn hashes_are_those_of_xxh64() {
        assert_eq!(xxh64(0, 0), 0x34c9_6acd_cadb_1bbb);
        assert_eq!(xxh64(1, SEEDS[0]), 0x071b_9484_a237_4097);
        assert_eq!(xxh64(0x0123_4567_89ab_cdef, SEEDS[1]), 0xb999_8ad8_2042_d74b);
    }
}
