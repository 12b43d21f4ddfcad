//! Experiments on causes: rows that differ, measured with and without a change of one thing.
//!
//! The changes are declared beside the rows, in the data files (`[[cause]]`).

use super::parameters::Parameters;
use super::published::{Cause, Publication, Published, Row, Run, Source, Table, title};
use super::results::Results;
use super::results_file::ResultsFile;
use super::runner::Runner;
use super::text::{PublishedPart, published, verdict};
use super::verdict::Verdict;
use super::{Form, ReproArgs, Reproduction, Setting};
use crate::failure::{Failure, REPORT_DEFECT};
use crate::output::{Table as Text, Width};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What the experiments of a reproduction showed.
#[derive(Debug)]
pub(super) struct Explanations {
    name: &'static str,
    seed: u64,
    parameters: BTreeMap<String, String>,
    causes: Vec<Explanation>,
    /// Remarks on the experiments, a sentence each.
    notes: Vec<String>,
}

/// What a change showed.
#[derive(Debug)]
struct Explanation {
    cause: Cause,
    rows: Vec<ExplainedRow>,
}

/// A row with and without the change.
#[derive(Debug)]
struct ExplainedRow {
    name: String,
    at: String,
    quantity: String,
    baseline: String,
    published: Published,
    /// The figure without the change and with it.
    figures: [f64; 2],
    effect: Effect,
}

/// What a change does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Effect {
    /// The row differs, and with the change it does not, by much less: the cause is shown.
    Shown,
    /// The row differs less with the change: it is a part of the cause. So is what changes several things at
    /// once, since which of them counts is not known.
    Nearer,
    /// The change brings the row no nearer.
    None,
    /// The row does not differ in these runs.
    DoesNotDiffer,
    /// A figure cannot be computed.
    Failed,
}

/// A change brings a row nearer if its distance falls by this share.
const NEARER: f64 = 0.1;
/// A figure that moves less, as a logarithm or for a share as a difference, shows nothing: another seed moves
/// it as far.
const LEAST_MOVE: f64 = 0.05;
/// A change shows the cause only if it takes away this share of the distance.
const SHOWN: f64 = 0.5;

impl Effect {
    /// Compares the figures of a row without and with a change. Only a change of one thing shows a cause.
    fn of(published: &Published, [without, with]: [f64; 2], is_of_one_thing: bool) -> Self {
        let verdicts = published.verdict(without).zip(published.verdict(with));
        let distances = published.distance(without).zip(published.distance(with));
        let (Some((before, after)), Some((far, near))) = (verdicts, distances) else { return Self::Failed };
        let moves = match published {
            Published::Share(_) => with - without,
            _ => (with / without).ln(),
        };
        match () {
            () if before != Verdict::Differs => Self::DoesNotDiffer,
            () if moves.abs() < LEAST_MOVE => Self::None,
            () if is_of_one_thing && after != Verdict::Differs && near <= far * (1.0 - SHOWN) => Self::Shown,
            () if near <= far * (1.0 - NEARER) => Self::Nearer,
            () => Self::None,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Nearer => "nearer",
            Self::None => "not the cause",
            Self::DoesNotDiffer => "does not differ here",
            Self::Failed => "cannot be computed",
        }
    }
}

/// Runs the rows of each cause with and without its change. `--only` selects causes by their words and rows.
///
/// # Errors
/// Fails if a file cannot be used, if a cause names a row or parameter that does not exist, or if an
/// experiment cannot run.
pub(super) fn run(reproduction: &Reproduction, args: &ReproArgs) -> Result<Explanations, Failure> {
    let publication = reproduction.publication()?;
    let setting = Setting::new(&publication, args)?;
    let form = Form { is_full: false, seeds: vec![args.seed] };
    let file = ResultsFile::open(args.results.as_deref())?;
    let mut causes = Vec::new();
    for cause in publication.causes.iter().filter_map(|cause| selected(cause, args.only.as_deref())) {
        let cause = &cause;
        let rows = rows(&publication, cause).map_err(|what| defect(reproduction, &what))?;
        let names: BTreeSet<&String> = rows.iter().flat_map(|(_, _, run)| run.experiments()).collect();
        let without =
            Runner { seeds: &form.seeds, variant: None, names: Some(&names), args, form: &form, file: &file };
        let changed = changed(&setting, &cause.change).map_err(|what| defect(reproduction, &what))?;
        let with = Runner { variant: Some(&cause.what), ..without };
        let results = [
            reproduction.measures.run(&publication, &setting, &without)?,
            reproduction.measures.run(&publication, &changed, &with)?,
        ];
        let explain = |(name, (table, row, run)): (&String, &(&Table, &Row, &Run))| {
            let figure = |results: &Results| {
                let values = results.values(run).unwrap_or_default();
                values.first().map_or(f64::NAN, |(_, value)| *value)
            };
            let figures = results.each_ref().map(figure);
            ExplainedRow {
                name: name.clone(),
                at: table.at.clone(),
                quantity: row.quantity.clone(),
                baseline: table.baseline.clone(),
                published: row.published.clone(),
                figures,
                effect: Effect::of(&row.published, figures, cause.is_of_one_thing()),
            }
        };
        causes.push(Explanation {
            cause: cause.clone(),
            rows: cause.rows.iter().zip(&rows).map(explain).collect(),
        });
    }
    let values = publication.parameters.iter().map(|one| (one.name.clone(), one.value.clone()));
    let parameters = values.collect();
    let notes = (reproduction.notes)(&setting);
    Ok(Explanations { name: reproduction.name, seed: args.seed, parameters, causes, notes })
}

