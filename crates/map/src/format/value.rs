//! The value of an extent in the map: empty, a direct entry, or a record.

use crate::BlockSet;
use crate::format::codec::{Put, Reader};
use smallvec::SmallVec;
use std::sync::Arc;
use weir_model::{BlockRange, DeviceExtent, DeviceId, PlaceId, PlaceKind};

/// An extent of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Whole {
    /// The device.
    pub device: DeviceId,
    /// The extent's number on it.
    pub extent: DeviceExtent,
}

/// A single 4 KiB slot in a shared extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The shared extent.
    pub extent: DeviceExtent,
    /// The block in it.
    pub block: u16,
}

/// A unit of allocation on a device: a whole extent, or a slot of a shared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chunk {
    /// An extent.
    Whole(Whole),
    /// A slot.
    Slot(DeviceId, Slot),
}

impl Chunk {
    /// Returns its device.
    pub const fn device(self) -> DeviceId {
        match self {
            Self::Whole(whole) => whole.device,
            Self::Slot(device, _) => device,
        }
    }
}

/// The location of a place's bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Location {
    /// One device extent: block *i* of the volume's extent is block *i* of it.
    Whole(Whole),
    /// One slot for each valid block, in the order of the blocks.
    Fine {
        /// The device of all slots.
        device: DeviceId,
        /// One slot per bit in the place's validity.
        slots: Vec<Slot>,
    },
}

impl Clone for Location {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(whole) => Self::Whole(*whole),
            Self::Fine { device, slots } => {
                // A record is cloned to be changed, often to get a few more slots.
                let mut cloned = Vec::with_capacity((slots.len() + 1).next_multiple_of(SPARE_SLOTS));
                cloned.extend_from_slice(slots);
                Self::Fine { device: *device, slots: cloned }
            }
        }
    }
}

/// The most slots that a cloned location has capacity for beyond its own.
const SPARE_SLOTS: usize = 8;

impl Location {
    /// Returns the id of the place among an extent's places.
    pub const fn id(&self) -> PlaceId {
        match self {
            Self::Whole(whole) => whole.id(),
            Self::Fine { device, .. } => PlaceId { device: *device, kind: PlaceKind::Fine },
        }
    }
}

impl Whole {
    /// Returns the id of the place among an extent's places.
    pub const fn id(self) -> PlaceId {
        PlaceId { device: self.device, kind: PlaceKind::Whole }
    }
}

impl From<Whole> for Location {
    fn from(whole: Whole) -> Self {
        Self::Whole(whole)
    }
}

/// The space that a place releases.
pub(crate) type Released = SmallVec<[Chunk; 1]>;

/// A place: a location of an extent's data, and the blocks for which it is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The location.
    pub at: Location,
    /// The valid blocks.
    pub valid: BlockSet,
}

/// An extent that is not just one whole place, fully valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// None to four places. Where several are valid for a block, they contain the same bytes.
    pub places: SmallVec<[Place; 2]>,
    /// Whether the space is reserved although blocks are not valid (WRITE_ZEROES with NO_HOLE).
    pub space_reserved: bool,
    /// The number of copies wanted: 1 or 2.
    pub copies: u8,
    /// The number of owners: 1 until snapshots share records.
    pub references: u32,
    /// Blocks that recovery rewrites as it reads them, to one place that is then the only valid one: the data
    /// there may not be durable, although it was flushed. In a volume with two copies the copies may also
    /// differ, because a write to both is in flight.
    pub intent: Option<BlockSet>,
}

/// The maximum number of places of a record.
pub const PLACES_MAX: usize = 4;

/// The map's value of one extent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Value {
    /// No place: all zeros.
    #[default]
    Empty,
    /// One whole place, every block valid, with no reservation beyond that.
    Direct(Whole),
    /// Any other state. Records are shared, because a change passes through several owners: the visible
    /// state, versions, a commit, and the durable map.
    Record(Arc<Record>),
}

impl Record {
    /// Returns a record of one whole place with these blocks valid.
    pub fn single_place(at: Whole, valid: BlockSet) -> Self {
        Self {
            places: SmallVec::from_elem(Place { at: Location::Whole(at), valid }, 1),
            space_reserved: false,
            copies: 1,
            references: 1,
            intent: None,
        }
    }

    /// Returns the blocks that may differ between places, until recovery selects one of them.
    pub fn may_differ(&self) -> Option<&BlockSet> {
        self.intent.as_ref().filter(|_| self.copies > 1)
    }

    /// Whether no place is valid for any block.
    pub fn is_all_zeros(&self) -> bool {
        self.places.iter().all(|p| p.valid.is_empty())
    }

