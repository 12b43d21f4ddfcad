//! Notes, when writes end, which blocks a failed flush of their device would put in doubt.

use crate::core::Core;
use crate::device::unflushed::{Unflushed, Wrote};
use crate::durability::Durability;
use crate::ids::PieceId;
use crate::request::Requests;
use crate::request::piece::{Piece, Target};
use weir_model::{BlockRange, DeviceId, ExtentKey, Mutant, Span};

impl Durability {
    /// A write failed: the device may hold any part of it, and may lose that again unless it is flushed.
    pub(crate) fn note_unfinished(
        &mut self,
        core: &mut Core,
        requests: &Requests,
        id: PieceId,
        device: DeviceId,
    ) {
        let Piece { key, range, .. } = requests.pieces[id.0 as usize];
        // What was on its way to a device when it was lost is in doubt already, and no flush will come.
        if !core.is_lost(device)
            && !core.is_planted(Mutant::FailedWriteNotNoted)
            && core.devices[device.index()].epochs.wrote(device, false).is_some()
        {
            self.note_unflushed(core, device, Unflushed { key, range, wrote: Wrote::Data });
        }
    }

    /// Notes what a flush of the device that fails would put in doubt, or no longer would.
    #[inline(always)]
    pub(crate) fn note_written(
        &mut self,
        core: &mut Core,
        device: DeviceId,
        key: ExtentKey,
        target: &Target,
        range: BlockRange,
        volatile: bool,
    ) {
        if volatile {
            self.note_unflushed(core, device, Unflushed { key, range, wrote: Wrote::Data });
        } else {
            self.note_durable(core, device, key, target, range);
        }
    }

    /// The map learns of a write only now, after changes of the extent that later writes to the device made:
    /// a flush between them may have made it durable. If the flush fails that those need, the map falls back
    /// on what was before all of them.
    pub(crate) fn note_late(&mut self, core: &mut Core, device: DeviceId, key: ExtentKey, range: BlockRange) {
        let owes = core.devices[device.index()].epochs.owes(device).is_some();
        if owes && core.map.has_pending(key) {
            self.note_unflushed(core, device, Unflushed { key, range, wrote: Wrote::Data });
        }
    }

    #[inline(never)]
    fn note_durable(
        &mut self,
        core: &mut Core,
        device: DeviceId,
        key: ExtentKey,
        target: &Target,
        range: BlockRange,
    ) {
        if core.devices[device.index()].epochs.owes(device).is_none() {
            return;
        }
        if core.map.has_pending(key) && !core.is_planted(Mutant::DurableWriteSettlesPending) {
            // The data is durable, but not that the map knows of its place: the mover may just have made
            // it. If the flush fails that this needs, the map falls back on a place the write did not reach.
            self.note_unflushed(core, device, Unflushed { key, range, wrote: Wrote::Data });
        } else {
            let written = Span { start: target.start, len: target.end - target.start };
            self.note_unflushed(
                core,
                device,
                Unflushed { key, range: written.covered(), wrote: Wrote::Durable },
            );
        }
    }
}
