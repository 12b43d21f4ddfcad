//! The published figures of a reproduction, and its parameters, from the data file beside the code.
//!
//! Each figure, table and statement of the publication's evaluation is listed as a row. A row says how it is
//! measured here, or what is missing for that.

use crate::failure::{Failure, REPORT_DEFECT};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The data file of a reproduction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publication {
    /// The publication, and where in it.
    pub(super) source: String,
    #[serde(rename = "table", default)]
    pub(super) tables: Vec<Table>,
    #[serde(rename = "parameter", default)]
    pub(super) parameters: Vec<Parameter>,
    /// Changes that may explain why rows differ, for `--causes`.
    #[serde(rename = "cause", default)]
    pub(super) causes: Vec<Cause>,
    /// What is not published, for `--sweep`.
    #[serde(rename = "sweep", default)]
    pub(super) sweeps: Vec<Sweep>,
}

/// Values of something that is not published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sweep {
    /// What is swept.
    pub(super) what: String,
    /// The tables whose rows are compared.
    pub(super) tables: Vec<String>,
    /// The values, in order.
    #[serde(rename = "step")]
    pub(super) steps: Vec<SweepStep>,
}

/// A value of something that is not published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepStep {
    /// The value.
    pub(super) value: String,
    /// The parameters that have other values then; none for the chosen value.
    #[serde(default)]
    pub(super) change: BTreeMap<String, String>,
}

/// A change of parameters that may explain why rows differ.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cause {
    /// What is supposed to be the cause.
    pub(super) what: String,
    /// The other values of parameters.
    pub(super) change: BTreeMap<String, String>,
    /// Why several parameters change only one thing. Without that, several are at most a part of a cause.
    #[serde(default)]
    pub(super) one_thing: String,
    /// The rows: each the place and the quantity, with a colon between, and the baseline if another row has
    /// the same name: `table V: latency, to disk alone`.
    pub(super) rows: Vec<String>,
}

/// A table or figure of the publication, compared with one baseline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The place in the publication.
    pub(super) at: String,
    pub(super) what: String,
    /// The configuration that the rows are compared with; empty if they are absolute.
    #[serde(default)]
    pub(super) baseline: String,
    /// The publication's own words that compare with this baseline, if the same figure or table has another
    /// one before it.
    #[serde(default)]
    pub(super) second_baseline: String,
    /// Instead of such words: which figures the ratios to this second baseline only say again. Its rows have
    /// no vote.
    #[serde(default)]
    pub(super) restates: String,
    /// What the publication says about the experiment.
    #[serde(default)]
    pub(super) setup: String,
    #[serde(rename = "row", default)]
    pub(super) rows: Vec<Row>,
}

impl Table {
    /// Returns the figure or table of the publication whose rows it has; `None` if they are of its text.
    fn place(&self) -> Option<String> {
        let mut words = self.at.split([' ', ',', ':']);
        let kind = words.next().filter(|kind| kind.starts_with("figure") || kind.starts_with("table"))?;
        Some(format!("{kind} {}", words.next().unwrap_or_default()))
    }
}

/// Returns what a row compares: a quantity, and with what.
pub(super) fn title(quantity: &str, baseline: &str) -> String {
    match baseline {
        "" => quantity.to_owned(),
        baseline => format!("{quantity}, to {baseline}"),
    }
}

/// A published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawRow")]
pub(super) struct Row {
    pub(super) quantity: String,
    pub(super) published: Published,
    /// The sentence or table line that it comes from; empty if the table says it all.
    pub(super) quote: String,
    /// The row of the same publication that determines this one; this one then has no vote.
    pub(super) pair: Option<String>,
    /// Whether it stands beside a row with another assumption about the same figure: neither has a vote.
    pub(super) is_alternative: bool,
    /// Whether the rows with a vote before it determine it; it then has none.
    pub(super) is_determined: bool,
    /// Whether its table only says again what others have; it then has no vote.
    pub(super) is_restated: bool,
    pub(super) source: Source,
    /// What the user has to supply before the row's experiments can run; `None` for nothing.
    pub(super) lacking: Option<String>,
    /// Why the row differs, if it does, and the experiment that shows it; `None` if that is not known.
    pub(super) cause: Option<String>,
}

/// How a row is measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// By these experiments.
    Run(Run),
    /// Not at all, for lack of this.
    Missing(String),
    /// The publication shows it without a figure that could be read.
    Unreadable,
}