    /// Returns the place with this id.
    pub fn place(&self, id: PlaceId) -> Option<&Place> {
        self.places.iter().find(|p| p.at.id() == id)
    }

    pub(crate) fn place_mut(&mut self, id: PlaceId) -> Option<&mut Place> {
        self.places.iter_mut().find(|p| p.at.id() == id)
    }

    /// Whether blocks are valid in the place with this id.
    pub fn has_blocks(&self, id: PlaceId) -> bool {
        self.places.iter().any(|place| place.at.id() == id && !place.valid.is_empty())
    }

    /// Whether some place is valid for the block.
    pub fn has_block(&self, block: u16) -> bool {
        self.places.iter().any(|p| p.valid.contains(block))
    }

    /// Returns the blocks, in an extent of `blocks`, that this place and some other are valid for.
    pub fn shared_blocks(&self, id: PlaceId, blocks: u16) -> BlockSet {
        let mut shared = BlockSet::none(blocks);
        if let Some(place) = self.place(id) {
            self.places.iter().filter(|p| p.at.id() != id).for_each(|p| shared.union(&p.valid));
            shared.intersect(&place.valid);
        }
        shared
    }

    /// Returns the empty places that can be released. If space is reserved, as many whole places as copies
    /// are kept.
    pub(crate) fn releasable_places(&self) -> impl Iterator<Item = PlaceId> + '_ {
        let wholes = || self.places.iter().filter(|p| p.at.id().kind == PlaceKind::Whole);
        let used = wholes().filter(|p| !p.valid.is_empty()).count();
        let spare = if self.space_reserved { usize::from(self.copies).saturating_sub(used) } else { 0 };
        let empty_wholes = wholes().filter(|p| p.valid.is_empty()).map(|p| p.at.id());
        let kept: SmallVec<[PlaceId; 2]> = empty_wholes.take(spare).collect();
        let empty = self.places.iter().filter(|p| p.valid.is_empty()).map(|p| p.at.id());
        empty.filter(move |id| !kept.contains(id))
    }

    /// Makes the place at `at` valid for these blocks too, creating it if there is none.
    pub(crate) fn fill(&mut self, at: &Location, range: BlockRange, blocks: u16, released: &mut Released) {
        if self.place(at.id()).is_none() {
            let at = match at {
                Location::Whole(whole) => Location::Whole(*whole),
                Location::Fine { device, .. } => Location::Fine { device: *device, slots: Vec::new() },
            };
            self.places.push(Place { at, valid: BlockSet::none(blocks) });
            debug_assert!(self.places.len() <= PLACES_MAX, "too many places");
        }
        if let Some(place) = self.place_mut(at.id()) {
            place.fill(range, at, released);
        }
    }

    /// Makes the blocks invalid everywhere. Slots are added to `released`.
    pub(crate) fn clear(&mut self, range: BlockRange, released: &mut Released) {
        for place in &mut self.places {
            place.clear(range, released);
        }
        self.close_intent(range);
    }

    /// Adds the blocks to the write intent.
    pub(crate) fn open_intent(&mut self, range: BlockRange, blocks: u16) {
        self.intent.get_or_insert_with(|| BlockSet::none(blocks)).insert(range);
    }

    /// Removes the blocks from the write intent.
    pub(crate) fn close_intent(&mut self, range: BlockRange) {
        if let Some(intent) = &mut self.intent {
            intent.remove(range);
            if intent.is_empty() {
                self.intent = None;
            }
        }
    }

    /// Makes every other place invalid for the blocks of `range` that this place is valid for.
    pub(crate) fn invalidate_others(&mut self, id: PlaceId, range: BlockRange, released: &mut Released) {
        let Some(held) = self.place(id).map(|p| p.valid.clone()) else { return };
        let mut at = range.first;
        while let Some(run) = held.next_run(at, range.end()) {
            self.places.iter_mut().filter(|p| p.at.id() != id).for_each(|p| p.clear(run, released));
            at = run.end();
        }
    }

    /// Returns the length of [`Self::encode`]'s result without computing that.
    pub(crate) fn encoded_len(&self, blocks: u16) -> usize {
        let bitmap = BlockSet::encoded_len(blocks);
        let place = |place: &Place| match &place.at {
            Location::Whole(_) => 2 + 4 + bitmap,
            Location::Fine { slots, .. } => 2 + bitmap + slots.len() * SLOT_BYTES,
        };
        let references = if self.references == 1 { 0 } else { 4 };
        let intent = if self.intent.is_some() { bitmap } else { 0 };
        2 + references + self.places.iter().map(place).sum::<usize>() + intent
    }

    /// Loads the memory of the record, so that [`Self::encode`] finds it in the cache. The result is
    /// meaningless.
    pub(crate) fn fetch(&self) -> u32 {
        let slots = |place: &Place| match &place.at {
            Location::Whole(whole) => whole.extent.0,
            Location::Fine { slots, .. } => {
                let parts =
                    (0..4).map(|part| slots.get(slots.len() * part / 4).map_or(0, |slot| slot.extent.0));
                parts.chain(slots.last().map(|slot| slot.extent.0)).fold(0, |all, one| all ^ one)
            }
        };
        self.places.iter().map(slots).fold(self.references, |all, one| all ^ one)
    }

    /// Appends the record as in `docs/reference/format.md` (record pages), from the flags on.
    pub fn encode(&self, blocks: u16, out: &mut Vec<u8>) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.space_reserved, FLAG_RESERVED)
            | flag(self.intent.is_some(), FLAG_INTENT)
            | flag(self.references != 1, FLAG_REFERENCES);
        out.push(flags);
        out.push(self.places.len() as u8 | self.copies << 4);
        if self.references != 1 {
            out.put_u32(self.references);
        }
        for place in &self.places {
            match &place.at {
                Location::Whole(whole) => {
                    out.extend([KIND_WHOLE, whole.device.0]);
                    out.put_u32(whole.extent.0);
                    place.valid.encode(blocks, out);
                }
                Location::Fine { device, slots } => {
                    out.extend([KIND_FINE, device.0]);
                    place.valid.encode(blocks, out);
                    let start = out.len();
                    out.resize(start + slots.len() * SLOT_BYTES, 0);
                    let (words, _) = out[start..].as_chunks_mut::<SLOT_BYTES>();
                    for (bytes, slot) in words.iter_mut().zip(slots) {
                        let [a, b, c, d] = slot.extent.0.to_le_bytes();
                        let [e, f] = slot.block.to_le_bytes();
                        *bytes = [a, b, c, d, e, f];
                    }
                }
            }
        }
        if let Some(intent) = &self.intent {
            intent.encode(blocks, out);
        }
    }

    /// Decodes the result of [`Self::encode`]; `None` for anything else, including trailing bytes.
    pub fn decode(blocks: u16, bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let flags = r.u8()?;
        let counts = r.u8()?;
        let (count, copies) = (usize::from(counts & 0xf), counts >> 4);
        if flags & !(FLAG_RESERVED | FLAG_INTENT | FLAG_REFERENCES) != 0
            || count > PLACES_MAX
            || !(1..=2).contains(&copies)
        {
            return None;
        }
        let references = if flags & FLAG_REFERENCES != 0 { r.u32()? } else { 1 };
        let bitmap = BlockSet::encoded_len(blocks);
        let mut places = SmallVec::new();
        for _ in 0..count {
            let kind = r.u8()?;
            let device = DeviceId(r.u8()?);
            places.push(match kind {
                KIND_WHOLE => {
                    let extent = DeviceExtent(r.u32()?);
                    let valid = BlockSet::decode(blocks, r.take(bitmap)?);
                    Place { at: Location::Whole(Whole { device, extent }), valid }
                }
                KIND_FINE => {
                    let valid = BlockSet::decode(blocks, r.take(bitmap)?);
                    let slot = |r: &mut Reader<'_>| {
                        Some(Slot { extent: DeviceExtent(r.u32()?), block: r.u16().filter(|b| *b < blocks)? })
                    };
                    let slots = (0..valid.count()).map(|_| slot(&mut r)).collect::<Option<_>>()?;
                    Place { at: Location::Fine { device, slots }, valid }
                }
                _ => return None,
            });
        }
        let intent = match flags & FLAG_INTENT {
            0 => None,
            _ => Some(BlockSet::decode(blocks, r.take(bitmap)?)),
        };
        r.is_empty().then_some(Self {
            places,
            space_reserved: flags & FLAG_RESERVED != 0,
            copies,
            references,
            intent,
        })
    }
}

