//! Analyses a trace from its reader.

use super::{Analysis, Analyzer, LookedAt, Sample, Sampling, Settings};
use crate::cache::{BlockTraceError, EvictionPolicy};
use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use weir_model::BLOCK;
use weir_trace::{Reader, Tally, TraceError};

/// The analysis of a trace: the document of `weir trace analyze`. Figures of blocks are of blocks of 4 KiB.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir trace analyze")]
pub struct TraceAnalysis {
    /// Path of the trace.
    pub trace: String,
    /// The format it was read as.
    pub format: String,
    /// The trace has times of requests.
    pub timed: bool,
    /// Names of the disks that were analysed, in the order of appearance.
    pub disks: Vec<String>,
    /// What could not be read or used as it is.
    pub notes: Vec<String>,
    /// Size of a block.
    pub block_bytes: u64,
    /// The figures.
    #[serde(flatten)]
    pub analysis: Analysis,
}

/// Why a trace cannot be analysed. Messages have the form "what is wrong; what to do".
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AnalyzeError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace has no such disk.
    #[error("{trace} has no disk {disk:?}; name one of {disks}")]
    NoDisk {
        /// Trace name.
        trace: String,
        /// The requested disk.
        disk: String,
        /// The disks of the trace.
        disks: String,
    },
    /// The trace's requests cannot be analysed.
    #[error("{trace} cannot be analysed: {error}")]
    Blocks {
        /// Trace name.
        trace: String,
        /// The reason.
        error: BlockTraceError,
    },
}

fn sampling_note(some: &LookedAt) -> String {
    let LookedAt { blocks, share, error } = some;
    format!(
        "there are too many blocks to look at each: {:.4} % of them, {blocks}, stand for all; numbers of blocks have a standard \
         error of {:.2} % of all blocks, and --blocks N looks at more",
        share * 100.0,
        error * 100.0
    )
}

impl TraceAnalysis {
    /// Analyses a trace to its end, for one disk or all; also returns the sample that [`Self::add_curve`]
    /// needs. At most `blocks` blocks are tracked: see [`Settings::blocks`].
    ///
    /// # Errors
    /// As [`Tally::read`] and [`Analyzer::finish`], and if there is no such disk.
    pub fn read(
        mut reader: Reader<'_>,
        disk: Option<&str>,
        strict: bool,
        blocks: u32,
        sampling: Sampling,
    ) -> Result<(Self, Sample), AnalyzeError> {
        if let Some(disk) = disk {
            reader = reader.select_disk(disk);
        }
        let timed = reader.format().timed;
        let mut analyzer = Analyzer::new(Settings { timed, blocks, sampling });
        let tally = Tally::read(&mut reader, strict, |record| analyzer.take(&record));
        let trace = reader.name().to_owned();
        let disks: Vec<_> = reader.disks().collect();
        let tally = match (tally, disk) {
            (Ok(tally), _) => tally,
            (Err(_), Some(disk)) if !disks.is_empty() && !disks.iter().any(|known| known == disk) => {
                return Err(AnalyzeError::NoDisk { trace, disk: disk.into(), disks: disks.join(", ") });
            }
            (Err(error), _) => return Err(error.into()),
        };
        let (analysis, sample) = match (analyzer.finish(), tally.truncation.clone()) {
            (Ok(analysed), _) => analysed,
            // Damaged data may unpack to arbitrary requests, so the location of the damage is more
            // informative.
            (Err(_), Some(cut)) => return Err(cut.into()),
            (Err(error), None) => return Err(AnalyzeError::Blocks { trace, error }),
        };
        let requests = (analysis.reads.requests + analysis.writes.requests) as usize;
        let mut notes = tally.notes(requests);
        notes.extend(analysis.sampled.as_ref().map(sampling_note));
        if !sample.is_whole {
            notes.push(format!(
                "curves of policies other than lru are of the first {} accesses to blocks: a few blocks have so many \
                 that a sample has no room for more",
                sample.seen
            ));
        }
        let analysis = Self {
            trace,
            format: reader.format().name.clone().into_owned(),
            timed,
            disks: disk.map_or(disks, |disk| vec![disk.to_owned()]),
            notes,
            block_bytes: BLOCK,
            analysis,
        };
        Ok((analysis, sample))
    }

    /// Adds a policy's miss ratios, or a note on why there are none; LRU's already exist.
    pub fn add_curve(&mut self, sample: &Sample, policy: &'static EvictionPolicy) {
        if self.analysis.curves.iter().any(|known| known.policy == policy.name) {
            return;
        }
        match self.analysis.curve(sample, policy) {
            Ok(curve) => self.analysis.curves.push(curve),
            Err(error) => self.notes.push(format!(
                "the curve of {} is left out: of the sample, {error}, or a smaller sample",
                policy.name
            )),
        }
    }

    /// Returns the trace's name of a disk.
    pub fn disk(&self, number: u32) -> &str {
        let only = (self.disks.len() == 1).then_some(0);
        self.disks.get(only.unwrap_or(number as usize)).map_or("", |name| name)
    }
}
