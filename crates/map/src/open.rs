//! Opening a pool: newest valid root, replay, free space, a fresh journal. See `docs/reference/format.md`,
//! Recovery.

pub mod create;
pub(crate) mod expected;
pub(crate) mod members;
pub mod outdated;
pub(crate) mod owners;
pub(crate) mod reader;
pub(crate) mod recover_places;
pub(crate) mod replace;
pub(crate) mod synchronize;

use crate::format::page::{Identity, PageKind, PageNumber};
use crate::format::root::{JournalPosition, Root};
use crate::format::superblock::{JOURNAL_AT, ROOT_AT};
use crate::format::table::Pointer;
use crate::format::value::{PageId, Word};
use crate::log::batch::Commit;
use crate::log::checkpoint::{self, table_identity};
use crate::log::journal::{self, FRAME_MAX, Journal, ReplayEnd};
use crate::map::Map;
use crate::open::members::{Assembly, OpenOptions};
use crate::open::reader::{ExpectedPage, Reader, Repair};
use crate::state::overlay::Overlay;
use crate::state::pages::{Page, Pages, Tree, WORDS};
use crate::state::records::Records;
use crate::state::usage::{PendingReleases, UsageByVolume};
use crate::{Catalogue, MapError, PAGE, Superblock};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use weir_model::{Bytes, DeviceId, DeviceOffset, DeviceSet, Mutant, Planted, Store};

/// The report of an opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The sequence of the root it started from.
    pub root: u64,
    /// Frames replayed from the journal.
    pub frames: u64,
    /// Bytes read.
    pub bytes_read: Bytes,
    /// Whether the newest root was unusable, and the one before was used.
    pub older_root: bool,
    /// Metadata pages that were damaged on one member and rewritten from the other.
    pub repaired: u64,
    /// Absent devices; requests for their data give I/O errors.
    pub absent: DeviceSet,
    /// Metadata members that had been left behind and were rewritten from the other.
    pub synchronized: DeviceSet,
    /// Devices that were present as older files than the pool had used: the data that others have too is
    /// copied to them again.
    pub outdated: DeviceSet,
    /// Of these, blank devices that have replaced others.
    pub blank: DeviceSet,
    /// Metadata members left behind from now on: they are absent, or failed during the opening after their
    /// superblocks were known to be durable.
    pub left_behind: DeviceSet,
}

/// The state of a map being loaded.
#[derive(Default)]
struct LoadState {
    frames: u64,
    bytes_read: Bytes,
    repairs: Vec<Repair>,
    /// Metadata pages that the root reaches.
    used: Vec<PageNumber>,
}

/// Opens the pool whose devices have these superblocks (in any order), recovers it and gives it a new
/// journal.
///
/// Afterwards both roots of every metadata member contain the recovered map, and everything on the devices is
/// durable: data that a killed server left in their caches is visible from now on, and no power loss reverts
/// it. A power loss at any point of the opening, and any number of them, does not change the result.
///
/// If the metadata is mirrored, either member alone suffices; but see [`OpenOptions`]. A member that was left
/// behind is rewritten from the other.
///
/// # Errors
/// Fails if the superblocks do not belong together, if a device is absent without which the pool must not be
/// opened, if a device fails, or if stored metadata is damaged. Only metadata pages that no root reaches have
/// then been written, and the root in use and the superblocks, with the same content.
pub fn open(
    store: &mut dyn Store,
    superblocks: &[Superblock],
    options: &OpenOptions,
) -> Result<(Map, Recovery), MapError> {
    open_with(store, superblocks, options, |_| Ok(())).map(|(map, recovery, ())| (map, recovery))
}

