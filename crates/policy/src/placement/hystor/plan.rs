//! The plan of a period: the costly blocks that are to be copied.

use super::super::PolicyContext;
use super::{Hystor, Offsets, Quota, Update, fine};
use crate::block_table::{Candidate, Flags};
use std::ops::ControlFlow;
use weir_model::{DeviceId, ExtentIndex, ExtentKey};

/// The costly blocks of an extent: the first of them, whether one is resident, and whether one is not.
#[derive(Clone, Copy, Debug, Default)]
struct CostlyExtent {
    costliest: Option<Candidate>,
    has_resident: bool,
    has_new: bool,
}

impl CostlyExtent {
    #[inline]
    fn add(&mut self, block: Candidate, is_resident: bool) {
        self.costliest = Some(self.costliest.map_or(block, |costliest| costliest.min(block)));
        self.has_resident |= is_resident;
        self.has_new |= !is_resident;
    }
}

/// Returns the most costly of these blocks of an extent, at most `count`, in order of address.
fn most_costly(blocks: &mut Vec<Candidate>, count: usize, blocks_per_extent: u16) -> Offsets {
    if blocks.len() > count {
        blocks.sort_unstable();
        blocks.truncate(count);
    }
    let mut blocks: Offsets = blocks.iter().map(|block| block.offset() % blocks_per_extent).collect();
    blocks.sort_unstable();
    blocks
}

impl Hystor {
    /// Selects the costly blocks: resident ones go to the top of the list, the others are planned to be
    /// copied, until enough change.
    pub(super) fn plan(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId, quota: Quota) {
        let blocks = context.extent.blocks();
        let mut changes = (self.update * quota.remap as f64) as usize;
        self.updates.clear();
        let Self { table, areas, resident_blocks, updates, .. } = self;
        // Program 1 names blocks sub-region by sub-region. Extents, which are not larger, are collected here,
        // to be visited in the order of their most costly blocks.
        let mut extents: Vec<CostlyExtent> = Vec::new();
        let mut order: Vec<(Candidate, u16)> = Vec::new();
        let mut new: Vec<Candidate> = Vec::new();
        // Extents are a power of two: a shift, because all costly blocks are visited.
        let nth_of = |block: Candidate| block.offset() >> blocks.ilog2();
        let _ = table.visit_candidates(quota.remap, |found| {
            extents.clear();
            for block in found.iter() {
                let nth = usize::from(nth_of(block));
                if nth >= extents.len() {
                    extents.resize(nth + 1, CostlyExtent::default());
                }
                extents[nth].add(block, found.has(block, Flags::RESIDENT));
            }
            let costliest = (0u16..).zip(&extents).filter_map(|(nth, extent)| Some((extent.costliest?, nth)));
            order.clear();
            order.extend(costliest);
            order.sort_unstable();
            let first = found.start.block / u64::from(blocks);
            for (_, nth) in &order {
                let key =
                    ExtentKey { volume: found.start.volume, index: ExtentIndex(first + u64::from(*nth)) };
                areas.touch(key);
                if let Some(list) = resident_blocks {
                    let blocks = found.iter().filter(|block| nth_of(*block) == *nth);
                    blocks.for_each(|block| _ = list.touch(found.address(block)));
                }
                let CostlyExtent { has_resident, has_new, .. } = extents[usize::from(*nth)];
                let is_missing = has_resident && !context.map.has_place(key, fine(fast));
                if is_missing || has_new {
                    let wanted = |block: &Candidate| {
                        nth_of(*block) == *nth && (is_missing || !found.has(*block, Flags::RESIDENT))
                    };
                    new.clear();
                    new.extend(found.iter().filter(wanted));
                    let blocks = most_costly(&mut new, changes, blocks);
                    changes -= blocks.len();
                    updates.push_back(Update { key, blocks });
                }
                if changes == 0 {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
    }
}
