//! Which of the policies of a pool, and of which volumes it is.

use weir_model::VolumeId;

/// Which of all policies: 0 is the pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Which(pub(crate) usize);

/// Whether a policy is about this volume: its own, or all that have none.
pub(crate) fn is_about(which: Which, own: &[VolumeId], volume: VolumeId) -> bool {
    match which.0.checked_sub(1) {
        Some(at) => own.get(at) == Some(&volume),
        None => !own.contains(&volume),
    }
}
