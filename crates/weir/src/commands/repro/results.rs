//! Results of experiments: the metrics of each, by name and seed.
//!
//! They can be kept in a file, a line for each experiment and seed, so that a run that was interrupted
//! continues.

use super::published::Run;
use crate::failure::Failure;
use crate::files::{self, OutputKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use weir_model::Nanos;
use weir_sim::cache::CacheOutcome;
use weir_sim::{Outcome, Responses};

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

/// A line of the file in which results are kept.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// The version of weir that ran the experiment.
    version: String,
    #[serde(flatten)]
    id: ExperimentId,
    metrics: Metrics,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

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

    /// Iterates over the experiments, with the metrics by seed.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &BTreeMap<u64, Metrics>)> {
        self.all.iter().map(|(name, by_seed)| (&**name, by_seed))
    }

    /// Returns the row's figure for each seed: the ratio to the baseline, or the share. Returns `None` if an
    /// experiment was not run. A figure that cannot be computed is not finite.
    pub(super) fn values(&self, run: &Run) -> Option<Vec<f64>> {
        let of = self.all.get(&run.of)?;
        let to = run.to.as_ref().map(|to| self.all.get(to).ok_or(())).transpose().ok()?;
        let metric = |metrics: &Metrics| metrics.get(&run.metric).copied().unwrap_or(f64::NAN);
        let value = |(seed, metrics): (&u64, &Metrics)| match to {
            Some(to) => metric(metrics) / to.get(seed).map_or(f64::NAN, metric),
            None => metric(metrics),
        };
        Some(of.iter().map(value).collect())
    }
}

/// The file in which results are kept while experiments run.
#[derive(Debug)]
pub(super) struct ResultsFile {
    kept: BTreeMap<ExperimentId, Metrics>,
    file: Option<(PathBuf, Mutex<File>)>,
}

impl ResultsFile {
    /// Opens the file, or none. Lines of other versions of weir and incomplete lines are ignored.
    ///
    /// # Errors
    /// Fails if the file holds anything but results, or if it cannot be read or written.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self { kept: BTreeMap::new(), file: None }) };
        files::refuse_foreign_content(path, OutputKind::Results)?;
        let failure = |error: std::io::Error| Failure::os("write to", path, &error);
        let mut file = File::options().append(true).create(true).open(path).map_err(failure)?;
        // A device or a pipe has no results, and may have no end.
        let text = match path.is_file() {
            true => std::fs::read_to_string(path).map_err(|error| Failure::os("read", path, &error))?,
            false => String::new(),
        };
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let kept = lines.filter(|line| line.version == VERSION).map(|line| (line.id, line.metrics)).collect();
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(failure)?;
        }
        Ok(Self { kept, file: Some((path.to_owned(), Mutex::new(file))) })
    }

    /// Returns the kept result of the experiment, or runs it and keeps its result.
    ///
    /// # Errors
    /// Fails as `run` does, or if the result cannot be written.
    pub(super) fn get_or_run(
        &self,
        id: &ExperimentId,
        run: impl FnOnce() -> Result<Metrics, Failure>,
    ) -> Result<Metrics, Failure> {
        if let Some(metrics) = self.kept.get(id) {
            return Ok(metrics.clone());
        }
        let metrics = run()?;
        if let Some((path, file)) = &self.file {
            let line = Line { version: VERSION.into(), id: id.clone(), metrics: metrics.clone() };
            let failure = |error: std::io::Error| Failure::os("write to", path, &error);
            let mut line = serde_json::to_string(&line).map_err(|error| failure(error.into()))?;
            line.push('\n');
            let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            file.write_all(line.as_bytes()).map_err(failure)?;
        }
        Ok(metrics)
    }
}

/// Windows of the "1 to 10" experiments, which have thirty: with one process, and long after it became ten.
const WINDOWS_OF_ONE: std::ops::Range<usize> = 6..15;
const WINDOWS_OF_TEN: std::ops::Range<usize> = 20..30;

/// The metrics of an experiment on a pool.
pub(super) const POOL_METRICS: [&str; 10] = [
    "rate",
    "rate 1",
    "rate 10",
    "response",
    "read response",
    "write response",
    "served",
    "allocated",
    "reads",
    "bytes",
];

/// Returns the metrics of an experiment on a pool.
pub(super) fn of_pool(outcome: &Outcome) -> Metrics {
    let rate_in = |windows: std::ops::Range<usize>| {
        let of = outcome.windows.get(windows).unwrap_or_default();
        of.iter().map(|window| window.work).sum::<f64>() / of.len().max(1) as f64
    };
    let mean = |of: &Responses| of.time_if_any(of.mean).map_or(f64::NAN, Nanos::as_secs_f64);
    let first = outcome.devices.first();
    let used: u64 = outcome.devices.iter().map(|device| device.used.0).sum();
    let values = [
        outcome.work_rate.unwrap_or(outcome.rate),
        rate_in(WINDOWS_OF_ONE),
        rate_in(WINDOWS_OF_TEN),
        mean(&outcome.all),
        mean(&outcome.reads),
        mean(&outcome.writes),
        first.map_or(f64::NAN, |device| device.served),
        first.map_or(f64::NAN, |device| device.used.0 as f64 / used as f64),
        outcome.reads.count as f64 / outcome.all.count as f64,
        outcome.bytes_rate,
    ];
    finite(POOL_METRICS.into_iter().zip(values))
}

