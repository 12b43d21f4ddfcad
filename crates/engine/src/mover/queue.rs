//! Actions that wait for a buffer.

use crate::Engine;
use std::collections::VecDeque;
use weir_model::ExtentKey;
use weir_policy::placement::Action;

/// Actions asked for that wait; more are not taken.
const MAX: usize = 64;

/// What the mover has yet to begin.
#[derive(Debug, Default)]
pub(super) struct Queue {
    asked: VecDeque<Action>,
    /// Copies that are owed: they begin before what policies ask for, which may be something all the time.
    owed: VecDeque<Action>,
}

impl Queue {
    /// Adds what a policy asks for, unless too much waits.
    pub(super) fn push(&mut self, action: Action) {
        if self.room() > 0 {
            self.asked.push_back(action);
        }
    }

    /// The next one to begin.
    pub(super) fn pop(&mut self) -> Option<Action> {
        self.owed.pop_front().or_else(|| self.asked.pop_front())
    }

    /// The next one about an extent, taken out if it is one that is wanted.
    pub(super) fn take(&mut self, key: ExtentKey, wanted: impl Fn(&Action) -> bool) -> Option<Action> {
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
    pub(super) fn room(&self) -> usize {
        MAX.saturating_sub(self.asked.len())
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.owed.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Engine {
    /// Asks for a copy that is owed.
    pub(crate) fn request_owed(&mut self, action: Action) {
        self.mover.queue.owed.push_back(action);
    }

    /// No copy that is owed waits to be begun.
    pub(crate) fn has_begun_what_is_owed(&self) -> bool {
        self.mover.queue.owed.is_empty()
    }
}
