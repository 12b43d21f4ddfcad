//! Measures the rate of a tier: the *device performance monitor* of TridentFS, section 3.5, equation (2).

use weir_model::{Bytes, Nanos};

/// The published period: 1 s.
pub const METER_PERIOD: Nanos = Nanos::secs(1);

/// Bytes moved divided by the time busy, of the last period in which anything was moved.
#[derive(Clone, Copy, Debug)]
pub struct RateMeter {
    period: Nanos,
    /// The end of the current period.
    ends: Nanos,
    moved: Bytes,
    busy: Nanos,
    rate: Option<f64>,
}

impl RateMeter {
    /// Creates a meter with this period, at least a nanosecond.
    pub fn new(period: Nanos) -> Self {
        let period = period.max(Nanos(1));
        Self { period, ends: period, moved: Bytes(0), busy: Nanos(0), rate: None }
    }

    /// Reports that the tier has moved `bytes`, and was busy for this time since the last report.
    pub fn record(&mut self, now: Nanos, bytes: Bytes, busy: Nanos) {
        self.advance(now);
        self.moved += bytes;
        self.busy += busy;
    }

    /// Returns the measured rate in bytes per second; `None` before the first period with data ends.
    pub fn rate(&mut self, now: Nanos) -> Option<f64> {
        self.advance(now);
        self.rate
    }

    fn advance(&mut self, now: Nanos) {
        if now < self.ends {
            return;
        }
        if self.moved > Bytes(0) && self.busy > Nanos(0) {
            self.rate = Some(self.moved.0 as f64 / self.busy.as_secs_f64());
        }
        (self.moved, self.busy) = (Bytes(0), Nanos(0));
        self.ends = Nanos((now.0 / self.period.0 + 1) * self.period.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_period_with_data() {
        let mut meter = RateMeter::new(METER_PERIOD);
        meter.record(Nanos::millis(100), Bytes(1000), Nanos::millis(10));
        meter.record(Nanos::millis(900), Bytes(3000), Nanos::millis(30));
        assert_eq!(meter.rate(Nanos::millis(999)), None, "the period has not ended");
        assert_eq!(meter.rate(Nanos::secs(1)), Some(100_000.0));
        assert_eq!(meter.rate(Nanos::secs(9)), Some(100_000.0), "an idle tier keeps its rate");
        meter.record(Nanos::millis(9_500), Bytes(500), Nanos::millis(1));
        meter.record(Nanos::millis(10_500), Bytes(7), Nanos::millis(1));
        assert_eq!(meter.rate(Nanos::millis(10_600)), Some(500_000.0));
    }
}
