//! How fast a pool fills of late.

use weir_model::{Bytes, Nanos};

/// How long ago is "of late": a change counts 1/e of its weight after this time.
const MEMORY: f64 = 600e9;

/// The rate at which something grows, as a mean over time in which the recent counts more:
/// `rate = sum of change * exp(-age / T) / T`, divided by the weight of the time there has been.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillRate {
    began: Nanos,
    at: Nanos,
    used: Bytes,
    /// Bytes, each weighted by its age at `at`.
    sum: f64,
}

impl FillRate {
    /// `used` at the beginning.
    pub(super) fn new(now: Nanos, used: Bytes) -> Self {
        Self { began: now, at: now, used, sum: 0.0 }
    }

    /// It is `used` now.
    pub(super) fn note(&mut self, now: Nanos, used: Bytes) {
        self.sum = self.sum * decay(self.at, now) + (used.0 as f64 - self.used.0 as f64);
        (self.at, self.used) = (now, used);
    }

    /// Bytes per second; 0 in the first second, which says nothing.
    pub(super) fn per_second(&self, now: Nanos) -> f64 {
        if now.since(self.began) < Nanos::secs(1) {
            return 0.0;
        }
        let weight = 1.0 - decay(self.began, now);
        self.sum * decay(self.at, now) / (weight * MEMORY) * 1e9
    }
}

fn decay(from: Nanos, to: Nanos) -> f64 {
    (-(to.since(from).0 as f64) / MEMORY).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_steady_rate_soon_and_forgets_it_slowly() {
        let mut rate = FillRate::new(Nanos::secs(5), Bytes::gib(1));
        for second in 1..=60 {
            rate.note(Nanos::secs(5 + second), Bytes::gib(1) + Bytes::mib(second));
        }
        let mib = |second| rate.per_second(Nanos::secs(second)) / f64::from(1 << 20);
        assert!((mib(65) - 1.0).abs() < 0.01, "{}", mib(65));
        assert!(mib(665) < 0.2 && mib(665) > 0.0, "{}", mib(665));
        assert!(mib(100_000) < 0.001);
    }

    #[test]
    fn space_given_back_counts_against_it() {
        let mut rate = FillRate::new(Nanos(0), Bytes::gib(1));
        rate.note(Nanos::secs(10), Bytes::mib(512));
        assert!(rate.per_second(Nanos::secs(20)) < 0.0);
        rate.note(Nanos::secs(21), Bytes::gib(1));
        assert!(rate.per_second(Nanos::secs(30)).abs() < f64::from(1 << 20));
    }
}
