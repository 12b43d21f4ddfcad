//! Selection of the fast devices; the others contain the homes.
//!
//! Idle reads decide, where they differ by more than [`IDLE_RATIO_MAX`] and by more than their own spread.
//! Otherwise load decides, after a while ([`super::load_comparison`]): cloud volumes, disks behind a rate
//! limit, or an array and a single disk answer a single read alike, but differ much in throughput. If neither
//! distinguishes them, there are no fast devices: between devices that are alike, nothing is gained by
//! writing or copying elsewhere, and much is lost (an extent in several places takes several commands, and
//! more space).

use super::super::{DeviceView, PlaceView, Places};
use super::headroom::Headroom;
use super::heat::PartLayout;
use weir_model::{DeviceId, DeviceSet, Nanos, PlaceKind};

/// The maximum idle read of a fast device, as a fraction of that of the slowest one.
const IDLE_FRACTION_MAX: f64 = 0.25;
/// Devices are alike when idle if the ratio of their idle reads is at most this.
const IDLE_RATIO_MAX: f64 = 2.0;

/// A set of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FastDevices([u64; 4]);

/// Returns the idle response in seconds; a device that gave none is slowest.
fn idle(device: &DeviceView) -> f64 {
    if device.idle_response == Nanos::MAX { f64::MAX } else { device.idle_response.0.max(1) as f64 / 1e9 }
}

/// Whether idle reads show that the first device is faster than the second: by more than [`IDLE_RATIO_MAX`],
/// and with three quarters of its reads shorter than three quarters of the other's.
fn is_clearly_faster(first: &DeviceView, second: &DeviceView) -> bool {
    let quartile =
        |d: &DeviceView, at: usize| d.idle_quartiles.map_or(d.idle_response, |quartiles| quartiles[at]);
    idle(second) > IDLE_RATIO_MAX * idle(first) && quartile(first, 1) < quartile(second, 0)
}

impl FastDevices {
    /// Returns the device with the shortest idle read, those not clearly slower, and those whose idle read is
    /// below a quarter of the longest one. The set is empty if no device is clearly slower than the first.
    pub(super) fn select(devices: &[DeviceView]) -> Self {
        let mut fast = Self::default();
        let usable = || devices.iter().filter(|d| d.is_usable);
        let Some(first) = usable().min_by_key(|d| (d.idle_response, d.id)) else { return fast };
        if !usable().any(|d| is_clearly_faster(first, d)) {
            return fast;
        }
        let last = usable().map(idle).fold(0.0, f64::max);
        let is_fast = |d: &&DeviceView| idle(d) < IDLE_FRACTION_MAX * last || !is_clearly_faster(first, d);
        usable().filter(is_fast).for_each(|d| fast.insert(d.id));
        fast
    }

    /// Whether idle reads do not distinguish the usable devices.
    pub(super) fn are_alike_when_idle(devices: &[DeviceView]) -> bool {
        Self::select(devices).is_empty()
    }

    pub(super) fn insert(&mut self, id: DeviceId) {
        self.0[id.index() / 64] |= 1 << (id.index() % 64);
    }

