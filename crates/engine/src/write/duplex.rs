//! Writes to slots of two devices: the duplexed write-back area.
//!
//! Data that a policy buffers in slots of one device is lost with it until it has been written back. So a
//! policy may put it in slots of two devices ([`WriteTo::FineDuplexed`](weir_policy::placement::WriteTo)):
//! the write is acknowledged when both have it, and the loss of either loses no data.
//!
//! The slots are fresh on both devices, for overwrites too, and one version of the extent names both places
//! after both have been written. Hence no state, durable or visible, exists in which the two may differ, and
//! no write intent is needed: after a power loss the map names both, or neither and the previous data, which
//! is untouched. If one of the two writes fails, the data is in the other only.
//!
//! Blocks that two places in slots are valid for, and no whole place, stay duplexed when they are
//! overwritten; an overwrite in place would leave them on one device.

use crate::core::Core;
use crate::ids::PieceId;
use crate::lookup::Address;
use crate::request::Requests;
use crate::request::piece::TargetRun;
use weir_map::{Chunk, Place, Record, Slot};
use weir_model::{BlockRange, DeviceId, PlaceId, PlaceKind};

/// Allocates fresh slots on both devices for the range's first blocks, if there are some.
pub(super) fn duplexed_slots(
    core: &mut Core,
    requests: &Requests,
    id: PieceId,
    pair: [DeviceId; 2],
    range: BlockRange,
) -> Option<TargetRun> {
    let key = requests.pieces[id.0 as usize].key;
    let places = pair.map(|device| PlaceId { device, kind: PlaceKind::Fine });
    if !core.map.may_add_pair(key, places) {
        return None;
    }
    let one = core.adjacent_slots(pair[0], range.count);
    let other = core.adjacent_slots(pair[1], one.len() as u16);
    one.iter().skip(other.len()).for_each(|slot| core.map.reuse(Chunk::Slot(pair[0], *slot)));
    let address =
        |device, slots: &[Slot]| Some(Address::Slots { device, first: *slots.first()?, fresh: true });
    let second = address(pair[1], &other)?;
    let first = address(pair[0], &one)?;
    Some(TargetRun {
        address: first,
        second: Some(second),
        run: BlockRange { count: other.len() as u16, ..range },
    })
}

/// Allocates slots on two devices again, if the first blocks are in slots of two devices and in no whole
/// place. The metadata area may be full: the extent's record names as many slots as before.
pub(super) fn reallocate_duplexed_slots(
    core: &mut Core,
    requests: &Requests,
    id: PieceId,
    record: &Record,
) -> Option<TargetRun> {
    let range = requests.pieces[id.0 as usize].range;
    let pair = duplexed_devices(core, record, range.first)?;
    let count =
        (range.first..range.end()).take_while(|b| duplexed_devices(core, record, *b) == Some(pair)).count();
    duplexed_slots(core, requests, id, pair, BlockRange { count: count as u16, ..range })
}

/// Returns the two usable devices that have the block in slots, if there are two and no whole place is valid
/// for it. Requests that wait for space do not matter: the new slots replace the old ones.
fn duplexed_devices(core: &Core, record: &Record, block: u16) -> Option<[DeviceId; 2]> {
    let holding = || record.places.iter().filter(|p| p.valid.contains(block));
    if holding().nth(1).is_none() || holding().any(|p| p.at.id().kind == PlaceKind::Whole) {
        return None;
    }
    let mut devices = holding().map(Place::device).filter(|device| core.is_usable(*device));
    Some([devices.next()?, devices.next()?])
}
