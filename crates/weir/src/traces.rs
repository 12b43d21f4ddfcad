//! `weir trace`: traces from one format to another, made up, analysed, drawn, and which formats there are.

mod analyze;
mod convert;
mod generate;
mod output;

pub use analyze::{Analyzed, analyze, plot};
pub use convert::convert;
pub use generate::{generate, kinds};

use crate::failure::Failure;
use crate::output::table;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use weir_model::ErrorKind;
use weir_trace::{FORMATS, Format, Reader, TraceError, writable};

/// weir's own format.
const OWN: &str = "weir";
/// What stands for standard input and output.
pub const STANDARD: &str = "-";

/// A reader of the trace in a file, or of standard input for `-`. `help` says what to do if there is none; without
/// `format` it is found out.
///
/// # Errors
/// If it is not there, or cannot be opened, or is no trace.
pub fn open(path: &Path, format: Option<&Format>, help: &str) -> Result<Reader<'static>, Failure> {
    let input: Box<dyn BufRead> = if path.as_os_str() == STANDARD {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::usage(format!("there is no trace {}", path.display()), help),
            _ => Failure::os("open", path, &error),
        })?;
        Box::new(BufReader::with_capacity(1 << 20, file))
    };
    Reader::open(path.display().to_string(), input, format).map_err(|error| told(&error))
}

/// What is wrong with a trace.
pub fn told(error: &TraceError) -> Failure {
    Failure::told(ErrorKind::Usage, &error.to_string())
}

/// One format, for `weir trace formats`.
#[derive(Debug, Serialize)]
pub struct Known {
    name: &'static str,
    about: &'static str,
    timed: bool,
    written: bool,
}

/// All formats.
pub fn formats() -> Vec<Known> {
    let known = |format: &'static Format| Known {
        name: &format.name,
        about: format.about,
        timed: format.timed,
        written: writable().any(|name| name == format.name),
    };
    FORMATS.iter().map(known).collect()
}

/// All formats, for people.
pub fn list(formats: &[Known]) -> String {
    let row = |known: &Known| {
        [known.name.into(), if known.written { "read, written" } else { "read" }.into(), known.about.into()]
    };
    let text = table(["NAME", "", "WHAT IT IS"], formats.iter().map(row));
    text + "\nOthers: csv:COLUMN,... or blanks:COLUMN,..., as in csv:time_us,disk,op,offset,size (docs/traces.md)\n"
}
