//! Who waits for commits, and how many commits each needs.
//!
//! One commit is enough, unless a device lost something while it was under way: that it is lost, or where
//! else it is, is then in a change of the map that may need another flush.

use crate::ids::Waiter;
use std::collections::BTreeSet;
use weir_model::{DeviceId, DeviceSet, ExtentKey, VolumeId};

/// Commits a FLUSH waits for before it fails, if in each of them a flush failed that the same extents needed.
const COMMITS_MAX: u8 = 32;

/// One of those who wait for a commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) who: Waiter,
    /// Devices because of which one commit was not enough.
    again: DeviceSet,
    /// Commits that have ended since it waits.
    commits: u8,
}

/// What a commit that has ended means for one of its waiters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Enough,
    OneMore,
    /// Flushes of this device, and of others, fail too often.
    Failed(DeviceId),
}

/// Unflushed writes that devices lost during a commit, as far as no other place has them durably.
#[derive(Debug, Default)]
pub(super) struct Missed {
    devices: DeviceSet,
    /// Volumes of which an extent was lost during an earlier commit as well, and the device that lost it this
    /// time.
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

    /// Whether the commit was enough. It waits for another commit once for each device that lost writes, as
    /// changes may need that flush; more often only while extents of `volume` lose them again and again. So a
    /// failing device delays no FLUSH indefinitely.
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

/// Extents of which devices lost unflushed writes.
#[derive(Debug, Default)]
pub(super) struct MissedExtents {
    /// During the commit under way.
    now: Vec<(ExtentKey, DeviceId)>,
    /// During an earlier commit, with changes that are still pending.
    unresolved: BTreeSet<ExtentKey>,
}

impl MissedExtents {
    /// The device lost unflushed writes of the extent.
    pub(super) fn note(&mut self, key: ExtentKey, device: DeviceId) {
        self.now.push((key, device));
    }

    /// A commit begins, which covers what was lost before.
    pub(super) fn begin_commit(&mut self) {
        self.now.clear();
    }

    /// A commit has ended: what devices lost while it was under way, as far as changes of that are still
    /// pending.
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
