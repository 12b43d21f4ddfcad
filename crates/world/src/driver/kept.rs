//! Space that WRITE_ZEROES with NO_HOLE keeps: a promise to later writes.
//!
//! Once such a request is acknowledged, a write that is submitted afterwards to the extents it touched
//! lacks no space, until a TRIM of a whole extent gives that space up, or devices fail. A crash may undo
//! the promise as it may undo the zeros.

use super::{Ask, Driver, Failure, Health, UnderWay};
use crate::Ticket;
use rustc_hash::FxHashMap;
use weir_model::{Op, RequestError};

/// An extent of a volume, by the volume's position and its own number.
type Extent = (usize, u64);

/// What was promised.
#[derive(Default)]
pub(super) struct Kept {
    /// Writes submitted later than this lack no space, and whether a crash does not undo that.
    promised: FxHashMap<Extent, (Ticket, bool)>,
    /// When space was given up last, or perhaps was: a request that does it was submitted or ended.
    given_up: FxHashMap<Extent, Ticket>,
}

impl Kept {
    /// Nothing is promised any more.
    pub(super) fn forget_all(&mut self) {
        self.promised.clear();
    }

    /// A volume is a new one.
    pub(super) fn forget_volume(&mut self, volume: usize) {
        self.promised.retain(|extent, _| extent.0 != volume);
    }

    /// What was not durable may be gone.
    pub(super) fn crash(&mut self) {
        self.promised.retain(|_, (_, durable)| *durable);
        self.given_up.clear();
    }
}

impl Driver {
    /// The extents that a request touches, or those that it covers.
    fn extents_of(&self, ask: &Ask, covered: bool) -> impl Iterator<Item = Extent> + use<> {
        let (extent, size) = (self.setup.extent.bytes().0, self.volumes[ask.volume].spec.size.0);
        let (start, end, volume) = (ask.offset.0, ask.offset.0 + ask.len.0, ask.volume);
        let first = if covered { start.div_ceil(extent) } else { start / extent };
        // The last one may be shorter.
        let last = if covered && end < size { end / extent } else { end.div_ceil(extent) };
        (first..last).map(move |index| (volume, index))
    }

    /// A request that may give space up is submitted, or has ended.
    pub(super) fn note_given_up(&mut self, ask: &Ask) {
        if matches!(ask.op, Op::Trim | Op::WriteZeroes { no_hole: false }) {
            let now = self.oracle.latest();
            for extent in self.extents_of(ask, true) {
                self.kept_space.promised.remove(&extent);
                self.kept_space.given_up.insert(extent, now);
            }
        }
    }

    /// A request succeeded: what it promises of space.
    pub(super) fn note_kept(&mut self, request: &UnderWay) {
        let UnderWay { ask, ticket, .. } = request;
        let now = self.oracle.latest();
        match ask.op {
            // Where the metadata area is full, zeros are written, and that space is to be kept is not
            // remembered.
            Op::WriteZeroes { no_hole: true }
                if self.health == Health::Whole && self.engine.map().has_metadata_room() =>
            {
                for extent in self.extents_of(ask, false) {
                    if self.kept_space.given_up.get(&extent).is_none_or(|at| at < ticket) {
                        let known = self.kept_space.promised.entry(extent).or_insert((now, ask.fua));
                        known.1 |= ask.fua;
                    }
                }
            }
            Op::Flush => {
                let all = self.kept_space.promised.iter_mut();
                let covered = all.filter(|(extent, (at, _))| extent.0 == ask.volume && at < ticket);
                covered.for_each(|(_, (_, durable))| *durable = true);
            }
            _ => self.note_given_up(ask),
        }
    }

    /// A change was told that there is no space: not where it was kept.
    pub(super) fn check_kept(&self, request: &UnderWay) -> Result<(), Failure> {
        let UnderWay { ask, ticket, .. } = request;
        let is_kept =
            |extent: Extent| self.kept_space.promised.get(&extent).is_some_and(|(at, _)| at < ticket);
        let writes = matches!(ask.op, Op::Write | Op::WriteZeroes { .. });
        if writes
            && self.health == Health::Whole
            && !self.deceived
            && self.extents_of(ask, false).all(is_kept)
        {
            return Err(Failure::Refused { ask: *ask, error: RequestError::NoSpace });
        }
        Ok(())
    }
}
