//! `wtinylfu`: a small window admits every block; from there a block goes on to the main cache only if it was
//! used more often recently than the one it would replace.
//!
//! Source: G. Einziger, R. Friedman, B. Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM
//! Transactions on Storage 13(4), 2017, section 4 (W-TinyLFU).
//!
//! Rule: the window is LRU. When it is full its oldest goes to the main cache if that has space; else either
//! it or the main cache's candidate leaves, whichever TinyLFU ([`TinyLfu`]) has counted less often, the
//! newcomer in a tie. The main cache is segmented LRU: a newcomer is on probation, a hit there makes it
//! protected, and the oldest protected block is on probation again when there are too many.
//!
//! Constants: the window has a hundredth of the capacity, at least a block; four fifths of the rest are
//! protected.
//!
//! When not: where the working set changes faster than the counts age.

use super::lists::Lists;
use super::{AccessKind, Block, CacheSize, Eviction, Insertion};
use crate::admission::{Admission as _, TinyLfu};

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;
const OUT: u8 = 3;

/// The window's share of the capacity.
const WINDOW_SHARE: f64 = 0.01;

/// W-TinyLFU.
#[derive(Debug)]
pub struct WTinyLfu {
    most_window: u32,
    most_main: u32,
    most_protected: u32,
    lists: Lists<3>,
    /// The list of each block.
    list: Vec<u8>,
    counts: TinyLfu,
}

impl WTinyLfu {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        let most_window = size.share(WINDOW_SHARE).max(1);
        let most_main = size.capacity - most_window;
        Self {
            most_window,
            most_main,
            most_protected: most_main - most_main.div_ceil(5),
            lists: Lists::new(size.blocks),
            list: vec![OUT; size.blocks as usize],
            counts: TinyLfu::new(size),
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

    /// Returns the one that leaves: the window's oldest or the main cache's candidate.
    fn victim(&mut self, oldest: Block) -> Block {
        let main = self.lists.oldest(PROBATION.into()).or_else(|| self.lists.oldest(PROTECTED.into()));
        main.filter(|main| self.counts.may_replace(oldest, *main)).unwrap_or(oldest)
    }
}

impl Eviction for WTinyLfu {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        self.counts.block(block);
        match self.list[block.index()] {
            OUT => return false,
            PROBATION => {
                self.shift(block, PROTECTED);
                if self.len(PROTECTED) > self.most_protected
                    && let Some(oldest) = self.lists.oldest(PROTECTED.into())
                {
                    self.shift(oldest, PROBATION);
                }
            }
            list => self.lists.move_to_newest(list.into(), block),
        }
        true
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let mut leaving = None;
        if self.len(WINDOW) >= self.most_window
            && let Some(oldest) = self.lists.oldest(WINDOW.into())
        {
            if self.len(PROBATION) + self.len(PROTECTED) >= self.most_main {
                let loser = self.victim(oldest);
                if !may_replace(loser) {
                    return Insertion::Refused;
                }
                self.remove(loser);
                leaving = Some(loser);
            }
            if leaving != Some(oldest) {
                self.shift(oldest, PROBATION);
            }
        }
        self.lists.push(WINDOW.into(), block);
        self.list[block.index()] = WINDOW;
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
