//! Reproduces SCMFS: weir's file system on a modelled processor, beside ramfs, tmpfs and ext2 on a ramdisk.
//!
//! The experiments are those that rows name, on the machine of [`weir_sim::memory`]. TLB misses are the
//! model's; no counter of a processor is read.

use super::published::RATIO;
use super::results::{ExperimentId, Metrics, Results, finite};
use super::runner::Runner;
use super::{Measures, Reproduction, Setting};
use crate::failure::Failure;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::Nanos;

mod experiment;
mod files;
mod machine;
mod region;
mod run;
#[cfg(test)]
mod tests;

use experiment::{Experiment, Setup};
use machine::{Prepared, prepare};
use run::METRICS;

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "scmfs",
    about: "a file system in memory: records, pages, threads, null files, ordered writes",
    data: include_str!("data/scmfs.toml"),
    measures: Measures::Memory(run),
    notes,
};

fn notes(setting: &Setting) -> Vec<String> {
    let scale = setting.parameters.share("short_scale").map_or(1.0, |scale| 1.0 / scale);
    vec![
        format!("the short form divides sizes and numbers of files, and transactions, by {scale:.0}"),
        "TLB misses are those of a modelled processor; no counter of a processor is read".to_owned(),
    ]
}

/// Returns the names of all experiments.
///
/// # Errors
/// Fails if a parameter is unusable.
#[cfg(test)]
pub(super) fn names(setting: &Setting) -> Result<Vec<String>, Failure> {
    let (p, all) = (&setting.parameters, REPRODUCTION.publication()?.parse_experiments(Experiment::parse)?);
    p.share("short_scale")?;
    for setup in all.values().flat_map(Experiment::setups) {
        prepare(p, setup, 1, 1.0)?;
    }
    Ok(all.into_keys().collect())
}

/// Reports whether experiments have a metric of this name.
#[cfg(test)]
pub(super) fn has_metric(name: &str) -> bool {
    let is_compared = |metric: &&str| [greatest(metric), least(metric)].contains(&name.to_owned());
    METRICS.contains(&name) || METRICS.iter().any(is_compared)
}

fn greatest(metric: &str) -> String {
    format!("{RATIO}{metric}, greatest")
}

fn least(metric: &str) -> String {
    format!("{RATIO}{metric}, least")
}

/// Runs the experiments that rows need with each seed, or those that `--only` names. They are as long as
/// their loads, whatever `--duration` says.
fn run(setting: &Setting, runner: &Runner<'_>) -> Result<Results, Failure> {
    let p = &setting.parameters;
    let mut selected = REPRODUCTION.publication()?.parse_experiments(Experiment::parse)?;
    selected.retain(|name, _| runner.selects(name));
    let setups: BTreeSet<Setup> = selected.values().flat_map(Experiment::setups).collect();
    let scale = if runner.form.is_full { 1.0 } else { p.share("short_scale")? };
    let jobs: Result<Vec<Prepared>, Failure> = runner
        .seeds
        .iter()
        .flat_map(|&seed| setups.iter().map(move |&setup| prepare(p, setup, seed, scale)))
        .collect();
    let bus_rate = Prepared::bus_rate(p)?;
    let work = |job: &Prepared| {
        let id = ExperimentId::new(&job.setup.to_string(), [None, runner.variant], job.seed, Nanos(0));
        // The short form is another experiment.
        let id = ExperimentId { experiment: format!("{} x {}", id.experiment, job.scale), ..id };
        let metrics = runner.file.get_or_run(&id, || run::run(job, bus_rate))?;
        Ok::<_, Failure>(((job.seed, job.setup), metrics))
    };
    let jobs = jobs?;
    let what = format!("{} loads on file systems in memory, in virtual time", jobs.len());
    let done: BTreeMap<(u64, Setup), Metrics> = runner.run(&what, &jobs, work)?.into_iter().collect();
    let mut results = Results::default();
    for &seed in runner.seeds {
        let metric = |setup: &Setup, metric: &str| {
            done.get(&(seed, *setup)).and_then(|of| of.get(metric)).copied().unwrap_or(f64::NAN)
        };
        for (name, experiment) in &selected {
            let metrics = match experiment {
                Experiment::Run(setup) => done.get(&(seed, *setup)).cloned().unwrap_or_default(),
                Experiment::Mean(setups) => means(setups, metric),
                Experiment::Compared(pairs) => ratios(pairs, metric),
            };
            results.add(ExperimentId::new(name, [None; 2], seed, Nanos(0)), metrics);
        }
    }
    Ok(results)
}

/// Returns the geometric mean of each metric.
fn means(setups: &[Setup], metric: impl Fn(&Setup, &str) -> f64) -> Metrics {
    let mean = |name: &str| {
        let sum: f64 = setups.iter().map(|setup| metric(setup, name).ln()).sum();
        (sum / setups.len() as f64).exp()
    };
    finite(METRICS.into_iter().map(|name| (name.to_owned(), mean(name))))
}

/// Returns the greatest and the least ratio of each metric.
fn ratios(pairs: &[[Setup; 2]], metric: impl Fn(&Setup, &str) -> f64) -> Metrics {
    let of_metric = |name: &str| {
        let ratio = |[one, other]: &[Setup; 2]| metric(one, name) / metric(other, name);
        let all: Vec<f64> = pairs.iter().map(ratio).collect();
        // A ratio that cannot be computed leaves none.
        let extreme = |choose: fn(f64, f64) -> f64| match all.iter().all(|one| one.is_finite()) {
            true => all.iter().copied().reduce(choose).unwrap_or(f64::NAN),
            false => f64::NAN,
        };
        [(greatest(name), extreme(f64::max)), (least(name), extreme(f64::min))]
    };
    finite(METRICS.into_iter().flat_map(of_metric))
}
