//! `weir repro` repeats, in virtual time, the measurements of the publications behind the policies.
//!
//! A reproduction is a list of experiments (modelled drives or a cache, a policy with the publication's
//! constants, a load of the publication's shape), and a data file with every published figure and every
//! parameter (`published.rs`). Figures are ratios to a baseline or shares, because the machines that used the
//! drives are not modelled. `verdict.rs` says when a published and a measured figure agree.

mod args;
mod asymmetry;
mod causes;
mod dependence;
mod experiment;
mod hec;
mod hystor;
mod loads;
mod log_on_log;
mod parameters;
mod published;
mod report;
mod results;
mod results_file;
mod rows;
mod runner;
mod scmfs;
mod sweeps;
#[cfg(test)]
mod tests;
mod text;
mod trident;
mod user_optimal;
mod variants;
mod verdict;
mod wardrop;

pub use args::ReproArgs;

use super::show;
use crate::args::Common;
use crate::failure::{Failure, REPORT_DEFECT};
use crate::files;
use crate::output::{self, Table, Width};
use crate::picture;
use crate::signals;
use experiment::Experiment;
use log_on_log::Recordings;
use parameters::Parameters;
use published::{Publication, Published};
pub(crate) use report::ReproDocument;
use report::{Report, ReproductionPart};
use results::Results;
use results_file::ResultsFile;
use rows::{RowOutcome, RowResult};
use runner::Runner;
use std::collections::BTreeSet;
use variants::Variants;
use weir_model::{ErrorKind, Nanos};
use weir_sim::load::dbench::Recording;
use weir_sim::plot::{RatioRow, ratios_svg};

/// A reproduction of a publication's measurements.
struct Reproduction {
    name: &'static str,
    about: &'static str,
    /// The data file: published figures and parameters.
    data: &'static str,
    measures: Measures,
    /// Returns remarks on the reproduction.
    notes: fn(&Setting) -> Vec<String>,
}

/// Returns the experiments on pools.
type MakeExperiments = fn(&Setting) -> Result<Vec<Experiment>, Failure>;
/// Runs the experiments.
type RunExperiments = fn(&Setting, &Runner<'_>) -> Result<Results, Failure>;

/// The experiments.
enum Measures {
    /// Loads on pools of modelled drives.
    Pools(MakeExperiments),
    /// Loads that rise in steps, on servers that share bricks.
    Ramps(RunExperiments),
    /// A trace that is replayed on caches.
    Caches(RunExperiments),
    /// Loads on stacks of logs.
    Logs(RunExperiments),
    /// Loads on a file system over several devices.
    Files(RunExperiments),
    /// Loads on file systems in memory, on a modelled processor.
    Memory(RunExperiments),
}

impl Measures {
    /// Runs the experiments that rows need.
    fn run(
        &self,
        publication: &Publication,
        setting: &Setting,
        runner: &Runner<'_>,
    ) -> Result<Results, Failure> {
        match self {
            Self::Pools(experiments) => {
                let mut experiments = experiments(setting)?;
                let needed = publication.experiments();
                experiments.retain(|one| needed.contains(&one.name) && runner.selects(&one.name));
                experiment::run(&experiments, runner)
            }
            Self::Ramps(run) | Self::Caches(run) | Self::Logs(run) | Self::Files(run) | Self::Memory(run) => {
                run(setting, runner)
            }
        }
    }
}

/// Settings of the experiments.
#[derive(Clone, Debug)]
struct Setting {
    parameters: Parameters,
    /// The load file of dbench, if one was named.
    named_recording: Option<Recording>,
    /// The load that stands for it otherwise.
    stand_in: Recording,
    /// Recordings of F2FS.
    recordings: Recordings,
}

impl Setting {
    /// Creates the setting of a run without files.
    #[cfg(test)]
    fn without_files(publication: &Publication) -> Self {
        let none = ReproArgs::default();
        Self::new(publication, &none).expect("no file to read")
    }

    /// Reads the files that the arguments name.
    ///
    /// # Errors
    /// Fails if a file cannot be used.
    fn new(publication: &Publication, args: &ReproArgs) -> Result<Self, Failure> {
        Ok(Self {
            parameters: Parameters::new(publication),
            named_recording: args.dbench.as_deref().map(recording).transpose()?,
            stand_in: Recording::stand_in(),
            recordings: args
                .recordings
                .as_deref()
                .map_or_else(|| Ok(Recordings::default()), Recordings::open)?,
        })
    }

    /// Returns the load of dbench.
    fn recording(&self) -> Recording {
        self.named_recording.as_ref().unwrap_or(&self.stand_in).clone()
    }

    /// Returns what stands for the load file of dbench, if none was named.
    fn load_file(&self) -> Option<&'static str> {
        self.named_recording.is_none().then_some("stand-in for dbench's load file")
    }
}

