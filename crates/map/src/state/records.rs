//! Records of extents that are more than a direct entry, packed for memory.
//!
//! A record of at most two whole places in an extent of at most 32 blocks (128 KiB), with nothing unusual,
//! takes 40 bytes; any other is stored separately, in decoded form.

use crate::format::blocks::BlockSet;
use crate::format::codec::{Put, Reader};
use crate::format::value::{Location, Place, Record, RecordId, Whole};
use crate::state::summary::Summary;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;
use weir_model::{DeviceExtent, DeviceId, PlaceId, PlaceKind};

/// The number of records in a group, which a checkpoint writes together.
pub(crate) const GROUP: usize = 128;

#[derive(Clone, Debug, Default)]
struct Packed {
    /// Device in bits 47..32, extent below. Of a record stored decoded: its [`Summary`].
    at: [u64; 2],
    valid: [u32; 2],
    /// The number of whole places in `at`, or [`UNUSED`], or [`DECODED`], or [`SUMMARIZED`].
    state: u8,
    space_reserved: bool,
    copies: u8,
    decoded: Option<Arc<Record>>,
}

const _: () = assert!(size_of::<Packed>() <= 40, "references: at most 64 bytes a record of two places");

/// The number of records of a group that are fetched from memory together.
const FETCHED: usize = 32;

/// The counters beside a shared record.
const ARC_BYTES: usize = 2 * size_of::<usize>();
const UNUSED: u8 = 0xff;
/// Stored decoded, without a summary, or with one.
const DECODED: u8 = 0xfe;
const SUMMARIZED: u8 = 0xfd;

impl Packed {
    const EMPTY: Self =
        Self { at: [0; 2], valid: [0; 2], state: UNUSED, space_reserved: false, copies: 1, decoded: None };

    fn pack(record: Arc<Record>, blocks: u16) -> Self {
        let plain =
            blocks <= 32 && record.places.len() <= 2 && record.references == 1 && record.intent.is_none();
        let Record { space_reserved: keep, copies, .. } = *record;
        let mut packed =
            Self { state: record.places.len() as u8, space_reserved: keep, copies, ..Self::EMPTY };
        for (i, place) in record.places.iter().enumerate().take(2) {
            match &place.at {
                Location::Whole(w) if plain => {
                    packed.at[i] = u64::from(w.device.0) << 32 | u64::from(w.extent.0);
                    packed.valid[i] = place.valid.low_u32();
                }
                _ => return Self::decoded(record),
            }
        }
        if plain { packed } else { Self::decoded(record) }
    }

    fn decoded(record: Arc<Record>) -> Self {
        let summary = Summary::of(&record);
        Self {
            state: if summary.is_some() { SUMMARIZED } else { DECODED },
            at: summary.unwrap_or_default().words(),
            decoded: Some(record),
            ..Self::EMPTY
        }
    }

    /// Whether blocks are valid in that place.
    #[inline]
    fn has_blocks(&self, id: PlaceId) -> bool {
        match (self.state, &self.decoded) {
            (UNUSED, _) => false,
            (SUMMARIZED, _) => Summary::from_words(self.at).has_blocks(id),
            (_, Some(record)) => record.has_blocks(id),
            (places, None) => (0..usize::from(places)).any(|i| self.whole_id(i) == id && self.valid[i] != 0),
        }
    }

    /// Calls `visit` with each place.
    #[inline]
    fn visit_places(&self, visit: &mut dyn FnMut(PlaceId)) {
        match (self.state, &self.decoded) {
            (UNUSED, _) => {}
            (SUMMARIZED, _) => Summary::from_words(self.at).ids().for_each(visit),
            (_, Some(record)) => record.places.iter().for_each(|place| visit(place.at.id())),
            (places, None) => (0..usize::from(places)).for_each(|i| visit(self.whole_id(i))),
        }
    }

    #[inline]
    fn whole_id(&self, i: usize) -> PlaceId {
        PlaceId { device: DeviceId((self.at[i] >> 32) as u8), kind: PlaceKind::Whole }
    }

