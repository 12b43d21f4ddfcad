//! Reruns of experiments with a fitted parameter a quarter smaller and larger: a verdict that depends on
//! such a change is fragile.

use super::published::{Provenance, Publication};
use super::results::Results;
use super::runner::Runner;
use super::{Measures, Setting, experiment};
use crate::failure::Failure;
use std::collections::BTreeSet;
use weir_model::Nanos;

/// The factors by which fitted parameters are multiplied.
const FACTORS: [f64; 2] = [0.75, 1.25];
/// Longest experiments that are rerun in the short form, unless all are wanted.
const CHEAP: Nanos = Nanos::secs(20);

/// The results with a changed parameter.
#[derive(Debug)]
pub(super) struct Variant {
    /// The parameter and its factor.
    pub(super) name: String,
    /// The results of the experiments that use it, with [`Variants::seed`].
    pub(super) results: Results,
}

/// All variants of a reproduction.
#[derive(Debug, Default)]
pub(super) struct Variants {
    pub(super) seed: u64,
    pub(super) all: Vec<Variant>,
    /// Fitted parameters that cannot be varied: they are not numbers, or constants of weir.
    pub(super) not_varied: Vec<String>,
    /// Variants that cannot be run, and why.
    pub(super) failed: Vec<String>,
}

/// Runs all variants, in the short form those of short experiments only, unless all are wanted.
///
/// # Errors
/// Fails if the results cannot be kept.
pub(super) fn run(
    measures: &Measures,
    publication: &Publication,
    setting: &Setting,
    runner: &Runner<'_>,
) -> Result<Variants, Failure> {
    let seed = runner.seeds.first().copied().unwrap_or(1);
    let is_all = runner.varies_all();
    let mut variants = Variants { seed, ..Variants::default() };
    let wanted: BTreeSet<&String> = publication.experiments();
    let fitted = publication.parameters.iter().filter(|one| matches!(one.provenance, Provenance::Fitted(_)));
    for parameter in fitted {
        if !setting.parameters.is_read(&parameter.name) {
            variants.not_varied.push(parameter.name.clone());
            continue;
        }
        for factor in FACTORS {
            let Some(parameters) = setting.parameters.scaled(&parameter.name, factor) else {
                variants.not_varied.push(parameter.name.clone());
                break;
            };
            let name = format!("{} x {factor}", parameter.name);
            let changed = Setting { parameters, ..setting.clone() };
            let runner = Runner { seeds: &[seed], variant: Some(&name), ..*runner };
            let results = match measures {
                Measures::Pools(experiments) => experiments(&changed).and_then(|mut experiments| {
                    experiments.retain(|one| {
                        let is_in_time = is_all || one.duration <= CHEAP;
                        let is_wanted = wanted.contains(&one.name) && parameter.is_used_by(&one.name);
                        runner.selects(&one.name) && is_in_time && is_wanted
                    });
                    experiment::run(&experiments, &runner)
                }),
                // A ramp takes longer than the short form has time for.
                Measures::Ramps(_) if !is_all => Ok(Results::default()),
                Measures::Ramps(run)
                | Measures::Caches(run)
                | Measures::Logs(run)
                | Measures::Files(run)
                | Measures::Memory(run) => run(&changed, &runner),
            };
            match results {
                Ok(results) if results.iter().next().is_none() => {}
                Ok(results) => variants.all.push(Variant { name, results }),
                Err(failure) => variants.failed.push(format!("{name}: {}", failure.message)),
            }
        }
    }
    Ok(variants)
}
