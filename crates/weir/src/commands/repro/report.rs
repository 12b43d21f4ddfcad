//! Formats the results of a reproduction as text and as JSON.

use super::causes::CausesPart;
use super::published::{Parameter, Provenance, Publication, Published};
use super::results::{Metrics, Results, median};
use super::rows::{Counts, Measurement, RowOutcome, RowResult, compare};
use super::sweeps::SweepsPart;
use super::text::{PublishedPart, published, verdict};
use super::variants::Variants;
use crate::output::{Table, Width, table};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The results of a reproduction.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) name: &'static str,
    pub(super) publication: Publication,
    pub(super) results: Results,
    pub(super) variants: Variants,
    pub(super) notes: Vec<String>,
    pub(super) seeds: Vec<u64>,
}

impl Report {
    /// Returns the published rows beside the measured ones.
    pub(super) fn rows(&self) -> Vec<RowResult<'_>> {
        compare(&self.publication, &self.results, &self.variants)
    }

    /// Returns the part of the document that `--json` prints.
    pub(super) fn document(&self) -> ReportPart<'_> {
        let rows = self.rows();
        ReportPart {
            reproduction: self.name,
            source: &self.publication.source,
            seeds: self.seeds.clone(),
            predicted: Counts::of(&rows, false).into(),
            fitted: Counts::of(&rows, true).into(),
            rows: rows.iter().map(RowPart::from).collect(),
            parameters: self.publication.parameters.iter().map(ParameterPart::from).collect(),
            experiments: self.results.iter().map(ExperimentPart::from).collect(),
            notes: &self.notes,
            varied: self.variants.all.iter().map(|variant| &*variant.name).collect(),
            not_varied: &self.variants.not_varied,
            failed_variants: &self.variants.failed,
        }
    }

    /// Returns the text that is printed without `--json`: the measured rows, a summary, what is missing, and
    /// the experiments.
    pub(super) fn human(&self, width: Width) -> String {
        let rows = self.rows();
        let seeds = match &*self.seeds {
            [only] => format!("seed {only}"),
            [first, .., last] => format!("seeds {first} to {last}"),
            [] => String::new(),
        };
        let mut text = format!("{}: {}; {seeds}\n\n", self.name, self.publication.source);
        let heading = ["FIGURE", "ROW", "PUBLISHED", "HERE", "VERDICT"];
        let measured = rows.iter().filter_map(|row| match &row.outcome {
            RowOutcome::Measured(measurement) => Some(measured_row(row, measurement)),
            RowOutcome::Failed => Some(failed_row(row)),
            RowOutcome::NotRun | RowOutcome::Missing(_) | RowOutcome::Unreadable(_) => None,
        });
        text += &Table::new(heading, measured).prose("ROW").text(width);
        text += "\nRows with a vote (a row that another one determines has none):\n";
        let counts = [("predicted", false), ("fitted", true)].map(|(kind, is_fitted)| {
            let counts = Counts::of(&rows, is_fitted);
            [
                kind.to_owned(),
                counts.agree.to_string(),
                counts.in_direction.to_string(),
                counts.differ.to_string(),
            ]
        });
        text += &table(width, ["", "AGREE", "IN DIRECTION", "DIFFER"], counts);
        text += &differences(&rows, width);
        text += &self.variant_lines(&rows);
        text += "\nRows that are not reproduced:\n";
        text += &Table::new(["ROWS", "WHY", "WHERE"], absent_rows(&rows)).prose("WHERE").text(width);
        text += "\n";
        text += &self.experiment_table(width);
        for note in &self.notes {
            text += &format!("\nnote: {note}\n");
        }
        text
    }

    /// Says which fitted parameters were not varied.
    fn variant_lines(&self, rows: &[RowResult<'_>]) -> String {
        let Variants { all, not_varied, failed, .. } = &self.variants;
        if all.is_empty() && failed.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "\n{} changes of fitted parameters by a quarter were tried; a row whose verdict changes is \
             fragile.\n",
            all.len()
        );
        let is_not_varied = |row: &&RowResult<'_>| match &row.outcome {
            RowOutcome::Measured(measured) => {
                row.has_vote() && !measured.fitted.is_empty() && !measured.is_varied
            }
            _ => false,
        };
        text += &format!(
            "Fitted rows of whose experiments none was varied: {}\n",
            rows.iter().filter(is_not_varied).count()
        );
        if !not_varied.is_empty() {
            text += &format!(
                "Fitted and not varied, because they are no numbers or constants: {}\n",
                not_varied.join(", ")
            );
        }
        for failed in failed {
            text += &format!("Not possible: {failed}\n");
        }
        text
    }

    fn experiment_table(&self, width: Width) -> String {
        // One narrow column after another is hard to read: the metrics of an experiment are one cell.
        let rows = self.results.iter().map(|(experiment, by_seed)| {
            let names: BTreeSet<&String> = by_seed.values().flat_map(BTreeMap::keys).collect();
            let values =
                |name: &String| by_seed.values().filter_map(|metrics| metrics.get(name).copied()).collect();
            let metric = |name| Some(format!("{name} {}", significant(median(values(name))?)));
            let metrics: Vec<_> = names.into_iter().filter_map(metric).collect();
            [experiment.to_owned(), metrics.join(", ")]
        });
        Table::new(["EXPERIMENT", "METRICS"], rows).prose("METRICS").text(width)
    }
}

