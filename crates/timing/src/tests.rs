//! Tests of properties common to all models, and of each model against published figures.

use super::*;
use crate::ssd::{CollectionCost, FlashLog, FlashSize, without_collection};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// A closed loop: `depth` commands in flight, a new one at each completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) start: Nanos,
    pub(crate) depth: u64,
    pub(crate) count: u64,
    /// Percentage of commands that write.
    pub(crate) random_writes: u32,
    pub(crate) len: Bytes,
    pub(crate) capacity: Bytes,
    pub(crate) sequential: bool,
    pub(crate) seed: u64,
}

impl Load {
    pub(crate) fn reads(capacity: Bytes) -> Self {
        Self {
            start: Nanos(0),
            depth: 1,
            count: 5_000,
            random_writes: 0,
            len: Bytes(4096),
            capacity,
            sequential: false,
            seed: 1,
        }
    }
}

/// Results of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) begin: Nanos,
    pub(crate) end: Nanos,
    pub(crate) count: u64,
}

impl Outcome {
    pub(crate) fn per_second(&self) -> f64 {
        self.count as f64 / (self.end - self.begin).as_secs_f64()
    }
}

pub(crate) fn drive(timing: &mut dyn Timing, load: &Load) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(load.seed);
    let slots = load.capacity.0 / load.len.0;
    let mut now = load.start;
    let (mut issued, mut done) = (0, 0);
    while done < load.count {
        while issued < load.count && issued - done < load.depth {
            let slot = if load.sequential { issued % slots } else { rng.random_range(0..slots) };
            let write = rng.random_range(0..100) < load.random_writes;
            let kind = if write { IoKind::Write { fua: false } } else { IoKind::Read };
            timing.submit(now, IoId(issued), kind, DeviceOffset(slot * load.len.0), load.len);
            issued += 1;
        }
        now = timing.next().expect("commands in flight");
        while timing.pop(now).is_some() {
            done += 1;
        }
    }
    Outcome { begin: load.start, end: now, count: load.count }
}

fn rate(name: &str, load: Load) -> f64 {
    drive(&mut *model(name, load.capacity, without_collection).unwrap(), &load).per_second()
}

/// Returns the capacity of the real drive.
fn real_capacity(name: &str) -> Bytes {
    Bytes(match name {
        "hdd-7200" => 18_000_000_000_000,
        "hdd-15k" => 146_000_000_000,
        "nvm" => 128 << 30,
        "mba3073" => 73_500_000_000,
        "st3750528as" => 750_000_000_000,
        "sp2504c" => 250_000_000_000,
        _ => 1_000_000_000_000,
    })
}

fn reads(name: &str, depth: u64) -> f64 {
    rate(name, Load { depth, ..Load::reads(real_capacity(name)) })
}

fn writes(name: &str, depth: u64, count: u64) -> f64 {
    rate(name, Load { depth, count, random_writes: 100, ..Load::reads(real_capacity(name)) })
}

#[track_caller]
fn assert_within(value: f64, low: f64, high: f64) {
    assert!(value >= low && value <= high, "{value} is not within {low}..{high}");
}

#[test]
fn random_4k_rates_are_near_the_published_ones() {
    assert_within(reads("hdd-15k", 1), 165.0, 200.0); // 175-200, derived
    assert_within(reads("hdd-7200", 1), 75.0, 90.0); // half a rotation and a seek of 8 ms: 82
    assert_within(reads("hdd-7200", 16), 150.0, 190.0); // 170
    assert_within(writes("hdd-7200", 16, 60_000), 420.0, 580.0); // 440-550
    assert_within(reads("ssd-sata", 1), 12_500.0, 13_500.0); // 13,000
    assert_within(reads("ssd-sata", 32), 93_000.0, 103_000.0); // 98,000
    assert_within(writes("ssd-sata", 1, 1_000), 34_000.0, 38_000.0); // 36,000
    assert_within(writes("ssd-sata", 32, 200_000), 84_000.0, 92_000.0); // 88,000
    assert_within(reads("ssd-nvme", 1), 12_000.0, 13_000.0); // 80 us
    assert_within(reads("ssd-nvme", 256), 855_000.0, 945_000.0); // 900,000
    assert_within(writes("ssd-nvme", 1, 1_000), 56_000.0, 62_000.0); // 17 us
    assert_within(writes("ssd-nvme", 32, 200_000), 190_000.0, 215_000.0); // 200,000
    assert_within(reads("nvm", 1), 1_000_000.0, 1_200_000.0); // 305 ns and 4 KiB at 6.6 GB/s
    assert_within(reads("nvm", 16), 1_500_000.0, 1_650_000.0); // 6.6 GB/s
}

