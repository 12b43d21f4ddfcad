//! `mirror`: the most-read extents on two devices, with each read going to the one that will answer first.
//!
//! Source: ours, beyond Wardrop balancing and with the same goal: load shifts with the next read, not with
//! the next move.
//!
//! Rule: new extents go to the fastest device with space. Each round considers the recently accessed extents.
//! Those read at least `minimum` times, and `reads_per_write` times as often as written, get a second whole
//! copy, on the device that answers reads soonest among those they are not on; `share` of each device is for
//! such copies. When it is full, the least-read copy is evicted for an extent read twice as often. A write
//! goes to one device, which makes the other copy stale; the copy is refreshed in the round in which writes
//! are rare again. Counters are halved every round.
//!
//! Constants: `minimum` = 8, `reads_per_write` = 4, `share` = 10 %, 16 copies per second, rounds of a second:
//! all ours.
//!
//! When not: if most requests are writes; or if the devices are so different that no read would ever go to
//! the second.

use super::tokens::Tokens;
use super::{
    Access, Action, DeviceView, Hierarchy, KeptPlaces, Key, Placement, Places, PolicyContext, Question,
    Reasons, Settings, Subscriptions,
};
use crate::Lru;
use weir_model::{BlockRange, DeviceId, ExtentKey, Nanos, Op, PlaceId, PlaceKind};

const MINIMUM: Key =
    Key::number("minimum", 8.0, (1.0, 60_000.0), "reads in about a second that call for a second copy");
const READS_PER_WRITE: Key =
    Key::number("reads_per_write", 4.0, (0.0, 1000.0), "how many reads an extent must have for each write");
const SHARE: Key = Key::percent("share", 10.0, "of each device, what second copies may take");
const TOKENS: Key = Key::number("tokens", 16.0, (0.0, 100_000.0), "copies made or refreshed in a second");
const EXTENTS: Key =
    Key::number("extents", 65_536.0, (16.0, 1e8), "extents whose accesses are counted, the latest");

/// The tunable constants.
pub(super) const KEYS: &[Key] = &[MINIMUM, READS_PER_WRITE, SHARE, TOKENS, EXTENTS];

/// The number of extents examined per round.
const EXTENTS_PER_ROUND: usize = 4096;

/// The recent accesses of an extent, and the device of its second copy.
#[derive(Clone, Copy, Debug, Default)]
struct AccessCounts {
    reads: u16,
    writes: u16,
    second: Option<DeviceId>,
}

/// The state of the policy.
#[derive(Clone, Debug)]
pub struct Mirror {
    minimum: u16,
    reads_per_write: f64,
    share: f64,
    tokens: Tokens,
    heat: Lru<ExtentKey, AccessCounts>,
    /// The number of second copies on each device.
    copies: Vec<u32>,
}

impl Mirror {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            minimum: settings.get(&MINIMUM) as u16,
            reads_per_write: settings.get(&READS_PER_WRITE),
            share: settings.get(&SHARE),
            tokens: Tokens::new(settings.get(&TOKENS)),
            heat: Lru::new(settings.get(&EXTENTS) as usize),
            copies: Vec::new(),
        }
    }

    fn is_read(&self, heat: AccessCounts) -> bool {
        heat.reads >= self.minimum && f64::from(heat.reads) >= self.reads_per_write * f64::from(heat.writes)
    }

    /// Whether the device's share for second copies has space for one more.
    fn has_share_left(&self, device: &DeviceView) -> bool {
        let most = (self.share * f64::from(device.extents)) as u32;
        self.copies.get(device.id.index()).is_some_and(|copies| *copies < most)
    }

    /// Returns the device for a second copy: the one that answers reads soonest among those the extent is not
    /// on.
    fn second(&self, devices: &[DeviceView], places: &Places) -> Option<DeviceId> {
        let free = devices.iter().filter(|d| !places.is_on(d.id) && d.has_space() && self.has_share_left(d));
        free.min_by_key(|d| (d.read_response(), d.id)).map(|d| d.id)
    }

    /// Removes the second copy of an extent, as far as it is one.
    fn drop_second(&mut self, context: &mut PolicyContext<'_>, key: ExtentKey, device: DeviceId) {
        if let Some(copies) = self.copies.get_mut(device.index()) {
            *copies -= 1;
        }
        if let Some(heat) = self.heat.get_mut(&key) {
            heat.second = None;
        }
        let (places, blocks) = (context.map.places(key), all(context));
        // Blocks written there since are valid nowhere else.
        let dirty = places.place(whole(device)).is_some_and(|p| p.sole > 0);
        context.actions.push(match places.whole(|other| other != device) {
            Some(first) if dirty => Action::Move { key, blocks, to: first.id },
            _ => Action::Drop { key, blocks, from: whole(device) },
        });
    }

    /// Makes or refreshes the second copy of a much-read extent. Returns whether it did.
    fn copy(&mut self, context: &mut PolicyContext<'_>, key: ExtentKey, heat: AccessCounts) -> bool {
        let places = context.map.places(key);
        let held = places.as_slice().iter().map(|p| p.of_extent).max().unwrap_or(0);
        let to = match heat.second {
            Some(device) => {
                let copy = places.place(whole(device));
                // It is complete already, or the only copy.
                let lacks = copy.is_none_or(|p| p.of_extent < held);
                Some(device).filter(|_| lacks && context.device(device).is_some_and(|d| d.is_usable))
            }
            None => self.second(context.devices, &places),
        };
        let Some(device) = to.filter(|_| held > 0) else { return false };
        context.actions.push(Action::Copy { key, blocks: all(context), to: whole(device) });
        self.tokens.spend();
        if heat.second.is_none() {
            if let Some(copies) = self.copies.get_mut(device.index()) {
                *copies += 1;
            }
            if let Some(heat) = self.heat.get_mut(&key) {
                heat.second = Some(device);
            }
        }
        true
    }

    /// Counts an access, and removes the second copy of an extent that is forgotten for it.
    fn count(&mut self, context: &mut PolicyContext<'_>, key: ExtentKey, write: bool) {
        if self.heat.touch(key).is_none() {
            let gone = self.heat.insert(key, AccessCounts::default());
            if let Some((gone, AccessCounts { second: Some(device), .. })) = gone {
                self.drop_second(context, gone, device);
            }
        }
        if let Some(heat) = self.heat.get_mut(&key) {
            let counter = if write { &mut heat.writes } else { &mut heat.reads };
            *counter = counter.saturating_add(1);
        }
    }
}

