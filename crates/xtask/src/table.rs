//! What a campaign has gone through, as tables.

use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Write;
use std::time::Duration;
use weir_world::{Moment, Statistics, Strike};

/// The whole summary.
pub(crate) fn summary(total: &Statistics, took: Duration) -> String {
    let mut out = String::new();
    let seconds = took.as_secs_f64().max(1e-9);
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let rows = [
        ("runs", total.runs.to_string()),
        ("crashes", format!("{} ({:.0}/s)", total.crashes, total.crashes as f64 / seconds)),
        ("operations", format!("{} ({:.0}/s)", total.requests, total.requests as f64 / seconds)),
        ("… without space", total.no_space.to_string()),
        ("… failed by a device", total.errors.to_string()),
        ("bytes compared", total.compared.to_string()),
        ("operations between crashes, median", total.median_gap().to_string()),
        ("crashes during recovery", format!("{:.1} %", percent(total.in_recovery, total.crashes))),
        (
            "crashes after the journal went around",
            format!("{:.1} %", percent(total.after_wrap, total.crashes)),
        ),
        ("crashes during a checkpoint", format!("{:.1} %", percent(total.in_checkpoint, total.crashes))),
        (
            "runs with space reused by another volume",
            format!("{:.1} %", percent(total.runs_with_reuse, total.runs)),
        ),
        ("damaged metadata noticed when opening", total.noticed.to_string()),
        ("… mended, or in nothing that counts", total.survived.to_string()),
        ("pools that may have lost their only journal's last frame", total.excepted.to_string()),
        ("damaged sectors of users' data read", total.damaged_data.to_string()),
        ("time", format!("{:.0} s", took.as_secs_f64())),
    ];
    let mut facts = Table::new();
    facts.load_style(presets::ASCII_MARKDOWN).set_header(["what", "how much"]);
    facts.add_rows(rows.map(|(what, much)| [what.to_owned(), much]));
    let _always_fits = write!(out, "\n{facts}\n\n{}\n", matrix(total));
    out
}

/// How often each thing happened at each moment.
fn matrix(total: &Statistics) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let name = |strike: &Strike| strike.to_string();
    table.set_header(["moment".to_owned()].into_iter().chain(Strike::ALL.iter().map(name)));
    for moment in Moment::all() {
        let hits = Strike::ALL.iter().map(|strike| total.hits(*strike, moment).to_string());
        table.add_row([moment.to_string()].into_iter().chain(hits));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
