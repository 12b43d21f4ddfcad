//! The policy's rounds: now and then it is asked what is to be moved.

use crate::Engine;
use weir_model::Nanos;
use weir_policy::Random;

/// When the policy is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    every: Option<Nanos>,
    next: Option<Nanos>,
}

impl Rounds {
    pub(crate) fn new(now: Nanos, every: Option<Nanos>) -> Self {
        Self { every, next: every.map(|every| now + every) }
    }
}

impl Engine {
    /// What the policy draws comes from this seed from now on, instead of always the same one.
    pub fn set_seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// When the next round is due.
    pub(crate) fn round_due(&self) -> Option<Nanos> {
        self.rounds.next.filter(|_| self.stopped_changes.is_none())
    }

    /// Holds a round if one is due.
    pub(crate) fn hold_round(&mut self) {
        if self.round_due().is_none_or(|due| due > self.now) {
            return;
        }
        self.rounds.next = self.rounds.every.map(|every| self.now + every);
        self.ask(|policy, moment| policy.round(moment));
    }
}
