//! Traces that commands read from files or from standard input.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use weir_model::ErrorKind;
use weir_trace::{Format, Reader, TraceError};

/// The path that stands for standard input and output.
pub const STANDARD_STREAM: &str = "-";

/// Opens the trace in a file, or standard input for `-`. `help` says what to do if the file does not exist;
/// without `format` the format is detected.
///
/// # Errors
/// Fails if the file does not exist, cannot be opened, or is no trace.
pub fn open(path: &Path, format: Option<&Format>, help: &str) -> Result<Reader<'static>, Failure> {
    let input: Box<dyn BufRead + Send> = if path.as_os_str() == STANDARD_STREAM {
        Box::new(BufReader::new(io::stdin()))
    } else {
        buffered(file(path, help)?)
    };
    Reader::open(path.display().to_string(), input, format).map_err(|error| trace_failure(&error))
}

/// Opens the file of a trace.
///
/// # Errors
/// Fails if the file does not exist, cannot be opened, or is a folder; `help` says what to do if it does not
/// exist.
pub(crate) fn file(path: &Path, help: &str) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::usage(format!("there is no trace {}", path.display()), help),
        _ => Failure::os("open", path, &error),
    })?;
    if file.metadata().is_ok_and(|there| there.is_dir()) {
        return Err(Failure::usage(format!("{} is a folder", path.display()), "name a trace in it"));
    }
    Ok(file)
}

/// Buffers a file, so that it is read in large pieces.
pub(crate) fn buffered(input: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(1 << 20, input))
}

/// Returns the failure for an error in a trace.
pub fn trace_failure(error: &TraceError) -> Failure {
    Failure::from_message(ErrorKind::Usage, &error.to_string())
}

/// Checks that an output file is not the trace that the command reads.
///
/// # Errors
/// Fails if both paths lead to one file.
pub fn refuse_input_as_output(trace: &Path, out: &Path) -> Result<(), Failure> {
    match (trace.canonicalize(), out.canonicalize()) {
        (Ok(trace), Ok(same)) if trace == same => Err(Failure::refused(
            format!("{} is the trace itself", out.display()),
            "name another file to write",
        )),
        _ => Ok(()),
    }
}
