//! The map as the engine uses it: current places, and changes to them.

mod place_ids;
mod shared_record;

use crate::format::table::Table;
use crate::format::value::{Chunk, Location, Record, RecordId, Released, Slot, Value, Whole, Word};
use crate::log::batch::Commit;
use crate::log::checkpoint::PageStore;
use crate::log::delta::Delta;
use crate::log::journal::Journal;
use crate::state::catalogue::{Catalogue, Volume};
use crate::state::extent_state::ExtentState;
use crate::state::overlay::{AddedBlocks, Needs, NeedsPair, Overlay, Pending, Version};
use crate::state::pages::{Pages, extents_per_word};
use crate::state::records::{GROUP, Records};
use crate::state::usage::{PendingReleases, UsageByVolume};
use crate::{Hardening, PoolId, Space, Superblock};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::VecDeque;
use weir_model::{
    BlockRange, Bytes, DeviceId, DeviceOffset, DeviceSet, ExtentIndex, ExtentKey, ExtentSize, Mutant,
    Planted, VolumeId,
};

/// The memory that the map takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapMemory {
    /// Map pages.
    pub pages: Bytes,
    /// Records.
    pub records: Bytes,
    /// Free-space bitmaps of all devices.
    pub space: Bytes,
    /// Tables of the locations of metadata pages.
    pub tables: Bytes,
}

impl MapMemory {
    /// Returns the sum.
    pub fn total(&self) -> Bytes {
        self.pages + self.records + self.space + self.tables
    }
}

/// The effect of clearing blocks on the reservation of an extent's unused space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceReservation {
    /// The reservation does not change.
    Unchanged,
    /// The space is reserved although nothing is in it (WRITE_ZEROES with NO_HOLE).
    Reserve,
    /// The space is no longer reserved.
    Release,
}

/// The use of the metadata area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSpace {
    /// All pages.
    pub pages: u32,
    /// Free pages.
    pub free: u32,
}

/// The map of a pool. See the crate's documentation.
///
/// It has many fields because its parts meet here: the types in `state`, `log` and `change` have private
/// fields, and a change of the map goes through several of them.
#[derive(Debug)]
pub struct Map {
    pub(crate) pool: PoolId,
    pub(crate) extent: ExtentSize,
    pub(crate) blocks: u16,
    pub(crate) devices: Vec<Superblock>,
    /// The devices that are present.
    pub(crate) present: DeviceSet,
    /// The metadata members in use.
    pub(crate) members: SmallVec<[DeviceId; 2]>,
    pub(crate) catalogue: Catalogue,
    pub(crate) pages: Pages,
    pub(crate) records: Records,
    pub(crate) spaces: Vec<Space>,
    /// The number of changes of `spaces`.
    pub(crate) space_changes: u64,
    pub(crate) overlay: Overlay,
    /// Map pages that extents with pending changes may need and that do not exist yet: volume, level, and
    /// index in the level.
    pub(crate) expected_pages: FxHashSet<(VolumeId, u8, u64)>,
    /// Changes of volumes and intents that wait for the next commit.
    pub(crate) queued_deltas: VecDeque<Delta>,
    pub(crate) journal: Journal,
    pub(crate) store: PageStore,
    pub(crate) commit: Commit,
    pub(crate) pending_releases: PendingReleases,
    pub(crate) usage_by_volume: UsageByVolume,
    /// The journal head at the position that the checkpoint in progress contains.
    pub(crate) checkpoint_head: u64,
    pub(crate) planted: Planted,
}

/// Returns the pages of a group of records if every record has two whole places.
pub(crate) fn record_pages(blocks: u16) -> usize {
    (GROUP * (5 + 2 * (6 + usize::from(blocks) / 8))).div_ceil(crate::format::page::PAYLOAD)
}

/// Returns the maximum metadata of a slot, in bytes, for an extent of this many blocks: as the only slot of
/// its place.
pub(crate) fn slot_bytes(blocks: u16) -> usize {
    6 + 2 + usize::from(blocks) / 8
}

