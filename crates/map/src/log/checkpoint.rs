//! Checkpoints: the map as of a journal position, written copy-on-write beside the previous ones.
//!
//! Beginning a checkpoint records which objects differ from the disk. They are captured one by one, and a
//! change to an object that is not captured yet captures it first. So the checkpoint is the map exactly as it
//! was at the beginning, and nothing waits for it. See `docs/reference/format.md` for the order of writes.

use crate::format::page::{self, Identity, PAYLOAD, PageKind, PageNumber};
use crate::format::root::{JournalPosition, Root};
use crate::format::table::{Pointer, Table};
use crate::format::value::PageId;
use crate::state::pages::{Page, PageObserver, Pages};
use crate::state::records::{GroupObserver, Records};
use crate::{Catalogue, PAGE, PoolId};
use std::collections::{BTreeSet, VecDeque};
use weir_model::{DeviceExtent, Mutant, Planted};

/// A sealed page to be written.
pub(crate) type SealedPage = (PageNumber, Box<[u8; PAGE]>);

/// The map's locations on disk. It has thirteen fields: the locations of each kind of object (pages, groups,
/// catalogue, chains), and the parts of each that are not written.
#[derive(Debug)]
pub(crate) struct PageStore {
    pool: PoolId,
    /// The metadata pages in use by any of the roots.
    space: crate::Space,
    /// The newest durable root.
    pub(crate) root: Root,
    pages: Table,
    groups: Table,
    catalogue: Vec<PageNumber>,
    chains: std::collections::BTreeMap<usize, Vec<PageNumber>>,
    /// Objects that differ from the disk.
    dirty_pages: BTreeSet<PageId>,
    dirty_groups: BTreeSet<usize>,
    /// Map pages removed since the last checkpoint began.
    pub(crate) dropped_pages: Vec<PageId>,
    /// Pages that only the root before the newest reaches.
    older_root_pages: Vec<PageNumber>,
    in_progress: Option<CheckpointInProgress>,
    planted: Planted,
}

/// A checkpoint being written.
#[derive(Debug)]
struct CheckpointInProgress {
    sequence: u64,
    journal: JournalPosition,
    next_volume: u32,
    pages: BTreeSet<PageId>,
    groups: BTreeSet<usize>,
    catalogue: Option<Vec<u8>>,
    /// Captured pages that the caller has not taken.
    ready: VecDeque<SealedPage>,
    /// Pages that the newest root reaches and this one will not.
    replaced: Vec<PageNumber>,
}

impl CheckpointInProgress {
    /// Whether nothing is left to capture or to take, except tables.
    fn is_drained(&self) -> bool {
        self.ready.is_empty() && self.pages.is_empty() && self.groups.is_empty() && self.catalogue.is_none()
    }
}

impl PageStore {
    pub(crate) fn new(pool: PoolId, meta_pages: u32, root: Root, planted: Planted) -> Self {
        Self {
            pool,
            space: crate::Space::new(meta_pages),
            pages: Table::unloaded(root.pages.0 as usize, root.pages.1),
            groups: Table::unloaded(root.groups.0 as usize, root.groups.1),
            root,
            catalogue: Vec::new(),
            chains: std::collections::BTreeMap::new(),
            dirty_pages: BTreeSet::new(),
            dirty_groups: BTreeSet::new(),
            dropped_pages: Vec::new(),
            older_root_pages: Vec::new(),
            in_progress: None,
            planted,
        }
    }

    pub(crate) fn table(&mut self, kind: PageKind) -> &mut Table {
        if kind == PageKind::Map { &mut self.pages } else { &mut self.groups }
    }

    /// Marks a page as used by the newest root, during recovery. Returns `false` if it is in use already.
    #[must_use]
    pub(crate) fn claim(&mut self, number: PageNumber) -> bool {
        u32::try_from(number.0).is_ok_and(|n| self.space.mark_owned(DeviceExtent(n)))
    }

    pub(crate) fn claim_chain(&mut self, group: Option<usize>, numbers: Vec<PageNumber>) {
        match group {
            Some(group) => drop(self.chains.insert(group, numbers)),
            None => self.catalogue = numbers,
        }
    }

    /// Returns the pages of the metadata area, and how many of them are free.
    pub(crate) fn page_counts(&self) -> (u32, u32) {
        (self.space.extents(), self.space.free())
    }

    /// Returns the number of objects that differ from the disk.
    pub(crate) fn dirty_objects(&self) -> usize {
        self.dirty_pages.len() + self.dirty_groups.len()
    }

