//! Sweeps of what a publication leaves open: its rows, measured with each of several values, and the range of
//! values with which they agree. Such rows are fitted; a range says how closely.
//!
//! The sweeps are declared beside the rows, in the data files (`[[sweep]]`).

use super::causes::changed;
use super::published::{Published, Row, Run, Source, Sweep, Table, title};
use super::results::Results;
use super::results_file::ResultsFile;
use super::runner::Runner;
use super::text::{published, verdict};
use super::verdict::Verdict;
use super::{Form, ReproArgs, Reproduction, Setting};
use crate::failure::{Failure, REPORT_DEFECT};
use crate::output::{Table as Text, Width};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// What the sweeps of a reproduction showed.
#[derive(Debug)]
pub(super) struct Sweeps {
    name: &'static str,
    seed: u64,
    swept: Vec<Swept>,
}

/// What a sweep showed.
#[derive(Debug)]
struct Swept {
    what: String,
    steps: Vec<SweptStep>,
    rows: Vec<SweptRow>,
}

/// A value.
#[derive(Debug)]
struct SweptStep {
    value: String,
    /// Whether it is the one of the other runs.
    is_chosen: bool,
    /// Why the experiments cannot run with it.
    failed: Option<String>,
}

/// A row with each value.
#[derive(Debug)]
struct SweptRow {
    at: String,
    quantity: String,
    baseline: String,
    published: Published,
    /// Its figure at each step; not finite if it cannot be computed.
    figures: Vec<f64>,
}

/// Runs the sweeps of a reproduction. `--only` selects sweeps by their words, or rows by their names.
///
/// # Errors
/// Fails if a file cannot be used, if a sweep names a parameter that does not exist, or if no step can run.
pub(super) fn run(reproduction: &Reproduction, args: &ReproArgs) -> Result<Sweeps, Failure> {
    let mut publication = reproduction.publication()?;
    let setting = Setting::new(&publication, args)?;
    publication.supply(|experiment| setting.recordings.can_run(experiment));
    let form = Form { is_full: false, seeds: vec![args.seed] };
    let file = ResultsFile::open(args.results.as_deref())?;
    let mut swept = Vec::new();
    for sweep in &publication.sweeps {
        let rows = rows(publication.rows(), sweep, args.only.as_deref());
        let names: BTreeSet<&String> = rows.iter().flat_map(|(_, _, run)| run.experiments()).collect();
        if rows.is_empty() {
            continue;
        }
        let (mut steps, mut results) = (Vec::new(), Vec::new());
        for step in &sweep.steps {
            let name = format!("{}: {}", sweep.what, step.value);
            let is_chosen = step.change.is_empty();
            let variant = (!is_chosen).then_some(name.as_str());
            let runner =
                Runner { seeds: &form.seeds, variant, names: Some(&names), args, form: &form, file: &file };
            let with = changed(&setting, &step.change).map_err(|what| {
                Failure::environment(format!("data of {}: {what}", reproduction.name), REPORT_DEFECT)
            })?;
            let measured = reproduction.measures.run(&publication, &with, &runner);
            let failed = measured.as_ref().err().map(|failure| failure.message.clone());
            steps.push(SweptStep { value: step.value.clone(), is_chosen, failed });
            results.push(measured);
        }
        if results.iter().all(Result::is_err)
            && let Some(Err(failure)) = results.pop()
        {
            return Err(failure);
        }
        let figure = |results: &Result<Results, Failure>, run: &Run| {
            let values = results.as_ref().ok().and_then(|results| results.values(run)).unwrap_or_default();
            values.first().map_or(f64::NAN, |(_, value)| *value)
        };
        let row = |(table, row, run): &(&Table, &Row, &Run)| SweptRow {
            at: table.at.clone(),
            quantity: row.quantity.clone(),
            baseline: table.baseline.clone(),
            published: row.published.clone(),
            figures: results.iter().map(|results| figure(results, run)).collect(),
        };
        swept.push(Swept { what: sweep.what.clone(), rows: rows.iter().map(row).collect(), steps });
    }
    Ok(Sweeps { name: reproduction.name, seed: args.seed, swept })
}

