//! Consolidation: extents in several places are gathered in one while the pool is idle.
//!
//! Redirected writes, interrupted moves and policies no longer in use leave an extent in several places: each
//! request for it then takes several commands, and it uses more space than it needs. Once clients have made
//! no request for a while, a walk over all extents brings each into one whole place. Places that its policy
//! keeps on purpose ([`KeptPlaces`]) stay; of the others one whole place is left. The walk stops as soon as a
//! client makes a request, and begins again in the next quiet period.
//!
//! The walk uses the mover and drops, under their rules: no block is dropped that no other place is valid
//! for.

use crate::DataPath;
use crate::background::BackgroundTask;
use crate::core::Core;
use crate::lookup;
use crate::space::extra;
use crate::walk::{self, next_key};
use weir_map::{BlockSet, Place, Record};
use weir_model::{BlockRange, DeviceSet, ExtentKey, Memory, Nanos, PlaceId, PlaceKind};
use weir_policy::harm::MoveControl;
use weir_policy::placement::{Action, DeviceView, KeptPlaces};

/// The default time without client requests after which the walk begins.
pub const QUIET_PERIOD: Nanos = Nanos::secs(2);
/// The number of extents examined per step, and the time between steps.
const EXTENTS_PER_STEP: usize = 1024;
const STEP_INTERVAL: Nanos = Nanos::millis(1);
/// The maximum number of moves in flight and queued, and the time until the next check whether there are
/// fewer.
const MOVES_MAX: usize = 8;
const RETRY_INTERVAL: Nanos = Nanos::millis(5);

/// The state of the walk.
#[derive(Debug, Default)]
pub(crate) struct Consolidation {
    /// The number of clients' commands completed at the last check, and the time since which it has not
    /// changed.
    served: u64,
    idle_since: Nanos,
    due: Nanos,
    /// The position of the walk.
    cursor: ExtentKey,
    /// The number of extents for which this walk requested an action, and the blocks moved and dropped before
    /// it began.
    requested: u64,
    blocks_before: u64,
    /// Whether nothing is left to do until clients make a request.
    settled: bool,
}

impl BackgroundTask for Consolidation {
    /// Returns the time of the next check.
    fn due(&self, data: &DataPath) -> Option<Nanos> {
        let may = data.base.space.state.rules().quiet.is_some() && data.base.core.stopped_changes.is_none();
        (may && !self.settled).then_some(self.due)
    }

    /// Continues the walk if the pool is quiet.
    fn run<M: Memory>(&mut self, data: &mut DataPath, _: &mut M) {
        let Some(quiet) = data.base.space.state.rules().quiet.filter(|_| self.due <= data.base.core.now)
        else {
            return;
        };
        let served = data.base.core.views.all().iter().map(DeviceView::completed).sum();
        if served != self.served || !data.base.requests.active.is_empty() {
            (self.served, self.idle_since, self.settled) = (served, data.base.core.now, false);
            self.cursor = ExtentKey::default();
        }
        let begins = self.idle_since + quiet;
        self.due = begins.max(data.base.core.now + STEP_INTERVAL);
        if self.settled {
            self.due = data.base.core.now + quiet;
        } else if data.base.core.now >= begins {
            self.continue_walk(data);
        }
    }
}

/// Returns the number of blocks that the mover has moved and dropped.
fn moved_and_dropped(data: &DataPath) -> u64 {
    let mover = data.mover_status();
    mover.copied + mover.dropped
}

/// Returns the `wanted` place with the most valid blocks.
fn select_home<'a>(core: &Core, record: &'a Record, wanted: impl Fn(&Place) -> bool) -> Option<&'a Place> {
    record.places.iter().filter(|place| wanted(place)).max_by_key(|place| {
        (place.valid.count(), std::cmp::Reverse(core.views.device(place.device()).reads.response.get()))
    })
}

impl Consolidation {
    fn continue_walk(&mut self, data: &mut DataPath) {
        let is_held_up = data.base.core.stopped_changes.is_some() || data.base.space.state.has_waiters();
        if is_held_up || matches!(data.base.host.harm.moves(), MoveControl::Disabled) {
            self.settled = true;
            return;
        }
        if self.cursor == ExtentKey::default() {
            (self.requested, self.blocks_before) = (0, moved_and_dropped(data));
        }
        for _ in 0..EXTENTS_PER_STEP {
            if data.mover_load() >= MOVES_MAX {
                self.due = data.base.core.now + RETRY_INTERVAL;
                return;
            }
            let Some(key) = walk::next_extent(&data.base.core.map, self.cursor, |volume| volume.copies == 1)
            else {
                return self.end_walk(data);
            };
            self.cursor = next_key(key);
            if consolidate_extent(data, key) {
                self.requested += 1;
            }
        }
    }

