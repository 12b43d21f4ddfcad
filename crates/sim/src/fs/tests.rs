//! The simulated file system keeps its books, and answers what-if questions as it must.

use super::load::{FileLoad, FileOp, FileStep, parse};
use super::*;
use proptest::prelude::*;
use weir_model::{Bytes, Nanos};
use weir_policy::Watermarks;
use weir_policy::distribution::{DISTRIBUTION, DistributionPolicy};
use weir_policy::eviction::ITEM_EVICTION;
use weir_policy::eviction::items::{FileKey, ItemEvictionPolicy};
use weir_policy::promotion::{PROMOTION, PromotionPolicy};

fn tier(drive: &str, bottom: BottomFs) -> TierPlan {
    TierPlan { drive: drive.into(), size: Bytes::gib(8), bottom }
}

fn pair() -> Vec<TierPlan> {
    vec![tier("intel-x25-m-g2", BottomFs::Ext4), tier("st3750528as", BottomFs::Ext4)]
}

/// NVM of so many MiB over a pair, with the published settings and little memory.
fn plan(nvm: u64) -> FsPlan {
    let machine = Machine { memory: Bytes::mib(16), directories: 10, ..Machine::default() };
    FsPlan {
        watermarks: Watermarks::PUBLISHED,
        promotion: PromotionPolicy::by_name("never").expect("known"),
        machine,
        ..FsPlan::new(FastTier::Nvm(Bytes::mib(nvm)), pair())
    }
}

fn run(words: &str, plan: &FsPlan) -> FsOutcome {
    simulate(&mut *parse(words, 1).expect("a load"), plan).expect("an outcome")
}

const POSTMARK: &str = "postmark scale=1/20";

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let twice = [1, 1, 2].map(|seed| {
        let mut load = parse(POSTMARK, seed).expect("a load");
        format!("{:?}", simulate(&mut *load, &plan(4)).expect("an outcome"))
    });
    assert_eq!(twice[0], twice[1]);
    assert_ne!(twice[0], twice[2]);
}

/// Of what entered the fast tier, what did not leave is there.
fn assert_conserved(outcome: &FsOutcome, what: &str) {
    let entered = outcome.resident_bytes_at_first + outcome.entered_bytes;
    let left = outcome.evicted_bytes + outcome.removed_bytes;
    assert_eq!(entered - left, outcome.resident_bytes, "{what}: {outcome:?}");
    let evicted: u64 = outcome.tiers.iter().map(|tier| tier.evicted_bytes).sum();
    assert_eq!(evicted + outcome.evicted_clean_bytes, outcome.evicted_bytes, "{what}");
}

#[test]
fn bytes_are_conserved_under_every_policy_and_file_system() {
    for eviction in ITEM_EVICTION {
        for distribution in DISTRIBUTION {
            for promotion in PROMOTION {
                let plan = FsPlan { eviction, distribution, promotion, ..plan(2) };
                let names = [eviction.name, distribution.name, promotion.name];
                assert_conserved(&run("postmark scale=1/100", &plan), &format!("{names:?}"));
            }
        }
    }
    for (name, bottom) in BottomFs::ALL {
        let tiers = pair().into_iter().map(|tier| TierPlan { bottom, ..tier }).collect();
        for fast in [FastTier::Nvm(Bytes::mib(2)), FastTier::Memory(Bytes::mib(2))] {
            let plan = FsPlan { fast, tiers: Vec::clone(&tiers), ..plan(2) };
            for load in ["postmark", "webproxy", "fileserver"] {
                let plan = FsPlan { duration: Some(Nanos::secs(5)), ..plan.clone() };
                assert_conserved(&run(&format!("{load} scale=1/100"), &plan), &format!("{name}, {load}"));
            }
        }
    }
}

#[test]
fn more_nvm_never_makes_a_fixed_load_slower() {
    for load in [POSTMARK, "untar scale=1/50"] {
        let times: Vec<_> = [1, 2, 4, 8, 16, 32].map(|nvm| run(load, &plan(nvm)).measured_seconds).to_vec();
        for pair in times.windows(2) {
            assert!(pair[1] <= pair[0] * 1.02, "{load}: {times:?}");
        }
    }
    let [small, large] = [1, 32].map(|nvm| run(POSTMARK, &plan(nvm)));
    assert!(small.measured_seconds > 2.0 * large.measured_seconds, "{small:?} {large:?}");
    assert_eq!(large.evicted_bytes, 0, "all of it fits");
    assert_eq!(large.hits.fast, Some(1.0));
}

/// With an SSD that is slower than the disk, equal shares make everything wait for the SSD, and a threshold
/// leaves the disk idle.
#[test]
fn distribution_by_measured_load_is_faster_than_by_number_or_size() {
    let of = |name| {
        let distribution = DistributionPolicy::by_name(name).expect("known");
        let machine = Machine { memory: Bytes::mib(200), ..plan(16).machine };
        let tiers = vec![tier("intel-x25-v", BottomFs::Ext4), tier("st3750528as", BottomFs::Ext4)];
        let plan = FsPlan { distribution, machine, tiers, duration: Some(Nanos::secs(10)), ..plan(16) };
        run("fileserver scale=1/10", &plan)
    };
    let [trident, round_robin, by_size] = ["trident", "round_robin", "by_size"].map(of);
    assert!(trident.work_per_second > 1.1 * round_robin.work_per_second, "{trident:?} {round_robin:?}");
    assert!(trident.work_per_second > 1.3 * by_size.work_per_second, "{trident:?} {by_size:?}");
    let share = |outcome: &FsOutcome| outcome.tiers[0].evicted_share.expect("evictions");
    assert!((share(&round_robin) - 0.5).abs() < 0.02, "{round_robin:?}");
    assert!(share(&by_size) > 0.98, "nearly every file is small: {by_size:?}");
    assert!((0.1..0.45).contains(&share(&trident)), "{trident:?}");
}

