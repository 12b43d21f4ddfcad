//! `sequential`: long sequential runs are not admitted (SSEQR, selective sequential rejection).
//!
//! Source: HEC (the dissertation behind it, section 3.4.1).
//!
//! Rule: the last k requests are kept. A request whose start is at the end of one of them, or at most G
//! sectors after it, continues it, and their common run is as long as both. A request that continues a run
//! longer than L then is not admitted; shorter runs are, because they may be loops, and so is a single
//! request, of whatever length.
//!
//! Constants: k = 8, G = 4 sectors, L = 4 MB (taken as 4 MiB), as published, all of them settings. Among
//! several it may continue, the latest.
//!
//! When not: where long runs are read again and would fit.

use super::{Admission, BlockRequest};
use std::collections::VecDeque;
use weir_model::{Bytes, SECTOR};

/// The parameters of detecting sequential runs. The default is that of the published experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceSettings {
    /// The number of requests that a new one may continue, k; at least 1.
    pub window: usize,
    /// The largest gap between the end of a request and the start of the one that continues it, G.
    pub gap: Bytes,
    /// The longest run that is admitted, L.
    pub run_max: Bytes,
}

impl Default for SequenceSettings {
    fn default() -> Self {
        Self { window: 8, gap: Bytes(4 * SECTOR), run_max: Bytes::mib(4) }
    }
}

/// An admission policy that rejects long sequential runs.
#[derive(Debug, Default)]
pub struct Sequential {
    settings: SequenceSettings,
    /// The last requests, the latest last.
    window: VecDeque<RunEnd>,
}

#[derive(Clone, Copy, Debug)]
struct RunEnd {
    disk: u32,
    end: u64,
    /// The length of the run up to there.
    run: u64,
}

impl Sequential {
    /// Creates a policy that knows no run.
    pub fn new(settings: SequenceSettings) -> Self {
        Self { settings, window: VecDeque::new() }
    }
}

impl Admission for Sequential {
    fn request(&mut self, request: BlockRequest) -> bool {
        let SequenceSettings { window, gap, run_max } = self.settings;
        let start = request.offset.0;
        let continues = |before: &&RunEnd| {
            before.disk == request.disk && (before.end..=before.end.saturating_add(gap.0)).contains(&start)
        };
        let before = self.window.iter().rev().find(continues).map_or(0, |before| before.run);
        let run = before.saturating_add(request.len.0);
        if self.window.len() == window.max(1) {
            self.window.pop_front();
        }
        self.window.push_back(RunEnd { disk: request.disk, end: request.end(), run });
        before == 0 || run <= run_max.0
    }
}
