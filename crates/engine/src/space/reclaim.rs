//! Copies give way to new data: what is in several places takes more space than it needs, and a write that
//! finds none has a better claim to it.
//!
//! A walk over all extents, begun when there is no space left: of blocks that several places hold all but one
//! give them up, and what is in other places besides a whole one is brought home to it. Who needs space waits
//! until something has come back, or a walk over all of them has found nothing; then it is refused, and for a
//! while nobody looks again.

use crate::Base;
use crate::core::Core;
use crate::request::Requests;
use crate::space::Space;
use weir_model::{ExtentKey, Nanos};

/// Nobody waits longer than this without any having got space.
const WAIT: Nanos = Nanos::secs(30);
/// Walks in a row after which there was no more space than before, though each gave something up: a device
/// whose flushes fail brings back what was given up.
const FRUITLESS: u32 = 3;

/// The walk.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    /// Somebody needs space: it goes on when that is due.
    pub(crate) active: bool,
    pub(crate) due: Nanos,
    /// Where it goes on: at the first extent, at the beginning.
    pub(crate) at: ExtentKey,
    /// When it began, and how many blocks had been dropped then, and when those who wait last tried again.
    pub(crate) began: Nanos,
    pub(crate) dropped: u64,
    pub(crate) given_up: u64,
    /// It rested on the way, and there may be something new where it was before.
    pub(crate) rested: bool,
    /// How long its end waits for what is being brought home.
    pub(crate) until: Option<Nanos>,
    /// The most blocks that were free at the end of a walk since somebody last got space, and how many walks
    /// have ended with no more.
    pub(crate) free: u64,
    pub(crate) fruitless: u32,
    /// Since when nobody who needed space has got some.
    pub(crate) since: Option<Nanos>,
    /// None begins before.
    pub(crate) not_before: Nanos,
}

impl Reclaim {
    /// Somebody has got space.
    pub(crate) fn note_room(&mut self) {
        (self.free, self.fruitless, self.since) = (0, 0, None);
    }
}

impl Space {
    /// Whether there is more space than after any walk before, or there may be yet.
    pub(crate) fn was_fruitful(&mut self, core: &Core) -> bool {
        let spaces = core.map.devices().iter().map(|sb| core.map.space(sb.device));
        let blocks = u64::from(core.map.extent().blocks());
        let free = spaces.map(|space| u64::from(space.free()) * blocks + u64::from(space.free_slots())).sum();
        let reclaim = &mut self.reclaim;
        reclaim.fruitless = if free > reclaim.free { 0 } else { reclaim.fruitless + 1 };
        reclaim.free = reclaim.free.max(free);
        reclaim.fruitless < FRUITLESS && reclaim.since.is_none_or(|since| core.now < since + WAIT)
    }
}

impl Space {
    /// Those who wait try again; the walk goes on if that was not enough.
    pub(crate) fn rest_reclaim(&mut self, requests: &mut Requests) {
        self.reclaim.active = false;
        self.reclaim.rested = true;
        self.retry_waiting_space(requests);
    }
}

impl Base {
    /// A write has found no space. Whether copies may give way to it, and it is to wait for that.
    pub(crate) fn may_reclaim(&mut self) -> bool {
        if self.space.reclaim.active {
            return true;
        }
        if self.core.now < self.space.reclaim.not_before || self.core.stopped_changes.is_some() {
            return false;
        }
        if self.space.reclaim.at == ExtentKey::default() {
            self.begin_walk();
        }
        self.space.reclaim.since.get_or_insert(self.core.now);
        self.space.reclaim.active = true;
        self.space.reclaim.due = self.core.now;
        self.space.reclaim.given_up = self.space.dropped;
        true
    }

    pub(crate) fn begin_walk(&mut self) {
        let dropped = self.space.dropped;
        let reclaim = &mut self.space.reclaim;
        (reclaim.at, reclaim.began, reclaim.dropped) = (ExtentKey::default(), self.core.now, dropped);
        (reclaim.rested, reclaim.until) = (false, None);
    }
}
