//! A budget of bytes written per day.

use weir_model::{Bytes, Nanos};

/// Unused budget is kept for so long, and no longer.
const KEPT: Nanos = Nanos::secs(60);
const SECONDS_PER_DAY: f64 = 86_400.0;

/// What may be written, as a bucket that fills with time. It may be overdrawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteBudget {
    per_second: f64,
    /// Bytes that may be written now; negative if too much was written.
    left: f64,
    /// The time up to which it was filled; `None` before the first request.
    at: Option<Nanos>,
}

impl WriteBudget {
    /// Creates a full one.
    pub(crate) fn new(per_day: Bytes) -> Self {
        let per_second = per_day.0 as f64 / SECONDS_PER_DAY;
        Self { per_second, left: per_second * KEPT.as_secs_f64(), at: None }
    }

    /// Fills it up to this time; returns whether something is left.
    pub(crate) fn is_left(&mut self, now: Nanos) -> bool {
        let since = self.at.map_or(Nanos(0), |at| now.since(at));
        self.at = Some(now);
        let most = self.per_second * KEPT.as_secs_f64();
        self.left = (self.left + self.per_second * since.as_secs_f64()).min(most);
        self.left > 0.0
    }

    /// Takes what was written.
    pub(crate) fn take(&mut self, written: Bytes) {
        self.left -= written.0 as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_fills_with_time_and_may_be_overdrawn() {
        let mut budget = WriteBudget::new(Bytes(86_400));
        assert!(budget.is_left(Nanos::secs(5)));
        budget.take(Bytes(100));
        assert!(!budget.is_left(Nanos::secs(45)), "60 kept, 100 taken, 40 filled");
        assert!(budget.is_left(Nanos::secs(46)));
        assert!(budget.is_left(Nanos::secs(9_000)));
        budget.take(Bytes(61));
        assert!(!budget.is_left(Nanos::secs(9_000)), "no more than a minute is kept");
    }
}
