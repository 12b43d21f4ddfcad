//! Notes, when writes end, which blocks a failed flush of their device would put in doubt.

use crate::core::Core;
use crate::device::unflushed::{Unflushed, Wrote};
use crate::durability::Durability;
use crate::ids::PieceId;
use crate::request::Requests;
use crate::request::piece::{Piece, Target};
use weir_model::{DeviceId, Mutant, Span};

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
            self.note_unflushed(core, device, Unflushed::data(key, range));
        }
    }

    /// Notes what a flush of the device that fails would put in doubt, or no longer would: these blocks, of
    /// which the write covered what the target says, and is durable unless `volatile`.
    #[inline(always)]
    pub(crate) fn note_written(
        &mut self,
        core: &mut Core,
        device: DeviceId,
        written: Unflushed,
        target: &Target,
        volatile: bool,
    ) {
        if volatile {
            self.note_unflushed(core, device, written);
        } else {
            self.note_durable(core, device, written, target);
        }
    }

    #[inline(never)]
    fn note_durable(&mut self, core: &mut Core, device: DeviceId, written: Unflushed, target: &Target) {
        let settles_all = core.is_planted(Mutant::DurableWriteSettlesPending);
        if core.devices[device.index()].epochs.owes(device).is_none()
            || (!settles_all && self.note_late(core, device, written))
        {
            return;
        }
        let covered = Span { start: target.start, len: target.end - target.start }.covered();
        self.note_unflushed(core, device, Unflushed { range: covered, wrote: Wrote::Durable, ..written });
    }

    /// The data of a write is durable, or a flush under way may make it so, but the map learns of its place
    /// after other changes of the extent that are pending. If the flush fails that those need, the map falls
    /// back on a state from before all of them, which this write did not reach. Whether that may happen; then
    /// it is noted.
    pub(crate) fn note_late(&mut self, core: &mut Core, device: DeviceId, written: Unflushed) -> bool {
        let may_fall_back =
            core.devices[device.index()].epochs.owes(device).is_some() && core.map.has_pending(written.key);
        if may_fall_back {
            self.note_unflushed(core, device, written);
        }
        may_fall_back
    }
}
