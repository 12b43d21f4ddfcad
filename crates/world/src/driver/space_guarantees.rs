//! Space kept by WRITE_ZEROES with NO_HOLE: a guarantee to later writes.
//!
//! Once such a request is acknowledged, later writes to the extents it touched cannot fail for lack of space,
//! until a TRIM of a whole extent frees the space, or devices fail. A crash may undo the guarantee, as it may
//! undo the zeros.

use super::{Driver, Failure, Health, InFlightRequest, RequestSpec};
use crate::Ticket;
use rustc_hash::FxHashMap;
use weir_model::{Bytes, ExtentSize, Op, RequestError};

/// An extent: the index of its volume, and its number.
type Extent = (usize, u64);

/// The guarantees.
#[derive(Default)]
pub(crate) struct SpaceGuarantees {
    /// Guaranteed extents: writes submitted after this ticket cannot lack space, and whether the guarantee
    /// survives a crash.
    guaranteed: FxHashMap<Extent, (Ticket, bool)>,
    /// When space was last freed, or possibly freed: a request that does so was submitted or ended.
    freed: FxHashMap<Extent, Ticket>,
    /// Requests in flight that free the space of these extents.
    freeing: FxHashMap<Ticket, Vec<Extent>>,
    /// Requests in flight that keep space, and whether they guarantee anything.
    reserving: FxHashMap<Ticket, bool>,
}

/// The properties of a request's volume that matter for guarantees.
#[derive(Clone, Copy)]
pub(crate) struct VolumeShape {
    pub(crate) extent: ExtentSize,
    /// Size of the volume.
    pub(crate) size: Bytes,
}

impl VolumeShape {
    /// Returns the extents that a request touches, or, with `covered`, those that it covers.
    fn extents_of(self, ask: &RequestSpec, covered: bool) -> impl Iterator<Item = Extent> + use<> {
        let (extent, size) = (self.extent.bytes().0, self.size.0);
        let (start, end, volume) = (ask.offset.0, ask.offset.0 + ask.len.0, ask.volume);
        let first = if covered { start.div_ceil(extent) } else { start / extent };
        // The last extent may be shorter.
        let last = if covered && end < size { end / extent } else { end.div_ceil(extent) };
        (first..last).map(move |index| (volume, index))
    }
}

impl SpaceGuarantees {
    /// Drops all guarantees, including those of requests in flight.
    pub(crate) fn forget_all(&mut self) {
        self.guaranteed.clear();
        self.void_pending_guarantees();
    }

    /// Drops the guarantees of a volume that was created anew.
    pub(crate) fn forget_volume(&mut self, volume: usize) {
        self.guaranteed.retain(|extent, _| extent.0 != volume);
        self.freeing.retain(|_, extents| extents.first().is_none_or(|extent| extent.0 != volume));
    }

    /// Drops the guarantees that are not durable.
    pub(crate) fn crash(&mut self) {
        self.guaranteed.retain(|_, (_, durable)| *durable);
        self.freed.clear();
        self.freeing.clear();
        self.reserving.clear();
    }

    /// Reports whether a request in flight may guarantee space.
    pub(crate) fn is_keeping(&self) -> bool {
        self.reserving.values().any(|promises| *promises)
    }

    /// Makes requests in flight guarantee nothing. If the metadata area is full, zeros are written, and the
    /// kept space is not recorded.
    pub(crate) fn void_pending_guarantees(&mut self) {
        self.reserving.values_mut().for_each(|promises| *promises = false);
    }

    /// Registers a submitted request.
    pub(crate) fn register_request(&mut self, ask: &RequestSpec, ticket: Ticket, shape: VolumeShape) {
        match ask.op {
            Op::WriteZeroes { no_hole: true } => {
                self.reserving.insert(ticket, true);
            }
            Op::Trim | Op::WriteZeroes { no_hole: false } => {
                let extents: Vec<_> = shape.extents_of(ask, true).collect();
                self.mark_freed(&extents, ticket);
                self.freeing.insert(ticket, extents);
            }
            _ => {}
        }
    }

    /// Registers the end of a request: it succeeded, failed, or will not be continued.
    pub(crate) fn register_end(&mut self, ticket: Ticket, now: Ticket) {
        if let Some(extents) = self.freeing.remove(&ticket) {
            self.mark_freed(&extents, now);
        }
        self.reserving.remove(&ticket);
    }

    /// Registers the guarantee of a successful request, before [`Self::register_end`].
    pub(crate) fn succeeded(&mut self, ask: &RequestSpec, ticket: Ticket, now: Ticket, shape: VolumeShape) {
        if self.reserving.get(&ticket).is_some_and(|promises| *promises) {
            for extent in shape.extents_of(ask, false) {
                let is_given_up = self.freeing.values().any(|extents| extents.contains(&extent));
                if !is_given_up && self.freed.get(&extent).is_none_or(|at| *at < ticket) {
                    let known = self.guaranteed.entry(extent).or_insert((now, ask.fua));
                    known.1 |= ask.fua;
                }
            }
        }
        if ask.op == Op::Flush {
            self.flushed(ask.volume, ticket);
        }
    }

    /// Registers a successful flush that was submitted as this ticket.
    pub(crate) fn flushed(&mut self, volume: usize, ticket: Ticket) {
        let all = self.guaranteed.iter_mut();
        let covered = all.filter(|(extent, (at, _))| extent.0 == volume && *at < ticket);
        covered.for_each(|(_, (_, durable))| *durable = true);
    }

