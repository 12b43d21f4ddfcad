//! The mover's queue: a bounded number of actions that policies request, and required copies.

use std::collections::VecDeque;
use weir_model::ExtentKey;
use weir_policy::placement::Action;

/// The maximum number of waiting policy actions; more are dropped.
const MAX: usize = 64;

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    asked: VecDeque<Action>,
    /// Required copies. They begin before the policies' actions, which may never run out.
    owed: VecDeque<Action>,
}

impl Actions {
    /// Adds an action of a policy, unless the queue is full.
    pub(crate) fn push(&mut self, action: Action) {
        if self.free() > 0 {
            self.asked.push_back(action);
        }
    }

    /// Takes the next action to begin.
    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.owed.pop_front().or_else(|| self.asked.pop_front())
    }

    /// Takes the next action on an extent, if it is `wanted`.
    pub(crate) fn take(&mut self, key: ExtentKey, wanted: impl Fn(&Action) -> bool) -> Option<Action> {
        let of_extent = |queue: &VecDeque<Action>| queue.iter().position(|action| action.key() == key);
        let (queue, at) = match of_extent(&self.owed) {
            Some(at) => (&mut self.owed, at),
            None => {
                let at = of_extent(&self.asked)?;
                (&mut self.asked, at)
            }
        };
        if wanted(&queue[at]) { queue.remove(at) } else { None }
    }

    /// Returns how many more policy actions fit.
    pub(crate) fn free(&self) -> usize {
        MAX.saturating_sub(self.asked.len())
    }

    /// Adds a required copy.
    pub(crate) fn push_owed(&mut self, action: Action) {
        self.owed.push_back(action);
    }

    /// Whether no required copy waits.
    pub(crate) fn has_begun_what_is_owed(&self) -> bool {
        self.owed.is_empty()
    }

    /// Returns the number of waiting actions.
    pub(crate) fn len(&self) -> usize {
        self.asked.len() + self.owed.len()
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
    fn what_is_owed_comes_before_what_policies_ask_for() {
        let about =
            |index| Action::Refresh { key: ExtentKey { volume: VolumeId(1), index: ExtentIndex(index) } };
        let mut queue = Actions::default();
        queue.push(about(1));
        queue.owed.push_back(about(2));
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(about(2)), Some(about(1)), None));
    }
}
