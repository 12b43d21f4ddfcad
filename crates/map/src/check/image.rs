//! The structures that a root reaches: every table page, map page, record and catalogue page, each verified;
//! and the map they contain, with the journal applied to it.

use super::area::MetadataArea;
use crate::format::page::{self, Identity, PageKind, PageNumber};
use crate::format::root::Root;
use crate::format::table::{FANOUT, Pointer, Table};
use crate::format::value::{PageId, Record, RecordId, Word};
use crate::log::checkpoint::table_identity;
use crate::log::delta::Delta;
use crate::state::catalogue::Catalogue;
use crate::state::pages::{Page, PageObserver, Pages, Tree, WORDS};
use crate::state::records::{GROUP, NoObserver, Records};
use crate::{Space, Superblock, Volume};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use weir_model::{DeviceExtent, ExtentIndex, Planted, VolumeId};

/// A faulty structure that a root reaches.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) what: &'static str,
    /// The page; `None` if the fault is not in one place.
    pub(super) number: Option<PageNumber>,
    pub(super) why: String,
    pub(super) consequence: String,
    /// Whether the page is good in itself, and was written for a root after the newest: by an interrupted
    /// checkpoint, which may use the page if only the older root reached it.
    pub(super) overwritten: bool,
}

/// The map according to one root, and perhaps the journal.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) catalogue: Catalogue,
    pub(super) pages: Pages,
    pub(super) records: Records,
    /// The metadata pages that it occupies.
    pub(super) used: Space,
    /// The number of pages verified.
    pub(super) pages_verified: u64,
    /// The number of map pages that belong to no volume.
    pub(super) unreached_pages: usize,
    /// The faults; empty if the image is complete.
    pub(super) faults: Vec<Fault>,
}

/// Whether a root that passes its checksum claims more than fits.
pub(super) fn contradicts(root: &Root, sb: &Superblock) -> bool {
    let numbers = [root.sequence, root.journal.journal, root.journal.sequence];
    let objects = root.pages.0.saturating_add(root.groups.0);
    let fits = numbers.iter().all(|n| (1..u64::MAX / 2).contains(n))
        && root.journal.offset < sb.journal_pages * crate::PAGE as u64
        && root.journal.offset.is_multiple_of(crate::PAGE as u64)
        && objects <= 2 * sb.meta_pages * WORDS as u64
        && root.next_volume <= u64::from(u32::MAX);
    !fits
}

impl Image {
    /// Reads everything that the root reaches; damaged parts are left out and listed in `faults`. The root
    /// must not [contradict](contradicts) the superblock.
    pub(super) fn load(area: &mut MetadataArea<'_>, root: &Root) -> Self {
        let sb = area.sb;
        let image = Self {
            catalogue: Catalogue::default(),
            pages: Pages::default(),
            records: Records::new(sb.extent.blocks()),
            used: Space::new(sb.meta_pages as u32),
            pages_verified: 0,
            unreached_pages: 0,
            faults: Vec::new(),
        };
        let mut loading =
            ImageLoader { area, root, image, levels: Vec::new(), damaged_pages: FxHashSet::default() };
        loading.load_map_pages();
        loading.load_record_groups();
        loading.load_catalogue();
        loading.image
    }

    /// Whether everything that the root reaches was there.
    pub(super) fn is_complete(&self) -> bool {
        self.faults.is_empty()
    }

    /// Applies a delta of a journal frame.
    pub(super) fn apply(&mut self, delta: Delta, extent: weir_model::ExtentSize) {
        match delta {
            Delta::Entry { key, word } => {
                if let Some(volume) = self.catalogue.volumes.get_mut(&key.volume) {
                    let mut dropped = Vec::new();
                    let word = word.encode();
                    self.pages.set(&mut volume.tree, key.index, word, &mut NoObserver, &mut dropped);
                    self.pages.reuse(dropped);
                }
            }
            Delta::Record { id, record } => self.records.set(id, record, &mut NoObserver),
            Delta::DropRecord { id } => self.records.drop_record(id, &mut NoObserver),
            Delta::RecordCount { id, count } => {
                if let Some(mut record) = self.records.shared(id) {
                    Arc::make_mut(&mut record).references = count;
                    self.records.set(id, record, &mut NoObserver);
                }
            }
            Delta::Volume { id, name, size, hardening, copies } => {
                // An existing volume keeps its extents, hence its size.
                let (size, tree) = match self.catalogue.volumes.get(&id) {
                    Some(volume) => (volume.size, volume.tree),
                    None => (size, Tree::new(extent.count(size))),
                };
                self.catalogue.volumes.insert(id, Volume { name, size, hardening, copies, tree });
                self.catalogue.next_volume = self.catalogue.next_volume.max(id.0.saturating_add(1));
            }
            Delta::DropVolume { id } => drop(self.catalogue.volumes.remove(&id)),
            Delta::Intent { id, intent } => drop(self.catalogue.intents.insert(id, intent)),
            Delta::EndIntent { id } => drop(self.catalogue.intents.remove(&id)),
        }
    }

