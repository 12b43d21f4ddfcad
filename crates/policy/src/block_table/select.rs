//! The selection of the most costly blocks of a sub-region.

use super::{BTES, BlockAddress, Bte, Flags};

/// The most costly blocks of a sub-region.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'t> {
    /// The sub-region's first block.
    pub start: BlockAddress,
    pub(super) candidates: &'t [Candidate],
    pub(super) page: &'t [Bte; BTES],
}

impl Candidates<'_> {
    /// Iterates over the blocks, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Candidate> {
        self.candidates.iter().copied()
    }

    /// Returns the address of a block.
    #[inline]
    pub fn address(&self, block: Candidate) -> BlockAddress {
        BlockAddress { block: self.start.block + u64::from(block.offset()), ..self.start }
    }

    /// Whether a block has the flag.
    #[inline]
    pub fn has(&self, block: Candidate, flag: Flags) -> bool {
        self.page[usize::from(block.offset())].flags & flag.0 != 0
    }
}

/// A block among the most costly ones of a sub-region. The more costly one is less; of equal ones the first
/// block. It is the counter's complement with the block below it, because plain numbers are sorted several
/// times as fast as entries by their counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate(u32);

impl Candidate {
    #[inline]
    fn new(offset: u32, counter: u16) -> Self {
        Self(u32::from(!counter) << BTES.ilog2() | offset)
    }

    /// Returns the block as an offset from the sub-region's first.
    #[inline]
    pub const fn offset(self) -> u16 {
        (self.0 % BTES as u32) as u16
    }
}

impl Candidate {
    /// More than every block that was accessed and whose counter is not zero.
    const BOUND: Self = Self((u16::MAX as u32) << BTES.ilog2());
}

/// The blocks selected of a page, and what is remembered of earlier selections.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    pub(super) candidates: Vec<Candidate>,
    /// By page: a bound below which there were somewhat more candidates than wanted. Counters change little
    /// from one selection to the next, so that one comparison excludes most blocks.
    bounds: Vec<Candidate>,
}

impl Selection {
    /// Returns the memory in bytes.
    pub(super) fn memory(&self) -> usize {
        (self.candidates.capacity() + self.bounds.capacity()) * size_of::<Candidate>()
    }

    /// Forgets earlier selections.
    pub(super) fn clear(&mut self) {
        self.bounds.clear();
    }

    /// Collects the most costly blocks of a page, at most `quota` of them, in no particular order.
    pub(super) fn select_costliest(&mut self, number: usize, page: &[Bte; BTES], quota: u64) {
        let wanted = usize::try_from(quota).unwrap_or(usize::MAX).min(BTES);
        if self.bounds.len() <= number {
            self.bounds.resize(number + 1, Candidate::BOUND);
        }
        self.collect_below(self.bounds[number], page);
        if self.candidates.len() < wanted && self.bounds[number] < Candidate::BOUND {
            self.bounds[number] = Candidate::BOUND;
            self.collect_below(Candidate::BOUND, page);
        }
        let candidates = &mut self.candidates;
        let spare = wanted + wanted / 4;
        if wanted > 0 && candidates.len() > 2 * spare {
            self.bounds[number] = *candidates.select_nth_unstable(spare).1;
            candidates.truncate(spare);
        }
        if wanted > 0 && wanted < candidates.len() {
            candidates.select_nth_unstable(wanted);
        }
        candidates.truncate(wanted);
    }

    /// Collects the blocks of a page below a bound.
    fn collect_below(&mut self, bound: Candidate, page: &[Bte; BTES]) {
        let candidates = &mut self.candidates;
        candidates.resize(BTES, Candidate(0));
        let mut counted = 0;
        // Without branches, which the processor could not foresee: costly blocks are scattered.
        for (offset, block) in (0u32..).zip(page) {
            let candidate = Candidate::new(offset, block.counter);
            candidates[counted % BTES] = candidate;
            counted += usize::from(candidate < bound);
        }
        candidates.truncate(counted);
    }
}
