//! The check of all devices that ends a stop ([`crate::device::verify`]).

use crate::Engine;
use crate::device::verify::LastCheck;
use crate::task::Task;
use weir_model::Memory;

impl Task for LastCheck {
    fn can_run(engine: &Engine) -> bool {
        engine.verification.last_check == Self::Wanted && engine.is_at_rest()
    }

    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if Self::can_run(engine) {
            engine.verification.last_check = Self::Began(engine.verify_unless(|_, _| false));
        }
    }
}

impl Engine {
    /// The stop waits for one more check of all devices.
    pub(crate) fn want_last_check(&mut self) {
        self.verification.last_check = LastCheck::Wanted;
    }

    /// Whether the check that ends a stop has ended.
    pub(crate) fn last_check_is_over(&self) -> bool {
        matches!(self.verification.last_check, LastCheck::Began(round) if self.verification.is_over(round))
    }
}