    /// Calls `f` with every word of every volume.
    pub(super) fn for_each_word(&self, mut f: impl FnMut(VolumeId, ExtentIndex, u64)) {
        for (id, volume) in &self.catalogue.volumes {
            self.pages.for_each(volume.tree, &mut |index, word| f(*id, index, word));
        }
    }

    /// Iterates over all records.
    pub(super) fn records(&self) -> impl Iterator<Item = (RecordId, Record)> + '_ {
        let ids = (0..(self.records.group_count() * GROUP) as u32).map(RecordId);
        ids.filter_map(|id| self.records.get(id).map(|record| (id, record.into_owned())))
    }
}

impl PageObserver for NoObserver {
    fn before_page_change(&mut self, _: PageId, _: &Page) {}
}

struct ImageLoader<'a, 'b> {
    area: &'a mut MetadataArea<'b>,
    root: &'a Root,
    image: Image,
    /// The level of each map page, by id, for pages that exist.
    levels: Vec<Option<u8>>,
    /// Map pages reported as damaged.
    damaged_pages: FxHashSet<u32>,
}

impl ImageLoader<'_, '_> {
    fn add_fault(
        &mut self,
        what: &'static str,
        number: Option<PageNumber>,
        why: String,
        consequence: String,
    ) {
        let overwritten = number.is_some_and(|n| self.belongs_to_later_root(n));
        self.image.faults.push(Fault { what, number, why, consequence, overwritten });
    }

    fn belongs_to_later_root(&mut self, number: PageNumber) -> bool {
        let pool = self.area.sb.pool;
        let sequence = |page: &[u8]| page::sequence(page, pool, number).ok_or_else(String::new);
        self.area.page(number, sequence).is_ok_and(|sequence| sequence > self.root.sequence)
    }

    /// Reads and verifies the chain of pages of an object.
    fn read_chain(
        &mut self,
        pointer: Pointer,
        identity: Identity,
        what: &'static str,
        consequence: &str,
    ) -> Option<Vec<u8>> {
        let (mut bytes, mut number) = (Vec::new(), pointer.number);
        while number != PageNumber::NONE {
            match self.read_verified_page(number, |_| identity) {
                Ok((_, payload, next)) => {
                    bytes.extend_from_slice(&payload);
                    number = next;
                }
                Err(why) => {
                    self.add_fault(what, Some(number), why, consequence.to_owned());
                    return None;
                }
            }
        }
        Some(bytes)
    }

    /// Reads a page that must match `identity`, which is given the level that the page states. Returns that
    /// level, its payload, and the next page of its chain.
    fn read_verified_page(
        &mut self,
        number: PageNumber,
        identity: impl Fn(u8) -> Identity,
    ) -> Result<(u8, Vec<u8>, PageNumber), String> {
        let claimed = u32::try_from(number.0).is_ok_and(|n| self.image.used.mark_owned(DeviceExtent(n)));
        if !claimed {
            return Err(format!("page {} is used twice, or does not exist", number.0));
        }
        let pool = self.area.sb.pool;
        let opened = self.area.page(number, |page| {
            let (payload, next) = page::open(page, pool, identity(page[5]), number, Planted::NONE)?;
            Ok((page[5], payload.to_vec(), next))
        })?;
        self.image.pages_verified += 1;
        Ok(opened)
    }

    /// Reads a table, from its top down.
    fn read_table(&mut self, kind: PageKind) -> Table {
        let (len, top) = if kind == PageKind::Map { self.root.pages } else { self.root.groups };
        let matters = if kind == PageKind::Map {
            "where parts of the volumes' maps are is not known"
        } else {
            "where some extents' records are is not known"
        };
        let mut table = Table::unloaded(len as usize, top);
        let mut lost = FxHashSet::default();
        for level in (0..table.levels().saturating_sub(1)).rev() {
            for index in 0..table.level(level + 1).len() {
                let pointer = table.page_pointer(level, index);
                // Nothing can be followed below a page that is reported already.
                if lost.contains(&(level + 1, index / FANOUT)) {
                    lost.insert((level, index));
                    continue;
                }
                let identity = table_identity(kind, level, index, pointer.sequence);
                let payload = self.read_chain(pointer, identity, "table page", matters);
                let whole = payload.is_some();
                if !payload.is_some_and(|payload| table.load(level, index, &payload)) {
                    lost.insert((level, index));
                    if whole {
                        let number = Some(pointer.number).filter(|n| *n != PageNumber::NONE);
                        self.add_fault("table page", number, "it has a wrong length".into(), matters.into());
                    }
                }
            }
        }
        table
    }

    fn load_map_pages(&mut self) {
        let table = self.read_table(PageKind::Map);
        self.levels = vec![None; table.len()];
        for id in 0..table.len() {
            let pointer = table.get(id);
            if pointer.is_none() {
                continue;
            }
            match self.load_map_page(PageId(id as u32), pointer) {
                Ok(page) => {
                    self.levels[id] = Some(page.level);
                    self.image.pages.load(PageId(id as u32), page);
                }
                Err(why) => {
                    self.damaged_pages.insert(id as u32);
                    let matters = "part of a volume's map is not known".to_owned();
                    self.add_fault("map page", Some(pointer.number), why, matters);
                }
            }
        }
        self.image.pages.finish_loading(table.len());
    }

