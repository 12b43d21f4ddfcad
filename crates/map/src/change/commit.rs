//! Commits: batches of changes made durable by journal frames, and the checkpoints that free journal space.

use crate::format::page::PageNumber;
use crate::format::root::Root;
use crate::format::superblock::{JOURNAL_AT, ROOT_AT};
use crate::format::value::{Chunk, RecordId, Value, Word};
use crate::log::delta::Delta;
use crate::map::Map;
use crate::state::overlay::Epoch;
use crate::state::usage::Usage;
use crate::{MapError, PAGE, Volume};
use smallvec::SmallVec;
use std::sync::Arc;
use weir_model::{DeviceId, DeviceOffset, ExtentKey, Mutant};

impl Map {
    /// Whether a commit could make anything durable, now or once devices are flushed.
    pub fn has_uncommitted_changes(&self) -> bool {
        !self.queued_deltas.is_empty() || self.overlay.candidates() > 0
    }

    /// Begins a commit, of which there is one at a time; [`Self::next_frame`] then returns its frames.
    pub fn begin_commit(&mut self) {
        assert!(self.commit.deltas.is_empty(), "one commit at a time");
        self.commit.unvisited = self.overlay.candidates();
    }

    /// Whether the journal can take a frame. If not, a checkpoint must become durable first, or two: the
    /// frames that the older root needs are kept until the second.
    pub fn has_journal_space(&self) -> bool {
        self.journal.has_space(self.commit.builder.capacity() as u64)
    }

    /// Whether the journal has wrapped around its ring since the pool was opened.
    pub fn journal_has_wrapped(&self) -> bool {
        self.journal.head() > self.journal.ring()
    }

    /// Seals the next frame of the commit into `out` (whole pages) and returns its offset on every one of
    /// [`Self::members`]; `None` when the commit has no more. The frame contains the oldest versions of every
    /// extent whose data is known to be durable: `flushed` returns a device's last durable epoch. The caller
    /// checks [`Self::has_journal_space`] before each call.
    pub fn next_frame(
        &mut self,
        flushed: impl Fn(DeviceId) -> Option<Epoch>,
        out: &mut Vec<u8>,
    ) -> Option<DeviceOffset> {
        while let Some(delta) = self.queued_deltas.front() {
            if !self.commit.builder.add(std::slice::from_ref(delta), self.blocks) {
                break;
            }
            self.commit.deltas.extend(self.queued_deltas.pop_front());
        }
        while self.commit.unvisited > 0 {
            let Some((key, pending)) = self.overlay.next_candidate() else { break };
            self.commit.unvisited -= 1;
            let ready = pending.ready(&flushed, self.planted);
            let Some(value) = ready.checked_sub(1).map(|last| pending.versions[last].value.clone()) else {
                self.overlay.requeue(key, false);
                continue;
            };
            let more = ready < pending.versions.len();
            let unsaid = self.planted.is(Mutant::TrimNotJournalled) && matches!(value, Value::Empty);
            let (deltas, record) = self.deltas_for(key, value);
            if !unsaid && !self.commit.builder.add(&deltas, self.blocks) {
                self.unreserve(key, record);
                self.overlay.requeue(key, true);
                self.commit.unvisited += 1;
                break;
            }
            if let Some(pending) = self.overlay.get_mut(key) {
                pending.committing = ready as u32;
            }
            if more {
                self.overlay.requeue(key, false);
            }
            self.commit.extents.push((key, record));
            self.commit.deltas.extend(deltas);
        }
        if self.commit.builder.is_empty() {
            return None;
        }
        let offset = self.journal.append(&mut self.commit.builder, out);
        Some(DeviceOffset(JOURNAL_AT.0 + offset))
    }

    /// Returns the deltas that turn an extent's durable value into this one, and the record it then uses.
    fn deltas_for(&mut self, key: ExtentKey, value: Value) -> (SmallVec<[Delta; 2]>, Option<RecordId>) {
        let durable = self.volume(key.volume).map_or(0, |v| self.pages.word(v.tree, key.index));
        let held = match Word::decode(durable) {
            Some(Word::Record(id)) => Some(id),
            _ => None,
        };
        let mut deltas = SmallVec::new();
        let (word, record) = match value {
            Value::Empty => (Word::Empty, None),
            Value::Direct(whole) => (Word::Direct(whole), None),
            Value::Record(record) => {
                let id = held.unwrap_or_else(|| self.records.reserve());
                deltas.push(Delta::Record { id, record });
                (Word::Record(id), Some(id))
            }
        };
        if word.encode() != durable {
            deltas.push(Delta::Entry { key, word });
        }
        if let (Some(id), None) = (held, record)
            && !self.planted.is(Mutant::RecordDropNotJournalled)
        {
            deltas.push(Delta::DropRecord { id });
        }
        (deltas, record)
    }

    /// Frees a record id reserved for deltas that did not fit the frame.
    fn unreserve(&mut self, key: ExtentKey, record: Option<RecordId>) {
        let held = self.overlay.get(key).and_then(|p| p.record);
        if let Some(id) = record.filter(|id| Some(*id) != held) {
            self.records.unreserve(id);
        }
    }

