//! Identification of a policy among those of a pool, and of its volumes.

use weir_model::VolumeId;

/// The index of a policy; 0 is the pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Which(pub(crate) usize);

/// Whether a policy decides for this volume: its own volume, or, for the pool's policy, any without its own.
pub(crate) fn is_about(which: Which, own: &[VolumeId], volume: VolumeId) -> bool {
    match which.0.checked_sub(1) {
        Some(at) => own.get(at) == Some(&volume),
        None => !own.contains(&volume),
    }
}
