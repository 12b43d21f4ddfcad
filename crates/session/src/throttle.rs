//! Rate limit for log lines about repeated events: the first event gives a line at once, later ones at most
//! one line per [`ThrottledEvents::REPORT_INTERVAL`], with the number of events since the line before.

use weir_model::Nanos;

/// Counts events and keeps the latest one.
#[derive(Debug)]
pub struct ThrottledEvents<T> {
    total: u64,
    unreported: u64,
    latest: Option<T>,
    last_reported: Option<Nanos>,
}

impl<T> Default for ThrottledEvents<T> {
    fn default() -> Self {
        Self { total: 0, unreported: 0, latest: None, last_reported: None }
    }
}

impl<T: Copy> ThrottledEvents<T> {
    /// Minimum time between two lines.
    pub const REPORT_INTERVAL: Nanos = Nanos::secs(10);

    /// Counts an event.
    pub fn note(&mut self, what: T) {
        self.total += 1;
        self.unreported += 1;
        self.latest = Some(what);
    }

    /// Returns the number of events so far.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the time when a line is due, if there is one to write.
    pub fn due(&self, now: Nanos) -> Option<Nanos> {
        (self.unreported > 0).then(|| self.last_reported.map_or(now, |told| told + Self::REPORT_INTERVAL))
    }

    /// Returns the number of events since the last line and the latest event, if a line is due.
    pub fn take_due(&mut self, now: Nanos) -> Option<(u64, T)> {
        if self.due(now).is_none_or(|due| due > now) {
            return None;
        }
        self.last_reported = Some(now);
        Some((std::mem::take(&mut self.unreported), self.latest?))
    }
}
