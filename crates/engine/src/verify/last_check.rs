//! The check of all devices that ends a stop ([`crate::verify`]).

use crate::core::Core;
use crate::verify::LastCheck;
use crate::verify::Verification;

impl Verification {
    /// Requests one more check of all devices, for which the stop waits.
    pub(crate) fn request_last_check(&mut self) {
        self.last_check = LastCheck::Requested;
    }

    /// Whether that check must begin.
    pub(crate) fn is_last_check_requested(&self) -> bool {
        self.last_check == LastCheck::Requested
    }

    /// Begins that check.
    pub(crate) fn begin_last_check(&mut self, core: &mut Core) {
        self.last_check = LastCheck::Began(self.verify_unless(core, |_, _| false));
    }

    /// Whether that check has ended.
    pub(crate) fn last_check_is_over(&self) -> bool {
        matches!(self.last_check, LastCheck::Began(round) if self.is_over(round))
    }
}