    /// Reports whether a request cannot fail for lack of space.
    pub(crate) fn is_guaranteed(&self, ask: &RequestSpec, ticket: Ticket, shape: VolumeShape) -> bool {
        let is_kept = |extent: Extent| self.guaranteed.get(&extent).is_some_and(|(at, _)| *at < ticket);
        matches!(ask.op, Op::Write | Op::WriteZeroes { .. }) && shape.extents_of(ask, false).all(is_kept)
    }

    fn mark_freed(&mut self, extents: &[Extent], at: Ticket) {
        for extent in extents {
            self.guaranteed.remove(extent);
            self.freed.insert(*extent, at);
        }
    }
}

impl Driver {
    fn shape(&self, ask: &RequestSpec) -> VolumeShape {
        VolumeShape { extent: self.setup.extent, size: self.volumes[ask.volume].spec.size }
    }

    /// Registers a submitted request.
    pub(super) fn register_reservation(&mut self, ask: &RequestSpec, ticket: Ticket) {
        let shape = self.shape(ask);
        self.space_guarantees.register_request(ask, ticket, shape);
    }

    /// Registers the end of a request: its guarantee, and the space it freed.
    pub(super) fn register_request_end(&mut self, request: &InFlightRequest, succeeded: bool) {
        let InFlightRequest { ask, ticket, .. } = request;
        let (now, shape) = (self.oracle.latest(), self.shape(ask));
        if self.space_guarantees.is_keeping()
            && (self.health != Health::Healthy || !self.engine.map().has_metadata_space())
        {
            self.space_guarantees.void_pending_guarantees();
        }
        if succeeded {
            self.space_guarantees.succeeded(ask, *ticket, now, shape);
        }
        self.space_guarantees.register_end(*ticket, now);
    }

    /// Checks that a change that failed for lack of space had no guarantee.
    pub(super) fn check_guarantee(&self, request: &InFlightRequest) -> Result<(), Failure> {
        let InFlightRequest { ask, ticket, .. } = request;
        let is_whole = self.health == Health::Healthy && !self.had_silent_failure;
        if is_whole && self.space_guarantees.is_guaranteed(ask, *ticket, self.shape(ask)) {
            return Err(Failure::Refused { ask: *ask, error: RequestError::NoSpace });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Oracle, Place};
    use weir_model::VolumeOffset;

    const EXTENT: u64 = 64 << 10;

    struct Server {
        oracle: Oracle,
        guarantees: SpaceGuarantees,
    }

    impl Server {
        fn new() -> Self {
            Self { oracle: Oracle::new(&[Bytes(4 * EXTENT)]), guarantees: SpaceGuarantees::default() }
        }

        fn shape() -> VolumeShape {
            VolumeShape { extent: ExtentSize::new(Bytes(EXTENT)).expect("64 KiB"), size: Bytes(4 * EXTENT) }
        }

        fn begin(&mut self, op: Op, extents: u64) -> (RequestSpec, Ticket) {
            let ask = RequestSpec {
                volume: 0,
                op,
                offset: VolumeOffset(0),
                len: Bytes(extents * EXTENT),
                fua: false,
            };
            let place = Place { volume: 0, offset: ask.offset, len: ask.len };
            let ticket = match op {
                Op::Flush => self.oracle.flush(0),
                _ => self.oracle.change(place, Change::Zero, false),
            };
            self.guarantees.register_request(&ask, ticket, Self::shape());
            (ask, ticket)
        }

        fn end(&mut self, (ask, ticket): (RequestSpec, Ticket)) {
            self.oracle.changed(ticket);
            let now = self.oracle.latest();
            self.guarantees.succeeded(&ask, ticket, now, Self::shape());
            self.guarantees.register_end(ticket, now);
        }

        fn is_guaranteed(&mut self, extents: u64) -> bool {
            let (ask, ticket) = self.begin(Op::Write, extents);
            self.guarantees.is_guaranteed(&ask, ticket, Self::shape())
        }
    }

    const KEEP: Op = Op::WriteZeroes { no_hole: true };

    #[test]
    fn reserved_space_is_guaranteed_until_freed() {
        let mut server = Server::new();
        let keep = server.begin(KEEP, 2);
        let (early, ticket) = server.begin(Op::Write, 1);
        server.end(keep);
        assert!(!server.guarantees.is_guaranteed(&early, ticket, Server::shape()), "it was submitted before");
        assert!(server.is_guaranteed(2) && !server.is_guaranteed(3));
        let trim = server.begin(Op::Trim, 1);
        assert!(!server.is_guaranteed(1) && !server.is_guaranteed(2));
        server.end(trim);
        assert!(!server.is_guaranteed(1));
    }

    #[test]
    fn trim_in_flight_voids_guarantee() {
        let mut server = Server::new();
        let trim = server.begin(Op::Trim, 1);
        let keep = server.begin(KEEP, 1);
        server.end(keep);
        assert!(!server.is_guaranteed(1), "the trim may still come");
        server.end(trim);
        assert!(!server.is_guaranteed(1), "it may have come last");
        let again = server.begin(KEEP, 1);
        server.end(again);
        assert!(server.is_guaranteed(1));
    }

    #[test]
    fn crash_drops_unflushed_guarantees() {
        let mut server = Server::new();
        let keep = server.begin(KEEP, 1);
        server.end(keep);
        server.guarantees.crash();
        assert!(!server.is_guaranteed(1));
        let keep = server.begin(KEEP, 1);
        server.end(keep);
        let flush = server.begin(Op::Flush, 0);
        server.end(flush);
        server.guarantees.crash();
        assert!(server.is_guaranteed(1));
    }
}
