//! `2q`: new blocks go through a short queue first, and only those used again after that stay.
//!
//! Source: T. Johnson, D. Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement
//! Algorithm", VLDB 1994, the full version, with its constants.
//!
//! Rule: a block is inserted in A1in, in the order of arrival, where a hit changes nothing. While A1in has
//! more than a quarter of the capacity its oldest leaves, and A1out remembers as many of these as half the
//! capacity; else the oldest of Am leaves and is forgotten. A miss that A1out remembers enters Am, which is
//! LRU.
//!
//! When not: where blocks are used again soon and then not for long: A1in counts several uses as one.

use super::lists::Lists;
use super::{AccessKind, Block, CacheSize, Eviction, Insertion};

const A1IN: u8 = 0;
const AM: u8 = 1;
const A1OUT: u8 = 2;
const OUT: u8 = 3;

/// A1in's share of the capacity.
const IN_SHARE: f64 = 0.25;
/// The number of blocks that A1out remembers, as a share of the capacity.
const REMEMBERED_SHARE: f64 = 0.5;

/// Two queues.
#[derive(Debug)]
pub struct TwoQ {
    capacity: u32,
    most_in: u32,
    most_remembered: u32,
    lists: Lists<3>,
    /// The list of each block.
    list: Vec<u8>,
}

impl TwoQ {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        Self {
            capacity: size.capacity,
            most_in: size.share(IN_SHARE),
            most_remembered: size.share(REMEMBERED_SHARE),
            lists: Lists::new(size.blocks),
            list: vec![OUT; size.blocks as usize],
        }
    }

    #[inline]
    fn detach(&mut self, block: Block) -> u8 {
        let from = std::mem::replace(&mut self.list[block.index()], OUT);
        if from != OUT {
            self.lists.remove(from.into(), block);
        }
        from
    }

    #[inline]
    fn attach(&mut self, block: Block, list: u8) {
        self.lists.push(list.into(), block);
        self.list[block.index()] = list;
    }

    fn remember(&mut self, block: Block) {
        if self.most_remembered == 0 {
            return;
        }
        if self.lists.len(A1OUT.into()) >= self.most_remembered
            && let Some(oldest) = self.lists.oldest(A1OUT.into())
        {
            self.detach(oldest);
        }
        self.attach(block, A1OUT);
    }
}

impl Eviction for TwoQ {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let list = self.list[block.index()];
        if list == AM {
            self.lists.move_to_newest(AM.into(), block);
        }
        list <= AM
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let mut leaving = None;
        let remembered = self.list[block.index()] == A1OUT;
        if self.lists.len(A1IN.into()) + self.lists.len(AM.into()) >= self.capacity {
            let has_am = self.lists.len(AM.into()) > 0;
            let from = if has_am && self.lists.len(A1IN.into()) <= self.most_in { AM } else { A1IN };
            leaving = self.lists.oldest(from.into());
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            // It is not among the remembered blocks while another one may be forgotten.
            self.detach(block);
            if let Some(leaving) = leaving {
                self.detach(leaving);
                if from == A1IN {
                    self.remember(leaving);
                }
            }
        }
        self.detach(block);
        self.attach(block, if remembered { AM } else { A1IN });
        leaving.map_or(Insertion::Added, Insertion::Replaced)
    }

    fn remove(&mut self, block: Block) -> bool {
        let is_in = self.list[block.index()] <= AM;
        if is_in {
            self.detach(block);
        }
        is_in
    }
}
