//! Identification of a policy among those of a pool, and of its volumes.

use weir_model::VolumeId;

/// The index of a policy; 0 is the pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyIndex(pub(crate) usize);

/// Whether a policy decides for this volume: its own volume, or, for the pool's policy, any without its own.
pub(crate) fn decides_for(policy_index: PolicyIndex, policy_volumes: &[VolumeId], volume: VolumeId) -> bool {
    match policy_index.0.checked_sub(1) {
        Some(at) => policy_volumes.get(at) == Some(&volume),
        None => !policy_volumes.contains(&volume),
    }
}