/// Opens the pool like [`open`], but calls `tidy` to examine and change the recovered map before anything is
/// written: if it refuses, nothing has changed.
pub(crate) fn open_with<T>(
    store: &mut dyn Store,
    superblocks: &[Superblock],
    options: &OpenOptions,
    tidy: impl FnOnce(&mut Map) -> Result<T, MapError>,
) -> Result<(Map, Recovery, T), MapError> {
    let mut assembly = Assembly::new(superblocks, options)?;
    let mut members = read_roots(store, &assembly)?;
    let sequences = |roots: &[Root]| roots.iter().map(|root| root.sequence).collect();
    let older: Vec<_> = members.iter().map(|(device, roots)| (*device, sequences(roots))).collect();
    let older = older_members(&older);
    if !older.is_empty() && !options.planted.is(Mutant::OutdatedDeviceTrusted) {
        assembly = Assembly::with_older(superblocks, options, older)?;
        members.retain(|(device, _)| assembly.members.contains(device));
    }
    let roots = newest_first(members, options.planted);
    let (newest, least) = roots.first().map_or((0, 0), |r| (r.sequence, r.journal.sequence));
    let mut first_error = None;
    for root in roots {
        let root_sequence = root.sequence;
        let mut loaded = LoadState::default();
        match load(store, &assembly, root.clone(), least, &mut loaded) {
            Ok(mut map) => {
                let older_root = root_sequence < newest;
                if older_root {
                    // The damaged newest root is overwritten first, with another sequence, so that a page it
                    // reaches is never mistaken for one written now.
                    map.store.root.sequence = newest + 1;
                }
                let tidied = tidy(&mut map)?;
                let repaired = loaded.repairs.len() as u64;
                let levelled = map.activate(store, &assembly, &root, loaded.repairs, &loaded.used)?;
                let recovery = Recovery {
                    root: root_sequence,
                    frames: loaded.frames,
                    bytes_read: loaded.bytes_read,
                    older_root,
                    repaired,
                    absent: map.absent(),
                    synchronized: levelled,
                    outdated: assembly.outdated,
                    blank: assembly.blank(),
                    left_behind: map.left_behind(),
                };
                return Ok((map, recovery, tidied));
            }
            // Only damage is a reason to try the other root; a failing device is not.
            Err(e @ MapError::Damaged { .. }) => drop(first_error.get_or_insert(e)),
            Err(e) => return Err(e),
        }
    }
    Err(first_error.unwrap_or_else(|| MapError::Damaged {
        device: assembly.members[0],
        what: "root",
        at: ROOT_AT[0],
        why: "neither slot holds a valid root".into(),
    }))
}

/// Reads the valid roots of each member. A member whose roots cannot be read has none, unless it is the only
/// one.
fn read_roots(store: &mut dyn Store, assembly: &Assembly) -> Result<Vec<(DeviceId, Vec<Root>)>, MapError> {
    let pool = assembly.superblocks[0].pool;
    let (mut members, mut failures) = (Vec::new(), Vec::new());
    for &device in &assembly.members {
        let mut roots = Vec::new();
        for (slot, at) in ROOT_AT.into_iter().enumerate() {
            let mut page = vec![0; PAGE];
            match create::read(store, device, at, &mut page) {
                Ok(()) => roots.extend(Root::decode(&page, pool).filter(|root| root.slot() == slot)),
                Err(error) => failures.push((device, error)),
            }
        }
        members.push((device, roots));
    }
    let failed: DeviceSet = failures.iter().map(|(device, _)| *device).collect();
    match failures.into_iter().next() {
        Some((_, error)) if failed.len() == assembly.members.len() => Err(error),
        _ => Ok(members),
    }
}

/// Returns the members that are older files, judged by the sequences of their roots: both precede both of
/// another member. A root is written only once the one before it is durable on every current member, or once
/// it is durably recorded that one of them missed it; so two members in use have a root in common.
pub(crate) fn older_members(members: &[(DeviceId, Vec<u64>)]) -> DeviceSet {
    let whole = || members.iter().filter(|(_, roots)| roots.len() == ROOT_AT.len());
    let is_older = |roots: &[u64]| whole().any(|(_, others)| roots.iter().max() < others.iter().min());
    whole().filter(|(_, roots)| is_older(roots)).map(|(device, _)| *device).collect()
}

/// Returns all roots, newest first.
fn newest_first(members: Vec<(DeviceId, Vec<Root>)>, planted: Planted) -> Vec<Root> {
    let mut roots: Vec<Root> = members.into_iter().flat_map(|(_, roots)| roots).collect();
    roots.sort_by_key(|r| std::cmp::Reverse(r.sequence));
    roots.dedup();
    if planted.is(Mutant::StaleRootChosen) {
        roots.reverse();
    }
    roots
}

/// Reads the journal rings of all members. A member that cannot be read has no frames, unless it is the only
/// one.
fn read_rings(store: &mut dyn Store, assembly: &Assembly, ring: Bytes) -> Result<Vec<Vec<u8>>, MapError> {
    let mut rings = vec![vec![0; ring.0 as usize]; assembly.members.len()];
    for part in (0..ring.0 as usize).step_by(FRAME_MAX) {
        let end = (part + FRAME_MAX).min(ring.0 as usize);
        let at = DeviceOffset(JOURNAL_AT.0 + part as u64);
        let mut result = Ok(());
        let mut good = 0;
        for (device, ring) in assembly.members.iter().zip(&mut rings) {
            match create::read(store, *device, at, &mut ring[part..end]) {
                Ok(()) => good += 1,
                Err(error) => {
                    ring[part..end].fill(0);
                    result = Err(error);
                }
            }
        }
        if good == 0 {
            result?;
        }
    }
    Ok(rings)
}

