//! Formats published figures and verdicts.

use super::published::{Direction, Interval, Published};
use super::verdict::Verdict;
use schemars::JsonSchema;
use serde::Serialize;

/// Returns a verdict in words.
pub(super) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::InDirection => "in direction",
        Verdict::Differs => "differs",
    }
}

/// Returns a published figure.
pub(super) fn published(published: &Published) -> String {
    let range = |interval: Interval, scale: f64, digits: usize, unit: &str| {
        let (least, most) = (interval.least * scale, interval.most * scale);
        let [least, most] = [least, most].map(|value| format!("{value:.digits$}"));
        if least == most { format!("{least}{unit}") } else { format!("{least} to {most}{unit}") }
    };
    match published {
        Published::Ratio(interval) => range(*interval, 1.0, 2, ""),
        Published::Share(interval) => range(*interval, 100.0, 0, " %"),
        Published::Direction(Direction::More) => "above 1".into(),
        Published::Direction(Direction::Less) => "below 1".into(),
        Published::Words(quote) | Published::WordsOr(quote, _) => format!("\"{quote}\""),
        Published::Unreadable(why) => why.clone(),
    }
}

/// A published figure.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Published")]
#[serde(rename_all = "snake_case")]
pub(super) enum PublishedPart<'a> {
    /// A ratio to the baseline: the least and the greatest that the printed digits stand for.
    Ratio([f64; 2]),
    /// A share, from 0 to 1, likewise.
    Share([f64; 2]),
    /// A direction: more or less than the baseline.
    Direction(#[schemars(extend("enum" = ["more", "less"]))] &'static str),
    /// Words that say that both are about equal.
    Words(&'a str),
    /// A figure without a number, and why it cannot be read.
    Unreadable(&'a str),
}

impl<'a> From<&'a Published> for PublishedPart<'a> {
    fn from(published: &'a Published) -> Self {
        match published {
            Published::Ratio(interval) => Self::Ratio([interval.least, interval.most]),
            Published::Share(interval) => Self::Share([interval.least, interval.most]),
            Published::Direction(Direction::More) => Self::Direction("more"),
            Published::Direction(Direction::Less) => Self::Direction("less"),
            Published::Words(quote) | Published::WordsOr(quote, _) => Self::Words(quote),
            Published::Unreadable(why) => Self::Unreadable(why),
        }
    }
}