/// The experiments that measure a row.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// The metric: see [`super::results`].
    pub(super) metric: String,
    /// The experiment; of several the one with the best metric.
    #[serde(deserialize_with = "one_or_more")]
    pub(super) of: Vec<String>,
    /// The experiment of the baseline, likewise; none if the metric itself is a share or a ratio.
    #[serde(default, deserialize_with = "one_or_more")]
    pub(super) to: Vec<String>,
    /// Which metric is the best.
    #[serde(default)]
    pub(super) best: Best,
    /// A number for each experiment of `of`: the figure is the number of the best one, not its metric.
    #[serde(default)]
    pub(super) numbers: Vec<f64>,
    /// The ratio that this one is divided by.
    pub(super) over: Option<Box<Run>>,
}

/// Which metric of several experiments is the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Best {
    #[default]
    Most,
    Least,
}

fn one_or_more<'de, D: serde::Deserializer<'de>>(text: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore {
        One(String),
        More(Vec<String>),
    }
    Ok(match OneOrMore::deserialize(text)? {
        OneOrMore::One(one) => vec![one],
        OneOrMore::More(more) => more,
    })
}

impl Cause {
    /// Reports whether the change is of one thing, so that it may show a cause.
    pub(super) fn is_of_one_thing(&self) -> bool {
        self.change.len() == 1 || !self.one_thing.is_empty()
    }
}

impl Row {
    /// Reports whether the row counts in the summary. It does not if other rows determine it, or if it
    /// stands beside a row with another assumption.
    pub(super) fn has_vote(&self) -> bool {
        self.pair.is_none() && !self.is_alternative && !self.is_determined && !self.is_restated
    }
}

/// Metrics whose names begin so are ratios themselves.
pub(super) const RATIO: &str = "ratio of ";

impl Run {
    /// Returns the names of the experiments.
    pub(super) fn experiments(&self) -> Vec<&String> {
        let over = self.over.iter().flat_map(|over| over.experiments());
        self.of.iter().chain(&self.to).chain(over).collect()
    }

    /// Describes what is wrong with it for this figure.
    fn fault(&self, published: &Published) -> Option<&'static str> {
        let is_absolute = self.metric.starts_with(RATIO) || !self.numbers.is_empty();
        match published {
            _ if self.of.is_empty() => Some("it needs an experiment"),
            _ if !self.numbers.is_empty() && self.numbers.len() != self.of.len() => {
                Some("it needs a number for each experiment")
            }
            Published::Unreadable(_) => Some("an unreadable figure cannot be measured"),
            Published::Share(_) if !self.to.is_empty() => Some("a share has no baseline"),
            Published::Share(_) => None,
            _ if self.to.is_empty() && !is_absolute => Some("a ratio needs the experiment of the baseline"),
            _ => None,
        }
    }
}

/// A figure as the publication has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Published {
    /// A ratio to the baseline.
    Ratio(Interval),
    /// A share of a whole, from 0 to 1.
    Share(Interval),
    /// A statement or a picture that shows a direction.
    Direction(Direction),
    /// A statement that the configurations are about equal, quoted.
    Words(String),
    /// A statement that the configuration is about equal or on this side of the baseline, quoted.
    WordsOr(String, Direction),
    /// A picture without figures, and why it cannot be read.
    Unreadable(String),
}

/// A direction relative to the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    More,
    Less,
}

/// The values that a printed figure stands for.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(from = "[f64; 2]")]
pub(super) struct Interval {
    pub(super) least: f64,
    pub(super) most: f64,
}

impl From<[f64; 2]> for Interval {
    fn from([least, most]: [f64; 2]) -> Self {
        Self { least, most }
    }
}

impl Interval {
    /// Returns the point of the interval that is closest to `value`.
    pub(super) fn nearest(self, value: f64) -> f64 {
        value.max(self.least).min(self.most)
    }

    /// Returns the ratios of values of this interval to values of `base`.
    fn over(self, base: Self) -> Self {
        Self { least: self.least / base.most, most: self.most / base.least }
    }

    fn is_valid(self) -> bool {
        self.least.is_finite() && self.most.is_finite() && 0.0 <= self.least && self.least <= self.most
    }
}

/// A row as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    quantity: String,
    measured: Option<Interval>,
    base: Option<Interval>,
    ratio: Option<Interval>,
    share: Option<Interval>,
    direction: Option<Direction>,
    words: Option<String>,
    /// With `words`: the side of the baseline on which they hold, too.
    or: Option<Direction>,
    unreadable: Option<String>,
    #[serde(default)]
    quote: String,
    pair: Option<String>,
    #[serde(default)]
    alternative: bool,
    run: Option<Run>,
    /// With `run`: what the user has to supply for it.
    missing: Option<String>,
    cause: Option<String>,
}

