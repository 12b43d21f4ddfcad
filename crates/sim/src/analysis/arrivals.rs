//! Arrival times of requests: the gaps between them and their burstiness.
//!
//! Measures: the coefficient of variation of the gaps (standard deviation to mean; 1 for a Poisson process),
//! and for windows of several lengths the index of dispersion for counts, variance to mean of the requests in
//! a window (1 for a Poisson process at every length; a value that grows with the length means bursts of
//! bursts), after R. Gusella, "Characterizing the variability of arrival processes with indexes of
//! dispersion", IEEE JSAC 9(2), 1991; and the ratio of the fullest window to the mean.

use super::distribution::{DistributionCollector, Spread};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::Nanos;

/// Collects arrival times, of any number of requests in constant memory.
#[derive(Debug)]
pub(super) struct ArrivalTimes {
    first: Nanos,
    last: Nanos,
    count: u64,
    gaps: DistributionCollector,
    /// Sum of the squared gaps, in seconds.
    squares: f64,
    out_of_order: u64,
    windows: [Window; 3],
}

/// Consecutive windows of one length, from the first request on.
#[derive(Debug)]
struct Window {
    length: Nanos,
    /// Number of the current window, and its requests.
    current: u64,
    count: u64,
    /// Over the complete windows: requests, squares of their counts, the maximum.
    complete: u64,
    squares: f64,
    count_max: u64,
}

/// Times at which requests arrive.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Arrivals {
    /// Seconds from the first request to the last.
    pub seconds: f64,
    /// Requests a second; `null` if all have the same time, as in a short trace with times in whole seconds.
    pub rate: Option<f64>,
    /// Requests whose time is before that of the one above; they count as made at the same time.
    pub out_of_order: u64,
    /// Gaps between requests, in nanoseconds.
    pub gaps: Spread,
    /// Coefficient of variation of the gaps: standard deviation to mean, 1 for a Poisson process; `null` if
    /// all gaps are 0.
    pub variation: Option<f64>,
    /// Burstiness for windows of 100 ms, 1 s and 60 s, where the trace has at least ten whole windows.
    pub bursts: Vec<Burstiness>,
}

/// How unevenly requests fill windows of one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Burstiness {
    /// Length of a window in seconds.
    pub window_seconds: f64,
    /// Index of dispersion for counts: variance to mean of the requests in a window, 1 for a Poisson process.
    pub dispersion: f64,
    /// Requests in the fullest window to the mean.
    pub peak_to_mean: f64,
}

/// Window lengths.
const LENGTHS: [Nanos; 3] = [Nanos::millis(100), Nanos::secs(1), Nanos::secs(60)];
/// Minimum number of windows for a meaningful figure.
const WINDOWS_MIN: u64 = 10;

impl Default for ArrivalTimes {
    fn default() -> Self {
        let window =
            |length| Window { length, current: 0, count: 0, complete: 0, squares: 0.0, count_max: 0 };
        Self {
            first: Nanos(0),
            last: Nanos(0),
            count: 0,
            gaps: DistributionCollector::default(),
            squares: 0.0,
            out_of_order: 0,
            windows: LENGTHS.map(window),
        }
    }
}

impl ArrivalTimes {
    /// Adds a request; returns its time since the first one, by a clock that does not go back.
    pub(super) fn add(&mut self, at: Nanos) -> Nanos {
        if self.count == 0 {
            (self.first, self.last) = (at, at);
        } else {
            self.out_of_order += u64::from(at < self.last);
            let gap = at.max(self.last).since(self.last);
            self.gaps.add(gap.0);
            self.squares += gap.as_secs_f64().powi(2);
            self.last = self.last.max(at);
        }
        self.count += 1;
        let since = self.last.since(self.first);
        self.windows.iter_mut().for_each(|window| window.add(since));
        since
    }

    /// Returns the statistics; `None` for fewer than two requests.
    pub(super) fn finish(self) -> Option<Arrivals> {
        if self.count < 2 {
            return None;
        }
        let (span, gaps) = (self.last.since(self.first), self.gaps.spread());
        let mean = span.as_secs_f64() / gaps.count as f64;
        let variance = (self.squares / gaps.count as f64 - mean * mean).max(0.0);
        Some(Arrivals {
            seconds: span.as_secs_f64(),
            rate: (mean > 0.0).then(|| 1.0 / mean),
            out_of_order: self.out_of_order,
            gaps,
            variation: (mean > 0.0).then(|| variance.sqrt() / mean),
            bursts: self.windows.iter().filter_map(Window::burstiness).collect(),
        })
    }
}

impl Window {
    fn add(&mut self, since: Nanos) {
        let number = since.0 / self.length.0;
        if number != self.current {
            self.end();
            self.current = number;
        }
        self.count += 1;
    }

    /// Ends the current window.
    fn end(&mut self) {
        self.complete += self.count;
        self.squares += (self.count as f64).powi(2);
        self.count_max = self.count_max.max(self.count);
        self.count = 0;
    }

    /// Computes the burstiness of the whole windows.
    fn burstiness(&self) -> Option<Burstiness> {
        let windows = self.current;
        let mean = self.complete as f64 / windows as f64;
        (windows >= WINDOWS_MIN).then(|| Burstiness {
            window_seconds: self.length.as_secs_f64(),
            dispersion: (self.squares / windows as f64 - mean * mean).max(0.0) / mean,
            peak_to_mean: self.count_max as f64 / mean,
        })
    }
}
