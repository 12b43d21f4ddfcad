//! The output of commands. Results go to standard output: one JSON document, or text for people that fits the
//! terminal. Everything else goes to standard error.
//!
//! Output that could not be written is recorded, and [`finish`] then fails the command. A closed pipe is not
//! a failure: its reader needs no more. A failure of either stream never ends the process: a server continues
//! when its log is full.

mod number;
mod table;
#[cfg(test)]
pub(crate) mod testing;
mod width;

pub use number::{exact, grouped};
pub use table::{Spill, Table};
pub use width::Width;

use crate::failure::Failure;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write as _};
use std::sync::Mutex;

/// The first error that lost output.
static FIRST_ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints `document` with `--json`, else the result of `human`.
pub fn print(json: bool, document: &impl Serialize, human: impl FnOnce() -> String) {
    if !json {
        return print_text(&printable(&human()));
    }
    match serde_json::to_string_pretty(document) {
        Ok(text) => print_text(&text),
        Err(error) => record_result(Err(io::Error::other(error))),
    }
}

/// Prints text and ends it with a newline.
pub fn print_text(text: &str) {
    let mut out = io::stdout().lock();
    record_result(writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()));
}

/// Escapes characters that control terminals: names of files and volumes may have them.
fn printable(text: &str) -> Cow<'_, str> {
    let controls = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    if !text.contains(controls) {
        return text.into();
    }
    let escape = |char| if controls(char) { char.escape_default().to_string() } else { String::from(char) };
    text.chars().map(escape).collect::<String>().into()
}

/// Records the result of a write to standard output.
pub fn record_result(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
        && let Ok(mut lost) = FIRST_ERROR.lock()
    {
        lost.get_or_insert(error);
    }
}

/// Checks that everything printed has been written.
///
/// # Errors
/// Fails if some of the output was lost, for example because a disk is full.
pub fn finish() -> Result<(), Failure> {
    let lost = FIRST_ERROR.lock().ok().and_then(|mut lost| lost.take());
    lost.map_or(Ok(()), |error| {
        let message =
            format!("cannot write to standard output: {error}; what was printed there is not whole");
        Err(Failure::environment(
            message,
            "what the command was asked to do is done, unless it says otherwise",
        ))
    })
}

/// Prints a message on standard error, folded to the terminal's width. An error of the write is ignored.
pub fn print_stderr(message: &str) {
    let text = Width::of_stderr().fold(&printable(message));
    // There is nowhere left to report an error of standard error.
    let _ = writeln!(io::stderr().lock(), "{}", text.trim_end());
}

/// Returns a table with a heading row that fits `width`; columns that do not fit go below their row. See
/// [`Table`].
pub fn table<const N: usize>(
    width: Width,
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    Table::new(heading, rows).text(width)
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn names_do_not_control_the_terminal() {
        assert_eq!(
            printable("a\u{1b}[2Jb\r\u{9b}1m\u{7f}\n\tc é磁"),
            "a\\u{1b}[2Jb\\r\\u{9b}1m\\u{7f}\n\tc é磁"
        );
        assert!(matches!(printable("plain\n"), std::borrow::Cow::Borrowed(_)));
    }
}
