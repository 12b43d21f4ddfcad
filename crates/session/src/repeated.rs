//! What happens over and over, for the log: one line at once, then at most one in [`Repeated::PAUSE`], with
//! how often it happened since the line before.

use weir_model::Nanos;

/// Counts what happened, and keeps the latest of it.
#[derive(Debug)]
pub struct Repeated<T> {
    total: u64,
    untold: u64,
    latest: Option<T>,
    told: Option<Nanos>,
}

impl<T> Default for Repeated<T> {
    fn default() -> Self {
        Self { total: 0, untold: 0, latest: None, told: None }
    }
}

impl<T: Copy> Repeated<T> {
    /// The least time between two lines.
    pub const PAUSE: Nanos = Nanos::secs(10);

    /// It happened.
    pub fn note(&mut self, what: T) {
        self.total += 1;
        self.untold += 1;
        self.latest = Some(what);
    }

    /// How often it has happened.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// When there is a line to write, if there is one.
    pub fn due(&self, now: Nanos) -> Option<Nanos> {
        (self.untold > 0).then(|| self.told.map_or(now, |told| told + Self::PAUSE))
    }

    /// If a line is due: how often it happened since the last one, and the latest of it.
    pub fn take_due(&mut self, now: Nanos) -> Option<(u64, T)> {
        if self.due(now).is_none_or(|due| due > now) {
            return None;
        }
        self.told = Some(now);
        Some((std::mem::take(&mut self.untold), self.latest?))
    }
}
