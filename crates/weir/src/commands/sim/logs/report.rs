//! Formats the results of `weir sim logs` as text, as JSON and as a plot.

use super::LogsArgs;
use crate::output::{Table, Width, table};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::Bytes;
use weir_sim::logs::{LogFigures, StackOutcome};
use weir_sim::plot::{AmplificationLine, AmplificationPanel, amplification_svg};

/// The results of one load on stacks of logs.
#[derive(Debug)]
pub(in crate::commands::sim) struct LogsComparison {
    load: String,
    seed: u64,
    data: Bytes,
    trim: bool,
    precondition: String,
    reserve: f64,
    policies: [String; 2],
    notes: Vec<String>,
    results: Vec<StackResult>,
}

/// The document of `weir sim logs`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir sim logs")]
pub(crate) struct LogsDocument<'a> {
    /// The trace or the load, as on the command line.
    load: &'a str,
    /// The random seed.
    seed: u64,
    /// Whether addresses of erased segments are trimmed below.
    trim: bool,
    /// How the logs were filled before the load: `empty`, `fill` or `age`.
    precondition: &'a str,
    /// Share of each log's segments that cleaning keeps free.
    reserve: f64,
    /// Victim policies of the upper layer and of those below.
    policies: &'a [String; 2],
    /// What of the trace could not be read or used as it is.
    notes: &'a [String],
    /// The stacks: for each capacity ratio, each segment of the upper logs, and each of the lower ones.
    results: &'a [StackResult],
}

/// A stack of logs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StackResult {
    /// Size of a layer to that of the next one, less its reserve.
    pub(super) capacity_ratio: f64,
    /// Segment size of each layer, from the first.
    pub(super) segment_bytes: Vec<u64>,
    /// What it did; `null` if it cannot be simulated.
    pub(super) outcome: Option<StackOutcome>,
    /// Why it cannot be simulated; `null` if it can.
    pub(super) error: Option<String>,
}

impl LogsComparison {
    pub(super) fn new(args: &LogsArgs, data: Bytes, notes: Vec<String>, results: Vec<StackResult>) -> Self {
        let lower = args.lower_policy.as_ref().unwrap_or(&args.policy);
        Self {
            load: args.load.clone(),
            seed: args.seed,
            data,
            trim: args.trim,
            precondition: args.precondition.clone(),
            reserve: args.reserve,
            policies: [args.policy.clone(), lower.clone()],
            notes,
            results,
        }
    }

