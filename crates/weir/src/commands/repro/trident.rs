//! Reproduces `TridentFS`: NVM above an SSD and a disk, six loads, two SSDs, and what eviction, distribution,
//! watermarks, file systems below and sizes of NVM change.
//!
//! The experiments are those that rows name, on the machine of [`weir_sim::fs`].

use super::parameters::Parameters;
use super::published::{Parameter, Provenance, Publication, RATIO, Source};
use super::results::{ExperimentId, Metrics, Results, finite};
use super::runner::Runner;
use super::{Measures, Reproduction, Setting};
use crate::failure::Failure;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{ErrorKind, Nanos};
use weir_sim::fs::{FsOutcome, RateSource, TierOutcome, load, simulate};

mod example;
mod experiment;
mod machine;
#[cfg(test)]
mod tests;

use experiment::{Comparison, Experiment, Setup, Variant, trials};
use machine::{Prepared, prepare};

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "trident",
    about: "a file system over NVM, flash and disk: eviction, distribution, sizes of NVM",
    data: include_str!("data/trident.toml"),
    measures: Measures::Files(run),
    notes,
};

/// The longest run of a load that ends by itself.
const LONGEST: Nanos = Nanos::secs(10_800);
/// A load is as fast on one machine as on another if it is this much slower, or less.
const AS_FAST: f64 = 0.98;

/// The heap, as a share of the published most.
const HEAP_RATIO: &str = "ratio of heap to the published most";
/// Metrics of a load on a machine.
const METRICS: [&str; 8] = [
    "rate",
    "SSD share",
    "container accesses",
    "bytes per work",
    "heap",
    HEAP_RATIO,
    "SSD speed",
    "disk speed",
];

fn notes(setting: &Setting) -> Vec<String> {
    let scale = setting.parameters.share("short_scale").map_or(1.0, |scale| 1.0 / scale);
    vec![format!(
        "the short form divides numbers of files, times, NVM and memory by {scale:.0}, but neither the \
         drives nor the times of commits"
    )]
}

/// Returns the names of all experiments.
///
/// # Errors
/// Fails if a parameter is unusable.
#[cfg(test)]
pub(super) fn names(setting: &Setting) -> Result<Vec<String>, Failure> {
    let (p, all) = (&setting.parameters, REPRODUCTION.publication()?.parse_experiments(Experiment::parse)?);
    p.share("short_scale")?;
    p.size("heap_most")?;
    example::metrics(p, experiment::Method::Trident)?;
    for setup in all.values().flat_map(Experiment::setups) {
        let prepared = prepare(p, setup, 1, 1.0, LONGEST)?;
        load::parse(&prepared.words, 1)
            .map_err(|error| Failure::environment(error.to_string(), "correct the load"))?;
    }
    Ok(all.into_keys().collect())
}

/// Reports whether experiments have a metric of this name.
#[cfg(test)]
pub(super) fn has_metric(name: &str) -> bool {
    let is_compared = |metric: &&str| [greatest(metric), least(metric)].contains(&name.to_owned());
    METRICS.contains(&name)
        || METRICS.iter().any(is_compared)
        || name == AS_FAST_LOADS
        || example::METRICS.contains(&name)
}

/// The share of the loads that are as fast as on every other machine.
const AS_FAST_LOADS: &str = "loads as fast";

fn greatest(metric: &str) -> String {
    format!("{RATIO}{metric}, greatest")
}

fn least(metric: &str) -> String {
    format!("{RATIO}{metric}, least")
}

/// Runs the experiments that rows need with each seed, or those that `--only` names; with a changed parameter
/// those that use it: with a fitted one, for the tables to which it was fitted.
fn run(setting: &Setting, runner: &Runner<'_>) -> Result<Results, Failure> {
    let (p, publication) = (&setting.parameters, REPRODUCTION.publication()?);
    let mut selected = publication.parse_experiments(Experiment::parse)?;
    let changed = runner.variant.and_then(|variant| variant.split(" x ").next());
    let changed = changed.and_then(|name| publication.parameters.iter().find(|one| one.name == name));
    let of_change = changed.map(|parameter| experiments_of(&publication, parameter));
    selected.retain(|name, _| {
        runner.selects(name) && of_change.as_ref().is_none_or(|names| names.contains(name))
    });
    let setups: BTreeSet<Setup> = selected.values().flat_map(Experiment::setups).collect();
    let scale = if runner.form.is_full { 1.0 } else { p.share("short_scale")? };
    let limit = runner.duration(LONGEST);
    let with_seeds = |setups: Vec<&Setup>| {
        let prepare = |(setup, seed): (&Setup, u64)| prepare(p, *setup, seed, scale, limit);
        runner
            .seeds
            .iter()
            .flat_map(|&seed| setups.iter().map(move |&setup| (setup, seed)))
            .map(prepare)
            .collect()
    };
    // Runs with rates of trial runs come after those.
    let (later, first): (Vec<_>, Vec<_>) = setups.iter().partition(|setup| setup.variant == Variant::Offline);
    let mut done = Done { p, all: BTreeMap::new() };
    let jobs: Result<Vec<Prepared>, Failure> = with_seeds(first);
    done.play(runner, jobs?)?;
    let mut jobs: Vec<Prepared> = with_seeds(later)?;
    for job in &mut jobs {
        let rate = |setup: Setup| done.metric(setup, job.seed, "rate");
        job.plan.rates = RateSource::Given(trials(job.setup).map(rate).to_vec());
    }
    done.play(runner, jobs)?;
    let mut results = Results::default();
    for &seed in runner.seeds {
        for (name, experiment) in &selected {
            let metrics = match experiment {
                Experiment::Example(method) => example::metrics(p, *method)?,
                Experiment::Run(setup) => done.all.get(&(seed, *setup)).cloned().unwrap_or_default(),
                Experiment::Compared(comparison) => done.compare(comparison, seed),
            };
            results.add(ExperimentId::new(name, [None; 2], seed, limit), metrics);
        }
    }
    Ok(results)
}

