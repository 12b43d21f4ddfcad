//! Helpers for tests that reports fit terminals of many widths.

use super::Width;
use std::collections::BTreeSet;
use unicode_width::UnicodeWidthStr as _;

/// A name that is longer than usual.
pub(crate) const LONG_NAME: &str =
    "nvme-SAMSUNG_MZVL21T0HCLR-00BL7_S64NNX0T123456-part1-of-the-machine-in-the-cellar";

/// Format of the trace that [`write_trace`] writes.
pub(crate) const TRACE_FORMAT: &str = "csv:time_us,disk,op,offset,size";

/// Writes a trace of 2000 requests to a folder and returns its path.
pub(crate) fn write_trace(folder: &std::path::Path) -> String {
    let op = |n: u64| if n.is_multiple_of(3) { "W" } else { "R" };
    let line = |n: u64| format!("{},sda,{},{},8192\n", n * 1000, op(n), (n * n % 977) << 30);
    let path = folder.join("trace.csv");
    std::fs::write(&path, (0..2000).map(line).collect::<String>()).expect("written");
    path.to_str().expect("text").to_owned()
}

/// Asserts that no line of a report is too long, and that no word or number in it is broken.
#[track_caller]
pub(crate) fn assert_fits(human: impl Fn(Width) -> String) {
    let whole = human(Width::UNLIMITED);
    let whole: BTreeSet<_> = whole.split_whitespace().collect();
    for columns in [40, 60, 80, 100, 200] {
        let width = Width::columns(columns);
        let text = width.fold(&human(width));
        for line in text.lines() {
            let is_whole_word = line.split_whitespace().count() == 1;
            assert!(
                line.width() <= columns || is_whole_word,
                "{} columns of {columns}: {line:?} in\n{text}",
                line.width()
            );
        }
        let broken = |word: &&str| !whole.contains(word) && !word.contains('…');
        let table = text.lines().filter(|line| !line.starts_with("(--wide") && !line.ends_with("names)"));
        for word in table.flat_map(str::split_whitespace).filter(broken) {
            // A line below the table names the columns and names that it leaves out.
            assert!(text.contains("(--wide") && word.ends_with([',', ')']), "{word:?} is broken in\n{text}");
        }
    }
}
