//! Changes of extents that are visible but not yet durable.
//!
//! The map proper is the state that recovery would find; requests must see the changes since. Each extent
//! with such changes has an entry here: its current value, and the versions that lead there, each with the
//! device flush it must wait for (rule 1 of docs/internals/invariants.md: a delta enters a commit only when
//! the data it refers to had completed before a flush of its device that has since succeeded). Versions of
//! one extent commit in order.

use crate::BlockSet;
use crate::format::value::{Chunk, RecordId, Released, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use weir_model::{BlockRange, DeviceId, ExtentIndex, ExtentKey, Mutant, Planted};

/// A flush epoch of a device: writes that complete in epoch *e* are durable once the flush that ended *e* has
/// succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Data that must be durable before a version may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The device the data was written to.
    pub device: DeviceId,
    /// The epoch in which the write completed.
    pub epoch: Epoch,
}

/// The flushes that a version waits for: of one device, or of two with copies of the same blocks.
pub(crate) type NeedsPair = [Option<Needs>; 2];

/// The kind of blocks that a change adds to an extent, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddedBlocks {
    /// None: places lose blocks.
    Nothing,
    /// Blocks that another of its places is valid for too.
    Copies,
    /// Blocks that none of its places was valid for.
    Data,
}

/// A state that an extent passed through.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) needs: NeedsPair,
    /// The value, in canonical form.
    pub(crate) value: Value,
    /// The maximum of the changes that led here.
    pub(crate) added: AddedBlocks,
    /// The space that these changes release: free once this version, or a later one, is durable.
    pub(crate) released: Released,
}

/// An extent with changes that are not durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    /// See [`Self::current`].
    current: Value,
    /// See [`Self::may_be_shared`].
    shared: Option<BlockSet>,
    /// Oldest first.
    pub(crate) versions: SmallVec<[Version; 1]>,
    /// The number of versions in the commit in progress.
    pub(crate) committing: u32,
    /// The record id that the durable map or the commit in progress uses.
    pub(crate) record: Option<RecordId>,
    queued: bool,
    /// Whether `current` has a place that neither the newest version nor, without versions, the durable map
    /// names: a write to it may be in flight.
    pub(crate) tentative: bool,
}

/// All extents with changes that are not durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    extents: FxHashMap<ExtentKey, Pending>,
    /// The same extents in order, for walks along a volume.
    order: BTreeSet<ExtentKey>,
    /// Extents with versions outside any commit, oldest first.
    queue: VecDeque<ExtentKey>,
    planted: Planted,
}

impl Overlay {
    pub(crate) fn new(planted: Planted) -> Self {
        Self { planted, ..Self::default() }
    }

    #[inline]
    pub(crate) fn get(&self, key: ExtentKey) -> Option<&Pending> {
        // Usually the overlay is empty, and hashing is avoided.
        if self.extents.is_empty() { None } else { self.extents.get(&key) }
    }

    pub(crate) fn get_mut(&mut self, key: ExtentKey) -> Option<&mut Pending> {
        self.extents.get_mut(&key)
    }

    /// Creates the entry of an extent that has none, from its durable value.
    pub(crate) fn insert(
        &mut self,
        key: ExtentKey,
        durable: Value,
        record: Option<RecordId>,
    ) -> &mut Pending {
        self.order.insert(key);
        let mut fresh = Pending { record, ..Pending::default() };
        fresh.set_current(durable);
        self.extents.entry(key).insert_entry(fresh).into_mut()
    }

