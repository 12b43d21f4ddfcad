//! Errors of traces: what is wrong, where, and what to do.

use std::fmt;
use thiserror::Error;

/// Maximum length of an excerpt in a message, in characters.
const EXCERPT_MAX: usize = 60;

/// An excerpt of a trace in a message: printable, and of limited length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt(String);

impl Excerpt {
    /// Makes an excerpt of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        // A character has at most four bytes.
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * EXCERPT_MAX)]);
        let mut shown: String = text.chars().take(EXCERPT_MAX).collect();
        if shown.len() < bytes.len() {
            shown.push('…');
        }
        Self(shown)
    }

    /// Shows binary data in hexadecimal.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            "" => f.write_str("nothing"),
            text => write!(f, "{text:?}"),
        }
    }
}

/// Why a trace, or a line of it, cannot be read. Messages have the form "what is wrong; what to do".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The lines fit no format.
    #[error("{trace}: no format is known whose first line is {found}; say which it is: one of {known}")]
    UnknownFormat {
        /// Trace name.
        trace: String,
        /// Its first line.
        found: Excerpt,
        /// Names of all formats.
        known: String,
    },
    /// A malformed line. The lines after it can be read.
    #[error(
        "{trace}, line {line}, column {column}: {wanted} expected, {found} found; \
         correct the line, leave it out, or name another format than {format}"
    )]
    Line {
        /// Trace name.
        trace: String,
        /// Line number, from 1.
        line: u64,
        /// Byte within the line, from 1.
        column: usize,
        /// The expected value.
        wanted: &'static str,
        /// The value found.
        found: Excerpt,
        /// The format it was read as.
        format: String,
    },
    /// The trace is truncated, or cannot be read any further.
    #[error("{trace} breaks off after {unit} {line}: {why}; get the rest of it, or go on with what there is")]
    Truncated {
        /// Trace name.
        trace: String,
        /// Number of the last readable line or record.
        line: u64,
        /// The unit counted: `line` or `record`.
        unit: &'static str,
        /// The error that ended it.
        why: String,
    },
    /// The trace has no requests.
    #[error("{trace} holds no request; check that it is the right file")]
    Empty {
        /// Trace name.
        trace: String,
    },
    /// The selected part has no requests.
    #[error("{trace} holds no request in that part of it; name another one, counted from its first request")]
    EmptySelection {
        /// Trace name.
        trace: String,
    },
    /// There are more malformed lines than valid ones.
    #[error("{bad} of {lines} lines of {trace} are not as the format says; the first is {first}")]
    MostlyMalformed {
        /// Trace name.
        trace: String,
        /// Number of malformed lines.
        bad: u64,
        /// Number of all lines.
        lines: u64,
        /// What is wrong with the first malformed line.
        first: Box<TraceError>,
    },
}
