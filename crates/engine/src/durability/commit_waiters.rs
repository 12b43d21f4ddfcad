//! The parties that wait for commits, and the number of commits that each needs.
//!
//! One commit suffices, unless a device lost writes during it: the map change that records the loss, or the
//! blocks' other place, may then need another flush.

use crate::ids::Waiter;
use std::collections::BTreeSet;
use weir_model::{DeviceId, DeviceSet, ExtentKey, VolumeId};

/// The maximum number of commits a FLUSH waits for, if in each of them a flush failed that the same extents
/// needed. After that it fails.
const COMMITS_MAX: u8 = 32;

/// A party that waits for a commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitWaiter {
    pub(super) waiter: Waiter,
    /// Devices whose losses already made it wait for a further commit.
    losing_devices: DeviceSet,
    /// The number of commits that have ended since it began to wait.
    commits: u8,
}

/// The result of an ended commit for one of its parties.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommitOutcome {
    Complete,
    WaitAgain,
    /// Flushes of this device, and of others, fail too often.
    Failed(DeviceId),
}

/// The unflushed writes that devices lost during a commit, as far as no other place has the data durably.
#[derive(Debug, Default)]
pub(super) struct Losses {
    devices: DeviceSet,
    /// Volumes with an extent that also lost writes during an earlier commit, each with the device that lost
    /// them this time.
    repeated: Vec<(VolumeId, DeviceId)>,
}

impl Losses {
    /// For [`Mutant::LossAwaitedOnce`](weir_model::Mutant::LossAwaitedOnce).
    pub(super) fn clear_repeated(&mut self) {
        self.repeated.clear();
    }
}

impl CommitWaiter {
    pub(super) fn new(waiter: Waiter) -> Self {
        Self { waiter, losing_devices: DeviceSet::default(), commits: 0 }
    }

    /// Returns whether the commit was enough. The party waits for another commit once for each device that
    /// lost writes, because changes may need that flush; it waits more often only while extents of `volume`
    /// lose writes repeatedly. So a failing device delays no FLUSH indefinitely.
    pub(super) fn outcome(&mut self, losses: &Losses, volume: Option<VolumeId>) -> CommitOutcome {
        let is_new = !losses.devices.without(self.losing_devices).is_empty();
        self.losing_devices = self.losing_devices.or(losses.devices);
        self.commits += 1;
        let repeated = losses.repeated.iter().find(|(of, _)| Some(*of) == volume);
        match repeated {
            Some((_, device)) if self.commits >= COMMITS_MAX => CommitOutcome::Failed(*device),
            Some(_) => CommitOutcome::WaitAgain,
            None if is_new => CommitOutcome::WaitAgain,
            None => CommitOutcome::Complete,
        }
    }
}

/// The extents of which devices lost unflushed writes.
#[derive(Debug, Default)]
pub(super) struct LostExtents {
    /// Losses during the commit in progress.
    current: Vec<(ExtentKey, DeviceId)>,
    /// Extents with losses during an earlier commit whose changes are still pending.
    unresolved: BTreeSet<ExtentKey>,
}

impl LostExtents {
    /// Notes that the device lost unflushed writes of the extent.
    pub(super) fn note(&mut self, key: ExtentKey, device: DeviceId) {
        self.current.push((key, device));
    }

    /// Notes that a commit begins, which covers the losses so far.
    pub(super) fn begin_commit(&mut self) {
        self.current.clear();
    }

    /// Returns the losses during the commit that has ended, as far as the extents' changes are still pending.
    pub(super) fn end_commit(&mut self, is_pending: impl Fn(ExtentKey) -> bool) -> Losses {
        let (mut missed, mut fresh) = (Losses::default(), Vec::new());
        for (key, device) in std::mem::take(&mut self.current).into_iter().filter(|(key, _)| is_pending(*key))
        {
            missed.devices.insert(device);
            if self.unresolved.contains(&key) {
                missed.repeated.push((key.volume, device));
            } else {
                fresh.push(key);
            }
        }
        self.unresolved.retain(|key| is_pending(*key));
        self.unresolved.extend(fresh);
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::ExtentIndex;

    #[test]
    fn flush_wait_for_losing_devices_is_bounded() {
        let key = |volume, index| ExtentKey { volume: VolumeId(volume), index: ExtentIndex(index) };
        let (mut extents, mut waiting) = (LostExtents::default(), CommitWaiter::new(Waiter::Resync));
        let mut outcome = |missed: &[(ExtentKey, u8)], of| {
            extents.begin_commit();
            missed.iter().for_each(|(key, device)| extents.note(*key, DeviceId(*device)));
            let missed = extents.end_commit(|key| key.index != ExtentIndex(9));
            waiting.outcome(&missed, Some(VolumeId(of)))
        };
        assert_eq!(outcome(&[(key(1, 9), 0)], 1), CommitOutcome::Complete, "durable elsewhere");
        assert_eq!(outcome(&[(key(1, 1), 0)], 1), CommitOutcome::WaitAgain);
        assert_eq!(outcome(&[(key(1, 1), 1)], 1), CommitOutcome::WaitAgain, "another device");
        assert_eq!(outcome(&[(key(1, 1), 0)], 1), CommitOutcome::WaitAgain, "it is durable nowhere yet");
        assert_eq!(outcome(&[(key(1, 1), 0)], 2), CommitOutcome::Complete, "of another volume");
        assert_eq!(outcome(&[(key(1, 2), 0)], 1), CommitOutcome::Complete, "written since");
        assert_eq!(outcome(&[], 1), CommitOutcome::Complete);
        let often: Vec<_> = (0..COMMITS_MAX).map(|_| outcome(&[(key(1, 1), 0)], 1)).collect();
        assert_eq!(often.last(), Some(&CommitOutcome::Failed(DeviceId(0))));
    }
}
