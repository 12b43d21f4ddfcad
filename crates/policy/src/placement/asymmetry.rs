//! `asymmetry`: each extent on the device where its mix of reads and writes costs least.
//!
//! Source: measurement-driven migration (the dissertation behind it, chapter II). Devices are peers: one may
//! be better at reads and the other at writes.
//!
//! Rule: counters `R_j`, `W_j` per extent, `r_i`, `w_i` measured per device. The cost of extent *j* on device
//! *i* is `C_ji = (R_j r_i + W_j w_i) / (R_j + W_j)`. After `minimum` accesses the extent moves from *i* to
//! *k* if `C_ji > (1 + delta) C_jk`, where *k* is the cheapest device with space, and if a token is
//! available; its counters then restart. Extents move while they are accessed; in a quiet second others do.
//!
//! Constants: `delta` = 1, as measured best; counters of one byte, halved together when one is full; their
//! table bounded to 0.003 % of the pool, both as published. The dissertation gives neither the rate of tokens
//! nor the minimum: 16 per second and 4 are ours.
//!
//! When not: it compares devices extent by extent and so sends everything to a device that is better at
//! everything, until that one's queue makes it worse.

use super::allocation::{
    ALLOCATION, Allocation, METADATA_EVERY, METADATA_RANGE, MetadataRanges, fastest, is_metadata,
};
use super::tokens::Tokens;
use super::{
    Access, Action, DeviceView, Key, Placement, PolicyContext, Question, Reasons, Settings, Subscriptions,
};
use crate::Lru;
use weir_model::{BlockRange, DeviceId, ExtentKey, Nanos, Op, PlaceId, PlaceKind};

const DELTA: Key =
    Key::number("delta", 1.0, (0.0, 100.0), "by how much dearer an extent must be than elsewhere to move");
const MINIMUM: Key = Key::number("minimum", 4.0, (1.0, 255.0), "accesses before an extent may move");
const TOKENS: Key = Key::number("tokens", 16.0, (0.0, 100_000.0), "extents that may move in a second");
const MEMORY: Key = Key::percent("memory", 0.003, "of the pool's size, the memory of its counters");
const LARGE: Key = Key::flag(
    "large_stay",
    false,
    "what is accessed by requests larger than an extent is left where it is (Migration-2)",
);
const METADATA: Key =
    Key::flag("metadata_on_fast", false, "what clients call metadata is put on the fastest device and stays");

/// The tunable constants.
pub(super) const KEYS: &[Key] =
    &[DELTA, MINIMUM, TOKENS, MEMORY, LARGE, METADATA, METADATA_RANGE, METADATA_EVERY, ALLOCATION];

/// The minimum number of extents in the table.
const EXTENTS_MIN: usize = 1024;
/// The number of extents examined in a quiet round.
const EXTENTS_PER_ROUND: usize = 64;

/// The recent accesses of an extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    reads: u8,
    writes: u8,
}

impl Counters {
    fn count(&mut self, write: bool) {
        if self.reads == u8::MAX || self.writes == u8::MAX {
            self.reads /= 2;
            self.writes /= 2;
        }
        *(if write { &mut self.writes } else { &mut self.reads }) += 1;
    }

    fn total(self) -> u32 {
        u32::from(self.reads) + u32::from(self.writes)
    }

    /// Returns the mean cost on a device in nanoseconds; `None` without accesses.
    fn cost(self, device: &DeviceView) -> Option<f64> {
        let (r, w) = (device.read_response().0 as f64, device.write_response().0 as f64);
        let sum = f64::from(self.reads) * r + f64::from(self.writes) * w;
        (self.total() > 0).then(|| sum / f64::from(self.total()))
    }
}

/// The state of the policy.
#[derive(Clone, Debug)]
pub struct Asymmetry {
    delta: f64,
    minimum: u32,
    memory: f64,
    large_stay: bool,
    metadata_on_fast: bool,
    ranges: MetadataRanges,
    allocation: Allocation,
    tokens: Tokens,
    table: Lru<ExtentKey, Counters>,
    /// The number of accesses since the last round.
    accesses: u64,
}

