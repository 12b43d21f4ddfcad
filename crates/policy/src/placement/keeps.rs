//! Which places of an extent besides one a policy means to keep.

use weir_model::DeviceSet;

/// Places of an extent besides one whole place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Those on these devices: on a faster device a copy, or what was written, is there to be read and written again. Others
    /// are left over from a redirect, a move or an earlier policy, and are brought together in idle time.
    On(DeviceSet),
    /// All of them: the policy bounds the space they take itself, and gives it back.
    All,
}

impl Default for Keeps {
    fn default() -> Self {
        Self::On(DeviceSet::default())
    }
}
