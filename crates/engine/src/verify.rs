//! Verification: checks that devices still match their superblocks.
//!
//! A file can be truncated while it is served, and the next write beyond its end makes it grow again: its old
//! content then reads as zeros, without an error. So the engine reads the last page of a device, which
//! contains its second superblock, and compares pool, device number and size. The page is missing from a
//! truncated file, and is zeros in one that has grown again. Such a device is lost
//! ([`crate::LossReason::Truncated`], [`crate::LossReason::Replaced`]).
//!
//! - No FLUSH and no durable change is acknowledged before every device was verified: by a check that began
//!   after the FLUSH was submitted, or that is not older than
//!   [`crate::DeviceSettings::verification_max_age`]. Checks run in parallel with the flushes of a commit.
//!   That suffices: a truncation after the check began could as well have come after the acknowledgement.
//! - While clients use the pool, devices are verified at intervals ([`INTERVAL`]); and once more when
//!   everything is at rest after a stop.
//! - Once a device was found damaged in this way, FLUSH and durable changes fail for every volume with a
//!   single copy, because durable data is gone; volumes with two copies continue with the other one, until a
//!   second device is damaged.
//! - Administrative changes are in the metadata alone: they are durable as long as one of its members is
//!   intact.
//! - A file that was removed or replaced by another is damaged as well, but not lost: it is intact as long as
//!   it is open, and reads and writes continue, so that an administrator can still make a complete copy of
//!   it. It may also be truncated, so it is verified still. Metadata continues on the other member, if there
//!   is one.
//!
//! Before the record of a member left behind is written to a device's last page, the device is checked: on a
//! truncated device the record would replace the missing page.
//!
//! A check whose read fails with another error proves nothing: the page is there, or the device is about to
//! be given up for other reasons.

pub(crate) mod last_check;

use crate::Base;
use crate::core::Core;
use crate::device::DeviceSettings;
use crate::effect::Effect;
use crate::flight::{NewIo, Purpose};
use crate::ids::Waiter;
use crate::notice::{LossReason, Notice};
use crate::request::active::Answer;
use crate::task::Task;
use weir_map::{Reading, Superblock};
use weir_model::{
    BLOCK, Buffer, Bytes, DeviceId, DeviceSet, IoError, IoKind, Memory, Mutant, Nanos, RequestError, VolumeId,
};

/// The minimum interval of verification while clients use the pool.
const INTERVAL: Nanos = Nanos::secs(1);

/// Returns the time between checks of a device whose checks are valid for `within`, such that a valid one
/// exists before a FLUSH needs it.
fn interval(within: Nanos) -> Nanos {
    INTERVAL.max(Nanos(within.0 / 2))
}

/// A point in the sequence of checks. A party that waits for it waits for checks that began later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Round(u64);

/// The checks of one device.
#[derive(Debug)]
pub(super) struct Checks {
    /// The buffer for its last page.
    buffer: Buffer,
    /// The age at which a check is no longer valid.
    max_age: Nanos,
    /// The start of the last check that found it intact.
    intact_at: Option<Nanos>,
    /// The start of the last check.
    began: Nanos,
    /// The last round requested, the round of the check in flight, and the last round completed.
    requested: Round,
    in_flight: Option<Round>,
    completed: Round,
    /// Whether it is lost or removed, so that a further check could show nothing new.
    is_over: bool,
}

/// The checks of all devices, and the parties that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Verification {
    /// The checks by device; `None` if it is not verified.
    devices: Vec<Option<Checks>>,
    round: Round,
    waiting: Vec<(Round, Waiter)>,
    /// Devices that lost durable data, or will when they are closed.
    damaged: DeviceSet,
    /// Those of them whose files were removed.
    removed: DeviceSet,
    /// Whether a client has used the pool since the last periodic checks began.
    used: bool,
    /// The state of the check that ends a stop.
    last_check: LastCheck,
}

/// The state of the check that ends a stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LastCheck {
    /// No stop has begun.
    #[default]
    NotRequested,
    /// It begins once everything else is at rest.
    Requested,
    Began(Round),
}

