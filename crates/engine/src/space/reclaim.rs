//! Copies give way to new data: what is in several places takes more space than it needs, and a write that
//! finds none has a better claim to it.
//!
//! A walk over all extents, begun when there is no space left: of blocks that several places hold all but one
//! give them up, and what is in other places besides a whole one is brought home to it. Who needs space waits
//! until something has come back, or a walk over all of them has found nothing; then it is refused, and for a
//! while nobody looks again.

use crate::Engine;
use crate::core::Core;
use crate::lookup;
use crate::request::Requests;
use crate::space::Space;
use crate::task::Task;
use crate::walk::{self, after};
use weir_map::{Place, Record};
use weir_model::{BlockRange, ExtentKey, Memory, Nanos, PlaceId, PlaceKind};
use weir_policy::placement::Action;

/// Extents looked at at a time.
const LOOKS: usize = 1024;
/// Extents being brought home at a time; more are left for the next walk.
const MOVES: usize = 32;
/// Space given up, in extents, before those who wait try again: each time takes a commit.
const ENOUGH: u64 = 64;
/// How long the end of the walk waits, at most, for what is being brought home.
const PATIENCE: Nanos = Nanos::secs(1);
/// How often the end of the walk looks whether that has ended.
const SOON: Nanos = Nanos::millis(10);
/// Nobody waits longer than this without any having got space.
const WAIT: Nanos = Nanos::secs(30);
/// Walks in a row after which there was no more space than before, though each gave something up: a device
/// whose flushes fail brings back what was given up.
const FRUITLESS: u32 = 3;
/// After a walk that found nothing the next one begins this much later at the earliest.
const LATER: Nanos = Nanos::secs(10);
/// The next one begins no earlier than this many times as long as the fruitless one took.
const REST: u64 = 10;

/// The walk.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    /// Somebody needs space: it goes on when that is due.
    active: bool,
    due: Nanos,
    /// Where it goes on: at the first extent, at the beginning.
    at: ExtentKey,
    /// When it began, and how many blocks had been dropped then, and when those who wait last tried again.
    began: Nanos,
    dropped: u64,
    given_up: u64,
    /// It rested on the way, and there may be something new where it was before.
    rested: bool,
    /// How long its end waits for what is being brought home.
    until: Option<Nanos>,
    /// The most blocks that were free at the end of a walk since somebody last got space, and how many walks
    /// have ended with no more.
    free: u64,
    fruitless: u32,
    /// Since when nobody who needed space has got some.
    since: Option<Nanos>,
    /// None begins before.
    not_before: Nanos,
}

impl Reclaim {
    /// Somebody has got space.
    pub(crate) fn note_room(&mut self) {
        (self.free, self.fruitless, self.since) = (0, 0, None);
    }
}

impl Task for Reclaim {
    /// When the walk goes on.
    fn due(engine: &Engine) -> Option<Nanos> {
        engine.space.reclaim.active.then_some(engine.space.reclaim.due)
    }

    /// Goes on with the walk.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if <Self as Task>::due(engine).is_none_or(|due| due > engine.core.now) {
            return;
        }
        if !engine.space.state.is_waited_for() || engine.core.stopped_changes.is_some() {
            return engine.space.rest_reclaim(&mut engine.requests);
        }
        let enough = engine.space.reclaim.given_up + ENOUGH * u64::from(engine.core.map.extent().blocks());
        for _ in 0..LOOKS {
            let Some(key) =
                walk::next_extent(&engine.core.map, engine.space.reclaim.at, |volume| volume.copies == 1)
            else {
                return engine.end_walk();
            };
            engine.bring_together(key);
            engine.space.reclaim.at = after(key);
            if engine.mover_status().dropped >= enough {
                return engine.space.rest_reclaim(&mut engine.requests);
            }
        }
    }
}

impl Space {
    /// Whether there is more space than after any walk before, or there may be yet.
    fn was_fruitful(&mut self, core: &Core) -> bool {
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
    fn rest_reclaim(&mut self, requests: &mut Requests) {
        self.reclaim.active = false;
        self.reclaim.rested = true;
        self.retry_waiting_space(requests);
    }
}

/// The whole place that is to hold all: of those that hold most, the one that answers reads soonest.
fn best_home<'a>(core: &Core, record: &'a Record) -> Option<&'a Place> {
    let is_home = |p: &&Place| p.at.id().kind == PlaceKind::Whole && core.is_usable(p.device());
    record.places.iter().filter(is_home).max_by_key(|p| {
        let response = core.views.of(p.device()).reads.response.get();
        (p.valid.count(), std::cmp::Reverse((response, p.device())))
    })
}

impl Engine {
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
        self.space.reclaim.given_up = self.mover_status().dropped;
        true
    }

    fn begin_walk(&mut self) {
        let dropped = self.mover_status().dropped;
        let reclaim = &mut self.space.reclaim;
        (reclaim.at, reclaim.began, reclaim.dropped) = (ExtentKey::default(), self.core.now, dropped);
        (reclaim.rested, reclaim.until) = (false, None);
    }

    /// All extents have been looked at: those who wait try again. Had nothing been given up they are refused.
    fn end_walk(&mut self) {
        let until = *self.space.reclaim.until.get_or_insert(self.core.now + PATIENCE);
        if self.mover.mover_load() > 0 && self.core.now < until {
            self.space.reclaim.due = self.core.now + SOON;
            return;
        }
        let took = self.core.now.since(self.space.reclaim.began);
        let rested = self.space.reclaim.rested;
        let found = self.mover_status().dropped > self.space.reclaim.dropped;
        self.begin_walk();
        if !found && rested {
            return;
        }
        if !found || !self.space.was_fruitful(&self.core) {
            self.space.reclaim.note_room();
            self.space.reclaim.not_before = self.core.now + LATER.max(Nanos(took.0.saturating_mul(REST)));
        }
        self.space.reclaim.active = false;
        self.space.retry_waiting_space(&mut self.requests);
    }

    /// What several places hold is given up by all but one of them, or all is brought home to one. Not while
    /// one of them is lost: what it has may be all there is, and its space is of no use.
    fn bring_together(&mut self, key: ExtentKey) {
        let Some(record) =
            lookup::record(&self.core.map, key).filter(|r| r.copies == 1 && r.places.len() > 1)
        else {
            return;
        };
        let Some(home) = best_home(&self.core, &record) else { return };
        let blocks = BlockRange { first: 0, count: self.core.map.extent().blocks() };
        let others = || record.places.iter().filter(|p| p.at.id() != home.at.id());
        let is_copy = |place: &Place| {
            let mut missing = place.valid.clone();
            missing.subtract(&home.valid);
            missing.is_empty()
        };
        if others().any(|place| !self.core.is_usable(place.device())) {
            return;
        }
        if others().all(is_copy) {
            let names: Vec<PlaceId> = others().map(|place| place.at.id()).collect();
            names.into_iter().for_each(|from| {
                self.mover.drop_from(
                    &mut self.core,
                    &mut self.requests,
                    &mut self.durability,
                    key,
                    blocks,
                    from,
                );
            });
        } else if self.mover.mover_load() < MOVES {
            self.request_action(Action::Move { key, blocks, to: home.at.id() });
        }
    }
}