impl Asymmetry {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            delta: settings.get(&DELTA),
            minimum: settings.get(&MINIMUM) as u32,
            memory: settings.get(&MEMORY),
            large_stay: settings.flag(&LARGE),
            metadata_on_fast: settings.flag(&METADATA),
            ranges: MetadataRanges::new(settings),
            allocation: Allocation::new(settings),
            tokens: Tokens::new(settings.get(&TOKENS)),
            table: Lru::new(EXTENTS_MIN),
            accesses: 0,
        }
    }

    /// Whether the access is to metadata that is kept on the fastest device.
    fn stays_on_fast(&self, context: &PolicyContext<'_>, access: &Access) -> bool {
        self.metadata_on_fast && is_metadata(access) || self.ranges.touches(access.key, context.extent)
    }

    /// Returns the cheaper device for an extent with these counters that is on `from`.
    fn cheaper(&self, devices: &[DeviceView], counters: Counters, from: DeviceId) -> Option<DeviceId> {
        let here = counters.cost(devices.get(from.index())?)?;
        let others = devices.iter().filter(|d| d.id != from && d.has_space());
        let costs = others.filter_map(|d| Some((counters.cost(d)?, d.id)));
        let (there, to) = costs.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (here > (1.0 + self.delta) * there).then_some(to)
    }

    /// Moves the extent if that is worth it and a token is available; its counters then restart.
    fn move_if_cheaper(&mut self, context: &mut PolicyContext<'_>, key: ExtentKey, from: DeviceId) -> bool {
        let Some(counters) = self.table.get(&key).copied() else { return false };
        if counters.total() < self.minimum
            || !self.tokens.is_available(context.now)
            || context.actions.len() >= context.actions_max
        {
            return false;
        }
        let Some(device) = self.cheaper(context.devices, counters, from) else { return false };
        let blocks = BlockRange { first: 0, count: context.extent.blocks() };
        context.actions.push(Action::Move { key, blocks, to: PlaceId { device, kind: PlaceKind::Whole } });
        self.tokens.spend();
        if let Some(counters) = self.table.get_mut(&key) {
            *counters = Counters::default();
        }
        true
    }
}

