//! Tests of `adaptive` on identical devices: it loses nothing against `stripe` in throughput, space or
//! sequential order.

use super::{made_up, pool};
use crate::{DeviceSize, DeviceSpec, Mode, Noise, Outcome, Plan, PoolSpec, place};
use weir_model::{Bytes, DeviceId, Nanos, Seed};
use weir_policy::placement::{Access, Moment, Placement, Stripe, Watches, WriteTo, by_name};

const DATA: Bytes = Bytes::mib(64);
/// Seconds of load, of idle time after it, and of sequential reads at the end.
const LOAD: u64 = 3;
const QUIET: u64 = 5;
const READ: u64 = 2;

/// Makes a pool of identical drives of a model, each with room for twice the data, with the noise of a busy
/// machine.
fn alike(model: &str, count: usize, seed: u64) -> PoolSpec {
    let device = |number: usize| DeviceSpec {
        name: format!("d{number}"),
        model: model.into(),
        size: DeviceSize::Share(2.0),
        metadata: None,
        noise: Some(Noise::of_a_busy_machine(seed * 16 + number as u64)),
    };
    PoolSpec { devices: (0..count).map(device).collect(), ..pool(1.0, 1.0) }
}

/// Runs 32 clients, then none for a while, then four that read everything sequentially.
fn run(pool: &PoolSpec, policy: &str, words: &str, seed: u64) -> Outcome {
    run_with(pool, by_name(policy).expect("a policy"), words, seed)
}

fn run_with(pool: &PoolSpec, policy: Box<dyn Placement>, words: &str, seed: u64) -> Outcome {
    let steps = [(0, 32), (LOAD, 0), (LOAD + QUIET, 4)].map(|(at, clients)| (Nanos::secs(at), clients));
    let seconds = LOAD + QUIET + READ;
    let plan = Plan {
        mode: Mode::Closed(steps.to_vec()),
        lasts: Nanos::secs(seconds),
        requests: u64::MAX,
        warm_up: Some(Nanos(0)),
        windows: seconds as u32,
        seed: Seed(seed),
    };
    let until = LOAD + QUIET;
    let words = format!("{words} over=64MiB for={until}s / scan size=1024KiB over=64MiB for=100s");
    place(pool, policy, &mut made_up(&words), &plan).expect("an outcome")
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
    [rate(0, LOAD), rate(LOAD + QUIET, LOAD + QUIET + READ)]
}

/// Compares `adaptive` and `stripe` over several seeds: requests per second of the load and of the sequential
/// reads.
fn compare(model: &str, count: usize, words: &str) {
    let mut all = [[0.0; 2]; 2];
    for seed in 1..=2 {
        let pool = alike(model, count, seed);
        let outcomes = ["adaptive", "stripe"].map(|policy| run(&pool, policy, words, seed));
        let ours = &outcomes[0];
        let what = format!("{count} x {model}, {words}, seed {seed}");
        assert!(space(ours) <= 1.03, "{what}: {:.3} of the data", space(ours));
        assert_eq!((ours.moved, ours.spread.in_pieces, ours.spread.redirects), (Bytes(0), 0, 0), "{what}");
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
fn ssds_that_are_alike_are_used_as_stripe_does() {
    compare("intel-x25-m-g2", 2, LOADS[0]);
    LOADS.iter().for_each(|words| compare("intel-x25-m-g2", 3, words));
}

#[test]
fn disks_that_are_alike_are_used_as_stripe_does() {
    LOADS.iter().for_each(|words| compare("hdd-7200", 2, words));
    LOADS.iter().for_each(|words| compare("hdd-7200", 3, words));
}

/// An SSD and disks: the copies on the SSD are intentional and fit there. On the disks each extent has one
/// location, and after an idle time none is fragmented.
#[test]
fn where_devices_differ_the_slow_ones_hold_the_data_once() {
    for disks in [1, 2] {
        for words in LOADS {
            let mut pool = pool(0.2, 1.3);
            let other = DeviceSpec { name: "other".into(), ..pool.devices[1].clone() };
            pool.devices.extend((1..disks).map(|_| other.clone()));
            for (device, seed) in pool.devices.iter_mut().zip(1..) {
                device.noise = Some(Noise::of_a_busy_machine(seed));
            }
            let outcome = run(&pool, "adaptive", words, 1);
            let [fast, slow] = [&outcome.devices[..1], &outcome.devices[1..]].map(|devices| {
                devices.iter().map(|device| device.used.0).sum::<u64>() as f64 / DATA.0 as f64
            });
            let what =
                format!("{disks} disks, {words}: {fast:.3} and {slow:.3} of the data, {:?}", outcome.spread);
            assert!(slow <= 1.03 && fast <= 0.21, "{what}");
            let most = outcome.spread.extra_most.expect("it is bounded");
            assert!(outcome.spread.extra <= most && most.0 as f64 <= 0.3 * DATA.0 as f64, "{what}");
        }
    }
}

/// Extents that an earlier policy left fragmented are whole again after an idle time, and are then read
/// sequentially as fast as if they had never been fragmented.
#[test]
fn what_is_in_pieces_is_put_together_in_idle_time() {
    for words in &LOADS[..1] {
        let mut all = [[0.0; 2]; 2];
        for (at, tears) in [true, false].into_iter().enumerate() {
            let pool = alike("intel-x25-m-g2", 3, 1);
            let policy: Box<dyn Placement> =
                if tears { Box::new(Tears::default()) } else { by_name("stripe").expect("a policy") };
            let outcome = run_with(&pool, policy, words, 1);
            assert_eq!(outcome.spread.redirects > 1000, tears, "{:?}", outcome.spread);
            assert!(
                space(&outcome) <= 1.03,
                "{words}: {:.3} of the data, {:?}, {} moved",
                space(&outcome),
                outcome.spread,
                outcome.moved
            );
            assert_eq!(outcome.spread.in_pieces, 0, "{words}: {:?}", outcome.spread);
            all[at] = rates(&outcome);
        }
        assert!(all[0][1] >= 0.95 * all[1][1], "{words}: {all:?}");
    }
}

/// Writes each block to slots of a randomly chosen device, as long as it is enabled.
#[derive(Debug, Default)]
pub(super) struct Tears(Stripe);

impl Placement for Tears {
    fn name(&self) -> &'static str {
        "tears"
    }
    fn allocate(&mut self, moment: &mut Moment<'_>, access: &Access) -> Option<DeviceId> {
        self.0.allocate(moment, access)
    }
    fn watches(&self) -> Watches {
        Watches { writes: true, ..Watches::default() }
    }
    fn write_to(&mut self, moment: &mut Moment<'_>, access: &Access) -> WriteTo {
        let to = moment.random.below(moment.devices.len() as u64) as u8;
        if access.places.as_slice().is_empty() { WriteTo::InPlace } else { WriteTo::Fine(DeviceId(to)) }
    }
}
