//! Hosts that share bricks, and ramps.

use super::{pool, run, synthetic};
use crate::load::ramp::saturation;
use crate::place::hosts::{Host, place_hosts};
use crate::place::migrations::MigrationLog;
use crate::{DeviceSize, DeviceSpec, Mode, Outcome, Plan, PoolSpec, Ramp, SimError};
use weir_engine::Percent;
use weir_model::{Bytes, DeviceId, ExtentSize, Nanos, Seed};
use weir_policy::harm::{MoveControl, Rules};
use weir_policy::placement::by_name;

const QUIET: &str = "zipf theta=1.3 reads=70% over=64MiB rate=5";
const BUSY: &str = "zipf theta=1.3 reads=70% over=64MiB rate=60";

/// Returns the pool of a host with a local disk and one that is 9 ms away.
fn host_pool() -> PoolSpec {
    let device = |name: &str, model: &str| DeviceSpec {
        name: name.into(),
        model: model.into(),
        size: DeviceSize::Size(Bytes::gib(2)),
        metadata: None,
        noise: None,
    };
    PoolSpec {
        extent: ExtentSize::DEFAULT,
        devices: vec![device("local", "cheetah-10k6"), device("remote", "remote-10k-9ms")],
        mover_share: Percent(100),
        extent_cache: Bytes(0),
        moves: MoveControl::NeverPaused(Rules::default()),
    }
}

fn plan(seed: u64, seconds: u64) -> Plan {
    Plan {
        mode: Mode::Open,
        duration: Nanos::secs(seconds),
        requests: u64::MAX,
        warm_up: None,
        windows: 4,
        seed: Seed(seed),
    }
}

/// Runs a load of these words on each host. Returns the outcomes, and the migrations of each host to its
/// local disk and from it.
fn hosts(policy: &str, words: &[&str], seconds: u64) -> Vec<(Outcome, [usize; 2])> {
    let mut loads: Vec<_> = words.iter().map(|words| synthetic(words)).collect();
    let logs: Vec<_> = loads.iter().map(|_| MigrationLog::default()).collect();
    let mut all = Vec::new();
    for (number, (load, log)) in loads.iter_mut().zip(&logs).enumerate() {
        let policy = log.around(by_name(policy).expect("a policy"));
        let bricks = vec![number, 1 - number];
        let plan = plan(number as u64, seconds);
        all.push(Host { pool: host_pool(), bricks, policy, policy_after_fill: None, load, plan });
    }
    let outcomes = place_hosts(all).expect("outcomes");
    let migrations = logs.iter().map(|log| {
        let all = log.migrations();
        [DeviceId(0), DeviceId(1)].map(|to| all.iter().filter(|one| one.to == to).count())
    });
    outcomes.into_iter().zip(migrations).collect()
}

#[test]
fn hosts_that_share_bricks_slow_one_another() {
    let alone = hosts("stripe", &[QUIET], 180);
    let both = hosts("stripe", &[QUIET, BUSY], 180);
    let mean = |outcome: &Outcome| outcome.all.mean.as_secs_f64();
    assert!(mean(&both[0].0) > 1.1 * mean(&alone[0].0), "{} {}", mean(&both[0].0), mean(&alone[0].0));
    for (outcome, migrations) in alone.iter().chain(&both) {
        let of = |device: usize| outcome.devices[device].reads.mean;
        assert!(of(1) > of(0) + Nanos::millis(6), "the remote disk is 9 ms away: {} {}", of(0), of(1));
        assert_eq!((outcome.unanswered, *migrations), (0, [0, 0]));
    }
    let again = hosts("stripe", &[QUIET, BUSY], 180);
    assert_eq!(again[1].0.digest, both[1].0.digest, "it is deterministic");
}

/// The deviation of the mean responses forgets the fill, with its 32 requests in flight, in 20 minutes.
#[test]
fn each_host_migrates_to_its_own_disk() {
    let words = "zipf theta=1.3 over=64MiB rate=40";
    for (outcome, [inward, outward]) in hosts("user_optimal", &[words, words], 1500) {
        assert!(inward > 10 && outward == 0, "{inward} to the local disk, {outward} from it");
        let window = |at: usize| outcome.windows[at].shares[0];
        assert!(window(3) > window(0), "more is served locally: {:?}", outcome.windows);
    }
}

#[test]
fn a_host_names_a_brick_for_each_device() {
    let mut load = synthetic(QUIET);
    let policy = by_name("stripe").expect("a policy");
    let (pool, bricks, plan) = (host_pool(), vec![0], plan(1, 180));
    let host = Host { pool, bricks, policy, policy_after_fill: None, load: &mut load, plan };
    let refused = place_hosts(vec![host]).expect_err("a brick is missing");
    assert!(matches!(refused, SimError::Bricks { bricks: 1, devices: 2 }), "{refused}");
}

/// The delivered rate follows the offered one until the disk is saturated.
#[test]
fn a_ramp_finds_the_point_of_saturation() {
    let ramp = Ramp::new(Ramp::even(20.0, 400.0, 20), Nanos::secs(200)).expect("a ramp");
    let plan =
        Plan { mode: Mode::Ramp(ramp), requests: u64::MAX, duration: Nanos::secs(200), ..plan(1, 200) };
    // The rate in the words has no effect.
    let words = "uniform over=256MiB rate=100000";
    let outcome = run(&pool(0.1, 1.1), "sequential", words, &plan).expect("an outcome");
    let slow = run(&pool(0.05, 1.1), "sequential", words, &plan).expect("an outcome");
    for outcome in [&outcome, &slow] {
        let first = &outcome.ramp[0];
        assert!((first.delivered / first.offered - 1.0).abs() < 0.25, "{first:?}");
        let point = saturation(&outcome.ramp, Nanos::millis(50)).expect("saturated");
        assert!((60.0..300.0).contains(&point), "{point}: {:?}", outcome.ramp);
        let last = outcome.ramp.last().expect("a step");
        assert!(last.delivered < 0.9 * last.offered, "{last:?}");
    }
}
