//! Tests of `adaptive` on identical devices: it loses nothing against `stripe` in throughput, space or
//! sequential order.

use super::{pool, synthetic};
use crate::{DeviceSize, DeviceSpec, Mode, Noise, Outcome, Plan, PoolSpec, place};
use weir_model::{Bytes, DeviceId, Nanos, Seed};
use weir_policy::placement::{Access, Placement, PolicyContext, Stripe, Subscriptions, WriteTo, by_name};

const DATA: Bytes = Bytes::mib(64);
/// Seconds of load, of idle time after it, and of sequential reads at the end.
const LOAD_SECONDS: u64 = 3;
const IDLE_SECONDS: u64 = 5;
const READ_SECONDS: u64 = 2;

/// Makes a pool of identical drives of a model, each with room for twice the data, with the noise of a busy
/// machine.
fn identical_drives(model: &str, count: usize, seed: u64) -> PoolSpec {
    let device = |number: usize| DeviceSpec {
        name: format!("d{number}"),
        model: model.into(),
        size: DeviceSize::Share(2.0),
        metadata: None,
        noise: Some(Noise::busy_machine(seed * 16 + number as u64)),
    };
    PoolSpec { devices: (0..count).map(device).collect(), ..pool(1.0, 1.0) }
}

/// Runs 32 clients, then none for a while, then four that read everything sequentially.
fn run(pool: &PoolSpec, policy: &str, words: &str, seed: u64) -> Outcome {
    run_with(pool, by_name(policy).expect("a policy"), words, seed)
}

fn run_with(pool: &PoolSpec, policy: Box<dyn Placement>, words: &str, seed: u64) -> Outcome {
    let steps = [(0, 32), (LOAD_SECONDS, 0), (LOAD_SECONDS + IDLE_SECONDS, 4)]
        .map(|(at, clients)| (Nanos::secs(at), clients));
    let seconds = LOAD_SECONDS + IDLE_SECONDS + READ_SECONDS;
    let plan = Plan {
        mode: Mode::Closed(steps.to_vec()),
        duration: Nanos::secs(seconds),
        requests: u64::MAX,
        warm_up: Some(Nanos(0)),
        windows: seconds as u32,
        seed: Seed(seed),
    };
    let until = LOAD_SECONDS + IDLE_SECONDS;
    let words = format!("{words} over=64MiB for={until}s / scan size=1024KiB over=64MiB for=100s");
    place(pool, policy, &mut synthetic(&words), &plan).expect("an outcome")
}

/// Returns the used space, as a multiple of the data.
fn space(outcome: &Outcome) -> f64 {
    outcome.devices.iter().map(|device| device.used.0).sum::<u64>() as f64 / DATA.0 as f64
}

/// Returns the requests per second during the load, and during the sequential reads.
fn rates(outcome: &Outcome) -> [f64; 2] {
    let rate = |from: u64, to: u64| {
        let windows = &outcome.windows[from as usize..to as usize];
        windows.iter().map(|window| window.rate).sum::<f64>() / windows.len() as f64
    };
    [rate(0, LOAD_SECONDS), rate(LOAD_SECONDS + IDLE_SECONDS, LOAD_SECONDS + IDLE_SECONDS + READ_SECONDS)]
}

/// Compares `adaptive` and `stripe` over several seeds: requests per second of the load and of the sequential
/// reads.
fn compare(model: &str, count: usize, words: &str) {
    let mut all = [[0.0; 2]; 2];
    for seed in 1..=2 {
        let pool = identical_drives(model, count, seed);
        let outcomes = ["adaptive", "stripe"].map(|policy| run(&pool, policy, words, seed));
        let ours = &outcomes[0];
        let what = format!("{count} x {model}, {words}, seed {seed}");
        assert!(space(ours) <= 1.03, "{what}: {:.3} of the data", space(ours));
        assert_eq!((ours.moved, ours.spread.fragmented, ours.spread.redirects), (Bytes(0), 0, 0), "{what}");
        for (sum, outcome) in all.iter_mut().zip(&outcomes) {
            sum.iter_mut().zip(rates(outcome)).for_each(|(sum, rate)| *sum += rate);
        }
    }
    for (ours, stripe) in all[0].iter().zip(all[1]) {
        assert!(*ours >= 0.95 * stripe, "{count} x {model}, {words}: {ours:.0} beside {stripe:.0} of stripe");
    }
}