/// Loads the map that a root reaches and replays the journal after it, which must lead to frame `least`, the
/// position of the newest root: without the frames in between, the result would be an older state.
fn load(
    store: &mut dyn Store,
    assembly: &Assembly,
    root: Root,
    least: u64,
    loaded: &mut LoadState,
) -> Result<Map, MapError> {
    let members = &assembly.members;
    let sb = &assembly.superblocks[members[0].index()];
    let ring = Bytes(sb.journal_pages * PAGE as u64);
    let journal_at = root.journal;
    let damaged = |what, at: u64, why: String| MapError::Damaged {
        device: members[0],
        what,
        at: DeviceOffset(at),
        why,
    };
    // A root of this pool may pass its checksum but claim more than fits.
    let objects = root.pages.0.saturating_add(root.groups.0);
    let numbers = [root.sequence, journal_at.journal, journal_at.sequence];
    let fits = numbers.iter().all(|n| (1..u64::MAX / 2).contains(n))
        && journal_at.offset < ring.0
        && journal_at.offset.is_multiple_of(PAGE as u64)
        && objects <= 2 * sb.meta_pages * WORDS as u64
        && root.next_volume <= u64::from(u32::MAX);
    if !fits {
        return Err(damaged("root", ROOT_AT[root.slot()].0, "its fields contradict the superblock".into()));
    }
    let blocks = sb.extent.blocks();
    let mut map = Map {
        pool: sb.pool,
        extent: sb.extent,
        blocks,
        devices: assembly.superblocks.clone(),
        present: assembly.present,
        members: members.clone(),
        catalogue: Catalogue::default(),
        pages: Pages::default(),
        records: Records::new(blocks),
        spaces: Vec::new(),
        space_changes: 0,
        overlay: Overlay::new(assembly.planted),
        expected_pages: FxHashSet::default(),
        queued_deltas: VecDeque::new(),
        journal: Journal::new(sb.pool, ring, journal_at, assembly.planted),
        store: checkpoint::PageStore::new(sb.pool, sb.meta_pages as u32, root, assembly.planted),
        commit: Commit::new(ring.0),
        pending_releases: PendingReleases::default(),
        usage_by_volume: UsageByVolume::default(),
        checkpoint_head: 0,
        planted: assembly.planted,
    };
    let mut reader = Reader::new(store, sb, members, assembly.planted);
    map.load_objects(&mut reader)?;
    (loaded.bytes_read, loaded.repairs, loaded.used) = (reader.bytes_read, reader.repairs, reader.used);

    let mut rings = read_rings(store, assembly, ring)?;
    if assembly.planted.is(Mutant::StaleRootChosen) {
        rings.iter_mut().for_each(|ring| ring.fill(0));
    }
    loaded.bytes_read += Bytes(ring.0 * rings.len() as u64);
    let (at, end) = journal::replay(&rings, journal_at, sb.pool, blocks, assembly.planted, |frame| {
        loaded.frames += 1;
        frame.deltas.into_iter().for_each(|delta| map.apply(delta));
    });
    let end = match end {
        ReplayEnd::Tail if at.sequence < least => {
            ReplayEnd::Damaged { sequence: at.sequence, offset: at.offset }
        }
        end => end,
    };
    if let Some((offset, why)) = end.fault() {
        return Err(damaged("journal", JOURNAL_AT.0 + offset, why));
    }
    let id_kept = assembly.planted.is(Mutant::JournalIdKept);
    let incarnation_kept = assembly.planted.is(Mutant::JournalIncarnationKept);
    let first = JournalPosition {
        journal: if id_kept { journal_at.journal } else { journal_at.journal + 1 },
        offset: 0,
        sequence: at.sequence,
        chain: 0,
        incarnation: if incarnation_kept { journal_at.incarnation } else { sb.generation as u32 },
    };
    map.journal = Journal::new(sb.pool, ring, first, assembly.planted);
    map.records.finish_loading();
    loaded.bytes_read += map.recover_places(store, assembly)?;
    map.rebuild_space()?;
    map.count_usage();
    Ok(map)
}

impl Map {
    pub(crate) fn damaged(&self, what: &'static str, number: PageNumber, why: String) -> MapError {
        let at = self.page_address(PageNumber(number.0.min(self.layout().meta_pages)));
        MapError::Damaged { device: self.members[0], what, at, why }
    }

