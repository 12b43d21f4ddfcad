//! Results of experiments: the metrics of each, by name and seed.

use super::published::{Best, RATIO, Run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use weir_model::Nanos;
use weir_sim::cache::CacheOutcome;
use weir_sim::load::ramp::saturation;
use weir_sim::{DeviceOutcome, Outcome, Responses, Window};

/// The metrics of an experiment, by name.
pub(super) type Metrics = BTreeMap<String, f64>;

/// An experiment with a seed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ExperimentId {
    pub(super) experiment: String,
    pub(super) seed: u64,
    /// Virtual time of the experiment, warm-up included.
    pub(super) duration_ns: u64,
}

impl ExperimentId {
    /// Creates the id of an experiment. The tags say what is not as usual: its load file, a parameter.
    pub(super) fn new(name: &str, tags: [Option<&str>; 2], seed: u64, duration: Nanos) -> Self {
        let tags: String = tags.into_iter().flatten().map(|tag| format!(" [{tag}]")).collect();
        Self { experiment: format!("{name}{tags}"), seed, duration_ns: duration.0 }
    }
}

/// The results of a reproduction's experiments.
#[derive(Debug, Default)]
pub(super) struct Results {
    all: BTreeMap<String, BTreeMap<u64, Metrics>>,
}

impl Results {
    /// Adds the metrics of an experiment.
    pub(super) fn add(&mut self, id: ExperimentId, metrics: Metrics) {
        self.all.entry(id.experiment).or_default().insert(id.seed, metrics);
    }

    /// Reports whether the experiment was run.
    pub(super) fn has(&self, experiment: &str) -> bool {
        self.all.contains_key(experiment)
    }

    /// Returns a metric of an experiment.
    pub(super) fn metric(&self, experiment: &str, seed: u64, metric: &str) -> Option<f64> {
        self.all.get(experiment)?.get(&seed)?.get(metric).copied()
    }

    /// Iterates over the experiments, with the metrics by seed.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &BTreeMap<u64, Metrics>)> {
        self.all.iter().map(|(name, by_seed)| (&**name, by_seed))
    }

    /// Returns the row's figure for each seed: the ratio to the baseline, or the share. Returns `None` if an
    /// experiment was not run. A figure that cannot be computed is not finite.
    pub(super) fn values(&self, run: &Run) -> Option<Vec<(u64, f64)>> {
        if run.experiments().iter().any(|name| !self.all.contains_key(*name)) {
            return None;
        }
        let seeds = self.all.get(run.of.first()?)?.keys();
        Some(seeds.map(|seed| (*seed, self.value(run, *seed))).collect())
    }

    /// Returns the figure for a seed; not finite if it cannot be computed.
    fn value(&self, run: &Run, seed: u64) -> f64 {
        let (which, of) = self.best(run, &run.of, seed);
        let value = match run.numbers.get(which) {
            Some(number) if of.is_finite() => *number,
            Some(_) => f64::NAN,
            None if run.to.is_empty() => of,
            None => of / self.best(run, &run.to, seed).1,
        };
        run.over.as_ref().map_or(value, |over| value / self.value(over, seed))
    }

    /// Returns the best metric of these experiments, and the place of its experiment in the list. If one of
    /// the metrics is absent, the result is not finite.
    fn best(&self, run: &Run, experiments: &[String], seed: u64) -> (usize, f64) {
        let metric = |name| self.all.get(name)?.get(&seed)?.get(&run.metric).copied();
        let metrics: Option<Vec<f64>> = experiments.iter().map(metric).collect();
        let sign = if run.best == Best::Most { 1.0 } else { -1.0 };
        let better = |a: &(usize, f64), b: &(usize, f64)| (sign * a.1).total_cmp(&(sign * b.1));
        let best = metrics.and_then(|metrics| metrics.into_iter().enumerate().max_by(better));
        best.unwrap_or((0, f64::NAN))
    }

    /// Returns these results with those of `other` in place of the ones of the same experiments.
    pub(super) fn replaced_by(&self, other: &Self, seed: u64) -> Self {
        let of_seed = |all: &BTreeMap<u64, Metrics>| Some((seed, all.get(&seed)?.clone()));
        let here = self.all.iter().chain(&other.all);
        let all = here.filter_map(|(name, all)| Some((name.clone(), of_seed(all)?)));
        let mut replaced = Self::default();
        for (name, (seed, metrics)) in all {
            replaced.all.insert(name, BTreeMap::from([(seed, metrics)]));
        }
        replaced
    }
}