/// Formats a number with three significant digits.
fn significant(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { 2 - value.abs().log10().floor() as i32 };
    format!("{value:.*}", usize::try_from(digits).unwrap_or(0))
}

fn measured_row(row: &RowResult<'_>, measurement: &Measurement) -> [String; 5] {
    let value = match row.row.published {
        Published::Share(_) => format!("{:.0} %", measurement.median * 100.0),
        _ => format!("{:.2}", measurement.median),
    };
    let spread = match row.row.published {
        _ if measurement.least == measurement.most => String::new(),
        Published::Share(_) => {
            format!(" ({:.0} to {:.0})", measurement.least * 100.0, measurement.most * 100.0)
        }
        _ => format!(" ({:.2} to {:.2})", measurement.least, measurement.most),
    };
    let mut verdict = verdict(measurement.verdict).to_owned();
    if !measurement.fitted.is_empty() {
        verdict += ", fitted";
    }
    if !measurement.fragile.is_empty() {
        verdict += ", fragile";
    }
    if !row.has_vote() {
        verdict = format!("({verdict})");
    }
    [row.table.at.clone(), title(row), published(&row.row.published), value + &spread, verdict]
}

fn failed_row(row: &RowResult<'_>) -> [String; 5] {
    let value = "cannot be computed".to_owned();
    [row.table.at.clone(), title(row), published(&row.row.published), value, "-".into()]
}

/// Returns what a row compares.
fn title(row: &RowResult<'_>) -> String {
    super::published::title(&row.row.quantity, &row.table.baseline)
}

