//! The mover's queue: what policies ask for, of which it takes a bounded number, and copies that are owed.

use std::collections::VecDeque;
use weir_model::ExtentKey;
use weir_policy::placement::Action;

/// Actions asked for that wait; more are not taken.
const MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    asked: VecDeque<Action>,
    /// Copies that are owed: they begin before what policies ask for, which may be something all the time.
    owed: VecDeque<Action>,
}

impl Actions {
    /// Adds what a policy asks for, unless too much waits.
    pub(crate) fn push(&mut self, action: Action) {
        if self.free() > 0 {
            self.asked.push_back(action);
        }
    }

    /// The next one to begin.
    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.owed.pop_front().or_else(|| self.asked.pop_front())
    }

    /// The next one about an extent, taken out if it is one that is wanted.
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

    /// How many more that policies ask for are taken.
    pub(crate) fn free(&self) -> usize {
        MAX.saturating_sub(self.asked.len())
    }

    /// Adds one that is owed.
    pub(crate) fn push_owed(&mut self, action: Action) {
        self.owed.push_back(action);
    }

    /// Whether none that is owed waits.
    pub(crate) fn has_begun_what_is_owed(&self) -> bool {
        self.owed.is_empty()
    }

    /// How many wait.
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
