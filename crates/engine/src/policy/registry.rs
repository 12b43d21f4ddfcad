//! The policies of a pool: one for all volumes, and those of volumes that have their own.
//!
//! Each is told and asked about its own volumes alone, and finds only their extents. What it asks for
//! elsewhere is not done: it may have had the volume before.

use crate::core::Core;
use crate::policy::Host;
use crate::policy::harm::Judged;
use crate::policy::rounds::Rounds;
use crate::policy::which::Which;
use std::collections::BTreeMap;
use weir_model::{Nanos, VolumeId};
use weir_policy::harm::Moves;
use weir_policy::placement::{Placement, ReadFrom, TunedPolicy, Watches};

/// A policy at work.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) policy: Box<dyn Placement>,
    pub(crate) watches: Watches,
    pub(crate) read_from: ReadFrom,
    pub(crate) rounds: Rounds,
    pub(crate) judged: Judged,
    /// What it has to say, as it was told last.
    pub(crate) remark: Option<&'static str>,
}

impl Instance {
    fn new(now: Nanos, policy: Box<dyn Placement>, moves: Moves) -> Self {
        let (watches, read_from) = (policy.watches(), policy.read_from());
        let rounds = Rounds::new(now, policy.round_every());
        Self { policy, watches, read_from, rounds, judged: Judged::new(now, moves), remark: None }
    }

    /// Whether it may ever ask for something to be moved, or for a write to go elsewhere.
    fn may_move(&self) -> bool {
        self.watches.accesses || self.watches.writes || self.rounds.is_held()
    }
}

/// All policies at work.
#[derive(Debug)]
pub(crate) struct Policies {
    /// The pool's, then those of the volumes in `own`.
    pub(crate) all: Vec<Instance>,
    pub(crate) own: Vec<VolumeId>,
    /// Some of them may ask for something to be moved.
    pub(crate) moving: bool,
    /// What volumes of these names are to have, those that are not there yet included.
    chosen: BTreeMap<String, TunedPolicy>,
}

impl Policies {
    pub(crate) fn new(now: Nanos, policy: Box<dyn Placement>) -> Self {
        let pools = Instance::new(now, policy, Moves::default());
        let moving = pools.may_move();
        Self { all: vec![pools], own: Vec::new(), moving, chosen: BTreeMap::new() }
    }

    /// Some policy is another one.
    fn changed(&mut self) {
        self.moving = self.all.iter().any(Instance::may_move);
    }

    /// The policy of a volume. Cost: a look at each volume that has its own.
    #[inline]
    pub(crate) fn of(&self, volume: VolumeId) -> Which {
        if self.own.is_empty() {
            return Which(0);
        }
        Which(self.own.iter().position(|own| *own == volume).map_or(0, |at| at + 1))
    }

    /// What the policy of a volume wants to be told and asked.
    #[inline]
    pub(crate) fn watches(&self, volume: VolumeId) -> Watches {
        self.all[self.of(volume).0].watches
    }

    /// Which of several places the reads of a volume go to.
    #[inline]
    pub(crate) fn read_from(&self, volume: VolumeId) -> ReadFrom {
        self.all[self.of(volume).0].read_from
    }

    /// The volume of a policy that is not the pool's.
    pub(crate) fn volume_of(&self, which: Which) -> Option<VolumeId> {
        which.0.checked_sub(1).and_then(|at| self.own.get(at)).copied()
    }

    /// The name of the pool's policy.
    pub(crate) fn name(&self) -> &'static str {
        self.all[0].policy.name()
    }

    /// The name of the volume's own policy, if it has one.
    pub(crate) fn own_name(&self, volume: VolumeId) -> Option<&'static str> {
        let Which(at) = self.of(volume);
        (at > 0).then(|| self.all[at].policy.name())
    }

    /// The volume is gone, or has the pool's policy again.
    pub(crate) fn forget(&mut self, volume: VolumeId) {
        let Which(at) = self.of(volume);
        if at > 0 {
            self.own.remove(at - 1);
            self.all.remove(at);
            self.changed();
        }
    }

    /// A volume is there: it gets its own policy if it is to have one.
    pub(crate) fn settle(&mut self, now: Nanos, volume: VolumeId, name: &str, moves: Moves) {
        self.forget(volume);
        if let Some(choice) = self.chosen.get(name) {
            self.own.push(volume);
            self.all.push(Instance::new(now, choice.make(), moves));
            self.changed();
        }
    }
}

impl Host {
    /// From now on this policy decides, but for volumes that have their own.
    pub(crate) fn set_policy(&mut self, core: &Core, policy: Box<dyn Placement>) {
        self.policies.all[0] = Instance::new(core.now, policy, self.harm.moves());
        self.policies.changed();
        self.look_for_metadata(core);
    }

    /// From now on the volume of this name has its own policy, made as it is chosen; without a choice, the
    /// pool's.
    pub(crate) fn set_volume_policy(&mut self, core: &Core, name: &str, choice: Option<TunedPolicy>) {
        match choice {
            Some(choice) => drop(self.policies.chosen.insert(name.to_owned(), choice)),
            None => drop(self.policies.chosen.remove(name)),
        }
        if let Some(volume) = core.map.catalogue().by_name(name) {
            self.policies.settle(core.now, volume, name, self.harm.moves());
            self.look_for_metadata(core);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::which::is_about;
    use weir_policy::placement::{by_name, untuned};

    #[test]
    fn each_volume_has_its_own_policy_or_the_pool_s() {
        let mut policies = Policies::new(Nanos(0), by_name("stripe").expect("a policy"));
        for (name, policy) in [("a", "wardrop"), ("b", "hystor")] {
            policies.chosen.insert(name.into(), untuned(policy).expect("a policy"));
        }
        for (volume, name) in [(1, "a"), (2, "b"), (3, "c")] {
            policies.settle(Nanos(0), VolumeId(volume), name, Moves::default());
        }
        let names = |policies: &Policies| [1, 2, 3].map(|v| policies.own_name(VolumeId(v)));
        assert_eq!((policies.name(), names(&policies)), ("stripe", [Some("wardrop"), Some("hystor"), None]));
        let about = |policies: &Policies, which: usize| {
            [1, 2, 3].map(|v| is_about(Which(which), &policies.own, VolumeId(v)))
        };
        assert_eq!(about(&policies, 0), [false, false, true]);
        assert_eq!(about(&policies, 2), [false, true, false]);
        policies.forget(VolumeId(1));
        assert_eq!(names(&policies), [None, Some("hystor"), None]);
        assert_eq!(about(&policies, 1), [false, true, false]);
        assert!(policies.watches(VolumeId(2)).writes && !policies.watches(VolumeId(1)).writes);
    }
}
