//! The check of all devices that ends a stop ([`crate::device::verify`]).

use crate::Engine;
use crate::device::verify::Round;
use crate::task::Task;
use weir_model::Memory;

/// How far the check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LastCheck {
    /// Nothing is being stopped.
    #[default]
    NotWanted,
    /// It begins once everything else is at rest.
    Wanted,
    Began(Round),
}

impl Task for LastCheck {
    fn can_run(engine: &Engine) -> bool {
        engine.checks.last_check == Self::Wanted && engine.is_at_rest()
    }

    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if Self::can_run(engine) {
            engine.checks.last_check = Self::Began(engine.verify_unless(|_, _| false));
        }
    }
}

impl Engine {
    /// The stop waits for one more check of all devices.
    pub(crate) fn want_last_check(&mut self) {
        self.checks.last_check = LastCheck::Wanted;
    }

    /// Whether the check that ends a stop has ended.
    pub(crate) fn last_check_is_over(&self) -> bool {
        matches!(self.checks.last_check, LastCheck::Began(round) if self.checks.verification.is_over(round))
    }
}
