//! The one loop that moves an engine: what is due is done, and the commands that follow go to the devices.

use crate::Engine;
use weir_model::{Io, IoDone, IoError, Memory, Nanos};

/// Whatever drives an engine: a clock, buffers, and devices.
pub trait Driver {
    /// What the buffers are in.
    type Memory: Memory;
    /// The time. It never runs backwards.
    fn now(&self) -> Nanos;
    /// The buffers.
    fn memory(&mut self) -> &mut Self::Memory;
    /// Starts a device command. Its result, if it has ended at once; otherwise the driver hands it to
    /// [`Engine::complete`] later.
    fn start(&mut self, io: Io) -> Option<Result<(), IoError>>;
}

impl Engine {
    /// Does what has become due (commits, checkpoints, the rest of long requests), and starts device
    /// commands until there are none. To be called once after each batch of [`Self::submit`] and
    /// [`Self::complete`] (a batch of FLUSHes is then one commit), and when [`Self::deadline`] has come.
    #[inline]
    pub fn pump<D: Driver>(&mut self, driver: &mut D) {
        self.tick(driver.now(), driver.memory());
        while let Some(io) = self.next_io() {
            if let Some(result) = driver.start(io) {
                self.complete(driver.now(), IoDone { id: io.id, result }, driver.memory());
            }
        }
    }

    fn tick<M: Memory>(&mut self, now: Nanos, memory: &mut M) {
        self.data.base.core.now = now;
        self.run_tasks(memory);
    }

    /// The next command for a device, to be started now.
    #[inline]
    fn next_io(&mut self) -> Option<Io> {
        debug_assert!(self.data.base.effects.is_empty(), "an effect was not handled");
        self.data.base.core.commands.next()
    }
}
