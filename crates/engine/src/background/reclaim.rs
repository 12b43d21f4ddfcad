//! The walk of [`crate::space::reclaim`].

use crate::Engine;
use crate::core::Core;
use crate::lookup;
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
/// After a walk that found nothing the next one begins this much later at the earliest.
const LATER: Nanos = Nanos::secs(10);
/// The next one begins no earlier than this many times as long as the fruitless one took.
const REST: u64 = 10;

/// Goes on with the walk.
#[derive(Debug)]
pub(crate) struct Walk;

impl Task for Walk {
    type On = Engine;

    /// When the walk goes on.
    fn due(engine: &Engine) -> Option<Nanos> {
        engine.data.base.space.reclaim.active.then_some(engine.data.base.space.reclaim.due)
    }

    /// Goes on with the walk.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if <Self as Task>::due(engine).is_none_or(|due| due > engine.data.base.core.now) {
            return;
        }
        if !engine.data.base.space.state.is_waited_for() || engine.data.base.core.stopped_changes.is_some() {
            return engine.data.base.space.rest_reclaim(&mut engine.data.base.requests);
        }
        let enough = engine.data.base.space.reclaim.given_up
            + ENOUGH * u64::from(engine.data.base.core.map.extent().blocks());
        for _ in 0..LOOKS {
            let Some(key) =
                walk::next_extent(&engine.data.base.core.map, engine.data.base.space.reclaim.at, |volume| {
                    volume.copies == 1
                })
            else {
                return engine.end_walk();
            };
            engine.bring_together(key);
            engine.data.base.space.reclaim.at = after(key);
            if engine.data.base.space.dropped >= enough {
                return engine.data.base.space.rest_reclaim(&mut engine.data.base.requests);
            }
        }
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
    /// All extents have been looked at: those who wait try again. Had nothing been given up they are refused.
    fn end_walk(&mut self) {
        let until = *self.data.base.space.reclaim.until.get_or_insert(self.data.base.core.now + PATIENCE);
        if self.data.mover_load() > 0 && self.data.base.core.now < until {
            self.data.base.space.reclaim.due = self.data.base.core.now + SOON;
            return;
        }
        let took = self.data.base.core.now.since(self.data.base.space.reclaim.began);
        let rested = self.data.base.space.reclaim.rested;
        let found = self.data.base.space.dropped > self.data.base.space.reclaim.dropped;
        self.data.base.begin_walk();
        if !found && rested {
            return;
        }
        if !found || !self.data.base.space.was_fruitful(&self.data.base.core) {
            self.data.base.space.reclaim.note_room();
            self.data.base.space.reclaim.not_before =
                self.data.base.core.now + LATER.max(Nanos(took.0.saturating_mul(REST)));
        }
        self.data.base.space.reclaim.active = false;
        self.data.base.space.retry_waiting_space(&mut self.data.base.requests);
    }

    /// What several places hold is given up by all but one of them, or all is brought home to one. Not while
    /// one of them is lost: what it has may be all there is, and its space is of no use.
    fn bring_together(&mut self, key: ExtentKey) {
        let Some(record) =
            lookup::record(&self.data.base.core.map, key).filter(|r| r.copies == 1 && r.places.len() > 1)
        else {
            return;
        };
        let Some(home) = best_home(&self.data.base.core, &record) else { return };
        let blocks = BlockRange { first: 0, count: self.data.base.core.map.extent().blocks() };
        let others = || record.places.iter().filter(|p| p.at.id() != home.at.id());
        let is_copy = |place: &Place| {
            let mut missing = place.valid.clone();
            missing.subtract(&home.valid);
            missing.is_empty()
        };
        if others().any(|place| !self.data.base.core.is_usable(place.device())) {
            return;
        }
        if others().all(is_copy) {
            let names: Vec<PlaceId> = others().map(|place| place.at.id()).collect();
            names.into_iter().for_each(|from| {
                self.data.drop_from(key, blocks, from);
            });
        } else if self.data.mover_load() < MOVES {
            self.data.base.host.actions.push(Action::Move { key, blocks, to: home.at.id() });
        }
    }
}
