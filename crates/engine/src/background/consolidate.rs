//! Extents in pieces are put together while nobody asks for anything.
//!
//! Redirected writes, moves that were interrupted and policies that are no longer in use leave an extent in
//! several places: each request for it then takes several commands, and it takes more space than it needs.
//! Once clients have asked for nothing for a while, a walk over all extents brings each to one whole place,
//! but for what its policy means to keep ([`Keeps`]): places on these devices stay, and of the others one
//! whole place is left. As soon as a client asks for something the walk stops; it begins anew with the next
//! quiet.
//!
//! What is done goes by the mover and by drops, under their rules: nothing is given up that no other place
//! holds.

use crate::Engine;
use crate::core::Core;
use crate::lookup;
use crate::space::extra;
use crate::task::Task;
use crate::walk::{self, after};
use weir_map::{BlockSet, Place, Record};
use weir_model::{BlockRange, DeviceSet, ExtentKey, Memory, Nanos, PlaceId, PlaceKind};
use weir_policy::harm::Moves;
use weir_policy::placement::{Action, Keeps};

/// How long clients must have asked for nothing, unless told otherwise.
pub const QUIET: Nanos = Nanos::secs(2);
/// Extents looked at at a time, and when the walk goes on.
const LOOKS: usize = 1024;
const NEXT: Nanos = Nanos::millis(1);
/// Moves under way and queued at a time, and when it is looked whether there are fewer.
const MOVES: usize = 8;
const SOON: Nanos = Nanos::millis(5);

/// The walk.
#[derive(Debug, Default)]
pub(crate) struct Consolidation {
    /// Clients' commands completed when it was last looked, and since when they are so many.
    served: u64,
    since: Nanos,
    due: Nanos,
    /// Where the walk goes on.
    at: ExtentKey,
    /// Extents of which something was asked for in this walk, and blocks moved and dropped when it began.
    asked: u64,
    done: u64,
    /// Nothing is left to be done until clients have asked for something.
    settled: bool,
}

impl Task for Consolidation {
    type On = Engine;

    /// When to look again.
    fn due(engine: &Engine) -> Option<Nanos> {
        let may = engine.data.base.space.state.rules().quiet.is_some()
            && engine.data.base.core.stopped_changes.is_none();
        (may && !engine.background.consolidation.settled).then_some(engine.background.consolidation.due)
    }

    /// Looks whether it is quiet, and goes on with the walk then.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        let Some(quiet) = engine
            .data
            .base
            .space
            .state
            .rules()
            .quiet
            .filter(|_| engine.background.consolidation.due <= engine.data.base.core.now)
        else {
            return;
        };
        let served = engine.served().sum();
        let walk = &mut engine.background.consolidation;
        if served != walk.served || !engine.data.base.requests.active.is_empty() {
            (walk.served, walk.since, walk.settled) = (served, engine.data.base.core.now, false);
            walk.at = ExtentKey::default();
        }
        let begins = walk.since + quiet;
        walk.due = begins.max(engine.data.base.core.now + NEXT);
        if walk.settled {
            walk.due = engine.data.base.core.now + quiet;
        } else if engine.data.base.core.now >= begins {
            engine.walk_quietly();
        }
    }
}

/// Of these places the one that holds most.
fn home_among<'a>(core: &Core, record: &'a Record, wanted: impl Fn(&Place) -> bool) -> Option<&'a Place> {
    record.places.iter().filter(|place| wanted(place)).max_by_key(|place| {
        (place.valid.count(), std::cmp::Reverse(core.views.of(place.device()).reads.response.get()))
    })
}

impl Engine {
    fn walk_quietly(&mut self) {
        let is_held_up =
            self.data.base.core.stopped_changes.is_some() || self.data.base.space.state.is_waited_for();
        if is_held_up || matches!(self.data.base.host.harm.moves(), Moves::Never) {
            self.background.consolidation.settled = true;
            return;
        }
        if self.background.consolidation.at == ExtentKey::default() {
            (self.background.consolidation.asked, self.background.consolidation.done) =
                (0, self.moved_and_dropped());
        }
        for _ in 0..LOOKS {
            if self.data.mover_load() >= MOVES {
                self.background.consolidation.due = self.data.base.core.now + SOON;
                return;
            }
            let Some(key) =
                walk::next_extent(&self.data.base.core.map, self.background.consolidation.at, |volume| {
                    volume.copies == 1
                })
            else {
                return self.end_quiet_walk();
            };
            self.background.consolidation.at = after(key);
            if self.put_together(key) {
                self.background.consolidation.asked += 1;
            }
        }
    }