/// Checks the drives that are not offered for pacing: rates at depth 1 and, for SSDs, at the controller's
/// limit.
#[test]
fn further_drives_have_their_random_rates() {
    assert_within(reads("mba3073", 1), 170.0, 195.0); // about 180, derived
    assert_within(reads("st3750528as", 1), 72.0, 82.0); // 75-80, derived
    assert_within(reads("sp2504c", 1), 70.0, 80.0); // about 75, derived
    assert_within(reads("intel-x25-e", 1), 13_000.0, 13_700.0); // 75 us
    assert_within(reads("intel-x25-e", 32), 33_000.0, 37_000.0); // 35,000
    assert_within(writes("intel-x25-e", 32, 20_000), 3_100.0, 3_600.0); // 3,300
    assert_within(writes("intel-x25-m-g2", 32, 20_000), 6_200.0, 7_200.0); // 6,600
    assert_within(reads("samsung-980-pro", 1), 21_000.0, 23_000.0); // 22,000
    assert_within(reads("samsung-980-pro", 256), 900_000.0, 1_050_000.0); // 1,000,000
    assert_within(reads("solidigm-d5-p5316", 1), 8_300.0, 9_100.0); // 110-120 us
    assert_within(writes("solidigm-d5-p5316", 32, 40_000), 7_400.0, 9_000.0); // 7,500-8,000
    let kib_32 = |name: &str, random_writes: u32, sequential: bool| {
        let load = Load { len: Bytes::kib(32), random_writes, sequential, ..Load::reads(Bytes::gib(16)) };
        1e3 / rate(name, load)
    };
    assert_within(kib_32("transcend-ts16g", 0, false), 1.0, 1.5); // milliseconds: 1.3
    assert_within(kib_32("transcend-ts16g", 100, true), 1.3, 2.3); // 1.7
    assert_within(kib_32("transcend-ts16g", 100, false), 16.0, 20.0); // 18
    assert_within(kib_32("memoright-gt", 0, false), 0.3, 0.5); // 0.4
    assert_within(kib_32("memoright-gt", 100, true), 0.25, 0.4); // 0.3
    assert_within(kib_32("memoright-gt", 100, false), 4.0, 5.5); // 5
    assert_within(reads("optane-p5800x", 1), 70_000.0, 80_000.0); // 74,875
    assert_within(reads("optane-p4800x", 16), 555_000.0, 615_000.0); // 584,800
}

/// Every drive completes all its commands.
#[test]
fn every_drive_serves() {
    for (name, _) in drives::all() {
        let load = Load { depth: 4, count: 300, random_writes: 50, ..Load::reads(Bytes::gib(4)) };
        assert!(rate(name, load) > 30.0, "{name}");
    }
}

#[test]
fn sequential_rates_are_the_published_ones() {
    let mb = |name: &str, percent: u32| {
        let load = Load {
            depth: 8,
            count: 4_000,
            len: Bytes::mib(1),
            random_writes: percent,
            sequential: true,
            ..Load::reads(real_capacity(name))
        };
        rate(name, load) * 1.048576
    };
    assert_within(mb("hdd-15k", 0), 132.0, 137.0); // 134.7
    assert_within(mb("hdd-7200", 0), 265.0, 275.0); // 270
    assert_within(mb("ssd-sata", 0), 545.0, 565.0); // 560
    assert_within(mb("ssd-sata", 100), 515.0, 540.0); // 530
    assert_within(mb("ssd-nvme", 0), 6_350.0, 6_550.0); // 6,500
    assert_within(mb("ssd-nvme", 100), 3_400.0, 3_550.0); // 3,500
    assert_within(mb("nvm", 0), 6_400.0, 6_650.0); // 6,600
    assert_within(mb("nvm", 100), 2_250.0, 2_320.0); // 2,300
}

