use super::split::split_with;
use super::*;
use crate::cache::BlockSize;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use weir_model::{BLOCK, Hint, Nanos, Op, Rng, Seed, VolumeOffset};
use weir_policy::eviction::Lru;
use weir_trace::{Disk, Format, Record, Tally, Trace};

const BLOCKS: u64 = 32;

fn trace(records: Vec<Record>) -> Trace {
    let format = Format::named("mqsim").expect("a format");
    Trace { name: "t".into(), format, records, disks: vec!["0".into()], tally: Tally::default() }
}

/// Makes a record; one request a millisecond.
fn record(number: u64, op: Op, first: u64, blocks: u64) -> Record {
    let (offset, len) = (VolumeOffset(first * BLOCK), Bytes(blocks * BLOCK));
    Record { at: Nanos::millis(number), disk: Disk(0), op, offset, len, hint: Hint::None }
}

/// A naive cache: slots under LRU, and the dirty blocks.
struct NaiveCache {
    slots: usize,
    /// Most recently used first.
    order: VecDeque<u64>,
    dirty: BTreeSet<u64>,
    written_back: u64,
    /// Cached blocks that are on the second kind of device.
    second: BTreeSet<u64>,
}

impl NaiveCache {
    /// Accesses a block; returns whether it was cached.
    fn touch(&mut self, block: u64, is_write: bool) -> bool {
        let is_there = self.order.contains(&block);
        self.order.retain(|other| *other != block);
        self.order.push_front(block);
        if self.order.len() > self.slots {
            let out = self.order.pop_back().expect("one");
            if self.second.remove(&out) {
                self.second.insert(block);
            }
            if self.dirty.contains(&out) {
                let before = self.dirty.len();
                self.dirty.retain(|other| other / BLOCKS != out / BLOCKS);
                self.written_back += (before - self.dirty.len()) as u64;
            }
        }
        if is_write {
            self.dirty.insert(block);
        }
        is_there
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Compares the split with naive caches of every size.
    #[test]
    fn split_matches_a_naive_cache(
        asked in prop::collection::vec((any::<bool>(), 0..12 * BLOCKS, 1..2 * BLOCKS), 3..200)
    ) {
        let records: Vec<_> = (0..)
            .zip(&asked)
            .map(|(number, (write, first, blocks))| {
                record(number, if *write { Op::Write } else { Op::Read }, *first, *blocks)
            })
            .collect();
        // All of the second round is measured.
        let demand = Demand::new(&trace(records.clone()), MeasuredPart::After(1)).expect("a demand");
        let extents = |record: &Record| BlockSize::new(EXTENT.bytes()).expect("a size").touched(record);
        let touched: BTreeSet<_> = records.iter().flat_map(extents).collect();
        prop_assert_eq!(demand.extents() as usize, touched.len());
        for (slots, fast) in (1..=touched.len()).flat_map(|slots| [(slots, slots), (slots, slots.div_ceil(2))]) {
            let sizes = Sizes { fast: Slots(fast as u32), second: Slots((slots - fast) as u32) };
            let blocks = slots * BLOCKS as usize;
            // The first extents are cached entirely, the first of them on the fastest devices.
            let order: VecDeque<_> =
                touched.iter().flat_map(|extent| extent * BLOCKS..(extent + 1) * BLOCKS).take(blocks).collect();
            let second = order.iter().skip(fast * BLOCKS as usize).copied().collect();
            let dirty = BTreeSet::new();
            let mut cache = NaiveCache { slots: blocks, order, dirty, written_back: 0, second };
            let (mut copied, mut answered) = ([0, 0], Vec::new());
            for round in 0..2 {
                if round == 1 {
                    cache.written_back = 0;
                }
                for record in &records {
                    let is_write = record.op == Op::Write;
                    let of_request = record.offset.0 / BLOCK..(record.offset.0 + record.len.0) / BLOCK;
                    let mut by = Level::Fast;
                    for block in of_request {
                        let is_there = cache.touch(block, is_write);
                        let is_second = cache.second.contains(&block);
                        by = by.max(match is_there || is_write {
                            false => Level::Slow,
                            true if is_second => Level::Second,
                            true => Level::Fast,
                        });
                        if round == 1 && !is_there && !is_write {
                            copied[usize::from(is_second)] += 1;
                        }
                    }
                    if round == 1 {
                        answered.push(by);
                    }
                }
            }
            let lru = Lru::new(split::cache_of(&demand, sizes.total()));
            let split = split_with(lru, &demand, sizes);
            let by: Vec<_> = split.services.iter().map(|answer| answer.served_by).collect();
            prop_assert_eq!(by, answered, "{:?}", sizes);
            for (request, answer) in demand.measured_requests().iter().zip(&split.services) {
                let is_copied = answer.served_by == Level::Slow;
                prop_assert_eq!(answer.copied_to.is_some(), is_copied && !request.is_write, "{:?}", request);
            }
            prop_assert_eq!(split.copied, copied.map(|blocks| Bytes(blocks * BLOCK)), "{:?}", sizes);
            let home: u64 = split.write_backs.iter().map(|home| home.len.0).sum();
            prop_assert_eq!(home, cache.written_back * BLOCK, "{:?}", sizes);
        }
    }
}

pub(super) fn offer(name: &str, gib: u64, price: u64, endurance: Option<u64>, model: &str) -> Offer {
    Offer {
        name: name.into(),
        about: name.to_uppercase(),
        size: Bytes::gib(gib),
        price: Cents(price * 100),
        endurance: endurance.map(|tb| Bytes(tb * 1_000_000_000_000)),
        model: model.into(),
    }
}

fn offers() -> Vec<Offer> {
    vec![
        offer("ssd", 100, 50, Some(100), "ssd-sata"),
        offer("large-ssd", 1000, 200, Some(1000), "ssd-sata"),
        offer("disk", 1000, 60, None, "hdd-7200"),
    ]
}

/// Reads and writes over 64 MiB, nine of ten to the first tenth, twenty a second for ten minutes.
pub(super) fn skewed() -> Trace {
    let record = |number: u64| {
        let draw = Rng::new(Seed(number)).below(16_384);
        let first = if number % 10 < 9 { draw / 10 } else { draw };
        let op = if number.is_multiple_of(3) { Op::Write } else { Op::Read };
        Record { at: Nanos::millis(50 * number), ..record(number, op, first, 1) }
    };
    trace((0..12_000).map(record).collect())
}

#[test]
fn sets_have_capacity_and_faster_smaller_fast_devices() {
    let wanted = |gib: u64| RequiredCapacity { capacity: Bytes::gib(gib), active: Bytes::gib(1) };
    let names = |gib| -> Vec<_> {
        sets(&offers(), &wanted(gib)).expect("sets").iter().map(|set| set.name(&offers())).collect()
    };
    assert!(names(50).contains(&"ssd".into()) && !names(50).iter().any(|name| name.contains("ssd + disk")));
    let all = names(200);
    for there in ["3 x ssd", "large-ssd", "disk", "ssd + disk", "2 x ssd + disk", "ssd + 2 x disk"] {
        assert!(all.contains(&there.into()), "{there} should be among {all:?}");
    }
    assert!(!all.iter().any(|name| name.contains("large-ssd + ") || *name == "2 x ssd"), "{all:?}");
    let error = sets(&offers(), &wanted(1 << 20)).expect_err("too much");
    assert!(error.to_string().contains("1 PiB of data"), "{error}");
    let unknown = [offer("odd", 1, 1, None, "punch-cards")];
    let error = sets(&unknown, &wanted(1)).expect_err("no such model");
    assert!(error.to_string().contains("device odd: there is no model of \"punch-cards\""), "{error}");
}

const WANTED: RequiredCapacity = RequiredCapacity { capacity: Bytes::gib(500), active: Bytes::gib(500) };

fn demand(trace: &Trace) -> Demand {
    Demand::new(trace, MeasuredPart::of(trace, 1_000_000)).expect("a demand")
}

#[test]
fn larger_fast_devices_are_faster_and_life_follows_writes() {
    let (trace, offers) = (skewed(), offers());
    let demand = demand(&trace);
    let search = Search::new(&demand, &offers, WANTED);
    let [ssd, large, disk] = [0, 1, 2].map(|offer| DeviceGroup { offer, count: 1 });
    let two = DeviceGroup { count: 2, ..ssd };
    let all = [
        DeviceSet { fast: None, second: None, slow: disk },
        DeviceSet { fast: Some(ssd), second: None, slow: disk },
        DeviceSet { fast: Some(two), second: None, slow: disk },
        DeviceSet { fast: None, second: None, slow: large },
    ];
    let jobs = search.jobs(&all);
    assert_eq!((jobs.len(), jobs.iter().map(|job| job.streams.len()).sum::<usize>()), (3, 6), "{jobs:?}");
    let found: Vec<_> = jobs.iter().map(|job| search.play(job)).collect();
    let forecasts = search.forecasts(&all, &jobs, &found);
    let means: Vec<_> = forecasts.iter().map(|forecast| forecast.figures.mean).collect();
    assert!(means.windows(2).all(|pair| pair[1] < pair[0]), "{means:?}");
    assert!(forecasts.iter().all(|forecast| forecast.responses.count > 7_000));
    assert_eq!(forecasts[0].figures.life, Years::UNLIMITED);
    // A third of 20 requests a second writes 4 KiB; two thirds of the time are measured.
    let a_year = 20.0 / 3.0 * 4096.0 * DAY * YEAR;
    let life = forecasts[3].figures.life.0;
    assert!((life / (1e15 / a_year) - 1.0).abs() < 0.01, "{life}");
    let mut shares = forecasts.iter().map(|forecast| forecast.hit_share);
    let (one, two) = (shares.nth(1).expect("a share"), shares.next().expect("a share"));
    assert!((0.3..0.99).contains(&one) && one < two, "{one} {two}");
}

#[test]
fn predictions_match_the_engine() {
    let (trace, offers) = (skewed(), offers());
    let demand = demand(&trace);
    let search = Search::new(&demand, &offers, WANTED);
    let [ssd, disk] = [0, 2].map(|offer| DeviceGroup { offer, count: 1 });
    for set in [
        DeviceSet { fast: None, second: None, slow: disk },
        DeviceSet { fast: Some(ssd), second: None, slow: disk },
    ] {
        let jobs = search.jobs(&[set]);
        let found: Vec<_> = jobs.iter().map(|job| search.play(job)).collect();
        let predicted = search.forecasts(&[set], &jobs, &found)[0].figures;
        let rating = crate::FlashRating { cycles: 3_000, spare: 0.07 };
        let runs = RunSettings { policy: "adaptive", requests: 1_000_000, seed: Seed(1), rating };
        let simulated = search.simulate(&set, &trace, &runs).expect("a run");
        let ratio = predicted.mean.as_secs_f64() / simulated.figures.mean.as_secs_f64();
        assert!((0.5..2.0).contains(&ratio), "{set:?}: {} for {}", predicted.mean, simulated.figures.mean);
        assert_eq!(simulated.outcome.unanswered, 0);
        let kinds: Vec<_> = simulated.endurance.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, set.fast.into_iter().collect::<Vec<_>>(), "the disk is no flash");
        for (_, found) in &simulated.endurance {
            assert!(found.amplification >= 1.0, "{found:?}");
            let flash = offers[0].size.0 as f64 / 0.93 * 3_000.0;
            let life = flash / found.programmed_bytes_per_day / 365.25;
            assert!((found.lifetime.life_years.expect("written") / life - 1.0).abs() < 1e-6, "{found:?}");
        }
    }
}

