//! Reproduces user-optimal migration over networked bricks (a dissertation of 2007, chapter III).
//!
//! NFS servers use a local disk and the disks of other bricks, behind networks with round trips of 9, 17 or
//! 25 ms. Data is striped or allocated locally first, with and without migration; the comparator migrates for
//! locality alone. Each experiment is a ramp of offered operations, and its figures are responses at steps of
//! the ramp, points of saturation, and migrated requests by direction.

mod compare;
mod experiments;
mod steps;

use super::loads::ramp_rates;
use super::parameters::Parameters;
use super::results::{ExperimentId, Metrics, Results};
use super::runner::Runner;
use super::{Measures, Reproduction, Setting};
use crate::failure::Failure;
use compare::Assumptions;
use experiments::RampExperiment;
use std::collections::BTreeMap;
use weir_model::Nanos;

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "user-optimal",
    about: "user-optimal migration over networked bricks",
    data: include_str!("data/user_optimal.toml"),
    measures: Measures::Ramps(run),
    notes: |_| Vec::new(),
};

/// Returns the duration of a ramp in the full form.
fn full_duration(p: &Parameters) -> Result<Nanos, Failure> {
    Ok(Nanos(p.time("step_duration")?.0 * ramp_rates(p)?.len() as u64))
}

/// Returns the names that rows may use.
///
/// # Errors
/// Fails if a parameter is unusable.
#[cfg(test)]
pub(super) fn names(setting: &Setting) -> Result<Vec<String>, Failure> {
    let p = &setting.parameters;
    full_duration(p)?;
    let all = experiments::all(p)?.into_iter().map(|one| (one.name, one.servers.len()));
    Ok(compare::names(&all.collect::<Vec<_>>(), &Assumptions::new(p)?))
}

/// The metrics that rows may use.
#[cfg(test)]
pub(super) use compare::METRICS;

/// Runs the experiments and compares them.
fn run(setting: &Setting, runner: &Runner<'_>) -> Result<Results, Failure> {
    let p = &setting.parameters;
    let assumptions = Assumptions::new(p)?;
    let mut experiments = experiments::all(p)?;
    experiments.retain(|one| runner.selects_part(&one.name));
    let jobs = runner.with_seeds(&experiments);
    let duration = runner.duration(full_duration(p)?);
    let run = |&(experiment, seed): &(&RampExperiment, u64)| {
        let id = ExperimentId::new(&experiment.name, [None, runner.variant], seed, duration);
        let metrics = runner.file.get_or_run(&id, || experiment.run(seed, duration))?;
        Ok::<_, Failure>((seed, experiment.name.clone(), metrics))
    };
    let outcomes = runner.run(&format!("{} ramps in virtual time", jobs.len()), &jobs, run)?;
    let mut by_seed: BTreeMap<u64, BTreeMap<String, Metrics>> = BTreeMap::new();
    for (seed, name, metrics) in outcomes {
        by_seed.entry(seed).or_default().insert(name, metrics);
    }
    let mut results = Results::default();
    for (seed, all) in by_seed {
        for (experiment, metrics) in compare::compare(&all, &assumptions) {
            results.add(ExperimentId::new(&experiment, [None; 2], seed, duration), metrics);
        }
    }
    Ok(results)
}
