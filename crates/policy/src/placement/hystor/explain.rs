//! The explanation of a block's placement, in the paper's terms.

use super::super::{DeviceView, PolicyContext, Question, ReadFrom, Reasons};
use super::{Hystor, address};
use crate::block_table::Flags;
use weir_model::{BLOCK, Bytes};

impl Hystor {
    pub(super) fn reasons(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        let at = address(about.key, about.block, context.extent);
        reasons.figure("counter of the block", self.table.counter(at));
        if self.table.has(at, Flags::METADATA) {
            reasons.figure("what clients call it", "metadata");
        }
        let area = match (self.areas.is_resident(about.key), self.areas.contains(about.key)) {
            (true, _) => "remap area",
            (_, true) => "write-back area",
            _ => "none",
        };
        reasons.figure("area of the extent", area);
        let Some(fast) = self.fast.and_then(|id| context.device(id)) else {
            reasons.fast_is_unknown();
            return reasons;
        };
        self.explain_areas(&mut reasons, context, fast);
        let name = about.name(fast.id);
        match area {
            "remap area" => reasons.moves_if(format_args!(
                "it leaves {name} when it is at the bottom of the resident list and the remap area has no room for \
                 blocks that cost more"
            )),
            "write-back area" => reasons.moves_if(format_args!(
                "it is written home when more than {:.0} % of the write-back area are dirty, and leaves {name} when the \
                 area is short of room",
                100.0 * self.high
            )),
            _ => {
                reasons.moves_if(format_args!(
                    "it is copied to {name} if its counter is among the highest when the costly blocks are named next, \
                     in {}",
                    self.next_period.since(context.now)
                ));
                reasons.moves_if(format_args!(
                    "a write of at most {} to it goes to {name} while the write-back area has room",
                    Bytes(self.buffer_up_to)
                ));
            }
        }
        reasons
    }

    /// Adds the fill of the areas.
    fn explain_areas(&self, reasons: &mut Reasons, context: &PolicyContext<'_>, fast: &DeviceView) {
        let quota = self.quota(context.devices, fast, context.extent.blocks());
        let of = |blocks: u64, all: u64| format!("{} of {}", Bytes(blocks * BLOCK), Bytes(all * BLOCK));
        reasons.figure("remap area", of(self.areas.resident_blocks(), quota.remap));
        reasons.figure("write-back area", of(self.areas.buffered_blocks(), quota.write_back));
        reasons.figure("dirty of it", Bytes(self.areas.dirty() * BLOCK));
        let hits = match self.read_from {
            ReadFrom::Slots => "the fast device",
            ReadFrom::Soonest => "where they are answered sooner",
        };
        reasons.figure("reads of what is in an area go to", hits);
        if self.duplexed {
            reasons.figure("copies of what is dirty", if self.second.is_some() { 2 } else { 1 });
        }
    }
}
