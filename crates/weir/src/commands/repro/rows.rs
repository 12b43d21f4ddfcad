//! Compares the published rows with the results of the experiments.

use super::published::{Publication, Published, Row, Run, Source, Table};
use super::results::{Results, median};
use super::variants::{Variant, Variants};
use super::verdict::Verdict;

/// A published row and what became of it.
#[derive(Clone, Debug)]
pub(super) struct RowResult<'a> {
    pub(super) table: &'a Table,
    pub(super) row: &'a Row,
    pub(super) outcome: RowOutcome<'a>,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RowOutcome<'a> {
    Measured(Measurement),
    /// The figure cannot be computed: no work was done, or the metric is absent.
    Failed,
    /// An experiment was not run.
    NotRun,
    /// The experiment cannot run for lack of this.
    Missing(&'a str),
    /// The publication has no figure that could be read.
    Unreadable(&'a str),
}

/// A row that was measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measurement {
    /// The median of the seeds.
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    pub(super) verdict: Verdict,
    /// The parameters of its experiments that were fitted to its table. If there is none, the row was
    /// predicted.
    pub(super) fitted: Vec<String>,
    /// Whether a fitted parameter of its experiments was varied.
    pub(super) is_varied: bool,
    /// The changes of fitted parameters that change its verdict. If there is one, the row is fragile.
    pub(super) fragile: Vec<String>,
}

impl<'a> RowResult<'a> {
    /// Reports whether the row counts in the summary.
    pub(super) fn has_vote(&self) -> bool {
        self.row.has_vote()
    }

    /// Returns why the row differs, if it does.
    pub(super) fn cause(&self) -> Option<&'a str> {
        let RowOutcome::Measured(measurement) = &self.outcome else { return None };
        let cause: &'a str = self.row.cause.as_deref().unwrap_or(CAUSE_UNKNOWN);
        (measurement.verdict == Verdict::Differs).then_some(cause)
    }
}

/// The cause of a difference that no experiment has shown.
const CAUSE_UNKNOWN: &str = "cause unknown";

/// Compares all rows of a publication with the results.
pub(super) fn compare<'a>(
    publication: &'a Publication,
    results: &Results,
    variants: &Variants,
) -> Vec<RowResult<'a>> {
    let replaced = |variant: &Variant| results.replaced_by(&variant.results, variants.seed);
    let replaced: Vec<_> = variants.all.iter().map(|variant| (variant, replaced(variant))).collect();
    let outcome = |table: &'a Table, row: &'a Row| match (&row.source, &row.published) {
        (Source::Missing(what), _) => RowOutcome::Missing(what),
        (Source::Unreadable, Published::Unreadable(why)) => RowOutcome::Unreadable(why),
        (Source::Unreadable, _) => RowOutcome::Failed,
        (Source::Run(run), published) => {
            let mut outcome = measure(publication, table, published, run, results);
            if let (RowOutcome::NotRun, Some(what)) = (&outcome, &row.lacking) {
                outcome = RowOutcome::Missing(what);
            }
            if let RowOutcome::Measured(measurement) = &mut outcome {
                let here = results.verdict(published, run, variants.seed);
                let is_used =
                    |variant: &Variant| run.experiments().iter().any(|name| variant.results.has(name));
                let mut used = replaced.iter().filter(|(variant, _)| is_used(variant)).peekable();
                measurement.is_varied = used.peek().is_some();
                let changes =
                    used.filter(|(_, results)| results.verdict(published, run, variants.seed) != here);
                measurement.fragile = changes.map(|(variant, _)| variant.name.clone()).collect();
            }
            outcome
        }
    };
    publication.rows().map(|(table, row)| RowResult { table, row, outcome: outcome(table, row) }).collect()
}

fn measure<'a>(
    publication: &Publication,
    table: &Table,
    published: &Published,
    run: &Run,
    results: &Results,
) -> RowOutcome<'a> {
    let Some(values) = results.values(run) else { return RowOutcome::NotRun };
    let values: Vec<f64> = values.into_iter().map(|(_, value)| value).collect();
    let all = || values.iter().copied();
    let extremes = all().reduce(f64::min).zip(all().reduce(f64::max));
    let Some(((least, most), median)) = extremes.zip(median(values.clone())) else {
        return RowOutcome::NotRun;
    };
    let verdicts: Option<Vec<_>> = values.iter().map(|value| published.verdict(*value)).collect();
    let (Some(_), Some(verdict)) = (verdicts, published.verdict(median)) else { return RowOutcome::Failed };
    let fitted = publication.fitted(table, run).map(|parameter| parameter.name.clone()).collect();
    RowOutcome::Measured(Measurement {
        median,
        least,
        most,
        verdict,
        fitted,
        is_varied: false,
        fragile: Vec::new(),
    })
}

impl Results {
    /// Returns the verdict with one seed; `None` if there is none.
    fn verdict(&self, published: &Published, run: &Run, seed: u64) -> Option<Verdict> {
        let values = self.values(run)?;
        values.into_iter().find(|(of, _)| *of == seed).and_then(|(_, value)| published.verdict(value))
    }
}

/// Numbers of rows with a vote, by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) agree: usize,
    pub(super) in_direction: usize,
    pub(super) differ: usize,
}