    /// Returns the record, borrowed if it is stored decoded.
    #[inline]
    fn unpack(&self) -> Option<Cow<'_, Record>> {
        match (self.state, &self.decoded) {
            (UNUSED, _) => None,
            (_, Some(record)) => Some(Cow::Borrowed(record)),
            (places, None) => Some(Cow::Owned(self.unpack_places(places))),
        }
    }

    fn unpack_places(&self, places: u8) -> Record {
        Record {
            places: (0..usize::from(places)).map(|i| self.place(i)).collect::<SmallVec<_>>(),
            space_reserved: self.space_reserved,
            copies: self.copies,
            references: 1,
            intent: None,
        }
    }

    /// Whether it has more than one place per copy, and how many additional whole ones.
    fn extra_place_counts(&self) -> (bool, u64) {
        match (self.state, &self.decoded) {
            (UNUSED, _) => (false, 0),
            (_, Some(record)) => {
                let wholes = record.places.iter().filter(|p| matches!(p.at, Location::Whole(_))).count();
                let more = wholes.saturating_sub(usize::from(record.copies));
                (more > 0 || wholes < record.places.len(), more as u64)
            }
            (places, None) => (places > self.copies, u64::from(places.saturating_sub(self.copies))),
        }
    }

    /// Returns the length of the record in the group's encoding.
    fn encoded_len(&self, blocks: u16) -> u32 {
        let len = match (self.state, &self.decoded) {
            (UNUSED, _) => 0,
            (_, Some(record)) => 3 + record.encoded_len(blocks),
            (places, None) => 3 + 2 + usize::from(places) * (6 + BlockSet::encoded_len(blocks)),
        };
        len as u32
    }

    fn place(&self, i: usize) -> Place {
        let device = DeviceId((self.at[i] >> 32) as u8);
        let at = Location::Whole(Whole { device, extent: DeviceExtent(self.at[i] as u32) });
        Place { at, valid: BlockSet::from_low_u32(self.valid[i]) }
    }
}

/// An observer of group changes, so that a checkpoint in progress can capture a group first.
pub(crate) trait GroupObserver {
    /// Called before group `number` changes.
    fn before_group_change(&mut self, number: usize, records: &Records);
}

/// All durable records of the pool, by id, like [`pages`](crate::state::pages).
#[derive(Clone, Debug)]
pub(crate) struct Records {
    groups: Vec<Option<Box<[Packed; GROUP]>>>,
    /// The records in use, by group, and the number of groups that have any.
    used: Vec<u8>,
    /// The length of each group's encoding.
    encoded_lens: Vec<u32>,
    filled: usize,
    unused: Vec<RecordId>,
    next: u32,
    live: usize,
    /// Records with more than one place per copy, and the whole places beyond these.
    fragmented: u64,
    extra_places: u64,
    blocks: u16,
}

impl Records {
    pub(crate) fn new(blocks: u16) -> Self {
        Self {
            groups: Vec::new(),
            used: Vec::new(),
            encoded_lens: Vec::new(),
            filled: 0,
            unused: Vec::new(),
            next: 0,
            live: 0,
            fragmented: 0,
            extra_places: 0,
            blocks,
        }
    }

    /// Returns the number of records in use.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Returns the number of records with more than one place per copy, and of whole places beyond these.
    pub(crate) fn extra_place_counts(&self) -> (u64, u64) {
        (self.fragmented, self.extra_places)
    }

    /// Updates the counts when a record changes.
    fn count_places(&mut self, before: (bool, u64), after: (bool, u64)) {
        self.fragmented = self.fragmented + u64::from(after.0) - u64::from(before.0);
        self.extra_places = self.extra_places + after.1 - before.1;
    }

    /// Returns the number of groups ever used.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Returns the maximum number of groups in use after `to_come` more records; the others need no page. New
    /// records get ids that were used before, perhaps each in a group that is empty now, or consecutive new
    /// ones.
    pub(crate) fn filled_groups_with(&self, to_come: usize) -> usize {
        (self.groups.len() + to_come.div_ceil(GROUP)).min(self.filled + to_come)
    }

    #[inline]
    fn packed(&self, id: RecordId) -> Option<&Packed> {
        let group = self.groups.get(id.0 as usize / GROUP)?.as_ref()?;
        Some(&group[id.0 as usize % GROUP])
    }