    /// Whether a checkpoint is being written.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// Begins a checkpoint of the current map, which contains the journal up to `journal`. Returns `false`,
    /// beginning nothing, if the metadata area cannot contain it.
    #[must_use]
    pub(crate) fn begin(
        &mut self,
        journal: JournalPosition,
        pages: &mut Pages,
        records: &Records,
        catalogue: &Catalogue,
    ) -> bool {
        assert!(self.in_progress.is_none(), "one checkpoint at a time");
        // Removed pages are not written, however often they came and went.
        for id in &self.dropped_pages {
            self.dirty_pages.remove(id);
        }
        let catalogue_bytes = catalogue.encode();
        let group_pages = |g: &usize| records.encoded_len(*g).div_ceil(PAYLOAD);
        // The number of table pages if all of them are written.
        let page_ids = self.dirty_pages.last().map_or(0, |id| id.0 as usize + 1);
        let group_ids = self.dirty_groups.last().map_or(0, |g| g + 1);
        let needed = self.dirty_pages.len()
            + self.dirty_groups.iter().map(group_pages).sum::<usize>()
            + Table::pages_for(page_ids.max(self.pages.len()))
            + Table::pages_for(group_ids.max(self.groups.len()))
            + catalogue_bytes.len().div_ceil(PAYLOAD);
        if (self.space.free() as usize) < needed {
            return false;
        }
        let mut replaced = Vec::new();
        for id in self.dropped_pages.drain(..) {
            let old = self.pages.get(id.0 as usize);
            if !old.is_none() {
                self.pages.set(id.0 as usize, Pointer::NONE);
                replaced.push(old.number);
            }
            pages.reuse([id]);
        }
        replaced.append(&mut self.catalogue);
        self.in_progress = Some(CheckpointInProgress {
            sequence: self.root.sequence + 1,
            journal,
            next_volume: catalogue.next_volume,
            pages: std::mem::take(&mut self.dirty_pages),
            groups: std::mem::take(&mut self.dirty_groups),
            catalogue: Some(catalogue_bytes),
            ready: VecDeque::new(),
            replaced,
        });
        true
    }

    /// Returns the next page of the checkpoint in progress; `None` when only the root is left, or none is in
    /// progress.
    pub(crate) fn next_page(&mut self, pages: &Pages, records: &Records) -> Option<SealedPage> {
        loop {
            let under_way = self.in_progress.as_mut()?;
            if let Some(sealed) = under_way.ready.pop_front() {
                return Some(sealed);
            }
            if let Some(id) = under_way.pages.pop_first() {
                if let Some(page) = pages.get(id) {
                    self.capture_page(id, page);
                }
            } else if let Some(group) = under_way.groups.pop_first() {
                self.capture_group(group, records);
            } else if let Some(bytes) = under_way.catalogue.take() {
                let object =
                    Identity { kind: PageKind::Catalogue, level: 0, sequence: under_way.sequence, object: 0 };
                self.catalogue = self.seal_chain(object, &bytes);
            } else if !self.capture_table_page(PageKind::Map) && !self.capture_table_page(PageKind::Records) {
                return None;
            }
        }
    }

    /// Returns a page taken with [`Self::next_page`] to the queue.
    pub(crate) fn requeue_page(&mut self, sealed: SealedPage) {
        if let Some(under_way) = &mut self.in_progress {
            under_way.ready.push_front(sealed);
        }
    }

    /// Returns the root of the checkpoint once all its pages have been taken; `None` before.
    pub(crate) fn finished_root(&self) -> Option<Root> {
        let under_way = self.in_progress.as_ref().filter(|u| u.is_drained())?;
        if self.pages.is_dirty() || self.groups.is_dirty() {
            return None;
        }
        let pointer = |numbers: &[PageNumber]| {
            numbers.first().map_or(Pointer::NONE, |number| Pointer {
                number: *number,
                sequence: under_way.sequence,
                count: 1,
            })
        };
        Some(Root {
            sequence: under_way.sequence,
            journal: under_way.journal,
            next_volume: under_way.next_volume.into(),
            catalogue: pointer(&self.catalogue),
            pages: (self.pages.len() as u64, self.pages.top()),
            groups: (self.groups.len() as u64, self.groups.top()),
        })
    }

    /// Notes that the root of the checkpoint in progress is durable: the pages that only the root two before
    /// it reached are free.
    pub(crate) fn mark_root_durable(&mut self, root: Root) {
        let Some(under_way) = self.in_progress.take() else { return };
        let mut free = std::mem::replace(&mut self.older_root_pages, under_way.replaced);
        if self.planted.is(Mutant::OlderPagesReused) {
            free.append(&mut self.older_root_pages);
        }
        for number in free {
            self.space.release(DeviceExtent(number.0 as u32));
        }
        self.root = root;
    }

    fn allocate(&mut self) -> PageNumber {
        // `begin` made sure that there is space.
        self.space.allocate().map_or(PageNumber::NONE, |e| PageNumber(e.0.into()))
    }

    fn replace(&mut self, old: PageNumber) {
        if let Some(under_way) = &mut self.in_progress
            && old != PageNumber::NONE
        {
            if self.planted.is(Mutant::ReplacedPagesReused) {
                return self.space.release(DeviceExtent(old.0 as u32));
            }
            under_way.replaced.push(old);
        }
    }

