//! Formats published figures and verdicts.

use super::published::{Direction, Interval, Published};
use super::verdict::Verdict;

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
