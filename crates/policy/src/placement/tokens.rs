//! Tokens that limit the rate of moves.

use weir_model::Nanos;

/// A token bucket that fills at a fixed rate, for a second at most; a move takes one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    per_second: f64,
    available: f64,
    since: Nanos,
}

impl Tokens {
    /// Creates an empty bucket with this rate.
    pub(super) const fn new(per_second: f64) -> Self {
        Self { per_second, available: 0.0, since: Nanos(0) }
    }

    /// Whether a token is available.
    pub(super) fn is_available(&mut self, now: Nanos) -> bool {
        let made = now.since(self.since).as_secs_f64() * self.per_second;
        self.available = (self.available + made).min(self.per_second.max(1.0));
        self.since = now;
        self.available >= 1.0
    }

    /// Changes the rate.
    pub(super) fn set_rate(&mut self, per_second: f64) {
        self.per_second = per_second;
    }

    /// Takes a token.
    pub(super) fn spend(&mut self) {
        self.available -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_accrue_at_rate_up_to_limit() {
        let mut tokens = Tokens::new(4.0);
        let mut take = |ms| {
            let mut taken = 0;
            while tokens.is_available(Nanos::millis(ms)) {
                tokens.spend();
                taken += 1;
            }
            taken
        };
        assert_eq!([take(0), take(100), take(250), take(1250), take(60_000)], [0, 0, 1, 4, 4]);
    }
}
