//! The set of fast devices, kept until measurements disagree.

use super::super::PolicyContext;
use super::fast::FastDevices;
use super::load_comparison::LoadComparison;

/// The fast devices, and the measurements that may change them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tiers {
    fast: FastDevices,
    /// Whether the speed of all devices is measured.
    is_measured: bool,
    /// The measurement after which they were last selected.
    selected_at: Option<u64>,
    load: LoadComparison,
}

impl Tiers {
    /// Returns the fast devices; none if the devices are alike.
    #[inline]
    pub(super) fn fast(&self) -> FastDevices {
        self.fast
    }

    /// Selects the devices again if one has been measured since. Once the speed of all devices is measured,
    /// the selection stays while they are usable and load does not contradict it. Returns whether it has
    /// changed.
    #[inline]
    pub(super) fn reselect(&mut self, context: &PolicyContext<'_>) -> bool {
        self.selected_at != Some(context.measured) && self.select_again(context)
    }

    #[inline(never)]
    fn select_again(&mut self, context: &PolicyContext<'_>) -> bool {
        self.selected_at = Some(context.measured);
        if self.is_measured && self.fast.are_usable(context.devices) {
            return false;
        }
        self.is_measured = FastDevices::is_certain(context.devices);
        self.replace(FastDevices::select(context.devices))
    }

    /// Updates the selection from measurements under load, once per round. Returns whether it has changed.
    pub(super) fn round(&mut self, context: &PolicyContext<'_>) -> bool {
        match self.load.round(context.now, context.devices, self.fast) {
            Some(fast) => self.replace(fast),
            None => false,
        }
    }

    fn replace(&mut self, fast: FastDevices) -> bool {
        std::mem::replace(&mut self.fast, fast) != fast
    }
}
