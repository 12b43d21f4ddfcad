//! The block table: the cost of each block, in 4 bytes per block ever accessed.
//!
//! Source: Hystor (the paper's section 4). The table is a radix tree of three levels like a page table:
//! regions of 2 GiB (BGD), sub-regions of 4 MiB (BMD), blocks of 4 KiB (BTE). An entry of the upper two
//! levels has a child, a counter, and `unique`, the number of used blocks below it; one of the lowest level
//! has a counter and flags. Counters have 16 bits; when one would overflow, all counters *of its page* are
//! halved, because only their relation matters and the relation to other pages is kept a level higher up.
//!
//! A request of N sectors adds the *inverse bitmap* `2^max(0, 7 - floor(log2 N))` to the counters of its
//! blocks, their sub-regions and regions: small requests cost a disk most.
//!
//! There are two differences. Regions are found by volume and number in a hash table, because volumes are
//! many and may be very large, and are halved together as if they were one page. And a block remembers that
//! it is used after its counter was halved to zero.

use rustc_hash::FxHashMap;
use std::ops::ControlFlow;
use weir_model::{Bytes, SECTOR, VolumeId};

mod export;
mod select;

pub use select::Candidates;
use select::Selection;

/// The blocks of a sub-region: as many as fit a page of 4 KiB.
pub const BTES: usize = 1024;
/// The sub-regions of a region: likewise.
const BMDS: usize = 512;
/// The blocks of a region.
const REGION: u64 = (BTES * BMDS) as u64;
const NO_BLOCKS: BlockBits = [0; BTES / 64];
/// No child.
const NONE: u32 = u32::MAX;

/// The flags of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// The block has been accessed.
    pub const USED: Self = Self(1);
    /// A client called the block metadata.
    pub const METADATA: Self = Self(2);
    /// The block is kept on the fast device.
    pub const RESIDENT: Self = Self(4);
}

/// A 4 KiB block of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddress {
    /// The volume.
    pub volume: VolumeId,
    /// The number of the block.
    pub block: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bte {
    counter: u16,
    flags: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    child: u32,
    counter: u16,
    unique: u16,
}

impl Entry {
    const EMPTY: Self = Self { child: NONE, counter: 0, unique: 0 };
}

trait Counts: Copy {
    fn counter(&mut self) -> &mut u16;
}
impl Counts for Bte {
    fn counter(&mut self) -> &mut u16 {
        &mut self.counter
    }
}
impl Counts for Entry {
    fn counter(&mut self) -> &mut u16 {
        &mut self.counter
    }
}

/// Adds to a counter of a page. Returns whether the others were halved first.
#[inline]
fn add<T: Counts>(page: &mut [T], at: usize, add: u16) -> bool {
    let counter = page[at].counter();
    match counter.checked_add(add) {
        Some(sum) => {
            *counter = sum;
            false
        }
        None => {
            page.iter_mut().for_each(|entry| *entry.counter() /= 2);
            *page[at].counter() += add;
            true
        }
    }
}

type BmdPage = Box<[Entry; BMDS]>;
type BtePage = Box<[Bte; BTES]>;
/// The blocks of a sub-region, one bit each.
pub type BlockBits = [u64; BTES / 64];

