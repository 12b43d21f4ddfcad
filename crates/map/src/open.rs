//! Opening a pool: newest valid root, replay, free space, a fresh journal. See `docs/format.md`,
//! Recovery.

use crate::batch::Commit;
use crate::checkpoint::{self, table_identity};
use crate::create;
use crate::journal::{self, End, FRAME_MAX, Journal};
use crate::map::Map;
use crate::overlay::Overlay;
use crate::page::{self, Identity, PageKind, PageNumber};
use crate::pages::{Page, Pages, Tree, WORDS};
use crate::records::Records;
use crate::root::Root;
use crate::superblock::{JOURNAL_AT, ROOT_AT};
use crate::table::Pointer;
use crate::value::{Location, PageId, Whole, Word};
use crate::{Catalogue, MapError, PAGE, Space, Superblock};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use weir_model::{Bytes, DeviceId, DeviceOffset, Store};

/// What opening found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Sequence of the root it started from.
    pub root: u64,
    /// Frames replayed from the journal.
    pub frames: u64,
    /// Bytes read.
    pub read: Bytes,
    /// The newest root could not be used, and the one before was.
    pub older_root: bool,
}

/// Opens the pool whose devices carry these superblocks (by device id), recovers it and gives it a
/// new journal. Afterwards both roots hold the recovered map, and everything on the devices is
/// durable: what a server that was killed left in their caches is read from now on, and no power cut
/// takes it back. A power cut at any point of it, and any number of them, changes nothing about the
/// result.
///
/// # Errors
/// If the superblocks do not belong together, a device fails, or what is stored is damaged; nothing
/// but metadata pages no root reaches has then been written.
pub fn open(store: &mut dyn Store, superblocks: Vec<Superblock>) -> Result<(Map, Recovery), MapError> {
    open_and(store, superblocks, |_| ())
}

/// Opens the pool like [`open`], and `tidy`s the recovered map before it becomes durable in both roots.
pub(crate) fn open_and(
    store: &mut dyn Store,
    superblocks: Vec<Superblock>,
    tidy: impl FnOnce(&mut Map),
) -> Result<(Map, Recovery), MapError> {
    let metadata = check_together(&superblocks)?;
    let sb = &superblocks[metadata.index()];
    let mut roots = Vec::new();
    for (slot, at) in ROOT_AT.into_iter().enumerate() {
        let mut page = vec![0; PAGE];
        create::read(store, metadata, at, &mut page)?;
        roots.extend(Root::decode(&page, sb.pool).filter(|root| root.slot() == slot));
    }
    roots.sort_by_key(|r| std::cmp::Reverse(r.sequence));
    let newest = roots.first().map_or(0, |r| r.sequence);
    let mut first_error = None;
    for (i, root) in roots.into_iter().enumerate() {
        let mut recovery = Recovery { root: root.sequence, older_root: i > 0, ..Recovery::default() };
        match load(store, &superblocks, metadata, root, &mut recovery) {
            Ok(mut map) => {
                if recovery.older_root {
                    // The damaged newest root is overwritten first, and by another sequence: a page it
                    // reaches is never mistaken for one written now.
                    map.store.root.sequence = newest + 1;
                }
                tidy(&mut map);
                map.start_journal(store)?;
                return Ok((map, recovery));
            }
            // Only damage is a reason to try the other root; a failing device is not.
            Err(e @ MapError::Damaged { .. }) => drop(first_error.get_or_insert(e)),
            Err(e) => return Err(e),
        }
    }
    Err(first_error.unwrap_or_else(|| MapError::Damaged {
        device: metadata,
        what: "root",
        at: ROOT_AT[0],
        why: "neither slot holds a valid root".into(),
    }))
}

/// The metadata member of superblocks that form one whole pool.
fn check_together(superblocks: &[Superblock]) -> Result<DeviceId, MapError> {
    let mismatch = |why: String| Err(MapError::Mismatch(why));
    let Some(first) = superblocks.first() else { return mismatch("there are none".into()) };
    if superblocks.len() != usize::from(first.devices) {
        return mismatch(format!("the pool has {} devices, {} are given", first.devices, superblocks.len()));
    }
    for (i, sb) in superblocks.iter().enumerate() {
        if sb.pool != first.pool {
            return mismatch(format!(
                "device {:?} is of pool {} ({:?}), device {:?} of pool {} ({:?})",
                sb.device_name, sb.pool, sb.pool_name, first.device_name, first.pool, first.pool_name
            ));
        }
        if sb.device.index() != i || sb.extent != first.extent {
            return mismatch(format!(
                "device {:?} is number {} of the pool, found as number {i}",
                sb.device_name, sb.device.0
            ));
        }
    }
    let members: Vec<_> =
        superblocks.iter().filter(|sb| sb.is_metadata_member()).map(|sb| sb.device).collect();
    match members[..] {
        [one] => Ok(one),
        _ => mismatch(format!("{} devices carry metadata, one is expected", members.len())),
    }
}

