//! Second copies made anew: what a device that failed, a cut, or a lack of space has left with one.
//!
//! Which extents may lack a copy is kept as one bit each: noted where a copy is lost, and found by a walk
//! over all volumes with two copies after the pool is opened and after a device is lost. In the
//! background they are looked at in turn, and the mover makes the copies, a few at a time. An extent counts
//! until its copy is durable: who is told that nothing lacks one may take a device away at once.

use crate::Engine;
use crate::background::Background;
use crate::core::Core;
use crate::ids::Waiter;
use crate::lookup::{self, wholes};
use crate::task::Task;
use crate::walk::{self, after};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use weir_map::Record;
use weir_model::{
    BlockRange, Bytes, ExtentIndex, ExtentKey, Memory, Mutant, Nanos, PlaceId, PlaceKind, VolumeId,
};
use weir_policy::placement::Action;

/// Extents of the walk looked at at a time.
const WALK: usize = 256;
/// The time between two such steps.
const WALK_EVERY: Nanos = Nanos::millis(1);
/// Extents that may lack a copy looked at at a time.
const LOOKS: usize = 64;
/// Copies under way at a time.
const MOVES: usize = 2;
/// The time between two looks while there is something to do.
const SOON: Nanos = Nanos::millis(10);
/// The time between two looks while nothing can be done.
const LATER: Nanos = Nanos::secs(5);

/// A set of extents: a bit for each of 64 side by side.
#[derive(Debug, Default)]
struct Extents(BTreeMap<(VolumeId, u64), u64>);

/// Extents that may lack a copy.
#[derive(Debug, Default)]
pub(crate) struct Resync {
    lacking: Extents,
    /// Extents that lack a copy no longer; that is not known to be durable.
    made: Extents,
    /// Of these, those a commit is waited for.
    committing: Extents,
    /// Where the walk that looks for them goes on.
    walk: Option<ExtentKey>,
    /// Where to look next for something to do.
    cursor: ExtentKey,
    /// Whether this time around an extent was found complete, and what the mover had copied before.
    completed: bool,
    copied: u64,
    due: Nanos,
}

const fn bit(key: ExtentKey) -> ((VolumeId, u64), u64) {
    ((key.volume, key.index.0 / 64), 1 << (key.index.0 % 64))
}

impl Extents {
    fn add(&mut self, key: ExtentKey) {
        let (word, bit) = bit(key);
        *self.0.entry(word).or_default() |= bit;
    }

    fn remove(&mut self, key: ExtentKey) {
        let (word, bit) = bit(key);
        if let Some(bits) = self.0.get_mut(&word) {
            *bits &= !bit;
            if *bits == 0 {
                self.0.remove(&word);
            }
        }
    }

    /// The first of them at or after this one.
    fn next(&self, from: ExtentKey) -> Option<ExtentKey> {
        let (word, first) = bit(from);
        let key = |(volume, word): (VolumeId, u64), bits: u64| {
            let index = ExtentIndex(word * 64 + u64::from(bits.trailing_zeros()));
            ExtentKey { volume, index }
        };
        self.0.range(word..).find_map(|(at, bits)| {
            let bits = if *at == word { bits & !(first - 1) } else { *bits };
            (bits != 0).then(|| key(*at, bits))
        })
    }

    fn has(&self, key: ExtentKey) -> bool {
        let (word, bit) = bit(key);
        self.0.get(&word).is_some_and(|bits| bits & bit != 0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of them are the volume's.
    fn of_volume(&self, volume: VolumeId) -> u64 {
        let words = self.0.range((volume, 0)..=(volume, u64::MAX));
        words.map(|(_, bits)| u64::from(bits.count_ones())).sum()
    }
}

impl Resync {
    /// Whether copies were made that no commit has been asked for.
    fn wants_commit(&self) -> bool {
        self.committing.is_empty() && !self.made.is_empty()
    }

    /// How many extents of a volume may lack a copy after a crash.
    pub(crate) fn lacking(&self, volume: VolumeId) -> u64 {
        [&self.lacking, &self.made, &self.committing].map(|extents| extents.of_volume(volume)).iter().sum()
    }
}

impl Task for Resync {
    /// When there is something to do.
    fn due(engine: &Engine) -> Option<Nanos> {
        let resync = &engine.background.resync;
        let idle = resync.walk.is_none() && resync.lacking.is_empty() && !resync.wants_commit();
        (!idle && engine.core.stopped_changes.is_none()).then_some(engine.background.resync.due)
    }

    /// Goes on with the walk, and has the mover make copies.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if <Self as Task>::due(engine).is_none_or(|due| due > engine.core.now) {
            return;
        }
        if engine.background.resync.walk.is_some() {
            engine.background.walk(&engine.core);
        }
        let hopeful = engine.make_copies();
        if engine.background.resync.wants_commit()
            && (engine.background.resync.lacking.is_empty() || !hopeful)
        {
            engine.background.resync.committing = std::mem::take(&mut engine.background.resync.made);
            engine.durability.wait_for_commit(Waiter::Resync);
        }
        engine.background.resync.due = engine.core.now
            + match (engine.background.resync.walk, hopeful) {
                (Some(_), _) => WALK_EVERY,
                (None, true) => SOON,
                (None, false) => LATER,
            };
    }
}

