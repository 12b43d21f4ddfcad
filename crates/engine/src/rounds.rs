//! The policies' rounds: now and then each is asked what is to be moved.

use crate::Engine;
use crate::policies::Which;
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

    /// Whether there are any.
    pub(crate) fn is_held(self) -> bool {
        self.every.is_some()
    }
}

impl Engine {
    /// What the policy draws comes from this seed from now on, instead of always the same one.
    pub fn set_seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// When the next round is due.
    pub(crate) fn round_due(&self) -> Option<Nanos> {
        let next = self.policies.all.iter().filter_map(|instance| instance.rounds.next).min();
        next.filter(|_| self.stopped_changes.is_none())
    }

    /// Holds the rounds that are due.
    pub(crate) fn hold_round(&mut self) {
        if self.round_due().is_none_or(|due| due > self.now) {
            return;
        }
        for at in 0..self.policies.all.len() {
            let rounds = &mut self.policies.all[at].rounds;
            if rounds.next.is_some_and(|due| due <= self.now) {
                rounds.next = rounds.every.map(|every| self.now + every);
                self.ask_one(Which(at), |policy, moment| policy.round(moment));
            }
        }
    }
}