/// Returns the rows of a sweep that can be measured and have a vote.
pub(super) fn rows<'p>(
    all: impl Iterator<Item = (&'p Table, &'p Row)>,
    sweep: &Sweep,
    only: Option<&str>,
) -> Vec<(&'p Table, &'p Row, &'p Run)> {
    let is_selected = |table: &Table, row: &Row| {
        only.is_none_or(|only| {
            sweep.what.contains(only) || format!("{}: {}", table.at, row.quantity).contains(only)
        })
    };
    let measured = |(table, row): (&'p Table, &'p Row)| match &row.source {
        Source::Run(run) if row.lacking.is_none() && row.has_vote() => {
            (sweep.tables.contains(&table.at) && is_selected(table, row)).then_some((table, row, run))
        }
        _ => None,
    };
    all.filter_map(measured).collect()
}

impl SweptRow {
    fn verdict(&self, step: usize) -> Option<Verdict> {
        self.published.verdict(*self.figures.get(step)?)
    }

    /// Reports whether the row is as published at a step. One that states a direction only is if it has it.
    fn holds(&self, step: usize) -> bool {
        match self.verdict(step) {
            Some(Verdict::Agrees) => true,
            Some(Verdict::InDirection) => matches!(self.published, Published::Direction(_)),
            _ => false,
        }
    }

    /// Returns the values with which the row is as published, consecutive ones as a range.
    fn range(&self, steps: &[SweptStep]) -> String {
        let holds: Vec<bool> = (0..steps.len()).map(|step| self.holds(step)).collect();
        if holds.iter().all(|holds| *holds) {
            return "all".into();
        }
        let mut ranges: Vec<String> = Vec::new();
        let mut start = 0;
        while start < steps.len() {
            let length = holds[start..].iter().take_while(|holds| **holds).count();
            match length {
                0 => {}
                1 => ranges.push(steps[start].value.clone()),
                _ => ranges.push(format!("{} to {}", steps[start].value, steps[start + length - 1].value)),
            }
            start += length + 1;
        }
        if ranges.is_empty() { "none".into() } else { ranges.join("; ") }
    }

    fn cells(&self, steps: &[SweptStep]) -> [String; 5] {
        let figure = |value: &f64| match self.published {
            _ if !value.is_finite() => "-".to_owned(),
            Published::Share(_) => format!("{:.0} %", value * 100.0),
            _ => format!("{value:.2}"),
        };
        [
            self.at.clone(),
            title(&self.quantity, &self.baseline),
            published(&self.published),
            self.figures.iter().map(figure).collect::<Vec<_>>().join(", "),
            self.range(steps),
        ]
    }
}

impl Swept {
    /// Returns how many rows have each verdict at a step.
    fn counts(&self, step: usize) -> [usize; 3] {
        [Verdict::Agrees, Verdict::InDirection, Verdict::Differs]
            .map(|verdict| self.rows.iter().filter(|row| row.verdict(step) == Some(verdict)).count())
    }

    fn human(&self, width: Width) -> String {
        let cells = |(nth, step): (usize, &SweptStep)| {
            let value = format!("{}{}", step.value, if step.is_chosen { " (chosen)" } else { "" });
            let [agree, in_direction, differ] = self.counts(nth).map(|count| count.to_string());
            [value, agree, in_direction, differ]
        };
        let heading = ["VALUE", "AGREE", "IN DIRECTION", "DIFFER"];
        let mut text = format!("\n{}\n", self.what);
        text += &Text::new(heading, self.steps.iter().enumerate().map(cells)).text(width);
        for SweptStep { value, failed, .. } in &self.steps {
            text += &failed.iter().map(|why| format!("cannot run with {value}: {why}\n")).collect::<String>();
        }
        let heading = ["FIGURE", "ROW", "PUBLISHED", "WITH EACH VALUE", "AS PUBLISHED, FITTED"];
        let rows = self.rows.iter().map(|row| row.cells(&self.steps));
        text + &Text::new(heading, rows).prose("ROW").text(width)
    }
}

impl Sweeps {
    pub(super) fn is_empty(&self) -> bool {
        self.swept.is_empty()
    }

    /// Returns the text that is printed without `--json`.
    pub(super) fn human(&self, width: Width) -> String {
        let text = format!("{}: sweeps of what is not published; seed {}\n", self.name, self.seed);
        match self.is_empty() {
            true => text + "\nNone is declared.\n",
            false => text + &self.swept.iter().map(|swept| swept.human(width)).collect::<String>(),
        }
    }