impl TryFrom<RawRow> for Row {
    type Error = String;

    fn try_from(raw: RawRow) -> Result<Self, String> {
        let fault = |what: &str| Err(format!("row {:?}: {what}", raw.quantity));
        let mut all = Vec::new();
        match (raw.measured, raw.base) {
            (Some(measured), Some(base)) if base.least > 0.0 => {
                all.push(Published::Ratio(measured.over(base)));
            }
            (None, None) => {}
            _ => return fault("`measured` and `base` belong together, and `base` is more than 0"),
        }
        all.extend(raw.ratio.map(Published::Ratio));
        all.extend(raw.share.map(Published::Share));
        all.extend(raw.direction.map(Published::Direction));
        all.extend(raw.words.clone().map(|words| match raw.or {
            Some(direction) => Published::WordsOr(words, direction),
            None => Published::Words(words),
        }));
        all.extend(raw.unreadable.clone().map(Published::Unreadable));
        let Ok([published]) = <[Published; 1]>::try_from(all) else {
            return fault("it has exactly one published figure");
        };
        if let Published::Ratio(interval) | Published::Share(interval) = &published
            && !interval.is_valid()
        {
            return fault("its interval has no least and greatest value");
        }
        let source = match (&published, raw.run.clone(), raw.missing.clone()) {
            (Published::Unreadable(_), None, None) => Source::Unreadable,
            (Published::Unreadable(_), None, Some(_)) => {
                return fault("an unreadable figure lacks nothing else");
            }
            (_, Some(run), _) => match run.fault(&published) {
                Some(what) => return fault(what),
                None => Source::Run(run),
            },
            (_, None, Some(missing)) => Source::Missing(missing),
            _ => return fault("it has `run` or `missing`"),
        };
        let lacking = raw.missing.clone().filter(|_| matches!(source, Source::Run(_)));
        let RawRow { quantity, quote, pair, alternative: is_alternative, cause, .. } = raw;
        Ok(Self {
            quantity,
            published,
            quote,
            pair,
            is_alternative,
            is_determined: false,
            is_restated: false,
            source,
            lacking,
            cause,
        })
    }
}

/// A parameter of the experiments.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawParameter")]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) what: String,
    pub(super) value: String,
    pub(super) provenance: Provenance,
    /// Parts of the names of the experiments that use it.
    pub(super) loads: Vec<String>,
    /// The part of weir that has the value as a constant; `None` if experiments read it from here.
    pub(super) built_in: Option<String>,
}

/// Where a parameter's value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Provenance {
    /// The publication prints it, at this place.
    Published(String),
    /// The data sheet or the documentation of this product has it.
    Datasheet(String),
    /// It is the default of weir's policy.
    Default,
    /// The publication does not print it. It was chosen for this reason, before any figure was compared.
    Assumed(String),
    /// It was chosen while the figures of these tables were compared.
    Fitted(Vec<String>),
}

/// A parameter as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawParameter {
    name: String,
    what: String,
    value: String,
    provenance: String,
    #[serde(default)]
    at: String,
    #[serde(default)]
    fitted: Vec<String>,
    loads: Vec<String>,
    built_in: Option<String>,
}

impl TryFrom<RawParameter> for Parameter {
    type Error = String;

    fn try_from(raw: RawParameter) -> Result<Self, String> {
        let provenance = match &*raw.provenance {
            "published" if !raw.at.is_empty() => Provenance::Published(raw.at),
            "datasheet" if !raw.at.is_empty() => Provenance::Datasheet(raw.at),
            "default" => Provenance::Default,
            "assumed" if !raw.at.is_empty() => Provenance::Assumed(raw.at),
            "fitted" if !raw.fitted.is_empty() => Provenance::Fitted(raw.fitted),
            other => return Err(format!("parameter {:?}: provenance {other:?} without a place", raw.name)),
        };
        let RawParameter { name, what, value, loads, built_in, .. } = raw;
        Ok(Self { name, what, value, provenance, loads, built_in })
    }
}

impl Parameter {
    /// Reports whether an experiment uses this parameter.
    pub(super) fn is_used_by(&self, experiment: &str) -> bool {
        self.loads.iter().any(|part| experiment.contains(part))
    }
}

