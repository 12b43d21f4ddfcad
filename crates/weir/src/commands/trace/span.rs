//! Reads a part of a trace.

use crate::args::{TRACE, duration};
use crate::failure::Failure;
use crate::traces::{buffered, file, open, trace_failure};
use clap::Args;
use std::io;
use std::ops::Range;
use std::path::Path;
use weir_model::Nanos;
use weir_trace::{Format, Reader, Span, seek, seek_number};

/// Which part of a trace is read.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct SpanArgs {
    /// Begin TIME after the trace's first request
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = TRACE)]
    pub start: Option<Nanos>,
    /// End TIME after the trace's first request
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = TRACE)]
    pub end: Option<Nanos>,
    /// Leave out the first N requests
    #[arg(long, value_name = "N", conflicts_with_all = ["start", "end"], help_heading = TRACE)]
    pub skip: Option<u64>,
    /// Read at most N requests, in the order of the file
    #[arg(long, value_name = "N", conflicts_with_all = ["start", "end"], help_heading = TRACE)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
}

/// A part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TraceSelection {
    /// The whole trace.
    Whole,
    /// The requests in a span of time, counted from the first request.
    Time(Span),
    /// The requests with these numbers, counted from 0.
    Numbers(Range<u64>),
}

impl SpanArgs {
    /// Returns the part that the arguments select.
    ///
    /// # Errors
    /// Fails if the part ends before it begins.
    fn selection(&self) -> Result<TraceSelection, Failure> {
        if self.skip.is_some() || self.requests.is_some() {
            let skip = self.skip.unwrap_or(0);
            return Ok(TraceSelection::Numbers(skip..skip.saturating_add(self.requests.unwrap_or(u64::MAX))));
        }
        let span = Span { start: self.start.unwrap_or(Nanos(0)), end: self.end.unwrap_or(Nanos::MAX) };
        if span.start >= span.end {
            return Err(Failure::usage("--end is not after --start", "name a later one"));
        }
        let is_whole = self.start.is_none() && self.end.is_none();
        Ok(if is_whole { TraceSelection::Whole } else { TraceSelection::Time(span) })
    }
}

/// Opens a trace, as [`open`] does, and selects the part that the arguments name. Skips the rest without
/// reading it if the format and the file allow seeking.
///
/// # Errors
/// Fails as [`open`] does, or if the span ends before it begins.
pub(super) fn open_span(
    path: &Path,
    format: Option<&Format>,
    span: &SpanArgs,
    help: &str,
) -> Result<Reader<'static>, Failure> {
    let part = span.selection()?;
    let is_file = std::fs::metadata(path).is_ok_and(|there| there.is_file());
    let may_seek = is_file && format.is_none_or(|format| format.name == super::WEIR_FORMAT);
    let cannot = |error: io::Error| Failure::os("read", path, &error);
    let of = |input| {
        Reader::open(path.display().to_string(), input, format).map_err(|error| trace_failure(&error))
    };
    match part {
        TraceSelection::Time(span) if may_seek => {
            if let Ok(found) = seek(file(path, help)?, span).map_err(cannot)? {
                return Ok(of(buffered(found.input))?.select_span(span, Some(found.first)));
            }
        }
        TraceSelection::Numbers(numbers) if may_seek => {
            if let Ok(found) = seek_number(file(path, help)?, numbers.start).map_err(cannot)? {
                return Ok(of(buffered(found.input))?.select_numbers(numbers, found.preceding_records));
            }
        }
        _ => {}
    }
    let reader = open(path, format, help)?;
    Ok(match span.selection()? {
        TraceSelection::Whole => reader,
        TraceSelection::Time(span) => reader.select_span(span, None),
        TraceSelection::Numbers(numbers) => reader.select_numbers(numbers, 0),
    })
}
