//! The resident list by blocks (`resident_list = "blocks"`), as in the paper's section 5.4: the block at its
//! bottom makes room for a new one.
//!
//! The list has the blocks that the [block table](crate::block_table) calls resident, those remapped or used
//! last at its top. It takes up to [`BLOCK_BYTES`] for each. The [areas](super::areas) count by extent in any
//! case. A block that was written in a resident extent without having been remapped is in no list; it leaves
//! with the last block of its extent that is.

use super::super::{Action, PolicyContext};
use super::{Hystor, addresses, fine, whole_range};
use crate::Lru;
use crate::block_table::{BlockAddress, Flags};
use weir_model::{BLOCK, BlockRange, DeviceId, ExtentIndex, ExtentKey};

/// The list, if it is by blocks: those used last first.
pub(super) type ResidentBlocks = Option<Lru<BlockAddress, ()>>;

/// The memory of a block of the list in bytes.
const BLOCK_BYTES: usize = Lru::<BlockAddress, ()>::ENTRY_BYTES_MAX;
const _: () = assert!(BLOCK_BYTES * 50 <= BLOCK as usize, "docs/policies/hystor.md: 2 % of the remap area");

impl Hystor {
    /// Evicts the blocks at the bottom of the list, as many as are wanted: they are dropped if their extent
    /// is clean, else written back. A list that is too short has an extent leave.
    pub(super) fn evict_blocks(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId, wanted: u16) {
        let all = u64::from(context.extent.blocks());
        for _ in 0..wanted {
            let Some((at, ())) = self.resident_blocks.as_mut().and_then(Lru::pop_oldest) else {
                return self.evict_extent(context, fast);
            };
            self.clear_flags(at);
            let key = ExtentKey { volume: at.volume, index: ExtentIndex(at.block / all) };
            let mut others = addresses(key, whole_range(context), context.extent);
            if !others.any(|at| self.table.has(at, Flags::RESIDENT)) {
                self.evict_whole(context, key, fast);
                continue;
            }
            self.areas.remove_resident_block(key);
            let places = context.map.places(key);
            let blocks = BlockRange { first: (at.block % all) as u16, count: 1 };
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
