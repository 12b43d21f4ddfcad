//! `weir trace`: traces from one format to another, made up, recorded, analysed, drawn, and which formats there are.

mod analyze;
mod convert;
mod generate;
mod output;
mod record;

pub use analyze::{analyze, drawn, human, not_the_trace, plot};
pub use convert::convert;
pub use generate::{generate, kinds};
pub use record::record;

use crate::args::{Part, SpanArgs};
use crate::failure::Failure;
use crate::output::{Table, Width};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use weir_model::ErrorKind;
use weir_trace::{FORMATS, Format, Reader, TraceError, seek, seek_number, tells_disks, writable};

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
    let input: Box<dyn BufRead + Send> = if path.as_os_str() == STANDARD {
        Box::new(BufReader::new(io::stdin()))
    } else {
        buffered(file(path, help)?)
    };
    Reader::open(path.display().to_string(), input, format).map_err(|error| told(&error))
}

fn file(path: &Path, help: &str) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::usage(format!("there is no trace {}", path.display()), help),
        _ => Failure::os("open", path, &error),
    })?;
    if file.metadata().is_ok_and(|there| there.is_dir()) {
        return Err(Failure::usage(format!("{} is a folder", path.display()), "name a trace in it"));
    }
    Ok(file)
}

fn buffered(input: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(1 << 20, input))
}

/// As [`open`], but of the trace only what the arguments say; the rest is not even read where the format and the file let
/// it be found.
///
/// # Errors
/// As [`open`], or if the span ends before it begins.
fn open_span(
    path: &Path,
    format: Option<&Format>,
    span: &SpanArgs,
    help: &str,
) -> Result<Reader<'static>, Failure> {
    let part = span.part()?;
    let is_file = std::fs::metadata(path).is_ok_and(|there| there.is_file());
    let may_seek = is_file && format.is_none_or(|format| format.name == OWN);
    let cannot = |error: io::Error| Failure::os("read", path, &error);
    let of = |input| Reader::open(path.display().to_string(), input, format).map_err(|error| told(&error));
    match part {
        Part::Time(span) if may_seek => {
            if let Ok(found) = seek(file(path, help)?, span).map_err(cannot)? {
                return Ok(of(buffered(found.input))?.within(span, Some(found.first)));
            }
        }
        Part::Numbers(numbers) if may_seek => {
            if let Ok(found) = seek_number(file(path, help)?, numbers.start).map_err(cannot)? {
                return Ok(of(buffered(found.input))?.numbered(numbers, found.before));
            }
        }
        _ => {}
    }
    let reader = open(path, format, help)?;
    Ok(match span.part()? {
        Part::Whole => reader,
        Part::Time(span) => reader.within(span, None),
        Part::Numbers(numbers) => reader.numbered(numbers, 0),
    })
}

/// What is wrong with a trace.
pub fn told(error: &TraceError) -> Failure {
    Failure::told(ErrorKind::Usage, &error.to_string())
}

/// What is to be said of disks that are no longer told apart.
fn merged(format: &Format, disks: usize) -> Option<String> {
    (disks > 1 && !tells_disks(format)).then(|| {
        format!(
            "{} does not say which disk a request is to: read again, all {disks} disks are one; another format, such as weir \
             or msr, keeps them apart",
            format.name
        )
    })
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
pub fn list(formats: &[Known], width: Width) -> String {
    let row = |known: &Known| [known.name, if known.written { "read, written" } else { "read" }, known.about];
    let table = Table::new(["NAME", "", "WHAT IT IS"], formats.iter().map(row));
    let text = table.prose("WHAT IT IS").text(width);
    text + "\nOthers: csv:COLUMN,... or blanks:COLUMN,..., as in csv:time_us,disk,op,offset,size (docs/traces.md)\n"
}
