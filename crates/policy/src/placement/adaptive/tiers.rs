//! The set of fast devices, kept until measurements disagree.

use super::super::Moment;
use super::fast::Fast;
use super::loaded::UnderLoad;

/// The fast devices, and the measurements that may change them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tiers {
    fast: Fast,
    /// Whether the speed of all devices is measured.
    certain: bool,
    /// The measurement after which they were last selected.
    looked: Option<u64>,
    load: UnderLoad,
}

impl Tiers {
    /// Returns the fast devices; none if the devices are alike.
    #[inline]
    pub(super) fn fast(&self) -> Fast {
        self.fast
    }

    /// Selects the devices again if one has been measured since. Once the speed of all devices is measured,
    /// the selection stays while they are usable and load does not contradict it. Returns whether it has
    /// changed.
    #[inline]
    pub(super) fn look(&mut self, moment: &Moment<'_>) -> bool {
        self.looked != Some(moment.measured) && self.look_again(moment)
    }

    #[inline(never)]
    fn look_again(&mut self, moment: &Moment<'_>) -> bool {
        self.looked = Some(moment.measured);
        if self.certain && self.fast.are_usable(moment.devices) {
            return false;
        }
        self.certain = Fast::is_certain(moment.devices);
        self.replace(Fast::of(moment.devices))
    }

    /// Updates the selection from measurements under load, once per round. Returns whether it has changed.
    pub(super) fn round(&mut self, moment: &Moment<'_>) -> bool {
        match self.load.round(moment.now, moment.devices, self.fast) {
            Some(fast) => self.replace(fast),
            None => false,
        }
    }

    fn replace(&mut self, fast: Fast) -> bool {
        std::mem::replace(&mut self.fast, fast) != fast
    }
}
