//! Write intents: which extents' copies may differ after a cut.
//!
//! An intent is opened, for all blocks of an extent, before the first overwrite of what two places
//! hold, and is durable before that. It stays open while the extent is in use, so that only the first of
//! many overwrites waits for it, and is closed some time after the last one. Closing it waits for
//! nothing: that the copies are the same enters a commit once what was written to both is durable.
//!
//! A cut leaves the open ones: opening the pool settles for one copy of their blocks (weir-map, `settle.rs`),
//! and [`crate::background::resync`] makes the other one anew. Their number is bounded, and so is that work,
//! but for what was in doubt.

use crate::core::Core;
use crate::durability::Durability;
use crate::lookup;
use crate::request::Requests;
use crate::task::Task;
use crate::{Base, StoppedChanges};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use weir_map::Needs;
use weir_model::{BlockRange, ExtentKey, Memory, Mutant, Nanos};

/// An intent is closed when its extent has not been written for so long.
const IDLE: Nanos = Nanos::secs(2);
/// How often that is looked at.
const LOOK_EVERY: Nanos = Nanos::secs(1);
/// Open intents beyond which those used longest ago are closed at once: 128 MiB to copy after a cut, with
/// extents of 128 KiB.
const OPEN_MAX: usize = 1024;

/// The open intents, and when each extent was written last.
#[derive(Debug, Default)]
pub(crate) struct Intents {
    open: BTreeMap<ExtentKey, Nanos>,
    next_look: Nanos,
}

impl Intents {
    /// No copies may differ.
    pub(crate) fn are_closed(&self) -> bool {
        self.open.is_empty()
    }
}

impl Task for Intents {
    type On = Base;

    /// When to look which intents are to be closed.
    fn due(base: &Base) -> Option<Nanos> {
        let looks = !base.durability.intents.are_closed() && !base.durability.commits.metadata_failed;
        looks.then_some(base.durability.intents.next_look)
    }

    fn run<M: Memory>(base: &mut Base, _: &mut M) {
        base.durability.close_intents(&mut base.core, &base.requests);
    }

    fn is_idle(base: &Base) -> bool {
        base.durability.commits.metadata_failed || base.durability.intents.are_closed()
    }
}

impl Durability {
    /// The copies of the extent's blocks may differ from now on, whatever happens.
    pub(crate) fn open_intent(&mut self, core: &mut Core, key: ExtentKey) {
        if self.intents.open.is_empty() {
            self.intents.next_look = core.now + LOOK_EVERY;
        }
        self.intents.open.insert(key, core.now);
        let all = BlockRange { first: 0, count: core.map.extent().blocks() };
        core.map.intend(key, all);
        self.note_change(core);
    }

    /// The extent has been written.
    pub(crate) fn use_intent(&mut self, core: &Core, key: ExtentKey) {
        if let Some(used) = self.intents.open.get_mut(&key) {
            *used = core.now;
        }
    }

    /// Nobody writes to the extent: its copies are the same once their devices have been flushed.
    fn close_intent(&mut self, core: &mut Core, key: ExtentKey) {
        let Some(record) = lookup::record(&core.map, key) else { return };
        let owed =
            lookup::wholes(&record).filter_map(|w| core.devices[w.device.index()].epochs.owes(w.device));
        let owed: SmallVec<[Needs; 2]> = owed.collect();
        if owed.len() > 2 || self.doubt.has(key) {
            // A version waits for two devices at most; and of what is in doubt none is known to be durable.
            // The next opening settles it.
            return;
        }
        let mut needs = [owed.first().copied(), owed.get(1).copied()];
        if core.is_planted(Mutant::IntentClosedUnflushed) {
            needs = [None; 2];
        }
        let all = BlockRange { first: 0, count: core.map.extent().blocks() };
        core.map.settled(key, all, needs);
        self.note_change(core);
    }
}

impl Durability {
    /// Closes intents of extents that are no longer written: after a while, if there are too many, and
    /// when the engine stops.
    pub(crate) fn close_intents(&mut self, core: &mut Core, requests: &Requests) {
        let Intents { open, next_look } = &self.intents;
        if open.is_empty() || self.commits.metadata_failed {
            return;
        }
        let stopping = core.stopped_changes == Some(StoppedChanges::Stopping) && requests.active.is_empty();
        let many = open.len() > OPEN_MAX;
        if !stopping && !many && *next_look > core.now {
            return;
        }
        let idle = |used: Nanos| stopping || many || used + IDLE <= core.now;
        let mut idle: Vec<_> =
            open.iter().filter(|(_, used)| idle(**used)).map(|(k, used)| (*used, *k)).collect();
        if many && !stopping {
            // The older half.
            idle.sort_unstable();
            idle.truncate(OPEN_MAX / 2);
        }
        self.intents.next_look = core.now + LOOK_EVERY;
        for (_, key) in idle {
            if !requests.locks.is_taken(key) || core.is_planted(Mutant::IntentClosedUnderWrites) {
                self.intents.open.remove(&key);
                self.close_intent(core, key);
            }
        }
    }
}
