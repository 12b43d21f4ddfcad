//! How the experiments of a reproduction are run: with which seeds, how long, in how many threads.

use super::Form;
use super::args::ReproArgs;
use super::results_file::ResultsFile;
use crate::failure::Failure;
use crate::{parallel, progress};
use std::collections::BTreeSet;
use weir_model::Nanos;

/// What all experiments of a reproduction have in common.
#[derive(Clone, Copy)]
pub(super) struct Runner<'a> {
    /// Random seeds; each experiment runs with every one.
    pub(super) seeds: &'a [u64],
    /// Name of a change of the parameters; `None` if they are as in the data file.
    pub(super) variant: Option<&'a str>,
    /// The only experiments to run; `None` for no such limit.
    pub(super) names: Option<&'a BTreeSet<&'a String>>,
    pub(super) args: &'a ReproArgs,
    pub(super) form: &'a Form,
    /// Results of earlier runs.
    pub(super) file: &'a ResultsFile,
}

impl Runner<'_> {
    /// Returns whether an experiment of this name is to be run: `--only` admits it, or it is one of
    /// [`Self::names`].
    pub(super) fn selects(&self, name: &str) -> bool {
        match self.names {
            Some(names) => names.iter().any(|wanted| *wanted == name),
            None => self.args.only.as_ref().is_none_or(|only| name.contains(only)),
        }
    }

    /// Like [`Self::selects`], for an experiment that rows name as a part of a comparison.
    pub(super) fn selects_part(&self, name: &str) -> bool {
        match self.names {
            Some(names) => names.iter().any(|wanted| wanted.contains(name)),
            None => self.selects(name),
        }
    }

    /// Returns whether fitted parameters are varied in long experiments, too.
    pub(super) fn varies_all(&self) -> bool {
        self.form.is_full || self.args.all_variants
    }

    /// Returns the duration of an experiment that takes so long in the full form.
    pub(super) fn duration(&self, full: Nanos) -> Nanos {
        self.args.duration.unwrap_or_else(|| self.form.duration(full))
    }

    /// Returns each of these with each seed.
    pub(super) fn with_seeds<'e, T>(&self, experiments: &'e [T]) -> Vec<(&'e T, u64)> {
        let with = |&seed| experiments.iter().map(move |experiment| (experiment, seed));
        self.seeds.iter().flat_map(with).collect()
    }

    /// Does the work in several threads, showing progress; `what` names it.
    ///
    /// # Errors
    /// Fails as the first work that fails.
    pub(super) fn run<J: Sync, R: Send + Sync>(
        &self,
        what: &str,
        jobs: &[J],
        work: impl Fn(&J) -> Result<R, Failure> + Sync,
    ) -> Result<Vec<R>, Failure> {
        let variant = self.variant.map(|variant| format!(" with {variant}")).unwrap_or_default();
        let threads = self.args.jobs.unwrap_or_else(parallel::cores);
        progress::during(&format!("{what}{variant}"), || {
            parallel::map(jobs, threads, &parallel::Stop::default(), work)
        })
    }
}