/// The metrics of an experiment on a pool. Those of a period have its name at the end; see [`of_pool`].
#[cfg(test)]
pub(super) const POOL_METRICS: [&str; 29] = [
    "rate",
    "saturation",
    "base response",
    "operation time",
    "response",
    "read response",
    "write response",
    "served",
    "allocated",
    "reads",
    "bytes",
    "bytes read",
    "bytes written",
    "moved",
    "commands",
    "command size",
    "ratio of commands, first to last device",
    "rate in PERIOD",
    "operation time in PERIOD",
    "allocated in PERIOD",
    "ratio of written, last to first device, in PERIOD",
    "ratio of read, last to first device, in PERIOD",
    "ratio of written to the last device, PERIOD to PERIOD",
    "ratio of accumulated latency, by latency",
    "ratio of accumulated latency, by frequency",
    "ratio of accumulated latency, by request size",
    "ratio of accumulated latency, by seek distance",
    "ratio of accumulated latency, by reuse distance",
    "ratio of accumulated latency, by frequency and seek distance",
];

/// Returns the metrics of an experiment on a pool: a load of so many processes, of which some periods count
/// by themselves. A load that is a ramp saturates at the mean response `limit`.
pub(super) fn of_pool(
    outcome: &Outcome,
    processes: usize,
    periods: &[Period],
    limit: Option<Nanos>,
) -> Metrics {
    let mean = |of: &Responses| of.time_if_any(of.mean).map_or(f64::NAN, Nanos::as_secs_f64);
    let first = outcome.devices.first();
    let used: u64 = outcome.devices.iter().map(|device| device.used.0).sum();
    let rate = outcome.work_rate.unwrap_or(outcome.rate);
    let [read, written] = outcome.transfer_rates.unwrap_or([f64::NAN; 2]);
    let seconds = outcome.measured.as_secs_f64();
    let commands = |device: &DeviceOutcome| (device.reads.count + device.writes.count) as f64;
    let all: f64 = outcome.devices.iter().map(commands).sum();
    let bytes: u64 = outcome.devices.iter().map(|device| device.reads.bytes.0 + device.writes.bytes.0).sum();
    let values = [
        ("rate", rate),
        ("saturation", limit.and_then(|limit| saturation(&outcome.ramp, limit)).unwrap_or(f64::NAN)),
        ("base response", outcome.ramp.first().map_or(f64::NAN, |step| mean(&step.responses))),
        // By Little's law: every process waits for one operation at a time.
        ("operation time", processes as f64 / rate),
        ("response", mean(&outcome.all)),
        ("read response", mean(&outcome.reads)),
        ("write response", mean(&outcome.writes)),
        ("served", first.map_or(f64::NAN, |device| device.served)),
        ("allocated", first.map_or(f64::NAN, |device| device.used.0 as f64 / used as f64)),
        ("reads", outcome.reads.count as f64 / outcome.all.count as f64),
        ("bytes", outcome.bytes_rate),
        ("bytes read", read),
        ("bytes written", written),
        ("moved", outcome.moved.0 as f64 / seconds),
        ("commands", all / seconds),
        ("command size", bytes as f64 / all),
        (
            "ratio of commands, first to last device",
            first.map_or(f64::NAN, commands) / outcome.devices.last().map_or(f64::NAN, commands),
        ),
    ];
    let of_periods = periods.iter().flat_map(|period| of_period(outcome, period));
    let written = periods.first().zip(periods.last()).map(|(early, late)| {
        let written =
            |period: &Period| period.devices(&outcome.windows).last().map_or(f64::NAN, |d| d.written);
        let name = format!("{RATIO}written to the last device, {} to {}", late.name, early.name);
        (name, written(late) / late.len() as f64 / written(early) * early.len() as f64)
    });
    let values = values.into_iter().map(|(name, value)| (name.to_owned(), value));
    finite(values.chain(of_periods).chain(written))
}