/// Returns a cause with the rows that `--only` selects; `None` if there are none.
fn selected(cause: &Cause, only: Option<&str>) -> Option<Cause> {
    let mut cause = cause.clone();
    if let Some(only) = only.filter(|only| !cause.what.contains(only)) {
        cause.rows.retain(|row| row.contains(only));
    }
    (!cause.rows.is_empty()).then_some(cause)
}

/// Returns the rows of a cause, with the experiments that measure them.
///
/// # Errors
/// Returns the name of a row that does not exist, is one of several, or is not measured.
pub(super) fn rows<'p>(
    publication: &'p Publication,
    cause: &Cause,
) -> Result<Vec<(&'p Table, &'p Row, &'p Run)>, String> {
    let of = |name: &String| match *publication.named_rows(name) {
        [(table, row @ Row { source: Source::Run(run), .. })] => Ok((table, row, run)),
        [_] => Err(format!("the row {name:?} is not measured")),
        [] => Err(format!("there is no row {name:?}")),
        _ => Err(format!("several rows have the name {name:?}: add their baseline")),
    };
    cause.rows.iter().map(of).collect()
}

/// Returns the setting with other values of parameters.
///
/// # Errors
/// Returns the name of a parameter that does not exist.
pub(super) fn changed(setting: &Setting, change: &BTreeMap<String, String>) -> Result<Setting, String> {
    let parameters: Result<Parameters, _> = setting.parameters.changed(change);
    let parameters = parameters.map_err(|name| format!("there is no parameter {name:?}"))?;
    Ok(Setting { parameters, ..setting.clone() })
}

fn defect(reproduction: &Reproduction, what: &str) -> Failure {
    Failure::environment(format!("data of {}: {what}", reproduction.name), REPORT_DEFECT)
}

impl Explanations {
    pub(super) fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    /// Returns the text that is printed without `--json`.
    pub(super) fn human(&self, width: Width) -> String {
        let mut text = format!("{}: experiments on causes; seed {}\n", self.name, self.seed);
        if self.causes.is_empty() {
            text += "\nNone is declared.\n";
        }
        for note in &self.notes {
            text += &format!("\nnote: {note}\n");
        }
        for Explanation { cause, rows } in &self.causes {
            text += &format!("\n{}\n", cause.what);
            for (name, value) in &cause.change {
                let before = self.parameters.get(name).map_or("", String::as_str);
                text += &format!("{name}: {before:?} becomes {value:?}\n");
            }
            let heading = ["FIGURE", "ROW", "PUBLISHED", "HERE", "WITH THE CHANGE", "CAUSE"];
            text += &Text::new(heading, rows.iter().map(ExplainedRow::cells)).prose("ROW").text(width);
        }
        text
    }

    /// Returns the part of the document that `--json` prints.
    pub(super) fn document(&self) -> CausesPart<'_> {
        let causes = self.causes.iter().map(CausePart::from).collect();
        CausesPart { reproduction: self.name, seed: self.seed, notes: &self.notes, causes }
    }
}

impl ExplainedRow {
    fn cells(&self) -> [String; 6] {
        let figure = |value: f64| match self.published {
            _ if !value.is_finite() => "-".to_owned(),
            Published::Share(_) => format!("{:.0} %", value * 100.0),
            _ => format!("{value:.2}"),
        };
        let with = self.published.verdict(self.figures[1]).map_or("-", verdict);
        [
            self.at.clone(),
            title(&self.quantity, &self.baseline),
            published(&self.published),
            figure(self.figures[0]),
            format!("{}, {with}", figure(self.figures[1])),
            self.effect.words().to_owned(),
        ]
    }
}

/// The experiments on causes of a reproduction.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Causes")]
pub(crate) struct CausesPart<'a> {
    /// The name of the reproduction.
    reproduction: &'static str,
    /// The random seed.
    seed: u64,
    /// Remarks on the experiments, a sentence each.
    notes: &'a [String],
    /// The changes.
    causes: Vec<CausePart<'a>>,
}

