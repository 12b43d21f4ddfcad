//! The check of all devices that ends a stop ([`crate::verify`]).

use crate::Engine;
use crate::task::Task;
use crate::verify::LastCheck;
use crate::verify::Verification;
use weir_model::Memory;

impl Task for LastCheck {
    fn can_run(engine: &Engine) -> bool {
        engine.verification.last_check == Self::Wanted && engine.is_at_rest()
    }

    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if Self::can_run(engine) {
            engine.verification.last_check =
                Self::Began(engine.verification.verify_unless(&mut engine.core, |_, _| false));
        }
    }
}

impl Verification {
    /// The stop waits for one more check of all devices.
    pub(crate) fn want_last_check(&mut self) {
        self.last_check = LastCheck::Wanted;
    }

    /// Whether the check that ends a stop has ended.
    pub(crate) fn last_check_is_over(&self) -> bool {
        matches!(self.last_check, LastCheck::Began(round) if self.is_over(round))
    }
}
