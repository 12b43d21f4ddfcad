//! Second copies made anew: what a device that failed, a cut, or a lack of space has left with one
//! ([`crate::durability::lacking`]). In the background such extents are looked at in turn, and the mover
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
/// Extents that may lack a copy looked at at a time.
const LOOKS: usize = 64;
/// Copies under way at a time.
const MOVES: usize = 2;
/// The time between two looks while there is something to do: no longer than fast devices take for a copy.
const SOON: Nanos = Nanos::millis(1);
/// While copies are made, those made so far are made durable so often.
const COMMIT_EVERY: Nanos = Nanos::secs(1);
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
    /// Extents whose copies the mover is making.
    making: SmallVec<[ExtentKey; MOVES]>,
    /// When it last asked for a commit.
    asked: Nanos,
}

impl BackgroundTask for Resync {
    /// When there is something to do.
    fn due(&self, data: &DataPath) -> Option<Nanos> {
        let lacking = &data.base.durability.lacking;
        (!lacking.is_idle() && data.base.core.stopped_changes.is_none()).then_some(lacking.due)
    }

    /// Goes on with the walk, and has the mover make copies.
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
    /// Looks at some extents that may lack a copy; those that do not any more are done. `false` if all have
    /// been looked at since anything came of it.
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

    /// Copies that have been made count before the next time around: with many extents that is much later.
    fn note_made(&mut self, data: &mut DataPath) {
        for key in std::mem::take(&mut self.making) {
            if !self.note_if_made(data, key) && data.mover.moving().any(|moving| moving == key) {
                self.making.push(key);
            }
        }
    }

    /// Whether the extent does not lack a copy any more.
    fn note_if_made(&mut self, data: &mut DataPath, key: ExtentKey) -> bool {
        let is_made = !lacks(&data.base.core, key);
        if is_made {
            data.base.durability.lacking.complete(key, !data.base.core.map.has_pending(key));
            self.completed = true;
        }
        is_made
    }
}

/// Asks the mover for what the extent lacks, if that can be had.
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