const FLAG_RESERVED: u8 = 1;
const FLAG_INTENT: u8 = 2;
const FLAG_REFERENCES: u8 = 4;
const KIND_WHOLE: u8 = 1;
const KIND_FINE: u8 = 2;
/// The encoded length of a slot.
const SLOT_BYTES: usize = 6;

impl Place {
    /// Returns its device.
    pub fn device(&self) -> DeviceId {
        self.at.id().device
    }

    /// Returns the number of valid blocks. Cost for a place in slots: constant, no bits are counted.
    #[inline]
    pub fn count(&self) -> u16 {
        let count = match &self.at {
            Location::Whole(_) => self.valid.count() as u16,
            Location::Fine { slots, .. } => slots.len() as u16,
        };
        debug_assert_eq!(u32::from(count), self.valid.count(), "a slot for each block");
        count
    }

    /// Returns the location of the block: in a whole place the block itself, in a fine one its slot.
    pub fn slot(&self, block: u16) -> Option<Slot> {
        if !self.valid.contains(block) {
            return None;
        }
        match &self.at {
            Location::Whole(whole) => Some(Slot { extent: whole.extent, block }),
            Location::Fine { slots, .. } => slots.get(self.valid.rank(block)).copied(),
        }
    }

    /// Makes the blocks invalid here; a fine place releases their slots.
    pub(crate) fn clear(&mut self, range: BlockRange, released: &mut Released) {
        if let Location::Fine { device, slots } = &mut self.at {
            let mut blocks = self.valid.iter();
            slots.retain(|slot| {
                let stays = blocks.next().is_some_and(|b| !range.contains(b));
                if !stays {
                    released.push(Chunk::Slot(*device, *slot));
                }
                stays
            });
        }
        self.valid.remove(range);
    }