/// A change of one thing.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Cause")]
struct CausePart<'a> {
    /// What is supposed to be the cause.
    what: &'a str,
    /// The changed parameters with their other values.
    change: &'a BTreeMap<String, String>,
    /// The rows that it may explain.
    rows: Vec<ExplainedRowPart<'a>>,
}

impl<'a> From<&'a Explanation> for CausePart<'a> {
    fn from(Explanation { cause, rows }: &'a Explanation) -> Self {
        let rows = rows.iter().map(ExplainedRowPart::from).collect();
        Self { what: &cause.what, change: &cause.change, rows }
    }
}

/// A row with and without the change.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ExplainedRow")]
struct ExplainedRowPart<'a> {
    /// The row's name among all of the publication.
    name: &'a str,
    /// The place in the publication.
    place: &'a str,
    /// The configuration of the row.
    quantity: &'a str,
    /// The configuration that it is compared with; empty if the figure is absolute.
    baseline: &'a str,
    /// The published figure.
    published: PublishedPart<'a>,
    /// The figure without the change; `null` if it cannot be computed.
    without: Option<f64>,
    /// The figure with the change; `null` if it cannot be computed.
    with: Option<f64>,
    /// The verdict with the change.
    #[schemars(extend("enum" = ["agrees", "in direction", "differs", null]))]
    verdict: Option<&'static str>,
    /// What the change does to the row.
    effect: Effect,
}

impl<'a> From<&'a ExplainedRow> for ExplainedRowPart<'a> {
    fn from(row: &'a ExplainedRow) -> Self {
        let [without, with] = row.figures.map(|figure| figure.is_finite().then_some(figure));
        Self {
            name: &row.name,
            place: &row.at,
            quantity: &row.quantity,
            baseline: &row.baseline,
            published: PublishedPart::from(&row.published),
            without,
            with,
            verdict: row.published.verdict(row.figures[1]).map(verdict),
            effect: row.effect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::repro::published::{Direction, Interval};

    #[test]
    fn causes_are_selected_by_words_and_rows() {
        let rows = vec!["figure 1: a".to_owned(), "figure 2: b".to_owned()];
        let cause =
            Cause { what: "the model".into(), change: BTreeMap::new(), one_thing: String::new(), rows };
        let rows = |only| selected(&cause, only).map(|cause| cause.rows.len());
        assert_eq!(
            [None, Some("model"), Some("figure 2"), Some("c")].map(rows),
            [Some(2), Some(2), Some(1), None]
        );
    }

    /// Without dbench's load file, the figures are others than recorded.
    #[test]
    fn what_stands_in_for_a_file_is_noted() {
        let notes = vec!["a load of weir's own making".to_owned()];
        let parameters = BTreeMap::new();
        let found = Explanations { name: "test", seed: 1, parameters, causes: Vec::new(), notes };
        assert!(found.human(Width::UNLIMITED).contains("\nnote: a load of weir's own making\n"));
        assert_eq!(found.document().notes, found.notes);
    }

    #[test]
    fn a_cause_is_shown_if_the_row_no_longer_differs() {
        let effect = |published: &Published, figures| Effect::of(published, figures, true);
        let ratio = Published::Ratio(Interval { least: 2.0, most: 2.0 });
        assert_eq!(effect(&ratio, [0.5, 2.1]), Effect::Shown);
        assert_eq!(effect(&ratio, [0.5, 0.9]), Effect::Nearer);
        assert_eq!(effect(&ratio, [0.5, 0.51]), Effect::None);
        assert_eq!(effect(&ratio, [0.5, 0.2]), Effect::None, "further away");
        assert_eq!(effect(&ratio, [2.0, 0.5]), Effect::DoesNotDiffer);
        assert_eq!(effect(&ratio, [f64::NAN, 2.0]), Effect::Failed);
        let less = Published::Direction(Direction::Less);
        assert_eq!(effect(&less, [1.0, 0.96]), Effect::None, "another seed does as much");
        assert_eq!(effect(&ratio, [1.0, 1.2]), Effect::Nearer, "in direction, but far away");
        assert_eq!(effect(&less, [1.2, 0.9]), Effect::Shown);
        assert_eq!(effect(&less, [1.2, 1.05]), Effect::Nearer);
        let share = Published::Share(Interval { least: 0.6, most: 0.6 });
        assert_eq!(effect(&share, [0.1, 0.55]), Effect::Shown);
        assert_eq!(effect(&share, [0.1, 0.0]), Effect::None);
        let several = |figures| Effect::of(&ratio, figures, false);
        assert_eq!(several([0.5, 2.1]), Effect::Nearer, "which of several changes counts is not known");
        assert_eq!([several([0.5, 0.2]), several([2.0, 0.5])], [Effect::None, Effect::DoesNotDiffer]);
    }
}
