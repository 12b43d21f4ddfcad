//! What a reproduction came to, for people and as JSON.

use super::lab::Results;
use super::{Figure, Published, Verdict};
use crate::output::{Table, Width, table};
use serde_json::json;
use weir_sim::{Outcome, Responses};

/// What experiments came to.
pub(super) trait Experiments: std::fmt::Debug {
    /// Each of them, for `--json`.
    fn json(&self) -> Vec<serde_json::Value>;
    /// All of them, for people.
    fn table(&self, width: Width) -> String;
}

/// A reproduction that was run.
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
    /// The document `--json` prints.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let figure = |figure: &Figure| {
            let published = match figure.published {
                Published::Size(size) => json!(size),
                Published::Between(least, most) => json!([least, most]),
                Published::More => json!("more than 1"),
                Published::Less => json!("less than 1"),
            };
            json!({
                "what": figure.what,
                "published": published,
                "here": figure.here,
                "verdict": verdict(figure),
            })
        };
        json!({
            "reproduction": self.name,
            "source": self.source,
            "seed": self.seed,
            "figures": self.figures.iter().map(figure).collect::<Vec<_>>(),
            "experiments": self.experiments.json(),
            "notes": self.notes,
        })
    }

    /// Two tables: the figures, and what the experiments came to.
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

impl Experiments for Results {
    fn json(&self) -> Vec<serde_json::Value> {
        self.all().map(|(name, outcome)| json!({ "name": name, "outcome": outcome })).collect()
    }

    fn table(&self, width: Width) -> String {
        let heading = ["EXPERIMENT", "WORK/S", "REQUESTS/S", "MB/S", "READS", "WRITES", "MOVED", "DEVICES"];
        table(width, heading, self.all().map(experiment_row))
    }
}

fn verdict(figure: &Figure) -> &'static str {
    match figure.verdict() {
        Verdict::Agrees => "agrees",
        Verdict::Size => "differs in size",
        Verdict::Direction => "differs in direction",
    }
}

fn figure_row(figure: &Figure) -> [String; 4] {
    let published = match figure.published {
        Published::Size(size) => format!("{size:.2}"),
        Published::Between(least, most) => format!("{least:.2} to {most:.2}"),
        Published::More => "above 1".into(),
        Published::Less => "below 1".into(),
    };
    [figure.what.clone(), published, format!("{:.2}", figure.here), verdict(figure).into()]
}

fn experiment_row((name, outcome): (&str, &Outcome)) -> [String; 8] {
    let share = |device: &weir_sim::DeviceOutcome| {
        format!("{} {:.0} % busy {:.0} %", device.model, device.served * 100.0, device.load * 100.0)
    };
    let mean = |responses: &Responses| {
        responses.known(responses.mean).map_or_else(|| "-".to_owned(), |mean| mean.to_string())
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