#[test]
fn depth_raises_the_rate() {
    for (name, factor) in [("hdd-7200", 1.8), ("hdd-15k", 1.8), ("ssd-sata", 6.0), ("ssd-nvme", 25.0)] {
        let (shallow, deep) = (reads(name, 1), reads(name, 32));
        assert!(deep > factor * shallow, "{name}: {shallow} at depth 1, {deep} at 32");
    }
}

#[test]
fn small_capacities_keep_a_disks_character() {
    for name in ["hdd-7200", "hdd-15k"] {
        let small = rate(name, Load::reads(Bytes::gib(8)));
        let full = reads(name, 1);
        assert!((small / full - 1.0).abs() < 0.05, "{name}: {small} for {full}");
    }
}

#[test]
fn an_ssds_flush_waits_for_its_buffer_and_fua_for_the_flash() {
    let at = DeviceOffset(0);
    let submit_burst = |ssd: &mut Ssd| {
        for i in 0..4_000 {
            ssd.submit(Nanos(0), IoId(i), IoKind::Write { fua: false }, DeviceOffset(i * 9000), Bytes(4096));
        }
        while ssd.next().is_some_and(|due| due < Nanos::millis(45)) {
            ssd.pop(Nanos::millis(45));
        }
    };
    let mut ssd = Ssd::new(ssd_params("ssd-sata"), Bytes::gib(1), WriteCache::Volatile, without_collection);
    submit_burst(&mut ssd);
    let now = Nanos::millis(45);
    ssd.submit(now, IoId(9000), IoKind::Flush, at, Bytes(0));
    assert!(ssd.next().unwrap() >= ssd_params("ssd-sata").flush + now);
    ssd.pop(Nanos::MAX);
    ssd.submit(now, IoId(9001), IoKind::Write { fua: true }, at, Bytes(4096));
    assert!(ssd.next().unwrap() >= now + ssd_params("ssd-sata").program);

    let mut ssd = Ssd::new(ssd_params("ssd-nvme"), Bytes::gib(1), WriteCache::Protected, without_collection);
    submit_burst(&mut ssd);
    ssd.submit(now, IoId(9000), IoKind::Flush, at, Bytes(0));
    assert!(ssd.next().unwrap() < now + Nanos::micros(10));
}

#[test]
fn an_ssds_buffer_absorbs_a_burst_then_throttles() {
    let burst = writes("ssd-nvme", 256, 1_500);
    let long = writes("ssd-nvme", 256, 200_000);
    assert!(burst > 2.0 * long, "burst {burst}, long {long}");
}

/// The log of `weir-flash` as a drive's.
#[derive(Debug)]
struct GreedyLog(weir_flash::Log<weir_flash::DenseMap, weir_policy::reclaim::Greedy>);

impl FlashLog for GreedyLog {
    fn write(&mut self, page: u64) -> CollectionCost {
        let copied = self.0.counters().copied;
        self.0.write(page, weir_flash::Stream(0), &mut weir_flash::Simulated).expect("there is spare space");
        CollectionCost { copied: self.0.counters().copied - copied, metadata: 0 }
    }
}

fn greedy_log(size: FlashSize) -> Box<dyn FlashLog> {
    let pages = size.pages as u32;
    let config =
        weir_flash::LogConfig::for_device(pages, size.spare, size.block, weir_flash::Metadata::default());
    let log = config.and_then(|config| {
        weir_flash::Log::new(config, weir_flash::DenseMap::new(pages), weir_policy::reclaim::Greedy::new)
    });
    Box::new(GreedyLog(log.expect("valid settings")))
}

/// The rate of random writes is the flash's rate divided by the write amplification of the closed form, with
/// the reads of the copies added. Sequential writes get the full rate.
#[test]
fn full_ssd_random_write_rate_includes_collection() {
    let capacity = Bytes::mib(512);
    let mut ssd = Ssd::new(ssd_params("intel-x25-m-g1-log"), capacity, WriteCache::Volatile, greedy_log);
    let pages = capacity.0 / 4096;
    let writes = Load { depth: 32, random_writes: 100, count: pages, ..Load::reads(capacity) };
    let fill = drive(&mut ssd, &Load { sequential: true, ..writes });
    // Slightly below the flash's rate, because of the controller's time.
    assert_within(fill.per_second() * 4096.0, 57e6, 71e6);
    let warm = drive(&mut ssd, &Load { start: fill.end, count: 3 * pages, ..writes });
    let steady = drive(&mut ssd, &Load { start: warm.end, count: pages, seed: 2, ..writes });
    // 128 pages per block, 6.9 % spare: 7.04 programs for each write, 6.04 reads.
    let expected = 1.0 / (7.04 * 4096.0 / 70e6 + 6.04 * 56.4e-6 / 20.0);
    assert_within(steady.per_second(), 0.97 * expected, 1.05 * expected);
}

