//! Tests of "do no harm": the engine's estimate of the benefit of migrations, and its reaction.

use super::identical_devices::FragmentingPolicy;
use super::{closed, plan, pool, run, synthetic};
use crate::{Mode, Outcome, PoolSpec, place};
use weir_model::{BlockRange, Bytes, DeviceId, Nanos, PlaceId, PlaceKind};
use weir_policy::harm::{MoveControl, Rules};
use weir_policy::placement::{Access, Action, Placement, PolicyContext, Subscriptions};

/// Rules for small loads.
const RULES: Rules = Rules {
    sample: 8,
    window: Nanos::secs(20),
    commands: 64,
    margin: 0.1,
    pause: Nanos::secs(20),
    longest_pause: Nanos::secs(600),
};

/// Places new data on the first device, the fast one, and moves accessed data to the slow one.
#[derive(Debug)]
struct HarmfulPolicy;

impl Placement for HarmfulPolicy {
    fn name(&self) -> &'static str {
        "backwards"
    }
    fn allocate(&mut self, moment: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        moment.devices.iter().find(|device| device.free > 0).map(|device| device.id)
    }
    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, ..Subscriptions::default() }
    }
    fn accessed(&mut self, moment: &mut PolicyContext<'_>, access: &Access) {
        if access.places.is_on(DeviceId(0)) {
            let blocks = BlockRange { first: 0, count: moment.extent.blocks() };
            let to = PlaceId { device: DeviceId(1), kind: PlaceKind::Whole };
            moment.actions.push(Action::Move { key: access.key, blocks, to });
        }
    }
}

fn judged_pool(fast: f64, moves: MoveControl) -> PoolSpec {
    PoolSpec { moves, ..pool(fast, 1.2) }
}

fn ratio(outcome: &Outcome) -> f64 {
    let estimate = outcome.estimate.expect("a window was judged");
    estimate.mean.0 as f64 / estimate.without.0 as f64
}

#[test]
fn harmful_policy_is_stopped_and_retried() {
    let mut plan = plan(Mode::Open, 90);
    plan.windows = 9;
    let load = "uniform over=512MiB rate=60";
    let outcome = place(
        &judged_pool(1.2, MoveControl::Judged(RULES)),
        Box::new(HarmfulPolicy),
        &mut synthetic(load),
        &plan,
    );
    let outcome = outcome.expect("an outcome");
    let moved: Vec<_> = outcome.windows.iter().map(|window| window.moved).collect();
    // It moves for 20 s, pauses for 20 s, moves for 20 s, and pauses for longer.
    for (at, moves) in [(1, true), (3, false), (5, true), (7, false), (8, false)] {
        assert_eq!(moved[at] > Bytes(0), moves, "from {at}0 s on: {moved:?}");
    }
    assert_eq!(outcome.stops, 2);
}

#[test]
fn beneficial_policy_is_not_stopped() {
    let load = "zipf theta=1.1 reads=70% over=256MiB rate=60";
    let outcome =
        |moves| run(&judged_pool(0.2, moves), "adaptive", load, &plan(Mode::Open, 180)).expect("it ran");
    let (judged, never) = (outcome(MoveControl::Judged(RULES)), outcome(MoveControl::Disabled));
    assert_eq!((judged.stops, never.moved), (0, Bytes(0)));
    assert!(judged.moved > Bytes(0) && never.estimate.is_none());
    let real = judged.all.mean.0 as f64 / never.all.mean.0 as f64;
    assert!(ratio(&judged) < 1.0 && real < 1.0, "{} as estimated, {real} really", ratio(&judged));
}

#[test]
fn estimate_has_the_right_sign_in_closed_loops() {
    let load = "uniform over=128MiB";
    let outcome = |moves| {
        let plan = plan(closed(8), 90);
        place(&judged_pool(1.2, moves), Box::new(HarmfulPolicy), &mut synthetic(load), &plan)
            .expect("an outcome")
    };
    let (free, never) = (outcome(MoveControl::NeverPaused(RULES)), outcome(MoveControl::Disabled));
    assert_eq!(free.stops, 0, "it is judged only");
    assert!(never.rate > 1.5 * free.rate, "{} and {}", never.rate, free.rate);
    assert!(ratio(&free) > 1.5, "{}", ratio(&free));
}

/// Redirected writes split extents on identical devices; a later read then takes several commands.
#[test]
fn fragmenting_policy_is_stopped() {
    let rules = Rules { window: Nanos::secs(2), ..RULES };
    let mut alike = judged_pool(1.2, MoveControl::Judged(rules));
    alike.devices.iter_mut().for_each(|device| device.model = "intel-x25-m-g2".into());
    let load = "uniform reads=70% size=64KiB writes=4KiB over=64MiB";
    let outcome =
        place(&alike, Box::new(FragmentingPolicy::default()), &mut synthetic(load), &plan(closed(8), 9));
    let outcome = outcome.expect("an outcome");
    assert!(outcome.spread.redirects > 100, "{:?}", outcome.spread);
    assert!(outcome.stops > 0, "{:?}", outcome.estimate);
}