    fn capture_page(&mut self, id: PageId, page: &Page) {
        let Some(sequence) = self.in_progress.as_ref().map(|u| u.sequence) else { return };
        let identity = Identity { kind: PageKind::Map, level: page.level, sequence, object: id.0.into() };
        let number = self.allocate();
        let mut bytes = Box::new([0; PAGE]);
        let (words, _) = page::payload_mut(&mut bytes[..]).as_chunks_mut::<8>();
        for (to, word) in words.iter_mut().zip(page.words.iter()) {
            *to = word.to_le_bytes();
        }
        page::seal(&mut bytes[..], self.pool, identity, number, PageNumber::NONE, PAYLOAD);
        let old = self.pages.set(id.0 as usize, Pointer { number, sequence, count: 1 });
        self.replace(old.number);
        if let Some(under_way) = &mut self.in_progress {
            under_way.ready.push_back((number, bytes));
        }
    }

    fn capture_group(&mut self, group: usize, records: &Records) {
        let Some(sequence) = self.in_progress.as_ref().map(|u| u.sequence) else { return };
        let old = self.chains.remove(&group).unwrap_or_else(|| {
            // A chain of one page has no entry: the table names it.
            Some(self.groups.get(group)).filter(|p| !p.is_none()).map(|p| p.number).into_iter().collect()
        });
        old.into_iter().for_each(|number| self.replace(number));
        if records.group_is_empty(group) {
            self.groups.set(group, Pointer::NONE);
            return;
        }
        let identity = Identity { kind: PageKind::Records, level: 0, sequence, object: group as u64 };
        let chain = self.seal_chain(identity, &records.encode_group(group));
        let number = chain.first().copied().unwrap_or(PageNumber::NONE);
        self.groups.set(group, Pointer { number, sequence, count: 1 });
        if chain.len() > 1 {
            self.chains.insert(group, chain);
        }
    }

    /// Seals an object's bytes as a chain of pages; empty bytes need none.
    fn seal_chain(&mut self, identity: Identity, bytes: &[u8]) -> Vec<PageNumber> {
        let numbers: Vec<_> = bytes.chunks(PAYLOAD).map(|_| self.allocate()).collect();
        for (i, payload) in bytes.chunks(PAYLOAD).enumerate() {
            let next = numbers.get(i + 1).copied().unwrap_or(PageNumber::NONE);
            self.seal_payload(identity, numbers[i], next, payload);
        }
        numbers
    }

    fn seal_payload(&mut self, identity: Identity, number: PageNumber, next: PageNumber, payload: &[u8]) {
        let mut page = Box::new([0; PAGE]);
        page::payload_mut(&mut page[..])[..payload.len()].copy_from_slice(payload);
        page::seal(&mut page[..], self.pool, identity, number, next, payload.len());
        if let Some(under_way) = &mut self.in_progress {
            under_way.ready.push_back((number, page));
        }
    }

    /// Captures one table page that differs from the disk's. Returns `false` if there is none.
    fn capture_table_page(&mut self, kind: PageKind) -> bool {
        let Some(sequence) = self.in_progress.as_ref().map(|u| u.sequence) else { return false };
        let Some((level, index, payload)) = self.table(kind).take_dirty() else { return false };
        let number = self.allocate();
        let identity = table_identity(kind, level, index, sequence);
        self.seal_payload(identity, number, PageNumber::NONE, &payload);
        let pointer = Pointer { number, sequence, count: 1 };
        let old = self.table(kind).set_at(level + 1, index, pointer);
        self.replace(old.number);
        true
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.pages.memory() + self.groups.memory() + self.space.memory()
    }
}

/// Returns the identity of a table page. Both tables share the page kind, so the top bit distinguishes the
/// record table's objects.
pub(crate) fn table_identity(kind: PageKind, level: usize, index: usize, sequence: u64) -> Identity {
    let table = if kind == PageKind::Map { 0 } else { 1 << 63 };
    Identity { kind: PageKind::Table, level: level as u8 + 1, sequence, object: index as u64 | table }
}

impl PageObserver for PageStore {
    fn before_page_change(&mut self, id: PageId, page: &Page) {
        if self.in_progress.as_mut().is_some_and(|u| u.pages.remove(&id)) {
            self.capture_page(id, page);
        }
        if self.in_progress.is_some() && self.planted.is(Mutant::ChangeDuringCheckpointClean) {
            return;
        }
        self.dirty_pages.insert(id);
    }
}

impl GroupObserver for PageStore {
    fn before_group_change(&mut self, number: usize, records: &Records) {
        if self.in_progress.as_mut().is_some_and(|u| u.groups.remove(&number)) {
            self.capture_group(number, records);
        }
        self.dirty_groups.insert(number);
    }
}
