//! Records, at the end of writes, of the blocks that a failed flush of their device would put in doubt.

use crate::core::Core;
use crate::device::unflushed::{UnflushedWrite, WriteEffect};
use crate::durability::Durability;
use crate::ids::PieceId;
use crate::request::Requests;
use crate::request::piece::{Piece, Target};
use weir_model::{DeviceId, Mutant, Span};

impl Durability {
    /// Records a failed write: the device may have any part of it, and may lose that again unless it is
    /// flushed.
    pub(crate) fn note_failed_write(
        &mut self,
        core: &mut Core,
        requests: &Requests,
        id: PieceId,
        device: DeviceId,
    ) {
        let Piece { key, range, .. } = requests.pieces[id.0 as usize];
        // A write in flight to a device when it was lost is in doubt already, and no flush will come.
        if !core.is_lost(device)
            && !core.is_planted(Mutant::FailedWriteNotNoted)
            && core.devices[device.index()].epochs.write_completed(device, false).is_some()
        {
            self.note_unflushed(core, device, UnflushedWrite::volatile(key, range));
        }
    }

    /// Records the effect of a failed flush of the device on these blocks: a `volatile` write would be in
    /// doubt; blocks that a durable write covers as whole blocks no longer would.
    #[inline(always)]
    pub(crate) fn note_written(
        &mut self,
        core: &mut Core,
        device: DeviceId,
        written: UnflushedWrite,
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
    fn note_durable(&mut self, core: &mut Core, device: DeviceId, written: UnflushedWrite, target: &Target) {
        let settles_all = core.is_planted(Mutant::DurableWriteSettlesPending);
        if core.devices[device.index()].epochs.needed_flush(device).is_none()
            || (!settles_all && self.note_late_write(core, device, written))
        {
            return;
        }
        let covered = Span { start: target.start, len: target.end - target.start }.covered();
        self.note_unflushed(
            core,
            device,
            UnflushedWrite { range: covered, effect: WriteEffect::Durable, ..written },
        );
    }

    /// Records the blocks of a write whose map change commits after pending changes of the extent. If a flush
    /// that those need fails, the map falls back on the state before all of them, which this write did not
    /// reach. Returns whether that can happen.
    pub(crate) fn note_late_write(
        &mut self,
        core: &mut Core,
        device: DeviceId,
        written: UnflushedWrite,
    ) -> bool {
        let may_fall_back = core.devices[device.index()].epochs.needed_flush(device).is_some()
            && core.map.has_pending(written.key);
        if may_fall_back {
            self.note_unflushed(core, device, written);
        }
        may_fall_back
    }
}