/// How thoroughly experiments run.
#[derive(Clone, Debug)]
struct Form {
    is_full: bool,
    seeds: Vec<u64>,
}

/// Number of seeds of the full form. The median counts.
const SEEDS: u64 = 5;
/// Longest virtual time of an experiment in the short form.
const SHORT: Nanos = Nanos::secs(600);

impl Form {
    fn new(args: &ReproArgs) -> Self {
        let count = if args.full { SEEDS } else { 1 };
        Self { is_full: args.full, seeds: (args.seed..args.seed.saturating_add(count)).collect() }
    }

    /// Returns how long an experiment runs that takes `published` in its full form.
    fn duration(&self, published: Nanos) -> Nanos {
        if self.is_full { published } else { published.min(SHORT) }
    }

    /// Returns what this form leaves out.
    fn note(&self, args: &ReproArgs) -> Option<String> {
        let limit = match args.duration {
            Some(time) => format!("{time} of virtual time for each experiment"),
            None => "ten minutes of virtual time at most for each experiment".to_owned(),
        };
        let varied = match args.all_variants {
            true => "",
            false => ", and fitted parameters varied in experiments of 20 s only",
        };
        (!self.is_full)
            .then(|| format!("the short form: one seed instead of {SEEDS}, {limit}{varied}; see --full"))
    }
}

const ALL: &[Reproduction] = &[
    asymmetry::REPRODUCTION,
    hec::REPRODUCTION,
    hystor::REPRODUCTION,
    log_on_log::REPRODUCTION,
    scmfs::REPRODUCTION,
    trident::REPRODUCTION,
    user_optimal::REPRODUCTION,
    wardrop::REPRODUCTION,
];
/// The most names of experiments that a message lists.
const NAMES_MAX: usize = 20;
/// The name for all reproductions.
const EVERY: &str = "all";

/// Returns the names that the command takes.
fn names() -> Vec<&'static str> {
    ALL.iter().map(|one| one.name).chain([EVERY]).collect()
}

impl Reproduction {
    fn publication(&self) -> Result<Publication, Failure> {
        let defect = |error| Failure::environment(format!("data of {}: {error}", self.name), REPORT_DEFECT);
        let mut publication = Publication::read(self.data).map_err(defect)?;
        dependence::mark(&mut publication);
        Ok(publication)
    }

    /// Runs the experiments.
    ///
    /// # Errors
    /// Fails if a file cannot be used, or if an experiment cannot run.
    fn run(&self, args: &ReproArgs) -> Result<Report, Failure> {
        let mut publication = self.publication()?;
        let setting = Setting::new(&publication, args)?;
        publication.supply(|experiment| setting.recordings.can_run(experiment));
        let form = Form::new(args);
        let (results, variants) = self.measure(&publication, &setting, args, &form)?;
        let notes = form.note(args).into_iter().chain((self.notes)(&setting)).collect();
        Ok(Report { name: self.name, publication, results, variants, notes, seeds: form.seeds })
    }

    /// Runs the experiments that `--only` selects, and varies fitted parameters.
    fn measure(
        &self,
        publication: &Publication,
        setting: &Setting,
        args: &ReproArgs,
        form: &Form,
    ) -> Result<(Results, Variants), Failure> {
        let file = ResultsFile::open(args.results.as_deref())?;
        let of_place = args.only.as_deref().map(|only| publication.experiments_at(only)).unwrap_or_default();
        let names = (!of_place.is_empty()).then_some(&of_place);
        let runner = Runner { seeds: &form.seeds, variant: None, names, args, form, file: &file };
        let results = self.measures.run(publication, setting, &runner)?;
        let variants = match args.no_variants {
            true => Variants::default(),
            false => variants::run(&self.measures, publication, setting, &runner)?,
        };
        Ok((results, variants))
    }
}