/// Loads the map a root reaches and replays the journal since.
fn load(
    store: &mut dyn Store,
    superblocks: &[Superblock],
    metadata: DeviceId,
    root: Root,
    recovery: &mut Recovery,
) -> Result<Map, MapError> {
    let sb = &superblocks[metadata.index()];
    let ring_bytes = sb.journal_pages * PAGE as u64;
    let journal_at = root.journal;
    let damaged =
        |what, at: u64, why: String| MapError::Damaged { device: metadata, what, at: DeviceOffset(at), why };
    // A root of this pool that passes its checksum but speaks of more than there is room for.
    let objects = root.pages.0.saturating_add(root.groups.0);
    let numbers = [root.sequence, journal_at.journal, journal_at.sequence];
    let fits = numbers.iter().all(|n| (1..u64::MAX / 2).contains(n))
        && journal_at.offset < ring_bytes
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
        devices: superblocks.to_vec(),
        metadata,
        catalogue: Catalogue::default(),
        pages: Pages::default(),
        records: Records::new(blocks),
        spaces: Vec::new(),
        overlay: Overlay::default(),
        pages_to_come: FxHashSet::default(),
        admin: VecDeque::new(),
        journal: Journal::new(
            sb.pool,
            ring_bytes,
            journal_at.journal + 1,
            sb.incarnation,
            journal_at.sequence,
        ),
        store: checkpoint::Store::new(sb.pool, sb.meta_pages as u32, root),
        commit: Commit::new(ring_bytes),
        releasing: 0,
        checkpoint_head: 0,
    };
    let mut reader = Reader::new(store, sb);
    map.load_objects(&mut reader)?;
    recovery.read = reader.read;
    drop(reader);

    let mut ring = vec![0; ring_bytes as usize];
    for (i, part) in ring.chunks_mut(FRAME_MAX).enumerate() {
        create::read(store, metadata, DeviceOffset(JOURNAL_AT.0 + (i * FRAME_MAX) as u64), part)?;
    }
    recovery.read += Bytes(ring_bytes);
    let (at, end) = journal::replay(&ring, journal_at, sb.pool, blocks, |frame| {
        recovery.frames += 1;
        frame.deltas.into_iter().for_each(|delta| map.apply(delta));
    });
    if let End::Damaged { sequence, offset } = end {
        let why = format!("frame {sequence} was durable once and does not verify");
        return Err(damaged("journal", JOURNAL_AT.0 + offset, why));
    }
    map.journal = Journal::new(sb.pool, ring_bytes, journal_at.journal + 1, sb.incarnation, at.sequence);
    map.records.finish_loading();
    map.settle_intents();
    map.rebuild_space()?;
    Ok(map)
}

impl Map {
    fn damaged(&self, what: &'static str, number: PageNumber, why: String) -> MapError {
        let at = self.page_address(PageNumber(number.0.min(self.devices[self.metadata.index()].meta_pages)));
        MapError::Damaged { device: self.metadata, what, at, why }
    }

    /// Loads tables, map pages, records and catalogue as the root reaches them.
    fn load_objects(&mut self, reader: &mut Reader<'_>) -> Result<(), MapError> {
        for kind in [PageKind::Map, PageKind::Records] {
            for level in (0..self.store.table(kind).levels().saturating_sub(1)).rev() {
                for index in 0..self.store.table(kind).level(level + 1).len() {
                    let pointer = self.store.table(kind).page_pointer(level, index);
                    let identity = table_identity(kind, level, index, pointer.sequence);
                    let (payload, _) = self.object(reader, pointer, identity, "table page")?;
                    if !self.store.table(kind).load(level, index, &payload) {
                        return Err(self.damaged("table page", pointer.number, "wrong length".into()));
                    }
                }
            }
        }
        for id in 0..self.store.table(PageKind::Map).len() {
            let pointer = self.store.table(PageKind::Map).get(id);
            if !pointer.is_none() {
                self.load_map_page(reader, PageId(id as u32), pointer)?;
            }
        }
        let ids = self.store.table(PageKind::Map).len();
        self.pages.finish_loading(ids);
        for group in 0..self.store.table(PageKind::Records).len() {
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
            if volume.tree.height != height || !self.pages.is_whole(volume.tree) {
                let why = format!("the map of volume {} ({}) has gaps", volume.name, id.0);
                return Err(self.damaged("map page", PageNumber(0), why));
            }
        }
        Ok(())
    }

