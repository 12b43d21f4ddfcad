//! Runs experiments, as many at the same time as there are processors.

use super::args::ReproArgs;
use crate::failure::{Failure, REPORT_DEFECT};
use crate::progress;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_engine::Percent;
use weir_model::{Bytes, ErrorKind, ExtentSize, Nanos, Seed};
use weir_policy::harm::{MoveControl, Rules};
use weir_policy::placement::{Placement, Settings, find_policy};
use weir_sim::{DeviceSize, DeviceSpec, Load, Mode, Outcome, Plan, PoolSpec, SimError, place};

/// Creates an experiment's load from a seed and the load's duration.
pub(super) type MakeLoad = Box<dyn Fn(u64, Nanos) -> Result<Box<dyn Load>, SimError> + Send + Sync>;

/// An experiment: a load on a pool of modelled drives under a policy.
pub(super) struct Experiment {
    /// Name of the experiment, unique among the experiments.
    pub(super) name: String,
    pub(super) pool: PoolSpec,
    pub(super) policy: &'static str,
    /// Keys of the policy whose values differ from the defaults.
    pub(super) tuning: Vec<(&'static str, f64)>,
    pub(super) load: MakeLoad,
    /// Number of clients in the closed loop.
    pub(super) clients: usize,
    pub(super) duration: Nanos,
    /// Share of the duration that is warm-up.
    pub(super) warm_up_share: f64,
}

/// Warm-up share for papers that suggest no other.
pub(super) const WARM_UP_DEFAULT: f64 = 1.0 / 3.0;

/// Returns a pool of these drives with these sizes.
pub(super) fn pool(extent: Bytes, drives: &[(&str, Bytes)]) -> PoolSpec {
    let device = |(number, (model, size)): (usize, &(&str, Bytes))| DeviceSpec {
        name: format!("{model}-{number}"),
        model: (*model).into(),
        size: DeviceSize::Size(*size),
        metadata: None,
        noise: None,
    };
    PoolSpec {
        extent: ExtentSize::new(extent).unwrap_or(ExtentSize::DEFAULT),
        devices: drives.iter().enumerate().map(device).collect(),
        // Only the papers' tokens, quotas and periods limit migration.
        mover_share: Percent(100),
        extent_cache: Bytes(0),
        // The papers' prototypes never stop migration.
        moves: MoveControl::NeverPaused(Rules::default()),
    }
}

impl Experiment {
    fn policy(&self) -> Option<Box<dyn Placement>> {
        let known = find_policy(self.policy)?;
        let mut settings = Settings::default();
        for (name, value) in &self.tuning {
            let key = known.keys.iter().find(|key| key.name == *name)?;
            if !settings.set(key, *value) {
                return None;
            }
        }
        Some((known.create)(&settings))
    }

    fn run(&self, args: &ReproArgs) -> Result<Outcome, Failure> {
        let refused = |error: SimError| {
            let mut failure = Failure::from_message(ErrorKind::Usage, &error.to_string());
            failure.message = format!("{}: {}", self.name, failure.message);
            failure
        };
        let policy = self.policy().ok_or_else(|| {
            Failure::environment(format!("{}: {} cannot be tuned so", self.name, self.policy), REPORT_DEFECT)
        })?;
        let lasts = args.duration.unwrap_or(self.duration);
        let mut load = (self.load)(args.seed, lasts).map_err(refused)?;
        let plan = Plan {
            mode: Mode::Closed(vec![(Nanos(0), self.clients)]),
            duration: lasts,
            requests: u64::MAX,
            warm_up: Some(Nanos::from_secs_f64(lasts.as_secs_f64() * self.warm_up_share)),
            windows: 30,
            seed: Seed(args.seed),
        };
        place(&self.pool, policy, &mut *load, &plan).map_err(refused)
    }
}

/// Results of experiments, by name.
#[derive(Debug, Default)]
pub(super) struct Results(BTreeMap<String, Outcome>);

impl Results {
    /// Returns all results.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.0.iter().map(|(name, outcome)| (&**name, outcome))
    }

    /// Returns the load's rate a second, in its own unit of work or in requests; NaN if the experiment was
    /// not run.
    pub(super) fn rate(&self, name: &str) -> f64 {
        self.0.get(name).map_or(f64::NAN, |outcome| outcome.work_rate.unwrap_or(outcome.rate))
    }

    /// Returns the mean rate of work in these windows of the run; NaN if the experiment was not run.
    pub(super) fn rate_in(&self, name: &str, windows: std::ops::Range<usize>) -> f64 {
        let Some(outcome) = self.0.get(name) else { return f64::NAN };
        let of = outcome.windows.get(windows).unwrap_or_default();
        of.iter().map(|window| window.work).sum::<f64>() / of.len().max(1) as f64
    }

    /// Returns the rate of one experiment divided by that of another.
    pub(super) fn ratio(&self, name: &str, other: &str) -> f64 {
        self.rate(name) / self.rate(other)
    }

    /// Returns the share of clients' commands that the first device carried out; NaN if the experiment was
    /// not run.
    pub(super) fn first_device_share(&self, name: &str) -> f64 {
        let first = self.0.get(name).and_then(|outcome| outcome.devices.first());
        first.map_or(f64::NAN, |device| device.served)
    }

    /// Returns results in which every figure is 1.
    #[cfg(test)]
    pub(super) fn all_ones(names: Vec<String>) -> Self {
        let device = weir_sim::DeviceOutcome {
            name: "d".into(),
            model: "m".into(),
            room: Bytes(1),
            used: Bytes(1),
            share: 1.0,
            served: 1.0,
            load: 1.0,
            queue: 1.0,
            reads: weir_sim::place::outcome::DirectionOutcome::default(),
            writes: weir_sim::place::outcome::DirectionOutcome::default(),
            metadata: Bytes(0),
        };
        let window = weir_sim::Window {
            start: Nanos(0),
            rate: 1.0,
            work: 1.0,
            mean: Nanos(1),
            p99: Nanos(1),
            moved: Bytes(0),
            loads: vec![1.0],
            shares: vec![1.0],
        };
        let outcome = || Outcome {
            policy: "p".into(),
            measured: Nanos(1),
            requests: 1,
            unanswered: 0,
            rate: 1.0,
            bytes_rate: 1.0,
            work_rate: Some(1.0),
            all: weir_sim::Responses::default(),
            reads: weir_sim::Responses::default(),
            writes: weir_sim::Responses::default(),
            devices: vec![device.clone()],
            moved: Bytes(0),
            estimate: None,
            spread: weir_engine::Spread::default(),
            stops: 0,
            windows: vec![window.clone(); 30],
            commands: Vec::new(),
            digest: 0,
        };
        Self(names.into_iter().map(|name| (name, outcome())).collect())
    }
}

/// Runs all experiments.
pub(super) fn run(experiments: &[Experiment], args: &ReproArgs) -> Result<Results, Failure> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(String, Result<Outcome, Failure>)>> = Mutex::new(Vec::new());
    let work = || {
        while let Some(experiment) = experiments.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = experiment.run(args);
            let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            done.push((experiment.name.clone(), outcome));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(experiments.len());
    progress::during(&format!("{} experiments in virtual time", experiments.len()), || {
        std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    });
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let outcomes = done.into_iter().map(|(name, outcome)| Ok((name, outcome?)));
    outcomes.collect::<Result<_, _>>().map(Results)
}
