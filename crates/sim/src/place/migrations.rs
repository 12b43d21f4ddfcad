//! Counts the requests that a policy migrates.

use std::sync::{Arc, Mutex, PoisonError};
use weir_model::{BlockRange, DeviceId, ExtentKey, ExtentSize, Nanos, Op};
use weir_policy::placement::{
    Access, Action, KeptPlaces, Placement, PolicyContext, Question, ReadFrom, Reasons, Subscriptions, WriteTo,
};

/// A request that a policy decided to migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// When; from the start of the world, as [`crate::Outcome::start`].
    pub at: Nanos,
    /// The device on which the blocks were.
    pub from: DeviceId,
    /// The device to which they go.
    pub to: DeviceId,
}

/// The requests that a policy migrates: reads whose blocks move, and writes that go to another device.
#[derive(Clone, Debug, Default)]
pub struct MigrationLog(Arc<Mutex<Vec<Migration>>>);

impl MigrationLog {
    /// Returns the same policy, with its migrations noted in this log.
    pub fn around(&self, policy: Box<dyn Placement>) -> Box<dyn Placement> {
        Box::new(LoggedPolicy { policy, log: self.clone() })
    }

    /// Returns the migrations so far, in order of time.
    pub fn migrations(&self) -> Vec<Migration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, at: Nanos, from: Option<DeviceId>, to: DeviceId) {
        if let Some(from) = from.filter(|from| *from != to) {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(Migration { at, from, to });
        }
    }
}

/// A policy and the log of its migrations.
#[derive(Debug)]
struct LoggedPolicy {
    policy: Box<dyn Placement>,
    log: MigrationLog,
}

impl LoggedPolicy {
    /// Notes the move of what is being read, if the policy has just asked for it.
    fn note_move(&self, context: &PolicyContext<'_>, access: &Access, actions: usize) {
        let of_it = |action: &&Action| -> bool {
            let Action::Move { key, blocks, .. } = action else { return false };
            let (key, blocks): (&ExtentKey, _) = (key, blocks);
            access.op == Op::Read && (*key, *blocks) == (access.key, access.blocks)
        };
        if let Some(Action::Move { to, .. }) = context.actions[actions..].iter().find(of_it) {
            self.log.note(context.now, access.places.device(), to.device);
        }
    }
}

impl Placement for LoggedPolicy {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        self.policy.allocate(context, access)
    }

    fn subscriptions(&self) -> Subscriptions {
        self.policy.subscriptions()
    }

    fn read_from(&self) -> ReadFrom {
        self.policy.read_from()
    }

    fn prefetch(&self, key: ExtentKey, blocks: BlockRange, extent: ExtentSize) {
        self.policy.prefetch(key, blocks, extent);
    }

    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        let actions = context.actions.len();
        self.policy.accessed(context, access);
        self.note_move(context, access, actions);
    }

    fn write_to(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        self.policy.write_to(context, access)
    }

    fn write(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        let target = self.policy.write(context, access);
        if let Some(to) = target.device() {
            self.log.note(context.now, access.places.device(), to);
        }
        target
    }

    fn kept_places(&self) -> KeptPlaces {
        self.policy.kept_places()
    }

    fn round_interval(&self) -> Option<Nanos> {
        self.policy.round_interval()
    }

    fn round(&mut self, context: &mut PolicyContext<'_>) {
        self.policy.round(context);
    }

    fn remark(&self) -> Option<&'static str> {
        self.policy.remark()
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        self.policy.explain(context, about)
    }
}