    /// Applies every frame of the commit so far to the durable map; they must be durable. Call it also if
    /// there was no frame: space released before any durable record referred to it needs none.
    /// Released space is added to `released`; pass it to [`Self::reuse`] once no command that could touch it
    /// is in flight.
    pub fn finish_commit(&mut self, released: &mut Vec<Chunk>) {
        self.journal.mark_all_durable();
        let before = released.len();
        let mut deltas = std::mem::take(&mut self.commit.deltas);
        // Each extent occurs once, because a commit visits each of its candidates once.
        let taken = |map: &Self, key: ExtentKey| Usage::of(&map.find_durable(key));
        let before_them: Vec<Usage> = self.commit.extents.iter().map(|(key, _)| taken(self, *key)).collect();
        for delta in deltas.drain(..) {
            self.apply(delta);
        }
        deltas.shrink_to(1024);
        self.commit.deltas = deltas;
        let mut extents = std::mem::take(&mut self.commit.extents);
        for ((key, record), from) in extents.drain(..).zip(before_them) {
            if self.catalogue.volumes.contains_key(&key.volume) {
                let mut to = taken(self, key);
                if self.planted.is(Mutant::UsageNotReduced) {
                    to.wholes = to.wholes.max(from.wholes);
                }
                self.usage_by_volume.change(key.volume, from, to);
            }
            self.overlay.drop_committed(key, record, released);
            if self.overlay.get(key).is_some() {
                let durable = self.durable_value(key).0;
                self.overlay.update_shared(key, &durable);
            }
        }
        extents.shrink_to(1024);
        self.commit.extents = extents;
        self.overlay.trim();
        self.pending_releases.remove(&released[before..]);
        self.update_expected_pages();
    }

    /// Applies a delta to the durable map: after its frame became durable, and in replay.
    pub(crate) fn apply(&mut self, delta: Delta) {
        match delta {
            Delta::Entry { key, word } => {
                if let Some(volume) = self.catalogue.volumes.get_mut(&key.volume) {
                    let mut dropped = std::mem::take(&mut self.store.dropped_pages);
                    self.pages.set(&mut volume.tree, key.index, word.encode(), &mut self.store, &mut dropped);
                    self.store.dropped_pages = dropped;
                }
            }
            Delta::Record { id, record } => self.records.set(id, record, &mut self.store),
            Delta::DropRecord { id } => self.records.drop_record(id, &mut self.store),
            Delta::RecordCount { id, count } => {
                if let Some(mut record) = self.records.shared(id) {
                    Arc::make_mut(&mut record).references = count;
                    self.records.set(id, record, &mut self.store);
                }
            }
            Delta::Volume { id, name, size, hardening, copies } => {
                // An existing volume keeps its extents, hence its size.
                let (size, tree) = match self.catalogue.volumes.get(&id) {
                    Some(volume) => (volume.size, volume.tree),
                    None => (size, crate::state::pages::Tree::new(self.extent.count(size))),
                };
                self.catalogue.volumes.insert(id, Volume { name, size, hardening, copies, tree });
                self.catalogue.next_volume = self.catalogue.next_volume.max(id.0.saturating_add(1));
            }
            Delta::DropVolume { id } => {
                self.catalogue.volumes.remove(&id);
                self.usage_by_volume.remove_volume(id);
            }
            Delta::Intent { id, intent } => {
                self.catalogue.intents.insert(id, intent);
            }
            Delta::EndIntent { id } => {
                self.catalogue.intents.remove(&id);
            }
        }
    }

    /// Whether the journal has grown enough since the last checkpoint for another one.
    pub fn is_checkpoint_due(&self) -> bool {
        !self.store.is_in_progress() && self.journal.since_root() * 4 > self.journal.ring()
    }

    /// Whether a checkpoint would write anything.
    pub fn has_unwritten_changes(&self) -> bool {
        self.journal.since_root() > 0 || self.store.dirty_objects() > 0
    }

    /// Begins a checkpoint of the durable map. No commit may be in progress.
    ///
    /// # Errors
    /// Fails if the metadata area has no space for another version of the changed pages.
    pub fn begin_checkpoint(&mut self) -> Result<(), MapError> {
        assert!(self.commit.deltas.is_empty(), "a checkpoint begins between commits");
        self.checkpoint_head = self.journal.head();
        let journal = self.journal.position();
        if self.store.begin(journal, &mut self.pages, &self.records, &self.catalogue) {
            Ok(())
        } else {
            Err(MapError::MetadataFull { pages: self.store.page_counts().0.into() })
        }
    }

    /// Puts the next adjacent pages of the checkpoint into `out` (a multiple of 4096 bytes, at most `most`).
    /// Returns their offset on every one of [`Self::members`], or `None` when all have been returned.
    pub fn next_pages(&mut self, most: usize, out: &mut Vec<u8>) -> Option<DeviceOffset> {
        out.clear();
        let (first, page) = self.next_page()?;
        out.extend_from_slice(&page[..]);
        let mut next = first.0 + 1;
        while out.len() + PAGE <= most {
            match self.next_page() {
                Some((number, page)) if number.0 == next => out.extend_from_slice(&page[..]),
                Some(sealed) => {
                    self.store.requeue_page(sealed);
                    break;
                }
                None => break,
            }
            next += 1;
        }
        Some(self.page_address(first))
    }

    fn next_page(&mut self) -> Option<crate::log::checkpoint::SealedPage> {
        self.store.next_page(&self.pages, &self.records)
    }

    pub(crate) fn page_address(&self, number: PageNumber) -> DeviceOffset {
        let base = self.layout().pages_at();
        DeviceOffset(base.0 + number.0 * PAGE as u64)
    }

    /// Returns the root to write, and its offset on every one of [`Self::members`], once every page of the
    /// checkpoint is durable on each.
    pub fn finished_root(&self) -> Option<(Root, Box<[u8; PAGE]>, DeviceOffset)> {
        let root = self.store.finished_root()?;
        let page = root.encode(self.pool);
        let at = ROOT_AT[root.slot()];
        Some((root, page, at))
    }

    /// Notes that the checkpoint's root is durable on every member.
    pub fn finish_checkpoint(&mut self, root: Root) {
        self.store.mark_root_durable(root);
        self.journal.mark_root_durable(self.checkpoint_head);
    }
}
