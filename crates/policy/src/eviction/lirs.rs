//! `lirs`: blocks used twice within a short time stay; a hundredth of the cache suffices for the others.
//!
//! Source: S. Jiang, X. Zhang, "LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy to
//! Improve Buffer Cache Performance", SIGMETRICS 2002.
//!
//! Rule: the stack S has blocks in the order of use, including some that left. A block used while in S was
//! used again sooner than S's oldest, and becomes *LIR*, which never leaves as such; in exchange the oldest
//! LIR block becomes *HIR*. HIR blocks of the cache are also in the queue Q, whose oldest leaves; if it is
//! still in S then, it is remembered there. Blocks in S older than its oldest LIR block are dropped from it.
//! A block that is new or not in S becomes LIR while there are few, else HIR.
//!
//! Constants: Q is a hundredth of the capacity, at least a block, and S is at most twice the capacity, beyond
//! which it forgets the blocks that left longest ago: as in libCacheSim. Otherwise the policy follows
//! the paper: a hit in Q that is not in S evicts nothing, although it does in libCacheSim.
//!
//! When not: where the working set changes permanently: LIR blocks stay until others prove better.

use super::lists::Lists;
use super::{AccessKind, Block, CacheSize, Eviction, Insertion};

/// Q's share of the capacity.
const HIR_SHARE: f64 = 0.01;
/// The size of the stack as a multiple of the capacity.
const STACK: u64 = 2;

/// The index of Q in `queues`.
const Q: usize = 0;
/// The index in `queues` of the blocks that left and are in the stack, in the order in which they left.
const GHOST: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LirsState {
    Out,
    Lir,
    Hir,
    /// The block is not in the cache, but in the stack.
    Ghost,
}

/// Low inter-reference recency set.
#[derive(Debug)]
pub struct Lirs {
    capacity: u32,
    most_lir: u32,
    lir: u32,
    stack: Lists<1>,
    queues: Lists<2>,
    states: Vec<LirsState>,
}

impl Lirs {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        Self {
            capacity: size.capacity,
            most_lir: size.capacity - size.share(HIR_SHARE).max(1),
            lir: 0,
            stack: Lists::new(size.blocks),
            queues: Lists::new(size.blocks),
            states: vec![LirsState::Out; size.blocks as usize],
        }
    }

    #[inline]
    fn state(&mut self, block: Block) -> &mut LirsState {
        &mut self.states[block.index()]
    }

    /// Makes a block of the stack LIR, and another one HIR in exchange if there are too many.
    fn make_lir(&mut self, block: Block) {
        *self.state(block) = LirsState::Lir;
        self.lir += 1;
        self.prune();
        if self.lir > self.most_lir {
            if let Some(oldest) = self.stack.oldest(0) {
                self.stack.remove(0, oldest);
                self.lir -= 1;
                self.make_hir(oldest);
            }
            self.prune();
        }
    }

    fn make_hir(&mut self, block: Block) {
        *self.state(block) = LirsState::Hir;
        self.queues.push(Q, block);
    }

    /// Drops the blocks older than the oldest LIR block.
    #[inline]
    fn prune(&mut self) {
        while let Some(oldest) = self.stack.oldest(0)
            && *self.state(oldest) != LirsState::Lir
        {
            self.drop_from_stack(oldest);
        }
    }

    fn drop_from_stack(&mut self, block: Block) {
        self.stack.remove(0, block);
        if *self.state(block) == LirsState::Ghost {
            self.queues.remove(GHOST, block);
            *self.state(block) = LirsState::Out;
        }
    }

    /// Forgets blocks beyond the limit of the stack.
    fn limit(&mut self) {
        while u64::from(self.stack.len(0)) > STACK * u64::from(self.capacity)
            && let Some(first) = self.queues.oldest(GHOST)
        {
            self.drop_from_stack(first);
        }
    }
}

impl Eviction for Lirs {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        match self.states[block.index()] {
            LirsState::Lir => {
                self.stack.move_to_newest(0, block);
                self.prune();
            }
            LirsState::Hir if self.stack.contains(block) => {
                self.stack.move_to_newest(0, block);
                self.queues.remove(Q, block);
                self.make_lir(block);
            }
            LirsState::Hir => {
                self.stack.push(0, block);
                self.queues.move_to_newest(Q, block);
                self.limit();
            }
            LirsState::Ghost | LirsState::Out => return false,
        }
        true
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let is_full = self.lir + self.queues.len(Q) >= self.capacity;
        let leaving = if is_full { self.queues.oldest(Q) } else { None };
        if !leaving.is_none_or(may_replace) {
            return Insertion::Refused;
        }
        if let Some(leaving) = leaving {
            self.queues.remove(Q, leaving);
            *self.state(leaving) = LirsState::Out;
            if self.stack.contains(leaving) {
                *self.state(leaving) = LirsState::Ghost;
                self.queues.push(GHOST, leaving);
            }
        }
        if *self.state(block) == LirsState::Ghost {
            self.queues.remove(GHOST, block);
            self.stack.move_to_newest(0, block);
            self.make_lir(block);
        } else {
            self.stack.push(0, block);
            if self.lir < self.most_lir {
                self.make_lir(block);
            } else {
                self.make_hir(block);
            }
        }
        self.limit();
        leaving.map_or(Insertion::Added, Insertion::Replaced)
    }

    fn remove(&mut self, block: Block) -> bool {
        match *self.state(block) {
            LirsState::Lir => self.lir -= 1,
            LirsState::Hir => self.queues.remove(Q, block),
            LirsState::Ghost | LirsState::Out => return false,
        }
        *self.state(block) = LirsState::Out;
        if self.stack.contains(block) {
            self.stack.remove(0, block);
            self.prune();
        }
        true
    }
}
