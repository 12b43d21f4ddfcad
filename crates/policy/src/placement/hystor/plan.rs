//! The plan of a period: the costly blocks that are to be copied.

use super::super::PolicyContext;
use super::{ExtentBlocks, Hystor, Quota, Update, fine};
use crate::block_table::{BTES, BlockBits, Candidates};
use std::ops::ControlFlow;
use weir_model::{BLOCK, DeviceId, ExtentIndex, ExtentKey, ExtentSize};

/// The maximum number of extents in a sub-region: a bit each.
const EXTENTS_MAX: usize = 64;
const _: () = assert!(BTES <= EXTENTS_MAX * (ExtentSize::MIN.0 / BLOCK) as usize);

/// The costly blocks of a sub-region by extent. Extents are not larger than a sub-region.
struct CostlyExtents {
    /// In the order of their most costly blocks; their number.
    order: [u8; EXTENTS_MAX],
    count: usize,
    /// The costly blocks, and those of them that are not resident.
    blocks: BlockBits,
    new: BlockBits,
    /// The extents that have some of either kind, one bit each.
    have_resident: u64,
    have_new: u64,
    /// The binary logarithm of the blocks of an extent.
    shift: u32,
}

impl CostlyExtents {
    fn of(found: &Candidates<'_>, shift: u32) -> Self {
        let blocks = *found.bits();
        let mut new = blocks;
        new.iter_mut().zip(found.residents()).for_each(|(new, residents)| *new &= !residents);
        let (have_resident, have_new) = (
            extents_with(blocks.iter().zip(&new).map(|(blocks, new)| blocks & !new), shift),
            extents_with(new.iter().copied(), shift),
        );
        let (mut order, mut count, mut left) = ([0; EXTENTS_MAX], 0, have_resident | have_new);
        // The most costly blocks of all extents are mostly among the first. No branch depends on a block's
        // extent, because the processor could not foresee it.
        for block in found.blocks() {
            let nth = block >> shift;
            order[count] = nth as u8;
            count += (left >> nth & 1) as usize;
            left &= !(1 << nth);
            if left == 0 {
                break;
            }
        }
        Self { order, count, have_resident, have_new, blocks, new, shift }
    }

    fn order(&self) -> impl Iterator<Item = u8> {
        self.order.iter().copied().take(self.count)
    }

    /// Returns the costly blocks of an extent, or those that are not resident: the most costly ones, at most
    /// `most`.
    fn blocks_of(&self, nth: u8, all: bool, most: usize, found: &Candidates<'_>) -> ExtentBlocks {
        let bits = if all { &self.blocks } else { &self.new };
        let (first, count) = (u16::from(nth) << self.shift, 1 << self.shift);
        let blocks = ExtentBlocks::of_sub_region(bits, first, count);
        if blocks.len() <= most {
            return blocks;
        }
        let of_extent = found.blocks().filter(|block| (first..first + count).contains(block));
        of_extent.map(|block| block - first).filter(|block| blocks.contains(*block)).take(most).collect()
    }
}

/// Returns the extents of 2^`shift` blocks that have some of these blocks.
fn extents_with(blocks: impl Iterator<Item = u64>, shift: u32) -> u64 {
    let within_word = |bits: u64| {
        let parts = 64 >> shift;
        let has = |part: &u32| bits >> (part << shift) & u64::MAX >> (64 - (1 << shift)) != 0;
        (0..parts).filter(has).map(|part| 1 << part).sum::<u64>()
    };
    let extents = |(word, bits): (u32, u64)| match shift.checked_sub(6) {
        None => within_word(bits) << (word << (6 - shift)),
        Some(shift) => u64::from(bits != 0) << (word >> shift),
    };
    (0..).zip(blocks).fold(0, |all, word| all | extents(word))
}

impl Hystor {
    /// Selects the costly blocks: resident ones go to the top of the list, the others are planned to be
    /// copied, until enough change.
    pub(super) fn plan(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId, quota: Quota) {
        let mut changes = (self.update * quota.remap as f64) as usize;
        self.updates.clear();
        let Self { table, areas, resident_blocks, updates, .. } = self;
        // Program 1 names blocks sub-region by sub-region; there, extents are visited in the order of their
        // most costly blocks. They are a power of two: a shift, because all costly blocks are visited.
        let shift = context.extent.blocks().ilog2();
        let _ = table.visit_candidates(quota.remap, |found| {
            let extents = CostlyExtents::of(&found, shift);
            let key_of = |nth: u8| ExtentKey {
                volume: found.start.volume,
                index: ExtentIndex((found.start.block >> shift) + u64::from(nth)),
            };
            let CostlyExtents { have_resident, have_new, .. } = extents;
            let missing = have_resident & !context.map.have_place(key_of(0), have_resident, fine(fast));
            let mut run = areas.run(key_of(0), (BTES >> shift) as u64);
            for nth in extents.order() {
                let key = key_of(nth);
                run.touch(nth);
                if let Some(list) = resident_blocks {
                    // The most costly first, as in Program 1: the others of the extent end above it.
                    // It decides what leaves (docs/policies/reproduction-results.md).
                    let of_extent = found.blocks().filter(|block| block >> shift == u16::from(nth));
                    of_extent.for_each(|block| _ = list.touch(found.address(block)));
                }
                if (missing | have_new) >> nth & 1 != 0 {
                    let is_missing = missing >> nth & 1 != 0;
                    let blocks = extents.blocks_of(nth, is_missing, changes, &found);
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