fn whole(device: DeviceId) -> PlaceId {
    PlaceId { device, kind: PlaceKind::Whole }
}

fn all(context: &PolicyContext<'_>) -> BlockRange {
    BlockRange { first: 0, count: context.extent.blocks() }
}

impl Placement for Mirror {
    fn name(&self) -> &'static str {
        "mirror"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        Hierarchy.allocate(context, access)
    }

    fn kept_places(&self) -> KeptPlaces {
        KeptPlaces::All
    }

    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, ..Subscriptions::default() }
    }

    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        self.copies.resize(context.devices.len(), 0);
        match access.op {
            Op::Read => self.count(context, access.key, false),
            Op::Write => self.count(context, access.key, true),
            _ => {}
        }
    }

    fn round_interval(&self) -> Option<Nanos> {
        Some(Nanos::secs(1))
    }

    fn round(&mut self, context: &mut PolicyContext<'_>) {
        self.copies.resize(context.devices.len(), 0);
        let mut latest: Vec<_> =
            self.heat.iter().take(EXTENTS_PER_ROUND).map(|(key, heat)| (key, *heat)).collect();
        latest.sort_by_key(|(_, heat)| std::cmp::Reverse(heat.reads));
        let mut coldest =
            latest.iter().rev().filter(|(_, h)| h.second.is_some()).copied().collect::<Vec<_>>();
        coldest.reverse();
        for (key, heat) in latest.iter().copied() {
            if !self.is_read(heat) {
                continue;
            }
            if !self.tokens.is_available(context.now) || context.actions.len() + 1 >= context.actions_max {
                break;
            }
            let room = context.devices.iter().any(|d| self.has_share_left(d));
            if !self.copy(context, key, heat) && heat.second.is_none() && !room {
                // The share is full: the least-read copy is evicted, and next time there is space.
                let least = coldest.pop().filter(|(_, least)| least.reads < heat.reads / 2);
                let Some((least, AccessCounts { second: Some(device), .. })) = least else { break };
                self.drop_second(context, least, device);
            }
        }
        for (key, _) in latest {
            if let Some(heat) = self.heat.get_mut(&key) {
                heat.reads /= 2;
                heat.writes /= 2;
            }
        }
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        let heat = self.heat.get(&about.key).copied().unwrap_or_default();
        reasons.figure("recent reads", heat.reads);
        reasons.figure("recent writes", heat.writes);
        reasons.figure("second copy on", heat.second.map_or("no device", |device| about.name(device)));
        for device in context.devices {
            let copies = self.copies.get(device.id.index()).copied().unwrap_or(0);
            let most = (self.share * f64::from(device.extents)) as u32;
            let name = about.name(device.id);
            reasons.figure(format_args!("second copies on {name}"), format_args!("{copies} of {most}"));
            reasons.figure(format_args!("mean response of {name} to reads"), device.read_response());
        }
        match heat.second {
            None => reasons.moves_if(format_args!(
                "it gets a second copy when it is read {} times in about a second, and {} times as often as written",
                self.minimum, self.reads_per_write
            )),
            Some(_) => reasons.moves_if(
                "its second copy goes when there is no room for that of an extent read twice as often",
            ),
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pool, device, key, whole as at};
    use super::*;
    use proptest::prelude::*;
    use weir_model::Bytes;

    fn pool() -> Pool {
        let mut pool = Pool::new(vec![device(0, 40, 100), device(1, 40, 300), device(2, 40, 5000)]);
        (0..16).for_each(|i| pool.map.put(i, at(0)));
        pool
    }

    fn round(pool: &mut Pool, policy: &mut Mirror) -> Vec<Action> {
        pool.now += Nanos::secs(1);
        let actions = pool.round(policy);
        pool.act(&actions);
        actions
    }

    fn on(pool: &Pool, extent: u64) -> Vec<(u8, u16)> {
        let places = pool.map.places(key(extent));
        places.as_slice().iter().map(|p| (p.id.device.0, p.of_extent)).collect()
    }

    #[test]
    fn hot_extent_gets_second_copy() {
        let (mut pool, mut policy) = (pool(), Mirror::new(&Settings::default()));
        (0..8).for_each(|_| pool.read(&mut policy, 1, 0, Bytes::kib(4)));
        (0..7).for_each(|_| pool.read(&mut policy, 2, 0, Bytes::kib(4)));
        for _ in 0..8 {
            pool.read(&mut policy, 3, 0, Bytes::kib(4));
            pool.write(&mut policy, 3, 0, Bytes::kib(4));
        }
        assert_eq!(round(&mut pool, &mut policy).len(), 1);
        assert_eq!(
            [on(&pool, 1), on(&pool, 2), on(&pool, 3)],
            [vec![(0, 32), (1, 32)], vec![(0, 32)], vec![(0, 32)]]
        );
        assert_eq!(round(&mut pool, &mut policy), [], "counters were halved");
        // A write makes the copy stale; it is refreshed once it is read again.
        pool.map.0.insert(key(1), [(at(0), u32::MAX), (at(1), !1)].into());
        assert_eq!(round(&mut pool, &mut policy), []);
        (0..8).for_each(|_| pool.read(&mut policy, 1, 0, Bytes::kib(4)));
        assert_eq!(round(&mut pool, &mut policy).len(), 1);
        assert_eq!(on(&pool, 1), [(0, 32), (1, 32)]);
    }

    #[test]
    fn hotter_extent_replaces_coldest_copy() {
        let mut settings = Settings::default();
        // One copy on each device.
        assert!(settings.set(&SHARE, 0.025));
        let (mut pool, mut policy) = (pool(), Mirror::new(&settings));
        for (extent, reads) in [(4, 20), (5, 16)] {
            (0..reads).for_each(|_| pool.read(&mut policy, extent, 0, Bytes::kib(4)));
        }
        round(&mut pool, &mut policy);
        assert_eq!([on(&pool, 4), on(&pool, 5)], [vec![(0, 32), (1, 32)], vec![(0, 32), (2, 32)]]);
        // The first device has its share too, but all extents are there already: nothing is evicted.
        policy.copies[0] = 1;
        (0..15).for_each(|_| pool.read(&mut policy, 6, 0, Bytes::kib(4)));
        (0..2).for_each(|_| pool.read(&mut policy, 4, 0, Bytes::kib(4)));
        round(&mut pool, &mut policy);
        assert_eq!(on(&pool, 6), [(0, 32)], "not twice as hot");
        (0..40).for_each(|_| pool.read(&mut policy, 6, 0, Bytes::kib(4)));
        round(&mut pool, &mut policy);
        assert_eq!(on(&pool, 5), [(0, 32)], "the copy read least went");
        (0..40).for_each(|_| pool.read(&mut policy, 6, 0, Bytes::kib(4)));
        round(&mut pool, &mut policy);
        assert_eq!(on(&pool, 6), [(0, 32), (2, 32)]);
    }

    #[test]
    fn forgotten_copy_is_dropped() {
        let mut settings = Settings::default();
        assert!(settings.set(&EXTENTS, 16.0));
        let (mut pool, mut policy) = (pool(), Mirror::new(&settings));
        (0..8).for_each(|_| pool.read(&mut policy, 0, 0, Bytes::kib(4)));
        round(&mut pool, &mut policy);
        (1..17).for_each(|i| pool.read(&mut policy, i, 0, Bytes::kib(4)));
        assert_eq!((on(&pool, 0), policy.copies[1]), (vec![(0, 32)], 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Second copies stay within their share, and the counts match the map.
        #[test]
        fn copies_stay_within_share(steps in prop::collection::vec((0u64..16, 0u16..20, 0u16..3), 1..60)) {
            let mut settings = Settings::default();
            prop_assert!(settings.set(&SHARE, 0.075));
            let (mut pool, mut policy) = (pool(), Mirror::new(&settings));
            for (extent, reads, writes) in steps {
                (0..reads).for_each(|_| pool.read(&mut policy, extent, 0, Bytes::kib(4)));
                for _ in 0..writes {
                    pool.write(&mut policy, extent, 0, Bytes::kib(4));
                }
                round(&mut pool, &mut policy);
                for device in 1..3u8 {
                    let copies = (0..16).filter(|i| pool.map.places(key(*i)).is_on(DeviceId(device))).count();
                    prop_assert!(copies <= 3 && policy.copies[usize::from(device)] as usize >= copies);
                }
            }
        }
    }
}
