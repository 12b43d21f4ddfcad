//! The rate at which a pool fills, and the forecast of when it is full.

use weir_model::{Bytes, Nanos};

/// The time constant of the long-term rate, in nanoseconds: after this time a change has 1/e of its weight.
const LONG_TIME_CONSTANT: f64 = 1800e9;
/// The time constant of the short-term rate, in nanoseconds.
const SHORT_TIME_CONSTANT: f64 = 300e9;
/// The minimum history for a forecast.
const HISTORY_MIN: Nanos = Nanos::secs(60);
/// The short-term rate must be within this factor of the long-term rate for a forecast.
const STEADY_FACTOR: f64 = 4.0;
/// The maximum forecast.
const FORECAST_MAX: Nanos = Nanos::secs(366 * 86_400);

/// A growth rate as an exponentially weighted mean: `rate = sum of change * exp(-age / T) / T`, divided by
/// the weight of the time observed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillRate {
    began: Nanos,
    at: Nanos,
    used: Bytes,
    long_term: DecayedSum,
    short_term: DecayedSum,
}

/// A sum of bytes, each weighted by its age.
#[derive(Clone, Copy, Debug)]
struct DecayedSum {
    time_constant: f64,
    bytes: f64,
}

impl DecayedSum {
    const fn new(time_constant: f64) -> Self {
        Self { time_constant, bytes: 0.0 }
    }

    fn decay(&self, time: Nanos) -> f64 {
        (-(time.0 as f64) / self.time_constant).exp()
    }

    /// Adds `more` bytes, this long after the last addition.
    fn note(&mut self, after: Nanos, more: f64) {
        self.bytes = self.bytes * self.decay(after) + more;
    }

    /// Returns the rate in bytes per second, this long after the last change, over the time observed.
    fn per_second(&self, after: Nanos, seen: Nanos) -> f64 {
        let weight = 1.0 - self.decay(seen);
        self.bytes * self.decay(after) / (weight * self.time_constant) * 1e9
    }
}

impl FillRate {
    /// Creates a rate; `used` is the initial use.
    pub(super) fn new(now: Nanos, used: Bytes) -> Self {
        Self {
            began: now,
            at: now,
            used,
            long_term: DecayedSum::new(LONG_TIME_CONSTANT),
            short_term: DecayedSum::new(SHORT_TIME_CONSTANT),
        }
    }

    /// Notes the current use.
    pub(super) fn note(&mut self, now: Nanos, used: Bytes) {
        let (after, more) = (now.since(self.at), used.0 as f64 - self.used.0 as f64);
        self.long_term.note(after, more);
        self.short_term.note(after, more);
        (self.at, self.used) = (now, used);
    }

    /// Returns the rate in bytes per second; 0 in the first second, which says nothing.
    pub(super) fn per_second(&self, now: Nanos) -> f64 {
        let seen = now.since(self.began);
        if seen < Nanos::secs(1) { 0.0 } else { self.long_term.per_second(now.since(self.at), seen) }
    }

    /// Returns the time until `more` bytes are used at the recent rate; `None` without a reliable forecast.
    pub(super) fn time_for(&self, now: Nanos, more: Bytes) -> Option<Nanos> {
        let seen = now.since(self.began);
        let late = self.per_second(now);
        let recent = self.short_term.per_second(now.since(self.at), seen);
        let steady = late > 0.0 && recent <= late * STEADY_FACTOR && recent * STEADY_FACTOR >= late;
        if seen < HISTORY_MIN || more == Bytes(0) || !steady {
            return None;
        }
        let seconds = more.0 as f64 / late;
        (seconds <= FORECAST_MAX.as_secs_f64()).then_some(Nanos((seconds * 1e9) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(bytes_per_second: f64) -> f64 {
        bytes_per_second / f64::from(1 << 20)
    }

    #[test]
    fn steady_rate_is_found_soon_and_decays_slowly() {
        let mut rate = FillRate::new(Nanos::secs(5), Bytes::gib(1));
        for second in 1..=60 {
            rate.note(Nanos::secs(5 + second), Bytes::gib(1) + Bytes::mib(second));
        }
        let at = |second| mib(rate.per_second(Nanos::secs(second)));
        assert!((at(65) - 1.0).abs() < 0.01, "{}", at(65));
        assert!(at(1865) < 0.2 && at(1865) > 0.0, "{}", at(1865));
        assert!(at(100_000) < 0.001);
    }

    #[test]
    fn freed_space_lowers_the_rate() {
        let mut rate = FillRate::new(Nanos(0), Bytes::gib(1));
        rate.note(Nanos::secs(10), Bytes::mib(512));
        assert!(rate.per_second(Nanos::secs(20)) < 0.0);
        assert_eq!(rate.time_for(Nanos::secs(100), Bytes::gib(1)), None);
        rate.note(Nanos::secs(21), Bytes::gib(1));
        assert!(rate.per_second(Nanos::secs(30)).abs() < f64::from(1 << 20));
    }

    /// Writes come in bursts, as file systems make them, for hours: the forecast does not jump.
    #[test]
    fn bursts_do_not_change_the_forecast() {
        let mut rate = FillRate::new(Nanos(0), Bytes(0));
        let (mut used, mut told) = (Bytes(0), Vec::new());
        for second in 1..20_000u64 {
            if second % 60 < 5 {
                used += Bytes::mib(12);
                rate.note(Nanos::secs(second), used);
            }
            if second > 600 {
                let time = rate.time_for(Nanos::secs(second), Bytes::gib(10)).expect("it fills steadily");
                told.push(time.as_secs_f64());
            }
        }
        let (least, most) = told.iter().fold((f64::MAX, 0f64), |(a, b), time| (a.min(*time), b.max(*time)));
        assert!(most < 1.25 * least, "between {least} s and {most} s");
        assert!((10_000.0..11_000.0).contains(&told[told.len() - 1]), "10 GiB at 1 MiB/s: {:?}", told.last());
    }

    /// A single large copy, after hours of quiet or hours ago, is no lasting rate.
    #[test]
    fn single_copy_gives_no_forecast() {
        let mut rate = FillRate::new(Nanos(0), Bytes(0));
        assert_eq!(rate.time_for(Nanos::secs(3600), Bytes::gib(1)), None, "it does not fill");
        rate.note(Nanos::secs(3600), Bytes::gib(1));
        assert_eq!(rate.time_for(Nanos::secs(3601), Bytes::gib(1)), None, "a burst");
        assert_eq!(rate.time_for(Nanos::secs(36_000), Bytes::gib(1)), None, "it has ended");
        assert_eq!(rate.time_for(Nanos::secs(3601), Bytes(0)), None, "it is full");
        let mut rate = FillRate::new(Nanos(0), Bytes(0));
        rate.note(Nanos::secs(30), Bytes::mib(1));
        assert_eq!(rate.time_for(Nanos::secs(30), Bytes::gib(1)), None, "too little was seen");
        let mut slow = FillRate::new(Nanos(0), Bytes(0));
        (1..=100).for_each(|minute| slow.note(Nanos::secs(60 * minute), Bytes(minute)));
        assert_eq!(slow.time_for(Nanos::secs(6000), Bytes::gib(1)), None, "in thousands of years");
    }
}