    /// Returns the record, decoded. Cost: three loads for a record stored decoded, as any with slots is.
    #[inline]
    pub(crate) fn get(&self, id: RecordId) -> Option<Cow<'_, Record>> {
        self.packed(id)?.unpack()
    }

    /// Returns the record, shared. Cost: as of [`Self::get`], and an allocation if it is not stored decoded.
    pub(crate) fn shared(&self, id: RecordId) -> Option<Arc<Record>> {
        let packed = self.packed(id)?;
        packed.decoded.clone().or_else(|| packed.unpack().map(|record| Arc::new(record.into_owned())))
    }

    /// Returns the record if it is stored decoded.
    #[inline]
    pub(crate) fn decoded(&self, id: RecordId) -> Option<&Record> {
        self.packed(id)?.decoded.as_deref()
    }

    /// Whether blocks of the record are valid in that place. Cost: two loads, if its devices are among the
    /// first 32.
    #[inline]
    pub(crate) fn has_blocks(&self, id: RecordId, place: PlaceId) -> bool {
        self.packed(id).is_some_and(|packed| packed.has_blocks(place))
    }

    /// Calls `visit` with each place of the record. Cost: as of [`Self::has_blocks`].
    #[inline]
    pub(crate) fn visit_places(&self, id: RecordId, visit: &mut dyn FnMut(PlaceId)) {
        if let Some(packed) = self.packed(id) {
            packed.visit_places(visit);
        }
    }

    /// Reserves a free id for the caller until it is [set](Self::set) and [dropped](Self::drop_record).
    pub(crate) fn reserve(&mut self) -> RecordId {
        self.unused.pop().unwrap_or_else(|| {
            self.next += 1;
            RecordId(self.next - 1)
        })
    }

    /// Frees a reserved id that was never set.
    pub(crate) fn unreserve(&mut self, id: RecordId) {
        self.unused.push(id);
    }

    /// Sets a record.
    pub(crate) fn set(&mut self, id: RecordId, record: Arc<Record>, before: &mut impl GroupObserver) {
        let number = id.0 as usize / GROUP;
        before.before_group_change(number, self);
        if self.groups.len() <= number {
            self.groups.resize_with(number + 1, || None);
            self.used.resize(number + 1, 0);
            self.encoded_lens.resize(number + 1, 0);
        }
        let blocks = self.blocks;
        let group = self.groups[number].get_or_insert_with(|| Box::new([const { Packed::EMPTY }; GROUP]));
        let slot = &mut group[id.0 as usize % GROUP];
        if slot.state == UNUSED {
            self.live += 1;
            self.used[number] += 1;
            self.filled += usize::from(self.used[number] == 1);
        }
        let (counted, len) = (slot.extra_place_counts(), slot.encoded_len(blocks));
        *slot = Packed::pack(record, blocks);
        let counts = slot.extra_place_counts();
        self.encoded_lens[number] = self.encoded_lens[number] - len + slot.encoded_len(blocks);
        self.count_places(counted, counts);
    }

    /// Removes a record; its id may be reserved again.
    pub(crate) fn drop_record(&mut self, id: RecordId, before: &mut impl GroupObserver) {
        let number = id.0 as usize / GROUP;
        if self.packed(id).is_none_or(|p| p.state == UNUSED) {
            return;
        }
        before.before_group_change(number, self);
        if let Some(Some(group)) = self.groups.get_mut(number) {
            let slot = &mut group[id.0 as usize % GROUP];
            let old = std::mem::replace(slot, Packed::EMPTY);
            self.encoded_lens[number] -= old.encoded_len(self.blocks);
            self.count_places(old.extra_place_counts(), (false, 0));
            self.live -= 1;
            self.used[number] -= 1;
            self.filled -= usize::from(self.used[number] == 0);
            self.unused.push(id);
        }
    }

    /// Whether the group has no record.
    pub(crate) fn group_is_empty(&self, number: usize) -> bool {
        self.groups.get(number).and_then(Option::as_ref).is_none_or(|g| g.iter().all(|p| p.state == UNUSED))
    }

    /// Returns the length of [`Self::encode_group`] without computing it. Cost: constant.
    pub(crate) fn encoded_len(&self, number: usize) -> usize {
        self.encoded_lens.get(number).map_or(0, |len| *len as usize)
    }

    /// Returns the group's bytes for record pages.
    pub(crate) fn encode_group(&self, number: usize) -> Vec<u8> {
        let Some(Some(group)) = self.groups.get(number) else { return Vec::new() };
        let mut out = Vec::with_capacity(self.encoded_len(number));
        for (i, packed) in group.iter().enumerate() {
            if i % FETCHED == 0 {
                // Records are scattered over memory. Their loads do not wait for each other here, but would
                // in their encoding.
                let decoded = group[i..].iter().take(FETCHED).filter_map(|packed| packed.decoded.as_deref());
                std::hint::black_box(decoded.map(Record::fetch).fold(0, |all, one| all ^ one));
            }
            if let Some(record) = packed.unpack() {
                out.push(i as u8);
                let length_at = out.len();
                out.put_u16(0);
                record.encode(self.blocks, &mut out);
                let len = (out.len() - length_at - 2) as u16;
                out[length_at..length_at + 2].copy_from_slice(&len.to_le_bytes());
            }
        }
        out
    }

    /// Stores a group read from disk. Returns `None` if the bytes are no group.
    pub(crate) fn load_group(&mut self, number: usize, bytes: &[u8]) -> Option<()> {
        let mut r = Reader::new(bytes);
        while !r.is_empty() {
            let slot = usize::from(r.u8()?);
            let len = usize::from(r.u16()?);
            let record = Arc::new(Record::decode(self.blocks, r.take(len)?)?);
            let id = u32::try_from(number * GROUP + slot).ok().filter(|_| slot < GROUP)?;
            self.set(RecordId(id), record, &mut NoObserver);
        }
        Some(())
    }

    /// Finishes loading and replay: every id without a record is free.
    pub(crate) fn finish_loading(&mut self) {
        self.next = (self.groups.len() * GROUP) as u32;
        self.unused = (0..self.next)
            .rev()
            .map(RecordId)
            .filter(|id| self.packed(*id).is_none_or(|p| p.state == UNUSED))
            .collect();
    }

    /// Calls `f` with every record, in order of ids, which is their order in memory.
    pub(crate) fn for_each(&self, mut f: impl FnMut(RecordId, Record)) {
        for (number, group) in self.groups.iter().enumerate() {
            for (i, packed) in group.iter().flat_map(|g| g.iter()).enumerate() {
                if let Some(record) = packed.unpack() {
                    f(RecordId((number * GROUP + i) as u32), record.into_owned());
                }
            }
        }
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let groups = self.groups.iter().flatten();
        let apart = |r: &Record| {
            ARC_BYTES
                + size_of::<Record>()
                + if r.places.spilled() { r.places.capacity() * size_of::<Place>() } else { 0 }
                + r.places.iter().map(|p| p.heap_memory()).sum::<usize>()
        };
        groups
            .map(|g| {
                size_of::<[Packed; GROUP]>()
                    + g.iter().filter_map(|p| p.decoded.as_deref()).map(apart).sum::<usize>()
            })
            .sum::<usize>()
            + self.groups.capacity() * size_of::<usize>()
            + self.unused.capacity() * size_of::<RecordId>()
            + self.used.capacity()
            + self.encoded_lens.capacity() * size_of::<u32>()
    }
}

