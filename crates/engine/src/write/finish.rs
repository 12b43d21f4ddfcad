//! The end of a write, to one place or to two: each place that has all of it becomes valid for it, or the
//! write fails.

use crate::DataPath;
use crate::core::Core;
use crate::device::unflushed::UnflushedWrite;
use crate::flight::Flight;
use crate::ids::PieceId;
use crate::lookup::Address;
use crate::request::Requests;
use crate::request::mirror::{Leg, MirroredWrite};
use crate::request::piece::{Piece, PieceState, Target, Work};
use crate::write::target;
use smallvec::SmallVec;
use weir_model::{BlockRange, ExtentKey, IoError, IoKind, Mutant, RequestError};

/// Makes the written blocks visible in the map.
#[inline(always)]
fn update_map(
    core: &mut Core,
    key: ExtentKey,
    range: BlockRange,
    target: Target,
    good: &[Leg],
    failed: bool,
) {
    let at = |leg: &Leg| leg.address.location(range.count);
    match good {
        [a, b] if target.makes_valid => {
            core.map.mark_duplexed_written(key, [a, b].map(at), range, [a.needs, b.needs]);
        }
        [a] if target.makes_valid || failed => core.map.mark_written(key, at(a), range, a.needs),
        _ => {}
    }
}

/// Whether a planted mutant ignores that the write is not durable.
fn is_fua_ignored(core: &Core, requests: &Requests, id: PieceId, target: Target) -> bool {
    let zeros = matches!(requests.pieces[id.0 as usize].work, Work::Write { zeros: true });
    (zeros && core.is_planted(Mutant::FuaIgnoredForZeros))
        || (!target.makes_valid && core.is_planted(Mutant::FuaIgnoredInPlace))
}

impl DataPath {
    /// Handles the end of a command that wrote the piece's bytes; the last one finishes the write.
    pub(crate) fn write_ended(&mut self, id: PieceId, flight: &Flight, result: Result<(), IoError>) {
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        let PieceState::Writing(writing) = &mut piece.state else { return };
        let target = writing.target;
        if target.mirrored {
            return self.copy_ended(id, target, flight, result);
        }
        writing.in_flight -= 1;
        let is_last = writing.in_flight == 0;
        if let Err(error) = result {
            piece.error = Some(flight.error(error));
        }
        let error = piece.error;
        let fua = flight.kind == IoKind::Write { fua: true };
        let needs = match result {
            Ok(()) => {
                self.base.core.devices[flight.device.index()].epochs.write_completed(flight.device, fua)
            }
            Err(_) => None,
        };
        if !is_last {
            return;
        }
        if error.is_some() {
            // The last of several commands may have succeeded, although a flush failed since the first one.
            self.base.durability.note_failed_write(
                &mut self.base.core,
                &self.base.requests,
                id,
                flight.device,
            );
            return self.write_failed(id, target, &[target.address], error);
        }
        let leg = Leg { address: target.address, in_flight: 0, failed: false, needs };
        self.finish_write(id, target, &[leg], false, fua);
    }

    /// Finishes a write to two places, each of which has been written or has failed.
    #[inline(never)]
    pub(super) fn finish_copies(&mut self, id: PieceId, target: Target) {
        self.put_back_scratch(id);
        let Piece { key, range, .. } = self.base.requests.pieces[id.0 as usize];
        self.base.mirror.end(id, key);
        let write =
            self.base.requests.pieces[id.0 as usize].writing().and_then(|writing| writing.copies.take());
        let MirroredWrite { legs, error, fua } = write.map(|write| *write).unwrap_or_default();
        let (good, bad): (SmallVec<[Leg; 2]>, SmallVec<[Leg; 2]>) =
            legs.iter().copied().partition(|leg| !leg.failed);
        if !target.address.is_fresh() {
            self.note_copies_written(key, !bad.is_empty(), good.len());
        }
        if good.is_empty() {
            self.base.requests.restart_reads(key, range);
            let addresses: SmallVec<[Address; 2]> = legs.iter().map(|leg| leg.address).collect();
            return self.write_failed(id, target, &addresses, error);
        }
        bad.iter().for_each(|leg| self.base.give_up_address(leg.address, range));
        let changes =
            (target.makes_valid || !bad.is_empty()) && !self.base.core.is_planted(Mutant::LateWriteNotNoted);
        for leg in good.iter().filter(|_| changes) {
            let written = UnflushedWrite::volatile(key, range);
            self.base.durability.note_late_write(&mut self.base.core, leg.address.place().device, written);
        }
        self.finish_write(id, target, &good, !bad.is_empty(), fua);
    }

