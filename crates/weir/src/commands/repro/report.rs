//! Formats the results of a reproduction as text and as JSON.

use super::experiment::Results;
use super::{Figure, Published, Verdict};
use crate::output::{Table, Width, table};
use schemars::JsonSchema;
use serde::Serialize;
use weir_sim::cache::CacheFigures;
use weir_sim::{Outcome, Responses};

/// The results of a reproduction's experiments.
pub(super) trait Experiments: std::fmt::Debug {
    /// Returns each result for `--json`.
    fn document(&self) -> Vec<ExperimentPart>;
    /// Returns a table of all results.
    fn table(&self, width: Width) -> String;
}

/// The results of a reproduction.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    pub(super) figures: Vec<Figure>,
    pub(super) experiments: Box<dyn Experiments>,
    pub(super) notes: Vec<String>,
    pub(super) seed: u64,
}

impl Report {
    /// Returns the document that `--json` prints.
    pub(super) fn document(&self) -> ReproDocument<'_> {
        ReproDocument::Report {
            reproduction: self.name,
            source: self.source,
            seed: self.seed,
            figures: self.figures.iter().map(FigurePart::from).collect(),
            experiments: self.experiments.document(),
            notes: &self.notes,
        }
    }

    /// Returns the text that is printed without `--json`: a table of figures and a table of experiments.
    pub(super) fn human(&self, width: Width) -> String {
        let mut text = format!("{}: {}; seed {}\n\n", self.name, self.source, self.seed);
        let figures = Table::new(["RATIO", "PUBLISHED", "HERE", ""], self.figures.iter().map(figure_row));
        text += &figures.prose("RATIO").text(width);
        text += "\n";
        text += &self.experiments.table(width);
        for note in &self.notes {
            text += &format!("\nnote: {note}\n");
        }
        text
    }
}

/// The document of `weir repro`: the list of reproductions, or with a name, what that one came to.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir repro")]
#[serde(untagged)]
pub(crate) enum ReproDocument<'a> {
    /// The list of reproductions: without a name.
    List {
        /// All reproductions.
        reproductions: Vec<ReproductionPart>,
    },
    /// The results of a reproduction.
    Report {
        /// Its name.
        reproduction: &'static str,
        /// The paper, and where in it.
        source: &'static str,
        /// The random seed.
        seed: u64,
        /// Published figures beside the measured ones.
        figures: Vec<FigurePart<'a>>,
        /// The experiments, sorted by name.
        experiments: Vec<ExperimentPart>,
        /// Remarks on the reproduction, a sentence each.
        notes: &'a [String],
    },
}

/// A reproduction.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reproduction")]
pub(crate) struct ReproductionPart {
    /// The name, as the command takes it.
    pub(super) name: &'static str,
    /// One line of description.
    pub(super) about: &'static str,
    /// The paper, and where in it.
    pub(super) source: &'static str,
}

/// A published ratio beside the measured one.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Figure")]
pub(crate) struct FigurePart<'a> {
    /// The ratio.
    quantity: &'a str,
    /// What the paper says: a number, a range, or a direction that it shows without a number.
    published: PublishedPart,
    /// What was measured in virtual time.
    measured: f64,
    /// Whether both agree: `differs in size` if they are more than a factor of 1.5 apart.
    #[schemars(extend("enum" = ["agrees", "differs in size", "differs in direction"]))]
    verdict: &'static str,
}

/// A published ratio.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Published")]
#[serde(untagged)]
enum PublishedPart {
    /// A number.
    Size(f64),
    /// A range: its least and its greatest number.
    Range([f64; 2]),
    /// A direction: more or less than 1.
    #[schemars(extend("enum" = ["more than 1", "less than 1"]))]
    Direction(&'static str),
}

/// An experiment.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Experiment")]
pub(crate) struct ExperimentPart {
    /// Its name.
    pub(super) name: String,
    /// Its result.
    pub(super) outcome: OutcomePart,
}

/// The result of an experiment.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ExperimentOutcome")]
#[serde(untagged)]
pub(crate) enum OutcomePart {
    /// A load on a pool, as a result of `weir sim place`.
    Pool(Box<Outcome>),
    /// A trace and a cache, as a result of `weir sim cache`.
    Cache(Box<CacheFigures>),
}

impl<'a> From<&'a Figure> for FigurePart<'a> {
    fn from(figure: &'a Figure) -> Self {
        let published = match figure.published {
            Published::Size(size) => PublishedPart::Size(size),
            Published::Between(least, most) => PublishedPart::Range([least, most]),
            Published::More => PublishedPart::Direction("more than 1"),
            Published::Less => PublishedPart::Direction("less than 1"),
        };
        Self { quantity: &figure.quantity, published, measured: figure.measured, verdict: verdict(figure) }
    }
}

impl Experiments for Results {
    fn document(&self) -> Vec<ExperimentPart> {
        let one = |(name, outcome): (&str, &Outcome)| {
            let outcome = OutcomePart::Pool(Box::new(outcome.clone()));
            ExperimentPart { name: name.to_owned(), outcome }
        };
        self.all().map(one).collect()
    }

    fn table(&self, width: Width) -> String {
        let heading = ["EXPERIMENT", "WORK/S", "REQUESTS/S", "MB/S", "READS", "WRITES", "MOVED", "DEVICES"];
        table(width, heading, self.all().map(experiment_row))
    }
}

fn verdict(figure: &Figure) -> &'static str {
    match figure.verdict() {
        Verdict::Agrees => "agrees",
        Verdict::DiffersInSize => "differs in size",
        Verdict::DiffersInDirection => "differs in direction",
    }
}

fn figure_row(figure: &Figure) -> [String; 4] {
    let published = match figure.published {
        Published::Size(size) => format!("{size:.2}"),
        Published::Between(least, most) => format!("{least:.2} to {most:.2}"),
        Published::More => "above 1".into(),
        Published::Less => "below 1".into(),
    };
    [figure.quantity.clone(), published, format!("{:.2}", figure.measured), verdict(figure).into()]
}

fn experiment_row((name, outcome): (&str, &Outcome)) -> [String; 8] {
    let share = |device: &weir_sim::DeviceOutcome| {
        format!("{} {:.0} % busy {:.0} %", device.model, device.served * 100.0, device.load * 100.0)
    };
    let mean = |responses: &Responses| {
        responses.time_if_any(responses.mean).map_or_else(|| "-".to_owned(), |mean| mean.to_string())
    };
    [
        name.to_owned(),
        outcome.work_rate.map_or("-".into(), |rate| format!("{rate:.0}")),
        format!("{:.0}", outcome.rate),
        format!("{:.1}", outcome.bytes_rate / 1e6),
        mean(&outcome.reads),
        mean(&outcome.writes),
        outcome.moved.to_string(),
        outcome.devices.iter().map(share).collect::<Vec<_>>().join(", "),
    ]
}
