//! The policies of a pool: one for all volumes, and those of volumes that have their own.
//!
//! Each policy sees only its own volumes, and is asked only about them. An action on another volume is
//! dropped: the policy may have requested it before the volume got its own policy.

use crate::core::Core;
use crate::policy::Host;
use crate::policy::harm::Evaluation;
use crate::policy::index::PolicyIndex;
use crate::policy::rounds::Rounds;
use std::collections::BTreeMap;
use weir_model::{BlockRange, ExtentKey, ExtentSize, Nanos, VolumeId};
use weir_policy::harm::MoveControl;
use weir_policy::placement::{Placement, ReadFrom, Subscriptions, TunedPolicy};

/// A policy in use.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) policy: Box<dyn Placement>,
    pub(crate) watches: Subscriptions,
    pub(crate) read_from: ReadFrom,
    pub(crate) rounds: Rounds,
    pub(crate) evaluation: Evaluation,
    /// Its last remark.
    pub(crate) remark: Option<&'static str>,
}

impl Instance {
    fn new(now: Nanos, policy: Box<dyn Placement>, moves: MoveControl) -> Self {
        let (watches, read_from) = (policy.subscriptions(), policy.read_from());
        let rounds = Rounds::new(now, policy.round_interval());
        Self { policy, watches, read_from, rounds, evaluation: Evaluation::new(now, moves), remark: None }
    }

    /// Whether it may ever request a move or redirect a write.
    fn may_move(&self) -> bool {
        self.watches.accesses || self.watches.writes || self.rounds.has_rounds()
    }
}

/// All policies in use.
#[derive(Debug)]
pub(crate) struct Policies {
    /// The pool's policy, then those of the volumes in `own`.
    pub(crate) all: Vec<Instance>,
    pub(crate) policy_volumes: Vec<VolumeId>,
    /// Whether some policy may request moves.
    pub(crate) any_may_move: bool,
    /// The policies chosen for volumes by name, including volumes that do not exist yet.
    chosen: BTreeMap<String, TunedPolicy>,
}

impl Policies {
    pub(crate) fn new(now: Nanos, policy: Box<dyn Placement>) -> Self {
        let pools = Instance::new(now, policy, MoveControl::default());
        let moving = pools.may_move();
        Self { all: vec![pools], policy_volumes: Vec::new(), any_may_move: moving, chosen: BTreeMap::new() }
    }

    /// Updates derived state after a policy was replaced.
    fn update_any_may_move(&mut self) {
        self.any_may_move = self.all.iter().any(Instance::may_move);
    }

    /// Returns the policy of a volume. Cost: linear in the volumes with their own policy.
    #[inline]
    pub(crate) fn index_of(&self, volume: VolumeId) -> PolicyIndex {
        if self.policy_volumes.is_empty() {
            return PolicyIndex(0);
        }
        PolicyIndex(self.policy_volumes.iter().position(|own| *own == volume).map_or(0, |at| at + 1))
    }

    /// Returns the events that the volume's policy watches.
    #[inline]
    pub(crate) fn watches(&self, volume: VolumeId) -> Subscriptions {
        self.all[self.index_of(volume).0].watches
    }

    /// Lets the volume's policy read what it needs to note an access, before the map is read.
    #[inline]
    pub(crate) fn prefetch(&self, key: ExtentKey, blocks: BlockRange, extent: ExtentSize) {
        let registered = &self.all[self.index_of(key.volume).0];
        if registered.watches.accesses {
            registered.policy.prefetch(key, blocks, extent);
        }
    }

    /// Returns the read preference of the volume's policy.
    #[inline]
    pub(crate) fn read_from(&self, volume: VolumeId) -> ReadFrom {
        self.all[self.index_of(volume).0].read_from
    }

    /// Returns the volume of a policy that is not the pool's.
    pub(crate) fn volume_of(&self, policy_index: PolicyIndex) -> Option<VolumeId> {
        policy_index.0.checked_sub(1).and_then(|at| self.policy_volumes.get(at)).copied()
    }

    /// Returns the name of the pool's policy.
    pub(crate) fn name(&self) -> &'static str {
        self.all[0].policy.name()
    }

    /// Returns the name of the volume's own policy, if it has one.
    pub(crate) fn own_name(&self, volume: VolumeId) -> Option<&'static str> {
        let PolicyIndex(at) = self.index_of(volume);
        (at > 0).then(|| self.all[at].policy.name())
    }

    /// Removes the volume's own policy: the volume is gone, or uses the pool's policy again.
    pub(crate) fn remove(&mut self, volume: VolumeId) {
        let PolicyIndex(at) = self.index_of(volume);
        if at > 0 {
            self.policy_volumes.remove(at - 1);
            self.all.remove(at);
            self.update_any_may_move();
        }
    }

    /// Gives a volume its own policy if one was chosen for it.
    pub(crate) fn apply_choice(&mut self, now: Nanos, volume: VolumeId, name: &str, moves: MoveControl) {
        self.remove(volume);
        if let Some(choice) = self.chosen.get(name) {
            self.policy_volumes.push(volume);
            self.all.push(Instance::new(now, choice.create(), moves));
            self.update_any_may_move();
        }
    }
}

impl Host {
    /// Replaces the pool's policy.
    pub(crate) fn set_policy(&mut self, core: &Core, policy: Box<dyn Placement>) {
        self.policies.all[0] = Instance::new(core.now, policy, self.harm.moves());
        self.policies.update_any_may_move();
        self.look_for_metadata(core);
    }

    /// Chooses a policy for the volume of this name; `None`: the pool's.
    pub(crate) fn set_volume_policy(&mut self, core: &Core, name: &str, choice: Option<TunedPolicy>) {
        match choice {
            Some(choice) => drop(self.policies.chosen.insert(name.to_owned(), choice)),
            None => drop(self.policies.chosen.remove(name)),
        }
        if let Some(volume) = core.map.catalogue().by_name(name) {
            self.policies.apply_choice(core.now, volume, name, self.harm.moves());
            self.look_for_metadata(core);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::index::decides_for;
    use weir_policy::placement::{by_name, with_default_settings};

    #[test]
    fn volume_uses_its_own_or_the_pool_policy() {
        let mut policies = Policies::new(Nanos(0), by_name("stripe").expect("a policy"));
        for (name, policy) in [("a", "wardrop"), ("b", "hystor")] {
            policies.chosen.insert(name.into(), with_default_settings(policy).expect("a policy"));
        }
        for (volume, name) in [(1, "a"), (2, "b"), (3, "c")] {
            policies.apply_choice(Nanos(0), VolumeId(volume), name, MoveControl::default());
        }
        let names = |policies: &Policies| [1, 2, 3].map(|v| policies.own_name(VolumeId(v)));
        assert_eq!((policies.name(), names(&policies)), ("stripe", [Some("wardrop"), Some("hystor"), None]));
        let about = |policies: &Policies, which: usize| {
            [1, 2, 3].map(|v| decides_for(PolicyIndex(which), &policies.policy_volumes, VolumeId(v)))
        };
        assert_eq!(about(&policies, 0), [false, false, true]);
        assert_eq!(about(&policies, 2), [false, true, false]);
        policies.remove(VolumeId(1));
        assert_eq!(names(&policies), [None, Some("hystor"), None]);
        assert_eq!(about(&policies, 1), [false, true, false]);
        assert!(policies.watches(VolumeId(2)).writes && !policies.watches(VolumeId(1)).writes);
    }
}