    fn load_map_page(&mut self, id: PageId, pointer: Pointer) -> Result<Page, String> {
        // The level is in the page itself; the rest is known from its pointer.
        let identity =
            |level| Identity { kind: PageKind::Map, level, sequence: pointer.sequence, object: id.0.into() };
        let (level, payload, next) = self.read_verified_page(pointer.number, identity)?;
        if payload.len() != WORDS * 8 || next != PageNumber::NONE {
            return Err("it is not one whole page".into());
        }
        let mut page = Page::new(level);
        let (words, _) = payload.as_chunks::<8>();
        for (to, word) in page.words.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*word);
            let decoded = Word::decode(*to)
                .filter(|w| *w == Word::Empty || (level > 0) == matches!(w, Word::Child(_)))
                .ok_or_else(|| format!("{:#x} is no word of it", *to))?;
            page.live += u16::from(decoded != Word::Empty);
        }
        Ok(page)
    }

    fn load_record_groups(&mut self) {
        let table = self.read_table(PageKind::Records);
        let matters = "where the data of some extents is is not known";
        for group in 0..table.len() {
            let pointer = table.get(group);
            if pointer.is_none() {
                continue;
            }
            let identity = Identity {
                kind: PageKind::Records,
                level: 0,
                sequence: pointer.sequence,
                object: group as u64,
            };
            if let Some(bytes) = self.read_chain(pointer, identity, "record page", matters)
                && self.image.records.load_group(group, &bytes).is_none()
            {
                let why = "it does not hold records".to_owned();
                self.add_fault("record page", Some(pointer.number), why, matters.into());
            }
        }
        self.image.records.finish_loading();
    }

    fn load_catalogue(&mut self) {
        let pointer = self.root.catalogue;
        let matters = "which volumes there are is not known";
        let identity =
            Identity { kind: PageKind::Catalogue, level: 0, sequence: pointer.sequence, object: 0 };
        let Some(bytes) = self.read_chain(pointer, identity, "catalogue page", matters) else { return };
        match Catalogue::decode(&bytes, self.root.next_volume as u32) {
            Some(catalogue) => self.image.catalogue = catalogue,
            None => {
                let why = "it does not hold volumes and intents".to_owned();
                return self.add_fault("catalogue page", Some(pointer.number), why, matters.into());
            }
        }
        let mut owned = vec![false; self.levels.len()];
        for (id, volume) in self.image.catalogue.volumes.clone() {
            let expected = Tree::new(self.area.sb.extent.count(volume.size)).height;
            if volume.tree.height == expected {
                self.check_tree(id, &volume, &mut owned);
            } else {
                let why = format!("its map has {} levels, {expected} are needed", volume.tree.height);
                self.add_fault("volume", None, why, format!("volume {} cannot be read", volume.name));
                self.detach_map(id);
            }
        }
        // Below a missing page nothing is reached; that page is reported already.
        if self.image.is_complete() {
            let pages = self.levels.iter().zip(&owned);
            self.image.unreached_pages = pages.filter(|(level, owned)| level.is_some() && !**owned).count();
        }
    }

    /// Detaches the volume's map, so that none of it is used.
    fn detach_map(&mut self, id: VolumeId) {
        if let Some(volume) = self.image.catalogue.volumes.get_mut(&id) {
            volume.tree.root = None;
        }
    }

    /// Walks a volume's tree: every interior word must lead to a page of the level below to which nothing
    /// else leads.
    fn check_tree(&mut self, id: VolumeId, volume: &Volume, owned: &mut [bool]) {
        let top = volume.tree.height - 1;
        let mut left: Vec<_> = volume.tree.root.map(|page| (page, top, 0)).into_iter().collect();
        let before = self.image.faults.len();
        while let Some((page, level, first)) = left.pop() {
            let at = page.0 as usize;
            let is_good = self.levels.get(at) == Some(&Some(level)) && !owned[at];
            if !is_good {
                let reach = crate::state::pages::extents_per_word(u32::from(level) + 1);
                let extent = self.area.sb.extent.bytes().0;
                let (start, end) =
                    (first * extent, first.saturating_add(reach).saturating_mul(extent).min(volume.size.0));
                let why = match self.damaged_pages.contains(&page.0) {
                    true => format!("map page {} is damaged", page.0),
                    false => format!("map page {} is missing, of another level, or used twice", page.0),
                };
                let matters = format!("bytes {start} to {end} of volume {} cannot be read", volume.name);
                self.add_fault("volume", None, why, matters);
                continue;
            }
            owned[at] = true;
            if level == 0 {
                continue;
            }
            let Some(page) = self.image.pages.get(page) else { continue };
            let reach = crate::state::pages::extents_per_word(level.into());
            let children = page.words.iter().enumerate().filter(|(_, word)| **word != 0);
            left.extend(children.map(|(slot, word)| {
                (PageId(*word as u32), level - 1, first.saturating_add((slot as u64).saturating_mul(reach)))
            }));
        }
        if self.image.faults.len() > before {
            self.detach_map(id);
        }
    }
}
