//! Draws crashes of copies of the pool at random, from a random stream of their own, so that a history is the
//! same with and without copies.

use super::{History, draw_recovery_crashes, weighted};
use crate::driver::{Crash, HistoryStep};
use crate::net::NetAction;
use crate::{Rng, Seed, StopKind};

/// Inserts a copy's crash after each request with this probability.
pub(crate) fn insert_copy_crashes(steps: &mut Vec<HistoryStep>, seed: Seed, chance: f64) {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(40) ^ 2));
    for step in std::mem::take(steps) {
        let asks = is_request(&step);
        steps.push(step);
        if asks && rng.chance(chance) {
            let most = weighted(&mut rng, &[(1, 1), (6, 20), (2, 200)]);
            let after = rng.below(most);
            let again = draw_recovery_crashes(&mut rng, StopKind::PowerLoss);
            steps.push(HistoryStep::CrashCopy(Crash {
                after,
                kind: StopKind::PowerLoss,
                rot: None,
                recovery_crashes: again,
            }));
        }
    }
}

impl History {
    /// Removes all crashes of copies. The rest of the history stays the same.
    #[must_use]
    pub fn without_copies(mut self) -> Self {
        self.steps.retain(|step| !step.crashes_copy());
        self
    }

    /// Replaces all crashes of copies: on average `copies` for each crash of the pool itself. The rest of the
    /// history stays the same.
    #[must_use]
    pub fn with_copies(mut self, copies: u64) -> Self {
        self = self.without_copies();
        let count =
            |what: fn(&HistoryStep) -> bool| self.steps.iter().filter(|step| what(step)).count() as f64;
        let (asks, crashes) = (count(is_request), count(|step| matches!(step, HistoryStep::Crash(_))));
        let seed = self.setup.seed;
        insert_copy_crashes(&mut self.steps, seed, copies as f64 * crashes / asks.max(1.0));
        self
    }
}

/// Reports whether the step is a client's request.
const fn is_request(step: &HistoryStep) -> bool {
    matches!(step, HistoryStep::Request(_) | HistoryStep::Net(NetAction::Request(..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{History, HistoryKind};

    #[test]
    fn copies_do_not_change_the_history() {
        let kind = HistoryKind::with_crashes(3, 60);
        let with = History::new(Seed(5), &HistoryKind { copies: 20, ..kind });
        let without = with.clone().without_copies();
        assert_eq!(without, History::new(Seed(5), &HistoryKind { copies: 0, ..kind }));
        let (with, without) = (with.run(), without.run());
        assert!(with.failure.is_none() && without.failure.is_none(), "{with:?} {without:?}");
        assert!(with.statistics.in_copies > 20, "{:?}", with.statistics);
        let own = |of: &crate::Statistics| (of.crashes - of.in_copies, of.gaps.clone());
        assert_eq!(own(&with.statistics), own(&without.statistics));
        assert_ne!(with.digest, without.digest);
    }

    #[test]
    fn a_copy_crashes_when_something_is_durable() {
        let history = History::new(Seed(5), &HistoryKind::fault_free(60)).without_copies();
        let first = HistoryStep::CrashCopyAfterDurable(Crash::power_loss_now());
        let count = |armed| {
            let steps = std::iter::repeat_n(first.clone(), armed).chain(history.steps.iter().cloned());
            let outcome = History { steps: steps.collect(), ..history.clone() }.run();
            assert!(outcome.failure.is_none(), "{outcome:?}");
            outcome.statistics.in_copies
        };
        assert_eq!((count(0), count(3)), (0, 3));
    }

    #[test]
    fn redrawing_copies_changes_nothing_else() {
        let history = History::new(Seed(5), &HistoryKind::with_crashes(10, 60));
        let more = history.clone().with_copies(30);
        let count = |history: &History| {
            history.steps.iter().filter(|step| matches!(step, HistoryStep::CrashCopy(_))).count()
        };
        assert!((200..400).contains(&count(&more)), "{}", count(&more));
        assert_eq!(more.with_copies(0), history.with_copies(0));
    }
}