impl Verification {
    /// Creates the checks of devices with these settings, by id. Returns `None`, taking nothing, if memory is
    /// insufficient.
    pub(crate) fn take<'a, M: Memory>(
        devices: impl IntoIterator<Item = &'a DeviceSettings>,
        memory: &mut M,
    ) -> Option<Self> {
        let mut new = Self::default();
        for settings in devices {
            let Some(within) = settings.verification_max_age else {
                new.devices.push(None);
                continue;
            };
            let Some(buffer) = memory.take(Bytes(BLOCK)) else {
                new.give(memory);
                return None;
            };
            let (never, none) = (None, Round(0));
            let began = Nanos(0);
            let (asked, done, in_flight, is_over) = (none, none, None, false);
            let checks = Checks {
                buffer,
                max_age: within,
                intact_at: never,
                began,
                requested: asked,
                in_flight,
                completed: done,
                is_over,
            };
            new.devices.push(Some(checks));
        }
        Some(new)
    }

    /// Returns the buffers.
    pub(crate) fn give<M: Memory>(self, memory: &mut M) {
        self.devices.into_iter().flatten().for_each(|checks| memory.give(checks.buffer));
    }

    /// Notes that the device is lost.
    pub(crate) fn device_lost(&mut self, device: DeviceId, why: LossReason) {
        if why.is_damage() {
            self.damaged.insert(device);
        }
        self.checked_enough(device);
    }

    /// Whether a device is damaged.
    pub(crate) fn any_damaged(&self) -> bool {
        !self.damaged.is_empty()
    }

    /// Whether the device's file was removed while it was used.
    pub(crate) fn is_removed(&self, device: DeviceId) -> bool {
        self.removed.contains(device)
    }

    fn checked_enough(&mut self, device: DeviceId) {
        if let Some(checks) = self.devices.get_mut(device.index()).and_then(Option::as_mut) {
            (checks.completed, checks.is_over) = (checks.requested, true);
        }
    }

    /// Notes that a client uses the pool.
    #[inline]
    pub(crate) fn note_use(&mut self) {
        self.used = true;
    }

    /// Whether every device has been verified for a round.
    pub(super) fn is_over(&self, round: Round) -> bool {
        self.devices
            .iter()
            .flatten()
            .all(|checks| checks.completed >= round || checks.completed >= checks.requested)
    }

    /// Takes the parties whose wait is over.
    fn take_finished(&mut self) -> Vec<Waiter> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let over: Vec<_> =
            waiting.extract_if(.., |(round, _)| self.is_over(*round)).map(|(_, who)| who).collect();
        self.waiting = waiting;
        over
    }
}

impl Task for Verification {
    type On = Base;

    /// Returns the time of the next periodic check.
    fn due(base: &Base) -> Option<Nanos> {
        if !base.verification.used {
            return None;
        }
        let checked = base.verification.devices.iter().flatten().filter(|checks| !checks.is_over);
        checked.map(|checks| checks.began + interval(checks.max_age)).min()
    }

    /// Begins the periodic checks that are due.
    fn run<M: Memory>(base: &mut Base, _: &mut M) {
        if <Self as Task>::due(base).is_none_or(|due| due > base.core.now) {
            return;
        }
        base.verification.used = false;
        if base.core.is_planted(Mutant::TruncationNotChecked) {
            return;
        }
        base.verification.round.0 += 1;
        let round = base.verification.round;
        for i in 0..base.verification.devices.len() {
            let Some(checks) = &mut base.verification.devices[i] else { continue };
            if !checks.is_over && checks.began + interval(checks.max_age) <= base.core.now {
                checks.requested = round;
                base.verification.verify_device(&mut base.core, DeviceId(i as u8));
            }
        }
    }
}

impl Verification {
    /// Requests a check of every device whose last check is no longer valid; checks that begin now or later
    /// count. Returns the round to wait for.
    pub(crate) fn verify_devices(&mut self, core: &mut Core) -> Round {
        self.verify_unless(core, |checks, now| {
            checks.max_age > Nanos(0) && checks.intact_at.is_some_and(|at| now.since(at) <= checks.max_age)
        })
    }