    /// Returns the extents with changes, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ExtentKey> + '_ {
        self.order.iter().copied()
    }

    /// Returns the extents with changes from this one on, in its volume.
    pub(crate) fn of_volume(&self, from: ExtentKey) -> impl Iterator<Item = (ExtentKey, &Pending)> {
        let here = self.order.range(from..).take_while(move |key| key.volume == from.volume);
        here.filter_map(|key| Some((*key, self.extents.get(key)?)))
    }

    /// Returns those of `count` extents from this one on that have changes.
    pub(crate) fn of_run(
        &self,
        first: ExtentKey,
        count: u64,
    ) -> impl Iterator<Item = (ExtentIndex, &Pending)> {
        let end = ExtentKey { index: ExtentIndex(first.index.0.saturating_add(count)), ..first };
        let here = self.order.range(first..end);
        here.filter_map(|key| Some((key.index, self.extents.get(key)?)))
    }

    /// Returns the first extent with changes at or after this one, in its volume.
    pub(crate) fn next(&self, from: ExtentKey) -> Option<ExtentIndex> {
        self.order.range(from..).next().filter(|key| key.volume == from.volume).map(|key| key.index)
    }

    /// Returns the number of extents with changes.
    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    /// Adds a version. A version with the same needs replaces the last one, unless that is being committed.
    ///
    /// Copies do not replace data. The data may be on another device than the last version waits for, and the
    /// source of the copy may be released: if the copies are lost, they fall back on the version that names
    /// the source.
    pub(crate) fn push(&mut self, key: ExtentKey, version: Version) {
        let Some(pending) = self.extents.get_mut(&key) else { return };
        pending.tentative = pending.current.place_count() > version.value.place_count();
        let open = pending.versions.len() > pending.committing as usize;
        match pending.versions.last_mut() {
            // A version without needs may merge with the one before it, which it must follow anyway.
            Some(last) if open && version.may_replace(last, self.planted) => {
                last.value = version.value;
                last.added = last.added.max(version.added);
                last.released.extend(version.released);
            }
            _ => pending.versions.push(version),
        }
        if !pending.queued {
            pending.queued = true;
            self.queue.push_back(key);
        }
    }

    /// Returns the number of extents that may have something to commit: each is visited once, and put back by
    /// [`Self::requeue`] if it has more.
    pub(crate) fn candidates(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn next_candidate(&mut self) -> Option<(ExtentKey, &mut Pending)> {
        let key = loop {
            let key = self.queue.pop_front()?;
            if self.extents.contains_key(&key) {
                break key;
            }
        };
        let pending = self.extents.get_mut(&key)?;
        pending.queued = false;
        Some((key, pending))
    }

    /// Puts the extent back, because it has more versions to commit.
    pub(crate) fn requeue(&mut self, key: ExtentKey, front: bool) {
        if let Some(pending) = self.extents.get_mut(&key)
            && !std::mem::replace(&mut pending.queued, true)
        {
            if front { self.queue.push_front(key) } else { self.queue.push_back(key) }
        }
    }

    /// Forgets the versions in the commit in progress, which are durable, and adds the space that they
    /// released to `released`.
    pub(crate) fn drop_committed(
        &mut self,
        key: ExtentKey,
        record: Option<RecordId>,
        released: &mut Vec<Chunk>,
    ) {
        let Some(pending) = self.extents.get_mut(&key) else { return };
        for version in pending.versions.drain(..pending.committing as usize) {
            released.extend(version.released);
        }
        pending.committing = 0;
        pending.record = record;
        self.remove_if_durable(key);
    }

    /// Updates the shared blocks from an extent's durable value, after a commit.
    pub(crate) fn update_shared(&mut self, key: ExtentKey, durable: &Value) {
        let Some(pending) = self.extents.get_mut(&key) else { return };
        pending.shared = None;
        if self.planted.is(Mutant::SharedBlocksNotNoted) {
            return;
        }
        pending.note_shared(durable);
        pending.note_all_shared();
    }

    /// Frees memory that a burst of changes took.
    pub(crate) fn trim(&mut self) {
        if self.extents.capacity() > 1024 && self.extents.len() * 8 < self.extents.capacity() {
            self.extents.shrink_to(self.extents.len() * 2);
        }
        if self.queue.capacity() > 1024 && self.queue.len() * 8 < self.queue.capacity() {
            self.queue.shrink_to(self.queue.len() * 2);
        }
    }

    /// Drops the entry if only the durable value is left in it.
    pub(crate) fn remove_if_durable(&mut self, key: ExtentKey) {
        if self.extents.get(&key).is_some_and(|p| p.versions.is_empty() && !p.tentative) {
            self.extents.remove(&key);
            self.order.remove(&key);
        }
    }
}

