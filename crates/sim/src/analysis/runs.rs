//! Sequential runs: sequences of requests that each begin where a recent one ended.

use super::distribution::{DistributionCollector, Spread};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::VecDeque;
use weir_trace::Record;

/// Finds runs among interleaved streams: a request continues one of the last 32 of its disk. Memory: less
/// than 1 KiB per disk.
#[derive(Debug, Default)]
pub(super) struct Runs {
    disks: FxHashMap<u32, VecDeque<RequestEnd>>,
    requests: u64,
    after_previous: u64,
    after_recent: u64,
    bytes: DistributionCollector,
    counts: DistributionCollector,
}

/// End of a request, and the run whose last request it is so far.
#[derive(Clone, Copy, Debug)]
struct RequestEnd {
    at: u64,
    run: Run,
    /// True if another request has continued the run.
    is_continued: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    requests: u64,
    bytes: u64,
}

/// Sequential requests and runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sequentiality {
    /// Share of requests that begin where the previous request to the same disk ended, 0 to 1.
    pub after_previous: f64,
    /// Share of requests that begin where any of the last 32 requests to the same disk ended, 0 to 1.
    pub after_recent: f64,
    /// Bytes of each run; a request that none continues is a run of its own.
    pub run_bytes: Spread,
    /// Requests of each run.
    pub run_requests: Spread,
}

/// Number of recent requests per disk that may be continued.
const RECENT: usize = 32;

impl Runs {
    /// Adds the next request; returns whether it begins where any of the last 32 to the same disk ended.
    pub(super) fn add(&mut self, record: &Record) -> bool {
        let recent = self.disks.entry(record.disk.0).or_default();
        let (start, len) = (record.offset.0, record.len.0);
        self.requests += 1;
        self.after_previous += u64::from(recent.back().is_some_and(|end| end.at == start));
        let is_sequential = recent.iter().any(|end| end.at == start);
        self.after_recent += u64::from(is_sequential);
        let continued = recent.iter_mut().rev().find(|end| end.at == start && !end.is_continued);
        let before = continued.map_or(Run::default(), |end| {
            end.is_continued = true;
            end.run
        });
        let run = Run { requests: before.requests + 1, bytes: before.bytes.saturating_add(len) };
        let forgotten = if recent.len() == RECENT { recent.pop_front() } else { None };
        recent.push_back(RequestEnd { at: start.saturating_add(len), run, is_continued: false });
        self.end_run(forgotten);
        is_sequential
    }

    /// Ends a run that nothing will continue.
    fn end_run(&mut self, end: Option<RequestEnd>) {
        if let Some(RequestEnd { run, is_continued: false, .. }) = end {
            self.bytes.add(run.bytes);
            self.counts.add(run.requests);
        }
    }

    /// Returns the statistics.
    pub(super) fn finish(mut self) -> Sequentiality {
        for end in std::mem::take(&mut self.disks).into_values().flatten() {
            self.end_run(Some(end));
        }
        let share = |part: u64| part as f64 / self.requests.max(1) as f64;
        Sequentiality {
            after_previous: share(self.after_previous),
            after_recent: share(self.after_recent),
            run_bytes: self.bytes.spread(),
            run_requests: self.counts.spread(),
        }
    }
}
