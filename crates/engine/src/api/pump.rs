//! The loop that drives an engine: it runs due tasks and hands the resulting commands to the devices.

use crate::Engine;
use weir_model::{Io, IoCompletion, IoError, Memory, Nanos};

/// The environment of an engine: a clock, buffers, and devices.
pub trait Driver {
    /// The memory that contains the buffers.
    type Memory: Memory;
    /// Returns the current time. It never runs backwards.
    fn now(&self) -> Nanos;
    /// Returns the buffers.
    fn memory(&mut self) -> &mut Self::Memory;
    /// Starts a device command. Returns its result if it has ended at once; otherwise the driver passes the
    /// result to [`Engine::complete`] later.
    fn start(&mut self, io: Io) -> Option<Result<(), IoError>>;
}

impl Engine {
    /// Runs due work (commits, checkpoints, the rest of long requests), and starts device commands until none
    /// is left. The driver calls it once after each batch of [`Self::submit`] and [`Self::complete`], so that
    /// a batch of FLUSHes is one commit, and when [`Self::deadline`] has come.
    #[inline]
    pub fn pump<D: Driver>(&mut self, driver: &mut D) {
        self.tick(driver.now(), driver.memory());
        while let Some(io) = self.next_io() {
            if let Some(result) = driver.start(io) {
                self.complete(driver.now(), IoCompletion { id: io.id, result }, driver.memory());
            }
        }
    }

    fn tick<M: Memory>(&mut self, now: Nanos, memory: &mut M) {
        self.data.base.core.now = now;
        self.run_tasks(memory);
    }

    /// Returns the next device command to start.
    #[inline]
    fn next_io(&mut self) -> Option<Io> {
        debug_assert!(self.data.base.effects.is_empty(), "an effect was not handled");
        self.data.base.core.commands.next()
    }
}
