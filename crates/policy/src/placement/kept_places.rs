//! The places of an extent, besides one, that a policy keeps on purpose.

use weir_model::DeviceSet;

/// The kept places of an extent besides one whole place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptPlaces {
    /// Those on these devices: on a faster device, copies and redirected writes are there to be read and
    /// written again. Other places are left over from a redirect, a move or an earlier policy, and are
    /// consolidated in idle time.
    OnDevices(DeviceSet),
    /// All of them: the policy bounds and frees their space itself.
    All,
}

impl Default for KeptPlaces {
    fn default() -> Self {
        Self::OnDevices(DeviceSet::default())
    }
}
