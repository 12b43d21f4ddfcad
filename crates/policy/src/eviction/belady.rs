//! `belady`: the block whose next use is furthest in the future leaves. It is the bound: no policy that
//! admits every miss has fewer misses.
//!
//! Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966 (MIN), with forced insertion: a missed block enters even if its next use is the
//! furthest.
//!
//! Rule: knows the trace. Among blocks that are never used again, the one that became so last leaves.

use super::{AccessKind, Block, CacheSize, Eviction, EvictionSteps, Insertion, insert_stepwise};

/// The value for no further use.
const NEVER: u32 = u32::MAX;
/// The value for a block that is not in the cache.
const OUT: u32 = u32::MAX - 1;

/// The next use of the block of each access of a trace.
#[derive(Debug)]
pub struct NextUses {
    next: Vec<u32>,
}

impl NextUses {
    /// Computes the next uses in a trace of fewer than 2^32 - 2 accesses to blocks with numbers below
    /// `blocks`. Takes 4 bytes per access.
    pub fn new(accesses: &[Block], blocks: u32) -> Self {
        let mut later = vec![NEVER; blocks as usize];
        let mut next = vec![NEVER; accesses.len()];
        for (at, block) in accesses.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut later[block.index()], at as u32);
        }
        Self { next }
    }
}

/// Belady's MIN.
#[derive(Debug)]
pub struct Belady<'t> {
    capacity: u32,
    len: u32,
    accesses: &'t [Block],
    future: &'t NextUses,
    now: u32,
    /// For each block: the access that uses it next.
    next: Vec<u32>,
    /// The next accesses to blocks of the cache.
    next_uses: Positions,
    /// Blocks that are not used again, in the order in which they became so; those no longer in are skipped.
    dead_blocks: Vec<Block>,
}

impl<'t> Belady<'t> {
    /// Creates an empty cache before the first of these accesses, with their future.
    pub fn new(size: CacheSize, accesses: &'t [Block], future: &'t NextUses) -> Self {
        Self {
            capacity: size.capacity,
            len: 0,
            accesses,
            future,
            now: 0,
            next: vec![OUT; size.blocks as usize],
            next_uses: Positions::new(future.next.len()),
            dead_blocks: Vec::new(),
        }
    }

    /// Sets the block's next use after the present access.
    #[inline]
    fn schedule_next_use(&mut self, block: Block) {
        let next = self.future.next.get(self.now as usize).copied().unwrap_or(NEVER);
        self.next[block.index()] = next;
        if next == NEVER {
            self.dead_blocks.push(block);
        } else {
            self.next_uses.set(next);
        }
    }
}

impl Eviction for Belady<'_> {
    #[inline]
    fn advance_to(&mut self, access: u32) {
        self.now = access;
    }

    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let next = self.next[block.index()];
        if next == OUT {
            return false;
        }
        if next != NEVER {
            self.next_uses.clear(next);
            self.schedule_next_use(block);
        }
        true
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        insert_stepwise(self, block, may_replace)
    }

    fn remove(&mut self, block: Block) -> bool {
        let next = std::mem::replace(&mut self.next[block.index()], OUT);
        if next == OUT {
            return false;
        }
        if next != NEVER {
            self.next_uses.clear(next);
        }
        self.len -= 1;
        true
    }
}

impl EvictionSteps for Belady<'_> {
    #[inline]
    fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    #[inline]
    fn candidate(&mut self) -> Option<Block> {
        while let Some(block) = self.dead_blocks.last() {
            if self.next[block.index()] == NEVER {
                return Some(*block);
            }
            self.dead_blocks.pop();
        }
        self.next_uses.last().map(|access| self.accesses[access as usize])
    }

    #[inline]
    fn enter(&mut self, block: Block) {
        self.schedule_next_use(block);
        self.len += 1;
    }
}

/// A set of positions with fast access to its last one: bits, and above each 64 of them a summary bit.
#[derive(Debug)]
struct Positions {
    /// The bits themselves first, a single word last.
    levels: Vec<Vec<u64>>,
}

impl Positions {
    /// Creates the empty set of positions below `end`.
    fn new(end: usize) -> Self {
        let mut levels = vec![vec![0; end.div_ceil(64).max(1)]];
        while let Some(below) = levels.last().map(Vec::len).filter(|len| *len > 1) {
            levels.push(vec![0; below.div_ceil(64)]);
        }
        Self { levels }
    }

    #[inline]
    fn set(&mut self, position: u32) {
        let mut at = position as usize;
        for level in &mut self.levels {
            let before = level[at / 64];
            level[at / 64] |= 1 << (at % 64);
            if before != 0 {
                break;
            }
            at /= 64;
        }
    }

    #[inline]
    fn clear(&mut self, position: u32) {
        let mut at = position as usize;
        for level in &mut self.levels {
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                break;
            }
            at /= 64;
        }
    }

    #[inline]
    fn last(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            at = at * 64 + 63_usize.checked_sub(level[at].leading_zeros() as usize)?;
        }
        Some(at as u32)
    }
}
