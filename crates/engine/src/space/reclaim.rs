//! Eviction of copies for new data: blocks valid in several places use more space than they need, and a write
//! that finds no space has priority.
//!
//! A walk over all extents begins when no space is left: blocks valid in several places are dropped from all
//! but one, and blocks in other places of an extent with a whole place are written back to it. Pieces that
//! need space wait until some has been freed, or until a walk over all extents has found nothing; then they
//! are refused, and no new walk begins for a while.

use crate::Base;
use crate::core::Core;
use crate::request::Requests;
use crate::space::Space;
use weir_model::{ExtentKey, Nanos};

/// The maximum wait without any piece having got space.
const WAIT_MAX: Nanos = Nanos::secs(30);
/// The number of consecutive walks without more free space, although each dropped something, after which the
/// walks stop: a device whose flushes fail brings back the dropped blocks.
const FRUITLESS_WALKS_MAX: u32 = 3;

/// The state of the walk.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    /// Whether a piece needs space; the walk continues at `due`.
    pub(crate) active: bool,
    pub(crate) due: Nanos,
    /// The extent at which the walk continues; the first one at the beginning.
    pub(crate) cursor: ExtentKey,
    /// The start of the walk; the number of blocks dropped by then; and the number dropped when the waiting
    /// pieces last retried.
    pub(crate) began: Nanos,
    pub(crate) dropped_at_start: u64,
    pub(crate) dropped_at_retry: u64,
    /// Whether the walk was interrupted, so that extents already visited may have something new to drop.
    pub(crate) was_interrupted: bool,
    /// The deadline for write-backs in flight at the end of the walk.
    pub(crate) write_back_deadline: Option<Nanos>,
    /// The maximum of free blocks at the end of a walk since a piece last got space, and the number of walks
    /// without more.
    pub(crate) most_free: u64,
    pub(crate) fruitless_walks: u32,
    /// The time since which no piece that needed space has got any.
    pub(crate) waiting_since: Option<Nanos>,
    /// The earliest start of the next walk.
    pub(crate) not_before: Nanos,
}

impl Reclaim {
    /// Notes that a piece has got space.
    pub(crate) fn note_space(&mut self) {
        (self.most_free, self.fruitless_walks, self.waiting_since) = (0, 0, None);
    }
}

impl Space {
    /// Whether more space is free than after any walk before, or may still become free.
    pub(crate) fn was_fruitful(&mut self, core: &Core) -> bool {
        let spaces = core.map.devices().iter().map(|sb| core.map.space(sb.device));
        let blocks = u64::from(core.map.extent().blocks());
        let free = spaces.map(|space| u64::from(space.free()) * blocks + u64::from(space.free_slots())).sum();
        let reclaim = &mut self.reclaim;
        reclaim.fruitless_walks = if free > reclaim.most_free { 0 } else { reclaim.fruitless_walks + 1 };
        reclaim.most_free = reclaim.most_free.max(free);
        reclaim.fruitless_walks < FRUITLESS_WALKS_MAX
            && reclaim.waiting_since.is_none_or(|since| core.now < since + WAIT_MAX)
    }
}

impl Space {
    /// Interrupts the walk and makes the waiting pieces retry; the walk continues if the space does not
    /// suffice.
    pub(crate) fn interrupt_reclaim(&mut self, requests: &mut Requests) {
        self.reclaim.active = false;
        self.reclaim.was_interrupted = true;
        self.retry_waiting_space(requests);
    }
}

impl Base {
    /// Handles a write that has found no space. Returns whether it should wait for copies to be evicted.
    pub(crate) fn begin_reclaim(&mut self) -> bool {
        if self.space.reclaim.active {
            return true;
        }
        if self.core.now < self.space.reclaim.not_before || self.core.stopped_changes.is_some() {
            return false;
        }
        if self.space.reclaim.cursor == ExtentKey::default() {
            self.begin_walk();
        }
        self.space.reclaim.waiting_since.get_or_insert(self.core.now);
        self.space.reclaim.active = true;
        self.space.reclaim.due = self.core.now;
        self.space.reclaim.dropped_at_retry = self.space.dropped;
        true
    }

    pub(crate) fn begin_walk(&mut self) {
        let dropped = self.space.dropped;
        let reclaim = &mut self.space.reclaim;
        (reclaim.cursor, reclaim.began, reclaim.dropped_at_start) =
            (ExtentKey::default(), self.core.now, dropped);
        (reclaim.was_interrupted, reclaim.write_back_deadline) = (false, None);
    }
}