impl Place {
    fn heap_memory(&self) -> usize {
        match &self.at {
            Location::Whole(_) => 0,
            Location::Fine { slots, .. } => slots.capacity() * size_of::<crate::format::value::Slot>(),
        }
    }
}

/// An observer that does nothing.
pub(crate) struct NoObserver;
impl GroupObserver for NoObserver {
    fn before_group_change(&mut self, _: usize, _: &Records) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::value::tests::any_record;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Compares the look-ups of places with the record.
    fn assert_places_found(records: &Records, id: RecordId, record: &Record) {
        let sorted = |mut ids: Vec<PlaceId>| {
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let mut found = Vec::new();
        records.visit_places(id, &mut |place| found.push(place));
        let of_record: Vec<_> = record.places.iter().map(|place| place.at.id()).collect();
        assert_eq!(sorted(found), sorted(of_record.clone()));
        // Places of the other kind, or on devices that no summary includes, are not mistaken for them.
        let other_kind = |PlaceId { device, kind }| match kind {
            PlaceKind::Whole => PlaceId { device, kind: PlaceKind::Fine },
            PlaceKind::Fine => PlaceId { device, kind: PlaceKind::Whole },
        };
        let far = |PlaceId { device, kind }| PlaceId { device: DeviceId(device.0 ^ 32), kind };
        for place in of_record.iter().flat_map(|place| [*place, other_kind(*place), far(*place)]) {
            let has_blocks = record.places.iter().any(|one| one.at.id() == place && !one.valid.is_empty());
            assert_eq!(records.has_blocks(id, place), has_blocks, "{place:?}");
        }
    }

    proptest! {
        /// Compares with a naive twin: a map of decoded records.
        #[test]
        fn agrees_with_plain_map(
            (blocks, steps) in (4u32..=8).prop_flat_map(|log| {
                (Just(1u16 << log), prop::collection::vec((any::<bool>(), 0u32..400, any_record(1 << log)), 1..60))
            }),
        ) {
            let mut records = Records::new(blocks);
            let mut twin = BTreeMap::new();
            for (set, id, record) in steps {
                if set {
                    records.set(RecordId(id), Arc::new(record.clone()), &mut NoObserver);
                    twin.insert(id, record);
                } else {
                    records.drop_record(RecordId(id), &mut NoObserver);
                    twin.remove(&id);
                }
            }
            let mut loaded = Records::new(blocks);
            for number in 0..records.group_count() {
                let bytes = records.encode_group(number);
                prop_assert_eq!(bytes.len(), records.encoded_len(number));
                loaded.load_group(number, &bytes).expect("what was encoded");
            }
            loaded.finish_loading();
            for all in [&records, &loaded] {
                let mut found = BTreeMap::new();
                all.for_each(|id, r| { found.insert(id.0, r); });
                prop_assert_eq!(&found, &twin);
                prop_assert_eq!(all.live(), twin.len());
                let filled: BTreeSet<_> = twin.keys().map(|id| *id as usize / GROUP).collect();
                prop_assert_eq!(all.filled_groups_with(0), filled.len());
                for (id, record) in &twin {
                    assert_places_found(all, RecordId(*id), record);
                }
            }
            let fresh = loaded.reserve();
            prop_assert!(!twin.contains_key(&fresh.0));
        }
    }
}
