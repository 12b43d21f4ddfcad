//! Reproduces a flash cache that writes little (HEC, the dissertation's chapter 3): four admission policies,
//! eviction by the cache and by garbage collection, three victim policies, and the guaranteed amount of data,
//! on seven traces.
//!
//! The traces are not available. `oltp+backup` of [`weir_sim::load::NAMED_LOADS`], which anybody can
//! generate, stands for the polluted database; the others are made from the published statistics of theirs
//! (`bench/published-traces`).

mod caches;
mod derived;
mod experiments;
mod traces;

use super::parameters::Parameters;
use super::results::{ExperimentId, Metrics, Results};
use super::runner::Runner;
use super::{Measures, Reproduction, Setting};
use crate::failure::Failure;
use experiments::{CacheExperiment, TRACES};
use std::sync::OnceLock;
use traces::{PlayedTrace, TraceSource};

#[cfg(test)]
pub(super) use traces::{LOAD, load_words};

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "hec",
    about: "a cache in a flash log: admission, eviction by garbage collection, amplification, erases, hits",
    data: include_str!("data/hec.toml"),
    measures: Measures::Caches(run),
    notes,
};

fn notes(_: &Setting) -> Vec<String> {
    vec![
        "no trace of the publication can be had: all are generated; the short form takes 1/16 of all but \
         tpcep, and varies fitted parameters of caches without flash only"
            .into(),
    ]
}

/// The share of a trace that is its statistics, without a cache.
fn trace_name(trace: &str) -> String {
    format!("{trace}, trace")
}

/// Returns the names of all experiments.
///
/// # Errors
/// Fails if a parameter is unusable.
#[cfg(test)]
pub(super) fn names(setting: &Setting) -> Result<Vec<String>, Failure> {
    let p = &setting.parameters;
    for trace in TRACES {
        // A run reads these, too.
        TraceSource::new(p, trace, false)?;
    }
    caches::Flash::new(p)?;
    let simulated = experiments::all(p)?.into_iter().map(|one| one.name());
    let traces = TRACES.iter().map(|trace| trace_name(trace));
    Ok(simulated.chain(traces).chain(derived::names()).collect())
}

/// Reports whether experiments have a metric of this name.
#[cfg(test)]
pub(super) fn has_metric(name: &str) -> bool {
    caches::METRICS.contains(&name) || derived::has_metric(name)
}

/// Replays the trace of each seed on all caches, or on those that `--only` names.
fn run(setting: &Setting, runner: &Runner<'_>) -> Result<Results, Failure> {
    let p = &setting.parameters;
    let mut selected = experiments::all(p)?;
    // Only the load that stands for tpcep has fitted numbers.
    let is_varied = |one: &CacheExperiment| {
        let is_in_time = runner.varies_all() || one.flash.is_none();
        let is_exact = runner.variant.is_none() || runner.names.is_some();
        is_exact || (one.trace == experiments::TPCEP && is_in_time)
    };
    // A named experiment that is made of others needs these.
    let parts = runner.names.map(derived::parts).unwrap_or_default();
    let is_wanted = |name: &str| runner.selects(name) || parts.contains(name);
    selected.retain(|one| is_varied(one) && is_wanted(&one.name()));
    let mut results = Results::default();
    for &seed in runner.seeds {
        for trace in TRACES {
            let of_trace: Vec<_> = selected.iter().filter(|one| one.trace == trace).collect();
            let statistics = runner.variant.is_none() && runner.selects(&trace_name(trace));
            let run = TraceRun { p, trace, seed, runner };
            run.add_to(&mut results, &of_trace, statistics)?;
        }
    }
    if runner.variant.is_none() || runner.names.is_some() {
        derived::add(&mut results, runner.seeds, |name| runner.selects(name));
    }
    Ok(results)
}

/// The experiments with a trace and a seed.
struct TraceRun<'a> {
    p: &'a Parameters,
    trace: &'static str,
    seed: u64,
    runner: &'a Runner<'a>,
}

impl TraceRun<'_> {
    fn add_to(
        &self,
        results: &mut Results,
        experiments: &[&CacheExperiment],
        statistics: bool,
    ) -> Result<(), Failure> {
        if experiments.is_empty() && !statistics {
            return Ok(());
        }
        // Parameters cannot be shared between threads.
        let Self { trace: name, seed, runner, .. } = *self;
        let mut source = TraceSource::new(self.p, name, runner.form.is_full)?;
        if let Some(limit) = runner.args.duration {
            source.duration = source.duration.min(limit);
        }
        let flash = caches::Flash::new(self.p)?;
        let made = OnceLock::new();
        let trace = || made.get_or_init(|| PlayedTrace::new(&source, seed)).as_ref().map_err(Failure::clone);
        let id = |name: &str| ExperimentId::new(name, [None, runner.variant], seed, source.duration);
        let mut add = |name: String, metrics: Metrics| {
            results.add(ExperimentId { experiment: name.clone(), ..id(&name) }, metrics);
        };
        let play = |experiment: &&CacheExperiment| {
            let name = experiment.name();
            let metrics = runner.file.get_or_run(&id(&name), || flash.play(trace()?, experiment, seed))?;
            Ok::<_, Failure>((name, metrics))
        };
        let what = format!("{} caches with {}, seed {}", experiments.len(), name, seed);
        let played = runner.run(&what, experiments, play)?;
        played.into_iter().for_each(|(name, metrics)| add(name, metrics));
        if statistics {
            let name = trace_name(name);
            let metrics = runner.file.get_or_run(&id(&name), || Ok(trace()?.statistics()))?;
            add(name, metrics);
        }
        Ok(())
    }
}
