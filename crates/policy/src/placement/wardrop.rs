//! `wardrop`: data spread so that all devices answer equally fast.
//!
//! Source: Wardrop equilibrium for storage (the dissertation behind it, chapter III), for any number of
//! devices. The faster device is not filled first.
//!
//! Rule, each round, with measured responses `R_i` and shares of the requests `Q_i`: `Rbar = sum R_i Q_i`,
//! target shares `P_i = Q_i + alpha (Rbar - R_i) Q_i`, at least `floor`, then normalised; tokens `(P_i - Q_i)
//! beta` for each device that should get more. New extents go to the device with the most tokens and spend
//! one; without tokens devices are drawn in proportion to P. The remaining tokens pay for moves: of hot
//! extents (a bounded LRU list) from devices that should get less, when they are written (with `from_memory`,
//! as published, only if the memory cache has the rest of the extent), and else in the next round; and of
//! cold ones, from a nearly full device to the one with the most space.
//!
//! Constants: `beta` = 100 and the list of 100 extents are published. So is `alpha` = 10 per millisecond, for
//! responses of 0.2 to 0.9 ms: with `relative = false`. By default `alpha` = 0.25 is relative to Rbar (1
//! makes two queues oscillate from 50 % load on, 0.25 from 80 %), shares change by at most 0.1 per round, and
//! a round is a second: ours.
//!
//! When not: with one client at a time that waits for each answer, a second device only costs.

use super::explain::percent;
use super::{
    Access, Action, DeviceView, Key, Placement, PolicyContext, Question, RESERVE, Reasons, Settings,
    Subscriptions,
};
use crate::Lru;
use weir_model::{BlockRange, DeviceId, ExtentKey, Nanos, Op, PlaceId, PlaceKind, Rng};

const ALPHA: Key =
    Key::number("alpha", 0.25, (0.0, 1000.0), "how strongly shares follow the difference of responses");
const RELATIVE: Key =
    Key::flag("relative", true, "alpha is relative to the mean response; otherwise per millisecond");
const BETA: Key = Key::number("beta", 100.0, (0.0, 1e6), "extents that may move for all of the share");
const FLOOR: Key = Key::percent("floor", 1.0, "the least share of a device");
const STEP: Key = Key::percent("step", 10.0, "the most a share changes in a round");
const ROUND: Key = Key::time("round", Nanos::secs(1), "the time between two rounds");
const HOT: Key = Key::number("hot", 100.0, (1.0, 1e6), "extents that count as hot, the latest used");

const FROM_MEMORY: Key =
    Key::flag("from_memory", false, "a write moves its extent only if the memory cache has the rest of it");

/// The tunable constants.
pub(super) const KEYS: &[Key] = &[ALPHA, RELATIVE, BETA, FLOOR, STEP, ROUND, HOT, FROM_MEMORY];

/// The number of cold extents moved per round, and of extents examined for them.
const COLD: usize = 8;
const COLD_LOOKS: usize = 256;

/// The share of a device.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceShare {
    /// Its share of the last round's requests, and its target share.
    actual: f64,
    target: f64,
    tokens: f64,
    /// The number of clients' commands completed at the last round.
    completed: u64,
}

impl DeviceShare {
    fn is_above_target(&self) -> bool {
        self.target < self.actual
    }
}

/// The state of the policy.
#[derive(Clone, Debug)]
pub struct Wardrop {
    alpha: f64,
    relative: bool,
    beta: f64,
    floor: f64,
    step: f64,
    interval: Nanos,
    from_memory: bool,
    parts: Vec<DeviceShare>,
    hot: Lru<ExtentKey, ()>,
    /// The position of the search for cold extents.
    cold: ExtentKey,
}