/// A budget of which nothing is used up changes nothing; a tight one costs hits and saves writes.
#[test]
fn a_write_budget_costs_hits() {
    let (trace, offers) = (skewed(), offers());
    let demand = demand(&trace);
    let search = Search::new(&demand, &offers, WANTED);
    let [ssd, disk] = [0, 2].map(|offer| DeviceGroup { offer, count: 1 });
    let set = DeviceSet { fast: Some(ssd), second: None, slow: disk };
    let cost = |budget| search.budget_cost(&set, budget).expect("the SSD is flash");
    let ample = cost(Bytes(1 << 60));
    assert_eq!(ample.hit_share[0], ample.hit_share[1]);
    assert_eq!(ample.written_per_day[0], ample.written_per_day[1]);
    let tight = cost(Bytes((ample.written_per_day[1] / 4.0) as u64));
    assert!(tight.hit_share[0] < tight.hit_share[1], "{tight:?}");
    assert!(tight.written_per_day[0] < 0.8 * tight.written_per_day[1], "{tight:?}");
    let disks = DeviceSet { fast: None, second: None, slow: disk };
    assert_eq!(search.budget_cost(&disks, Bytes::gib(1)), None);
}

#[test]
fn finalists_include_the_ends_of_the_frontier() {
    let judged = |price: u64, millis: u64| SetFigures {
        price: Cents(price),
        mean: Nanos::millis(millis),
        p99: Nanos::millis(10 * millis),
        life: Years::UNLIMITED,
    };
    let all: Vec<_> =
        [(100, 100), (110, 120), (120, 60), (150, 30), (200, 20), (300, 19), (900, 10), (2000, 9)]
            .map(|(price, millis)| judged(price, millis))
            .into();
    let several = DeviceGroup { offer: 0, count: 1 };
    let two_kinds = DeviceSet { fast: Some(several), second: None, slow: several };
    let mut sets = vec![two_kinds; all.len()];
    let finalists = |sets: &[DeviceSet]| super::finalists(sets, &all, &Limits::default());
    assert_eq!(
        finalists(&sets),
        [0, 3, 4, 5, 7],
        "the best is 200 for 20 ms, the next 150 for 30, then 300 for 19"
    );
    sets[1].fast = None;
    assert_eq!(finalists(&sets), [0, 1, 3, 4, 5, 7], "and the only one of a single kind");
    [3, 4, 5].into_iter().for_each(|at| sets[at].second = Some(several));
    assert_eq!(
        finalists(&sets),
        [0, 1, 2, 3, 4, 5, 7],
        "and the best with one fast kind, beside those with two"
    );
    assert!(super::finalists(&[], &[], &Limits::default()).is_empty());
}

#[test]
fn a_trace_with_nothing_to_measure_is_refused() {
    let error = Demand::new(&trace(vec![record(0, Op::Trim, 0, 1)]), MeasuredPart::After(1));
    assert!(error.expect_err("nothing").to_string().contains("nothing is read or written"));
    let far = Record { offset: VolumeOffset(1 << 62), ..record(0, Op::Read, 0, 1) };
    assert!(Demand::new(&trace(vec![far]), MeasuredPart::After(1)).is_err());
}
