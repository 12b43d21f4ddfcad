//! The selection of the most costly blocks of a sub-region.

use super::{BTES, BlockAddress, BlockBits, Bte, BtePage, NO_BLOCKS};

/// The most costly blocks of a sub-region.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'t> {
    /// The sub-region's first block.
    pub start: BlockAddress,
    pub(super) selected: Selected<'t>,
    pub(super) residents: &'t BlockBits,
}

impl<'t> Candidates<'t> {
    /// Iterates over the blocks as offsets from the first one of the sub-region, the most costly ones first;
    /// of equal ones in order.
    #[inline]
    pub fn blocks(&self) -> impl Iterator<Item = u16> + 't {
        self.selected.candidates.iter().map(|candidate| candidate.offset())
    }

    /// Returns the blocks, one bit each.
    #[inline]
    pub const fn bits(&self) -> &'t BlockBits {
        self.selected.bits
    }

    /// Returns the address of a block.
    #[inline]
    pub fn address(&self, block: u16) -> BlockAddress {
        BlockAddress { block: self.start.block + u64::from(block), ..self.start }
    }

    /// Returns the resident blocks of the sub-region, whether costly or not.
    #[inline]
    pub const fn residents(&self) -> &'t BlockBits {
        self.residents
    }
}

/// The blocks selected from a page: in order, and one bit each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selected<'t> {
    pub(super) candidates: &'t [Candidate],
    bits: &'t BlockBits,
}

/// A block by its cost. The more costly one is less; of equal ones the first block. It is the counter's
/// complement with the block below it, because plain numbers are sorted several times as fast as entries by
/// their counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate(u32);

impl Candidate {
    /// More than every block that was accessed and whose counter is not zero.
    const BOUND: Self = Self((u16::MAX as u32) << BTES.ilog2());

    #[inline]
    fn new(offset: u32, counter: u16) -> Self {
        Self(u32::from(!counter) << BTES.ilog2() | offset)
    }

    /// Returns the block as an offset from the sub-region's first.
    #[inline]
    const fn offset(self) -> u16 {
        (self.0 % BTES as u32) as u16
    }
}

/// The most costly blocks of a page, from one selection to the next.
#[derive(Clone, Debug)]
struct CostOrder {
    /// While `is_known`: every block below the bound, in order.
    candidates: Vec<Candidate>,
    /// Otherwise, a bound below which there were somewhat more blocks than wanted.
    bound: Candidate,
    is_known: bool,
    /// The candidates selected last: their number, and one bit each.
    selected: usize,
    bits: BlockBits,
}

impl Default for CostOrder {
    fn default() -> Self {
        let (candidates, bound, is_known) = (Vec::new(), Candidate::BOUND, false);
        Self { candidates, bound, is_known, selected: 0, bits: NO_BLOCKS }
    }
}

impl CostOrder {
    /// Puts changed blocks where they belong now.
    fn apply(&mut self, page: &[Bte; BTES], changes: &[Change]) {
        let count: usize = changes.iter().map(|change| usize::from(change.count)).sum();
        self.is_known &= count <= CHANGES_MAX;
        if !self.is_known {
            return;
        }
        let mut changed = NO_BLOCKS;
        let blocks = changes.iter().flat_map(|change| change.first..change.first + change.count);
        blocks.for_each(|block| changed[usize::from(block) / 64] |= 1 << (block % 64));
        for (word, bits) in changed.iter_mut().enumerate() {
            while *bits != 0 {
                let block = word as u32 * 64 + bits.trailing_zeros();
                *bits &= *bits - 1;
                self.move_up(Candidate::new(block, page[block as usize].counter));
            }
        }
    }

    /// Puts a block that costs no less than before where it belongs now.
    fn move_up(&mut self, candidate: Candidate) {
        if candidate >= self.bound {
            return;
        }
        let to = self.candidates.partition_point(|other| *other < candidate);
        let from = self.position_from(to, candidate.offset());
        match from {
            Some(from) => {
                self.candidates.copy_within(to..from, to + 1);
                self.candidates[to] = candidate;
            }
            None => self.candidates.insert(to, candidate),
        }
        if to < self.selected && from.is_none_or(|from| from >= self.selected) {
            flip(&mut self.bits, candidate);
            flip(&mut self.bits, self.candidates[self.selected]);
        }
    }

    /// Returns the position of a block in the order, at `start` or behind it.
    fn position_from(&self, start: usize, block: u16) -> Option<usize> {
        // Several at a time, without branches in between.
        let is_block = |candidate: &Candidate| candidate.offset() == block;
        let has_block = |part: &[Candidate]| part.iter().fold(false, |any, one| any | is_block(one));
        let mut parts = self.candidates[start..].chunks(SEARCHED).enumerate();
        let (nth, part) = parts.find(|(_, part)| has_block(part))?;
        Some(start + nth * SEARCHED + part.iter().position(is_block)?)
    }