/// Returns the document that `weir repro --json` prints without a name: all reproductions.
fn document() -> Result<ReproDocument<'static>, Failure> {
    let one = |r: &Reproduction| {
        let source = r.publication()?.source;
        Ok(ReproductionPart { name: r.name, about: r.about, source })
    };
    Ok(ReproDocument::List { reproductions: ALL.iter().map(one).collect::<Result<_, Failure>>()? })
}

/// Returns the list of all reproductions as text.
fn list(width: Width, document: &ReproDocument<'_>) -> String {
    let ReproDocument::List { reproductions } = document else { return String::new() };
    let rows = reproductions.iter().map(|r| [r.name.to_owned(), r.about.to_owned(), r.source.clone()]);
    Table::new(["NAME", "WHAT", "FROM"], rows).prose("FROM").text(width)
}

/// Runs a reproduction, or all, and prints the results. Without a name, lists all reproductions.
///
/// # Errors
/// Fails if a file cannot be used, if an experiment cannot run, or if a figure cannot be computed.
pub(crate) fn run(args: &ReproArgs, common: &Common) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        refuse_without_name(args)?;
        let document = document()?;
        show(common, &document, |width| list(width, &document));
        return Ok(());
    };
    let next = match &args.results {
        Some(file) => format!("the same command continues from what is in {}", file.display()),
        None => "no result is kept; with --results FILE the same command could continue".to_owned(),
    };
    signals::end_after(move || output::print_stderr(&format!("weir: stopped: {next}")))?;
    args.plot.iter().try_for_each(|path| files::refuse_foreign_content(path, files::OutputKind::Picture))?;
    if args.causes {
        let explanations = explain(name, args)?;
        let document = ReproDocument::Causes {
            reports: explanations.iter().map(causes::Explanations::document).collect(),
        };
        show(common, &document, |width| {
            explanations.iter().map(|one| one.human(width)).collect::<Vec<_>>().join("\n")
        });
        return Ok(());
    }
    if args.sweep {
        let swept = sweep(name, args)?;
        let document =
            ReproDocument::Sweeps { reports: swept.iter().map(sweeps::Sweeps::document).collect() };
        show(common, &document, |width| {
            swept.iter().map(|one| one.human(width)).collect::<Vec<_>>().join("\n")
        });
        return Ok(());
    }
    let reports = reproduce(name, args)?;
    let document = ReproDocument::Reports {
        version: env!("CARGO_PKG_VERSION"),
        program: results_file::program()?,
        full: args.full,
        reports: reports.iter().map(Report::document).collect(),
    };
    show(common, &document, |width| {
        reports.iter().map(|report| report.human(width)).collect::<Vec<_>>().join("\n")
    });
    let rows: Vec<_> = reports.iter().flat_map(Report::rows).collect();
    if let Some(path) = &args.plot {
        plot(path, name, &rows)?;
    }
    refuse_failed(&rows)
}

/// Refuses options that choose what runs if no publication is named.
///
/// # Errors
/// Fails with the first such option.
fn refuse_without_name(args: &ReproArgs) -> Result<(), Failure> {
    let options = [
        (args.causes, "--causes"),
        (args.sweep, "--sweep"),
        (args.only.is_some(), "--only"),
        (args.full, "--full"),
        (args.all_variants, "--all-variants"),
        (args.plot.is_some(), "--plot"),
        (args.results.is_some(), "--results"),
        (args.recordings.is_some(), "--recordings"),
    ];
    match options.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => {
            let help = format!("name one of {}: weir repro {EVERY} {option}", names().join(", "));
            Err(Failure::usage(format!("{option} needs the name of a publication"), help))
        }
        None => Ok(()),
    }
}

/// Returns the reproduction of that name, or all.
///
/// # Errors
/// Fails if there is none.
fn selected(name: &str) -> Result<Vec<&'static Reproduction>, Failure> {
    let selected: Vec<_> = ALL.iter().filter(|one| name == EVERY || one.name == name).collect();
    if selected.is_empty() {
        let message = format!("there is no reproduction {name:?}");
        return Err(Failure::usage(message, format!("there are {}", names().join(", "))));
    }
    Ok(selected)
}

