//! The published figures of a reproduction, and its parameters, from the data file beside the code.
//!
//! Each figure, table and statement of the publication's evaluation is listed as a row. A row says how it is
//! measured here, or what is missing for that.

use serde::Deserialize;

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
    /// What the publication says about the experiment.
    #[serde(default)]
    pub(super) setup: String,
    #[serde(rename = "row", default)]
    pub(super) rows: Vec<Row>,
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
    pub(super) source: Source,
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
    /// The experiment.
    pub(super) of: String,
    /// The experiment of the baseline; `None` if the row is a share.
    pub(super) to: Option<String>,
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
    unreadable: Option<String>,
    #[serde(default)]
    quote: String,
    pair: Option<String>,
    run: Option<Run>,
    missing: Option<String>,
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
        all.extend(raw.words.clone().map(Published::Words));
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
            (Published::Unreadable(_), ..) => return fault("an unreadable figure cannot be measured"),
            (Published::Share(_), Some(run), None) if run.to.is_none() => Source::Run(run),
            (Published::Share(_), Some(_), None) => return fault("a share has no baseline"),
            (_, Some(run), None) if run.to.is_some() => Source::Run(run),
            (_, Some(_), None) => return fault("a ratio needs the experiment of the baseline"),
            (_, None, Some(missing)) => Source::Missing(missing),
            _ => return fault("it has either `run` or `missing`"),
        };
        Ok(Self { quantity: raw.quantity, published, quote: raw.quote, pair: raw.pair, source })
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
        Ok(Self { name: raw.name, what: raw.what, value: raw.value, provenance, loads: raw.loads })
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
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// Returns all rows with their tables.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Table, &Row)> {
        self.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)))
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
            let is_used = |name: &String| parameter.is_used_by(name);
            tables.contains(&table.at) && (is_used(&run.of) || run.to.as_ref().is_some_and(is_used))
        })
    }
}