impl Wardrop {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            alpha: settings.get(&ALPHA),
            relative: settings.flag(&RELATIVE),
            beta: settings.get(&BETA),
            floor: settings.get(&FLOOR),
            step: settings.get(&STEP),
            interval: settings.time(&ROUND).max(Nanos::millis(1)),
            from_memory: settings.flag(&FROM_MEMORY),
            parts: Vec::new(),
            hot: Lru::new(settings.get(&HOT) as usize),
            cold: ExtentKey::default(),
        }
    }

    /// Initializes the shares of all devices. Before the first round they are proportional to speed.
    fn init_shares(&mut self, devices: &[DeviceView]) {
        if self.parts.len() == devices.len() {
            return;
        }
        let speed = |d: &DeviceView| 1.0 / d.mean_response().0.max(1) as f64;
        let all: f64 = devices.iter().map(speed).sum();
        let part = |d: &DeviceView| {
            let share = speed(d) / all;
            DeviceShare { actual: share, target: share, tokens: 0.0, completed: d.completed() }
        };
        self.parts = devices.iter().map(part).collect();
        self.raise_to_floor(devices);
    }

    /// Raises shares below the floor, and normalises all to a sum of 1. Unusable devices have none.
    fn raise_to_floor(&mut self, devices: &[DeviceView]) {
        for (part, device) in self.parts.iter_mut().zip(devices) {
            part.target = if device.is_usable { part.target.max(self.floor) } else { 0.0 };
        }
        let all: f64 = self.parts.iter().map(|p| p.target).sum();
        if all > 0.0 {
            self.parts.iter_mut().for_each(|p| p.target /= all);
        }
    }

    /// Computes the targets and tokens of a new round; without requests since the last one they stay.
    fn compute_targets(&mut self, devices: &[DeviceView]) {
        let done = |p: &DeviceShare, d: &DeviceView| d.completed().saturating_sub(p.completed) as f64;
        let all: f64 = self.parts.iter().zip(devices).map(|(p, d)| done(p, d)).sum();
        if all == 0.0 {
            return;
        }
        for (part, device) in self.parts.iter_mut().zip(devices) {
            part.actual = done(part, device) / all;
            part.completed = device.completed();
        }
        // In milliseconds, because alpha is per millisecond.
        let response = |d: &DeviceView| d.mean_response().as_secs_f64() * 1e3;
        let mean: f64 = self.parts.iter().zip(devices).map(|(p, d)| p.actual * response(d)).sum();
        let alpha = if self.relative { self.alpha / mean.max(1e-9) } else { self.alpha };
        for (part, device) in self.parts.iter_mut().zip(devices) {
            // A device that happened to get less than its minimum share must still be able to get more.
            let has = part.actual.max(self.floor);
            let change = alpha * (mean - response(device)) * has;
            part.target = has + change.clamp(-self.step, self.step);
        }
        self.raise_to_floor(devices);
        for part in &mut self.parts {
            part.tokens = ((part.target - part.actual) * self.beta).round().max(0.0);
        }
    }

    /// Returns the device with space and the most tokens, at least one.
    fn most_tokens(
        &self,
        devices: &[DeviceView],
        has_space: impl Fn(&DeviceView) -> bool,
    ) -> Option<DeviceId> {
        let having = self.parts.iter().zip(devices).filter(|(p, d)| p.tokens >= 1.0 && has_space(d));
        having.max_by(|(a, _), (b, _)| a.tokens.total_cmp(&b.tokens)).map(|(_, d)| d.id)
    }

    /// Draws one of the devices with space, in proportion to their targets.
    fn draw(&self, devices: &[DeviceView], random: &mut Rng) -> Option<DeviceId> {
        let all = || self.parts.iter().zip(devices).filter(|(_, d)| d.free > 0);
        let sum: f64 = all().map(|(p, _)| p.target).sum();
        let mut at = random.below(1 << 53) as f64 / (1u64 << 53) as f64 * sum;
        let drawn = all().find(|(p, _)| {
            at -= p.target;
            at < 0.0
        });
        drawn.or_else(|| all().next_back()).map(|(_, d)| d.id)
    }

    fn spend(&mut self, device: DeviceId) {
        if let Some(part) = self.parts.get_mut(device.index()) {
            part.tokens -= 1.0;
        }
    }

    /// Moves an extent from a device that should get less to the one that should get most.
    fn move_hot(&mut self, context: &mut PolicyContext<'_>, key: ExtentKey, from: DeviceId) {
        let less = self.parts.get(from.index()).is_some_and(DeviceShare::is_above_target);
        if !less || context.actions.len() >= context.actions_max {
            return;
        }
        let Some(to) = self.most_tokens(context.devices, |d| d.id != from && d.has_space()) else { return };
        self.spend(to);
        context.actions.push(move_all(context, key, to));
    }

    /// Moves cold extents from nearly full devices to the one with the most space.
    fn move_cold(&mut self, context: &mut PolicyContext<'_>) {
        let short = |d: &DeviceView| d.is_usable && d.free <= d.extents / RESERVE * 2;
        let roomy = context.devices.iter().filter(|d| d.has_space() && !short(d)).max_by_key(|d| d.free);
        let Some(to) = roomy.map(|d| d.id).filter(|_| context.devices.iter().any(short)) else { return };
        let mut moved = 0;
        for _ in 0..COLD_LOOKS {
            let Some(key) = context.map.next(self.cold) else {
                self.cold = ExtentKey::default();
                return;
            };
            self.cold = after(key);
            let on_short =
                context.map.places(key).device().and_then(|d| context.device(d)).is_some_and(short);
            if on_short && self.hot.get(&key).is_none() && context.actions.len() < context.actions_max {
                context.actions.push(move_all(context, key, to));
                moved += 1;
            }
            if moved == COLD {
                return;
            }
        }
    }
}