    /// Makes the blocks valid here; in a fine place in these slots, one per block. Previous slots of these
    /// blocks are released.
    pub(crate) fn fill(&mut self, range: BlockRange, from: &Location, released: &mut Released) {
        if let (Location::Fine { .. }, Location::Fine { slots: fresh, .. }) = (&self.at, from) {
            debug_assert_eq!(fresh.len(), usize::from(range.count), "a slot for each block");
            let mut kept: Released = SmallVec::new();
            self.clear(range, &mut kept);
            // Slots that stay are not released.
            released
                .extend(kept.into_iter().filter(|c| !matches!(c, Chunk::Slot(_, s) if fresh.contains(s))));
            if let Location::Fine { slots, .. } = &mut self.at {
                let at = self.valid.rank(range.first);
                slots.splice(at..at, fresh.iter().copied());
            }
        }
        self.valid.insert(range);
    }
}

impl Value {
    /// Returns the simplest equivalent value. Empty places are left out unless space is reserved. One whole
    /// place with every block becomes a direct entry, if the record says nothing more. An extent with
    /// reserved space stays a record however much of it is written, or a TRIM of its parts would free the
    /// space.
    #[must_use]
    pub fn canonical(&self, blocks: u16) -> Self {
        let Self::Record(record) = self else { return self.clone() };
        let mut record = Arc::clone(record);
        if !record.space_reserved && record.places.iter().any(|p| p.valid.is_empty()) {
            Arc::make_mut(&mut record).places.retain(|p| !p.valid.is_empty());
        }
        let plain =
            record.copies == 1 && record.references == 1 && record.intent.is_none() && !record.space_reserved;
        if plain
            && let [Place { at: Location::Whole(whole), valid }] = &record.places[..]
            && valid.count() == u32::from(blocks)
        {
            return Self::Direct(*whole);
        }
        if record.places.is_empty() { Self::Empty } else { Self::Record(record) }
    }

    /// Returns the number of places that it names.
    pub(crate) fn place_count(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Direct(_) => 1,
            Self::Record(record) => record.places.len(),
        }
    }

    /// Converts it to a record, to be changed.
    pub fn into_record(self, blocks: u16) -> Option<Record> {
        match self {
            Self::Empty => None,
            Self::Direct(whole) => Some(Record::single_place(whole, BlockSet::all(blocks))),
            Self::Record(record) => Some(Arc::unwrap_or_clone(record)),
        }
    }
}

impl From<Record> for Value {
    fn from(record: Record) -> Self {
        Self::Record(Arc::new(record))
    }
}

/// The stable number of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub u32);

/// The stable number of a map page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// A word of a map page, as in `docs/reference/format.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Word {
    /// An empty extent.
    #[default]
    Empty,
    /// A direct entry.
    Direct(Whole),
    /// A record.
    Record(RecordId),
    /// In interior pages: the child.
    Child(PageId),
}

impl Word {
    /// Encodes the word as a number.
    #[inline]
    pub const fn encode(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Direct(w) => 1 << 56 | (w.device.0 as u64) << 48 | w.extent.0 as u64,
            Self::Record(id) => 2 << 56 | id.0 as u64,
            Self::Child(id) => 3 << 56 | id.0 as u64,
        }
    }
    /// Decodes a word; `None` for a number that is no word of version 1.
    #[inline]
    pub const fn decode(word: u64) -> Option<Self> {
        let low = word as u32;
        match word >> 32 {
            0 if low == 0 => Some(Self::Empty),
            0x0200_0000 => Some(Self::Record(RecordId(low))),
            0x0300_0000 => Some(Self::Child(PageId(low))),
            high if high >> 24 == 1 && high & 0xffff == 0 => {
                Some(Self::Direct(Whole { device: DeviceId((high >> 16) as u8), extent: DeviceExtent(low) }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
