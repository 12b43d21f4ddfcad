//! The selection of the most costly blocks: Program 1 of the paper.

use super::{BTES, BlockAddress, BlockTable, Bte, Entry, Flags, REGION};
use std::ops::ControlFlow;
use weir_model::VolumeId;

/// The most costly blocks of a sub-region.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'t> {
    /// The sub-region's first block.
    pub start: BlockAddress,
    candidates: &'t [Candidate],
    page: &'t [Bte; BTES],
}

impl Candidates<'_> {
    /// Iterates over the blocks, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Candidate> {
        self.candidates.iter().copied()
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
    /// Less costly than any.
    pub const LEAST: Self = Self(u32::MAX);

    #[inline]
    fn new(offset: u32, counter: u16) -> Self {
        Self(u32::from(!counter) << BTES.ilog2() | offset)
    }

    /// Returns the block as an offset from the sub-region's first.
    #[inline]
    pub const fn offset(self) -> u16 {
        (self.0 % BTES as u32) as u16
    }

    const fn counter(self) -> u16 {
        !((self.0 >> BTES.ilog2()) as u16)
    }
}

/// What the latest visit found in a sub-region.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Selected {
    /// The number of its blocks that are more costly than the most costly one that is not resident.
    settled: u16,
    /// A block with this counter counts as costly; 0 before the first visit.
    least: u16,
    /// Whether all of its blocks with a counter are resident.
    all_resident: bool,
}

impl Selected {
    /// Notes that a block's counter or flags have changed, and whether all counters of its page were halved.
    /// While a block is resident, its counter makes no difference.
    #[inline]
    pub(super) fn note_change(&mut self, block: Bte, are_halved: bool) {
        let is_new = block.flags & Flags::RESIDENT.0 == 0 && block.counter >= self.least;
        if is_new || are_halved {
            self.note_many_changes();
        }
    }

    /// Notes that many blocks have changed.
    pub(super) fn note_many_changes(&mut self) {
        (self.settled, self.all_resident) = (0, false);
    }

    /// Returns how many blocks a selection of `wanted` has, if all of them are resident.
    fn settled_of(self, wanted: u64) -> Option<u64> {
        let settled = u64::from(self.settled);
        (wanted <= settled || self.all_resident).then_some(settled.min(wanted))
    }
}

/// Collects the most costly blocks of a page, at most `quota` of them, in no particular order; none if all of
/// them are resident and `passes_settled` says so.
fn select_costliest(
    page: &[Bte; BTES],
    quota: u64,
    passes_settled: bool,
    candidates: &mut Vec<Candidate>,
) -> Selected {
    candidates.resize(BTES, Candidate::LEAST);
    let (mut counted, mut costliest_new) = (0, Candidate::LEAST);
    // Without branches, which the processor could not foresee: used blocks are scattered.
    for (offset, block) in (0u32..).zip(page) {
        let candidate = Candidate::new(offset, block.counter);
        candidates[counted % BTES] = candidate;
        let is_counted = block.counter > 0;
        counted += usize::from(is_counted);
        let is_new = is_counted & (block.flags & Flags::RESIDENT.0 == 0);
        costliest_new = costliest_new.min(if is_new { candidate } else { Candidate::LEAST });
    }
    candidates.truncate(counted);
    let settled = candidates.iter().filter(|candidate| **candidate < costliest_new).count();
    let wanted = usize::try_from(quota).unwrap_or(usize::MAX).min(counted);
    let all_resident = settled == counted;
    if passes_settled && wanted <= settled {
        candidates.clear();
        let least = if all_resident { 1 } else { costliest_new.counter() };
        return Selected { settled: settled as u16, least, all_resident };
    }
    if (1..counted).contains(&wanted) {
        candidates.select_nth_unstable(wanted);
    }
    candidates.truncate(wanted);
    let least = candidates.iter().max().map_or(0, |least| least.counter());
    Selected { settled: settled as u16, least, all_resident }
}

/// A selection on its way through the sub-regions.
struct Selection<'v> {
    visit: &'v mut dyn FnMut(Candidates<'_>) -> ControlFlow<()>,
    /// Whether sub-regions in which nothing is left to do are passed over.
    passes_settled: bool,
    candidates: Vec<Candidate>,
    /// What was found, by page.
    found: Vec<(u32, Selected)>,
}

