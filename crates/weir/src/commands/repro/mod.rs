//! `weir repro` repeats, in virtual time, the measurements of the papers behind the policies.
//!
//! A reproduction is a list of experiments (modelled drives or a cache, a policy with the paper's constants,
//! a load of the paper's shape) and a list of figures: ratios that the paper prints, beside the same ratios
//! measured here. It does not compare absolute figures, because the machines that used the drives are not
//! modelled. `docs/policies/reproductions.md` lists the differences and their reasons.

mod args;
mod asymmetry;
mod experiment;
mod hec;
mod hystor;
mod loads;
mod report;
mod wardrop;

pub use args::ReproArgs;

use super::show;
use crate::args::Common;
use crate::failure::Failure;
use crate::files;
use crate::output::{Table, Width};
use crate::picture;
use experiment::{Experiment, Results};
use hec::Caches;
pub(crate) use report::ReproDocument;
use report::{Experiments, Report, ReproductionPart};
use weir_model::ErrorKind;
use weir_sim::load::dbench::Recording;
use weir_sim::plot::{RatioRow, ratios_svg};

/// A ratio as a paper publishes it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Published {
    /// The paper prints the ratio.
    Size(f64),
    /// The paper prints a range, from the least to the greatest.
    Between(f64, f64),
    /// More than 1: a picture or the text shows the direction without a figure.
    More,
    /// Less than 1: a picture or the text shows the direction without a figure.
    Less,
}

/// A published figure beside the measured one.
#[derive(Clone, Debug)]
struct Figure {
    quantity: String,
    published: Published,
    measured: f64,
}

impl Figure {
    fn new(what: impl Into<String>, published: Published, here: f64) -> Self {
        Self { quantity: what.into(), published, measured: here }
    }
}

/// The result of comparing a published and a measured figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Agrees,
    /// The direction is the same, but the figures differ by more than [`AGREEMENT_FACTOR`].
    DiffersInSize,
    /// The better configuration of the paper is the worse one here.
    DiffersInDirection,
}

/// Figures within this factor agree.
const AGREEMENT_FACTOR: f64 = 1.5;
/// Ratios this close to 1 have no direction.
const EVEN_MARGIN: f64 = 0.05;

impl Figure {
    fn verdict(&self) -> Verdict {
        let (least, most) = match self.published {
            Published::Size(size) => (size, size),
            Published::Between(least, most) => (least, most),
            Published::More if self.measured > 1.0 => return Verdict::Agrees,
            Published::Less if self.measured < 1.0 => return Verdict::Agrees,
            Published::More | Published::Less => return Verdict::DiffersInDirection,
        };
        let says =
            |value: f64| if (value - 1.0).abs() <= EVEN_MARGIN { 0 } else { (value - 1.0).signum() as i32 };
        if says(least) * says(self.measured) < 0 && says(most) * says(self.measured) < 0 {
            Verdict::DiffersInDirection
        } else if self.measured > most * AGREEMENT_FACTOR || self.measured < least / AGREEMENT_FACTOR {
            Verdict::DiffersInSize
        } else {
            Verdict::Agrees
        }
    }
}

/// A reproduction of a paper's measurements.
struct Reproduction {
    name: &'static str,
    about: &'static str,
    /// The paper, and the place in it.
    source: &'static str,
    measures: Measures,
    /// Returns remarks on the reproduction.
    notes: fn(&Setting) -> Vec<String>,
}

/// The experiments, and the function that derives the figures from their results.
enum Measures {
    /// Loads on pools of modelled drives.
    Pools { experiments: fn(&Setting) -> Vec<Experiment>, figures: fn(&Results) -> Vec<Figure> },
    /// A trace that is replayed on caches.
    Caches { run: fn(&ReproArgs) -> Result<Caches, Failure>, figures: fn(&Caches) -> Vec<Figure> },
}

impl Measures {
    fn run(
        &self,
        setting: &Setting,
        args: &ReproArgs,
    ) -> Result<(Vec<Figure>, Box<dyn Experiments>), Failure> {
        match self {
            Self::Pools { experiments, figures } => {
                let mut experiments = experiments(setting);
                experiments.retain(|one| args.only.as_ref().is_none_or(|only| one.name.contains(only)));
                let results = experiment::run(&experiments, args)?;
                Ok((figures(&results), Box::new(results)))
            }
            Self::Caches { run, figures } => {
                let caches = run(args)?;
                Ok((figures(&caches), Box::new(caches)))
            }
        }
    }
}

/// Settings from the command line.
#[derive(Clone, Debug)]
struct Setting {
    /// The load file of dbench, if one was named.
    recording: Option<Recording>,
}

const ALL: &[Reproduction] =
    &[asymmetry::REPRODUCTION, hec::REPRODUCTION, hystor::REPRODUCTION, wardrop::REPRODUCTION];

/// Returns the names of all reproductions.
fn names() -> Vec<&'static str> {
    ALL.iter().map(|one| one.name).collect()
}

/// Returns the document that `weir repro --json` prints without a name: all reproductions.
fn document() -> ReproDocument<'static> {
    let one = |r: &Reproduction| ReproductionPart { name: r.name, about: r.about, source: r.source };
    ReproDocument::List { reproductions: ALL.iter().map(one).collect() }
}

/// Returns the list of all reproductions as text.
fn list(width: Width) -> String {
    let rows = ALL.iter().map(|r| [r.name.to_owned(), r.about.to_owned(), r.source.to_owned()]);
    Table::new(["NAME", "WHAT", "FROM"], rows).prose("WHAT").text(width)
}