#[test]
fn programs_delay_an_ssds_reads() {
    let mut ssd = model("ssd-sata", Bytes::gib(1), without_collection).unwrap();
    ssd.submit(Nanos(0), IoId(1), IoKind::Write { fua: false }, DeviceOffset(0), Bytes::mib(8));
    ssd.submit(Nanos::millis(1), IoId(2), IoKind::Read, DeviceOffset(0), Bytes(4096));
    let calm = Nanos::secs(1);
    let mut busy = Nanos(0);
    while let Some(due) = ssd.next() {
        if ssd.pop(due) == Some(IoId(2)) {
            busy = due - Nanos::millis(1);
        }
    }
    ssd.submit(calm, IoId(3), IoKind::Read, DeviceOffset(0), Bytes(4096));
    assert!(busy > ssd.next().unwrap() - calm);
}

/// Returns the mean response, in milliseconds, of random 4 KiB reads while another client writes at random.
fn reads_beside_writes(name: &str) -> f64 {
    let mut timing = model(name, Bytes::gib(16), without_collection).unwrap();
    let mut rng = SmallRng::seed_from_u64(5);
    let mut at = || DeviceOffset(rng.random_range(0..1 << 20) * 4096);
    let (mut reads, mut took, mut begun) = (0, Nanos(0), Nanos(0));
    timing.submit(Nanos(0), IoId(0), IoKind::Read, at(), Bytes(4096));
    timing.submit(Nanos(0), IoId(1), IoKind::Write { fua: false }, at(), Bytes(4096));
    while reads < 3_000 {
        let due = timing.next().expect("commands in flight");
        match timing.pop(due) {
            Some(IoId(0)) => {
                (reads, took, begun) = (reads + 1, took + (due - begun), due);
                timing.submit(due, IoId(0), IoKind::Read, at(), Bytes(4096));
            }
            Some(id) => timing.submit(due, id, IoKind::Write { fua: false }, at(), Bytes(4096)),
            None => {}
        }
    }
    took.as_secs_f64() * 1e3 / f64::from(reads)
}

/// On drives that cannot suspend a program, reads wait for it; on those that can, they hardly do.
#[test]
fn reads_beside_writes_are_slow_on_drives_of_2008() {
    assert_within(reads_beside_writes("intel-x25-m-g1"), 0.2, 0.8);
    assert_within(reads_beside_writes("transcend-ts16g"), 5.0, 20.0);
    assert_within(reads_beside_writes("ssd-sata"), 0.08, 0.15);
}

#[test]
fn writes_in_several_places_are_sequential_up_to_a_number() {
    let rate = |streams: u64| {
        let mut timing = model("intel-x25-m-g1", Bytes::gib(16), without_collection).unwrap();
        let (count, mut now) = (40_000, Nanos(0));
        for i in 0..count {
            let at = DeviceOffset(((i % streams) << 24) + i / streams * 4096);
            timing.submit(now, IoId(i), IoKind::Write { fua: false }, at, Bytes(4096));
            now = timing.next().expect("a command in flight");
            assert_eq!(timing.pop(now), Some(IoId(i)));
        }
        count as f64 * 4096.0 / now.as_secs_f64() / 1e6
    };
    assert_within(rate(1), 45.0, 50.0); // 4 KiB in 85 us
    assert_within(rate(8), 45.0, 50.0);
    assert_within(rate(9), 10.0, 14.0); // 3,000 per second
}

#[test]
fn only_listed_names_have_models() {
    for name in NAMES {
        assert!(model(name, Bytes::gib(1), without_collection).is_some() && write_cache(name).is_some());
        assert!(model_with(name, Bytes(0), WriteCache::None, without_collection).is_some());
    }
    assert!(model("hdd-5400", Bytes::gib(1), without_collection).is_none() && write_cache("").is_none());
}