/// A few hot files are read again and again between files that are written once.
struct HotFiles {
    steps: u64,
    nth: u64,
}

const HOT: u64 = 100;

impl FileLoad for HotFiles {
    fn clients(&self) -> usize {
        1
    }

    fn next_step(&mut self, _: usize) -> Option<FileStep> {
        self.nth += 1;
        let step = |op| Some(FileStep { op, cpu: Nanos(0), work: 1 });
        match self.nth {
            nth if nth > self.steps => None,
            nth if nth <= HOT || nth.is_multiple_of(4) => step(FileOp::Create(FileKey(nth), Bytes::kib(8))),
            nth => step(FileOp::Read(FileKey(1 + nth * 7919 % HOT))),
        }
    }

    fn work_unit(&self) -> &'static str {
        "steps"
    }
}

#[test]
fn hot_files_stay_in_or_return_to_nvm() {
    let of = |eviction, promotion| {
        let plan = FsPlan {
            eviction: ItemEvictionPolicy::by_name(eviction).expect("known"),
            promotion: PromotionPolicy::by_name(promotion).expect("known"),
            machine: Machine { memory: Bytes(0), ..plan(2).machine },
            ..plan(2)
        };
        let outcome = simulate(&mut HotFiles { steps: 20_000, nth: 0 }, &plan).expect("an outcome");
        (outcome.hits.fast.expect("accesses"), outcome.work_per_second)
    };
    let [trident, fifo, returned] = [("trident", "never"), ("fifo", "never"), ("fifo", "hot")]
        .map(|(eviction, promotion)| of(eviction, promotion));
    assert!(trident.0 > 0.99, "{trident:?}");
    assert!(fifo.0 < 0.7 && fifo.1 < trident.1, "{fifo:?}");
    assert!(returned.0 > fifo.0 + 0.2, "{returned:?} beside {fifo:?}");
}

/// Without NVM, what is removed within 30 s is never written.
#[test]
fn memory_writes_back_what_is_old_or_too_much() {
    let memory = |size| FsPlan { fast: FastTier::Memory(Bytes::mib(size)), ..plan(1) };
    let words = "postmark scale=1/100";
    let all = run(words, &memory(64));
    assert_eq!((all.evicted_bytes, all.entered_bytes > 0), (0, true), "the load ends within 30 s: {all:?}");
    let little = run(words, &memory(1));
    assert!(little.evicted_bytes > little.entered_bytes / 4, "{little:?}");
    let long = run("untar scale=1/10", &memory(200));
    assert!(long.measured_seconds > 10.0, "{long:?}");
    let longer = run("untar scale=1/2", &memory(700));
    assert!(longer.measured_seconds > 40.0 && longer.evicted_bytes > 50_000_000, "{longer:?}");
}

#[test]
fn impossible_machines_are_refused() {
    let of = |plan: FsPlan| simulate(&mut *parse(POSTMARK, 1).expect("a load"), &plan).err();
    let said = |plan| of(plan).expect("refused").to_string();
    assert!(said(FsPlan { tiers: Vec::new(), ..plan(1) }).contains("no tier below"));
    assert!(said(FsPlan { fast: FastTier::Nvm(Bytes(100)), ..plan(1) }).contains("64 KiB or more"));
    let unknown = vec![tier("floppy", BottomFs::Ext4)];
    assert!(said(FsPlan { tiers: unknown, ..plan(1) }).contains("no model of \"floppy\"; there are"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No settings stall a load or lose bytes.
    #[test]
    fn every_machine_ends_a_load(
        nvm_kib in 64u64..6000, high in 0.05f64..=1.0, gap in 0.0f64..0.5, load in 0usize..6,
        eviction in 0usize..4, distribution in 0usize..4, promotion in 0usize..3, memory in 0u64..20,
        tiers in 1usize..=2, nvm in any::<bool>(),
    ) {
        let words = format!("{} scale=1/500", load::FILE_LOADS[load].0);
        let size = Bytes::kib(nvm_kib);
        let plan = FsPlan {
            fast: if nvm { FastTier::Nvm(size) } else { FastTier::Memory(size) },
            tiers: pair().into_iter().take(tiers).collect(),
            eviction: &ITEM_EVICTION[eviction],
            distribution: &DISTRIBUTION[distribution],
            promotion: &PROMOTION[promotion],
            watermarks: Watermarks::new(high, (high - gap).max(0.0)).expect("shares"),
            machine: Machine { memory: Bytes::mib(memory), ..plan(1).machine },
            duration: Some(Nanos::secs(1)),
            ..plan(1)
        };
        assert_conserved(&run(&words, &plan), &words);
    }
}
