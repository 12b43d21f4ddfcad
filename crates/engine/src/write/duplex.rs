//! Writes to slots of two devices: the mirrored write-back area.
//!
//! What a policy buffers on a device in slots is lost with it until it has been brought home. So a policy may
//! have it in slots of two devices ([`WriteTo::FineDuplexed`](weir_policy::placement::WriteTo)): the write is
//! acknowledged when both have it, and losing either loses nothing.
//!
//! The slots are fresh ones on both, for overwrites too, and one version of the extent names both places when
//! both have been written. So there is no state, durable or in effect, in which the two may differ, and no
//! write intent is needed: after a cut the map names both, or neither and what was there before, which
//! nothing has touched. Where one of the two fails, the other is what there is.
//!
//! What two places in slots hold, and no whole one, stays in two places: overwritten in place it would be in
//! one.

use crate::core::Core;
use crate::ids::PieceId;
use crate::lookup::Address;
use crate::request::Requests;
use crate::request::piece::Chosen;
use weir_map::{Chunk, Place, Record, Slot};
use weir_model::{BlockRange, DeviceId, PlaceId, PlaceKind};

/// To fresh slots of both devices, if there are some: for the range's first blocks.
pub(super) fn duplexed_slots(
    core: &mut Core,
    requests: &Requests,
    id: PieceId,
    pair: [DeviceId; 2],
    range: BlockRange,
) -> Option<Chosen> {
    let key = requests.pieces[id.0 as usize].key;
    let places = pair.map(|device| PlaceId { device, kind: PlaceKind::Fine });
    if !core.map.may_have_pair(key, places) {
        return None;
    }
    let one = core.adjacent_slots(pair[0], range.count);
    let other = core.adjacent_slots(pair[1], one.len() as u16);
    one.iter().skip(other.len()).for_each(|slot| core.map.reuse(Chunk::Slot(pair[0], *slot)));
    let address =
        |device, slots: &[Slot]| Some(Address::Slots { device, first: *slots.first()?, fresh: true });
    let second = address(pair[1], &other)?;
    let first = address(pair[0], &one)?;
    Some(Chosen {
        address: first,
        second: Some(second),
        run: BlockRange { count: other.len() as u16, ..range },
    })
}

/// To two places again, where the first blocks are in two places in slots and in no whole one. However
/// full the map's area is: the extent's record names as many slots as before.
pub(super) fn duplexed_again(
    core: &mut Core,
    requests: &Requests,
    id: PieceId,
    record: &Record,
) -> Option<Chosen> {
    let range = requests.pieces[id.0 as usize].range;
    let pair = duplexed_on(core, record, range.first)?;
    let count =
        (range.first..range.end()).take_while(|b| duplexed_on(core, record, *b) == Some(pair)).count();
    duplexed_slots(core, requests, id, pair, BlockRange { count: count as u16, ..range })
}

/// The devices in use that hold the block in slots, if there are two and no whole place holds it. Also
/// while somebody waits for space: the slots written take the place of those there are.
fn duplexed_on(core: &Core, record: &Record, block: u16) -> Option<[DeviceId; 2]> {
    let holding = || record.places.iter().filter(|p| p.valid.contains(block));
    if holding().nth(1).is_none() || holding().any(|p| p.at.id().kind == PlaceKind::Whole) {
        return None;
    }
    let mut devices = holding().map(Place::device).filter(|device| core.is_usable(*device));
    Some([devices.next()?, devices.next()?])
}
