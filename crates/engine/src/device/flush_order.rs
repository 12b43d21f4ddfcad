//! When a flush counts.
//!
//! Operating system and device tell of a lost write once: to the flush or durable write that finds out
//! first. Another flush in flight at the same time, whoever asked for it, may succeed and mean nothing.
//! So one that ended well waits until every flush and durable write of its device that had begun by then
//! has ended, too. If one of them fails, so has the flush. Flushes and durable writes are *promises* here.

use crate::device::outstanding::{Behind, Outstanding};
use crate::flight::Flight;

/// Flushes and durable writes of a device.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    in_flight: Outstanding,
    /// Flushes that ended well, and the promises that must have ended before they count.
    deferred: Behind<Flight>,
}

impl Promises {
    /// A flush or durable write begins; the number goes to [`Self::end`].
    #[inline]
    pub(crate) fn begin(&mut self) -> u64 {
        self.in_flight.begin()
    }

    /// A flush or durable write ended, well or not.
    #[inline]
    pub(crate) fn end(&mut self, promise: u64) {
        self.in_flight.end(promise);
    }

    /// A flush ended well: it counts once all promises begun by now have ended.
    pub(crate) fn defer(&mut self, flush: Flight) {
        self.deferred.add(flush, &mut self.in_flight);
    }

    /// The next flush that counts.
    pub(crate) fn next_counting(&mut self) -> Option<Flight> {
        self.deferred.next(&self.in_flight)
    }

    /// Flushes that ended well and will never count.
    pub(crate) fn take_deferred(&mut self) -> impl Iterator<Item = Flight> + use<> {
        self.deferred.take_all()
    }
}
