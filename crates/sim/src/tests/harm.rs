//! Tests of "do no harm": the engine's estimate of the benefit of migrations, and its reaction.

use super::alike::Tears;
use super::{closed, made_up, plan, pool, run};
use crate::{Mode, Outcome, PoolSpec, place};
use weir_model::{BlockRange, Bytes, DeviceId, Nanos, PlaceId, PlaceKind};
use weir_policy::harm::{Moves, Rules};
use weir_policy::placement::{Access, Action, Moment, Placement, Watches};

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
struct Backwards;

impl Placement for Backwards {
    fn name(&self) -> &'static str {
        "backwards"
    }
    fn allocate(&mut self, moment: &mut Moment<'_>, _: &Access) -> Option<DeviceId> {
        moment.devices.iter().find(|device| device.free > 0).map(|device| device.id)
    }
    fn watches(&self) -> Watches {
        Watches { accesses: true, ..Watches::default() }
    }
    fn accessed(&mut self, moment: &mut Moment<'_>, access: &Access) {
        if access.places.is_on(DeviceId(0)) {
            let blocks = BlockRange { first: 0, count: moment.extent.blocks() };
            let to = PlaceId { device: DeviceId(1), kind: PlaceKind::Whole };
            moment.actions.push(Action::Move { key: access.key, blocks, to });
        }
    }
}

fn judged(fast: f64, moves: Moves) -> PoolSpec {
    PoolSpec { moves, ..pool(fast, 1.2) }
}

fn ratio(outcome: &Outcome) -> f64 {
    let estimate = outcome.estimate.expect("a window was judged");
    estimate.mean.0 as f64 / estimate.without.0 as f64
}

#[test]
fn a_policy_that_does_harm_is_stopped_within_a_window_and_tries_again_later() {
    let mut plan = plan(Mode::Open, 90);
    plan.windows = 9;
    let load = "uniform over=512MiB rate=60";
    let outcome = place(&judged(1.2, Moves::Judged(RULES)), Box::new(Backwards), &mut made_up(load), &plan);
    let outcome = outcome.expect("an outcome");
    let moved: Vec<_> = outcome.windows.iter().map(|window| window.moved).collect();
    // It moves for 20 s, pauses for 20 s, moves for 20 s, and pauses for longer.
    for (at, moves) in [(1, true), (3, false), (5, true), (7, false), (8, false)] {
        assert_eq!(moved[at] > Bytes(0), moves, "from {at}0 s on: {moved:?}");
    }
    assert_eq!(outcome.stops, 2);
}

#[test]
fn what_pays_is_not_stopped_and_is_seen_to_pay() {
    let load = "zipf theta=1.1 reads=70% over=256MiB rate=60";
    let outcome = |moves| run(&judged(0.2, moves), "adaptive", load, &plan(Mode::Open, 180)).expect("it ran");
    let (judged, never) = (outcome(Moves::Judged(RULES)), outcome(Moves::Never));
    assert_eq!((judged.stops, never.moved), (0, Bytes(0)));
    assert!(judged.moved > Bytes(0) && never.estimate.is_none());
    let real = judged.all.mean.0 as f64 / never.all.mean.0 as f64;
    assert!(ratio(&judged) < 1.0 && real < 1.0, "{} as estimated, {real} really", ratio(&judged));
}

#[test]
fn the_estimate_is_on_the_right_side_in_a_closed_loop_too() {
    let load = "uniform over=128MiB";
    let outcome = |moves| {
        let plan = plan(closed(8), 90);
        place(&judged(1.2, moves), Box::new(Backwards), &mut made_up(load), &plan).expect("an outcome")
    };
    let (free, never) = (outcome(Moves::Free(RULES)), outcome(Moves::Never));
    assert_eq!(free.stops, 0, "it is judged only");
    assert!(never.rate > 1.5 * free.rate, "{} and {}", never.rate, free.rate);
    assert!(ratio(&free) > 1.5, "{}", ratio(&free));
}

/// Redirected writes split extents on identical devices; a later read then takes several commands.
#[test]
fn who_tears_extents_apart_is_stopped() {
    let rules = Rules { window: Nanos::secs(2), ..RULES };
    let mut alike = judged(1.2, Moves::Judged(rules));
    alike.devices.iter_mut().for_each(|device| device.model = "intel-x25-m-g2".into());
    let load = "uniform reads=70% size=64KiB writes=4KiB over=64MiB";
    let outcome = place(&alike, Box::new(Tears::default()), &mut made_up(load), &plan(closed(8), 9));
    let outcome = outcome.expect("an outcome");
    assert!(outcome.spread.redirects > 100, "{:?}", outcome.spread);
    assert!(outcome.stops > 0, "{:?}", outcome.estimate);
}