/// Runs a reproduction and prints its results. Without a name, lists all reproductions.
///
/// # Errors
/// Fails if a file cannot be read, or if an experiment cannot run.
pub(crate) fn run(args: &ReproArgs, common: &Common) -> Result<(), Failure> {
    match &args.name {
        None => show(common, &document(), list),
        Some(name) => {
            let report = reproduce(name, args)?;
            show(common, &report.document(), |width| report.human(width));
        }
    }
    Ok(())
}

/// Runs the reproduction of that name.
///
/// # Errors
/// Fails if there is no such reproduction, if a file cannot be read, or if an experiment cannot run.
fn reproduce(name: &str, args: &ReproArgs) -> Result<Report, Failure> {
    args.plot.iter().try_for_each(|path| files::refuse_foreign_content(path, files::OutputKind::Picture))?;
    let known = ALL.iter().find(|one| one.name == name);
    let reproduction = known.ok_or_else(|| {
        Failure::usage(
            format!("there is no reproduction {name:?}"),
            format!("there are {}", names().join(", ")),
        )
    })?;
    let setting = Setting { recording: args.dbench.as_deref().map(recording).transpose()? };
    let (figures, experiments) = reproduction.measures.run(&setting, args)?;
    // A ratio with an experiment that was not run is not finite.
    let figures: Vec<_> = figures.into_iter().filter(|figure| figure.measured.is_finite()).collect();
    if let Some(path) = &args.plot {
        let compared = |figure: &Figure| RatioRow {
            quantity: figure.quantity.clone(),
            published: match figure.published {
                Published::Size(size) => Some(size),
                Published::Between(least, most) => Some((least * most).sqrt()),
                Published::More | Published::Less => None,
            },
            measured: figure.measured,
        };
        let compared: Vec<_> = figures.iter().map(compared).collect();
        picture::write(path, &ratios_svg(&format!("{name}: published and here"), &compared))?;
    }
    Ok(Report {
        name: reproduction.name,
        source: reproduction.source,
        figures,
        experiments,
        notes: (reproduction.notes)(&setting),
        seed: args.seed,
    })
}

fn recording(path: &std::path::Path) -> Result<Recording, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::os("read", path, &error))?;
    Recording::read(&text).map_err(|error| Failure::from_message(ErrorKind::Usage, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::testing::assert_fits;

    #[test]
    fn the_list_fits_the_terminal() {
        assert_fits(list);
    }
    use weir_model::Nanos;

    #[test]
    fn figures_agree_differ_in_size_or_in_direction() {
        let verdict = |published, here| Figure::new("x", published, here).verdict();
        assert_eq!(verdict(Published::Size(1.16), 1.3), Verdict::Agrees);
        assert_eq!(verdict(Published::Size(1.16), 1.8), Verdict::DiffersInSize);
        assert_eq!(verdict(Published::Size(1.16), 0.9), Verdict::DiffersInDirection);
        assert_eq!(verdict(Published::Size(1.16), 0.97), Verdict::Agrees, "even");
        assert_eq!(verdict(Published::Size(0.94), 1.2), Verdict::DiffersInDirection);
        assert_eq!(verdict(Published::Between(1.1, 1.17), 0.8), Verdict::DiffersInDirection);
        assert_eq!(verdict(Published::More, 1.01), Verdict::Agrees);
        assert_eq!(verdict(Published::Less, 1.01), Verdict::DiffersInDirection);
    }

    /// Tests that the better configuration of each paper is the better one here, with short runs of the fast
    /// experiments.
    #[test]
    fn reproductions_have_the_published_direction() {
        let short = [
            ("hystor", "email, ", 20),
            ("asymmetry", "0R4W", 200),
            ("asymmetry", "3R1W", 200),
            ("asymmetry", "4R0W", 200),
            ("asymmetry", "postmark, ", 300),
            ("wardrop", "netapp, ssd", 60),
            ("hec-admission", "", 439),
        ];
        for (name, only, seconds) in short {
            let args = ReproArgs {
                name: Some(name.into()),
                dbench: None,
                only: Some(only.into()),
                duration: Some(Nanos::secs(seconds)),
                seed: 1,
                plot: None,
            };
            let report = reproduce(name, &args).expect("a report");
            assert!(!report.figures.is_empty(), "{name}, {only}");
            for figure in &report.figures {
                let says = format!("{name}, {only}, seed {}: {figure:?}", report.seed);
                assert_ne!(figure.verdict(), Verdict::DiffersInDirection, "{says}");
            }
        }
    }

    /// Tests that all experiments that figures need exist: once all have run, every figure is a number.
    #[test]
    fn figures_use_existing_experiments() {
        let setting = Setting { recording: None };
        for reproduction in ALL {
            let figures = match &reproduction.measures {
                Measures::Pools { experiments, figures } => {
                    let names: Vec<_> = experiments(&setting).into_iter().map(|one| one.name).collect();
                    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
                    assert_eq!(names.len(), distinct.len(), "{}: names are distinct", reproduction.name);
                    figures(&Results::all_ones(names))
                }
                Measures::Caches { figures, .. } => figures(&Caches::all_ones()),
            };
            for figure in figures {
                assert!(
                    figure.measured.is_finite() || figure.quantity.contains("dbench"),
                    "{}",
                    figure.quantity
                );
            }
        }
    }
}
