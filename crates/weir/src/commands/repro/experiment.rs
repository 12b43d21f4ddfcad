//! Runs experiments, as many at the same time as there are processors.

use super::published::RATIO;
use super::results::{ExperimentId, Metrics, Period, Results, WINDOWS, finite, of_pool};
use super::runner::Runner;
use crate::failure::{Failure, REPORT_DEFECT};
use weir_engine::Percent;
use weir_model::{Bytes, ErrorKind, ExtentSize, Nanos, Seed};
use weir_policy::harm::{MoveControl, Rules};
use weir_policy::placement::{Placement, Settings, find_policy};
use weir_sim::load::block_costs::{BlockCosts, BlockRank};
use weir_sim::{DeviceSize, DeviceSpec, Load, Mode, Plan, PoolSpec, SimError, place};

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
    /// What stands for a load file that was not named.
    pub(super) load_file: Option<&'static str>,
    /// Number of processes; each waits for one operation at a time.
    pub(super) processes: usize,
    /// Number of clients of the closed loop besides: those that write back.
    pub(super) writers: usize,
    /// Parts of the run that count by themselves.
    pub(super) periods: Vec<Period>,
    /// Mean response of an operation at which the server counts as saturated, if the load is a ramp.
    pub(super) saturation_limit: Option<Nanos>,
    pub(super) duration: Nanos,
    /// Share of the duration that is warm-up.
    pub(super) warm_up_share: f64,
}

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
    /// Creates the policy; `None` if it cannot be tuned so.
    pub(super) fn policy(&self) -> Option<Box<dyn Placement>> {
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

    /// Runs it with this seed, and returns its metrics.
    fn run(&self, seed: u64, duration: Nanos) -> Result<Metrics, Failure> {
        let refused = |error: SimError| {
            let mut failure = Failure::from_message(ErrorKind::Usage, &error.to_string());
            failure.message = format!("{}: {}", self.name, failure.message);
            failure
        };
        let policy = self.policy().ok_or_else(|| {
            Failure::environment(format!("{}: {} cannot be tuned so", self.name, self.policy), REPORT_DEFECT)
        })?;
        let mut load = (self.load)(seed, duration).map_err(refused)?;
        let plan = Plan {
            mode: Mode::Closed(vec![(Nanos(0), self.processes + self.writers)]),
            duration,
            requests: u64::MAX,
            warm_up: Some(Nanos::from_secs_f64(duration.as_secs_f64() * self.warm_up_share)),
            windows: WINDOWS,
            seed: Seed(seed),
        };
        let outcome = place(&self.pool, policy, &mut *load, &plan).map_err(refused)?;
        let mut metrics = of_pool(&outcome, self.processes, &self.periods, self.saturation_limit);
        metrics.extend(load.block_costs().map(of_blocks).unwrap_or_default());
        Ok(metrics)
    }
}

/// Returns what the blocks that are first by a metric accumulate, as ratio to those that are first by
/// frequency/request size.
fn of_blocks(costs: &BlockCosts) -> Metrics {
    let ranks = [
        ("latency", BlockRank::Latency),
        ("frequency", BlockRank::Frequency),
        ("request size", BlockRank::RequestSize),
        ("seek distance", BlockRank::SeekDistance),
        ("reuse distance", BlockRank::ReuseDistance),
        ("frequency and seek distance", BlockRank::TotalSeekDistance),
    ];
    let base = costs.accumulated(BlockRank::InverseBitmap);
    let ratio =
        |(name, rank)| (format!("{RATIO}accumulated latency, by {name}"), costs.accumulated(rank) / base);
    finite(ranks.into_iter().map(ratio))
}

/// Runs all experiments with each seed.
pub(super) fn run(experiments: &[Experiment], runner: &Runner<'_>) -> Result<Results, Failure> {
    let jobs = runner.with_seeds(experiments);
    let run = |&(experiment, seed): &(&Experiment, u64)| {
        let duration = runner.duration(experiment.duration);
        let tags = [experiment.load_file, runner.variant];
        let id = ExperimentId::new(&experiment.name, tags, seed, duration);
        let metrics = runner.file.get_or_run(&id, || experiment.run(seed, duration))?;
        Ok::<_, Failure>((ExperimentId { experiment: experiment.name.clone(), ..id }, metrics))
    };
    let outcomes = runner.run(&format!("{} experiments in virtual time", jobs.len()), &jobs, run)?;
    let mut results = Results::default();
    outcomes.into_iter().for_each(|(id, metrics)| results.add(id, metrics));
    Ok(results)
}