    /// All extents have been looked at. What was asked for may have to be gone on with in another walk; one
    /// that came to nothing is the last.
    fn end_quiet_walk(&mut self) {
        if self.data.mover_load() > 0 {
            self.background.consolidation.due = self.data.base.core.now + SOON;
            return;
        }
        let has_come_to_something = self.moved_and_dropped() > self.background.consolidation.done;
        if has_come_to_something {
            // The space comes back once what was put together is durable.
            self.data.base.durability.request_commit();
        }
        self.background.consolidation.settled =
            self.background.consolidation.asked == 0 || !has_come_to_something;
        self.background.consolidation.at = ExtentKey::default();
    }

    fn moved_and_dropped(&self) -> u64 {
        let mover = self.mover_status();
        mover.copied + mover.dropped
    }

    /// Has an extent brought together; whether there was anything to do.
    fn put_together(&mut self, key: ExtentKey) -> bool {
        let Keeps::On(kept) = extra::keeps(&self.data.base.host, self.data.base.host.policies.of(key.volume))
        else {
            return false;
        };
        let Some(record) = lookup::record(&self.data.base.core.map, key).filter(|record| record.copies == 1)
        else {
            return false;
        };
        let others = record.places.iter().filter(|place| !kept.contains(place.device()));
        let is_one = others.clone().count() <= 1 && others.clone().all(is_whole);
        if (is_one && !is_split(&record, kept))
            || record.places.iter().any(|p| !self.data.base.core.is_usable(p.device()))
        {
            return false;
        }
        let home = home_among(&self.data.base.core, &record, |place| {
            is_whole(place) && !kept.contains(place.device())
        });
        let home = home.or_else(|| home_among(&self.data.base.core, &record, is_whole));
        match home.map(|place| place.at.id()) {
            Some(home) => self.bring_pieces_to(key, &record, kept, home),
            None => self.make_home(key),
        }
        true
    }

    /// What is in no whole place, but in slots of several devices: a new whole place where the policy has new
    /// data.
    fn make_home(&mut self, key: ExtentKey) {
        let access = self.data.base.access_to_all(key);
        let which = self.data.base.host.policies.of(key.volume);
        let device = self.data.base.ask_one(which, |policy, moment| policy.allocate(moment, &access));
        let blocks = BlockRange { first: 0, count: self.data.base.core.map.extent().blocks() };
        if let Some(device) = device {
            let to = PlaceId { device, kind: PlaceKind::Whole };
            self.data.base.host.actions.push(Action::Move { key, blocks, to });
        }
    }

    /// What places that are not kept hold besides this one goes there, and then leaves them.
    fn bring_pieces_to(&mut self, key: ExtentKey, record: &Record, kept: DeviceSet, home: PlaceId) {
        let blocks = BlockRange { first: 0, count: self.data.base.core.map.extent().blocks() };
        if kept.is_empty() {
            return self.data.base.host.actions.push(Action::Move { key, blocks, to: home });
        }
        let Some(there) = record.place(home) else { return };
        let mut missing = there.valid.none_of_these();
        for place in record.places.iter().filter(|place| place.at.id() != home) {
            // Of what is kept only whole places: what is in slots there is to be there.
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
                .for_each(|from| self.data.base.host.actions.push(Action::Drop { key, blocks, from }));
        }
        let mut at = 0;
        while let Some(run) = missing.next_run(at, blocks.count) {
            at = run.end();
            self.data.base.host.actions.push(Action::Copy { key, blocks: run, to: home });
        }
    }
}

fn is_whole(place: &Place) -> bool {
    place.at.id().kind == PlaceKind::Whole
}

/// Whether an extent that has whole places on kept devices and elsewhere has no whole place that, with the
/// slots that are kept, holds all of it.
fn is_split(record: &Record, kept: DeviceSet) -> bool {
    let wholes = || record.places.iter().filter(|place| is_whole(place));
    if wholes().count() < 2 {
        return false;
    }
    let mut held = record.places[0].valid.clone();
    record.places.iter().for_each(|place| held.union(&place.valid));
    let slots = record.places.iter().filter(|place| !is_whole(place) && kept.contains(place.device()));
    slots.for_each(|place| held.subtract(&place.valid));
    let lacks = |place: &Place| {
        let mut lacking: BlockSet = held.clone();
        lacking.subtract(&place.valid);
        !lacking.is_empty()
    };
    wholes().all(lacks)
}