impl Version {
    /// Returns the flushes that it waits for.
    pub(crate) fn needs(&self) -> impl Iterator<Item = Needs> + '_ {
        self.needs.iter().flatten().copied()
    }

    /// Whether it may replace the version before it: both are lost with the same devices and fall back on the
    /// same state.
    fn may_replace(&self, last: &Self, planted: Planted) -> bool {
        let falls_back_on_last = self.added == AddedBlocks::Copies
            && last.added == AddedBlocks::Data
            && !planted.is(Mutant::CopiesReplaceData);
        let needs_the_same = last.needs == self.needs || planted.is(Mutant::NeedsOfReplacedVersionKept);
        !falls_back_on_last && (!self.may_be_lost() || needs_the_same)
    }

    /// Whether its data may still be lost.
    pub(crate) fn may_be_lost(&self) -> bool {
        self.needs != [None; 2]
    }
}

impl Pending {
    /// Returns the value that requests see. It may name a place without valid blocks: allocated for a write
    /// in flight.
    #[inline]
    pub(crate) fn current(&self) -> &Value {
        &self.current
    }

    /// Returns the oldest version outside any commit.
    pub(crate) fn first_uncommitted(&self) -> Option<&Version> {
        self.versions.get(self.committing as usize)
    }

    /// Takes the value that requests see, to be changed and [set](Self::set_current) again.
    pub(crate) fn take_current(&mut self) -> Value {
        std::mem::take(&mut self.current)
    }

    pub(crate) fn set_current(&mut self, value: Value) {
        self.note_shared(&value);
        self.current = value;
    }

    /// Whether several places may be valid for some of these blocks in a value that is durable, may become
    /// so, or is visible. If not, none of these values has such blocks: each of them was the current one, or
    /// the durable one, since the set was empty. Cost: a load or two.
    #[inline]
    pub(crate) fn may_be_shared(&self, range: BlockRange) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.contains_any(range))
    }

    /// Counts the blocks that several places of this value are valid for as shared.
    fn note_shared(&mut self, value: &Value) {
        let Value::Record(record) = value else { return };
        for (at, place) in record.places.iter().enumerate().skip(1) {
            for before in &record.places[..at] {
                let mut both = place.valid.clone();
                both.intersect(&before.valid);
                if !both.is_empty() {
                    self.shared.get_or_insert_with(|| both.empty_like()).union(&both);
                }
            }
        }
    }

    /// Does the same for every value except the durable one, after some of them were changed in place.
    pub(crate) fn note_all_shared(&mut self) {
        let versions = std::mem::take(&mut self.versions);
        versions.iter().for_each(|version| self.note_shared(&version.value));
        self.versions = versions;
        let current = self.take_current();
        self.set_current(current);
    }

    /// Returns how many versions, oldest first, have all they need; `flushed` returns the last epoch of a
    /// device known to be durable.
    pub(crate) fn ready(&self, flushed: impl Fn(DeviceId) -> Option<Epoch>, planted: Planted) -> usize {
        let unflushed = planted.is(Mutant::CommittedBeforeItsFlush);
        let is_there = |n: Needs| flushed(n.device).is_some_and(|f| f >= n.epoch);
        let is_ready = |v: &Version| v.needs().all(is_there) || unflushed;
        if planted.is(Mutant::VersionsOutOfOrder) {
            return self.versions.iter().rposition(is_ready).map_or(0, |newest| newest + 1);
        }
        self.versions.iter().take_while(|v| is_ready(v)).count()
    }
}
