//! The resident list by blocks (`resident_list = "blocks"`), as in the paper's section 5.4: the block at its
//! bottom makes room for a new one.
//!
//! The list has the blocks that the [block table](crate::block_table) calls resident, those remapped or used
//! last at its top. It takes some 40 bytes for each: 1 % of the remap area. The [areas](super::areas) count
//! by extent in any case. A block that was written in a resident extent without having been remapped is in no
//! list; it leaves with the last block of its extent that is.

use super::super::{Action, PolicyContext};
use super::{Hystor, fine};
use crate::Lru;
use crate::block_table::{BlockAddress, Flags};
use weir_model::{BlockRange, DeviceId, ExtentIndex, ExtentKey};

/// The blocks of the list. Its order counts by extents if there is none.
pub(super) type ResidentBlocks = Option<Lru<BlockAddress, ()>>;

impl Hystor {
    /// Notes a use of blocks: the resident ones go to the top of the list.
    #[inline]
    pub(super) fn touch_blocks(&mut self, key: ExtentKey, first: u64, count: u16) {
        let Some(list) = &mut self.resident_blocks else { return };
        for block in first..first + u64::from(count) {
            list.touch(BlockAddress { volume: key.volume, block });
        }
    }

    /// Takes the block at the bottom of the list, and its extent. `None` if the list is by extents, or empty.
    pub(super) fn pop_oldest_block(&mut self, blocks_per_extent: u16) -> Option<(ExtentKey, u16)> {
        let (at, ()) = self.resident_blocks.as_mut()?.pop_oldest()?;
        self.clear_flags(at);
        let all = u64::from(blocks_per_extent);
        let key = ExtentKey { volume: at.volume, index: ExtentIndex(at.block / all) };
        Some((key, (at.block % all) as u16))
    }

    /// Evicts the blocks at the bottom of the list, as many as are wanted: they are dropped if their extent
    /// is clean, else written back.
    pub(super) fn evict_blocks(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId, wanted: u16) {
        for _ in 0..wanted {
            let all = context.extent.blocks();
            let Some((key, block)) = self.pop_oldest_block(all) else {
                return self.evict_extent(context, fast);
            };
            let first = super::first_block(key, all);
            let mut others = first..first + u64::from(all);
            let volume = key.volume;
            if !others.any(|block| self.table.has(BlockAddress { volume, block }, Flags::RESIDENT)) {
                self.evict_whole(context, key, fast);
                continue;
            }
            self.areas.remove_resident_block(key);
            let places = context.map.places(key);
            let blocks = BlockRange { first: block, count: 1 };
            if places.place(fine(fast)).is_some_and(|place| place.dirty > 0) {
                if let Some(to) = self.home(context.devices, &places, fast) {
                    context.actions.push(Action::Move { key, blocks, to });
                }
            } else {
                context.actions.push(Action::Drop { key, blocks, from: fine(fast) });
                self.drop_second(context, key);
            }
        }
    }
}