impl Publication {
    /// Reads a data file.
    ///
    /// # Errors
    /// Returns a description of the first mistake.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut publication: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for table in &mut publication.tables {
            let is_restated = !table.restates.is_empty();
            table.rows.iter_mut().for_each(|row| row.is_restated = is_restated);
        }
        publication.check_baselines()?;
        Ok(publication)
    }

    /// Refuses a figure or table of the publication with several baselines, unless the publication's text
    /// compares with them, too, or their rows have no vote: one favourable result would vote several times.
    fn check_baselines(&self) -> Result<(), String> {
        let mut first: BTreeMap<String, &str> = BTreeMap::new();
        for table in self.tables.iter().filter(|table| !table.baseline.is_empty()) {
            let Some(place) = table.place() else { continue };
            let is_second = *first.entry(place).or_insert(&table.baseline) != table.baseline;
            let reasons = [&table.second_baseline, &table.restates].into_iter().filter(|why| !why.is_empty());
            let fault = match (is_second, reasons.count()) {
                (true, 1) | (false, 0) => continue,
                (true, 0) => "has a second baseline without a reason",
                (true, _) => "has two reasons for its second baseline",
                (false, _) => "has no second baseline",
            };
            return Err(format!("{} ({}) {fault}", table.at, table.baseline));
        }
        Ok(())
    }

    /// Returns all rows with their tables.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Table, &Row)> {
        self.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)))
    }

    /// Returns the rows that a cause may mean by a name: several if the name leaves out their baselines.
    pub(super) fn named_rows(&self, name: &str) -> Vec<(&Table, &Row)> {
        // Places and quantities may have colons themselves.
        let is_named = |(table, row): &(&Table, &Row)| {
            let named = name.strip_prefix(&*table.at).and_then(|rest| rest.strip_prefix(": "));
            named.is_some_and(|named| named == row.quantity || named == title(&row.quantity, &table.baseline))
        };
        self.rows().filter(is_named).collect()
    }

    /// Notes that rows lack nothing whose experiments can all run.
    pub(super) fn supply(&mut self, can_run: impl Fn(&str) -> bool) {
        for row in self.tables.iter_mut().flat_map(|table| &mut table.rows) {
            if let Source::Run(run) = &row.source
                && run.experiments().into_iter().all(|name| can_run(name))
            {
                row.lacking = None;
            }
        }
    }

    /// Returns the names of the experiments of rows whose place is in this one: `figure 5a` and `figure 5, at
    /// night` are in `figure 5`, but `figure 50` is not, nor is `table II` in `table I`.
    pub(super) fn experiments_at(&self, place: &str) -> BTreeSet<&String> {
        let goes_on = |rest: &str| match (place.chars().last(), rest.chars().next()) {
            (Some(last), Some(next)) => {
                last.is_ascii_digit() && next.is_ascii_digit() || last.is_uppercase() && next.is_uppercase()
            }
            _ => false,
        };
        let is_there = |(table, _): &(&Table, &Row)| {
            table.at.strip_prefix(place).is_some_and(|rest| !place.is_empty() && !goes_on(rest))
        };
        let runs = self.rows().filter(is_there).filter_map(|(_, row)| match &row.source {
            Source::Run(run) => Some(run.experiments()),
            Source::Missing(_) | Source::Unreadable => None,
        });
        runs.flatten().collect()
    }

    /// Returns the names of the experiments that rows need.
    pub(super) fn experiments(&self) -> BTreeSet<&String> {
        let runs = self.rows().filter_map(|(_, row)| match &row.source {
            Source::Run(run) => Some(run),
            Source::Missing(_) | Source::Unreadable => None,
        });
        runs.flat_map(Run::experiments).collect()
    }

    /// Returns the experiments that rows need, by name.
    ///
    /// # Errors
    /// Fails if a name is no experiment.
    pub(super) fn parse_experiments<T>(
        &self,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<BTreeMap<String, T>, Failure> {
        let parse = |name: &&String| {
            let unknown = || Failure::environment(format!("there is no experiment {name:?}"), REPORT_DEFECT);
            Ok(((*name).clone(), parse(name).ok_or_else(unknown)?))
        };
        self.experiments().iter().map(parse).collect()
    }

    /// Returns the parameters that were fitted to the table and that the run's experiments use: if there are
    /// any, the row predicts nothing.
    pub(super) fn fitted<'a>(
        &'a self,
        table: &'a Table,
        run: &'a Run,
    ) -> impl Iterator<Item = &'a Parameter> {
        self.parameters.iter().filter(move |parameter| {
            let Provenance::Fitted(tables) = &parameter.provenance else { return false };
            tables.contains(&table.at) && run.experiments().iter().any(|name| parameter.is_used_by(name))
        })
    }
}
