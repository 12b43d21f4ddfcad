//! Loads of simulations: traces, which are read once, and synthetic loads.

use crate::args::TraceOptions;
use crate::failure::Failure;
use crate::{pool_file, progress, traces};
use std::path::Path;
use weir_model::{ErrorKind, Nanos};
use weir_sim::cache::check_len;
use weir_sim::{Load, Replay};
use weir_trace::Trace;

/// A load. A trace is read only once.
pub(super) struct LoadSource {
    /// Path of the trace, or words of the load.
    words: String,
    /// The trace; `None` for a synthetic load.
    trace: Option<Trace>,
    /// Notes on the trace.
    notes: Vec<String>,
}

impl LoadSource {
    /// Reads the trace, unless `words` are those of a synthetic load.
    ///
    /// # Errors
    /// Fails if the trace cannot be read.
    pub(super) fn read(words: &str, options: &TraceOptions) -> Result<Self, Failure> {
        if weir_sim::load::is_synthetic(words) {
            return Ok(Self { words: words.to_owned(), trace: None, notes: Vec::new() });
        }
        let help = "name a file, or a load by its words, like \"zipf rate=1000\": weir help loads";
        let reader = traces::open(Path::new(words), options.format.as_ref(), help)?;
        let trace = progress::during("reading the trace", || Trace::load(reader, options.strict))
            .map_err(|error| traces::trace_failure(&error))?;
        // A request of terabytes would take as long, and as much memory.
        let too_long = trace.records.iter().find_map(|record| check_len(record).err());
        if let Some(error) = too_long {
            return Err(Failure::from_message(ErrorKind::Usage, &error.to_string()));
        }
        let notes = trace.tally.notes(trace.records.len());
        Ok(Self { words: words.to_owned(), trace: Some(trace), notes })
    }

    /// Whether the load has arrival times: requests that all have the same time have none.
    pub(super) fn is_timed(&self) -> bool {
        self.trace.as_ref().is_none_or(|trace| trace.format.timed && trace.duration() > Nanos(0))
    }

    /// Returns the load, positioned at its start, `time_scale` times as slow as a trace was recorded.
    ///
    /// # Errors
    /// Fails if the words are invalid.
    pub(super) fn new_load(&self, time_scale: f64, seed: u64) -> Result<Box<dyn Load>, Failure> {
        match &self.trace {
            Some(trace) => Ok(Box::new(Replay::new(trace.clone(), time_scale))),
            None => {
                let load = weir_sim::load::parse(&self.words, seed, pool_file::size, pool_file::duration);
                load.map_err(|error| Failure::from_message(ErrorKind::Usage, &error.to_string()))
            }
        }
    }

    /// Returns the parts of the trace that could not be used as they are; empty after the first call.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}
