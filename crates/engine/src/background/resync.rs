//! Resynchronization: restores second copies that a failed device, a power loss, or a lack of space has left
//! missing ([`crate::durability::lacking`]). A background task examines such extents in turn, and the mover
//! makes the copies, a few at a time.

use crate::DataPath;
use crate::background::BackgroundTask;
use crate::durability::lacking::lacks;
use crate::ids::Waiter;
use crate::lookup::{self, wholes};
use crate::walk::after;
use smallvec::SmallVec;
use weir_map::Record;
use weir_model::{BlockRange, ExtentKey, Memory, Mutant, Nanos, PlaceId, PlaceKind};
use weir_policy::placement::Action;

/// The time between two steps of the walk.
const WALK_EVERY: Nanos = Nanos::millis(1);
/// The number of extents examined per step.
const LOOKS: usize = 64;
/// The maximum number of copies in flight.
const MOVES: usize = 2;
/// The time between two checks while there is work; no longer than a copy takes on fast devices.
const SOON: Nanos = Nanos::millis(1);
/// The interval of commits while copies are made.
const COMMIT_EVERY: Nanos = Nanos::secs(1);
/// The time between two checks while nothing can be done.
const LATER: Nanos = Nanos::secs(5);

/// The state of resynchronization.
#[derive(Debug, Default)]
pub(crate) struct Resync {
    /// The extent to examine next.
    cursor: ExtentKey,
    /// Whether this pass found an extent complete, and the mover's count of copied blocks before it.
    completed: bool,
    copied: u64,
    /// The extents whose copies the mover is making.
    making: SmallVec<[ExtentKey; MOVES]>,
    /// The time of the last requested commit.
    asked: Nanos,
}

impl BackgroundTask for Resync {
    /// Returns when there is work.
    fn due(&self, data: &DataPath) -> Option<Nanos> {
        let lacking = &data.base.durability.lacking;
        (!lacking.is_idle() && data.base.core.stopped_changes.is_none()).then_some(lacking.due)
    }

    /// Continues the walk, and requests copies from the mover.
    fn run<M: Memory>(&mut self, data: &mut DataPath, _: &mut M) {
        if self.due(data).is_none_or(|due| due > data.base.core.now) {
            return;
        }
        if data.base.durability.lacking.is_looking() {
            data.base.durability.lacking.walk(&data.base.core);
        }
        let hopeful = self.make_copies(data);
        let (now, lacking) = (data.base.core.now, &mut data.base.durability.lacking);
        let is_time = lacking.extents.is_empty() || !hopeful || now >= self.asked + COMMIT_EVERY;
        let commits = lacking.wants_commit() && is_time;
        if commits {
            self.asked = now;
            lacking.begin_commit();
        }
        lacking.due = now
            + match (lacking.is_looking(), hopeful) {
                (true, _) => WALK_EVERY,
                (false, true) => SOON,
                (false, false) => LATER,
            };
        if commits {
            data.base.durability.wait_for_commit(Waiter::Resync);
        }
    }
}

impl Resync {
    /// Examines some extents that may lack a copy, and marks those that are complete. Returns `false` if all
    /// have been examined without progress.
    fn make_copies(&mut self, data: &mut DataPath) -> bool {
        self.note_made(data);
        for _ in 0..LOOKS {
            let under_way =
                data.mover.moving().filter(|key| data.base.durability.lacking.extents.has(*key)).count();
            if !data.base.host.actions.has_begun_what_is_owed() || under_way >= MOVES {
                return true;
            }
            let Some(key) = data.base.durability.lacking.extents.next(self.cursor) else {
                let copied = data.mover_status().copied;
                let copied = std::mem::replace(&mut self.copied, copied);
                self.cursor = ExtentKey::default();
                return std::mem::take(&mut self.completed) || copied != self.copied;
            };
            self.cursor = after(key);
            if !self.note_if_made(data, key)
                && let Some(record) = lookup::record(&data.base.core.map, key)
            {
                request_copies(data, key, &record);
                self.making.push(key);
            }
        }
        true
    }

    /// Marks extents whose copies are complete at once: with many extents the next pass comes much later.
    fn note_made(&mut self, data: &mut DataPath) {
        for key in std::mem::take(&mut self.making) {
            if !self.note_if_made(data, key) && data.mover.moving().any(|moving| moving == key) {
                self.making.push(key);
            }
        }
    }

    /// Marks the extent as complete if it lacks no copy. Returns whether it does.
    fn note_if_made(&mut self, data: &mut DataPath, key: ExtentKey) -> bool {
        let is_made = !lacks(&data.base.core, key);
        if is_made {
            data.base.durability.lacking.complete(key, !data.base.core.map.has_pending(key));
            self.completed = true;
        }
        is_made
    }
}

/// Requests the extent's missing copy from the mover, if one can be made.
fn request_copies(data: &mut DataPath, key: ExtentKey, record: &Record) {
    let not_made = match wholes(record).count() {
        0 | 1 => Mutant::LackingCopyNotMade,
        _ => Mutant::StaleCopyNotRefreshed,
    };
    if data.base.core.is_planted(not_made) {
        return;
    }
    let blocks = BlockRange { first: 0, count: data.base.core.map.extent().blocks() };
    let places: SmallVec<[_; 2]> = wholes(record).map(|whole| whole.device).collect();
    if places.len() > 1 {
        if places.iter().filter(|device| data.base.core.is_usable(**device)).count() > 1 {
            for device in places {
                let to = PlaceId { device, kind: PlaceKind::Whole };
                data.base.host.actions.push_owed(Action::Copy { key, blocks, to });
            }
        }
    } else if let Some(device) = data.second_device(key) {
        let to = PlaceId { device, kind: PlaceKind::Whole };
        data.base.host.actions.push_owed(Action::Copy { key, blocks, to });
    }
}