    /// Returns the document that `--json` prints.
    pub(in crate::commands::sim) fn document(&self) -> LogsDocument<'_> {
        LogsDocument {
            load: &self.load,
            seed: self.seed,
            trim: self.trim,
            precondition: &self.precondition,
            reserve: self.reserve,
            policies: &self.policies,
            notes: &self.notes,
            results: &self.results,
        }
    }

    /// Returns the text that is printed without `--json`: a row for each stack, and the logs of a single one.
    pub(in crate::commands::sim) fn human(&self, width: Width) -> String {
        let [upper, lower] = &self.policies;
        let policies = if upper == lower {
            format!("{upper} victims")
        } else {
            format!("victims: {upper}, below {lower}")
        };
        let trim = if self.trim { "TRIM passed down" } else { "no TRIM passed down" };
        let before = match &self.precondition[..] {
            "empty" => "empty logs",
            "fill" => "logs filled once",
            _ => "aged logs",
        };
        let mut text = format!(
            "{}\n{} of data; of each log's segments {:.0} % are kept free and 1 is open\n\
             ratio: size of a layer / (size of the next one - its reserve)\n\
             {before}, {policies}, {trim}, seed {}\n\n",
            self.load,
            self.data,
            self.reserve * 100.0,
            self.seed
        );
        let heading = ["RATIO", "SEGMENTS", "FSWA", "FLWA", "TCWA", "STEADY", "WARM-UP", "DEFRAGMENTED"];
        let done = |result: &StackResult| Some(stack_row(result, result.outcome.as_ref()?));
        let stacks = Table::new(heading, self.results.iter().filter_map(done));
        text += &stacks.removed_first(&["DEFRAGMENTED"]).text(width);
        if let [result] = &self.results[..]
            && let Some(outcome) = &result.outcome
        {
            text += "\n";
            text += &logs(outcome, width);
            text += "USED: U / T, valid pages / pages of all segments but the free and open ones kept\n";
        }
        for result in &self.results {
            if let Some(error) = &result.error {
                text += &format!(
                    "\nratio {:.0} %, segments {}: {error}\n",
                    result.capacity_ratio * 100.0,
                    segments(&result.segment_bytes)
                );
            }
        }
        self.notes.iter().for_each(|note| text += &format!("\nnote: {note}\n"));
        text
    }

    /// Draws TCWA by the segment of the lower logs: a panel for each ratio, a line for each upper segment.
    pub(super) fn svg(&self) -> String {
        let mut panels: Vec<(f64, AmplificationPanel)> = Vec::new();
        for result in &self.results {
            let (Some(outcome), [upper, lower, ..]) = (&result.outcome, &result.segment_bytes[..]) else {
                continue;
            };
            let ratio = result.capacity_ratio;
            let at = panels.iter().position(|(of, _)| (of - ratio).abs() < 1e-9).unwrap_or_else(|| {
                let name = format!("capacity ratio {:.0} %", ratio * 100.0);
                panels.push((ratio, AmplificationPanel { name, lines: Vec::new() }));
                panels.len() - 1
            });
            let lines = &mut panels[at].1.lines;
            let name = format!("upper segments of {}", Bytes(*upper));
            let point = (Bytes(*lower), outcome.total_amplification);
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(AmplificationLine { name, points: vec![point] }),
            }
        }
        let panels: Vec<_> = panels.into_iter().map(|(_, panel)| panel).collect();
        amplification_svg(&format!("Logs on logs: {}", self.load), &panels)
    }
}

fn segments(bytes: &[u64]) -> String {
    bytes.iter().map(|bytes| Bytes(*bytes).to_string()).collect::<Vec<_>>().join(" on ")
}

fn stack_row(result: &StackResult, outcome: &StackOutcome) -> [String; 8] {
    let defragmented = |pages: u64| Bytes(pages * outcome.page_bytes).to_string();
    [
        format!("{:.0} %", result.capacity_ratio * 100.0),
        segments(&result.segment_bytes),
        format!("{:.3}", outcome.first_amplification),
        format!("{:.3}", outcome.last_amplification),
        format!("{:.3}", outcome.total_amplification),
        if outcome.steady { "yes" } else { "no" }.to_owned(),
        format!("{:.2} overwrites", outcome.warm_up_overwrites),
        outcome.defragger.map_or_else(|| "-".into(), |done| defragmented(done.pages)),
    ]
}

/// Returns the table of all logs of a stack.
fn logs(outcome: &StackOutcome, width: Width) -> String {
    let heading = ["LOG", "SIZE", "USED", "WA", "WRITTEN", "COPIED", "METADATA", "ERASES", "WEAR"];
    let rows = outcome.layers.iter().enumerate().flat_map(|(layer, figures)| {
        let logs = figures.logs.iter().enumerate();
        logs.map(move |(log, figures)| log_row(outcome, (layer + 1, log + 1), figures))
    });
    table(width, heading, rows)
}

fn log_row(outcome: &StackOutcome, (layer, log): (usize, usize), figures: &LogFigures) -> [String; 9] {
    let size = |pages: u64| Bytes(pages * outcome.page_bytes).to_string();
    let wear = &figures.wear;
    [
        format!("{layer}.{log}"),
        Bytes(figures.segment_bytes * u64::from(figures.segments)).to_string(),
        format!("{:.1} %", figures.utilisation * 100.0),
        figures.amplification.map_or_else(|| "-".into(), |amplification| format!("{amplification:.3}")),
        size(figures.written_pages),
        size(figures.copied_pages),
        size(figures.metadata_pages),
        figures.erases.to_string(),
        format!("{:.1} +- {:.1}", wear.mean, wear.deviation),
    ]
}
