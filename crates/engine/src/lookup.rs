//! Look-up of blocks: the record of an extent, its place for a block, and the address on a device.
//!
//! Everything here follows from the map alone. Other modules decide which of several places is read or
//! written (`policy/route.rs`, `write/target.rs`).

use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;
use weir_map::{ExtentState, Location, Map, PLACES_MAX, Place, Record, Slot, Value, Whole};
use weir_model::{BLOCK, BlockRange, DeviceId, DeviceOffset, ExtentKey, PlaceId, PlaceKind};

/// The location of a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) device: DeviceId,
    pub(crate) at: DeviceOffset,
}

/// A run of blocks and its location; without a location it is zeros.
pub(crate) type BlockRun = (BlockRange, Option<Source>);

/// All runs of a read's blocks, in order.
pub(crate) type Plan = SmallVec<[BlockRun; 2]>;

/// The location of a piece's blocks, present or future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// In a whole place.
    Whole(Whole),
    /// In adjacent slots.
    Slots {
        device: DeviceId,
        /// The slot of the piece's first block.
        first: Slot,
        /// Whether the slots do not belong to the extent yet.
        fresh: bool,
    },
}

impl Address {
    pub(crate) const fn place(self) -> PlaceId {
        match self {
            Self::Whole(whole) => PlaceId { device: whole.device, kind: PlaceKind::Whole },
            Self::Slots { device, .. } => PlaceId { device, kind: PlaceKind::Fine },
        }
    }

    /// Whether no block of the extent is valid there yet.
    pub(crate) const fn is_fresh(self) -> bool {
        matches!(self, Self::Slots { fresh: true, .. })
    }

    /// Returns the map's form of the address, for a part of a run that begins here.
    pub(crate) fn location_of(self, run: BlockRange, part: BlockRange) -> Location {
        match self {
            Self::Whole(whole) => Location::Whole(whole),
            Self::Slots { device, first, fresh } => {
                let first = Slot { block: first.block + (part.first - run.first), ..first };
                Self::Slots { device, first, fresh }.location(part.count)
            }
        }
    }

    /// Returns the map's form of the address, for a run of blocks.
    pub(crate) fn location(self, count: u16) -> Location {
        match self {
            Self::Whole(whole) => Location::Whole(whole),
            Self::Slots { device, first, .. } => {
                let slots = (0..count).map(|i| Slot { block: first.block + i, ..first });
                Location::Fine { device, slots: slots.collect() }
            }
        }
    }
}

/// The places of a record, in the order in which reads prefer them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    order: [u8; PLACES_MAX],
    places: u8,
}

impl Route {
    /// Creates a route of a record's first `places` places, in this order.
    pub(crate) fn new(order: [u8; PLACES_MAX], places: usize) -> Self {
        Self { order, places: places as u8 }
    }

    /// Returns the record's places in this order.
    pub(crate) fn ordered_places<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = &'a Place> {
        self.order[..usize::from(self.places)].iter().map(|at| &record.places[usize::from(*at)])
    }

    /// Moves the place at index `at` to the front.
    pub(crate) fn prefer(&mut self, at: usize) {
        self.order[..=at].rotate_right(1);
    }
}

/// Returns the record of the extent; `None` if it has neither places nor other state.
pub(crate) fn record(map: &Map, key: ExtentKey) -> Option<Arc<Record>> {
    map.shared_record(key)
}

/// Like [`record`], but borrowed where the map has a record. Cost: a look-up then.
#[inline]
pub(crate) fn borrow_record(map: &Map, key: ExtentKey) -> Option<Cow<'_, Record>> {
    match map.find(key) {
        ExtentState::Empty => None,
        ExtentState::Direct(whole) => Value::Direct(whole).into_record(map.extent().blocks()).map(Cow::Owned),
        ExtentState::Record(record) => Some(record),
    }
}

/// Splits these blocks into runs, each of which one command can read or which is all zeros.
pub(crate) fn plan(map: &Map, record: &Record, route: &Route, range: BlockRange) -> Plan {
    let mut plan = Plan::new();
    let mut at = range.first;
    while at < range.end() {
        let (run, source) = run(map, record, route, BlockRange { first: at, count: range.end() - at });
        plan.push((run, source));
        at = run.end();
    }
    plan
}

/// Returns the longest run from the first block of `range` that one command can read, or that is all zeros.
pub(crate) fn run(
    map: &Map,
    record: &Record,
    route: &Route,
    range: BlockRange,
) -> (BlockRange, Option<Source>) {
    let first = source(map, record, route, range.first);
    let mut count = 1;
    while count < range.count {
        let next = source(map, record, route, range.first + count);
        let continues = match (first, next) {
            (None, None) => true,
            (Some(a), Some(b)) => a.device == b.device && b.at.0 == a.at.0 + u64::from(count) * BLOCK,
            _ => false,
        };
        if !continues {
            break;
        }
        count += 1;
    }
    (BlockRange { first: range.first, count }, first)
}

/// Returns the location of a block: in the first place on the route that is valid for it.
pub(crate) fn source(map: &Map, record: &Record, route: &Route, block: u16) -> Option<Source> {
    let place = route.ordered_places(record).find(|p| p.valid.contains(block))?;
    let device = place.at.id().device;
    let slot = place.slot(block)?;
    let at = map.address(Whole { device, extent: slot.extent }, u32::from(slot.block) * BLOCK as u32);
    Some(Source { device, at })
}

/// Returns the device offset of a byte of an address: `within` counts from the start of `range`'s first
/// block.
pub(crate) fn device_offset(map: &Map, address: Address, range: BlockRange, within: u32) -> DeviceOffset {
    match address {
        Address::Whole(whole) => map.address(whole, u32::from(range.first) * BLOCK as u32 + within),
        Address::Slots { device, first, .. } => {
            let whole = Whole { device, extent: first.extent };
            map.address(whole, u32::from(first.block) * BLOCK as u32 + within)
        }
    }
}

/// Returns the address of these blocks if exactly one place is valid for any of them, and it has all,
/// adjacent.
#[inline(always)]
pub(crate) fn sole_address(record: &Record, range: BlockRange) -> Option<Address> {
    let is_one = range.count == 1;
    let mut holding: Option<&Place> = None;
    for place in &record.places {
        let holds = if is_one { place.valid.contains(range.first) } else { place.valid.contains_any(range) };
        if holds && holding.replace(place).is_some() {
            return None;
        }
    }
    let place = holding.filter(|place| is_one || place.valid.contains_all(range))?;
    match &place.at {
        Location::Whole(whole) => Some(Address::Whole(*whole)),
        Location::Fine { device, slots } => {
            let first = *slots.get(place.valid.rank(range.first))?;
            let next = |b: u16| Slot { block: first.block + (b - range.first), ..first };
            let are_adjacent = || (range.first + 1..range.end()).all(|b| place.slot(b) == Some(next(b)));
            let address = Address::Slots { device: *device, first, fresh: false };
            (is_one || are_adjacent()).then_some(address)
        }
    }
}

/// Returns the whole places of a record.
pub(crate) fn whole_places(record: &Record) -> impl Iterator<Item = Whole> + '_ {
    record.places.iter().filter_map(|p| match p.at {
        Location::Whole(whole) => Some(whole),
        Location::Fine { .. } => None,
    })
}