/// Lists the rows with a vote that differ, and why.
fn differences(rows: &[RowResult<'_>], width: Width) -> String {
    let differing = rows.iter().filter(|row| row.has_vote());
    let differing: Vec<_> = differing
        .filter_map(|row| Some([row.table.at.clone(), title(row), row.cause()?.to_owned()]))
        .collect();
    if differing.is_empty() {
        return String::new();
    }
    let table = Table::new(["FIGURE", "ROW", "CAUSE"], differing).prose("CAUSE").text(width);
    format!("\nRows that differ:\n{table}")
}

/// Returns the rows that are not reproduced: their number, why, and where they are in the publication.
fn absent_rows(rows: &[RowResult<'_>]) -> Vec<[String; 3]> {
    let mut by_reason: BTreeMap<String, (usize, Vec<&str>)> = BTreeMap::new();
    for row in rows {
        let why = match &row.outcome {
            RowOutcome::Missing(what) => format!("lacking: {what}"),
            RowOutcome::Unreadable(why) => (*why).to_owned(),
            RowOutcome::NotRun => "the experiment was not run".to_owned(),
            RowOutcome::Measured(_) | RowOutcome::Failed => continue,
        };
        let (count, places) = by_reason.entry(why).or_default();
        *count += 1;
        if !places.contains(&&*row.table.at) {
            places.push(&row.table.at);
        }
    }
    let mut all: Vec<_> = by_reason.into_iter().collect();
    all.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    all.into_iter().map(|(why, (count, places))| [count.to_string(), why, places.join("; ")]).collect()
}

/// The document of `weir repro`: the list of reproductions, or with a name, what that one, or all, came to.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir repro")]
#[serde(untagged)]
pub(crate) enum ReproDocument<'a> {
    /// The list of reproductions: without a name.
    List {
        /// All reproductions.
        reproductions: Vec<ReproductionPart>,
    },
    /// The results: with a name.
    Reports {
        /// The version of weir.
        version: &'static str,
        /// A digest of the program's file: equal digests are the same build, which has the same results.
        program: String,
        /// Whether the experiments ran as long as the publication's, each with five seeds.
        full: bool,
        /// The results of each reproduction.
        reports: Vec<ReportPart<'a>>,
    },
    /// The experiments on causes: with `--causes`.
    Causes {
        /// Those of each reproduction.
        reports: Vec<CausesPart<'a>>,
    },
    /// The sweeps of what is not published: with `--sweep`.
    Sweeps {
        /// Those of each reproduction.
        reports: Vec<SweepsPart<'a>>,
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
    /// The publication, and where in it.
    pub(super) source: String,
}

/// The results of a reproduction.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Report")]
pub(crate) struct ReportPart<'a> {
    /// The name of the reproduction.
    reproduction: &'static str,
    /// The publication, and where in it.
    source: &'a str,
    /// The random seeds; each experiment ran with each.
    seeds: Vec<u64>,
    /// Numbers of rows with a vote that no parameter was fitted to.
    predicted: CountsPart,
    /// Numbers of rows with a vote in tables that a parameter of their experiments was fitted to.
    fitted: CountsPart,
    /// Every published row.
    rows: Vec<RowPart<'a>>,
    /// Parameters of the experiments.
    parameters: Vec<ParameterPart<'a>>,
    /// Experiments, sorted by name.
    experiments: Vec<ExperimentPart<'a>>,
    /// Remarks on the reproduction, a sentence each.
    notes: &'a [String],
    /// Changes of fitted parameters with which experiments ran again.
    varied: Vec<&'a str>,
    /// Fitted parameters that cannot be varied: they are not numbers, or constants of weir.
    not_varied: &'a [String],
    /// Changes with which experiments cannot run, and why.
    failed_variants: &'a [String],
}

/// Numbers of rows by verdict.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "VerdictCounts")]
struct CountsPart {
    /// Rows that agree.
    agree: usize,
    /// Rows with the published direction and another size.
    in_direction: usize,
    /// Rows that differ.
    differ: usize,
}

impl From<Counts> for CountsPart {
    fn from(counts: Counts) -> Self {
        let Counts { agree, in_direction, differ } = counts;
        Self { agree, in_direction, differ }
    }
}

/// A published row beside the measured one.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Row")]
struct RowPart<'a> {
    /// The place in the publication.
    place: &'a str,
    /// What the table or figure there shows.
    what: &'a str,
    /// What the publication says about the experiment; empty if the table before says it.
    setup: &'a str,
    /// The configuration that the row is compared with; empty for a share.
    baseline: &'a str,
    /// The configuration of the row.
    quantity: &'a str,
    /// The published figure.
    published: PublishedPart<'a>,
    /// The words that the figure comes from; empty for a table's cell.
    quote: &'a str,
    /// Whether the row counts; it does not if another row determines it, or if it is an alternative.
    has_vote: bool,
    /// Whether the row stands beside one with another assumption about something that is not published.
    is_alternative: bool,
    /// The median of the measured figure over the seeds; `null` if it was not measured.
    measured: Option<f64>,
    /// The least and the greatest measured figure.
    spread: Option<[f64; 2]>,
    /// Whether both agree; `null` if the row was not measured.
    #[schemars(extend("enum" = ["agrees", "in direction", "differs", null]))]
    verdict: Option<&'static str>,
    /// Parameters of the experiments that were fitted to this table; without any, the row is predicted.
    fitted_parameters: Vec<String>,
    /// Whether a fitted parameter of its experiments was varied; otherwise it is not known to be fragile or
    /// not.
    is_varied: bool,
    /// Changes of fitted parameters that change the verdict; with any, the row is fragile.
    fragile: Vec<String>,
    /// Why the row differs; `null` if it does not.
    cause: Option<&'a str>,
    /// Why the row was not measured; `null` if it was.
    not_measured: Option<&'a str>,
}

