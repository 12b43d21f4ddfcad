//! The background walk that evicts copies for new data ([`crate::space::reclaim`]).

use crate::DataPath;
use crate::background::BackgroundTask;
use crate::core::Core;
use crate::lookup;
use crate::walk::{self, next_key};
use weir_map::{Place, Record};
use weir_model::{BlockRange, ExtentKey, Memory, Nanos, PlaceId, PlaceKind};
use weir_policy::placement::Action;

/// The number of extents examined per step.
const EXTENTS_PER_STEP: usize = 1024;
/// The maximum number of write-backs in flight; more are left to the next walk.
const WRITE_BACKS_MAX: usize = 32;
/// The space freed, in extents, before the waiting pieces retry: each retry takes a commit.
const RETRY_EXTENTS: u64 = 64;
/// The maximum time that the end of the walk waits for write-backs in flight.
const WRITE_BACK_TIMEOUT: Nanos = Nanos::secs(1);
/// The interval at which the end of the walk checks for them.
const POLL_INTERVAL: Nanos = Nanos::millis(10);
/// The minimum time between a fruitless walk and the next one.
const WALK_INTERVAL_MIN: Nanos = Nanos::secs(10);
/// The minimum time before the next walk, as a multiple of the duration of the fruitless one.
const WALK_INTERVAL_FACTOR: u64 = 10;

/// The task that continues the walk.
#[derive(Debug, Default)]
pub(crate) struct ReclaimWalk;

impl BackgroundTask for ReclaimWalk {
    /// Returns when the walk continues.
    fn due(&self, data: &DataPath) -> Option<Nanos> {
        data.base.space.reclaim.active.then_some(data.base.space.reclaim.due)
    }

    /// Continues the walk.
    fn run<M: Memory>(&mut self, data: &mut DataPath, _: &mut M) {
        if self.due(data).is_none_or(|due| due > data.base.core.now) {
            return;
        }
        if !data.base.space.state.has_waiters() || data.base.core.stopped_changes.is_some() {
            return data.base.space.interrupt_reclaim(&mut data.base.requests);
        }
        let enough = data.base.space.reclaim.dropped_at_retry
            + RETRY_EXTENTS * u64::from(data.base.core.map.extent().blocks());
        for _ in 0..EXTENTS_PER_STEP {
            let Some(key) =
                walk::next_extent(&data.base.core.map, data.base.space.reclaim.cursor, |volume| {
                    volume.copies == 1
                })
            else {
                return end_walk(data);
            };
            reclaim_extent(data, key);
            data.base.space.reclaim.cursor = next_key(key);
            if data.base.space.dropped >= enough {
                return data.base.space.interrupt_reclaim(&mut data.base.requests);
            }
        }
    }
}

/// Returns the whole place to gather the extent in: of those with the most valid blocks, the one that answers
/// reads soonest.
fn best_home<'a>(core: &Core, record: &'a Record) -> Option<&'a Place> {
    let is_home = |p: &&Place| p.at.id().kind == PlaceKind::Whole && core.is_usable(p.device());
    record.places.iter().filter(is_home).max_by_key(|p| {
        let response = core.views.device(p.device()).reads.response.get();
        (p.valid.count(), std::cmp::Reverse((response, p.device())))
    })
}

/// Ends a walk over all extents: waiting pieces retry. If nothing was freed, they are refused.
fn end_walk(data: &mut DataPath) {
    let until =
        *data.base.space.reclaim.write_back_deadline.get_or_insert(data.base.core.now + WRITE_BACK_TIMEOUT);
    if data.mover_load() > 0 && data.base.core.now < until {
        data.base.space.reclaim.due = data.base.core.now + POLL_INTERVAL;
        return;
    }
    let took = data.base.core.now.since(data.base.space.reclaim.began);
    let rested = data.base.space.reclaim.was_interrupted;
    let found = data.base.space.dropped > data.base.space.reclaim.dropped_at_start;
    data.base.begin_walk();
    if !found && rested {
        return;
    }
    if !found || !data.base.space.was_fruitful(&data.base.core) {
        data.base.space.reclaim.note_space();
        data.base.space.reclaim.not_before =
            data.base.core.now + WALK_INTERVAL_MIN.max(Nanos(took.0.saturating_mul(WALK_INTERVAL_FACTOR)));
    }
    data.base.space.reclaim.active = false;
    data.base.space.retry_waiting_space(&mut data.base.requests);
}

/// Drops blocks valid in several places from all but one, or writes everything back to one place. It skips
/// extents with a place on a lost device: that place may have the only copy, and its space is of no use.
fn reclaim_extent(data: &mut DataPath, key: ExtentKey) {
    let Some(record) =
        lookup::record(&data.base.core.map, key).filter(|r| r.copies == 1 && r.places.len() > 1)
    else {
        return;
    };
    let Some(home) = best_home(&data.base.core, &record) else { return };
    let blocks = BlockRange { first: 0, count: data.base.core.map.extent().blocks() };
    let others = || record.places.iter().filter(|p| p.at.id() != home.at.id());
    let is_copy = |place: &Place| {
        let mut missing = place.valid.clone();
        missing.subtract(&home.valid);
        missing.is_empty()
    };
    if others().any(|place| !data.base.core.is_usable(place.device())) {
        return;
    }
    if others().all(is_copy) {
        let names: Vec<PlaceId> = others().map(|place| place.at.id()).collect();
        names.into_iter().for_each(|from| {
            data.drop_from(key, blocks, from);
        });
    } else if data.mover_load() < WRITE_BACKS_MAX {
        data.base.host.actions.push(Action::Move { key, blocks, to: home.at.id() });
    }
}