fn after(key: ExtentKey) -> ExtentKey {
    ExtentKey { index: weir_model::ExtentIndex(key.index.0 + 1), ..key }
}

fn move_all(context: &PolicyContext<'_>, key: ExtentKey, to: DeviceId) -> Action {
    let blocks = BlockRange { first: 0, count: context.extent.blocks() };
    Action::Move { key, blocks, to: PlaceId { device: to, kind: PlaceKind::Whole } }
}

impl Placement for Wardrop {
    fn name(&self) -> &'static str {
        "wardrop"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        self.init_shares(context.devices);
        if let Some(device) = self.most_tokens(context.devices, |d| d.free > 0) {
            self.spend(device);
            return Some(device);
        }
        self.draw(context.devices, context.random)
    }

    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, ..Subscriptions::default() }
    }

    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        if !access.op.has_payload() {
            self.hot.remove(&access.key);
            return;
        }
        let was_hot = self.hot.touch(access.key).is_some();
        let Some(from) = access.places.device() else { return };
        if !was_hot {
            self.hot.insert(access.key, ());
        } else if access.op == Op::Write
            && (!self.from_memory || context.map.is_in_memory_besides(access.key, access.blocks))
        {
            self.move_hot(context, access.key, from);
        }
    }

    fn round_interval(&self) -> Option<Nanos> {
        Some(self.interval)
    }

    fn round(&mut self, context: &mut PolicyContext<'_>) {
        self.init_shares(context.devices);
        let hot: Vec<_> = self.hot.iter().map(|(key, ())| key).collect();
        for key in hot {
            if self.most_tokens(context.devices, DeviceView::has_space).is_none() {
                break;
            }
            if let Some(from) = context.map.places(key).device() {
                self.move_hot(context, key, from);
            }
        }
        self.move_cold(context);
        self.compute_targets(context.devices);
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        let hot = self.hot.get(&about.key).is_some();
        reasons.figure("among the hot extents", if hot { "yes" } else { "no" });
        for (part, device) in self.parts.iter().zip(context.devices) {
            let name = about.name(device.id);
            reasons.figure(format_args!("mean response of {name}"), device.mean_response());
            let share = format!("{}, to be {}", percent(part.actual), percent(part.target));
            reasons.figure(format_args!("share of the requests on {name}"), share);
            reasons.figure(format_args!("extents that may move to {name}"), part.tokens.max(0.0) as u64);
        }
        if let Some(here) = about.places.device() {
            let name = about.name(here);
            let less = self.parts.get(here.index()).is_some_and(DeviceShare::is_above_target);
            let now = if less { "it is" } else { "it is not" };
            reasons.moves_if(format_args!(
                "{name} is to get less of the requests ({now}), another device with room has tokens, and the extent \
                 is among the hot ones"
            ));
            reasons.moves_if(format_args!("{name} is nearly full, and the extent is not among the hot ones"));
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
    use weir_model::{Bytes, Rng, Seed};

    fn policy(settings: &[(&Key, f64)]) -> Wardrop {
        let mut all = Settings::default();
        assert!(settings.iter().all(|(key, value)| all.set(key, *value)));
        Wardrop::new(&all)
    }

    /// Notes this many reads, answered in this many microseconds.
    fn serve(view: &mut DeviceView, count: u64, us: u64) {
        (0..count).for_each(|_| {
            view.note(&MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos::micros(us), Nanos(0)));
        });
    }

    fn targets(policy: &Wardrop) -> Vec<f64> {
        policy.parts.iter().map(|p| (p.target * 1e4).round() / 1e4).collect()
    }

    #[test]
    fn targets_and_tokens_match_paper() {
        let mut pool = Pool::new(vec![device(0, 1000, 1000), device(1, 1000, 1000)]);
        let mut policy = policy(&[(&RELATIVE, 0.0), (&ALPHA, 10.0), (&STEP, 1.0)]);
        pool.round(&mut policy);
        serve(&mut pool.devices[0], 60, 230);
        serve(&mut pool.devices[1], 40, 255);
        pool.round(&mut policy);
        // Rbar = 0.6*0.230 + 0.4*0.255 = 0.240; P = 0.6 + 10*0.010*0.6 and 0.4 - 10*0.015*0.4.
        assert_eq!(targets(&policy), [0.66, 0.34]);
        assert_eq!((policy.parts[0].tokens, policy.parts[1].tokens), (6.0, 0.0));
    }

    #[test]
    fn steps_are_bounded_and_shares_have_a_floor() {
        let mut pool = Pool::new(vec![device(0, 1000, 100), device(1, 1000, 5000)]);
        let mut policy = policy(&[]);
        pool.round(&mut policy);
        serve(&mut pool.devices[0], 50, 100);
        serve(&mut pool.devices[1], 50, 5000);
        pool.round(&mut policy);
        assert_eq!(targets(&policy), [0.6, 0.4], "by a tenth, not at once");
        serve(&mut pool.devices[0], 100, 100);
        pool.round(&mut policy);
        assert_eq!(targets(&policy), [0.9901, 0.0099]);
        pool.devices[1].is_usable = false;
        serve(&mut pool.devices[0], 1, 100);
        pool.round(&mut policy);
        assert_eq!(targets(&policy), [1.0, 0.0], "a lost device gets nothing");
    }

    #[test]
    fn new_extents_take_tokens_first() {
        let mut pool = Pool::new(vec![device(0, 1000, 100), device(1, 1000, 100)]);
        let mut policy = policy(&[(&ALPHA, 1.0)]);
        pool.map.put(500, whole(1));
        pool.map.put(501, whole(1));
        pool.map.put(502, whole(0));
        for extent in [500, 501, 502] {
            let access = pool.access(extent, Op::Read, Bytes::kib(4));
            pool.ask(|context| policy.accessed(context, &access));
        }
        pool.round(&mut policy);
        serve(&mut pool.devices[0], 50, 90);
        serve(&mut pool.devices[1], 50, 110);
        pool.round(&mut policy);
        // P = 0.55, 0.45: five tokens for the first device.
        assert_eq!(policy.parts[0].tokens, 5.0, "{:?}", policy.parts);
        (0..3).for_each(|i| assert_eq!(pool.allocate(&mut policy, i), Some(DeviceId(0))));
        let access = pool.access(500, Op::Write, Bytes::kib(4));
        let blocks = BlockRange { first: 0, count: 32 };
        let moved = |i| Action::Move { key: key(i), blocks, to: whole(0) };
        assert_eq!(pool.ask(|context| policy.accessed(context, &access)).1, [moved(500)]);
        pool.map.put(500, whole(0));
        assert_eq!(pool.round(&mut policy), [moved(501)], "what is on the other device stays");
    }

    /// As published: a write moves an extent that is in memory; the others wait for the round.
    #[test]
    fn writes_move_extents_that_are_in_memory() {
        let mut pool = Pool::new(vec![device(0, 1000, 100), device(1, 1000, 100)]);
        let mut policy = policy(&[(&ALPHA, 1.0), (&FROM_MEMORY, 1.0)]);
        for extent in [500, 501] {
            pool.map.put(extent, whole(1));
            let access = pool.access(extent, Op::Read, Bytes::kib(4));
            pool.ask(|context| policy.accessed(context, &access));
        }
        pool.map.1.insert(key(501));
        pool.round(&mut policy);
        serve(&mut pool.devices[0], 50, 90);
        serve(&mut pool.devices[1], 50, 110);
        pool.round(&mut policy);
        let written = |pool: &mut Pool, policy: &mut Wardrop, extent| {
            let access = pool.access(extent, Op::Write, Bytes::kib(4));
            pool.ask(|context| policy.accessed(context, &access)).1
        };
        assert_eq!(written(&mut pool, &mut policy, 500), []);
        let moved =
            |i| Action::Move { key: key(i), blocks: BlockRange { first: 0, count: 32 }, to: whole(0) };
        assert_eq!(written(&mut pool, &mut policy, 501), [moved(501)]);
        pool.map.put(501, whole(0));
        assert_eq!(pool.round(&mut policy), [moved(500)]);
    }

    #[test]
    fn nearly_full_device_loses_cold_extents() {
        let mut pool = Pool::new(vec![device(0, 64, 100), device(1, 1000, 100)]);
        (0..20).for_each(|i| pool.map.put(i, whole((i % 2) as u8)));
        let mut policy = policy(&[]);
        for i in 0..4 {
            let access = pool.access(i, Op::Read, Bytes::kib(4));
            pool.ask(|context| policy.accessed(context, &access));
        }
        assert_eq!(pool.round(&mut policy), []);
        pool.devices[0].free = 8;
        let moved: Vec<_> = pool.round(&mut policy).iter().map(|a| a.key().index.0).collect();
        assert_eq!(moved, [4, 6, 8, 10, 12, 14, 16, 18]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// With queues whose response grows with load, shares settle where responses are equal, or at the
        /// floor.
        #[test]
        fn shares_equalize_responses(seed: u64, speeds in prop::collection::vec(200.0f64..2000.0, 2..5)) {
            let devices = speeds.iter().enumerate();
            let mut pool = Pool::new(devices.map(|(i, _)| device(i as u8, 1 << 20, 1000)).collect());
            pool.random = Rng::new(Seed(seed));
            let mut policy = policy(&[]);
            pool.round(&mut policy);
            let load = 0.7 * speeds.iter().sum::<f64>();
            let mut responses = vec![0.0; speeds.len()];
            for _ in 0..300 {
                // The load follows the targets at once, as if it were all new data.
                for (i, speed) in speeds.iter().enumerate() {
                    let share = policy.parts[i].target;
                    responses[i] = 1.0 / (speed - share * load).max(0.02 * speed);
                    serve(&mut pool.devices[i], (share * 1000.0).round() as u64, (responses[i] * 1e6) as u64);
                }
                pool.round(&mut policy);
                let all: f64 = policy.parts.iter().map(|p| p.target).sum();
                prop_assert!((all - 1.0).abs() < 1e-9, "{:?}", policy.parts);
                // Shares raised to the floor are normalised with the rest; different steps and other floors
                // bring the sum to 1.4 at most.
                prop_assert!(policy.parts.iter().all(|p| p.target > 0.01 / 1.4), "{:?}", policy.parts);
            }
            let above: Vec<_> = (0..speeds.len()).filter(|i| policy.parts[*i].target > 0.02).collect();
            let most = above.iter().map(|i| responses[*i]).fold(0.0, f64::max);
            let least = responses.iter().copied().fold(f64::MAX, f64::min);
            prop_assert!(most < 1.35 * least, "{responses:?} {:?}", policy.parts);
        }
    }
}
