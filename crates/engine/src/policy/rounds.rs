//! The policies' rounds: each policy is asked periodically for actions.

use crate::Base;
use crate::core::Core;
use crate::notice::Notice;
use crate::policy::Host;
use crate::policy::index::PolicyIndex;
use crate::task::Task;
use weir_model::{Memory, Nanos};

/// The schedule of a policy's rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    interval: Option<Nanos>,
    next: Option<Nanos>,
}

impl Rounds {
    pub(crate) fn new(now: Nanos, every: Option<Nanos>) -> Self {
        Self { interval: every, next: every.map(|every| now + every) }
    }

    /// Whether the policy has rounds.
    pub(crate) fn has_rounds(self) -> bool {
        self.interval.is_some()
    }
}

/// A policy's remark that it cannot do as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The name of the volume that has this policy as its own; `None` for the pool's policy.
    pub volume: Option<String>,
    /// The policy's name.
    pub policy: &'static str,
    /// The remark.
    pub text: &'static str,
}

impl Task for Rounds {
    type On = Base;

    /// Returns when the next round is due.
    fn due(base: &Base) -> Option<Nanos> {
        let next = base.host.policies.all.iter().filter_map(|instance| instance.rounds.next).min();
        next.filter(|_| base.core.stopped_changes.is_none())
    }

    /// Runs the rounds that are due.
    fn run<M: Memory>(base: &mut Base, _: &mut M) {
        if <Self as Task>::due(base).is_none_or(|due| due > base.core.now) {
            return;
        }
        for at in 0..base.host.policies.all.len() {
            let rounds = &mut base.host.policies.all[at].rounds;
            if rounds.next.is_some_and(|due| due <= base.core.now) {
                rounds.next = rounds.interval.map(|every| base.core.now + every);
                base.ask(PolicyIndex(at), |policy, moment| policy.round(moment));
                base.host.note_remark(&mut base.core, PolicyIndex(at));
            }
        }
    }
}

impl Host {
    /// Reports the policy's remark, if it has changed.
    fn note_remark(&mut self, core: &mut Core, policy_index: PolicyIndex) {
        let instance = &mut self.policies.all[policy_index.0];
        let (policy, remark) = (instance.policy.name(), instance.policy.remark());
        let before = std::mem::replace(&mut instance.remark, remark);
        if before != remark {
            let volume = self.policies.volume_of(policy_index);
            core.notices.push(match (remark, before) {
                (Some(remark), _) => Notice::Remark { volume, policy, remark },
                (None, before) => {
                    Notice::RemarkCleared { volume, policy, remark: before.unwrap_or_default() }
                }
            });
        }
    }
}

impl Base {
    /// Returns the remarks of all policies.
    pub(crate) fn remarks(&self) -> impl Iterator<Item = Remark> + '_ {
        self.host.policies.all.iter().enumerate().filter_map(|(at, instance)| {
            let volume =
                self.host.policies.volume_of(PolicyIndex(at)).and_then(|id| self.core.map.volume(id));
            let (policy, text) = (instance.policy.name(), instance.remark?);
            Some(Remark { volume: volume.map(|volume| volume.name.clone()), policy, text })
        })
    }
}
