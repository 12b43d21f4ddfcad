//! Results on standard output: one JSON document, or text for people that fits the terminal.

mod number;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod width;

pub use number::{exact, grouped};
pub use table::{Spill, Table};
pub use width::Width;

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

/// Prints a message on standard error, folded to the terminal's width.
pub fn tell(message: &str) {
    eprintln!("{}", Width::of_stderr().fold(message).trim_end());
}

/// A table with a heading row that fits `width`; columns that do not fit go below their row. See [`Table`].
pub fn table<const N: usize>(
    width: Width,
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    Table::new(heading, rows).text(width)
}
