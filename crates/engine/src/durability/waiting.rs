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
pub(super) struct Waiting {
    pub(super) who: Waiter,
    /// Devices whose losses already made it wait for a further commit.
    again: DeviceSet,
    /// The number of commits that have ended since it began to wait.
    commits: u8,
}

/// The result of an ended commit for one of its parties.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Enough,
    OneMore,
    /// Flushes of this device, and of others, fail too often.
    Failed(DeviceId),
}

/// The unflushed writes that devices lost during a commit, as far as no other place has the data durably.
#[derive(Debug, Default)]
pub(super) struct Missed {
    devices: DeviceSet,
    /// Volumes with an extent that also lost writes during an earlier commit, each with the device that lost
    /// them this time.
    repeatedly: Vec<(VolumeId, DeviceId)>,
}

impl Missed {
    /// For [`Mutant::LossAwaitedOnce`](weir_model::Mutant::LossAwaitedOnce).
    pub(super) fn forget_repeated(&mut self) {
        self.repeatedly.clear();
    }
}

impl Waiting {
    pub(super) fn new(who: Waiter) -> Self {
        Self { who, again: DeviceSet::default(), commits: 0 }
    }

    /// Returns whether the commit was enough. The party waits for another commit once for each device that
    /// lost writes, because changes may need that flush; it waits more often only while extents of `volume`
    /// lose writes repeatedly. So a failing device delays no FLUSH indefinitely.
    pub(super) fn outcome(&mut self, missed: &Missed, volume: Option<VolumeId>) -> Outcome {
        let is_new = !missed.devices.without(self.again).is_empty();
        self.again = self.again.or(missed.devices);
        self.commits += 1;
        let repeated = missed.repeatedly.iter().find(|(of, _)| Some(*of) == volume);
        match repeated {
            Some((_, device)) if self.commits >= COMMITS_MAX => Outcome::Failed(*device),
            Some(_) => Outcome::OneMore,
            None if is_new => Outcome::OneMore,
            None => Outcome::Enough,
        }
    }
}

/// The extents of which devices lost unflushed writes.
#[derive(Debug, Default)]
pub(super) struct MissedExtents {
    /// Losses during the commit in progress.
    now: Vec<(ExtentKey, DeviceId)>,
    /// Extents with losses during an earlier commit whose changes are still pending.
    unresolved: BTreeSet<ExtentKey>,
}

impl MissedExtents {
    /// Notes that the device lost unflushed writes of the extent.
    pub(super) fn note(&mut self, key: ExtentKey, device: DeviceId) {
        self.now.push((key, device));
    }

    /// Notes that a commit begins, which covers the losses so far.
    pub(super) fn begin_commit(&mut self) {
        self.now.clear();
    }

    /// Returns the losses during the commit that has ended, as far as the extents' changes are still pending.
    pub(super) fn end_commit(&mut self, is_pending: impl Fn(ExtentKey) -> bool) -> Missed {
        let (mut missed, mut fresh) = (Missed::default(), Vec::new());
        for (key, device) in std::mem::take(&mut self.now).into_iter().filter(|(key, _)| is_pending(*key)) {
            missed.devices.insert(device);
            if self.unresolved.contains(&key) {
                missed.repeatedly.push((key.volume, device));
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
    fn a_flush_waits_for_its_extents_as_often_as_devices_lose_them_but_not_for_ever() {
        let key = |volume, index| ExtentKey { volume: VolumeId(volume), index: ExtentIndex(index) };
        let (mut extents, mut waiting) = (MissedExtents::default(), Waiting::new(Waiter::Resync));
        let mut outcome = |missed: &[(ExtentKey, u8)], of| {
            extents.begin_commit();
            missed.iter().for_each(|(key, device)| extents.note(*key, DeviceId(*device)));
            let missed = extents.end_commit(|key| key.index != ExtentIndex(9));
            waiting.outcome(&missed, Some(VolumeId(of)))
        };
        assert_eq!(outcome(&[(key(1, 9), 0)], 1), Outcome::Enough, "durable elsewhere");
        assert_eq!(outcome(&[(key(1, 1), 0)], 1), Outcome::OneMore);
        assert_eq!(outcome(&[(key(1, 1), 1)], 1), Outcome::OneMore, "another device");
        assert_eq!(outcome(&[(key(1, 1), 0)], 1), Outcome::OneMore, "it is durable nowhere yet");
        assert_eq!(outcome(&[(key(1, 1), 0)], 2), Outcome::Enough, "of another volume");
        assert_eq!(outcome(&[(key(1, 2), 0)], 1), Outcome::Enough, "written since");
        assert_eq!(outcome(&[], 1), Outcome::Enough);
        let often: Vec<_> = (0..COMMITS_MAX).map(|_| outcome(&[(key(1, 1), 0)], 1)).collect();
        assert_eq!(often.last(), Some(&Outcome::Failed(DeviceId(0))));
    }
}
