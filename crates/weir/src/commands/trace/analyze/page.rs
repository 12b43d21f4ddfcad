//! Formats an analysis as one HTML file, with its plots in it.

use super::{heading, tables};
use weir_sim::analysis::TraceAnalysis;
use weir_sim::plot::TracePlot;

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:940px;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{padding:.15em .9em .15em 0;text-align:left;\
    border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}th{font-weight:600;font-size:12px;color:#666}\
    h1{font-size:22px}h2{font-size:17px;margin-top:1.6em}svg{max-width:100%;height:auto}";

/// Returns the page.
pub(super) fn html(analyzed: &TraceAnalysis) -> String {
    let heading = escaped(&heading(analyzed));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{heading}</title>\n<style>{STYLE}</style>\n\
         <h1>{heading}</h1>\n"
    );
    for part in tables::all(analyzed) {
        page += &format!("<h2>{}</h2>\n<table>\n<tr>", escaped(part.title));
        page.extend(part.heading.iter().map(|cell| format!("<th>{}</th>", escaped(cell))));
        for row in &part.rows {
            page += "</tr>\n<tr>";
            page.extend(row.iter().map(|cell| format!("<td>{}</td>", escaped(cell))));
        }
        page += "</tr>\n</table>\n";
    }
    for (title, picture) in pictures(analyzed) {
        page += &picture.svg(title);
    }
    for note in &analyzed.notes {
        page += &format!("<p>note: {}</p>\n", escaped(note));
    }
    page + "</html>\n"
}

fn pictures(analyzed: &TraceAnalysis) -> Vec<(&'static str, TracePlot<'_>)> {
    let of = &analyzed.analysis;
    let runs = &of.sequentiality;
    let mut all = vec![
        ("Miss ratios by cache size", analyzed.miss_ratios()),
        ("Accesses by time and place", analyzed.hot_spots()),
        ("Footprint over time", analyzed.footprint()),
        (
            "Sizes of requests and sequential runs",
            TracePlot::Spreads(
                "bytes",
                vec![("reads", &of.read_sizes), ("writes", &of.write_sizes), ("runs", &runs.run_bytes)],
            ),
        ),
        ("Reuse distances", TracePlot::Spreads("blocks of 4 KiB", vec![("accesses", &of.reuse_distances)])),
    ];
    if let Some(arrivals) = &of.arrivals {
        all.push((
            "Gaps between requests",
            TracePlot::Spreads("nanoseconds", vec![("gaps", &arrivals.gaps)]),
        ));
    }
    if let Some(times) = &of.reuse_times {
        let spreads = vec![
            ("read after write", &times.read_after_write),
            ("write after write", &times.write_after_write),
        ];
        all.push(("Time since the write before", TracePlot::Spreads("nanoseconds", spreads)));
    }
    all
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html += "&amp;",
            '<' => html += "&lt;",
            '>' => html += "&gt;",
            '"' => html += "&quot;",
            other => html.push(other),
        }
    }
    html
}
