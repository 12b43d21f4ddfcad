//! The tokens that limit migration: a rate, or a number of requests in progress.

use super::super::tokens::Tokens;
use std::collections::{BTreeMap, VecDeque};
use weir_model::{DeviceId, Nanos};

/// The interval at which the number of tokens adapts, and its bounds.
const ADAPT_INTERVAL: Nanos = Nanos::secs(10);
const LEAST: f64 = 1.0;
const MOST: f64 = 16.0;

/// How tokens come back.
#[derive(Clone, Debug)]
enum Limit {
    /// At a rate.
    PerSecond(Tokens),
    /// At the end of the migration that took each: about when both of its commands should be answered.
    AtOnce(VecDeque<Nanos>),
}

/// Migrated requests by pair of devices: from the first to the second, less the opposite ones.
type NetFlow = BTreeMap<(DeviceId, DeviceId), i64>;

/// Adapts the number of tokens.
#[derive(Clone, Debug, Default)]
struct Adaptation {
    /// The start of the period.
    since: Nanos,
    flow: NetFlow,
    previous: NetFlow,
    /// Whether a migration found no token in this period.
    refused: bool,
}

/// The tokens of a policy.
#[derive(Clone, Debug)]
pub(super) struct MigrationTokens {
    count: f64,
    limit: Limit,
    adaptation: Option<Adaptation>,
}

impl MigrationTokens {
    pub(super) fn new(count: f64, at_once: bool, adapts: bool) -> Self {
        let limit =
            if at_once { Limit::AtOnce(VecDeque::new()) } else { Limit::PerSecond(Tokens::new(count)) };
        Self { count, limit, adaptation: adapts.then(Adaptation::default) }
    }

    /// Returns the number of tokens.
    pub(super) fn count(&self) -> f64 {
        self.count
    }

    /// Takes a token for a migration that lasts about this long. Returns whether there was one.
    pub(super) fn take(&mut self, now: Nanos, lasts: Nanos, from: DeviceId, to: DeviceId) -> bool {
        let is_available = match &mut self.limit {
            Limit::PerSecond(tokens) => {
                let is_available = tokens.is_available(now);
                if is_available {
                    tokens.spend();
                }
                is_available
            }
            Limit::AtOnce(ends) => {
                ends.retain(|end| *end > now);
                let is_available = (ends.len() as f64) < self.count.floor();
                if is_available {
                    ends.push_back(now + lasts);
                }
                is_available
            }
        };
        if let Some(adaptation) = &mut self.adaptation {
            adaptation.refused |= !is_available;
            let (pair, sign) = if from < to { ((from, to), 1) } else { ((to, from), -1) };
            if is_available {
                *adaptation.flow.entry(pair).or_default() += sign;
            }
        }
        is_available
    }

    /// Every ten seconds, adapts the number, if it does: half as many if the flow between two devices has
    /// reversed since the previous period, one more if a migration had to do without.
    pub(super) fn adapt(&mut self, now: Nanos) {
        let Some(adaptation) = &mut self.adaptation else { return };
        if now.since(adaptation.since) < ADAPT_INTERVAL {
            return;
        }
        let flow = std::mem::take(&mut adaptation.flow);
        let reversed = |(pair, net): (&(DeviceId, DeviceId), &i64)| {
            adaptation.previous.get(pair).is_some_and(|previous| previous.signum() * net.signum() < 0)
        };
        if flow.iter().any(reversed) {
            self.count = (self.count / 2.0).floor().max(LEAST);
        } else if adaptation.refused {
            self.count = (self.count + 1.0).min(MOST);
        }
        adaptation.previous = flow;
        (adaptation.since, adaptation.refused) = (now, false);
        if let Limit::PerSecond(tokens) = &mut self.limit {
            tokens.set_rate(self.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DeviceId = DeviceId(0);
    const B: DeviceId = DeviceId(1);

    fn taken(tokens: &mut MigrationTokens, now: Nanos, from: DeviceId, to: DeviceId) -> usize {
        std::iter::from_fn(|| tokens.take(now, Nanos::millis(20), from, to).then_some(())).take(100).count()
    }

    #[test]
    fn a_rate_gives_so_many_in_a_second() {
        let mut tokens = MigrationTokens::new(4.0, false, false);
        let at = [0, 1000, 1250, 60_000];
        assert_eq!(at.map(|ms| taken(&mut tokens, Nanos::millis(ms), A, B)), [0, 4, 1, 4]);
        tokens.adapt(Nanos::secs(60));
        assert_eq!(tokens.count(), 4.0, "the number does not adapt");
    }

    #[test]
    fn at_once_they_come_back_with_the_end_of_each_migration() {
        let mut tokens = MigrationTokens::new(4.0, true, false);
        let at = [0, 10, 19, 20, 30];
        assert_eq!(at.map(|ms| taken(&mut tokens, Nanos::millis(ms), A, B)), [4, 0, 0, 4, 0]);
        assert_eq!(taken(&mut MigrationTokens::new(0.0, true, false), Nanos(0), A, B), 0);
    }

    #[test]
    fn the_number_grows_while_it_is_short_and_halves_when_the_flow_reverses() {
        let mut tokens = MigrationTokens::new(4.0, false, true);
        let mut after = |seconds, from, to| {
            taken(&mut tokens, Nanos::secs(seconds), from, to);
            tokens.adapt(Nanos::secs(seconds));
            tokens.count()
        };
        assert_eq!(after(5, A, B), 4.0, "not yet");
        assert_eq!([10, 20, 30].map(|seconds| after(seconds, A, B)), [5.0, 6.0, 7.0]);
        assert_eq!([40, 50].map(|seconds| after(seconds, B, A)), [3.0, 4.0]);
        let last = (6..40).map(|tens| after(10 * tens, B, A)).last();
        assert_eq!(last, Some(16.0));
    }
}
