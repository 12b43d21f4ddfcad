//! The costly blocks: they are named every period, and copied to the fast device where they are missing.

use super::super::{Action, PolicyContext};
use super::{Extent, Hystor, Quota, fine, first_block};
use crate::block_table::{BlockAddress, Candidate, Candidates, Flags};
use std::ops::ControlFlow;
use weir_model::{BlockRange, DeviceId, ExtentIndex, ExtentKey};

/// The number of blocks planned at a time.
const PORTION_BLOCKS: usize = 1024;

/// Blocks of an extent to be remapped, starting with the next one to request.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub(super) key: ExtentKey,
    pub(super) blocks: Vec<u16>,
}

/// The sub-region whose costly blocks are being planned; kept to spare allocations.
#[derive(Debug, Default)]
struct SubRegion {
    /// The most costly block of each extent.
    costliest: Vec<Candidate>,
    /// The blocks that are not resident.
    new: Vec<Candidate>,
}

impl SubRegion {
    /// Collects the blocks that are not resident: first those of the extent with the most costly block,
    /// resident or not; in an extent the most costly first.
    fn collect(&mut self, found: &Candidates<'_>, blocks: u16) {
        self.new.clear();
        self.new.extend(found.iter().filter(|block| !found.has(*block, Flags::RESIDENT)));
        if self.new.is_empty() {
            return;
        }
        self.costliest.clear();
        for block in found.iter() {
            let nth = usize::from(block.offset() / blocks);
            if nth >= self.costliest.len() {
                self.costliest.resize(nth + 1, Candidate::LEAST);
            }
            self.costliest[nth] = self.costliest[nth].min(block);
        }
        let Self { costliest, new } = self;
        new.sort_unstable_by_key(|block| (costliest[usize::from(block.offset() / blocks)], *block));
    }
}

impl Hystor {
    /// Begins a period: as many blocks as the settings say may change.
    pub(super) fn begin_period(&mut self, quota: Quota) {
        self.periods = self.periods.wrapping_add(1);
        self.areas.begin_sweep();
        self.updates.clear();
        self.changes = (self.update * quota.remap as f64) as usize;
    }

    /// Names the costly blocks, and plans to copy those that are not resident: a portion of what may change,
    /// because more are rarely copied in a period. The resident extents of named blocks are the last to be
    /// evicted.
    pub(super) fn plan(&mut self, blocks: u16, quota: Quota) {
        let mut portion = self.changes.min(PORTION_BLOCKS);
        let mut sub_region = SubRegion::default();
        let Self { table, updates, changes, .. } = self;
        // If all that is new is planned, the next period finds more.
        let left = std::mem::take(changes);
        table.visit_unsettled(quota.remap, |found| {
            sub_region.collect(&found, blocks);
            let first = found.start.block / u64::from(blocks);
            for new in sub_region.new.chunk_by(|a, b| a.offset() / blocks == b.offset() / blocks) {
                let nth = u64::from(new[0].offset() / blocks);
                let key = ExtentKey { volume: found.start.volume, index: ExtentIndex(first + nth) };
                let new = &new[..new.len().min(portion)];
                let mut blocks: Vec<_> = new.iter().map(|block| block.offset() % blocks).collect();
                blocks.sort_unstable();
                portion -= blocks.len();
                updates.push_back(Update { key, blocks });
                if portion == 0 {
                    *changes = left.saturating_sub(PORTION_BLOCKS);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
    }

    /// Requests the copies of waiting metadata and the planned ones, a run of an extent at a time, in
    /// exchange for extents at the bottom of the list.
    pub(super) fn copy_planned(
        &mut self,
        context: &mut PolicyContext<'_>,
        fast: DeviceId,
        quota: Quota,
        budget: usize,
    ) {
        for _ in 0..(self.waiting_metadata.len() + self.updates.len()).min(budget) {
            if context.actions.len() >= budget {
                return;
            }
            let waiting = self.waiting_metadata.pop_front();
            let Some(mut update) = waiting.or_else(|| self.next_planned(context)) else { return };
            let run = first_run(&update.blocks);
            if self.areas.resident_blocks() + u64::from(run.count) > quota.remap {
                self.evict(context, fast);
            }
            context.actions.push(Action::Copy { key: update.key, blocks: run, to: fine(fast) });
            self.remap(context, update.key, run);
            let seen = Extent::of(&context.map.places(update.key), fine(fast));
            let all = context.extent.blocks();
            self.areas.add_resident(update.key, seen.with_clean(run.count, all), self.periods);
            update.blocks.drain(..usize::from(run.count));
            if !update.blocks.is_empty() {
                self.updates.push_back(update);
            }
        }
    }

    /// Returns the next planned copy, without metadata that was remapped since.
    fn next_planned(&mut self, context: &PolicyContext<'_>) -> Option<Update> {
        let Self { table, updates, .. } = self;
        while let Some(mut update) = updates.pop_front() {
            let first = first_block(update.key, context.extent.blocks());
            update.blocks.retain(|block| {
                let at = BlockAddress { volume: update.key.volume, block: first + u64::from(*block) };
                !(table.has(at, Flags::METADATA) && table.has(at, Flags::RESIDENT))
            });
            if !update.blocks.is_empty() {
                return Some(update);
            }
        }
        None
    }
}

/// Returns the run of consecutive blocks at the beginning of a sorted list.
pub(super) fn first_run(blocks: &[u16]) -> BlockRange {
    let first = blocks.first().copied().unwrap_or(0);
    let count = blocks.iter().zip(first..).take_while(|(block, next)| *block == next).count() as u16;
    BlockRange { first, count }
}
