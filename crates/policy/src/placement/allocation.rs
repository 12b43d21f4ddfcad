//! Where new extents go, as several policies offer it: the allocations of measurement-driven
//! migration (the dissertation behind it, chapter II). Which device is the flash and which the disk is measured: the
//! one that answers an idle read first, and last.

use super::{Access, DeviceView, Hierarchy, Key, Moment, Placement, Places, Settings, Stripe};
use weir_model::{DeviceId, Hint, PlaceId, PlaceKind};

/// Which of them.
pub(super) const ALLOCATION: Key = Key::choice(
    "allocation",
    &["stripe", "fast-first", "slow-first"],
    "where new extents go: to all devices in turn, to the fastest with room, to the slowest with room",
);

/// Allocates.
#[derive(Clone, Copy, Debug)]
pub(super) enum Allocation {
    /// Over all in turn, until the smaller ones are full.
    Stripe(Stripe),
    /// The fastest with room.
    FastFirst,
    /// The slowest with room.
    SlowFirst,
}

impl Allocation {
    pub(super) fn new(settings: &Settings) -> Self {
        match settings.choice(&ALLOCATION) {
            1 => Self::FastFirst,
            2 => Self::SlowFirst,
            _ => Self::Stripe(Stripe::default()),
        }
    }

    pub(super) fn allocate(&mut self, moment: &mut Moment<'_>, access: &Access) -> Option<DeviceId> {
        match self {
            Self::Stripe(stripe) => stripe.allocate(moment, access),
            Self::FastFirst => Hierarchy.allocate(moment, access),
            Self::SlowFirst => slowest(moment.devices),
        }
    }
}

/// The device that answers an idle read first.
pub(super) fn fastest(devices: &[DeviceView]) -> Option<DeviceId> {
    devices.iter().filter(|d| d.usable).min_by_key(|d| (d.idle, d.id)).map(|d| d.id)
}

/// Where an extent's home is or is to be, if that is not the fast device.
pub(super) fn home(
    stripe: &mut Stripe,
    devices: &[DeviceView],
    places: &Places,
    fast: DeviceId,
) -> Option<PlaceId> {
    home_off(stripe, devices, places, |device| device == fast)
}

/// … if it is on none of several: its whole place elsewhere, else one on whose turn it is of the other devices
/// with room.
pub(super) fn home_off(
    stripe: &mut Stripe,
    devices: &[DeviceView],
    places: &Places,
    is_fast: impl Fn(DeviceId) -> bool,
) -> Option<PlaceId> {
    if let Some(place) = places.whole(|device| !is_fast(device)) {
        return Some(place.id);
    }
    let device = stripe.next_of(devices, |d| !is_fast(d.id) && d.has_room())?;
    Some(PlaceId { device, kind: PlaceKind::Whole })
}

/// The device with room that answers an idle read last.
pub(super) fn slowest(devices: &[DeviceView]) -> Option<DeviceId> {
    devices.iter().filter(|d| d.free > 0).max_by_key(|d| (d.idle, d.id)).map(|d| d.id)
}

/// Whether it is metadata: the client says so, or the volume's superblock, if the policy watches for that.
pub(super) fn is_metadata(access: &Access) -> bool {
    access.hint == Hint::Metadata
}