    /// Reads and checks the chain of pages of an object; its bytes, and the pages' numbers.
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
            let page = reader.page(number)?;
            let (payload, next) = page::open(page, self.pool, identity, number)
                .map_err(|why| self.damaged(what, number, why))?;
            bytes.extend_from_slice(payload);
            chain.push(number);
            number = next;
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
        let bytes = reader.page(number)?;
        // The level is in the page; the page is otherwise checked against the pointer.
        let level = bytes[5];
        let identity =
            Identity { kind: PageKind::Map, level, sequence: pointer.sequence, object: id.0.into() };
        let (payload, _) = page::open(bytes, self.pool, identity, number)
            .map_err(|why| self.damaged("map page", number, why))?;
        let mut page = Page::new(level);
        let (words, _) = payload.as_chunks::<8>();
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

    /// Free space is what no page, record or slot names.
    fn rebuild_space(&mut self) -> Result<(), MapError> {
        let mut spaces: Vec<Space> = self.devices.iter().map(|sb| Space::new(sb.data_extents)).collect();
        let mut trouble = None;
        let mut take = |location: &Location, owner: &dyn Fn() -> String| {
            let taken = match location {
                Location::Whole(whole) => take_whole(&mut spaces, *whole),
                Location::Fine { device, slots } => slots.iter().all(|slot| {
                    spaces.get_mut(device.index()).is_some_and(|s| s.take_slot(*slot, self.blocks))
                }),
            };
            if !taken && trouble.is_none() {
                trouble =
                    Some(format!("{location:?}, named by {}, has another owner or does not exist", owner()));
            }
        };
        let mut lost = None;
        for (id, volume) in &self.catalogue.volumes {
            self.pages.for_each(volume.tree, &mut |index, word| {
                let owner = || format!("volume {} extent {}", id.0, index.0);
                match Word::decode(word) {
                    Some(Word::Direct(whole)) => take(&Location::Whole(whole), &owner),
                    Some(Word::Record(record)) => match self.records.get(record) {
                        Some(record) => record.places.iter().for_each(|p| take(&p.at, &owner)),
                        None => lost = Some(format!("there is no record {}, named by {}", record.0, owner())),
                    },
                    _ => {}
                }
            });
        }
        if let Some(why) = trouble.or(lost) {
            return Err(self.damaged("map", PageNumber(0), why));
        }
        self.spaces = spaces;
        Ok(())
    }

    /// Gives the map a new journal, durable in both roots before anything is served.
    fn start_journal(&mut self, store: &mut dyn Store) -> Result<(), MapError> {
        for sb in &self.devices {
            create::flush(store, sb.device)?;
        }
        self.checkpoint_now(store)?;
        self.checkpoint_now(store)
    }

    /// Writes a checkpoint, waiting for it: when opening, and for offline commands.
    ///
    /// # Errors
    /// If the metadata device fails or has no room.
    pub fn checkpoint_now(&mut self, store: &mut dyn Store) -> Result<(), MapError> {
        self.begin_checkpoint()?;
        let mut bytes = Vec::new();
        while let Some(to) = self.next_pages(FRAME_MAX, &mut bytes) {
            create::write(store, to.device, to.at, &bytes)?;
        }
        create::flush(store, self.metadata)?;
        if let Some((root, page, to)) = self.finished_root() {
            create::write(store, to.device, to.at, &page[..])?;
            create::flush(store, to.device)?;
            self.checkpoint_durable(root);
        }
        Ok(())
    }
}

fn take_whole(spaces: &mut [Space], whole: Whole) -> bool {
    spaces.get_mut(whole.device.index()).is_some_and(|s| s.take(whole.extent))
}

/// Reads metadata pages through windows of 1 MiB: a checkpoint's pages lie side by side.
struct Reader<'a> {
    store: &'a mut dyn Store,
    sb: &'a Superblock,
    windows: FxHashMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    read: Bytes,
}

const WINDOW_PAGES: u64 = 256;
const WINDOWS_MAX: usize = 128;

impl<'a> Reader<'a> {
    fn new(store: &'a mut dyn Store, sb: &'a Superblock) -> Self {
        Self { store, sb, windows: FxHashMap::default(), order: VecDeque::new(), read: Bytes(0) }
    }

    fn page(&mut self, number: PageNumber) -> Result<&[u8], MapError> {
        let window = number.0 / WINDOW_PAGES;
        if !self.windows.contains_key(&window) {
            if self.order.len() == WINDOWS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.windows.remove(&oldest);
            }
            let first = window * WINDOW_PAGES;
            let pages = WINDOW_PAGES.min(self.sb.meta_pages.saturating_sub(first));
            let mut bytes = vec![0; pages as usize * PAGE];
            let at = DeviceOffset(self.sb.pages_at().0 + first * PAGE as u64);
            create::read(self.store, self.sb.device, at, &mut bytes)?;
            self.read += Bytes(bytes.len() as u64);
            self.windows.insert(window, bytes);
            self.order.push_back(window);
        }
        let start = (number.0 % WINDOW_PAGES) as usize * PAGE;
        // `claim` has checked that the page is within the metadata area.
        Ok(self.windows.get(&window).and_then(|w| w.get(start..start + PAGE)).unwrap_or(&[0; PAGE]))
    }
}