/// A parameter of the experiments.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Parameter")]
struct ParameterPart<'a> {
    /// Name.
    name: &'a str,
    /// What it sets.
    what: &'a str,
    /// Its value.
    value: &'a str,
    /// Where the value is from. `assumed`: not published, and chosen before figures were compared.
    #[schemars(extend("enum" = ["published", "datasheet", "default", "assumed", "fitted"]))]
    provenance: &'static str,
    /// The place in the publication or document, the reason, or the tables it was fitted to.
    at: String,
    /// The part of weir that has it as a constant; `null` if experiments read it from the data.
    built_in: Option<&'a str>,
}

/// An experiment.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Experiment")]
struct ExperimentPart<'a> {
    /// Its name.
    name: &'a str,
    /// Its metrics by seed.
    metrics: &'a BTreeMap<u64, Metrics>,
}

impl<'a> From<(&'a str, &'a BTreeMap<u64, Metrics>)> for ExperimentPart<'a> {
    fn from((name, metrics): (&'a str, &'a BTreeMap<u64, Metrics>)) -> Self {
        Self { name, metrics }
    }
}

impl<'a> From<&RowResult<'a>> for RowPart<'a> {
    fn from(result: &RowResult<'a>) -> Self {
        let measurement = match &result.outcome {
            RowOutcome::Measured(measurement) => Some(measurement),
            _ => None,
        };
        Self {
            place: &result.table.at,
            what: &result.table.what,
            setup: &result.table.setup,
            baseline: &result.table.baseline,
            quantity: &result.row.quantity,
            published: PublishedPart::from(&result.row.published),
            quote: &result.row.quote,
            has_vote: result.has_vote(),
            is_alternative: result.row.is_alternative,
            measured: measurement.map(|measurement| measurement.median),
            spread: measurement.map(|measurement| [measurement.least, measurement.most]),
            verdict: measurement.map(|measurement| verdict(measurement.verdict)),
            fitted_parameters: measurement.map_or_else(Vec::new, |measurement| measurement.fitted.clone()),
            is_varied: measurement.is_some_and(|measurement| measurement.is_varied),
            fragile: measurement.map_or_else(Vec::new, |measurement| measurement.fragile.clone()),
            cause: result.cause(),
            not_measured: match result.outcome {
                RowOutcome::Measured(_) => None,
                RowOutcome::Failed => Some("it cannot be computed"),
                RowOutcome::NotRun => Some("the experiment was not run"),
                RowOutcome::Missing(what) => Some(what),
                RowOutcome::Unreadable(why) => Some(why),
            },
        }
    }
}

