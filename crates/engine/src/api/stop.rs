//! Stopping: the engine refuses changes, waits for commands in flight, and makes everything durable.

use crate::space::WhenFull;
use crate::task::Task;
use crate::{Engine, StoppedChanges};
use weir_model::{Memory, Nanos};

/// The task that verifies all devices once the engine is at rest ([`crate::verify::last_check`]).
#[derive(Debug)]
pub(crate) struct LastCheck;

impl Task for LastCheck {
    type On = Engine;

    fn can_run(engine: &Engine) -> bool {
        engine.data.base.verification.is_last_check_requested() && engine.is_quiescent()
    }

    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if Self::can_run(engine) {
            engine.data.base.verification.begin_last_check(&mut engine.data.base.core);
        }
    }
}

impl Engine {
    /// Stops accepting changes. Once everything in flight has ended, the engine commits, writes a checkpoint,
    /// and verifies the devices once more.
    pub fn begin_stop(&mut self, now: Nanos) {
        self.data.base.core.now = now;
        self.data.base.core.stopped_changes.get_or_insert(StoppedChanges::Stopping);
        self.admin.fail_draining_removals(&self.data.base.core, &self.data.base.verification);
        self.data.base.verification.request_last_check();
        self.data.base.durability.close_intents(&mut self.data.base.core, &self.data.base.requests);
        self.data.base.space.retry_waiting_space(&mut self.data.base.requests);
    }

    /// Whether a stop begun with [`Self::begin_stop`] is complete: everything that can be durable is, and
    /// nothing is in flight. [`Self::damaged_device`] then names a device that lost data.
    pub fn stopped(&self) -> bool {
        self.is_quiescent() && self.data.base.verification.last_check_is_over()
    }

    fn is_quiescent(&self) -> bool {
        let has_commands = self.data.base.core.commands.len() != self.data.base.core.abandoned.len()
            || self.data.base.core.commands.has_queued();
        self.data.base.core.stopped_changes.is_some()
            && !has_commands
            && self.data.base.requests.replies.is_empty()
            && self.tasks_are_idle()
    }

    /// Refuses the requests that wait for space, and all later ones that would. For a driver that is about to
    /// stop.
    pub fn stop_waiting_for_space(&mut self, now: Nanos) {
        self.data.base.core.now = now;
        self.data.base.space.state.rules.when_full = WhenFull::Error;
        self.data.base.space.retry_waiting_space(&mut self.data.base.requests);
    }
}
