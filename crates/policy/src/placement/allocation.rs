//! Allocation of new extents, as several policies offer it: the allocations of measurement-driven migration
//! (the dissertation behind it, chapter II). Measurement decides which device is the flash and which the
//! disk: the ones that answer an idle read soonest and latest.

use super::{Access, DeviceView, Hierarchy, Key, Placement, Places, PolicyContext, Settings, Stripe};
use weir_model::{DeviceId, ExtentKey, ExtentSize, Hint, PlaceId, PlaceKind};

/// The key that selects the allocation.
pub(super) const ALLOCATION: Key = Key::choice(
    "allocation",
    &["stripe", "fast-first", "slow-first"],
    "where new extents go: to all devices in turn, to the fastest with room, to the slowest with room",
);

/// The keys of the address ranges that count as metadata.
pub(super) const METADATA_RANGE: Key = Key::size(
    "metadata_range",
    0,
    "the length of the address range that counts as metadata, from the volume's start; 0 for none",
);
pub(super) const METADATA_EVERY: Key = Key::size(
    "metadata_every",
    0,
    "the distance from one such range to the next, as of a file system's block groups; 0 for one range",
);

/// Address ranges of a volume that count as metadata: the addresses that a file system writes when it is
/// made.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetadataRanges {
    len: u64,
    every: u64,
}

impl MetadataRanges {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { len: settings.get(&METADATA_RANGE) as u64, every: settings.get(&METADATA_EVERY) as u64 }
    }

    /// Whether a part of the extent is in a range.
    pub(super) fn touches(&self, key: ExtentKey, extent: ExtentSize) -> bool {
        let start = key.index.0.saturating_mul(extent.bytes().0);
        match self.every {
            0 => start < self.len,
            every => {
                let from = start % every;
                self.len > 0 && (from < self.len || from + extent.bytes().0 > every)
            }
        }
    }
}

/// An allocation rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Allocation {
    /// All devices in turn, until the smaller ones are full.
    Stripe(Stripe),
    /// The fastest device with space.
    FastFirst,
    /// The slowest device with space.
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

    pub(super) fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        match self {
            Self::Stripe(stripe) => stripe.allocate(context, access),
            Self::FastFirst => Hierarchy.allocate(context, access),
            Self::SlowFirst => slowest(context.devices),
        }
    }
}

/// Returns the device with the shortest idle read.
pub(super) fn fastest(devices: &[DeviceView]) -> Option<DeviceId> {
    devices.iter().filter(|d| d.is_usable).min_by_key(|d| (d.idle_response, d.id)).map(|d| d.id)
}

/// Returns an extent's home, present or future, off the fast device.
pub(super) fn home(
    stripe: &mut Stripe,
    devices: &[DeviceView],
    places: &Places,
    fast: DeviceId,
) -> Option<PlaceId> {
    home_off(stripe, devices, places, |device| device == fast)
}

/// Returns an extent's home, present or future, off the devices that are fast: its whole place elsewhere,
/// else one on the next of the other devices with space, in turn.
pub(super) fn home_off(
    stripe: &mut Stripe,
    devices: &[DeviceView],
    places: &Places,
    is_fast: impl Fn(DeviceId) -> bool,
) -> Option<PlaceId> {
    if let Some(place) = places.whole(|device| !is_fast(device)) {
        return Some(place.id);
    }
    let device = stripe.next_of(devices, |d| !is_fast(d.id) && d.has_space())?;
    Some(PlaceId { device, kind: PlaceKind::Whole })
}

/// Returns the device with space that has the longest idle read.
pub(super) fn slowest(devices: &[DeviceView]) -> Option<DeviceId> {
    devices.iter().filter(|d| d.free > 0).max_by_key(|d| (d.idle_response, d.id)).map(|d| d.id)
}

/// Whether the access is to metadata, according to the client, or to the volume's superblock if the policy
/// subscribes to that.
pub(super) fn is_metadata(access: &Access) -> bool {
    access.hint == Hint::Metadata
}

#[cfg(test)]
mod tests {
    use super::super::testing::key;
    use super::*;
    use weir_model::Bytes;

    #[test]
    fn ranges_repeat() {
        let extent = ExtentSize::new(Bytes::kib(64)).expect("a size");
        let touched = |len: u64, every: u64| -> Vec<u64> {
            let mut settings = Settings::default();
            assert!(settings.set(&METADATA_RANGE, (len << 10) as f64));
            assert!(settings.set(&METADATA_EVERY, (every << 10) as f64));
            let ranges = MetadataRanges::new(&settings);
            (0..16).filter(|index| ranges.touches(key(*index), extent)).collect()
        };
        assert_eq!(touched(0, 0), []);
        assert_eq!(touched(100, 0), [0, 1]);
        assert_eq!(touched(100, 512), [0, 1, 8, 9]);
        assert_eq!(touched(64, 480), [0, 7, 8, 15], "a range begins in the middle of an extent");
    }
}