/// Returns the experiments of the tables to which a parameter was fitted that use it.
fn experiments_of(publication: &Publication, parameter: &Parameter) -> BTreeSet<String> {
    let Provenance::Fitted(tables) = &parameter.provenance else { return BTreeSet::new() };
    let of_table = publication.rows().filter(|(table, _)| tables.contains(&table.at));
    let names = of_table.filter_map(|(_, row)| match &row.source {
        Source::Run(run) => Some(run.experiments()),
        Source::Missing(_) | Source::Unreadable => None,
    });
    names.flatten().filter(|name| parameter.is_used_by(name)).cloned().collect()
}

/// The loads that were run.
struct Done<'p> {
    p: &'p Parameters,
    all: BTreeMap<(u64, Setup), Metrics>,
}

impl Done<'_> {
    /// Runs loads.
    fn play(&mut self, runner: &Runner<'_>, jobs: Vec<Prepared>) -> Result<(), Failure> {
        let heap_most = self.p.size("heap_most")?.0 as f64;
        let limit = runner.duration(LONGEST);
        let work = |job: &Prepared| {
            let id = ExperimentId::new(&job.setup.to_string(), [None, runner.variant], job.seed, limit);
            // The short form is another experiment.
            let id = ExperimentId { experiment: format!("{} x {}", id.experiment, job.scale), ..id };
            let metrics = runner.file.get_or_run(&id, || Ok(metrics(&play(job)?, job.scale, heap_most)))?;
            Ok::<_, Failure>(((job.seed, job.setup), metrics))
        };
        let what = format!("{} loads on file systems in virtual time", jobs.len());
        self.all.extend(runner.run(&what, &jobs, work)?);
        Ok(())
    }

    fn metric(&self, setup: Setup, seed: u64, metric: &str) -> f64 {
        self.all.get(&(seed, setup)).and_then(|of| of.get(metric)).copied().unwrap_or(f64::NAN)
    }

    /// Returns the greatest and the least ratio of each metric over all loads that have it, and the share of
    /// the loads that are as fast as on every other machine.
    fn compare(&self, comparison: &Comparison, seed: u64) -> Metrics {
        let ratio = |[one, other]: [Setup; 2], metric: &str| {
            self.metric(one, seed, metric) / self.metric(other, seed, metric)
        };
        let by_load: Vec<_> = comparison.setups().collect();
        let as_fast = |pairs: &&Vec<[Setup; 2]>| pairs.iter().all(|pair| ratio(*pair, "rate") >= AS_FAST);
        let fast_loads = by_load.iter().filter(as_fast).count() as f64 / by_load.len() as f64;
        let mut values = vec![(AS_FAST_LOADS.to_owned(), fast_loads)];
        for metric in METRICS {
            let mut all: Vec<f64> = by_load.iter().flatten().map(|pair| ratio(*pair, metric)).collect();
            // A device that a load leaves idle has no speed.
            all.retain(|one| one.is_finite() || !metric.ends_with("speed"));
            all.sort_by(f64::total_cmp);
            let is_whole = all.iter().all(|one| one.is_finite());
            if let (Some(fewest), Some(most), true) = (all.first(), all.last(), is_whole) {
                values.extend([(greatest(metric), *most), (least(metric), *fewest)]);
            }
        }
        finite(values.into_iter())
    }
}

fn play(job: &Prepared) -> Result<FsOutcome, Failure> {
    let failure = |error: weir_sim::SimError| {
        Failure::from_message(ErrorKind::Usage, &format!("{}: {error}", job.setup))
    };
    let mut load = load::parse(&job.words, job.seed).map_err(failure)?;
    simulate(&mut *load, &job.plan).map_err(failure)
}

fn metrics(outcome: &FsOutcome, scale: f64, heap_most: f64) -> Metrics {
    let tier = |seeks: bool| outcome.tiers.iter().find(|tier| tier.seeks == seeks);
    let speed = |seeks| tier(seeks).and_then(|tier| tier.bytes_per_busy_second).unwrap_or(f64::NAN);
    let moved = |tier: &TierOutcome| tier.read_bytes + tier.written_bytes;
    let bytes: u64 = outcome.tiers.iter().map(moved).sum();
    // Without a share of its own, a disk alone has all.
    let share = tier(false).map_or(Some(0.0), |tier| tier.evicted_share);
    let heap = outcome.heap_bytes_max as f64 / scale;
    let values = [
        ("rate", outcome.work_per_second),
        ("SSD share", share.unwrap_or(f64::NAN)),
        ("container accesses", outcome.hits.tiers.unwrap_or(f64::NAN)),
        ("bytes per work", bytes as f64 / outcome.work as f64),
        ("heap", heap),
        (HEAP_RATIO, heap / heap_most),
        ("SSD speed", speed(false)),
        ("disk speed", speed(true)),
    ];
    finite(values.into_iter().map(|(name, value)| (name.to_owned(), value)))
}
