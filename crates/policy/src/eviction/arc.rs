//! `arc`: blocks used once and blocks used more often share the cache in the currently best proportion.
//!
//! Source: N. Megiddo, D. S. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003, figure
//! 4.
//!
//! Rule: T1 and T2 contain the blocks used once and more often, each in the order of use; B1 and B2 remember
//! the blocks that left them. A miss that B1 remembers increases T1's target `p` by max(1, |B2|/|B1|), one
//! that B2 remembers decreases it by max(1, |B1|/|B2|); either enters T2, any other enters T1. The oldest of
//! T1 leaves if T1 is larger than `p`, or as large and the miss was remembered by B2, or if T2 is empty; else
//! the oldest of T2. T1 and B1 together remember at most as many blocks as the capacity, all four twice as
//! many.
//!
//! `p` is real, `|B1|` and `|B2|` count the remembered block itself, and before the cache is full nothing
//! leaves: as in libCacheSim.
//!
//! When not: patented until 2024; a hit costs as much as LRU's.

use super::lists::Lists;
use super::{AccessKind, Block, CacheSize, Eviction, Insertion};

const T1: u8 = 0;
const T2: u8 = 1;
const B1: u8 = 2;
const B2: u8 = 3;
const OUT: u8 = 4;

/// Adaptive replacement cache.
#[derive(Debug)]
pub struct Arc {
    capacity: u32,
    lists: Lists<4>,
    /// The list of each block.
    list: Vec<u8>,
    /// The target size of T1.
    p: f64,
}

impl Arc {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        let list = vec![OUT; size.blocks as usize];
        Self { capacity: size.capacity, lists: Lists::new(size.blocks), list, p: 0.0 }
    }

    #[inline]
    fn len(&self, list: u8) -> u32 {
        self.lists.len(list.into())
    }

    /// Makes a block the newest of a list, or removes it.
    #[inline]
    fn shift(&mut self, block: Block, to: u8) {
        let from = std::mem::replace(&mut self.list[block.index()], to);
        match (from, to) {
            (OUT, _) => self.lists.push(to.into(), block),
            (_, OUT) => self.lists.remove(from.into(), block),
            _ => self.lists.shift(from.into(), to.into(), block),
        }
    }

    #[inline]
    fn shift_oldest(&mut self, from: u8, to: u8) {
        if let Some(oldest) = self.lists.oldest(from.into()) {
            self.shift(oldest, to);
        }
    }

    /// Returns which of T1 and T2 loses its oldest block if `p` is T1's target.
    fn list_to_evict(&self, p: f64, remembered: u8) -> u8 {
        let t1 = f64::from(self.len(T1));
        let is_large = t1 > p || (t1 == p && remembered == B2);
        if (t1 > 0.0 && is_large) || self.len(T2) == 0 { T1 } else { T2 }
    }
}

impl Eviction for Arc {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let is_in = self.list[block.index()] <= T2;
        if is_in {
            self.shift(block, T2);
        }
        is_in
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let remembered = self.list[block.index()];
        let (b1, b2) = (f64::from(self.len(B1)), f64::from(self.len(B2)));
        let p = match remembered {
            B1 => (self.p + (b2 / b1).max(1.0)).min(self.capacity.into()),
            B2 => (self.p - (b1 / b2).max(1.0)).max(0.0),
            _ => self.p,
        };
        let mut leaving = None;
        if self.len(T1) + self.len(T2) >= self.capacity {
            // T1 has all the space of T1 and B1: its oldest is not remembered.
            let is_alone = remembered == OUT && self.len(T1) >= self.capacity;
            let from = if is_alone { T1 } else { self.list_to_evict(p, remembered) };
            leaving = self.lists.oldest(from.into());
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            if remembered == OUT && !is_alone {
                if self.len(T1) + self.len(B1) >= self.capacity {
                    self.shift_oldest(B1, OUT);
                } else if (T1..=B2).map(|list| u64::from(self.len(list))).sum::<u64>()
                    >= 2 * u64::from(self.capacity)
                {
                    self.shift_oldest(B2, OUT);
                }
            }
            let to = if is_alone { OUT } else { from + (B1 - T1) };
            self.shift_oldest(from, to);
        }
        self.p = p;
        self.shift(block, if remembered == OUT { T1 } else { T2 });
        leaving.map_or(Insertion::Added, Insertion::Replaced)
    }

    fn remove(&mut self, block: Block) -> bool {
        let is_in = self.list[block.index()] <= T2;
        if is_in {
            self.shift(block, OUT);
        }
        is_in
    }
}