impl Map {
    /// Returns the pool's id.
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// Returns the planted mutant.
    #[inline]
    pub fn planted(&self) -> Planted {
        self.planted
    }

    /// Returns the pool's extent size.
    pub fn extent(&self) -> ExtentSize {
        self.extent
    }

    /// Returns the superblocks of the pool's devices, by device id.
    pub fn devices(&self) -> &[Superblock] {
        &self.devices
    }

    /// Returns the durable volumes and intents.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Returns a durable volume.
    #[inline]
    pub fn volume(&self, id: VolumeId) -> Option<&Volume> {
        self.catalogue.volumes.get(&id)
    }

    /// Returns a counter of allocations and releases: while it is unchanged, so is every device's free space.
    #[inline]
    pub fn space_changes(&self) -> u64 {
        self.space_changes
    }

    /// Returns the free space of a device.
    pub fn space(&self, device: DeviceId) -> &Space {
        &self.spaces[device.index()]
    }

    /// Returns the device offset of a byte of a whole place.
    #[inline]
    pub fn address(&self, whole: Whole, within: u32) -> DeviceOffset {
        let base = self.devices[whole.device.index()].data_at;
        DeviceOffset(base.0 + u64::from(whole.extent.0) * self.extent.bytes().0 + u64::from(within))
    }

