//! Draws the demo's bars as an SVG picture.

use super::report::{Outcome, Report, time};
use crate::commands::advise::device_list::decimal_size;
use crate::output::{Width, grouped};
use std::fmt::Write as _;
use weir_model::Bytes;

/// Width of the picture, and the positions at which bars begin and end, in points.
const WIDTH: f64 = 800.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 550.0;
const ROW: f64 = 58.0;
/// Blue, green and orange, which colour-blind people can tell apart.
const COLORS: [&str; 3] = ["#0072b2", "#009e73", "#e69f00"];

/// Draws the bars, whose length is requests a second for 100 units of the currency.
pub(super) fn svg(report: &Report) -> String {
    let currency = &report.currency;
    let load = Width::columns(105).fold(&report.load.description());
    let height = 70.0 + 18.0 * load.lines().count() as f64 + ROW * report.configurations.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let title = format!("weir demo: requests a second for 100 {currency}");
    text(&mut out, (16.0, 30.0), 17.0, "#222222", &title);
    let most = report.configurations.iter().map(|outcome| outcome.requests_per_second_per_100);
    let most = most.fold(1.0, f64::max);
    let mut top = 48.0;
    for (outcome, color) in report.configurations.iter().zip(COLORS) {
        row(&mut out, top, outcome, color, most, currency);
        top += ROW;
    }
    for line in load.lines() {
        top += 18.0;
        text(&mut out, (16.0, top), 13.0, "#555555", line);
    }
    out + "</svg>\n"
}

fn row(out: &mut String, top: f64, outcome: &Outcome, color: &str, most: f64, currency: &str) {
    let value = outcome.requests_per_second_per_100;
    let length = (value / most * (RIGHT - LEFT)).max(1.0);
    let capacity = decimal_size(Bytes(outcome.capacity_bytes));
    text(out, (16.0, top + 18.0), 15.0, "#222222", outcome.name);
    text(out, (16.0, top + 36.0), 13.0, "#555555", &format!("{capacity}, {} {currency}", outcome.price));
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"36\" fill=\"{color}\"/>",
        top + 4.0
    );
    let x = LEFT + length + 8.0;
    text(out, (x, top + 18.0), 15.0, "#222222", &grouped(value.round() as u64));
    let rate = grouped(outcome.measured.requests_per_second.round() as u64);
    let measured = format!("{rate} requests/s, mean read {}", time(outcome.measured.read_mean_ns));
    text(out, (x, top + 36.0), 12.0, "#555555", &measured);
}

fn text(out: &mut String, (x, y): (f64, f64), size: f64, color: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ =
        writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{color}\">{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_bars_are_as_long_as_their_values() {
        let picture = svg(&report());
        assert!(picture.contains("width=\"340.0\" height=\"36\" fill=\"#009e73\""), "{picture}");
        assert_eq!(picture.matches("<rect x=").count(), 3);
        assert!(picture.contains(">4.5 TB, 190 USD<") && picture.contains(">503<"), "{picture}");
        crate::picture::png(&picture).expect("it can be drawn");
    }
}
