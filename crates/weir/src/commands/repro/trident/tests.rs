use super::*;
use crate::commands::repro::{Form, ReproArgs, results_file::ResultsFile};
use experiment::{Devices, LOADS, Ssd};
use weir_model::Bytes;
use weir_policy::Watermarks;
use weir_sim::fs::FastTier;

fn setting() -> Setting {
    Setting::without_files(&REPRODUCTION.publication().expect("valid data"))
}

fn prepared(variant: Variant, scale: f64) -> Prepared {
    let setup = Setup::new("fileserver", Ssd::Slow, variant);
    prepare(&setting().parameters, setup, 1, scale, LONGEST).expect("usable parameters")
}

/// Memory and NVM share 2 GB, and all of it is memory without NVM.
#[test]
fn machines_have_the_published_sizes() {
    let usual = prepared(Variant::Trident, 1.0);
    assert_eq!(
        (usual.plan.fast, usual.plan.machine.memory),
        (FastTier::Nvm(Bytes::mib(384)), Bytes::mib(1664))
    );
    let (marks, published) = (usual.plan.watermarks, Watermarks::PUBLISHED);
    assert!((marks.high - published.high).abs() < 1e-9 && (marks.low - published.low).abs() < 1e-9);
    assert_eq!(usual.plan.duration, Some(Nanos::secs(120)));
    let small = prepared(Variant::Nvm(4), 1.0).plan;
    assert_eq!((small.fast, small.machine.memory), (FastTier::Nvm(Bytes::mib(4)), Bytes::mib(2044)));
    let plain = prepared(Variant::Plain(Devices::Raid0), 0.25).plan;
    assert_eq!(plain.machine.memory, Bytes::mib(512));
    assert!(matches!(plain.fast, FastTier::Memory(dirty) if dirty.0.abs_diff(Bytes::mib(51).0) < 1 << 20));
    assert_eq!((plain.distribution.name, plain.duration), ("round_robin", Some(Nanos::secs(30))));
}

#[test]
fn variants_change_one_thing() {
    let names = |variant| {
        let plan = prepared(variant, 1.0).plan;
        (plan.eviction.name, plan.distribution.name, plan.promotion.name, plan.tiers.len())
    };
    assert_eq!(names(Variant::Trident), ("trident", "trident", "never", 2));
    assert_eq!(names(Variant::Evicted("lru")), ("lru", "trident", "never", 2));
    assert_eq!(names(Variant::BySize), ("trident", "by_size", "never", 2));
    assert_eq!(names(Variant::Single(Devices::Disk)), ("trident", "round_robin", "never", 1));
    let marks = |variant| prepared(variant, 1.0).plan.watermarks;
    let high = marks(Variant::High(60));
    assert!((high.high - 0.6).abs() < 1e-9 && (high.low - 0.55).abs() < 1e-9);
    assert!((marks(Variant::Low(70)).low - 0.7).abs() < 1e-9);
    let drives =
        |variant| prepared(variant, 1.0).plan.tiers.into_iter().map(|tier| tier.drive).collect::<Vec<_>>();
    assert_eq!(drives(Variant::Offline), ["intel-x25-v", "st3750528as"]);
}

/// Figure 5(d): 50 ms for flash and 50.7 ms for the disk.
#[test]
fn the_example_has_the_published_times() {
    let metrics = example::metrics(&setting().parameters, experiment::Method::Trident).expect("metrics");
    assert!((metrics["flash time"] - 0.050).abs() < 1e-9 && (metrics["disk time"] - 0.0507).abs() < 1e-4);
}

fn results(only: &str) -> Results {
    let (only, duration) = (Some(only.to_owned()), Some(Nanos::secs(2)));
    let args = ReproArgs { only, duration, seed: 1, ..ReproArgs::default() };
    let form = Form { is_full: false, seeds: vec![1] };
    let file = ResultsFile::open(None).expect("no file");
    let runner =
        Runner { seeds: &form.seeds, variant: None, names: None, args: &args, form: &form, file: &file };
    run(&setting(), &runner).expect("results")
}

/// The rates of trial runs come from runs of the SSD alone and of the disk alone, which are made first.
#[test]
fn rates_of_trial_runs_decide_the_distribution() {
    let results = results("create-files, fast SSD, offline");
    let share = results.metric("create-files, fast SSD, offline", 1, "SSD share").expect("a share");
    assert!((0.05..0.95).contains(&share), "{share}");
}

/// A comparison has the highest and the lowest ratio of its loads.
#[test]
fn comparisons_take_the_extremes_of_the_loads() {
    let setting = setting();
    let usual = |load| Setup::new(load, Ssd::Fast, Variant::Trident);
    let mut done = Done { p: &setting.parameters, all: BTreeMap::new() };
    for (load, rate) in LOADS.into_iter().zip([1.0, 1.1, 2.0, 0.9, 0.99, 1.0]) {
        let metrics = |rate: f64| Metrics::from([("rate".to_owned(), rate)]);
        done.all.insert((1, usual(load)), metrics(10.0 * rate));
        done.all.insert((1, usual(load).with(Variant::Evicted("lru"))), metrics(10.0));
    }
    let name = "all loads, fast SSD, trident to lru";
    let Some(Experiment::Compared(comparison)) = Experiment::parse(name) else { panic!("{name}") };
    let metrics = done.compare(&comparison, 1);
    assert!((metrics[&greatest("rate")] - 2.0).abs() < 1e-9 && (metrics[&least("rate")] - 0.9).abs() < 1e-9);
    assert!((metrics[AS_FAST_LOADS] - 5.0 / 6.0).abs() < 1e-9);
    assert!(!metrics.contains_key(&greatest("disk speed")), "no load has one");
    done.all.remove(&(1, usual("untar")));
    assert!(!done.compare(&comparison, 1).contains_key(&greatest("rate")), "a rate is missing");
}
