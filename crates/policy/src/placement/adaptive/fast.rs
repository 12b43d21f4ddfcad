//! Which devices are the fast ones; the others have the homes.

use super::super::{DeviceView, PlaceView, Places};
use super::heat::Cut;
use super::room::Room;
use weir_model::{DeviceId, Nanos, PlaceKind};

/// Of what the last device takes for an idle read, what a fast one takes at most.
const SLOWEST: f64 = 0.25;

/// A set of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fast([u64; 4]);

impl Fast {
    /// The device that answers an idle read first, and those that take less than a quarter of what the last one
    /// takes. None if there are no others.
    pub(super) fn of(devices: &[DeviceView]) -> Self {
        let mut fast = Self::default();
        let idle = |d: &DeviceView| if d.idle == Nanos::MAX { f64::MAX } else { d.idle.0.max(1) as f64 };
        let usable = || devices.iter().filter(|d| d.usable);
        let first = usable().min_by_key(|d| (d.idle, d.id)).filter(|_| devices.len() > 1);
        let Some(first) = first else { return fast };
        let last = usable().map(idle).fold(0.0, f64::max);
        usable().filter(|d| d.id == first.id || idle(d) < SLOWEST * last).for_each(|d| fast.insert(d.id));
        fast
    }

    fn insert(&mut self, id: DeviceId) {
        self.0[id.index() / 64] |= 1 << (id.index() % 64);
    }

    pub(super) fn has(self, id: DeviceId) -> bool {
        self.0[id.index() / 64] >> (id.index() % 64) & 1 == 1
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The fast devices.
    pub(super) fn these(self, devices: &[DeviceView]) -> impl Iterator<Item = &DeviceView> {
        devices.iter().filter(move |d| self.has(d.id))
    }

    /// The others.
    pub(super) fn others(self, devices: &[DeviceView]) -> impl Iterator<Item = &DeviceView> {
        devices.iter().filter(move |d| !self.has(d.id))
    }

    /// All of them can be used.
    pub(super) fn are_usable(self, devices: &[DeviceView]) -> bool {
        self.these(devices).all(|d| d.usable)
    }

    /// Every device has said how fast it is.
    pub(super) fn is_certain(devices: &[DeviceView]) -> bool {
        devices.iter().all(|d| !d.usable || d.idle < Nanos::MAX)
    }

    /// Extents they have.
    pub(super) fn extents(self, devices: &[DeviceView]) -> u64 {
        self.these(devices).map(|d| u64::from(d.extents)).sum()
    }

    /// What of their space is taken, 0 to 1.
    pub(super) fn fill(self, devices: &[DeviceView], cut: Cut) -> f64 {
        cut.fill(self.these(devices))
    }

    /// Whether an extent has a place of this kind on one of them.
    pub(super) fn have(self, places: &Places, kind: PlaceKind) -> bool {
        places.as_slice().iter().any(|place| place.id.kind == kind && self.has(place.id.device))
    }

    /// That which holds most of the blocks asked about, if one holds any.
    pub(super) fn holder<'d>(self, devices: &'d [DeviceView], places: &Places) -> Option<&'d DeviceView> {
        let holding = |place: &&PlaceView| place.blocks > 0 && self.has(place.id.device);
        let most = places.as_slice().iter().filter(holding).max_by_key(|place| place.blocks)?;
        devices.get(most.id.device.index())
    }

    /// How many of the blocks asked about are in their slots.
    pub(super) fn slots_of(self, places: &Places) -> u16 {
        let slots = |place: &&PlaceView| place.id.kind == PlaceKind::Fine && self.has(place.id.device);
        places.as_slice().iter().filter(slots).map(|place| place.blocks).sum()
    }

    /// Where parts of an extent may be added: where some of it is already, so that it is in few places, else where
    /// they cost least.
    pub(super) fn with_room<'d>(
        self,
        devices: &'d [DeviceView],
        cut: Cut,
        places: &Places,
        cost: impl Fn(&DeviceView) -> f64,
    ) -> Option<&'d DeviceView> {
        let roomy = self.these(devices).filter(|d| Room::is_below_brim(d, cut));
        let elsewhere = |d: &DeviceView| !places.as_slice().iter().any(|place| place.id.device == d.id);
        roomy.min_by(|a, b| elsewhere(a).cmp(&elsewhere(b)).then(cost(a).total_cmp(&cost(b))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::device;
    use super::*;

    #[test]
    fn those_are_fast_that_are_not_of_the_slowest_kind() {
        let fast = |idle: &[u64]| {
            let devices: Vec<_> = (0..).zip(idle).map(|(id, idle)| device(id, 64, *idle)).collect();
            Fast::of(&devices).these(&devices).map(|d| d.id.0).collect::<Vec<_>>()
        };
        assert_eq!(fast(&[8000, 100]), [1]);
        assert_eq!(fast(&[100, 110, 8000]), [0, 1], "two SSDs and a disk");
        assert_eq!(fast(&[5000, 80, 1]), [1, 2], "memory, an SSD and a disk");
        assert_eq!(fast(&[8000, 80, 8100]), [1], "an SSD and two disks");
        assert_eq!(fast(&[80, 3, 4]), [1, 2], "memory and an SSD");
        assert_eq!(fast(&[80, 80]), [0], "alike");
        assert_eq!(fast(&[80]), [0u8; 0], "alone");
    }
}