/// The metrics of an experiment with a cache.
pub(super) const CACHE_METRICS: [&str; 5] = ["size", "clwa", "hits", "byte hits", "bytes hit"];

/// Returns the metrics of an experiment with a cache.
pub(super) fn of_cache(outcome: &CacheOutcome) -> Metrics {
    let values = [
        f64::from(outcome.size_blocks),
        outcome.clwa().unwrap_or(f64::NAN),
        outcome.reads.request_hit_ratio(),
        outcome.reads.byte_hit_ratio(),
        (outcome.reads.bytes - outcome.reads.missed_bytes) as f64,
    ];
    finite(CACHE_METRICS.into_iter().zip(values))
}

/// Returns the median; `None` if there are no values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (middle, upper) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[middle] + values[upper]) / 2.0)
}

/// Collects metrics; those that cannot be computed are absent.
fn finite(metrics: impl Iterator<Item = (&'static str, f64)>) -> Metrics {
    metrics.filter(|(_, value)| value.is_finite()).map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Bytes;

    fn id(experiment: &str, seed: u64) -> ExperimentId {
        ExperimentId { experiment: experiment.into(), seed, duration_ns: 1 }
    }

    fn metrics(value: f64) -> Metrics {
        [("rate".to_owned(), value)].into()
    }

    #[test]
    fn a_figure_is_a_ratio_of_the_same_seed() {
        let mut results = Results::default();
        for seed in [1, 2] {
            results.add(id("a", seed), metrics(6.0));
            results.add(id("b", seed), metrics(seed as f64));
        }
        let run = |to: Option<&str>| Run { metric: "rate".into(), of: "a".into(), to: to.map(Into::into) };
        assert_eq!(results.values(&run(Some("b"))), Some(vec![6.0, 3.0]));
        assert_eq!(results.values(&run(None)), Some(vec![6.0, 6.0]));
        assert_eq!(results.values(&run(Some("c"))), None, "not run");
        let absent = results.values(&Run { metric: "reads".into(), ..run(None) }).expect("run");
        assert!(absent[0].is_nan(), "a metric that is absent is not passed over");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!((median(vec![4.0, 1.0]), median(vec![])), (Some(2.5), None));
    }

    #[test]
    fn kept_results_are_not_run_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        let file = ResultsFile::open(Some(&path)).expect("a new file");
        assert_eq!(file.get_or_run(&id("a", 1), || Ok(metrics(2.5))).ok(), Some(metrics(2.5)));
        // An interrupted run leaves an incomplete line.
        let mut text = std::fs::read_to_string(&path).expect("the file");
        text.push_str("{\"version\":");
        std::fs::write(&path, text).expect("written");
        let file = ResultsFile::open(Some(&path)).expect("the file");
        let never = || panic!("it is kept");
        assert_eq!(file.get_or_run(&id("a", 1), never).ok(), Some(metrics(2.5)));
        assert_eq!(
            file.get_or_run(&id("a", 2), || Ok(metrics(3.0))).ok(),
            Some(metrics(3.0)),
            "another seed"
        );
        let file = ResultsFile::open(Some(&path)).expect("the file");
        assert_eq!(file.get_or_run(&id("a", 2), never).ok(), Some(metrics(3.0)));
    }

    #[test]
    fn nothing_is_appended_to_other_files_and_a_full_disk_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "notes\n").expect("written");
        let refused = ResultsFile::open(Some(&path)).expect_err("it holds something else");
        assert!(refused.message.contains("notes.txt exists and is no file of results"), "{refused:?}");
        assert_eq!(std::fs::read(&path).expect("the file"), b"notes\n");
        let full = ResultsFile::open(Some(Path::new("/dev/full"))).expect("a device");
        let failed = full.get_or_run(&id("a", 1), || Ok(metrics(1.0))).expect_err("it is full");
        assert!(failed.message.contains("/dev/full"), "{failed:?}");
    }

    /// Each metric is the figure of its name.
    #[test]
    fn metrics_are_not_exchanged() {
        let mean = |count, micros| Responses { count, mean: Nanos::micros(micros), ..Responses::default() };
        let device = |used, served| weir_sim::DeviceOutcome { used: Bytes(used), served, ..device() };
        let windows = (0..30).map(|nth| weir_sim::Window { work: f64::from(nth), ..window() });
        let outcome = Outcome {
            rate: 5.0,
            work_rate: Some(7.0),
            bytes_rate: 11.0,
            all: mean(10, 20),
            reads: mean(4, 30),
            writes: mean(6, 40),
            devices: vec![device(1, 0.8), device(3, 0.2)],
            windows: windows.collect(),
            ..Outcome::default()
        };
        let expected = [
            ("rate", 7.0),
            ("rate 1", 10.0),
            ("rate 10", 24.5),
            ("response", 20e-6),
            ("read response", 30e-6),
            ("write response", 40e-6),
            ("served", 0.8),
            ("allocated", 0.25),
            ("reads", 0.4),
            ("bytes", 11.0),
        ];
        assert_eq!(of_pool(&outcome), expected.map(|(name, value)| (name.to_owned(), value)).into());
        assert_eq!(of_pool(&Outcome { work_rate: None, ..outcome })["rate"], 5.0);
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
            reads: weir_sim::place::outcome::DirectionOutcome::default(),
            writes: weir_sim::place::outcome::DirectionOutcome::default(),
            metadata: Bytes(0),
        }
    }
}