impl<'a> From<&'a Parameter> for ParameterPart<'a> {
    fn from(parameter: &'a Parameter) -> Self {
        let (provenance, at) = match &parameter.provenance {
            Provenance::Published(at) => ("published", at.clone()),
            Provenance::Datasheet(at) => ("datasheet", at.clone()),
            Provenance::Default => ("default", String::new()),
            Provenance::Assumed(why) => ("assumed", why.clone()),
            Provenance::Fitted(tables) => ("fitted", tables.join(", ")),
        };
        Self {
            name: &parameter.name,
            what: &parameter.what,
            value: &parameter.value,
            provenance,
            at,
            built_in: parameter.built_in.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::repro::results::ExperimentId;
    use crate::output::testing::assert_fits;

    const DATA: &str = r#"
source = "a paper"
[[table]]
at = "figure 1"
what = "rates"
baseline = "the disk"
[[table.row]]
quantity = "both"
ratio = [2.5, 3.5]
run = { metric = "rate", of = "both", to = "disk" }
[[table.row]]
quantity = "both, time"
direction = "more"
pair = "both"
run = { metric = "rate", of = "disk", to = "both" }
[[table.row]]
quantity = "flash"
words = "nearly"
missing = "a drive"
[[table]]
at = "figure 2"
what = "shares"
[[table.row]]
quantity = "share of the flash"
share = [0.5, 0.5]
run = { metric = "served", of = "both" }
[[parameter]]
name = "delta"
what = "a threshold"
value = "1"
provenance = "fitted"
fitted = ["figure 2"]
loads = ["both"]
"#;

    fn report() -> Report {
        let mut results = Results::default();
        for (seed, rate) in [(1, 2.0), (2, 3.0), (3, 4.0)] {
            let id = |name: &str| ExperimentId { experiment: name.into(), seed, duration_ns: 1 };
            results.add(id("both"), [("rate".to_owned(), rate), ("served".to_owned(), 0.55)].into());
            results.add(id("disk"), [("rate".to_owned(), 1.0)].into());
        }
        let publication = Publication::read(DATA).expect("valid");
        let variants = Variants::default();
        let notes = vec!["short".into()];
        Report { name: "test", publication, results, variants, notes, seeds: vec![1, 2, 3] }
    }

    #[test]
    fn text_shows_medians_spreads_verdicts_and_what_is_missing() {
        let text = report().human(Width::UNLIMITED);
        let line = |start: &str| {
            let lines = text.lines().filter(|line| line.contains(start));
            let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            words.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(line("both, to"), "figure 1 both, to the disk 2.50 to 3.50 3.00 (2.00 to 4.00) agrees");
        assert_eq!(
            line("both, time"),
            "figure 1 both, time, to the disk above 1 0.33 (0.25 to 0.50) (differs)"
        );
        assert_eq!(line("share of"), "figure 2 share of the flash 50 % 55 % agrees, fitted");
        assert_eq!(line("predicted"), "predicted 1 0 0");
        assert_eq!(line("fitted "), "fitted 1 0 0");
        assert_eq!(line("lacking"), "1 lacking: a drive figure 1");
        assert_eq!(line("rate 3.00"), "both rate 3.00, served 0.550");
        assert_fits(|width| report().human(width));
    }

    #[test]
    fn the_document_has_every_row() {
        let report = report();
        let document = serde_json::to_value(report.document()).expect("JSON");
        let row = |at: usize| &document["rows"][at];
        assert_eq!(row(0)["published"], serde_json::json!({ "ratio": [2.5, 3.5] }));
        assert_eq!((&row(0)["measured"], &row(0)["spread"]), (&3.0.into(), &serde_json::json!([2.0, 4.0])));
        assert_eq!((&row(0)["has_vote"], &row(1)["has_vote"]), (&true.into(), &false.into()));
        assert_eq!(
            (&row(1)["published"]["direction"], &row(1)["verdict"]),
            (&"more".into(), &"differs".into())
        );
        assert_eq!((&row(2)["not_measured"], &row(2)["verdict"]), (&"a drive".into(), &().into()));
        assert_eq!(
            (&row(3)["fitted_parameters"][0], &row(3)["verdict"]),
            (&"delta".into(), &"agrees".into())
        );
        assert_eq!(document["predicted"], serde_json::json!({ "agree": 1, "in_direction": 0, "differ": 0 }));
    }
}
