//! Which devices are the fast ones now, kept while nothing tells otherwise.

use super::super::Moment;
use super::fast::Fast;
use super::loaded::UnderLoad;

/// The fast devices, and what may change them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tiers {
    fast: Fast,
    /// All devices have said how fast they are.
    certain: bool,
    /// The measurement after which they were looked at.
    looked: Option<u64>,
    load: UnderLoad,
}

impl Tiers {
    /// The fast devices; none if the devices are alike.
    #[inline]
    pub(super) fn fast(&self) -> Fast {
        self.fast
    }

    /// Looks at the devices again if one has been measured since. They stay the same, once all devices have said how fast
    /// they are, while they can be used and load does not tell otherwise. Whether they are others now.
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

    /// What the devices did under load may tell which are fast. Whether they are others now.
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
