//! The rule for when a flush counts.
//!
//! The operating system and the device report a lost write once: to the first flush or durable write that
//! finds out. Another flush in flight at the same time, whoever requested it, may succeed and prove nothing.
//! So a flush that succeeded waits until every flush and durable write of its device that had begun by then
//! has ended. If one of them fails, so does the flush. This module calls flushes and durable writes
//! *promises*.

use crate::device::outstanding::{BarrierQueue, Outstanding};
use crate::flight::Flight;

/// The flushes and durable writes of a device.
#[derive(Debug, Default)]
pub(crate) struct DurabilityOrder {
    in_flight: Outstanding,
    /// Flushes that succeeded, each with the promises that must end before it counts.
    deferred: BarrierQueue<Flight>,
}

impl DurabilityOrder {
    /// Begins a flush or durable write. The caller passes the number to [`Self::end`].
    #[inline]
    pub(crate) fn begin(&mut self) -> u64 {
        self.in_flight.begin()
    }

    /// Ends a flush or durable write, successful or not.
    #[inline]
    pub(crate) fn end(&mut self, durability_number: u64) {
        self.in_flight.end(durability_number);
    }

    /// Defers a flush that succeeded: it counts once all promises begun by now have ended.
    pub(crate) fn defer(&mut self, flush: Flight) {
        self.deferred.add(flush, &mut self.in_flight);
    }

    /// Returns the next flush that counts.
    pub(crate) fn next_effective(&mut self) -> Option<Flight> {
        self.deferred.next(&self.in_flight)
    }

    /// Takes the flushes that succeeded and will never count.
    pub(crate) fn take_deferred(&mut self) -> impl Iterator<Item = Flight> + use<> {
        self.deferred.take_all()
    }
}