    /// Returns the visible state of an extent. Cost: one load per level of the volume's tree.
    // Inlined into the caller, because most requests only meet `Direct`.
    #[inline(always)]
    pub fn find(&self, key: ExtentKey) -> ExtentState<'_> {
        match self.overlay.get(key) {
            Some(pending) => ExtentState::of(pending.current()),
            None => self.find_durable(key),
        }
    }

    /// Returns the word of an extent in the durable map.
    #[inline(always)]
    pub(crate) fn durable_word(&self, key: ExtentKey) -> Option<Word> {
        Word::decode(self.pages.word(self.volume(key.volume)?.tree, key.index))
    }

    /// Returns the durable state of an extent.
    #[inline(always)]
    pub(crate) fn find_durable(&self, key: ExtentKey) -> ExtentState<'_> {
        match self.durable_word(key) {
            Some(Word::Direct(whole)) => ExtentState::Direct(whole),
            Some(Word::Record(id)) => self.found_record(id),
            _ => ExtentState::Empty,
        }
    }

    #[inline(never)]
    fn found_record(&self, id: RecordId) -> ExtentState<'_> {
        match self.records.decoded(id) {
            Some(record) => ExtentState::Record(Cow::Borrowed(record)),
            None => self.records.get(id).map_or(ExtentState::Empty, ExtentState::Record),
        }
    }

    /// Returns the durable value of an extent, and its record.
    pub(crate) fn durable_value(&self, key: ExtentKey) -> (Value, Option<RecordId>) {
        match self.durable_word(key) {
            Some(Word::Direct(whole)) => (Value::Direct(whole), None),
            Some(Word::Record(id)) => {
                let record = self.records.shared(id);
                (record.map_or(Value::Empty, Value::Record), Some(id))
            }
            _ => (Value::Empty, None),
        }
    }

    /// Whether the extent has changes that are visible but not durable.
    pub fn has_pending(&self, key: ExtentKey) -> bool {
        self.overlay.get(key).is_some_and(|p| !p.versions.is_empty())
    }

    /// Returns the flushes that the extent's first change outside any commit needs to become durable.
    pub fn needs(&self, key: ExtentKey) -> impl Iterator<Item = Needs> + '_ {
        self.overlay.get(key).and_then(Pending::first_uncommitted).into_iter().flat_map(Version::needs)
    }

    /// Returns the number of extents with changes that are not durable.
    pub fn pending_extents(&self) -> usize {
        self.overlay.len()
    }

    /// Whether the metadata area can take one more extent. At most three versions of every page are on disk
    /// at any time: those of two roots, and that of a checkpoint being written.
    pub fn has_metadata_space(&self) -> bool {
        let (need, room) = self.metadata_requirement();
        need <= room || self.planted.is(Mutant::ReserveIgnored)
    }

    /// Whether it can take more optional places of extents. It cannot if new volumes, or the extents that
    /// free space still permits, might need the space, each with a record of two whole places, as computed by
    /// [`crate::open::create::layout`]. So a pool is full of data before its metadata area is full, unless
    /// extents far apart are written. An area that was created smaller, because its device is small, reserves
    /// half its space for them.
    pub fn has_space_for_places(&self) -> bool {
        let (need, room) = self.metadata_requirement();
        let present =
            self.spaces.iter().enumerate().filter(|(i, _)| self.present.contains(DeviceId(*i as u8)));
        let free = present.map(|(_, space)| space.free() as usize).sum::<usize>();
        let volumes = self.catalogue.volumes.len();
        let pages = free / GROUP * record_pages(self.blocks);
        let to_come = 3 * (pages + pages / 100) * crate::PAGE;
        let spare = 3 * (4 + volumes) * crate::PAGE;
        need.0 + (to_come as u64).min(room.0 / 2) + spare as u64 <= room.0
    }

    /// Returns the space that the metadata area must have for one more extent, and the space that it has.
    pub fn metadata_requirement(&self) -> (Bytes, Bytes) {
        let groups = self.records.filled_groups_with(self.overlay.len() + 1);
        let slots = self.spaces.iter().map(|s| s.slots() as usize).sum::<usize>();
        let slot_pages =
            (slots * slot_bytes(self.blocks)).div_ceil(crate::format::page::PAYLOAD) + groups.min(slots);
        let pages = self.pages.live() + self.expected_pages.len();
        let objects =
            pages + groups * self.pages_per_group() + slot_pages + self.catalogue.volumes.len() / 16;
        // Ids are reused only after a checkpoint: there may be far more of them than pages.
        let ids = self.pages.ids() + self.expected_pages.len();
        let tables = Table::pages_for(ids) + Table::pages_for(groups.max(self.records.group_count()));
        let need = 3 * (objects + tables) + 64;
        let bytes = |pages: u64| Bytes(pages * crate::PAGE as u64);
        (bytes(need as u64), bytes(self.store.page_counts().0.into()))
    }

    /// Returns the pages of a group of records if every record has two whole places and an intent. Fine
    /// places are counted by their slots.
    pub(crate) fn pages_per_group(&self) -> usize {
        let bitmap = usize::from(self.blocks) / 8;
        let group_bytes = GROUP * (5 + 2 * (6 + bitmap) + bitmap);
        group_bytes.div_ceil(crate::format::page::PAYLOAD)
    }

    /// Allocates the next free extent of a device, for [`Self::attach_place`]; `None` if the device is
    /// absent.
    pub fn allocate(&mut self, device: DeviceId) -> Option<Whole> {
        if !self.present.contains(device) {
            return None;
        }
        let extent = self.spaces.get_mut(device.index())?.allocate()?;
        self.space_changes += 1;
        Some(Whole { device, extent })
    }

    /// Allocates a slot of a device for a fine place: [`Self::mark_written`] or [`Self::add_copy`] puts it
    /// under an extent, [`Self::reuse`] frees it. `None` if the device is absent.
    pub fn allocate_slot(&mut self, device: DeviceId) -> Option<Slot> {
        if !self.present.contains(device) {
            return None;
        }
        let slot = self.spaces.get_mut(device.index())?.allocate_slot(self.blocks)?;
        self.space_changes += 1;
        Some(slot)
    }

    /// Makes released space available again: its release is durable and no command that could touch it is in
    /// flight (rule 2 of docs/internals/invariants.md).
    pub fn reuse(&mut self, chunk: Chunk) {
        self.space_changes += 1;
        let space = &mut self.spaces[chunk.device().index()];
        match chunk {
            Chunk::Whole(whole) => space.release(whole.extent),
            Chunk::Slot(_, slot) => space.release_slot(slot, self.blocks),
        }
    }

    /// Takes the extent's current value as a record, to be changed.
    pub(crate) fn current_record(&mut self, key: ExtentKey) -> (Option<Record>, u16) {
        let blocks = self.blocks;
        let value = match self.overlay.get_mut(key) {
            Some(pending) => pending.take_current(),
            None => {
                let (value, record) = self.durable_value(key);
                self.overlay.insert(key, value, record).take_current()
            }
        };
        (value.into_record(blocks), blocks)
    }

    pub(crate) fn set_current(&mut self, key: ExtentKey, value: Value) {
        if let Some(pending) = self.overlay.get_mut(key) {
            pending.set_current(value);
        }
    }

    /// Makes the extent's current value a version.
    pub(crate) fn push(
        &mut self,
        key: ExtentKey,
        added: AddedBlocks,
        needs: Option<Needs>,
        released: Released,
    ) {
        self.push_with_needs(key, added, [needs, None], released);
    }

    pub(crate) fn push_with_needs(
        &mut self,
        key: ExtentKey,
        added: AddedBlocks,
        needs: NeedsPair,
        released: Released,
    ) {
        let blocks = self.blocks;
        let released = if self.planted.is(Mutant::ReusedBeforeDurable) {
            released.into_iter().for_each(|chunk| self.reuse(chunk));
            Released::new()
        } else {
            released
        };
        self.pending_releases.add(&released);
        let Some(value) = self.overlay.get(key).map(|p| p.current().canonical(blocks)) else { return };
        self.overlay.push(key, Version { needs, value, added, released });
    }

    /// Puts a place allocated on `whole` under an extent that has no whole place on that device. No block is
    /// valid in it yet: the extent still reads as zeros, and nothing is logged until [`Self::mark_written`].
    pub fn attach_place(&mut self, key: ExtentKey, whole: Whole) {
        let (record, blocks) = self.current_record(key);
        let mut record = record.unwrap_or_else(|| self.empty_record(key));
        let valid = crate::BlockSet::none(blocks);
        record.places.push(crate::Place { at: Location::Whole(whole), valid });
        self.set_current(key, Value::from(record));
        if let Some(pending) = self.overlay.get_mut(key) {
            pending.tentative = true;
        }
        self.note_expected_pages(key);
    }

    pub(crate) fn note_expected_pages(&mut self, key: ExtentKey) {
        let Some(volume) = self.catalogue.volumes.get(&key.volume) else { return };
        for level in 0..self.pages.missing_pages(volume.tree, key.index) {
            let page = key.index.0 / extents_per_word(u32::from(level) + 1);
            self.expected_pages.insert((key.volume, level, page));
        }
    }

    /// Updates the set of pages to come after changes became durable. Some exist now; others never will,
    /// because a place was released before anything durable named it.
    pub(crate) fn update_expected_pages(&mut self) {
        let (pages, volumes) = (&self.pages, &self.catalogue.volumes);
        self.expected_pages.retain(|(volume, level, page)| {
            let first = ExtentIndex(page.saturating_mul(extents_per_word(u32::from(*level) + 1)));
            volumes.get(volume).is_some_and(|v| pages.missing_pages(v.tree, first) > *level)
        });
        if !self.expected_pages.is_empty() {
            self.expected_pages.clear();
            let keys: Vec<_> = self.overlay.keys().collect();
            keys.into_iter().for_each(|key| self.note_expected_pages(key));
        }
    }

    /// Records that blocks were written at `at`, which is now valid for them; any other place no longer is. A
    /// whole place must be one of the extent's; a fine place is created if necessary, and its slots, one per
    /// block, now belong to the extent. `needs`: the flush that makes the data durable; `None` if it is.
    pub fn mark_written(
        &mut self,
        key: ExtentKey,
        at: impl Into<Location>,
        range: BlockRange,
        needs: Option<Needs>,
    ) {
        let at = at.into();
        let (record, blocks) = self.current_record(key);
        let range = if self.planted.is(Mutant::BitmapBitLost) && range.count > 1 {
            BlockRange { count: range.count - 1, ..range }
        } else if self.planted.is(Mutant::PartialAllocationVisible) && matches!(at, Location::Whole(_)) {
            BlockRange { first: 0, count: blocks }
        } else {
            range
        };
        let record = match (record, &at) {
            (None, Location::Fine { .. }) => Some(self.empty_record(key)),
            (record, _) => record,
        };
        let Some(mut record) = record else {
            debug_assert!(false, "written where the extent has no place");
            return self.overlay.remove_if_durable(key);
        };
        debug_assert!(
            matches!(at, Location::Fine { .. }) || record.places.iter().any(|p| p.at == at),
            "{at:?} is no place of {key}"
        );
        let mut released = Released::new();
        record.fill(&at, range, blocks, &mut released);
        record.invalidate_others(at.id(), range, &mut released);
        let value = Value::from(record).canonical_place(self.blocks);
        self.set_current(key, value);
        self.push(key, AddedBlocks::Data, needs, released);
    }

    /// Returns a record without places for an extent that has none.
    pub fn empty_record(&self, key: ExtentKey) -> Record {
        let copies = self.volume(key.volume).map_or(1, |v| v.copies);
        Record { places: Default::default(), space_reserved: false, copies, references: 1, intent: None }
    }

    /// Clears blocks: they are valid nowhere and read as zeros. [`Self::release_empty_places`] then releases
    /// empty places, unless their space is reserved.
    pub fn clear_blocks(&mut self, key: ExtentKey, range: BlockRange, reservation: SpaceReservation) {
        let (record, _) = self.current_record(key);
        let Some(mut record) = record else {
            self.overlay.remove_if_durable(key);
            return;
        };
        let mut released = Released::new();
        record.clear(range, &mut released);
        match reservation {
            SpaceReservation::Unchanged => {}
            SpaceReservation::Reserve => record.space_reserved = !self.planted.is(Mutant::KeptSpaceForgotten),
            SpaceReservation::Release => record.space_reserved = false,
        }
        self.set_current(key, Value::from(record));
        self.push(key, AddedBlocks::Nothing, None, released);
    }

    /// Releases places without valid blocks; if space is reserved, as many whole places stay as the volume
    /// has copies. Call it when no request or move works on the extent. [`Self::finish_commit`] reports the
    /// space when its release is durable.
    pub fn release_empty_places(&mut self, key: ExtentKey) {
        match self.find(key) {
            ExtentState::Record(record) if record.releasable_places().next().is_some() => {}
            _ => return,
        }
        let (record, _) = self.current_record(key);
        let Some(mut record) = record else { return };
        let unused: Vec<_> = record.releasable_places().collect();
        let mut released = Released::new();
        record.places.retain(|place| {
            let goes = unused.contains(&place.at.id());
            if let (true, Location::Whole(whole)) = (goes, &place.at) {
                released.push(Chunk::Whole(*whole));
            }
            !goes
        });
        let value = if record.places.is_empty() { Value::Empty } else { Value::from(record) };
        self.set_current(key, value.canonical_place(self.blocks));
        self.push(key, AddedBlocks::Nothing, None, released);
    }

    /// Returns the number of extents and slots whose release is not yet durable.
    pub fn pending_release_count(&self) -> usize {
        self.pending_releases.total()
    }

    /// Returns the extents of the device whose release is not yet durable: nothing visible is in them.
    pub fn pending_release_extents(&self, device: DeviceId) -> u32 {
        self.pending_releases.wholes(device)
    }

    /// Returns the number of a volume's extents with durable state. Cost: one step per map page.
    pub fn mapped_extents(&self, volume: VolumeId) -> u64 {
        self.volume(volume).map_or(0, |v| self.pages.mapped(v.tree))
    }

    /// Returns the first extent at or after `from` that is not empty, in the durable or the visible state. A
    /// walk over a volume can skip the extents in between.
    pub fn next_used(&self, volume: VolumeId, from: ExtentIndex) -> Option<ExtentIndex> {
        let durable = self.pages.next_mapped(self.volume(volume)?.tree, from);
        let pending = self.overlay.next(ExtentKey { volume, index: from });
        durable.into_iter().chain(pending).min()
    }

    /// Calls `f` with the durable value of every mapped extent of a volume, in order. Cost: walks whole
    /// trees, so it is for status and checks.
    pub fn for_each(&self, volume: VolumeId, mut f: impl FnMut(ExtentIndex, &Value)) {
        let Some(v) = self.volume(volume) else { return };
        self.pages.for_each(v.tree, &mut |index, word| match Word::decode(word) {
            Some(Word::Direct(whole)) => f(index, &Value::Direct(whole)),
            Some(Word::Record(id)) => {
                if let Some(record) = self.records.shared(id) {
                    f(index, &Value::Record(record));
                }
            }
            _ => {}
        });
    }

    /// Returns the memory of the durable map, in bytes.
    pub fn memory(&self) -> MapMemory {
        MapMemory {
            pages: Bytes(self.pages.memory() as u64),
            records: Bytes(self.records.memory() as u64),
            space: Bytes(self.spaces.iter().map(Space::memory).sum::<usize>() as u64),
            tables: Bytes(self.store.memory() as u64),
        }
    }

    /// Returns the number of records in use.
    pub fn records(&self) -> usize {
        self.records.live()
    }

    /// Returns the number of extents with more than one whole place per copy, as of the last commit. Cost:
    /// constant.
    pub fn fragmented_extents(&self) -> u64 {
        self.records.extra_place_counts().0
    }

    /// Returns the number of whole places beyond one per copy, as of the last commit. Cost: constant.
    pub fn extra_places(&self) -> u64 {
        self.records.extra_place_counts().1
    }

    /// Returns the use of the metadata area.
    pub fn metadata_space(&self) -> MapSpace {
        let (pages, free) = self.store.page_counts();
        MapSpace { pages, free }
    }

    /// Queues the creation of a volume for the next commit and returns its id. The volume exists once that is
    /// durable. The name must be 1 to [`NAME_MAX`](crate::NAME_MAX) bytes and not in use.
    pub fn create_volume(&mut self, name: &str, size: Bytes, hardening: Hardening, copies: u8) -> VolumeId {
        // Queued deltas include changes of existing volumes, so the highest id decides.
        let after = |delta: &Delta| match delta {
            Delta::Volume { id, .. } => id.0.saturating_add(1),
            _ => 0,
        };
        let on_the_way = self.queued_deltas.iter().chain(self.commit.deltas()).map(after);
        let on_the_way = on_the_way.filter(|_| !self.planted.is(Mutant::VolumeIdReused));
        let id = VolumeId(on_the_way.fold(self.catalogue.next_volume, u32::max));
        self.queued_deltas.push_back(Delta::Volume { id, name: name.to_owned(), size, hardening, copies });
        id
    }

    /// Queues a change of a volume's hardening for the next commit.
    pub fn set_hardening(&mut self, id: VolumeId, hardening: Hardening) {
        if let Some(Volume { name, size, copies, .. }) = self.catalogue.volumes.get(&id).cloned() {
            self.queued_deltas.push_back(Delta::Volume { id, name, size, hardening, copies });
        }
    }

    /// Queues a delta of a multi-step operation for the next commit.
    pub fn queue(&mut self, delta: Delta) {
        self.queued_deltas.push_back(delta);
    }
}

impl Value {
    /// Like [`Value::canonical`], but keeps places without valid blocks, because writes to them are in
    /// flight.
    pub(crate) fn canonical_place(self, blocks: u16) -> Self {
        match &self {
            Self::Record(record) if record.places.len() == 1 => match self.canonical(blocks) {
                direct @ Self::Direct(_) => direct,
                _ => self,
            },
            _ => self,
        }
    }
}