    /// Ends a walk over all extents. Its actions may need another walk to finish; a walk without effect is
    /// the last.
    fn end_walk(&mut self, data: &mut DataPath) {
        if data.mover_load() > 0 {
            self.due = data.base.core.now + RETRY_INTERVAL;
            return;
        }
        let has_come_to_something = moved_and_dropped(data) > self.blocks_before;
        if has_come_to_something {
            // The space becomes free once the consolidated state is durable.
            data.base.durability.request_commit();
        }
        self.settled = self.requested == 0 || !has_come_to_something;
        self.cursor = ExtentKey::default();
    }
}

fn is_whole(place: &Place) -> bool {
    place.at.id().kind == PlaceKind::Whole
}

/// Whether an extent with whole places on kept devices and elsewhere has no whole place that, together with
/// the kept slots, has all of its valid blocks.
fn is_split(record: &Record, kept: DeviceSet) -> bool {
    let wholes = || record.places.iter().filter(|place| is_whole(place));
    if wholes().count() < 2 {
        return false;
    }
    let mut valid = record.places[0].valid.clone();
    record.places.iter().for_each(|place| valid.union(&place.valid));
    let slots = record.places.iter().filter(|place| !is_whole(place) && kept.contains(place.device()));
    slots.for_each(|place| valid.subtract(&place.valid));
    let lacks = |place: &Place| {
        let mut lacking: BlockSet = valid.clone();
        lacking.subtract(&place.valid);
        !lacking.is_empty()
    };
    wholes().all(lacks)
}

/// Requests actions that consolidate an extent. Returns whether there was anything to do.
fn consolidate_extent(data: &mut DataPath, key: ExtentKey) -> bool {
    let KeptPlaces::OnDevices(kept) =
        extra::kept_places(&data.base.host, data.base.host.policies.index_of(key.volume))
    else {
        return false;
    };
    let Some(record) = lookup::record(&data.base.core.map, key).filter(|record| record.copies == 1) else {
        return false;
    };
    let others = record.places.iter().filter(|place| !kept.contains(place.device()));
    let is_one = others.clone().count() <= 1 && others.clone().all(is_whole);
    if (is_one && !is_split(&record, kept))
        || record.places.iter().any(|p| !data.base.core.is_usable(p.device()))
    {
        return false;
    }
    let home =
        select_home(&data.base.core, &record, |place| is_whole(place) && !kept.contains(place.device()));
    let home = home.or_else(|| select_home(&data.base.core, &record, is_whole));
    match home.map(|place| place.at.id()) {
        Some(home) => copy_blocks_to(data, key, &record, kept, home),
        None => create_home(data, key),
    }
    true
}

/// Moves blocks that are in slots of several devices and in no whole place to a new whole place, where the
/// policy allocates new data.
fn create_home(data: &mut DataPath, key: ExtentKey) {
    let access = data.base.access_to_all(key);
    let policy_index = data.base.host.policies.index_of(key.volume);
    let device = data.base.ask(policy_index, |policy, moment| policy.allocate(moment, &access));
    let blocks = BlockRange { first: 0, count: data.base.core.map.extent().blocks() };
    if let Some(device) = device {
        let to = PlaceId { device, kind: PlaceKind::Whole };
        data.base.host.actions.push(Action::Move { key, blocks, to });
    }
}

/// Copies blocks from places that are not kept to this one, and then drops them there.
fn copy_blocks_to(data: &mut DataPath, key: ExtentKey, record: &Record, kept: DeviceSet, home: PlaceId) {
    let blocks = BlockRange { first: 0, count: data.base.core.map.extent().blocks() };
    if kept.is_empty() {
        return data.base.host.actions.push(Action::Move { key, blocks, to: home });
    }
    let Some(there) = record.place(home) else { return };
    let mut missing = there.valid.empty_like();
    for place in record.places.iter().filter(|place| place.at.id() != home) {
        // Only whole places are included among the kept ones: blocks in kept slots belong there.
        if !kept.contains(place.device()) || is_whole(place) {
            missing.union(&place.valid);
        }
    }
    missing.subtract(&there.valid);
    if missing.is_empty() {
        let leftover = |place: &&Place| place.at.id() != home && !kept.contains(place.device());
        let from: Vec<_> = record.places.iter().filter(leftover).map(|place| place.at.id()).collect();
        return from
            .into_iter()
            .for_each(|from| data.base.host.actions.push(Action::Drop { key, blocks, from }));
    }
    let mut at = 0;
    while let Some(run) = missing.next_run(at, blocks.count) {
        at = run.end();
        data.base.host.actions.push(Action::Copy { key, blocks: run, to: home });
    }
}
