//! Which devices are the fast ones; the others have the homes.
//!
//! Idle reads tell. Where they do not, since all devices are alike when idle, load does, after a while: volumes of a cloud,
//! disks behind a cap, an array and a single disk answer a single read alike, and can do very different amounts.

use super::super::{DeviceView, PlaceView, Places};
use super::heat::Cut;
use super::room::Room;
use weir_model::{DeviceId, Nanos, PlaceKind};

/// Of what the last device takes for an idle read, what a fast one takes at most.
const SLOWEST: f64 = 0.25;

/// Devices whose idle reads take at most this many times as long as the first one's are alike.
const ALIKE: u64 = 2;
/// Of these, fast are those of whose time a read takes less than this, of what it takes of the slowest one's.
const LESS: f64 = 0.7;
/// How long that must have been so.
const LONG: Nanos = Nanos::secs(10);

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

    /// Of devices that are alike when idle, the faster ones under load; `None` if idle reads tell, or there is no
    /// difference, or it is not known yet.
    fn under_load(devices: &[DeviceView]) -> Option<Self> {
        let usable = || devices.iter().filter(|d| d.usable);
        let idle = || usable().map(|d| d.idle.0);
        let service = || usable().map(|d| d.service().0);
        let alike = idle().max()? <= idle().min()?.saturating_mul(ALIKE);
        if !alike || usable().any(|d| d.reads.count == 0) {
            return None;
        }
        let limit = (LESS * service().max()? as f64) as u64;
        let mut fast = Self::default();
        usable().filter(|d| d.service().0 < limit).for_each(|d| fast.insert(d.id));
        (!fast.is_empty()).then_some(fast)
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

/// What load says of devices that are alike when idle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnderLoad(Option<(Fast, Nanos)>);

impl UnderLoad {
    /// A round: which devices are to be the fast ones instead of these, if others have been faster for long.
    pub(super) fn round(&mut self, now: Nanos, devices: &[DeviceView], these: Fast) -> Option<Fast> {
        let others = Fast::under_load(devices).filter(|fast| *fast != these);
        let since = self.0.filter(|(fast, _)| Some(*fast) == others).map_or(now, |(_, since)| since);
        self.0 = others.map(|fast| (fast, since));
        others.filter(|_| now.since(since) >= LONG)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Command;
    use super::super::super::testing::device;
    use super::*;
    use weir_model::Bytes;

    /// Which of devices is fast after so many seconds, each given by what it takes for an idle read and, of 16 at a time,
    /// for each, in microseconds.
    fn fast_after(seconds: u64, devices: &[(u64, u64)]) -> Vec<u8> {
        let view = |(id, (idle, each)): (u8, &(u64, u64))| {
            let mut view = device(id, 64, *idle);
            let command = Command::new(false, Bytes::kib(4), 16, Nanos::micros(16 * each), Nanos(0));
            (0..1000).for_each(|_| view.note(&command));
            view
        };
        let views: Vec<_> = (0..).zip(devices).map(view).collect();
        let (mut fast, mut load) = (Fast::of(&views), UnderLoad::default());
        for tenth in 0..seconds * 10 {
            fast = load.round(Nanos::millis(tenth * 100), &views, fast).unwrap_or(fast);
        }
        fast.these(&views).map(|d| d.id.0).collect()
    }

    #[test]
    fn load_tells_where_idle_reads_do_not() {
        let capped = [(900, 5000), (1000, 1700)];
        assert_eq!(fast_after(9, &capped), [0], "not at once");
        assert_eq!(fast_after(12, &capped), [1]);
        assert_eq!(fast_after(1000, &[(900, 5000), (1000, 4000)]), [0], "not for so little");
        assert_eq!(fast_after(12, &[(900, 5000), (1000, 1700), (800, 1600)]), [1, 2]);
        assert_eq!(fast_after(1000, &[(100, 9000), (5000, 5000)]), [0], "overloaded, and fast all the same");
    }

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
