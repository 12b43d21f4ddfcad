//! Space kept by WRITE_ZEROES with NO_HOLE: a guarantee to later writes.
//!
//! Once such a request is acknowledged, later writes to the extents it touched cannot fail for lack of space,
//! until a TRIM of a whole extent frees the space, or devices fail. A crash may undo the guarantee, as it may
//! undo the zeros.

use super::{Ask, Driver, Failure, Health, UnderWay};
use crate::Ticket;
use rustc_hash::FxHashMap;
use weir_model::{Bytes, ExtentSize, Op, RequestError};

/// An extent: the index of its volume, and its number.
type Extent = (usize, u64);

/// The guarantees.
#[derive(Default)]
pub(crate) struct Kept {
    /// Guaranteed extents: writes submitted after this ticket cannot lack space, and whether the guarantee
    /// survives a crash.
    promised: FxHashMap<Extent, (Ticket, bool)>,
    /// When space was last freed, or possibly freed: a request that does so was submitted or ended.
    given_up: FxHashMap<Extent, Ticket>,
    /// Requests in flight that free the space of these extents.
    giving_up: FxHashMap<Ticket, Vec<Extent>>,
    /// Requests in flight that keep space, and whether they guarantee anything.
    keeping: FxHashMap<Ticket, bool>,
}

/// The properties of a request's volume that matter for guarantees.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) extent: ExtentSize,
    /// Size of the volume.
    pub(crate) size: Bytes,
}

impl Shape {
    /// Returns the extents that a request touches, or, with `covered`, those that it covers.
    fn extents_of(self, ask: &Ask, covered: bool) -> impl Iterator<Item = Extent> + use<> {
        let (extent, size) = (self.extent.bytes().0, self.size.0);
        let (start, end, volume) = (ask.offset.0, ask.offset.0 + ask.len.0, ask.volume);
        let first = if covered { start.div_ceil(extent) } else { start / extent };
        // The last extent may be shorter.
        let last = if covered && end < size { end / extent } else { end.div_ceil(extent) };
        (first..last).map(move |index| (volume, index))
    }
}

impl Kept {
    /// Drops all guarantees, including those of requests in flight.
    pub(crate) fn forget_all(&mut self) {
        self.promised.clear();
        self.promise_nothing();
    }

    /// Drops the guarantees of a volume that was created anew.
    pub(crate) fn forget_volume(&mut self, volume: usize) {
        self.promised.retain(|extent, _| extent.0 != volume);
        self.giving_up.retain(|_, extents| extents.first().is_none_or(|extent| extent.0 != volume));
    }

    /// Drops the guarantees that are not durable.
    pub(crate) fn crash(&mut self) {
        self.promised.retain(|_, (_, durable)| *durable);
        self.given_up.clear();
        self.giving_up.clear();
        self.keeping.clear();
    }

    /// Reports whether a request in flight may guarantee space.
    pub(crate) fn is_keeping(&self) -> bool {
        self.keeping.values().any(|promises| *promises)
    }

    /// Makes requests in flight guarantee nothing. If the metadata area is full, zeros are written, and the
    /// kept space is not recorded.
    pub(crate) fn promise_nothing(&mut self) {
        self.keeping.values_mut().for_each(|promises| *promises = false);
    }

    /// Registers a submitted request.
    pub(crate) fn begun(&mut self, ask: &Ask, ticket: Ticket, shape: Shape) {
        match ask.op {
            Op::WriteZeroes { no_hole: true } => {
                self.keeping.insert(ticket, true);
            }
            Op::Trim | Op::WriteZeroes { no_hole: false } => {
                let extents: Vec<_> = shape.extents_of(ask, true).collect();
                self.give_up(&extents, ticket);
                self.giving_up.insert(ticket, extents);
            }
            _ => {}
        }
    }

    /// Registers the end of a request: it succeeded, failed, or will not be continued.
    pub(crate) fn ended(&mut self, ticket: Ticket, now: Ticket) {
        if let Some(extents) = self.giving_up.remove(&ticket) {
            self.give_up(&extents, now);
        }
        self.keeping.remove(&ticket);
    }