    /// Like `verify_devices`, but exempts the devices whose checks satisfy `is_fresh`.
    pub(super) fn verify_unless(
        &mut self,
        core: &mut Core,
        is_fresh: impl Fn(&Checks, Nanos) -> bool,
    ) -> Round {
        if core.is_planted(Mutant::TruncationNotChecked) {
            return self.round;
        }
        self.round.0 += 1;
        let round = self.round;
        let once = core.is_planted(Mutant::VerifiedOnceForAll);
        for i in 0..self.devices.len() {
            let Some(checks) = &mut self.devices[i] else { continue };
            let counts = is_fresh(checks, core.now) || (once && checks.intact_at.is_some());
            if !counts && !checks.is_over {
                checks.requested = round;
                self.verify_device(core, DeviceId(i as u8));
            }
        }
        round
    }

    /// Begins a check of this device. Returns `None` if it is not verified, or lost.
    pub(crate) fn check_device(&mut self, core: &mut Core, device: DeviceId) -> Option<Round> {
        if core.is_planted(Mutant::TruncationNotChecked) {
            return None;
        }
        let checks = self.devices.get_mut(device.index())?.as_mut()?;
        if checks.is_over {
            return None;
        }
        self.round.0 += 1;
        checks.requested = self.round;
        self.verify_device(core, device);
        Some(self.round)
    }

    /// Whether the check has ended, or could show nothing new.
    pub(crate) fn is_checked(&self, device: DeviceId, round: Round) -> bool {
        let checks = self.devices.get(device.index()).and_then(Option::as_ref);
        checks.is_none_or(|checks| checks.is_over || checks.completed >= round)
    }

    /// Begins a check of the device, unless one is in flight: then another follows.
    fn verify_device(&mut self, core: &mut Core, device: DeviceId) {
        let Some(checks) = &mut self.devices[device.index()] else { return };
        if checks.in_flight.is_some() {
            return;
        }
        checks.in_flight = Some(checks.requested);
        checks.began = core.now;
        let at = Superblock::second_at(core.map.devices()[device.index()].size);
        let io = NewIo { device, kind: IoKind::Read, at, buffer: checks.buffer };
        core.launch(io, Purpose::Verify);
    }

    /// Returns a damaged metadata member once it is the only one left: nothing can be made durable without
    /// it.
    pub(crate) fn metadata_damage(&self, core: &Core) -> Option<DeviceId> {
        let members = core.map.members().iter().copied();
        { members }.find(|device| self.damaged.contains(*device))
    }
}

impl Base {
    /// Handles the end of a check. Returns whether the device is no longer the same; the caller continues
    /// with [`Self::resume_after_check`].
    pub(crate) fn check_ended<M: Memory>(
        &mut self,
        device: DeviceId,
        result: Result<(), IoError>,
        memory: &M,
    ) -> bool {
        let Some(checks) = &mut self.verification.devices[device.index()] else { return false };
        checks.completed = checks.in_flight.take().unwrap_or_default().max(checks.completed);
        if result.is_err() {
            return false;
        }
        let is_whole =
            is_superblock_of(&self.core.map.devices()[device.index()], memory.bytes(checks.buffer));
        if is_whole {
            checks.intact_at = Some(checks.began);
        }
        !is_whole
    }

    /// Continues after a check whose result has been handled.
    pub(crate) fn resume_after_check<M: Memory>(&mut self, device: DeviceId, memory: &mut M) {
        let asked_again = |checks: &Checks| !checks.is_over && checks.requested > checks.completed;
        if self.verification.devices[device.index()].as_ref().is_some_and(asked_again) {
            self.verification.verify_device(&mut self.core, device);
        }
        self.answer_verified();
        self.durability.write_superblock(&mut self.core, &mut self.verification, &mut self.space, memory);
    }

    /// Handles the removal or replacement of the device's file: its data is gone once it is closed.
    pub(crate) fn device_removed(&mut self, device: DeviceId) {
        if self.core.is_lost(device) || self.verification.removed.contains(device) {
            return;
        }
        self.verification.removed.insert(device);
        self.verification.damaged.insert(device);
        self.core.notices.push(Notice::Removed { device });
        self.member_failed(device, IoError::Removed);
        self.record_damage(device);
    }

    /// Records the damage in all superblocks, so that a file later found under the device's name does not
    /// count unless it is the one open now. Until the record is durable, nothing is acknowledged that an
    /// older file does not have.
    pub(crate) fn record_damage(&mut self, device: DeviceId) {
        if !self.core.is_planted(Mutant::DamageNotRecorded) {
            self.core.map.note_damaged(device);
            self.durability.record_superblocks(&self.core, &self.verification);
        }
    }