/// Returns the metrics of a period.
fn of_period(outcome: &Outcome, period: &Period) -> Vec<(String, f64)> {
    let windows = period.of(&outcome.windows);
    let rate = windows.iter().map(|window| window.work).sum::<f64>() / windows.len() as f64;
    let used = windows.last().map(|window| window.devices.iter().map(|device| device.used.0 as f64));
    let allocated = used.map_or(f64::NAN, |mut used| {
        let first = used.next().unwrap_or(f64::NAN);
        first / (first + used.sum::<f64>())
    });
    let devices = period.devices(&outcome.windows);
    let ends = devices.first().zip(devices.last());
    let ratio = |of: fn(&DeviceSum) -> f64| ends.map_or(f64::NAN, |(first, last)| of(last) / of(first));
    let name = &period.name;
    vec![
        (format!("rate in {name}"), rate),
        // For one process, since their number in a period is not known here: only ratios have a meaning.
        (format!("operation time in {name}"), 1.0 / rate),
        (format!("allocated in {name}"), allocated),
        (format!("{RATIO}written, last to first device, in {name}"), ratio(|device| device.written)),
        (format!("{RATIO}read, last to first device, in {name}"), ratio(|device| device.read)),
    ]
}

/// A part of a run that counts by itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Period {
    pub(super) name: &'static str,
    /// The windows, which are of equal length.
    windows: Range<usize>,
}

/// Number of windows of a run.
pub(super) const WINDOWS: u32 = 30;

/// Bytes that a device read and wrote in a period.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceSum {
    read: f64,
    written: f64,
}

impl Period {
    /// Creates the period between two shares of the run: the windows that are wholly in it, at least one.
    pub(super) fn new(name: &'static str, [begin, end]: [f64; 2]) -> Self {
        let count = f64::from(WINDOWS);
        let begin = ((begin * count - 1e-6).ceil() as usize).min(WINDOWS as usize - 1);
        Self { name, windows: begin..((end * count + 1e-6).floor() as usize).max(begin + 1) }
    }

    fn len(&self) -> usize {
        self.windows.len()
    }

    fn of<'a>(&self, windows: &'a [Window]) -> &'a [Window] {
        windows.get(self.windows.clone()).unwrap_or_default()
    }

    fn devices(&self, windows: &[Window]) -> Vec<DeviceSum> {
        let mut sums = Vec::new();
        for window in self.of(windows) {
            sums.resize(window.devices.len(), DeviceSum::default());
            for (sum, device) in sums.iter_mut().zip(&window.devices) {
                sum.read += device.read.0 as f64;
                sum.written += device.written.0 as f64;
            }
        }
        sums
    }
}

/// Returns the metrics of an experiment with a cache.
pub(super) fn of_cache(outcome: &CacheOutcome) -> Metrics {
    // Every write that hits is written to the cache.
    let write_hits = outcome.writes.accesses - outcome.writes.misses;
    let values = [
        ("size", f64::from(outcome.size_blocks)),
        ("clwa", outcome.clwa().unwrap_or(f64::NAN)),
        ("hits", outcome.reads.request_hit_ratio()),
        ("byte hits", outcome.reads.byte_hit_ratio()),
        ("bytes hit", (outcome.reads.bytes - outcome.reads.missed_bytes) as f64),
        ("read miss writes", outcome.filled as f64),
        ("write hit writes", write_hits as f64),
        ("write miss writes", (outcome.written - write_hits) as f64),
    ];
    finite(values.into_iter().map(|(name, value)| (name.to_owned(), value)))
}

