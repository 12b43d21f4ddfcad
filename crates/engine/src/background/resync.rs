//! Resynchronization: restores second copies that a failed device, a power loss, or a lack of space has left
//! missing ([`crate::durability::missing_copies`]). A background task examines such extents in turn, and the
//! mover makes the copies, a few at a time.

use crate::DataPath;
use crate::background::BackgroundTask;
use crate::durability::missing_copies::lacks_copy;
use crate::ids::Waiter;
use crate::lookup::{self, whole_places};
use crate::walk::next_key;
use smallvec::SmallVec;
use weir_map::Record;
use weir_model::{BlockRange, ExtentKey, Memory, Mutant, Nanos, PlaceId, PlaceKind};
use weir_policy::placement::Action;

/// The time between two steps of the walk.
const STEP_INTERVAL: Nanos = Nanos::millis(1);
/// The number of extents examined per step.
const EXTENTS_PER_STEP: usize = 64;
/// The maximum number of copies in flight.
const COPIES_MAX: usize = 2;
/// The time between two checks while there is work; no longer than a copy takes on fast devices.
const POLL_INTERVAL: Nanos = Nanos::millis(1);
/// The interval of commits while copies are made.
const COMMIT_INTERVAL: Nanos = Nanos::secs(1);
/// The time between two checks while nothing can be done.
const RETRY_INTERVAL: Nanos = Nanos::secs(5);

/// The state of resynchronization.
#[derive(Debug, Default)]
pub(crate) struct Resync {
    /// The extent to examine next.
    cursor: ExtentKey,
    /// Whether this pass found an extent complete, and the mover's count of copied blocks before it.
    found_complete: bool,
    copied: u64,
    /// The extents whose copies the mover is making.
    copying: SmallVec<[ExtentKey; COPIES_MAX]>,
    /// The time of the last requested commit.
    commit_requested_at: Nanos,
}

impl BackgroundTask for Resync {
    /// Returns when there is work.
    fn due(&self, data: &DataPath) -> Option<Nanos> {
        let lacking = &data.base.durability.missing_copies;
        (!lacking.is_idle() && data.base.core.stopped_changes.is_none()).then_some(lacking.due)
    }

    /// Continues the walk, and requests copies from the mover.
    fn run<M: Memory>(&mut self, data: &mut DataPath, _: &mut M) {
        if self.due(data).is_none_or(|due| due > data.base.core.now) {
            return;
        }
        if data.base.durability.missing_copies.is_scanning() {
            data.base.durability.missing_copies.walk(&data.base.core);
        }
        let hopeful = self.make_copies(data);
        let (now, lacking) = (data.base.core.now, &mut data.base.durability.missing_copies);
        let is_time =
            lacking.extents.is_empty() || !hopeful || now >= self.commit_requested_at + COMMIT_INTERVAL;
        let commits = lacking.needs_commit() && is_time;
        if commits {
            self.commit_requested_at = now;
            lacking.begin_commit();
        }
        lacking.due = now
            + match (lacking.is_scanning(), hopeful) {
                (true, _) => STEP_INTERVAL,
                (false, true) => POLL_INTERVAL,
                (false, false) => RETRY_INTERVAL,
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
        self.mark_completed(data);
        for _ in 0..EXTENTS_PER_STEP {
            let under_way = data
                .mover
                .moving_extents()
                .filter(|key| data.base.durability.missing_copies.extents.contains(*key))
                .count();
            if !data.base.host.actions.has_begun_required() || under_way >= COPIES_MAX {
                return true;
            }
            let Some(key) = data.base.durability.missing_copies.extents.next(self.cursor) else {
                let copied = data.mover_status().copied;
                let copied = std::mem::replace(&mut self.copied, copied);
                self.cursor = ExtentKey::default();
                return std::mem::take(&mut self.found_complete) || copied != self.copied;
            };
            self.cursor = next_key(key);
            if !self.mark_if_complete(data, key)
                && let Some(record) = lookup::record(&data.base.core.map, key)
            {
                request_copies(data, key, &record);
                self.copying.push(key);
            }
        }
        true
    }

    /// Marks extents whose copies are complete at once: with many extents the next pass comes much later.
    fn mark_completed(&mut self, data: &mut DataPath) {
        for key in std::mem::take(&mut self.copying) {
            if !self.mark_if_complete(data, key) && data.mover.moving_extents().any(|moving| moving == key) {
                self.copying.push(key);
            }
        }
    }

    /// Marks the extent as complete if it lacks no copy. Returns whether it does.
    fn mark_if_complete(&mut self, data: &mut DataPath, key: ExtentKey) -> bool {
        let is_made = !lacks_copy(&data.base.core, key);
        if is_made {
            data.base.durability.missing_copies.complete(key, !data.base.core.map.has_pending(key));
            self.found_complete = true;
        }
        is_made
    }
}

/// Requests the extent's missing copy from the mover, if one can be made.
fn request_copies(data: &mut DataPath, key: ExtentKey, record: &Record) {
    let not_made = match whole_places(record).count() {
        0 | 1 => Mutant::LackingCopyNotMade,
        _ => Mutant::StaleCopyNotRefreshed,
    };
    if data.base.core.is_planted(not_made) {
        return;
    }
    let blocks = BlockRange { first: 0, count: data.base.core.map.extent().blocks() };
    let places: SmallVec<[_; 2]> = whole_places(record).map(|whole| whole.device).collect();
    if places.len() > 1 {
        if places.iter().filter(|device| data.base.core.is_usable(**device)).count() > 1 {
            for device in places {
                let to = PlaceId { device, kind: PlaceKind::Whole };
                data.base.host.actions.push_required(Action::Copy { key, blocks, to });
            }
        }
    } else if let Some(device) = data.second_device(key) {
        let to = PlaceId { device, kind: PlaceKind::Whole };
        data.base.host.actions.push_required(Action::Copy { key, blocks, to });
    }
}
