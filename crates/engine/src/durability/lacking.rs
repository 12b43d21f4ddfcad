//! Extents that may lack a copy: one bit each, noted where a copy is lost, and found by a walk over all
//! volumes with two copies after the pool is opened and after a device is lost. Copies are made by
//! [`crate::background::resync`]; an extent counts until its copy is durable: who is told that nothing lacks
//! one may take a device away at once.

use crate::core::Core;
use crate::lookup;
use crate::walk::{self, after};
use std::collections::BTreeMap;
use weir_model::{Bytes, ExtentIndex, ExtentKey, Nanos, PlaceKind, VolumeId};

/// Extents of the walk looked at at a time.
const WALK: usize = 256;
/// The time from the first one noted to the next look.
const SOON: Nanos = Nanos::millis(10);

/// A set of extents: a bit for each of 64 side by side.
#[derive(Debug, Default)]
pub(crate) struct Extents(BTreeMap<(VolumeId, u64), u64>);

/// Extents that may lack a copy.
#[derive(Debug, Default)]
pub(crate) struct Lacking {
    pub(crate) extents: Extents,
    /// Extents that lack a copy no longer; that is not known to be durable.
    made: Extents,
    /// Of these, those a commit is waited for.
    committing: Extents,
    /// Where the walk that looks for them goes on.
    walk: Option<ExtentKey>,
    /// When to look next for something to do.
    pub(crate) due: Nanos,
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

    pub(crate) fn has(&self, key: ExtentKey) -> bool {
        let (word, bit) = bit(key);
        self.0.get(&word).is_some_and(|bits| bits & bit != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of them are the volume's.
    fn of_volume(&self, volume: VolumeId) -> u64 {
        let words = self.0.range((volume, 0)..=(volume, u64::MAX));
        words.map(|(_, bits)| u64::from(bits.count_ones())).sum()
    }
}

impl Lacking {
    /// Whether nothing is to be done.
    pub(crate) fn is_idle(&self) -> bool {
        self.walk.is_none() && self.extents.is_empty() && !self.wants_commit()
    }

    /// Whether copies were made that no commit has been asked for.
    pub(crate) fn wants_commit(&self) -> bool {
        self.committing.is_empty() && !self.made.is_empty()
    }

    /// A commit begins that makes the copies made so far durable.
    pub(crate) fn begin_commit(&mut self) {
        self.committing = std::mem::take(&mut self.made);
    }

    /// The extent has its copies again, durably or not.
    pub(crate) fn complete(&mut self, key: ExtentKey, is_durable: bool) {
        self.extents.remove(key);
        if !is_durable {
            self.made.add(key);
        }
    }

    /// Whether extents are being looked for.
    pub(crate) fn is_looking(&self) -> bool {
        self.walk.is_some()
    }

    /// How many extents of a volume may lack a copy after a crash.
    fn of_volume(&self, volume: VolumeId) -> u64 {
        [&self.extents, &self.made, &self.committing].map(|extents| extents.of_volume(volume)).iter().sum()
    }

    /// The extent may lack a copy.
    pub(crate) fn note(&mut self, core: &Core, key: ExtentKey) {
        if self.extents.is_empty() {
            self.due = core.now + SOON;
        }
        self.made.remove(key);
        self.committing.remove(key);
        self.extents.add(key);
    }

    /// What was made before the commit that has ended is durable.
    pub(crate) fn copies_are_durable(&mut self) {
        self.committing = Extents::default();
    }

    /// Any extent may lack a copy: all are looked at.
    pub(crate) fn look_for_all(&mut self, core: &Core) {
        let mirrored = core.map.catalogue().volumes.iter().find(|(_, v)| v.copies > 1).map(|(id, _)| *id);
        self.walk = mirrored.map(|volume| ExtentKey { volume, index: ExtentIndex(0) });
        self.due = core.now;
    }

    /// Space in extents of the volume that have blocks with one copy only, as far as known; and whether
    /// that is still being looked for.
    pub(crate) fn degraded(&self, core: &Core, volume: VolumeId) -> (Bytes, bool) {
        let bytes = self.of_volume(volume) * core.map.extent().bytes().0;
        (Bytes(bytes), self.walk.is_some_and(|at| at.volume <= volume))
    }

    /// Looks at some extents.
    pub(crate) fn walk(&mut self, core: &Core) {
        for _ in 0..WALK {
            let Some(from) = self.walk.take() else { return };
            let Some(key) = walk::next_extent(&core.map, from, |volume| volume.copies > 1) else {
                return;
            };
            if lacks(core, key) {
                self.note(core, key);
            }
            self.walk = Some(after(key));
        }
    }
}

/// Whether some block of the extent is not in two places on devices in use.
pub(crate) fn lacks(core: &Core, key: ExtentKey) -> bool {
    let Some(record) = lookup::record(&core.map, key).filter(|r| r.copies > 1 && !r.is_all_zeros()) else {
        return false;
    };
    let mut valid = record.places[0].valid.none_of_these();
    record.places.iter().for_each(|p| valid.union(&p.valid));
    let complete = |p: &&weir_map::Place| {
        p.at.id().kind == PlaceKind::Whole && core.is_usable(p.device()) && p.valid == valid
    };
    record.places.iter().filter(complete).count() < 2
}