    /// Acknowledges a FLUSH or a durable change once every device has been verified for `round`; with an
    /// error if durable data was found to be gone. Nothing else may delay the acknowledgement.
    pub(crate) fn acknowledge(&mut self, waiter: Waiter, round: Round) {
        if self.verification.is_over(round) && !self.durability.is_recording_damage(&self.verification) {
            self.answer_if_undamaged(waiter);
        } else {
            self.verification.waiting.push((round, waiter));
        }
    }

    /// Answers the parties that waited for checks, or for the record of damage, and no longer do.
    pub(crate) fn answer_verified(&mut self) {
        if self.durability.is_recording_damage(&self.verification) {
            return;
        }
        for who in self.verification.take_finished() {
            self.answer_if_undamaged(who);
        }
    }

    fn answer_if_undamaged(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Request(id) => {
                let active = &self.requests.active[id.0];
                let error = match active.answer {
                    Answer::None => {
                        self.verification.metadata_damage(&self.core).map(RequestError::FlushFailed)
                    }
                    Answer::Reply | Answer::Gathered => self.damage(active.request.volume),
                };
                let active = &mut self.requests.active[id.0];
                active.error = active.error.or(error);
                self.reply(id);
            }
            Waiter::Admin(step) => {
                let error = self.verification.metadata_damage(&self.core).map(RequestError::FlushFailed);
                self.effects.push(Effect::StepEnded(step, error));
            }
            Waiter::Resync => self.durability.missing_copies.copies_are_durable(),
        }
    }

    /// Returns a device whose damage makes durable data of some volume, or the metadata, unavailable now or
    /// once it is closed. `None` if no device is damaged, or if all of its data is durable elsewhere.
    pub(crate) fn damaged_device(&self) -> Option<DeviceId> {
        let volumes = self.core.map.catalogue().volumes.keys();
        self.verification
            .metadata_damage(&self.core)
            .or_else(|| volumes.copied().find_map(|volume| self.damaged_for(volume)))
    }

    /// Returns the error that prevents acknowledging anything of the volume as durable.
    pub(crate) fn damage(&self, volume: VolumeId) -> Option<RequestError> {
        self.verification
            .metadata_damage(&self.core)
            .or_else(|| self.damaged_for(volume))
            .map(RequestError::FlushFailed)
    }

    /// Returns a damaged device because of which durable data of the volume is lost. It is lost when as many
    /// devices are damaged as the volume has copies; a copy that is missing for another reason (a device lost
    /// or absent, or a copy not made yet) counts like a damaged device.
    fn damaged_for(&self, volume: VolumeId) -> Option<DeviceId> {
        let damaged = &self.verification.damaged;
        let device = damaged.iter().next()?;
        let copies = self.core.map.volume(volume).map_or(1, |volume| usize::from(volume.copies));
        let is_lost = |device: DeviceId| self.core.is_lost(device);
        let mut devices = self.core.map.devices().iter().map(|superblock| superblock.device);
        // A damaged device that is also lost degrades everything on it, so degraded extents prove nothing
        // then.
        let is_degraded = || {
            !damaged.iter().any(is_lost)
                && self.durability.missing_copies.degraded(&self.core, volume).0 > Bytes(0)
        };
        let lacks = devices.any(|device| is_lost(device) && !damaged.contains(device)) || is_degraded();
        (damaged.len() + usize::from(lacks) >= copies).then_some(device)
    }
}

/// Whether a page is the superblock of this device. Its generation may be older: when a record of a member
/// left behind is written, the second copy comes last.
fn is_superblock_of(expected: &Superblock, page: &[u8]) -> bool {
    let Reading::Good(found) = Superblock::decode(page) else { return false };
    (found.pool, found.device, found.size) == (expected.pool, expected.device, expected.size)
        && found.generation <= expected.generation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_valid_checks_repeat_at_half_their_age() {
        let seconds = |within| interval(Nanos::secs(within));
        assert_eq!([0, 1, 2, 10, 60].map(seconds), [1, 1, 1, 5, 30].map(Nanos::secs));
    }
}
