//! Write intents: the extents whose copies may differ after a power loss.
//!
//! An intent is opened, for all blocks of an extent, before the first overwrite of blocks that are valid in
//! two places, and is durable before that overwrite. It stays open while the extent is in use, so that only
//! the first of many overwrites waits for it, and is closed some time after the last one. Closing it delays
//! nothing: the change enters a commit once the writes to both copies are durable.
//!
//! A power loss leaves the open intents: opening the pool selects one copy of their blocks (weir-map,
//! `settle.rs`), and [`crate::background::resync`] rewrites the other. The number of intents is bounded, and
//! hence that work, except for blocks in doubt.

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

/// The time without writes after which an extent's intent is closed.
const IDLE_TIME: Nanos = Nanos::secs(2);
/// The interval at which idle intents are looked for.
const CHECK_INTERVAL: Nanos = Nanos::secs(1);
/// The number of open intents above which the least recently used are closed at once. With extents of 128 KiB
/// this bounds the copying after a power loss to 128 MiB.
const OPEN_MAX: usize = 1024;

/// The open intents, each with the time of the extent's last write.
#[derive(Debug, Default)]
pub(crate) struct Intents {
    open: BTreeMap<ExtentKey, Nanos>,
    next_check: Nanos,
}

impl Intents {
    /// Whether no intent is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Task for Intents {
    type On = Base;

    /// Returns when to look for idle intents.
    fn due(base: &Base) -> Option<Nanos> {
        let looks = !base.durability.intents.is_empty() && !base.durability.commits.metadata_failed;
        looks.then_some(base.durability.intents.next_check)
    }

    fn run<M: Memory>(base: &mut Base, _: &mut M) {
        base.durability.close_intents(&mut base.core, &base.requests);
    }

    fn is_idle(base: &Base) -> bool {
        base.durability.commits.metadata_failed || base.durability.intents.is_empty()
    }
}

impl Durability {
    /// Opens the intent: the extent's copies may differ from now on.
    pub(crate) fn open_intent(&mut self, core: &mut Core, key: ExtentKey) {
        if self.intents.open.is_empty() {
            self.intents.next_check = core.now + CHECK_INTERVAL;
        }
        self.intents.open.insert(key, core.now);
        let all = BlockRange { first: 0, count: core.map.extent().blocks() };
        core.map.open_intent(key, all);
        self.note_change(core);
    }

    /// Notes a write to the extent.
    pub(crate) fn touch_intent(&mut self, core: &Core, key: ExtentKey) {
        if let Some(used) = self.intents.open.get_mut(&key) {
            *used = core.now;
        }
    }

    /// Closes the intent of an extent that is not being written: its copies are the same once their devices
    /// have been flushed.
    fn close_intent(&mut self, core: &mut Core, key: ExtentKey) {
        let Some(record) = lookup::record(&core.map, key) else { return };
        let owed = lookup::whole_places(&record)
            .filter_map(|w| core.devices[w.device.index()].epochs.needed_flush(w.device));
        let owed: SmallVec<[Needs; 2]> = owed.collect();
        if owed.len() > 2 || self.doubt.contains(key) {
            // A version waits for two devices at most, and none of the blocks in doubt is known to be
            // durable. The next opening settles them.
            return;
        }
        let mut needs = [owed.first().copied(), owed.get(1).copied()];
        if core.is_planted(Mutant::IntentClosedUnflushed) {
            needs = [None; 2];
        }
        let all = BlockRange { first: 0, count: core.map.extent().blocks() };
        core.map.close_intent(key, all, needs);
        self.note_change(core);
    }
}

impl Durability {
    /// Closes the intents of extents that are no longer written: after a while, if there are too many, and
    /// when the engine stops.
    pub(crate) fn close_intents(&mut self, core: &mut Core, requests: &Requests) {
        let Intents { open, next_check: next_look } = &self.intents;
        if open.is_empty() || self.commits.metadata_failed {
            return;
        }
        let stopping = core.stopped_changes == Some(StoppedChanges::Stopping) && requests.active.is_empty();
        let many = open.len() > OPEN_MAX;
        if !stopping && !many && *next_look > core.now {
            return;
        }
        let idle = |used: Nanos| stopping || many || used + IDLE_TIME <= core.now;
        let mut idle: Vec<_> =
            open.iter().filter(|(_, used)| idle(**used)).map(|(k, used)| (*used, *k)).collect();
        if many && !stopping {
            // Only the older half is closed.
            idle.sort_unstable();
            idle.truncate(OPEN_MAX / 2);
        }
        self.intents.next_check = core.now + CHECK_INTERVAL;
        for (_, key) in idle {
            if !requests.locks.is_in_use(key) || core.is_planted(Mutant::IntentClosedUnderWrites) {
                self.intents.open.remove(&key);
                self.close_intent(core, key);
            }
        }
    }
}