const LOADS: [&str; 3] =
    ["uniform reads=50% size=4KiB", "zipf theta=1.1 reads=50% size=4KiB", "scan reads=0% size=64KiB"];

#[test]
fn identical_ssds_perform_like_stripe() {
    compare("intel-x25-m-g2", 2, LOADS[0]);
    LOADS.iter().for_each(|words| compare("intel-x25-m-g2", 3, words));
}

#[test]
fn identical_disks_perform_like_stripe() {
    LOADS.iter().for_each(|words| compare("hdd-7200", 2, words));
    LOADS.iter().for_each(|words| compare("hdd-7200", 3, words));
}

/// An SSD and disks: the copies on the SSD are intentional and fit there. On the disks each extent has one
/// location, and after an idle time none is fragmented.
#[test]
fn slow_devices_hold_one_copy_in_unequal_pools() {
    for disks in [1, 2] {
        for words in LOADS {
            let mut pool = pool(0.2, 1.3);
            let other = DeviceSpec { name: "other".into(), ..pool.devices[1].clone() };
            pool.devices.extend((1..disks).map(|_| other.clone()));
            for (device, seed) in pool.devices.iter_mut().zip(1..) {
                device.noise = Some(Noise::busy_machine(seed));
            }
            let outcome = run(&pool, "adaptive", words, 1);
            let [fast, slow] = [&outcome.devices[..1], &outcome.devices[1..]].map(|devices| {
                devices.iter().map(|device| device.used.0).sum::<u64>() as f64 / DATA.0 as f64
            });
            let what =
                format!("{disks} disks, {words}: {fast:.3} and {slow:.3} of the data, {:?}", outcome.spread);
            assert!(slow <= 1.03 && fast <= 0.21, "{what}");
            let most = outcome.spread.extra_limit.expect("it is bounded");
            assert!(outcome.spread.extra <= most && most.0 as f64 <= 0.3 * DATA.0 as f64, "{what}");
        }
    }
}

/// Extents that an earlier policy left fragmented are whole again after an idle time, and are then read
/// sequentially as fast as if they had never been fragmented.
#[test]
fn fragmented_extents_are_consolidated_when_idle() {
    for words in &LOADS[..1] {
        let mut all = [[0.0; 2]; 2];
        for (at, tears) in [true, false].into_iter().enumerate() {
            let pool = identical_drives("intel-x25-m-g2", 3, 1);
            let policy: Box<dyn Placement> = if tears {
                Box::new(FragmentingPolicy::default())
            } else {
                by_name("stripe").expect("a policy")
            };
            let outcome = run_with(&pool, policy, words, 1);
            assert_eq!(outcome.spread.redirects > 1000, tears, "{:?}", outcome.spread);
            assert!(
                space(&outcome) <= 1.03,
                "{words}: {:.3} of the data, {:?}, {} moved",
                space(&outcome),
                outcome.spread,
                outcome.moved
            );
            assert_eq!(outcome.spread.fragmented, 0, "{words}: {:?}", outcome.spread);
            all[at] = rates(&outcome);
        }
        assert!(all[0][1] >= 0.95 * all[1][1], "{words}: {all:?}");
    }
}

/// Writes each block to slots of a randomly chosen device, as long as it is enabled.
#[derive(Debug, Default)]
pub(super) struct FragmentingPolicy(Stripe);

impl Placement for FragmentingPolicy {
    fn name(&self) -> &'static str {
        "tears"
    }
    fn allocate(&mut self, moment: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        self.0.allocate(moment, access)
    }
    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { writes: true, ..Subscriptions::default() }
    }
    fn write_to(&mut self, moment: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        let to = moment.random.below(moment.devices.len() as u64) as u8;
        if access.places.as_slice().is_empty() { WriteTo::InPlace } else { WriteTo::Fine(DeviceId(to)) }
    }
}
