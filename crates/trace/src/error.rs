//! What is wrong with a trace, where, and the way out.

use std::fmt;
use thiserror::Error;

/// Longest excerpt of a trace in a message, in characters.
const EXCERPT: usize = 60;

/// Bytes of a trace as they are shown in a message: printable, and not too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found(String);

impl Found {
    /// An excerpt of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        // A character takes at most four bytes.
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * EXCERPT)]);
        let mut shown: String = text.chars().take(EXCERPT).collect();
        if shown.len() < bytes.len() {
            shown.push('…');
        }
        Self(shown)
    }

    /// These bytes, which are no text, in hexadecimal.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            "" => f.write_str("nothing"),
            text => write!(f, "{text:?}"),
        }
    }
}

/// Why a trace, or a line of it, cannot be read. Messages have the form "what is wrong; the way out".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// No format has lines like these.
    #[error("{trace}: no format is known whose first line is {found}; say which it is: one of {known}")]
    UnknownFormat {
        /// The trace's name.
        trace: String,
        /// Its first line.
        found: Found,
        /// All formats' names.
        known: String,
    },
    /// A line that is not as the format says. The lines after it can be read.
    #[error(
        "{trace}, line {line}, column {column}: {wanted} expected, {found} found; \
         correct the line, leave it out, or name another format than {format}"
    )]
    Line {
        /// The trace's name.
        trace: String,
        /// The line, from 1.
        line: u64,
        /// The byte within the line, from 1.
        column: usize,
        /// What should stand there.
        wanted: &'static str,
        /// What stands there.
        found: Found,
        /// The format it was read as.
        format: String,
    },
    /// The trace ends in the middle, or cannot be read any further.
    #[error("{trace} breaks off after {unit} {line}: {why}; get the rest of it, or go on with what there is")]
    Cut {
        /// The trace's name.
        trace: String,
        /// The last line or record that could be read.
        line: u64,
        /// What is counted: `line` or `record`.
        unit: &'static str,
        /// What happened.
        why: String,
    },
    /// No request in it.
    #[error("{trace} holds no request; check that it is the right file")]
    Empty {
        /// The trace's name.
        trace: String,
    },
    /// No request in the part that is wanted.
    #[error("{trace} holds no request in that part of it; name another one, counted from its first request")]
    NoneInSpan {
        /// The trace's name.
        trace: String,
    },
    /// More bad lines than good ones.
    #[error("{bad} of {lines} lines of {trace} are not as the format says; the first is {first}")]
    MostlyBad {
        /// The trace's name.
        trace: String,
        /// Bad lines.
        bad: u64,
        /// All lines.
        lines: u64,
        /// What is wrong with the first of them.
        first: Box<TraceError>,
    },
}