    /// Finishes a write that has no command in flight any more. `good` are the places that have all of it.
    /// `failed`: a place that should have it does not. `fua`: it is durable.
    #[inline(always)]
    fn finish_write(&mut self, id: PieceId, target: Target, good: &[Leg], failed: bool, fua: bool) {
        self.put_back_scratch(id);
        let Piece { key, range, request, .. } = self.base.requests.pieces[id.0 as usize];
        if target.address.is_fresh() && !self.may_take_slots(id, good) {
            return self.restart_write(id);
        }
        self.base.durability.doubt.settle(key, range);
        if !target.mirrored {
            // For copies, this is recorded as each command ends.
            let (device, written) = (good[0].address.place().device, UnflushedWrite::volatile(key, range));
            self.base.durability.note_written(
                &mut self.base.core,
                device,
                written,
                &target,
                good[0].needs.is_some(),
            );
        }
        if target.makes_valid && !target::is_still_at(&self.base.core, key, target.address, range) {
            return self
                .base
                .piece_failed(id, RequestError::InDoubt { device: target.address.place().device });
        }
        update_map(&mut self.base.core, key, range, target, good, failed);
        if target.mirrored || (target.makes_valid && target.has_other_places) {
            self.base.requests.locks.request_tidying(key);
        }
        if failed || target.makes_valid || good.iter().any(|leg| leg.needs.is_some()) {
            self.base.durability.note_change(&self.base.core);
        }
        if self.base.cache.is_on() {
            self.base.cache.write_succeeded(key, range);
        }
        let unsaid = !target.mirrored && is_fua_ignored(&self.base.core, &self.base.requests, id, target);
        // A failed copy must be durably invalid before anybody relies on the other one.
        let is_alone = failed
            && !target.address.is_fresh()
            && !self.base.core.is_planted(Mutant::FailedCopyNotCommitted);
        let active = &mut self.base.requests.active[request.0];
        active.needs_commit |= is_alone || (active.request.fua && !fua && !unsaid);
        self.base.requests.wait_for_pending(&self.base.core, id);
        self.base.piece_ended(id);
    }

    /// Records that copies have been written: the extent's intent is in use, and one copy may be lacking.
    fn note_copies_written(&mut self, key: ExtentKey, failed: bool, good: usize) {
        self.base.durability.touch_intent(&self.base.core, key);
        let forgets = self.base.core.is_planted(Mutant::LackingCopyForgotten)
            || (self.base.core.is_planted(Mutant::SecondPlaceNotTaken) && !failed);
        if (failed || good < 2) && !forgets {
            self.base.durability.missing_copies.note(&self.base.core, key);
        }
    }

    /// Whether the extent may take the fresh slots just written; if not, they are freed. In the meantime the
    /// extent may have reached its maximum number of places.
    #[inline(never)]
    fn may_take_slots(&mut self, id: PieceId, good: &[Leg]) -> bool {
        let Piece { key, range, .. } = self.base.requests.pieces[id.0 as usize];
        let may_have = match good {
            [a, b] => self.base.core.map.may_add_pair(key, [a.address.place(), b.address.place()]),
            [a] => self.base.core.map.may_add_place(key, a.address.place()),
            _ => false,
        };
        if !may_have {
            self.base.requests.pieces[id.0 as usize].take_addresses();
            good.iter().for_each(|leg| self.base.give_up_address(leg.address, range));
        }
        may_have
    }

    /// Handles a write that failed at every place.
    #[inline(never)]
    fn write_failed(
        &mut self,
        id: PieceId,
        target: Target,
        addresses: &[Address],
        error: Option<RequestError>,
    ) {
        self.put_back_scratch(id);
        if target.mirrored && !target.address.is_fresh() {
            return self.all_copies_failed(id, addresses, error);
        }
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        piece.take_addresses();
        let range = piece.range;
        addresses.iter().for_each(|address| self.base.give_up_address(*address, range));
        self.base.piece_failed(id, error.unwrap_or(RequestError::ReadOnly));
    }
}
