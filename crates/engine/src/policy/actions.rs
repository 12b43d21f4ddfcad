//! The mover's queue: a bounded number of actions that policies request, and required copies.

use std::collections::VecDeque;
use weir_model::ExtentKey;
use weir_policy::placement::Action;

/// The maximum number of waiting policy actions; more are dropped.
const ACTIONS_MAX: usize = 64;

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    requested: VecDeque<Action>,
    /// Required copies. They begin before the policies' actions, which may never run out.
    required: VecDeque<Action>,
}

impl Actions {
    /// Adds an action of a policy, unless the queue is full.
    pub(crate) fn push(&mut self, action: Action) {
        if self.free() > 0 {
            self.requested.push_back(action);
        }
    }

    /// Takes the next action to begin.
    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.required.pop_front().or_else(|| self.requested.pop_front())
    }

    /// Takes the next action on an extent, if it is `wanted`.
    pub(crate) fn take(&mut self, key: ExtentKey, wanted: impl Fn(&Action) -> bool) -> Option<Action> {
        let of_extent = |queue: &VecDeque<Action>| queue.iter().position(|action| action.key() == key);
        let (queue, at) = match of_extent(&self.required) {
            Some(at) => (&mut self.required, at),
            None => {
                let at = of_extent(&self.requested)?;
                (&mut self.requested, at)
            }
        };
        if wanted(&queue[at]) { queue.remove(at) } else { None }
    }

    /// Returns how many more policy actions fit.
    pub(crate) fn free(&self) -> usize {
        ACTIONS_MAX.saturating_sub(self.requested.len())
    }

    /// Adds a required copy.
    pub(crate) fn push_required(&mut self, action: Action) {
        self.required.push_back(action);
    }

    /// Whether no required copy waits.
    pub(crate) fn has_begun_required(&self) -> bool {
        self.required.is_empty()
    }

    /// Returns the number of waiting actions.
    pub(crate) fn len(&self) -> usize {
        self.requested.len() + self.required.len()
    }

    /// Whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{ExtentIndex, VolumeId};

    #[test]
    fn required_copies_precede_policy_actions() {
        let about =
            |index| Action::Refresh { key: ExtentKey { volume: VolumeId(1), index: ExtentIndex(index) } };
        let mut queue = Actions::default();
        queue.push(about(1));
        queue.required.push_back(about(2));
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(about(2)), Some(about(1)), None));
    }
}
