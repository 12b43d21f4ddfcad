//! Second copies made anew: what a device that failed, a cut, or a lack of space has left with one
//! ([`crate::durability::lacking`]). In the background such extents are looked at in turn, and the mover
//! makes the copies, a few at a time.

use crate::Engine;
use crate::durability::lacking::lacks;
use crate::ids::Waiter;
use crate::lookup::{self, wholes};
use crate::task::Task;
use crate::walk::after;
use smallvec::SmallVec;
use weir_map::Record;
use weir_model::{BlockRange, ExtentKey, Memory, Mutant, Nanos, PlaceId, PlaceKind};
use weir_policy::placement::Action;

/// The time between two steps of the walk.
const WALK_EVERY: Nanos = Nanos::millis(1);
/// Extents that may lack a copy looked at at a time.
const LOOKS: usize = 64;
/// Copies under way at a time.
const MOVES: usize = 2;
/// The time between two looks while there is something to do.
const SOON: Nanos = Nanos::millis(10);
/// The time between two looks while nothing can be done.
const LATER: Nanos = Nanos::secs(5);

/// How far it is.
#[derive(Debug, Default)]
pub(crate) struct Resync {
    /// Where to look next for something to do.
    cursor: ExtentKey,
    /// Whether this time around an extent was found complete, and what the mover had copied before.
    completed: bool,
    copied: u64,
}

impl Task for Resync {
    type On = Engine;

    /// When there is something to do.
    fn due(engine: &Engine) -> Option<Nanos> {
        let lacking = &engine.data.base.durability.lacking;
        (!lacking.is_idle() && engine.data.base.core.stopped_changes.is_none()).then_some(lacking.due)
    }

    /// Goes on with the walk, and has the mover make copies.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if <Self as Task>::due(engine).is_none_or(|due| due > engine.data.base.core.now) {
            return;
        }
        if engine.data.base.durability.lacking.is_looking() {
            engine.data.base.durability.lacking.walk(&engine.data.base.core);
        }
        let hopeful = engine.make_copies();
        let lacking = &mut engine.data.base.durability.lacking;
        let commits = lacking.wants_commit() && (lacking.extents.is_empty() || !hopeful);
        if commits {
            lacking.begin_commit();
        }
        lacking.due = engine.data.base.core.now
            + match (lacking.is_looking(), hopeful) {
                (true, _) => WALK_EVERY,
                (false, true) => SOON,
                (false, false) => LATER,
            };
        if commits {
            engine.data.base.durability.wait_for_commit(Waiter::Resync);
        }
    }
}

impl Engine {
    /// Looks at all extents at once: where nobody serves the pool, no task does. Takes as long as reading the
    /// records of all volumes with two copies.
    pub fn look_for_all_lacking(&mut self) {
        while self.data.base.durability.lacking.is_looking() {
            self.data.base.durability.lacking.walk(&self.data.base.core);
        }
    }

    /// Looks at some extents that may lack a copy; those that do not any more are done. `false` if all have
    /// been looked at since anything came of it.
    fn make_copies(&mut self) -> bool {
        for _ in 0..LOOKS {
            let under_way = self
                .data
                .mover
                .moving()
                .filter(|key| self.data.base.durability.lacking.extents.has(*key))
                .count();
            if !self.data.base.host.actions.has_begun_what_is_owed() || under_way >= MOVES {
                return true;
            }
            let Some(key) = self.data.base.durability.lacking.extents.next(self.background.resync.cursor)
            else {
                let copied = self.mover_status().copied;
                let copied = std::mem::replace(&mut self.background.resync.copied, copied);
                self.background.resync.cursor = ExtentKey::default();
                return std::mem::take(&mut self.background.resync.completed)
                    || copied != self.background.resync.copied;
            };
            self.background.resync.cursor = after(key);
            if !lacks(&self.data.base.core, key) {
                self.data.base.durability.lacking.complete(key, !self.data.base.core.map.has_pending(key));
                self.background.resync.completed = true;
            } else if let Some(record) = lookup::record(&self.data.base.core.map, key) {
                self.request_copies(key, &record);
            }
        }
        true
    }

    /// Asks the mover for what the extent lacks, if that can be had.
    fn request_copies(&mut self, key: ExtentKey, record: &Record) {
        let not_made = match wholes(record).count() {
            0 | 1 => Mutant::LackingCopyNotMade,
            _ => Mutant::StaleCopyNotRefreshed,
        };
        if self.data.base.core.is_planted(not_made) {
            return;
        }
        let blocks = BlockRange { first: 0, count: self.data.base.core.map.extent().blocks() };
        let places: SmallVec<[_; 2]> = wholes(record).map(|whole| whole.device).collect();
        if places.len() > 1 {
            if places.iter().filter(|device| self.data.base.core.is_usable(**device)).count() > 1 {
                for device in places {
                    let to = PlaceId { device, kind: PlaceKind::Whole };
                    self.data.base.host.actions.push_owed(Action::Copy { key, blocks, to });
                }
            }
        } else if let Some(device) = self.data.second_device(key) {
            let to = PlaceId { device, kind: PlaceKind::Whole };
            self.data.base.host.actions.push_owed(Action::Copy { key, blocks, to });
        }
    }
}
