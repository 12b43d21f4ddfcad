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
    let TraceError::UnknownFormat { trace, found, known } = error else {
        return Failure::from_message(ErrorKind::Usage, &error.to_string());
    };
    let found = found.to_string();
    // An excerpt has bytes that are not UTF-8 replaced, and control characters escaped.
    let message = match found.contains(char::REPLACEMENT_CHARACTER) || found.contains("\\u{") {
        true => format!("{trace} is not text, and no binary format of traces"),
        false => format!("{trace}: no format is known whose first line is {found}"),
    };
    let help =
        "check that it is a trace; if it is, name its format with --format (weir trace convert: --from)";
    Failure::usage(message, format!("{help}, one of {known}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_trace_is_suspected() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let said = |content: &[u8]| {
            std::fs::write(&path, content).expect("written");
            let failure = open(&path, None, "").expect_err("no trace");
            format!("{} -> {}", failure.message, failure.help)
        };
        let text = said(b"[pool]\nname = \"x\"\n");
        assert!(text.contains("whose first line is \"[pool]\" -> check that it is a trace"), "{text}");
        assert!(text.contains("--format (weir trace convert: --from), one of weir, msr"), "{text}");
        for binary in
            [&b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0"[..], &[0xde, 0xad, 0xbe, 0xef].repeat(16)]
        {
            let said = said(binary);
            assert!(said.contains("is not text, and no binary format") && !said.contains("ELF"), "{said}");
        }
    }
}