impl Background {
    /// The extent may lack a copy.
    pub(crate) fn note_lacking(&mut self, core: &Core, key: ExtentKey) {
        if self.resync.lacking.is_empty() {
            self.resync.due = core.now + SOON;
        }
        self.resync.made.remove(key);
        self.resync.committing.remove(key);
        self.resync.lacking.add(key);
    }

    /// What was made before the commit that has ended is durable.
    pub(crate) fn copies_are_durable(&mut self) {
        self.resync.committing = Extents::default();
    }

    /// Any extent may lack a copy: all are looked at.
    pub(crate) fn look_for_lacking(&mut self, core: &Core) {
        let mirrored = core.map.catalogue().volumes.iter().find(|(_, v)| v.copies > 1).map(|(id, _)| *id);
        self.resync.walk = mirrored.map(|volume| ExtentKey { volume, index: ExtentIndex(0) });
        self.resync.due = core.now;
    }

    /// Space in extents of the volume that have blocks with one copy only, as far as known; and whether
    /// that is still being looked for.
    pub(crate) fn degraded(&self, core: &Core, volume: VolumeId) -> (Bytes, bool) {
        let bytes = self.resync.lacking(volume) * core.map.extent().bytes().0;
        (Bytes(bytes), self.resync.walk.is_some_and(|at| at.volume <= volume))
    }
}

impl Background {
    fn walk(&mut self, core: &Core) {
        for _ in 0..WALK {
            let Some(from) = self.resync.walk.take() else { return };
            let Some(key) = walk::next_extent(&core.map, from, |volume| volume.copies > 1) else {
                return;
            };
            if lacks(core, key) {
                self.note_lacking(core, key);
            }
            self.resync.walk = Some(after(key));
        }
    }
}

/// Whether some block of the extent is not in two places on devices in use.
fn lacks(core: &Core, key: ExtentKey) -> bool {
    let Some(record) = lookup::record(&core.map, key).filter(|r| r.copies > 1 && !r.is_all_zeros()) else {
        return false;
    };
    let mut held = record.places[0].valid.none_of_these();
    record.places.iter().for_each(|p| held.union(&p.valid));
    let complete = |p: &&weir_map::Place| {
        p.at.id().kind == PlaceKind::Whole && core.is_usable(p.device()) && p.valid == held
    };
    record.places.iter().filter(complete).count() < 2
}

impl Engine {
    /// Looks at all extents at once: where nobody serves the pool, no task does. Takes as long as reading the
    /// records of all volumes with two copies.
    pub fn look_for_all_lacking(&mut self) {
        while self.background.resync.walk.is_some() {
            self.background.walk(&self.core);
        }
    }

    /// Looks at some extents that may lack a copy; those that do not any more are done. `false` if all have
    /// been looked at since anything came of it.
    fn make_copies(&mut self) -> bool {
        for _ in 0..LOOKS {
            let under_way =
                self.mover.moving().filter(|key| self.background.resync.lacking.has(*key)).count();
            if !self.mover.has_begun_what_is_owed() || under_way >= MOVES {
                return true;
            }
            let Some(key) = self.background.resync.lacking.next(self.background.resync.cursor) else {
                let copied = self.mover_status().copied;
                let copied = std::mem::replace(&mut self.background.resync.copied, copied);
                self.background.resync.cursor = ExtentKey::default();
                return std::mem::take(&mut self.background.resync.completed)
                    || copied != self.background.resync.copied;
            };
            self.background.resync.cursor = after(key);
            if !lacks(&self.core, key) {
                self.background.resync.lacking.remove(key);
                self.background.resync.completed = true;
                if self.core.map.has_pending(key) {
                    self.background.resync.made.add(key);
                }
            } else if let Some(record) = lookup::record(&self.core.map, key) {
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
        if self.is_planted(not_made) {
            return;
        }
        let blocks = BlockRange { first: 0, count: self.core.map.extent().blocks() };
        let places: SmallVec<[_; 2]> = wholes(record).map(|whole| whole.device).collect();
        if places.len() > 1 {
            if places.iter().filter(|device| self.core.is_usable(**device)).count() > 1 {
                for device in places {
                    let to = PlaceId { device, kind: PlaceKind::Whole };
                    self.mover.request_owed(Action::Copy { key, blocks, to });
                }
            }
        } else if let Some(device) = self.second_device(key) {
            let to = PlaceId { device, kind: PlaceKind::Whole };
            self.mover.request_owed(Action::Copy { key, blocks, to });
        }
    }
}