    /// Returns the part of the document that `--json` prints.
    pub(super) fn document(&self) -> SweepsPart<'_> {
        SweepsPart {
            reproduction: self.name,
            seed: self.seed,
            sweeps: self.swept.iter().map(SweepPart::from).collect(),
        }
    }
}

/// The sweeps of a reproduction.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Sweeps")]
pub(crate) struct SweepsPart<'a> {
    /// The name of the reproduction.
    reproduction: &'static str,
    /// The random seed.
    seed: u64,
    /// What is swept.
    sweeps: Vec<SweepPart<'a>>,
}

/// A sweep of something that is not published.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Sweep")]
struct SweepPart<'a> {
    /// What is swept.
    what: &'a str,
    /// Its values, in order.
    steps: Vec<StepPart<'a>>,
    /// The rows that it may decide.
    rows: Vec<SweptRowPart<'a>>,
}

/// A value of a sweep.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SweepStep")]
struct StepPart<'a> {
    /// The value.
    value: &'a str,
    /// Whether it is the one of the runs without a sweep.
    chosen: bool,
    /// Number of rows that agree.
    agree: usize,
    /// Number of rows with the published direction and another size, or that state a direction only.
    in_direction: usize,
    /// Number of rows that differ.
    differ: usize,
    /// Why the experiments cannot run with it; `null` if they can.
    failed: Option<&'a str>,
}

/// A row with each value of a sweep.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SweptRow")]
struct SweptRowPart<'a> {
    /// The place in the publication.
    place: &'a str,
    /// The configuration of the row.
    quantity: &'a str,
    /// The configuration that it is compared with; empty if the figure is absolute.
    baseline: &'a str,
    /// The figure with each value; `null` if it cannot be computed.
    figures: Vec<Option<f64>>,
    /// The verdict with each value.
    verdicts: Vec<Option<&'static str>>,
    /// The values with which the row is as published, in words.
    as_published: String,
}

