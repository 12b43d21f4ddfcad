//! Which devices are the fast ones; the others have the homes.
//!
//! Idle reads tell. Where they do not, since all devices are alike when idle, load does, after a while: volumes of a cloud,
//! disks behind a cap, an array and a single disk answer a single read alike, and can do very different amounts.

use super::super::{DeviceView, PlaceView, Places};
use super::heat::Cut;
use super::room::Room;
use weir_model::{BLOCK, Bytes, DeviceId, Nanos, PlaceKind};

/// Of what the last device takes for an idle read, what a fast one takes at most.
const SLOWEST: f64 = 0.25;

/// Devices are alike when idle if the last one's read takes at most this many times as long as the first one's.
const ALIKE: u64 = 2;
/// Of these, fast are those of whose time a read takes less than this, of what it takes of the slowest one's.
const LESS: f64 = 0.7;
/// Commands a device has at a time, on average, that is under load.
const LOADED: f64 = 2.0;
/// How long one must have been faster.
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

    /// Of devices that are alike when idle, the faster ones by what each takes for a read under load, or idle where it has
    /// had none; `None` if idle reads tell, or there is no difference, or none has had load.
    fn under_load(devices: &[DeviceView], loaded: &[Option<Nanos>]) -> Option<Self> {
        let usable = || devices.iter().filter(|d| d.usable);
        let known = |d: &DeviceView| loaded.get(d.id.index()).copied().flatten();
        let service = |d: &DeviceView| known(d).unwrap_or(d.idle).0;
        let idle = || usable().map(|d| d.idle.0);
        let alike = idle().max()? <= idle().min()?.saturating_mul(ALIKE);
        if !alike || usable().all(|d| known(d).is_none()) {
            return None;
        }
        let limit = (LESS * usable().map(service).max()? as f64) as u64;
        let mut fast = Self::default();
        usable().filter(|d| service(d) < limit).for_each(|d| fast.insert(d.id));
        (!fast.is_empty()).then_some(fast)
    }

    fn insert(&mut self, id: DeviceId) {
        self.0[id.index() / 64] |= 1 << (id.index() % 64);
    }

    #[inline]
    pub(super) fn has(self, id: DeviceId) -> bool {
        self.0[id.index() / 64] >> (id.index() % 64) & 1 == 1
    }

    #[inline]
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
    #[inline]
    pub(super) fn holder<'d>(self, devices: &'d [DeviceView], places: &Places) -> Option<&'d DeviceView> {
        let holding = |place: &&PlaceView| place.blocks > 0 && self.has(place.id.device);
        let most = places.as_slice().iter().filter(holding).max_by_key(|place| place.blocks)?;
        devices.get(most.id.device.index())
    }

    /// How many of the blocks asked about are in their slots.
    #[inline]
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
        most: f64,
        places: &Places,
        cost: impl Fn(&DeviceView) -> f64,
    ) -> Option<&'d DeviceView> {
        let roomy = self.these(devices).filter(|d| Room::is_below(d, cut, most));
        let elsewhere = |d: &DeviceView| !places.as_slice().iter().any(|place| place.id.device == d.id);
        roomy.min_by(|a, b| elsewhere(a).cmp(&elsewhere(b)).then(cost(a).total_cmp(&cost(b))))
    }
}

/// What load says of devices that are alike when idle. What it said last of a device is remembered, so that one whose load
/// has gone elsewhere does not look fast for that.
#[derive(Clone, Debug)]
pub(super) struct UnderLoad {
    /// Of a device's time, what a read took when there were others.
    loaded: Vec<Option<Nanos>>,
    /// Devices that have been faster, and since when.
    faster: Option<(Fast, Nanos)>,
    /// How long they must have been: twice as long after each change.
    long: Nanos,
}

impl Default for UnderLoad {
    fn default() -> Self {
        Self { loaded: Vec::new(), faster: None, long: LONG }
    }
}

impl UnderLoad {
    /// A round: which devices are to be the fast ones instead of these, if others have been faster for long.
    pub(super) fn round(&mut self, now: Nanos, devices: &[DeviceView], these: Fast) -> Option<Fast> {
        self.loaded.resize(devices.len(), None);
        for (loaded, device) in self.loaded.iter_mut().zip(devices) {
            let is_loaded = device.reads.depth_of(Bytes(BLOCK)) >= LOADED && device.in_flight > 0;
            *loaded = if is_loaded { Some(device.service()) } else { *loaded };
        }
        let others = Fast::under_load(devices, &self.loaded).filter(|fast| *fast != these);
        let since = self.faster.filter(|(fast, _)| Some(*fast) == others).map_or(now, |(_, since)| since);
        self.faster = others.map(|fast| (fast, since));
        let changes = others.filter(|_| now.since(since) >= self.long);
        if changes.is_some() {
            self.long = Nanos(self.long.0.saturating_mul(2));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Command;
    use super::super::super::testing::device;
    use super::*;

    /// Which of devices is fast after so many seconds, each given by what it takes for an idle read and, of 16 at a time,
    /// for each, in microseconds.
    fn fast_after(seconds: u64, devices: &[(u64, u64)]) -> Vec<u8> {
        let view = |(id, (idle, each)): (u8, &(u64, u64))| {
            let mut view = DeviceView { in_flight: 16, ..device(id, 64, *idle) };
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

    /// Two devices that take a reads' load in turn, wherever the fast one is: the other one is idle.
    #[test]
    fn alike_under_load_they_do_not_change_again_and_again() {
        let mut views = [device(0, 64, 900), device(1, 64, 900)];
        let (mut fast, mut load, mut changes) = (Fast::of(&views), UnderLoad::default(), 0);
        for tenth in 0..36_000 {
            let busy = usize::from(fast.has(DeviceId(1)));
            let command = Command::new(false, Bytes::kib(4), 16, Nanos::micros(16 * 1670), Nanos(0));
            (0..60).for_each(|_| views[busy].note(&command));
            (views[busy].in_flight, views[1 - busy].in_flight) = (16, 0);
            if let Some(other) = load.round(Nanos::millis(tenth * 100), &views, fast) {
                (fast, changes) = (other, changes + 1);
            }
        }
        assert!(changes <= 1, "{changes} changes in an hour");
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