impl Counts {
    /// Counts the measured rows with a vote: the predicted ones, or the fitted ones.
    pub(super) fn of(rows: &[RowResult<'_>], is_fitted: bool) -> Self {
        let mut counts = Self::default();
        for row in rows.iter().filter(|row| row.has_vote()) {
            let RowOutcome::Measured(measured) = &row.outcome else { continue };
            if measured.fitted.is_empty() == is_fitted {
                continue;
            }
            *match measured.verdict {
                Verdict::Agrees => &mut counts.agree,
                Verdict::InDirection => &mut counts.in_direction,
                Verdict::Differs => &mut counts.differ,
            } += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::repro::results::{ExperimentId, Metrics};

    const DATA: &str = r#"
source = "a paper"
[[table]]
at = "figure 1"
what = "rates"
baseline = "b"
[[table.row]]
quantity = "a"
measured = [2.9, 3.1]
base = [1.0, 1.0]
run = { metric = "rate", of = "a", to = "b" }
[[table.row]]
quantity = "a again"
direction = "less"
pair = "a"
run = { metric = "rate", of = "a", to = "b" }
[[table.row]]
quantity = "c"
words = "nearly"
run = { metric = "rate", of = "c", to = "b" }
[[table.row]]
quantity = "d"
ratio = [1, 2]
missing = "a drive"
[[table]]
at = "figure 2"
what = "shares"
[[table.row]]
quantity = "a"
share = [0.5, 0.5]
run = { metric = "served", of = "a" }
[[parameter]]
name = "delta"
what = "a threshold"
value = "1"
provenance = "fitted"
fitted = ["figure 2"]
loads = ["a"]
"#;

    #[test]
    fn rows_are_compared_and_counted() {
        let publication = Publication::read(DATA).expect("valid");
        let mut results = Results::default();
        for (seed, rate) in [(1, 2.0), (2, 3.0), (3, 9.0)] {
            let id = |name: &str| ExperimentId { experiment: name.into(), seed, duration_ns: 1 };
            let metrics = |rate| Metrics::from([("rate".to_owned(), rate), ("served".to_owned(), 0.9)]);
            results.add(id("a"), metrics(rate));
            results.add(id("b"), metrics(1.0));
        }
        let rows = compare(&publication, &results, &Variants::default());
        let RowOutcome::Measured(measured) = &rows[0].outcome else { panic!("{rows:?}") };
        assert_eq!((measured.least, measured.median, measured.most), (2.0, 3.0, 9.0));
        assert_eq!((measured.verdict, measured.fitted.len()), (Verdict::Agrees, 0));
        assert!(!measured.is_varied, "no experiment ran with a change");
        assert_eq!(rows[2].outcome, RowOutcome::NotRun);
        assert_eq!(rows[3].outcome, RowOutcome::Missing("a drive"));
        let RowOutcome::Measured(share) = &rows[4].outcome else { panic!("{rows:?}") };
        assert_eq!((share.verdict, &*share.fitted), (Verdict::Differs, &["delta".to_owned()][..]));
        assert_eq!(Counts::of(&rows, false), Counts { agree: 1, ..Counts::default() }, "a pair has one vote");
        assert_eq!(Counts::of(&rows, true), Counts { differ: 1, ..Counts::default() });
    }

    #[test]
    fn a_row_whose_verdict_depends_on_a_fitted_parameter_is_fragile() {
        let publication = Publication::read(DATA).expect("valid");
        let id = |name: &str| ExperimentId { experiment: name.into(), seed: 1, duration_ns: 1 };
        let metrics =
            |rate, served| Metrics::from([("rate".to_owned(), rate), ("served".to_owned(), served)]);
        let mut results = Results::default();
        results.add(id("a"), metrics(3.0, 0.5));
        results.add(id("b"), metrics(1.0, 0.5));
        let variant = |name: &str, served| {
            let mut results = Results::default();
            results.add(id("a"), metrics(3.0, served));
            Variant { name: name.into(), results }
        };
        let all = vec![variant("delta x 0.75", 0.45), variant("delta x 1.25", 0.9)];
        let rows = compare(&publication, &results, &Variants { seed: 1, all, ..Variants::default() });
        let fragile = |at: usize| match &rows[at].outcome {
            RowOutcome::Measured(measured) => {
                assert!(measured.is_varied);
                measured.fragile.clone()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!((fragile(0), fragile(4)), (vec![], vec!["delta x 1.25".to_owned()]));
    }

    #[test]
    fn a_figure_that_cannot_be_computed_is_a_failure() {
        let publication = Publication::read(DATA).expect("valid");
        let mut results = Results::default();
        for (name, rate) in [("a", 0.0), ("b", 1.0)] {
            let id = ExperimentId { experiment: name.into(), seed: 1, duration_ns: 1 };
            results.add(id, Metrics::from([("rate".to_owned(), rate)]));
        }
        let rows = compare(&publication, &results, &Variants::default());
        assert_eq!(rows[0].outcome, RowOutcome::Failed, "no work");
        assert_eq!(rows[4].outcome, RowOutcome::Failed, "the metric is absent");
    }
}