    /// Loads tables, map pages, records and catalogue as the root reaches them.
    fn load_objects(&mut self, reader: &mut Reader<'_>) -> Result<(), MapError> {
        for kind in [PageKind::Map, PageKind::Records] {
            for level in (0..self.store.table(kind).levels().saturating_sub(1)).rev() {
                for index in reader.plan(self.store.table(kind).level(level + 1)) {
                    let pointer = self.store.table(kind).page_pointer(level, index);
                    let identity = table_identity(kind, level, index, pointer.sequence);
                    let (payload, _) = self.object(reader, pointer, identity, "table page")?;
                    if !self.store.table(kind).load(level, index, &payload) {
                        return Err(self.damaged("table page", pointer.number, "wrong length".into()));
                    }
                }
            }
        }
        for id in reader.plan(self.store.table(PageKind::Map).objects()) {
            let pointer = self.store.table(PageKind::Map).get(id);
            if !pointer.is_none() {
                self.load_map_page(reader, PageId(id as u32), pointer)?;
            }
        }
        let ids = self.store.table(PageKind::Map).len();
        self.pages.finish_loading(ids);
        for group in reader.plan(self.store.table(PageKind::Records).objects()) {
            let pointer = self.store.table(PageKind::Records).get(group);
            if !pointer.is_none() {
                let object = group as u64;
                let identity =
                    Identity { kind: PageKind::Records, level: 0, sequence: pointer.sequence, object };
                let (bytes, chain) = self.object(reader, pointer, identity, "record page")?;
                if chain.len() > 1 {
                    self.store.claim_chain(Some(group), chain);
                }
                if self.records.load_group(group, &bytes).is_none() {
                    return Err(self.damaged(
                        "record page",
                        pointer.number,
                        "it holds something else".into(),
                    ));
                }
            }
        }
        self.load_catalogue(reader)
    }

    fn load_catalogue(&mut self, reader: &mut Reader<'_>) -> Result<(), MapError> {
        let pointer = self.store.root.catalogue;
        let next_volume = self.store.root.next_volume as u32;
        let mut bytes = Vec::new();
        if !pointer.is_none() {
            let identity =
                Identity { kind: PageKind::Catalogue, level: 0, sequence: pointer.sequence, object: 0 };
            let (all, chain) = self.object(reader, pointer, identity, "catalogue page")?;
            bytes = all;
            self.store.claim_chain(None, chain);
        }
        self.catalogue = Catalogue::decode(&bytes, next_volume).ok_or_else(|| {
            self.damaged("catalogue page", pointer.number, "it holds something else".into())
        })?;
        for (id, volume) in &self.catalogue.volumes {
            let height = Tree::new(self.extent.count(volume.size)).height;
            if volume.tree.height != height || !self.pages.is_complete(volume.tree) {
                let why = format!("the map of volume {} ({}) has gaps", volume.name, id.0);
                return Err(self.damaged("map page", PageNumber(0), why));
            }
        }
        Ok(())
    }

    /// Reads and verifies the chain of pages of an object. Returns its bytes, and the pages' numbers.
    fn object(
        &mut self,
        reader: &mut Reader<'_>,
        pointer: Pointer,
        identity: Identity,
        what: &'static str,
    ) -> Result<(Vec<u8>, Vec<PageNumber>), MapError> {
        let (mut bytes, mut chain) = (Vec::new(), Vec::new());
        let mut number = pointer.number;
        while number != PageNumber::NONE {
            if !self.store.claim(number) {
                return Err(self.damaged(what, number, "its place is used twice, or does not exist".into()));
            }
            let page = reader.page(number, ExpectedPage { identity, any_level: false, what })?;
            bytes.extend_from_slice(&page.payload);
            chain.push(number);
            number = page.next;
        }
        Ok((bytes, chain))
    }

    fn load_map_page(
        &mut self,
        reader: &mut Reader<'_>,
        id: PageId,
        pointer: Pointer,
    ) -> Result<(), MapError> {
        let number = pointer.number;
        if !self.store.claim(number) {
            return Err(self.damaged(
                "map page",
                number,
                "its place is used twice, or does not exist".into(),
            ));
        }
        let identity =
            Identity { kind: PageKind::Map, level: 0, sequence: pointer.sequence, object: id.0.into() };
        let read = reader.page(number, ExpectedPage { identity, any_level: true, what: "map page" })?;
        let level = read.level;
        let mut page = Page::new(level);
        let (words, _) = read.payload.as_chunks::<8>();
        for (to, word) in page.words.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*word);
            let decoded = Word::decode(*to)
                .filter(|w| *w == Word::Empty || (level > 0) == matches!(w, Word::Child(_)))
                .ok_or_else(|| self.damaged("map page", number, format!("{:#x} is no word of it", *to)))?;
            page.live += u16::from(decoded != Word::Empty);
        }
        self.pages.load(id, page);
        Ok(())
    }
}