impl Placement for Asymmetry {
    fn name(&self) -> &'static str {
        "asymmetry"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        let fast = fastest(context.devices).filter(|id| context.device(*id).is_some_and(|d| d.free > 0));
        if self.stays_on_fast(context, access) && fast.is_some() {
            return fast;
        }
        self.allocation.allocate(context, access)
    }

    fn subscriptions(&self) -> Subscriptions {
        let metadata = self.metadata_on_fast;
        Subscriptions { accesses: true, runs: self.large_stay, metadata, ..Subscriptions::default() }
    }

    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        let write = match access.op {
            Op::Read => false,
            Op::Write => true,
            _ => {
                self.table.remove(&access.key);
                return;
            }
        };
        self.accesses += 1;
        let stays =
            self.large_stay && access.run > context.extent.bytes() || self.stays_on_fast(context, access);
        let Some(from) = access.places.device().filter(|_| !stays) else { return };
        match self.table.touch(access.key) {
            Some(counters) => counters.count(write),
            None => {
                let mut counters = Counters::default();
                counters.count(write);
                self.table.insert(access.key, counters);
            }
        }
        self.move_if_cheaper(context, access.key, from);
    }

    fn round_interval(&self) -> Option<Nanos> {
        Some(Nanos::secs(1))
    }

    /// Bounds the table; after a quiet second, moves extents that were not accessed in it.
    fn round(&mut self, context: &mut PolicyContext<'_>) {
        let extents: u64 = context.devices.iter().map(|d| u64::from(d.extents)).sum();
        let bytes = extents as f64 * context.extent.bytes().0 as f64 * self.memory;
        let most = bytes as usize / Lru::<ExtentKey, Counters>::ENTRY_BYTES;
        self.table.set_capacity(most.max(EXTENTS_MIN));
        if std::mem::take(&mut self.accesses) > 0 || context.devices.iter().any(|d| d.in_flight > 0) {
            return;
        }
        let waiting = self.table.iter().filter(|(_, c)| c.total() >= self.minimum).map(|(key, _)| key);
        let waiting: Vec<_> = waiting.take(EXTENTS_PER_ROUND).collect();
        for key in waiting {
            if let Some(from) = context.map.places(key).device() {
                self.move_if_cheaper(context, key, from);
            }
        }
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        let counters = self.table.get(&about.key).copied().unwrap_or_default();
        reasons.figure("reads counted", counters.reads);
        reasons.figure("writes counted", counters.writes);
        for device in context.devices {
            let cost = counters.cost(device).map_or("-".into(), |ns| Nanos(ns as u64).to_string());
            reasons.figure(format_args!("cost of an access on {}", about.name(device.id)), cost);
        }
        if let Some(here) = about.places.device() {
            reasons.moves_if(format_args!(
                "an access costs more than {:.2} times as much on {} as on another device with room, after {} \
                 accesses counted",
                1.0 + self.delta,
                about.name(here),
                self.minimum
            ));
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::super::MeasuredCommand;
    use super::super::testing::{Pool, device, key, whole};
    use super::*;
    use proptest::prelude::*;
    use weir_model::Bytes;

    /// Returns a device that has answered reads and writes in this many microseconds.
    fn measured(id: u8, reads: u64, writes: u64) -> DeviceView {
        let mut view = device(id, 64, reads);
        view.note(&MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos::micros(reads), Nanos(0)));
        view.note(&MeasuredCommand::new(true, Bytes::kib(4), 1, Nanos::micros(writes), Nanos(0)));
        view
    }

    fn pool() -> (Pool, Asymmetry) {
        let mut pool = Pool::new(vec![measured(0, 100, 900), measured(1, 300, 200)]);
        pool.map.put(0, whole(0));
        pool.map.put(1, whole(1));
        pool.now = Nanos::secs(1);
        (pool, Asymmetry::new(&Settings::default()))
    }

    fn access(pool: &mut Pool, policy: &mut Asymmetry, extent: u64, op: Op, kib: u64) -> Vec<Action> {
        let access = pool.access(extent, op, Bytes::kib(kib));
        pool.ask(|context| policy.accessed(context, &access)).1
    }

    #[test]
    fn extents_move_to_cheaper_device() {
        let (mut pool, mut policy) = pool();
        let blocks = BlockRange { first: 0, count: 32 };
        // Written four times: 900 us here, 200 us there.
        for _ in 0..3 {
            assert_eq!(access(&mut pool, &mut policy, 0, Op::Write, 4), []);
        }
        let to = whole(1);
        assert_eq!(
            access(&mut pool, &mut policy, 0, Op::Write, 4),
            [Action::Move { key: key(0), blocks, to }]
        );
        // Its counters restarted: three more are not enough.
        (0..3).for_each(|_| assert_eq!(access(&mut pool, &mut policy, 0, Op::Write, 4), []));
        // Read four times: 300 us here, 100 us there.
        (0..3).for_each(|_| assert_eq!(access(&mut pool, &mut policy, 1, Op::Read, 4), []));
        let to = whole(0);
        assert_eq!(
            access(&mut pool, &mut policy, 1, Op::Read, 4),
            [Action::Move { key: key(1), blocks, to }]
        );
    }

    #[test]
    fn small_gain_moves_nothing() {
        let (mut pool, mut policy) = pool();
        // Three reads and a write: (3*100 + 900) / 4 = 300 here, (3*300 + 200) / 4 = 275 there.
        for op in [Op::Read, Op::Read, Op::Read, Op::Write] {
            assert_eq!(access(&mut pool, &mut policy, 0, op, 4), []);
        }
        let mut settings = Settings::default();
        assert!(settings.set(&DELTA, 0.05));
        let mut policy = Asymmetry::new(&settings);
        for op in [Op::Read, Op::Read, Op::Read] {
            assert_eq!(access(&mut pool, &mut policy, 0, op, 4), []);
        }
        assert_eq!(access(&mut pool, &mut policy, 0, Op::Write, 4).len(), 1);
    }

    #[test]
    fn tokens_and_space_bound_moves() {
        let (mut pool, mut policy) = pool();
        (2..40).for_each(|i| pool.map.put(i, whole(0)));
        let mut moved = 0;
        for extent in 2..40 {
            moved +=
                (0..4).map(|_| access(&mut pool, &mut policy, extent, Op::Write, 4).len()).sum::<usize>();
        }
        assert_eq!(moved, 16);
        pool.now = Nanos::secs(2);
        pool.devices[1].free = 4;
        assert_eq!(access(&mut pool, &mut policy, 20, Op::Write, 4), [], "no room for copies there");
        pool.devices[1].free = 5;
        assert_eq!(access(&mut pool, &mut policy, 20, Op::Write, 4).len(), 1);
    }

    #[test]
    fn large_requests_and_metadata_stay() {
        let (mut pool, _) = pool();
        let mut settings = Settings::default();
        assert!(settings.set(&LARGE, 1.0) && settings.set(&METADATA, 1.0));
        let mut policy = Asymmetry::new(&settings);
        let mut large = pool.access(0, Op::Write, Bytes::kib(128));
        large.run = Bytes::kib(132);
        let mut metadata = pool.access(0, Op::Write, Bytes::kib(4));
        metadata.hint = weir_model::Hint::Metadata;
        for _ in 0..10 {
            for access in [&large, &metadata] {
                assert_eq!(pool.ask(|context| policy.accessed(context, access)).1, []);
            }
        }
        assert_eq!(pool.ask(|context| policy.allocate(context, &metadata)).0, Some(DeviceId(0)));
    }

    #[test]
    fn quiet_second_moves_waiting_extents() {
        let (mut pool, mut policy) = pool();
        pool.now = Nanos(0);
        (0..8).for_each(|_| assert_eq!(access(&mut pool, &mut policy, 0, Op::Write, 4), [], "no token yet"));
        pool.now = Nanos::secs(1);
        assert_eq!(pool.round(&mut policy), [], "not quiet");
        pool.now = Nanos::secs(2);
        assert_eq!(pool.round(&mut policy).len(), 1);
    }

    proptest! {
        /// Compares with a naive twin: a map of wide counters, and the rule as published.
        #[test]
        fn moves_match_published_rule(
            speeds in prop::collection::vec((1u64..2000, 1u64..2000), 2..5),
            delta in 0.0f64..3.0,
            steps in prop::collection::vec((0u64..6, any::<bool>()), 1..120),
        ) {
            let mut pool = Pool::new(
                speeds.iter().enumerate().map(|(i, (r, w))| measured(i as u8, *r, *w)).collect(),
            );
            let mut settings = Settings::default();
            prop_assert!(settings.set(&DELTA, delta) && settings.set(&TOKENS, 100_000.0));
            let mut policy = Asymmetry::new(&settings);
            let mut twin = std::collections::BTreeMap::new();
            pool.now = Nanos::secs(1);
            for (extent, write) in steps {
                let at = (extent as usize) % speeds.len();
                pool.map.put(extent, whole(at as u8));
                let op = if write { Op::Write } else { Op::Read };
                let actions = access(&mut pool, &mut policy, extent, op, 4);
                let (reads, writes) = twin.entry(extent).or_insert((0u64, 0u64));
                *(if write { &mut *writes } else { &mut *reads }) += 1;
                let total = *reads + *writes;
                let cost = |i: usize| (*reads * speeds[i].0 + *writes * speeds[i].1) as f64 / total as f64;
                let best = (0..speeds.len()).filter(|i| *i != at).map(cost).fold(f64::MAX, f64::min);
                let expected = total >= 4 && cost(at) > (1.0 + delta) * best * (1.0 + 1e-9);
                let unclear = (cost(at) / ((1.0 + delta) * best) - 1.0).abs() < 1e-6;
                prop_assert!(unclear || expected != actions.is_empty(), "{extent} {actions:?}");
                if let Some(Action::Move { to, .. }) = actions.first() {
                    prop_assert!((cost(to.device.index()) - best).abs() < 1e-6 * best);
                    twin.insert(extent, (0, 0));
                }
            }
        }
    }
}