    /// Finds the most costly blocks of the page, at least `wanted` of them if there are as many.
    fn find(&mut self, page: &[Bte; BTES], wanted: usize) {
        if !self.is_known {
            self.find_below_bound(page);
        }
        if self.candidates.len() < wanted && self.bound < Candidate::BOUND {
            self.bound = Candidate::BOUND;
            self.find_below_bound(page);
        }
        self.select(wanted);
        let spare = wanted + wanted / 4;
        if self.candidates.len() > 2 * spare {
            self.bound = self.candidates[spare];
            self.candidates.truncate(spare);
            self.candidates.shrink_to(2 * spare);
        }
    }

    /// Selects the first ones, at most `wanted`.
    fn select(&mut self, wanted: usize) {
        let (before, after) = (self.selected, wanted.min(self.candidates.len()));
        let changed = &self.candidates[before.min(after)..before.max(after)];
        changed.iter().for_each(|candidate| flip(&mut self.bits, *candidate));
        self.selected = after;
    }

    fn find_below_bound(&mut self, page: &[Bte; BTES]) {
        let mut found = [Candidate(0); BTES];
        let mut counted = 0;
        // Without branches, which the processor could not foresee: costly blocks are scattered.
        for (offset, block) in (0u32..).zip(page) {
            let candidate = Candidate::new(offset, block.counter);
            found[counted % BTES] = candidate;
            counted += usize::from(candidate < self.bound);
        }
        let found = &mut found[..counted];
        found.sort_unstable();
        self.candidates.clear();
        self.candidates.extend_from_slice(found);
        self.is_known = true;
        (self.selected, self.bits) = (0, NO_BLOCKS);
    }
}

fn flip(bits: &mut BlockBits, candidate: Candidate) {
    bits[usize::from(candidate.offset()) / 64] ^= 1 << (candidate.offset() % 64);
}

/// The number of blocks in an order that are searched at a time.
const SEARCHED: usize = 16;
/// The accessed blocks of a page beyond which finding the costly ones anew costs less than moving them.
const CHANGES_MAX: usize = 64;
/// The changes noted per page, in the mean.
const CHANGES_PER_PAGE: usize = 16;

/// An access to consecutive blocks of a page.
#[derive(Clone, Copy, Debug)]
struct Change {
    page: u32,
    first: u16,
    count: u16,
}

/// What is remembered of earlier selections. Little changes from one to the next, so that only blocks
/// accessed since are visited.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// By page, as far as they were selected from.
    pages: Vec<CostOrder>,
    /// The changes since the last selection, as many as its capacity; no more are noted.
    changes: Vec<Change>,
    /// Whether there were more.
    has_more_changes: bool,
}

impl Selection {
    /// Returns the memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let candidates: usize = self.pages.iter().map(|page| page.candidates.capacity()).sum();
        candidates * size_of::<Candidate>()
            + self.pages.capacity() * size_of::<CostOrder>()
            + self.changes.capacity() * size_of::<Change>()
    }

    /// Forgets earlier selections.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
    }

    /// Forgets the order of a page: not only its accessed blocks have changed.
    #[cold]
    pub(super) fn forget(&mut self, page: usize) {
        if let Some(order) = self.pages.get_mut(page) {
            order.is_known = false;
        }
    }

    /// Notes an access to blocks of a page, which costs them more. There are none before the first selection.
    #[inline]
    pub(super) fn note_change(&mut self, page: usize, first: usize, count: usize) {
        if self.changes.len() < self.changes.capacity() {
            self.changes.push(Change { page: page as u32, first: first as u16, count: count as u16 });
        } else {
            self.has_more_changes = true;
        }
    }

    /// Applies the changes since the last selection.
    pub(super) fn apply_changes(&mut self, pages: &[BtePage]) {
        if std::mem::take(&mut self.has_more_changes) {
            self.pages.iter_mut().for_each(|order| order.is_known = false);
        } else {
            // The counters are scattered over memory. Their loads do not wait for each other here.
            let counter = |change: &Change| pages[change.page as usize][usize::from(change.first)].counter;
            std::hint::black_box(self.changes.iter().map(counter).fold(0, |all, one| all ^ one));
            self.changes.sort_unstable_by_key(|change| change.page);
            for changes in self.changes.chunk_by(|a, b| a.page == b.page) {
                let number = changes[0].page as usize;
                if let Some(order) = self.pages.get_mut(number) {
                    order.apply(&pages[number], changes);
                }
            }
        }
        self.changes.clear();
        self.changes.reserve_exact(pages.len() * CHANGES_PER_PAGE);
    }

    /// Returns the most costly blocks of a page in order, at most `quota` of them.
    pub(super) fn select_costliest(&mut self, number: usize, page: &[Bte; BTES], quota: u64) -> Selected<'_> {
        let wanted = usize::try_from(quota).unwrap_or(usize::MAX).min(BTES);
        if wanted == 0 {
            return Selected { candidates: &[], bits: &NO_BLOCKS };
        }
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, CostOrder::default);
        }
        let order = &mut self.pages[number];
        order.find(page, wanted);
        Selected { candidates: &order.candidates[..order.selected], bits: &order.bits }
    }
}