    /// Registers the guarantee of a successful request, before [`Self::ended`].
    pub(crate) fn succeeded(&mut self, ask: &Ask, ticket: Ticket, now: Ticket, shape: Shape) {
        if self.keeping.get(&ticket).is_some_and(|promises| *promises) {
            for extent in shape.extents_of(ask, false) {
                let is_given_up = self.giving_up.values().any(|extents| extents.contains(&extent));
                if !is_given_up && self.given_up.get(&extent).is_none_or(|at| *at < ticket) {
                    let known = self.promised.entry(extent).or_insert((now, ask.fua));
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
        let all = self.promised.iter_mut();
        let covered = all.filter(|(extent, (at, _))| extent.0 == volume && *at < ticket);
        covered.for_each(|(_, (_, durable))| *durable = true);
    }

    /// Reports whether a request cannot fail for lack of space.
    pub(crate) fn is_promised(&self, ask: &Ask, ticket: Ticket, shape: Shape) -> bool {
        let is_kept = |extent: Extent| self.promised.get(&extent).is_some_and(|(at, _)| *at < ticket);
        matches!(ask.op, Op::Write | Op::WriteZeroes { .. }) && shape.extents_of(ask, false).all(is_kept)
    }

    fn give_up(&mut self, extents: &[Extent], at: Ticket) {
        for extent in extents {
            self.promised.remove(extent);
            self.given_up.insert(*extent, at);
        }
    }
}

impl Driver {
    fn shape(&self, ask: &Ask) -> Shape {
        Shape { extent: self.setup.extent, size: self.volumes[ask.volume].spec.size }
    }

    /// Registers a submitted request.
    pub(super) fn note_keeping(&mut self, ask: &Ask, ticket: Ticket) {
        let shape = self.shape(ask);
        self.kept_space.begun(ask, ticket, shape);
    }

    /// Registers the end of a request: its guarantee, and the space it freed.
    pub(super) fn note_kept(&mut self, request: &UnderWay, succeeded: bool) {
        let UnderWay { ask, ticket, .. } = request;
        let (now, shape) = (self.oracle.latest(), self.shape(ask));
        if self.kept_space.is_keeping()
            && (self.health != Health::Whole || !self.engine.map().has_metadata_room())
        {
            self.kept_space.promise_nothing();
        }
        if succeeded {
            self.kept_space.succeeded(ask, *ticket, now, shape);
        }
        self.kept_space.ended(*ticket, now);
    }

    /// Checks that a change that failed for lack of space had no guarantee.
    pub(super) fn check_kept(&self, request: &UnderWay) -> Result<(), Failure> {
        let UnderWay { ask, ticket, .. } = request;
        let is_whole = self.health == Health::Whole && !self.deceived;
        if is_whole && self.kept_space.is_promised(ask, *ticket, self.shape(ask)) {
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
        kept: Kept,
    }

    impl Server {
        fn new() -> Self {
            Self { oracle: Oracle::new(&[Bytes(4 * EXTENT)]), kept: Kept::default() }
        }

        fn shape() -> Shape {
            Shape { extent: ExtentSize::new(Bytes(EXTENT)).expect("64 KiB"), size: Bytes(4 * EXTENT) }
        }

        fn begin(&mut self, op: Op, extents: u64) -> (Ask, Ticket) {
            let ask =
                Ask { volume: 0, op, offset: VolumeOffset(0), len: Bytes(extents * EXTENT), fua: false };
            let place = Place { volume: 0, offset: ask.offset, len: ask.len };
            let ticket = match op {
                Op::Flush => self.oracle.flush(0),
                _ => self.oracle.change(place, Change::Zero, false),
            };
            self.kept.begun(&ask, ticket, Self::shape());
            (ask, ticket)
        }

        fn end(&mut self, (ask, ticket): (Ask, Ticket)) {
            self.oracle.changed(ticket);
            let now = self.oracle.latest();
            self.kept.succeeded(&ask, ticket, now, Self::shape());
            self.kept.ended(ticket, now);
        }

        fn is_promised(&mut self, extents: u64) -> bool {
            let (ask, ticket) = self.begin(Op::Write, extents);
            self.kept.is_promised(&ask, ticket, Self::shape())
        }
    }

    const KEEP: Op = Op::WriteZeroes { no_hole: true };

    #[test]
    fn what_is_kept_is_promised_to_later_writes_until_it_is_given_up() {
        let mut server = Server::new();
        let keep = server.begin(KEEP, 2);
        let (early, ticket) = server.begin(Op::Write, 1);
        server.end(keep);
        assert!(!server.kept.is_promised(&early, ticket, Server::shape()), "it was submitted before");
        assert!(server.is_promised(2) && !server.is_promised(3));
        let trim = server.begin(Op::Trim, 1);
        assert!(!server.is_promised(1) && !server.is_promised(2));
        server.end(trim);
        assert!(!server.is_promised(1));
    }

    #[test]
    fn a_trim_in_flight_may_come_after_what_keeps_space() {
        let mut server = Server::new();
        let trim = server.begin(Op::Trim, 1);
        let keep = server.begin(KEEP, 1);
        server.end(keep);
        assert!(!server.is_promised(1), "the trim may still come");
        server.end(trim);
        assert!(!server.is_promised(1), "it may have come last");
        let again = server.begin(KEEP, 1);
        server.end(again);
        assert!(server.is_promised(1));
    }

    #[test]
    fn a_crash_undoes_what_no_flush_covered() {
        let mut server = Server::new();
        let keep = server.begin(KEEP, 1);
        server.end(keep);
        server.kept.crash();
        assert!(!server.is_promised(1));
        let keep = server.begin(KEEP, 1);
        server.end(keep);
        let flush = server.begin(Op::Flush, 0);
        server.end(flush);
        server.kept.crash();
        assert!(server.is_promised(1));
    }
}
