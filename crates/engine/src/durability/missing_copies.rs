//! Extents that may lack a copy: one bit each. A bit is set where a copy is lost, and by a walk over all
//! volumes with two copies after the pool is opened or a device is lost. [`crate::background::resync`] makes
//! the copies. An extent counts until its copy is durable, because an administrator who sees that no copy is
//! lacking may remove a device at once.

use crate::core::Core;
use crate::lookup;
use crate::walk::{self, next_key};
use std::collections::BTreeMap;
use weir_model::{Bytes, ExtentIndex, ExtentKey, Nanos, PlaceKind, VolumeId};

/// The number of extents examined per step of the walk.
const EXTENTS_PER_STEP: usize = 256;
/// The time from the first extent noted to the next check.
const CHECK_DELAY: Nanos = Nanos::millis(10);

/// A set of extents: one 64-bit word per 64 consecutive extents.
#[derive(Debug, Default)]
pub(crate) struct ExtentSet(BTreeMap<(VolumeId, u64), u64>);

/// The extents that may lack a copy.
#[derive(Debug, Default)]
pub(crate) struct MissingCopies {
    pub(crate) extents: ExtentSet,
    /// Extents whose copy was made, but is not known to be durable.
    restored: ExtentSet,
    /// Those of them that wait for a commit in progress.
    committing: ExtentSet,
    /// The position of the walk, while one is in progress.
    walk: Option<ExtentKey>,
    /// The time of the next check.
    pub(crate) due: Nanos,
}

const fn bit(key: ExtentKey) -> ((VolumeId, u64), u64) {
    ((key.volume, key.index.0 / 64), 1 << (key.index.0 % 64))
}

impl ExtentSet {
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

    /// Returns the first extent of the set at or after this one.
    pub(crate) fn next(&self, from: ExtentKey) -> Option<ExtentKey> {
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

    pub(crate) fn contains(&self, key: ExtentKey) -> bool {
        let (word, bit) = bit(key);
        self.0.get(&word).is_some_and(|bits| bits & bit != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many extents of the set belong to the volume.
    fn count_in_volume(&self, volume: VolumeId) -> u64 {
        let words = self.0.range((volume, 0)..=(volume, u64::MAX));
        words.map(|(_, bits)| u64::from(bits.count_ones())).sum()
    }
}

impl MissingCopies {
    /// Whether there is nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.walk.is_none() && self.extents.is_empty() && !self.needs_commit()
    }

    /// Whether copies were made that no commit has been requested for.
    pub(crate) fn needs_commit(&self) -> bool {
        self.committing.is_empty() && !self.restored.is_empty()
    }

    /// Notes that a commit begins which makes the copies made so far durable.
    pub(crate) fn begin_commit(&mut self) {
        self.committing = std::mem::take(&mut self.restored);
    }

    /// Notes that the extent has its copies again, durable or not.
    pub(crate) fn complete(&mut self, key: ExtentKey, is_durable: bool) {
        self.extents.remove(key);
        if !is_durable {
            self.restored.add(key);
        }
    }

    /// Whether the walk is in progress.
    pub(crate) fn is_scanning(&self) -> bool {
        self.walk.is_some()
    }

    /// Returns how many extents of a volume may lack a copy after a crash.
    fn count_in_volume(&self, volume: VolumeId) -> u64 {
        [&self.extents, &self.restored, &self.committing]
            .map(|extents| extents.count_in_volume(volume))
            .iter()
            .sum()
    }

    /// Notes that the extent may lack a copy.
    pub(crate) fn note(&mut self, core: &Core, key: ExtentKey) {
        if self.extents.is_empty() {
            self.due = core.now + CHECK_DELAY;
        }
        self.restored.remove(key);
        self.committing.remove(key);
        self.extents.add(key);
    }

    /// Notes that the commit has ended: the copies made before it are durable.
    pub(crate) fn copies_are_durable(&mut self) {
        self.committing = ExtentSet::default();
    }

    /// Begins a walk over all extents, because any may lack a copy.
    pub(crate) fn begin_scan(&mut self, core: &Core) {
        let mirrored = core.map.catalogue().volumes.iter().find(|(_, v)| v.copies > 1).map(|(id, _)| *id);
        self.walk = mirrored.map(|volume| ExtentKey { volume, index: ExtentIndex(0) });
        self.due = core.now;
    }

    /// Returns the space of the volume's extents known to have blocks with one copy only, and whether the
    /// walk is still in progress.
    pub(crate) fn degraded(&self, core: &Core, volume: VolumeId) -> (Bytes, bool) {
        let bytes = self.count_in_volume(volume) * core.map.extent().bytes().0;
        (Bytes(bytes), self.walk.is_some_and(|at| at.volume <= volume))
    }

    /// Examines some extents.
    pub(crate) fn walk(&mut self, core: &Core) {
        for _ in 0..EXTENTS_PER_STEP {
            let Some(from) = self.walk.take() else { return };
            let Some(key) = walk::next_extent(&core.map, from, |volume| volume.copies > 1) else {
                return;
            };
            if lacks_copy(core, key) {
                self.note(core, key);
            }
            self.walk = Some(next_key(key));
        }
    }
}

/// Whether some block of the extent is not in two places on devices in use.
pub(crate) fn lacks_copy(core: &Core, key: ExtentKey) -> bool {
    let Some(record) = lookup::record(&core.map, key).filter(|r| r.copies > 1 && !r.is_all_zeros()) else {
        return false;
    };
    let mut valid = record.places[0].valid.empty_like();
    record.places.iter().for_each(|p| valid.union(&p.valid));
    let complete = |p: &&weir_map::Place| {
        p.at.id().kind == PlaceKind::Whole && core.is_usable(p.device()) && p.valid == valid
    };
    record.places.iter().filter(complete).count() < 2
}