/// Returns the weight of an access by a request of this length: 128 for a sector, 1 from 64 KiB up.
#[inline]
pub const fn inverse_bitmap(len: Bytes) -> u16 {
    let sectors = len.0 / SECTOR;
    let log = if sectors == 0 { 0 } else { sectors.ilog2() };
    1 << 7u32.saturating_sub(log)
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct BlockTable {
    /// The index of each region in `bgd`, by volume and number; and the region used last, which is often used
    /// next.
    regions: FxHashMap<(VolumeId, u64), u32>,
    latest: Option<((VolumeId, u64), u32)>,
    bgd: Vec<Entry>,
    bmds: Vec<BmdPage>,
    btes: Vec<BtePage>,
    /// The resident blocks of each page, one bit each, as far as there have been any.
    residents: Vec<BlockBits>,
    selection: Selection,
}

impl BlockTable {
    /// Adds the weight of an access to these blocks. Cost: three loads each, after a hash look-up.
    pub fn access(&mut self, volume: VolumeId, first: u64, count: u64, weight: u16) {
        let (mut block, end) = (first, first + count);
        while block < end {
            let Some((at, bmd, bte)) = self.find_or_create(BlockAddress { volume, block }) else { return };
            let Self { bgd, bmds, btes, selection, .. } = self;
            let (middle, low) = (block as usize / BTES % BMDS, block as usize % BTES);
            let here = (end - block).min((BTES - low) as u64) as usize;
            for low in low..low + here {
                let page = &mut btes[bte];
                let fresh = page[low].flags & Flags::USED.0 == 0;
                page[low].flags |= Flags::USED.0;
                if add(&mut page[..], low, weight) {
                    selection.forget(bte);
                }
                let page = &mut bmds[bmd];
                page[middle].unique += u16::from(fresh);
                add(&mut page[..], middle, weight);
                bgd[at].unique = bgd[at].unique.saturating_add(u16::from(fresh));
                add(&mut bgd[..], at, weight);
            }
            selection.note_change(bte, low, here);
            block += here as u64;
        }
    }

    /// Returns a region, if it has been accessed.
    #[inline]
    fn region(&self, volume: VolumeId, number: u64) -> Option<Entry> {
        let key = (volume, number);
        let at = match self.latest {
            Some((latest, at)) if latest == key => at,
            _ => *self.regions.get(&key)?,
        };
        self.bgd.get(at as usize).copied()
    }

    /// Iterates over all regions, by volume and number.
    fn all_regions(&self) -> impl Iterator<Item = (VolumeId, u64, Entry)> + '_ {
        self.regions.iter().map(|((volume, number), at)| (*volume, *number, self.bgd[*at as usize]))
    }

    fn find(&self, at: BlockAddress) -> Option<(usize, usize)> {
        let region = self.region(at.volume, at.block / REGION)?;
        let middle = self.bmds.get(region.child as usize)?[at.block as usize / BTES % BMDS];
        let page = middle.child as usize;
        (page < self.btes.len()).then_some((page, at.block as usize % BTES))
    }

    /// Returns a block's counter.
    pub fn counter(&self, at: BlockAddress) -> u16 {
        self.find(at).map_or(0, |(page, low)| self.btes[page][low].counter)
    }

    /// Reads what an access to a block will need. Changes nothing.
    #[inline]
    pub fn prefetch(&self, at: BlockAddress) {
        // Only the loads count.
        std::hint::black_box(self.counter(at));
    }

    /// Whether a block has the flag.
    #[inline]
    pub fn has(&self, at: BlockAddress, flag: Flags) -> bool {
        self.find(at).is_some_and(|(page, low)| self.btes[page][low].flags & flag.0 != 0)
    }

    /// Sets or clears a block's flag.
    pub fn set(&mut self, at: BlockAddress, flag: Flags, on: bool) {
        if on && self.find(at).is_none() {
            self.find_or_create(at);
        }
        if let Some((page, low)) = self.find(at) {
            let flags = &mut self.btes[page][low].flags;
            *flags = if on { *flags | flag.0 } else { *flags & !flag.0 };
            if flag == Flags::RESIDENT {
                self.note_resident(page, low, on);
            }
        }
    }

    fn note_resident(&mut self, page: usize, low: usize, on: bool) {
        if self.residents.len() <= page && on {
            self.residents.resize(page + 1, [0; BTES / 64]);
        }
        if let Some(bits) = self.residents.get_mut(page) {
            let bit = 1 << (low % 64);
            bits[low / 64] = if on { bits[low / 64] | bit } else { bits[low / 64] & !bit };
        }
    }

    /// Returns the memory in bytes.
    pub fn memory(&self) -> Bytes {
        let regions = self.regions.capacity() * (size_of::<((VolumeId, u64), u32)>() + 1)
            + self.bgd.capacity() * size_of::<Entry>();
        let pages = self.bmds.len() * size_of::<[Entry; BMDS]>() + self.btes.len() * size_of::<[Bte; BTES]>();
        let pointers = (self.bmds.capacity() + self.btes.capacity()) * size_of::<usize>();
        let residents = self.residents.capacity() * size_of::<BlockBits>();
        Bytes((regions + pages + pointers + residents + self.selection.memory()) as u64)
    }

    /// Returns the most costly blocks, at most `quota` of them, in the order of [`Self::visit_candidates`].
    pub fn candidates(&mut self, quota: u64) -> Vec<BlockAddress> {
        let mut list = Vec::new();
        let _ = self.visit_candidates(quota, |found| {
            list.extend(found.blocks().map(|block| found.address(block)));
            ControlFlow::Continue(())
        });
        list
    }

    /// Visits the sub-regions of the most costly blocks, at most `quota` of them: Program 1 of the paper. The
    /// quota is divided among regions in proportion to their counters, visiting those with the fewest used
    /// blocks first; a region's share is divided likewise among its sub-regions; there blocks are taken by
    /// counter, descending. An unused share passes to the next. Cost: a few steps for each sub-region that
    /// was ever accessed, and for each change since the last visit; all blocks where those were too many.
    pub fn visit_candidates(
        &mut self,
        quota: u64,
        visit: impl FnMut(Candidates<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut selection = std::mem::take(&mut self.selection);
        selection.apply_changes(&self.btes);
        let end = self.visit_selected(quota, &mut selection, visit);
        self.selection = selection;
        end
    }

    fn visit_selected(
        &self,
        mut quota: u64,
        selection: &mut Selection,
        mut visit: impl FnMut(Candidates<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
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
            let start = BlockAddress { volume, block: region * REGION };
            self.visit_region(start, entry, &mut bmd_quota, selection, &mut visit)?;
            quota += bmd_quota;
        }
        ControlFlow::Continue(())
    }

    /// Visits a region; afterwards `quota` is the part that it has left.
    fn visit_region(
        &self,
        start: BlockAddress,
        region: Entry,
        quota: &mut u64,
        selection: &mut Selection,
        visit: &mut impl FnMut(Candidates<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
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
            let number = entry.child as usize;
            let selected = selection.select_costliest(number, &self.btes[number], bte_quota);
            *quota -= selected.candidates.len() as u64;
            if !selected.candidates.is_empty() {
                let start = BlockAddress { block: start.block + (i * BTES) as u64, ..start };
                let residents = self.residents.get(number).unwrap_or(&NO_BLOCKS);
                visit(Candidates { start, selected, residents })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Forgets a volume; its pages stay, empty, until the table is rebuilt from an export.
    pub fn forget(&mut self, volume: VolumeId) {
        self.regions.retain(|(of, _), _| *of != volume);
        self.selection.clear();
        self.latest = None;
    }

    /// Returns a block's region and pages, creating them if necessary. `None` if there are too many to
    /// number.
    #[inline]
    fn find_or_create(&mut self, at: BlockAddress) -> Option<(usize, usize, usize)> {
        let key = (at.volume, at.block / REGION);
        let region = match self.latest {
            Some((latest, region)) if latest == key => region as usize,
            _ => self.find_or_create_region(key)?,
        };
        let bmd = self.bgd[region].child as usize;
        let entry = &mut self.bmds[bmd][at.block as usize / BTES % BMDS];
        if entry.child == NONE {
            entry.child = u32::try_from(self.btes.len()).ok().filter(|n| *n != NONE)?;
            self.btes.push(Box::new([Bte { counter: 0, flags: 0 }; BTES]));
        }
        Some((region, bmd, entry.child as usize))
    }

    /// Returns the index of a region, creating it if necessary.
    #[inline(never)]
    fn find_or_create_region(&mut self, key: (VolumeId, u64)) -> Option<usize> {
        let at = match self.regions.get(&key) {
            Some(at) => *at,
            None => {
                let number = |len: usize| u32::try_from(len).ok().filter(|n| *n != NONE);
                let (at, child) = (number(self.bgd.len())?, number(self.bmds.len())?);
                self.bmds.push(Box::new([Entry::EMPTY; BMDS]));
                self.bgd.push(Entry { child, ..Entry::EMPTY });
                self.regions.insert(key, at);
                at
            }
        };
        self.latest = Some((key, at));
        Some(at as usize)
    }
}

#[cfg(test)]
mod tests;