impl BlockTable {
    /// Returns the most costly blocks, at most `quota` of them, in the order of [`Self::visit_unsettled`],
    /// those of a sub-region by counter, descending.
    pub fn candidates(&self, quota: u64) -> Vec<BlockAddress> {
        let mut list = Vec::new();
        let mut visit = |found: Candidates<'_>| {
            let mut blocks: Vec<_> = found.iter().collect();
            blocks.sort_unstable();
            let address = |at: Candidate| found.start.block + u64::from(at.offset());
            list.extend(blocks.iter().map(|at| BlockAddress { block: address(*at), ..found.start }));
            ControlFlow::Continue(())
        };
        let mut selection = Selection {
            visit: &mut visit,
            passes_settled: false,
            candidates: Vec::with_capacity(BTES),
            found: Vec::new(),
        };
        let _ = self.select(quota, &mut selection);
        list
    }

    /// Visits the sub-regions of the most costly blocks, at most `quota` of them: Program 1 of the paper. The
    /// quota is divided among regions in proportion to their counters, visiting those with the fewest used
    /// blocks first; a region's share is divided likewise among its sub-regions; there blocks are taken by
    /// counter, descending. An unused share passes to the next. Sub-regions whose selected blocks are
    /// all resident, as far as the latest visit and the changes since then tell, are passed over: nothing is
    /// left to do there. Cost: visits all blocks of the others.
    pub fn visit_unsettled(&mut self, quota: u64, mut visit: impl FnMut(Candidates<'_>) -> ControlFlow<()>) {
        let mut selection = Selection {
            visit: &mut visit,
            passes_settled: true,
            candidates: Vec::with_capacity(BTES),
            found: Vec::new(),
        };
        let _ = self.select(quota, &mut selection);
        for (page, selected) in selection.found {
            self.selected[page as usize] = selected;
        }
    }

    /// Returns the resident blocks of a range that were not selected at the latest visit, and would not have
    /// been with their counters of now, as offsets from `start`. The range is within a sub-region.
    pub fn resident_but_not_selected(
        &self,
        start: BlockAddress,
        count: u16,
    ) -> impl Iterator<Item = u16> + use<'_> {
        let found = self.find(start);
        let blocks = found.map(|(page, low)| (self.selected[page].least, &self.btes[page][low..]));
        let (least, blocks) = blocks.unwrap_or((0, &[]));
        let cheap =
            move |block: &Bte| block.flags & Flags::RESIDENT.0 != 0 && (least == 0 || block.counter < least);
        (0..count).zip(blocks).filter(move |(_, block)| cheap(block)).map(|(offset, _)| offset)
    }

    fn select(&self, mut quota: u64, selection: &mut Selection<'_>) -> ControlFlow<()> {
        let mut bgd: Vec<_> = self.all_regions().filter(|(.., e)| e.counter > 0).collect();
        bgd.sort_unstable_by_key(|(volume, region, e)| (e.unique, *volume, *region));
        let mut bgd_count: u64 = bgd.iter().map(|(.., e)| u64::from(e.counter)).sum();
        for (volume, region, entry) in bgd {
            if quota == 0 {
                break;
            }
            let mut bmd_quota = quota * u64::from(entry.counter) / bgd_count;
            bgd_count -= u64::from(entry.counter);
            quota -= bmd_quota;
            self.select_in_region(volume, region, entry, &mut bmd_quota, selection)?;
            quota += bmd_quota;
        }
        ControlFlow::Continue(())
    }

    /// Visits a region; afterwards `quota` is the part that it has left.
    fn select_in_region(
        &self,
        volume: VolumeId,
        number: u64,
        region: Entry,
        quota: &mut u64,
        selection: &mut Selection<'_>,
    ) -> ControlFlow<()> {
        let Selection { visit, passes_settled, candidates, found } = selection;
        let page = &self.bmds[region.child as usize];
        let mut bmd: Vec<_> = page.iter().enumerate().filter(|(_, e)| e.counter > 0).collect();
        bmd.sort_unstable_by_key(|(i, e)| (e.unique, *i));
        let mut bmd_count: u64 = bmd.iter().map(|(_, e)| u64::from(e.counter)).sum();
        for (i, entry) in bmd {
            if *quota == 0 {
                break;
            }
            let bte_quota = *quota * u64::from(entry.counter) / bmd_count;
            bmd_count -= u64::from(entry.counter);
            let latest = self.selected[entry.child as usize];
            if let Some(settled) = latest.settled_of(bte_quota).filter(|_| *passes_settled) {
                *quota -= settled;
                continue;
            }
            let page = &self.btes[entry.child as usize];
            let selected = select_costliest(page, bte_quota, *passes_settled, candidates);
            found.push((entry.child, selected));
            if let Some(settled) = selected.settled_of(bte_quota).filter(|_| *passes_settled) {
                *quota -= settled;
                continue;
            }
            *quota -= candidates.len() as u64;
            if !candidates.is_empty() {
                let start = BlockAddress { volume, block: number * REGION + (i * BTES) as u64 };
                visit(Candidates { start, candidates, page })?;
            }
        }
        ControlFlow::Continue(())
    }
}
