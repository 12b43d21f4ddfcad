//! Judges replies to clients by the oracle and by the state of failing devices.
//!
//! A client only gets an error code. The code is correct if one of its possible reasons holds: a device has
//! failed a command since it was last repaired, and the request needed that device, or concerned data that
//! the device may have lost.

use crate::driver::RequestSpec;
use crate::driver::errors::{Holders, all_available, holders};
use crate::driver::space_guarantees::{SpaceGuarantees, VolumeShape};
use crate::net::nbd::{EIO, ENOSPC, ESHUTDOWN};
use crate::{Oracle, Place, Ticket};
use weir_engine::Engine;
use weir_model::{Bytes, DeviceSet, Nanos, Op, VolumeOffset};

/// Faults of devices behind the server since they were last repaired.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// True if one of them may fail.
    pub(super) is_broken: bool,
    /// True if writes may be misdirected.
    pub(super) may_misdirect: bool,
    /// True if a device has ever failed silently.
    pub(super) had_silent_failure: bool,
    /// Devices that have failed a command.
    pub(super) failing: DeviceSet,
    /// Additional time for which slow devices may delay an operator's change.
    pub(super) delay: Nanos,
}

/// The basis on which a client's requests and replies are judged.
pub(super) struct Judge<'a> {
    pub(super) oracle: &'a mut Oracle,
    /// Space guaranteed to writes.
    pub(super) space_guarantees: &'a mut SpaceGuarantees,
    pub(super) shape: VolumeShape,
    pub(super) faults: &'a Faults,
    pub(super) engine: Option<&'a Engine>,
    /// Name of the client's volume.
    pub(super) volume: &'a str,
    /// Devices that hold the pool's metadata.
    pub(super) members: DeviceSet,
}

impl Judge<'_> {
    /// Returns the devices that hold the blocks of a read, while devices may fail.
    pub(super) fn holders(&self, read: &RequestSpec) -> Option<Holders> {
        if !self.faults.is_broken || read.op != Op::Read {
            return None;
        }
        let engine = self.engine?;
        let volume = engine.volumes().find(|volume| volume.name == self.volume)?.id;
        Some(holders(engine.map(), self.shape.extent, volume, read))
    }

    /// Registers a request that is sent.
    pub(super) fn register_request(&mut self, ask: &RequestSpec, ticket: Ticket) {
        self.space_guarantees.register_request(ask, ticket, self.shape);
        if self.faults.is_broken || self.faults.had_silent_failure {
            self.space_guarantees.void_pending_guarantees();
        }
    }

    /// Registers the reply to a request.
    pub(super) fn register_reply(&mut self, ask: &RequestSpec, ticket: Ticket, succeeded: bool) {
        let now = self.oracle.latest();
        if succeeded {
            self.space_guarantees.succeeded(ask, ticket, now, self.shape);
        }
        self.space_guarantees.register_end(ticket, now);
    }

    /// Reports whether a request may be answered with this error. `before` is the set of devices that held
    /// the blocks of a read when it was sent.
    pub(super) fn admits(
        &self,
        ask: &RequestSpec,
        ticket: Ticket,
        before: Option<&Holders>,
        error: u32,
    ) -> bool {
        let fails = !self.faults.failing.is_empty();
        match (error, ask.op) {
            (ENOSPC, op) => op.changes() && !self.space_guarantees.is_guaranteed(ask, ticket, self.shape),
            (EIO, Op::Read) => fails && self.may_fail_to_read(ask, ticket, before),
            (EIO, Op::Flush) => fails && self.oracle.may_report_loss(ask.volume),
            (EIO, _) => fails,
            (ESHUTDOWN, op) => {
                op != Op::Read && self.members.iter().all(|member| self.faults.failing.contains(member))
            }
            _ => false,
        }
    }

    /// Reports whether a read may fail: a block may be in doubt, or may have been on failing devices only.
    pub(super) fn may_fail_to_read(
        &self,
        ask: &RequestSpec,
        ticket: Ticket,
        before: Option<&Holders>,
    ) -> bool {
        let place = Place { volume: ask.volume, offset: ask.offset, len: ask.len };
        if self.faults.failing.is_empty() {
            return false;
        }
        let are_well = |h: Option<&Holders>| h.is_some_and(|h| all_available(h, self.faults.failing));
        self.oracle.may_be_in_doubt(place, ticket)
            || !self.oracle.is_unchanged(self.extents_of(place), ticket)
            || !are_well(before)
            || !are_well(self.holders(ask).as_ref())
    }

    /// Returns all of the extents that a place touches.
    fn extents_of(&self, place: Place) -> Place {
        let extent = self.shape.extent.bytes().0;
        let start = place.offset.0 / extent * extent;
        let end = (place.offset.0 + place.len.0).next_multiple_of(extent);
        Place { offset: VolumeOffset(start), len: Bytes(end - start), ..place }
    }
}