/// Returns the median; `None` if there are no values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (middle, upper) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[middle] + values[upper]) / 2.0)
}

/// Collects metrics; those that cannot be computed are absent.
pub(super) fn finite(metrics: impl Iterator<Item = (String, f64)>) -> Metrics {
    metrics.filter(|(_, value)| value.is_finite()).collect()
}

/// Results for tests.
#[cfg(test)]
pub(super) mod testing {
    use super::{ExperimentId, Metrics};

    pub(in crate::commands::repro) fn id(experiment: &str, seed: u64) -> ExperimentId {
        ExperimentId { experiment: experiment.into(), seed, duration_ns: 1 }
    }

    pub(in crate::commands::repro) fn metrics(rate: f64) -> Metrics {
        [("rate".to_owned(), rate)].into()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{id, metrics};
    use super::*;
    use weir_model::Bytes;
    use weir_sim::DeviceWindow;
    use weir_sim::place::outcome::DirectionOutcome;

    fn run(of: &[&str], to: &[&str]) -> Run {
        let [of, to] = [of, to].map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Run { metric: "rate".into(), of, to, best: Best::Most, numbers: Vec::new(), over: None }
    }

    #[test]
    fn a_figure_is_a_ratio_of_the_same_seed() {
        let mut results = Results::default();
        for seed in [1, 2] {
            results.add(id("a", seed), metrics(6.0));
            results.add(id("b", seed), metrics(seed as f64));
        }
        assert_eq!(results.values(&run(&["a"], &["b"])), Some(vec![(1, 6.0), (2, 3.0)]));
        assert_eq!(results.values(&run(&["a"], &[])), Some(vec![(1, 6.0), (2, 6.0)]));
        assert_eq!(results.values(&run(&["a"], &["c"])), None, "not run");
        let absent = results.values(&Run { metric: "reads".into(), ..run(&["a"], &[]) }).expect("run");
        assert!(absent[0].1.is_nan(), "a metric that is absent is not passed over");
        let over = Run { over: Some(Box::new(run(&["b"], &["a"]))), ..run(&["a"], &["b"]) };
        assert_eq!(results.values(&over), Some(vec![(1, 36.0), (2, 9.0)]), "a ratio of ratios");
    }

    #[test]
    fn of_several_experiments_the_best_counts() {
        let mut results = Results::default();
        for (name, rate) in [("a", 6.0), ("b", 8.0), ("c", 4.0)] {
            results.add(id(name, 1), metrics(rate));
        }
        assert_eq!(results.values(&run(&["c"], &["a", "b"])), Some(vec![(1, 0.5)]));
        let least = Run { best: Best::Least, ..run(&["b"], &["a", "c"]) };
        assert_eq!(results.values(&least), Some(vec![(1, 2.0)]));
        let which = Run { numbers: vec![0.5, 0.8, 0.9], ..run(&["a", "b", "c"], &[]) };
        assert_eq!(results.values(&which), Some(vec![(1, 0.8)]), "the number of the best");
        let absent = Run { metric: "reads".into(), ..which };
        assert!(results.values(&absent).expect("run")[0].1.is_nan());
    }

    #[test]
    fn results_of_a_variant_replace_those_of_its_experiments() {
        let (mut results, mut variant) = (Results::default(), Results::default());
        for seed in [1, 2] {
            results.add(id("a", seed), metrics(6.0));
            results.add(id("b", seed), metrics(3.0));
        }
        variant.add(id("b", 1), metrics(2.0));
        let replaced = results.replaced_by(&variant, 1);
        assert_eq!(replaced.values(&run(&["a"], &["b"])), Some(vec![(1, 3.0)]));
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!((median(vec![4.0, 1.0]), median(vec![])), (Some(2.5), None));
    }

    /// Each metric is the figure of its name.
    #[test]
    fn metrics_are_not_exchanged() {
        let mean = |count, micros| Responses { count, mean: Nanos::micros(micros), ..Responses::default() };
        let device = |used, served| weir_sim::DeviceOutcome { used: Bytes(used), served, ..device() };
        let windows = (0..30).map(|nth| weir_sim::Window {
            work: f64::from(nth),
            devices: vec![
                DeviceWindow { read: Bytes(2), written: Bytes(10), used: Bytes(1) },
                DeviceWindow {
                    read: Bytes(1),
                    written: Bytes(10 * (nth + 1) as u64),
                    used: Bytes(nth as u64),
                },
            ],
            ..window()
        });
        let step = |(delivered, millis): (f64, u64)| {
            let responses = mean(1, 1000 * millis);
            weir_sim::RampStep { offered: delivered, delivered, responses }
        };
        let outcome = Outcome {
            ramp: [(100.0, 10), (300.0, 90)].map(step).to_vec(),
            measured: Nanos::secs(2),
            rate: 5.0,
            work_rate: Some(7.0),
            transfer_rates: Some([13.0, 17.0]),
            bytes_rate: 11.0,
            all: mean(10, 20),
            reads: mean(4, 30),
            writes: mean(6, 40),
            devices: vec![device(1, 0.8), device(3, 0.2)],
            moved: Bytes(38),
            windows: windows.collect(),
            ..Outcome::default()
        };
        let periods = [Period::new("1", [0.2, 0.5]), Period::new("10", [0.667, 1.0])];
        assert_eq!((periods[0].windows.clone(), periods[1].windows.clone()), (6..15, 21..30));
        let expected = [
            ("rate", 7.0),
            ("saturation", 200.0),
            ("base response", 10e-3),
            ("operation time", 2.0),
            ("response", 20e-6),
            ("read response", 30e-6),
            ("write response", 40e-6),
            ("served", 0.8),
            ("allocated", 0.25),
            ("reads", 0.4),
            ("bytes", 11.0),
            ("bytes read", 13.0),
            ("bytes written", 17.0),
            ("moved", 19.0),
            ("commands", 15.0),
            ("command size", 100.0),
            ("ratio of commands, first to last device", 1.0),
            ("rate in 1", 10.0),
            ("rate in 10", 25.0),
            ("operation time in 1", 0.1),
            ("operation time in 10", 0.04),
            ("allocated in 1", 1.0 / 15.0),
            ("allocated in 10", 1.0 / 30.0),
            ("ratio of written, last to first device, in 1", 11.0),
            ("ratio of written, last to first device, in 10", 26.0),
            ("ratio of read, last to first device, in 1", 0.5),
            ("ratio of read, last to first device, in 10", 0.5),
            ("ratio of written to the last device, 10 to 1", 26.0 / 11.0),
        ];
        let found = of_pool(&outcome, 14, &periods, Some(Nanos::millis(50)));
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        let mut wanted = expected.map(|(name, _)| name);
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        for (name, value) in expected {
            assert!((found[name] - value).abs() < 1e-9, "{name}: {} for {value}", found[name]);
        }
        assert_eq!(of_pool(&Outcome { work_rate: None, ..outcome }, 14, &[], None)["rate"], 5.0);
    }

    fn window() -> weir_sim::Window {
        let none = Nanos(0);
        weir_sim::Window {
            start: none,
            rate: 0.0,
            work: 0.0,
            mean: none,
            p99: none,
            moved: Bytes(0),
            loads: Vec::new(),
            shares: Vec::new(),
            devices: Vec::new(),
        }
    }

    fn device() -> weir_sim::DeviceOutcome {
        weir_sim::DeviceOutcome {
            name: String::new(),
            model: String::new(),
            room: Bytes(0),
            used: Bytes(0),
            share: 0.0,
            served: 0.0,
            load: 0.0,
            queue: 0.0,
            reads: DirectionOutcome { count: 5, bytes: Bytes(1000), ..DirectionOutcome::default() },
            writes: DirectionOutcome { count: 10, bytes: Bytes(500), ..DirectionOutcome::default() },
            metadata: Bytes(0),
            endurance: None,
        }
    }
}
