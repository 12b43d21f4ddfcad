//! A policy with a budget of bytes that it may write to flash per day.

use crate::write_budget::WriteBudget;
use weir_model::{BLOCK, BlockRange, Bytes, DeviceId, DeviceSet, ExtentKey, ExtentSize};
use weir_policy::placement::{
    Access, Action, KeptPlaces, Placement, PolicyContext, Question, ReadFrom, Reasons, Subscriptions, WriteTo,
};

/// Returns the same policy with a budget for these devices together.
///
/// While the budget is overdrawn, the policy's copies and moves to these devices are left out, and a write to
/// blocks that are not on them is in place. Writes to blocks that are on them are always carried out, and new
/// data is allocated as the policy wants: both count, new data from its second write on. What was not used
/// for a minute is lost.
pub fn budgeted(policy: Box<dyn Placement>, devices: DeviceSet, per_day: Bytes) -> Box<dyn Placement> {
    Box::new(BudgetedPolicy { policy, devices, budget: WriteBudget::new(per_day) })
}

#[derive(Debug)]
struct BudgetedPolicy {
    policy: Box<dyn Placement>,
    devices: DeviceSet,
    budget: WriteBudget,
}

impl BudgetedPolicy {
    /// Takes the actions after the first `before` from the budget, and removes those that exceed it.
    fn limit_actions(&mut self, context: &mut PolicyContext<'_>, before: usize) {
        let mut kept = before;
        for at in before..context.actions.len() {
            let action = context.actions[at];
            if self.allows(context, &action) {
                context.actions[kept] = action;
                kept += 1;
            }
        }
        context.actions.truncate(kept);
    }

    fn allows(&mut self, context: &PolicyContext<'_>, action: &Action) -> bool {
        let (Action::Copy { blocks, to, .. } | Action::Move { blocks, to, .. }) = action else { return true };
        if !self.devices.contains(to.device) {
            return true;
        }
        let is_left = self.budget.is_left(context.now);
        if is_left {
            self.budget.take(Bytes(u64::from(blocks.count) * BLOCK));
        }
        is_left
    }

    /// Returns the target of a write within the budget.
    fn limit_write(&mut self, context: &PolicyContext<'_>, access: &Access, target: WriteTo) -> WriteTo {
        let of_place = access.places.device();
        let Some(to) = target.device().or(of_place).filter(|to| self.devices.contains(*to)) else {
            return target;
        };
        let is_there = access.places.is_on(to);
        if !self.budget.is_left(context.now) && !is_there {
            return WriteTo::InPlace;
        }
        if of_place.is_some() {
            self.budget.take(access.bytes);
        }
        target
    }
}

impl Placement for BudgetedPolicy {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        self.policy.allocate(context, access)
    }

    /// The budget needs all writes.
    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { writes: true, ..self.policy.subscriptions() }
    }

    fn read_from(&self) -> ReadFrom {
        self.policy.read_from()
    }

    fn prefetch(&self, key: ExtentKey, blocks: BlockRange, extent: ExtentSize) {
        self.policy.prefetch(key, blocks, extent);
    }

    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        let before = context.actions.len();
        self.policy.accessed(context, access);
        self.limit_actions(context, before);
    }

    fn write_to(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        let before = context.actions.len();
        let target = self.policy.write_to(context, access);
        self.limit_actions(context, before);
        self.limit_write(context, access, target)
    }

    fn write(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        let before = context.actions.len();
        let target = self.policy.write(context, access);
        self.limit_actions(context, before);
        self.limit_write(context, access, target)
    }

    fn kept_places(&self) -> KeptPlaces {
        self.policy.kept_places()
    }

    fn round_interval(&self) -> Option<weir_model::Nanos> {
        self.policy.round_interval()
    }

    fn round(&mut self, context: &mut PolicyContext<'_>) {
        let before = context.actions.len();
        self.policy.round(context);
        self.limit_actions(context, before);
    }

    fn remark(&self) -> Option<&'static str> {
        self.policy.remark()
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        self.policy.explain(context, about)
    }
}