impl<'a> From<&'a Swept> for SweepPart<'a> {
    fn from(swept: &'a Swept) -> Self {
        let step = |(nth, step): (usize, &'a SweptStep)| {
            let [agree, in_direction, differ] = swept.counts(nth);
            let (value, failed) = (&*step.value, step.failed.as_deref());
            StepPart { value, chosen: step.is_chosen, agree, in_direction, differ, failed }
        };
        let row = |row: &'a SweptRow| SweptRowPart {
            place: &row.at,
            quantity: &row.quantity,
            baseline: &row.baseline,
            figures: row.figures.iter().map(|figure| figure.is_finite().then_some(*figure)).collect(),
            verdicts: (0..swept.steps.len()).map(|step| row.verdict(step).map(verdict)).collect(),
            as_published: row.range(&swept.steps),
        };
        Self {
            what: &swept.what,
            steps: swept.steps.iter().enumerate().map(step).collect(),
            rows: swept.rows.iter().map(row).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::repro::Measures;
    use crate::commands::repro::published::{Direction, Interval};
    use crate::commands::repro::results::ExperimentId;
    use crate::output::testing::assert_fits;

    fn steps(values: &[&str]) -> Vec<SweptStep> {
        let step =
            |value: &&str| SweptStep { value: (*value).into(), is_chosen: *value == "b", failed: None };
        values.iter().map(step).collect()
    }

    fn row(published: Published, figures: &[f64]) -> SweptRow {
        SweptRow {
            at: "figure 1".into(),
            quantity: "q".into(),
            baseline: String::new(),
            published,
            figures: figures.to_vec(),
        }
    }

    const DATA: &str = r#"
source = "a paper"
[[table]]
at = "figure 1"
what = "twos"
[[table.row]]
quantity = "a"
ratio = [2, 2]
run = { metric = "ratio of x", of = "a" }
[[table.row]]
quantity = "without a vote"
ratio = [2, 2]
pair = "a"
run = { metric = "ratio of x", of = "a" }
[[table.row]]
quantity = "not recorded"
ratio = [2, 2]
missing = "a recording"
run = { metric = "ratio of x", of = "F2FS none, 2 logs" }
[[table]]
at = "figure 2"
what = "in no sweep"
[[table.row]]
quantity = "b"
ratio = [2, 2]
run = { metric = "ratio of x", of = "b" }
[[parameter]]
name = "open"
what = "not published"
value = "2.1"
provenance = "assumed"
at = "nowhere"
loads = ["a"]
[[sweep]]
what = "something open"
tables = ["figure 1"]
step = [
    { value = "1", change = { open = "1" } },
    { value = "2.1" },
    { value = "2.2", change = { open = "2.2" } },
    { value = "9", change = { open = "9" } },
]
"#;

    /// Runs the experiments of [`DATA`]: the metric is the parameter, which 9 makes impossible.
    fn run_experiments(setting: &Setting, runner: &Runner<'_>) -> Result<Results, Failure> {
        let open = setting.parameters.number("open")?;
        if open > 8.0 {
            return Err(Failure::environment("too large", "none"));
        }
        assert!(!runner.selects("b"), "it is in no row of the sweep");
        let mut results = Results::default();
        for &seed in runner.seeds {
            let id = ExperimentId { experiment: "a".into(), seed, duration_ns: 0 };
            results.add(id, [("ratio of x".to_owned(), open)].into());
        }
        Ok(results)
    }

    #[test]
    fn rows_are_measured_with_each_value() {
        let reproduction = Reproduction {
            name: "test",
            about: "",
            data: DATA,
            measures: Measures::Logs(run_experiments),
            notes: |_| Vec::new(),
        };
        let args = ReproArgs { seed: 3, ..ReproArgs::default() };
        let found = run(&reproduction, &args).expect("a sweep");
        let [swept] = &found.swept[..] else { panic!("{found:?}") };
        let [row] = &swept.rows[..] else { panic!("rows with a vote that can be measured: {swept:?}") };
        assert_eq!((&*row.quantity, &row.figures[..3]), ("a", &[1.0, 2.1, 2.2][..]));
        assert!(row.figures[3].is_nan());
        assert_eq!(row.range(&swept.steps), "2.1 to 2.2");
        let steps = swept.steps.iter().map(|step| (step.is_chosen, step.failed.as_deref()));
        let expected = [(false, None), (true, None), (false, None), (false, Some("too large"))];
        assert_eq!(steps.collect::<Vec<_>>(), expected);
        let none = run(&reproduction, &ReproArgs { only: Some("figure 2".into()), ..args });
        assert!(none.expect("no failure").is_empty());
    }

    #[test]
    fn ranges_are_of_consecutive_values_that_agree() {
        let steps = steps(&["a", "b", "c", "d", "e"]);
        let ratio = Published::Ratio(Interval { least: 2.0, most: 2.0 });
        let range = |figures: &[f64]| row(ratio.clone(), figures).range(&steps);
        assert_eq!(range(&[2.0, 2.1, 1.1, 2.0, 9.0]), "a to b; d");
        assert_eq!(range(&[1.0, 1.1, 2.0, 2.0, 2.0]), "c to e");
        assert_eq!(range(&[2.0; 5]), "all");
        assert_eq!(range(&[f64::NAN, 1.0, 9.0, 1.3, 1.0]), "none", "1.3 is in direction only");
        let more = row(Published::Direction(Direction::More), &[0.9, 1.2, 1.3, 1.0, 1.01]);
        assert_eq!(more.range(&steps), "b to c", "a direction is all that is published");
    }

    #[test]
    fn text_counts_rows_by_value() {
        let ratio = Published::Ratio(Interval { least: 2.0, most: 2.0 });
        let mut steps = steps(&["a", "b", "c"]);
        steps[2].failed = Some("the log is too small".into());
        let rows = vec![row(ratio.clone(), &[2.0, 1.2, f64::NAN]), row(ratio, &[0.5, 2.0, f64::NAN])];
        let swept = Swept { what: "skew".into(), steps, rows };
        assert_eq!([0, 1, 2].map(|step| swept.counts(step)), [[1, 0, 1], [1, 1, 0], [0; 3]]);
        let sweeps = Sweeps { name: "test", seed: 1, swept: vec![swept] };
        let text = sweeps.human(Width::UNLIMITED);
        assert!(text.contains("b (chosen)") && text.contains("cannot run with c: the log is"), "{text}");
        assert!(text.contains("2.00, 1.20, -"), "{text}");
        assert_fits(|width| sweeps.human(width));
        let document = serde_json::to_value(sweeps.document()).expect("JSON");
        let of_row = &document["sweeps"][0]["rows"][0];
        assert_eq!(of_row["verdicts"], serde_json::json!(["agrees", "in direction", null]));
        assert_eq!(of_row["as_published"], "a");
    }
}