/// Runs the experiments on the causes of differences in the reproduction of that name, or in all.
///
/// # Errors
/// As [`reproduce`], and if no cause is declared.
fn explain(name: &str, args: &ReproArgs) -> Result<Vec<causes::Explanations>, Failure> {
    let explain = |reproduction| causes::run(reproduction, args);
    let explanations: Vec<_> = selected(name)?.into_iter().map(explain).collect::<Result<_, _>>()?;
    if explanations.iter().all(causes::Explanations::is_empty) {
        let only = args.only.as_ref().map(|only| format!(" with {only:?} in a row or its cause"));
        let message = format!("no experiment on a cause is declared for {name}{}", only.unwrap_or_default());
        return Err(Failure::usage(message, "docs/policies/reproductions.md lists them"));
    }
    Ok(explanations)
}

/// Runs the sweeps of the reproduction of that name, or of all.
///
/// # Errors
/// As [`reproduce`], and if no sweep is declared.
fn sweep(name: &str, args: &ReproArgs) -> Result<Vec<sweeps::Sweeps>, Failure> {
    let swept: Vec<_> = selected(name)?
        .into_iter()
        .map(|reproduction| sweeps::run(reproduction, args))
        .collect::<Result<_, _>>()?;
    if swept.iter().all(sweeps::Sweeps::is_empty) {
        let only = args.only.as_ref().map(|only| format!(" with {only:?} in a row or its name"));
        let message = format!("no sweep is declared for {name}{}", only.unwrap_or_default());
        return Err(Failure::usage(
            message,
            "asymmetry, hec and log-on-log have sweeps; the last one's replay --recordings",
        ));
    }
    Ok(swept)
}

/// Runs the reproduction of that name, or all.
///
/// # Errors
/// Fails if there is no such reproduction or experiment, if a file cannot be used, or if an experiment cannot
/// run.
fn reproduce(name: &str, args: &ReproArgs) -> Result<Vec<Report>, Failure> {
    let reports: Vec<_> =
        selected(name)?.into_iter().map(|reproduction| reproduction.run(args)).collect::<Result<_, _>>()?;
    match &args.only {
        Some(only) if reports.iter().all(|report| report.results.iter().next().is_none()) => {
            let message = format!("no experiment of {name} has {only:?} in its name, and no row its place");
            let publications = reports.iter().map(|report| &report.publication);
            let names: BTreeSet<_> = publications.flat_map(Publication::experiments).collect();
            let listed: Vec<_> = names.iter().take(NAMES_MAX).map(|name| name.as_str()).collect();
            let more = match names.len().saturating_sub(NAMES_MAX) {
                0 => String::new(),
                count => format!("; and {count} more"),
            };
            Err(Failure::usage(message, format!("its experiments are {}{more}", listed.join("; "))))
        }
        _ => Ok(reports),
    }
}

/// Fails if a figure cannot be computed.
fn refuse_failed(rows: &[RowResult<'_>]) -> Result<(), Failure> {
    let failed = rows.iter().filter(|row| row.outcome == RowOutcome::Failed);
    let names: Vec<_> = failed.map(|row| format!("{}: {}", row.table.at, row.row.quantity)).collect();
    let Some(first) = names.first() else { return Ok(()) };
    let message = match names.len() {
        1 => format!("a figure cannot be computed: {first}"),
        count => format!("{count} figures cannot be computed; the first: {first}"),
    };
    Err(Failure::environment(message, "raise --duration: an experiment did no work in its time"))
}

/// Plots the measured ratios beside the published ones.
fn plot(path: &std::path::Path, name: &str, rows: &[RowResult<'_>]) -> Result<(), Failure> {
    let ratios = rows.iter().filter_map(|row| {
        let RowOutcome::Measured(measurement) = &row.outcome else { return None };
        let published = match row.row.published {
            Published::Ratio(interval) => Some((interval.least * interval.most).sqrt()),
            // A share has no place among ratios.
            Published::Share(_) => return None,
            Published::Direction(_)
            | Published::Words(_)
            | Published::WordsOr(..)
            | Published::Unreadable(_) => None,
        };
        let quantity = format!("{}: {}", row.table.at, row.row.quantity);
        Some(RatioRow { quantity, published, measured: measurement.median })
    });
    let ratios: Vec<_> = ratios.collect();
    picture::write(path, &ratios_svg(&format!("{name}: published and here"), &ratios))
}

fn recording(path: &std::path::Path) -> Result<Recording, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::os("read", path, &error))?;
    Recording::read(&text).map_err(|error| Failure::from_message(ErrorKind::Usage, &error.to_string()))
}
