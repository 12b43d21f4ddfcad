//! The engine's entry points: they pass requests and completions to the module in charge, and handle the
//! effects that follow.

mod completions;
pub(crate) mod devices;
pub(crate) mod pump;
mod requests;
pub(crate) mod stop;

use crate::Engine;
use crate::effect::Effect;

impl Engine {
    /// Handles all pending effects.
    pub(crate) fn handle_effects(&mut self) {
        while let Some(effect) = self.data.base.effects.next() {
            self.handle(effect);
        }
    }

    fn handle(&mut self, effect: Effect) {
        match effect {
            Effect::StepEnded(step, error) => self.admin_step_ended(step, error),
            Effect::Cleared(volume, error) => self.clearing_ended(volume, error),
            Effect::Committed => self.data.retry_waiting_moves(),
            Effect::MetadataFailed => {
                self.admin.fail_draining_removals(&self.data.base.core, &self.data.base.verification);
            }
        }
    }
}