    #[inline]
    pub(super) fn contains(self, id: DeviceId) -> bool {
        self.0[id.index() / 64] >> (id.index() % 64) & 1 == 1
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns them as a set of the pool's devices.
    pub(super) fn devices(self) -> DeviceSet {
        (0..=u8::MAX).map(DeviceId).filter(|id| self.contains(*id)).collect()
    }

    /// Iterates over the fast devices.
    pub(super) fn fast_devices(self, devices: &[DeviceView]) -> impl Iterator<Item = &DeviceView> {
        devices.iter().filter(move |d| self.contains(d.id))
    }

    /// Iterates over the other devices.
    pub(super) fn other_devices(self, devices: &[DeviceView]) -> impl Iterator<Item = &DeviceView> {
        devices.iter().filter(move |d| !self.contains(d.id))
    }

    /// Whether all of them are usable.
    pub(super) fn are_usable(self, devices: &[DeviceView]) -> bool {
        self.fast_devices(devices).all(|d| d.is_usable)
    }

    /// Whether the speed of every device is measured.
    pub(super) fn is_certain(devices: &[DeviceView]) -> bool {
        devices.iter().all(|d| !d.is_usable || d.idle_response < Nanos::MAX)
    }

    /// Returns their number of extents.
    pub(super) fn extents(self, devices: &[DeviceView]) -> u64 {
        self.fast_devices(devices).map(|d| u64::from(d.extents)).sum()
    }

    /// Returns the fraction of their space in use, 0 to 1.
    pub(super) fn fill(self, devices: &[DeviceView], layout: PartLayout) -> f64 {
        layout.fill(self.fast_devices(devices))
    }

    /// Whether an extent has a place of this kind on one of them.
    pub(super) fn have_place(self, places: &Places, kind: PlaceKind) -> bool {
        places.as_slice().iter().any(|place| place.id.kind == kind && self.contains(place.id.device))
    }

    /// Returns the one that is valid for the most of the blocks asked about, if there is one.
    #[inline]
    pub(super) fn holder<'d>(self, devices: &'d [DeviceView], places: &Places) -> Option<&'d DeviceView> {
        let holding = |place: &&PlaceView| place.blocks > 0 && self.contains(place.id.device);
        let most = places.as_slice().iter().filter(holding).max_by_key(|place| place.blocks)?;
        devices.get(most.id.device.index())
    }

    /// Returns how many of the blocks asked about are in their slots.
    #[inline]
    pub(super) fn slots_of(self, places: &Places) -> u16 {
        let slots = |place: &&PlaceView| place.id.kind == PlaceKind::Fine && self.contains(place.id.device);
        places.as_slice().iter().filter(slots).map(|place| place.blocks).sum()
    }

    /// Selects the device to add parts of an extent to: one that has some of it already, so that it is in few
    /// places, else the cheapest.
    pub(super) fn with_space<'d>(
        self,
        devices: &'d [DeviceView],
        layout: PartLayout,
        most: f64,
        places: &Places,
        cost: impl Fn(&DeviceView) -> f64,
    ) -> Option<&'d DeviceView> {
        let roomy = self.fast_devices(devices).filter(|d| Headroom::is_below(d, layout, most));
        let elsewhere = |d: &DeviceView| !places.as_slice().iter().any(|place| place.id.device == d.id);
        roomy.min_by(|a, b| elsewhere(a).cmp(&elsewhere(b)).then(cost(a).total_cmp(&cost(b))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::device;
    use super::*;

    fn selected(devices: &[DeviceView]) -> Vec<u8> {
        FastDevices::select(devices).fast_devices(devices).map(|d| d.id.0).collect()
    }

    #[test]
    fn devices_far_faster_than_slowest_are_fast() {
        let fast = |idle: &[u64]| {
            let devices: Vec<_> = (0..).zip(idle).map(|(id, idle)| device(id, 64, *idle)).collect();
            super::tests::selected(&devices)
        };
        assert_eq!(fast(&[8000, 100]), [1]);
        assert_eq!(fast(&[100, 110, 8000]), [0, 1], "two SSDs and a disk");
        assert_eq!(fast(&[5000, 80, 1]), [1, 2], "memory, an SSD and a disk");
        assert_eq!(fast(&[8000, 80, 8100]), [1], "an SSD and two disks");
        assert_eq!(fast(&[80, 3, 4]), [1, 2], "memory and an SSD");
        assert_eq!(fast(&[80, 80]), [0u8; 0], "alike");
        assert_eq!(fast(&[80, 95, 150]), [0u8; 0], "not twice as fast");
        assert_eq!(fast(&[100, 110, 250]), [0, 1], "what is alike to the first is as fast as it");
        assert_eq!(fast(&[80]), [0u8; 0], "alone");
    }
    /// The medians of eight reads may differ by more than a factor of two if the reads themselves differ by
    /// far more.
    #[test]
    fn idle_spread_is_no_difference() {
        let view = |id, idle: u64, quartiles: [u64; 2]| DeviceView {
            idle_quartiles: Some(quartiles.map(Nanos::micros)),
            ..device(id, 64, idle)
        };
        assert_eq!(selected(&[view(0, 3, [2, 9]), view(1, 7, [3, 12])]), [0u8; 0]);
        assert_eq!(selected(&[view(0, 3, [2, 4]), view(1, 9, [8, 12])]), [0]);
    }
}
