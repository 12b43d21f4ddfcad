//! Results on standard output: one JSON document, or a table for people.

use comfy_table::{Table, presets};
use serde::Serialize;
use std::io::Write as _;

/// Prints `document` with `--json`, what `human` makes otherwise. A closed pipe is no error.
pub fn print(json: bool, document: &impl Serialize, human: impl FnOnce() -> String) {
    print_text(&if json { serde_json::to_string_pretty(document).unwrap_or_default() } else { human() });
}

/// Prints text. A closed pipe is no error.
pub fn print_text(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", text.trim_end());
}

/// A plain table with a heading row.
pub fn table<const N: usize>(heading: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    table_of(&heading, rows)
}

/// A plain table with a heading row, whose cells are as many as those of each row.
pub fn table_of(
    heading: &[impl ToString],
    rows: impl IntoIterator<Item = impl IntoIterator<Item = impl ToString>>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heading.iter().map(ToString::to_string));
    for row in rows {
        table.add_row(row.into_iter().map(|cell| cell.to_string()));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}