#[derive(Clone, Debug)]
struct Step {
    gap: Nanos,
    kind: IoKind,
    at: DeviceOffset,
    len: Bytes,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        4 => Just(IoKind::Read),
        4 => Just(IoKind::Write { fua: false }),
        1 => Just(IoKind::Write { fua: true }),
        1 => Just(IoKind::Flush),
    ];
    let gap = prop_oneof![Just(0), 0u64..100_000, 0u64..30_000_000];
    let at = prop_oneof![0u64..64, 0u64..80_000];
    let len = prop_oneof![1u64..16, Just(256u64), 1u64..8192];
    (gap, kind, at, len).prop_map(|(gap, kind, at, len)| {
        let len = if kind == IoKind::Flush { 0 } else { len };
        Step { gap: Nanos(gap), kind, at: DeviceOffset(at * 4096), len: Bytes(len * 512) }
    })
}

/// Plays the steps and checks the guarantees of [`Timing`]; returns ids with completion times.
fn run(timing: &mut dyn Timing, steps: &[Step], late: Nanos) -> Result<Vec<(IoId, Nanos)>, TestCaseError> {
    let mut in_flight = BTreeMap::new();
    let mut done = vec![];
    let mut now = Nanos(0);
    let mut drain = |timing: &mut dyn Timing, in_flight: &mut BTreeMap<IoId, Nanos>, until: Nanos| {
        let mut idle_turns = 0;
        while let Some(due) = timing.next().filter(|due| *due <= until) {
            // Nothing completes before that time.
            if due.0 > 0 {
                prop_assert_eq!(timing.pop(due - Nanos(1)), None);
            }
            match timing.pop(due) {
                Some(id) => {
                    let submitted = in_flight.remove(&id);
                    prop_assert!(submitted.is_some(), "{:?} completed without being in flight", id);
                    prop_assert!(submitted <= Some(due), "{:?} completed before its submission", id);
                    prop_assert!(done.last().is_none_or(|(_, before)| *before <= due), "out of order");
                    done.push((id, due));
                    idle_turns = 0;
                }
                None => idle_turns += 1,
            }
            prop_assert!(idle_turns < 10_000, "no progress");
        }
        Ok(())
    };
    for (i, step) in steps.iter().enumerate() {
        now += step.gap;
        drain(timing, &mut in_flight, now - late)?;
        in_flight.insert(IoId(i as u64), now);
        timing.submit(now, IoId(i as u64), step.kind, step.at, step.len);
    }
    drain(timing, &mut in_flight, Nanos::MAX)?;
    prop_assert!(in_flight.is_empty(), "never completed: {:?}", in_flight);
    prop_assert_eq!(timing.next(), None);
    Ok(done)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_model_keeps_the_contract(
        steps in prop::collection::vec(step(), 1..200),
        name in prop::sample::select([&NAMES[..], &["remote-hdd-9ms", "remote-ssd-lan", "capped-200"]].concat()),
        cache in prop::sample::select(vec![WriteCache::None, WriteCache::Volatile, WriteCache::Protected]),
        late in prop_oneof![Just(0u64), 0u64..20_000_000],
    ) {
        let fresh = || model_with(name, Bytes::mib(300), cache, without_collection).unwrap();
        let punctual = run(&mut *fresh(), &steps, Nanos(0))?;
        // A driver that collects completions late sees the same times.
        prop_assert_eq!(&run(&mut *fresh(), &steps, Nanos(late))?, &punctual);
    }
}

/// Returns the parameters of a named SSD.
fn ssd_params(name: &str) -> &'static ssd::SsdParams {
    match &drives::drive(name).expect("a drive").kind {
        drives::DriveKind::Ssd(params) => params,
        _ => panic!("{name} is no SSD"),
    }
}

/// Returns the parameters of the Cheetah 15K.5.
pub(crate) fn hdd_15k() -> &'static disk::DiskParams {
    drives::disk("hdd-15k").expect("a disk")
}

/// Returns the parameters of the nearline disk.
pub(crate) fn hdd_7200() -> &'static disk::DiskParams {
    drives::disk("hdd-7200").expect("a disk")
}
