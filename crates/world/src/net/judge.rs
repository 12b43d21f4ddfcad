//! What clients hold answers against: the oracle, and what is known of devices that fail.
//!
//! A client is told no more than a number. It is in order if one of the reasons behind it can hold: a
//! device failed something since it was last mended, and the request needed that device, or asked for
//! what it may have lost.

use crate::driver::Ask;
use crate::driver::errors::{Holders, are_well, holders};
use crate::driver::kept::{Kept, Shape};
use crate::net::nbd::{EIO, ENOSPC, ESHUTDOWN};
use crate::{Oracle, Place, Ticket};
use weir_engine::Engine;
use weir_model::{Bytes, DeviceSet, Nanos, Op, VolumeOffset};

/// What devices behind the server have suffered since they were last mended.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// One of them may fail.
    pub(super) is_broken: bool,
    /// Writes may go astray.
    pub(super) astray: bool,
    /// A device has done something without telling anybody, ever.
    pub(super) deceived: bool,
    /// Those that failed something.
    pub(super) failing: DeviceSet,
    /// How much longer than usual devices that answer late may hold up a change that an operator asks for.
    pub(super) delay: Nanos,
}

/// What a client's requests and answers are held against.
pub(super) struct Judge<'a> {
    pub(super) oracle: &'a mut Oracle,
    /// What writes are promised of space.
    pub(super) kept: &'a mut Kept,
    pub(super) shape: Shape,
    pub(super) faults: &'a Faults,
    pub(super) engine: Option<&'a Engine>,
    /// The name of the client's volume.
    pub(super) volume: &'a str,
    /// Devices that hold the pool's metadata.
    pub(super) members: DeviceSet,
}

impl Judge<'_> {
    /// The devices that hold the blocks of a read, while devices may fail.
    pub(super) fn holders(&self, read: &Ask) -> Option<Holders> {
        if !self.faults.is_broken || read.op != Op::Read {
            return None;
        }
        let engine = self.engine?;
        let volume = engine.volumes().find(|volume| volume.name == self.volume)?.id;
        Some(holders(engine.map(), self.shape.extent, volume, read))
    }

    /// A request is sent.
    pub(super) fn begun(&mut self, ask: &Ask, ticket: Ticket) {
        self.kept.begun(ask, ticket, self.shape);
        if self.faults.is_broken || self.faults.deceived {
            self.kept.promise_nothing();
        }
    }

    /// A request is answered.
    pub(super) fn ended(&mut self, ask: &Ask, ticket: Ticket, succeeded: bool) {
        let now = self.oracle.latest();
        if succeeded {
            self.kept.succeeded(ask, ticket, now, self.shape);
        }
        self.kept.ended(ticket, now);
    }

    /// Whether a request may be answered with this error. `before` is what held the blocks of a read
    /// when it was sent.
    pub(super) fn admits(&self, ask: &Ask, ticket: Ticket, before: Option<&Holders>, error: u32) -> bool {
        let fails = !self.faults.failing.is_empty();
        match (error, ask.op) {
            (ENOSPC, op) => op.changes() && !self.kept.is_promised(ask, ticket, self.shape),
            (EIO, Op::Read) => fails && self.may_fail_to_read(ask, ticket, before),
            (EIO, Op::Flush) => fails && self.oracle.may_owe(ask.volume),
            (EIO, _) => fails,
            (ESHUTDOWN, op) => {
                op != Op::Read && self.members.iter().all(|member| self.faults.failing.contains(member))
            }
            _ => false,
        }
    }

    /// Whether a read may fail: a block may be in doubt, or may have been on failing devices only.
    pub(super) fn may_fail_to_read(&self, ask: &Ask, ticket: Ticket, before: Option<&Holders>) -> bool {
        let place = Place { volume: ask.volume, offset: ask.offset, len: ask.len };
        if self.faults.failing.is_empty() {
            return false;
        }
        let are_well = |h: Option<&Holders>| h.is_some_and(|h| are_well(h, self.faults.failing));
        self.oracle.may_be_in_doubt(place, ticket)
            || !self.oracle.is_unchanged(self.extents_of(place), ticket)
            || !are_well(before)
            || !are_well(self.holders(ask).as_ref())
    }

    /// All of the extents that a place touches.
    fn extents_of(&self, place: Place) -> Place {
        let extent = self.shape.extent.bytes().0;
        let start = place.offset.0 / extent * extent;
        let end = (place.offset.0 + place.len.0).next_multiple_of(extent);
        Place { offset: VolumeOffset(start), len: Bytes(end - start), ..place }
    }
}
