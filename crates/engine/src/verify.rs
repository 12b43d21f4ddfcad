//! Verification: whether devices still are what their superblocks say.
//!
//! A file can be truncated while it is served, and the next write behind its end makes it grow again: what
//! was in it reads as zeros then, without an error. So the engine reads the last page of a device, which
//! holds its second superblock, and compares pool, device number and size. The page is missing from a file
//! that was truncated, and is zeros in one that has grown again. Such a device is lost
//! ([`crate::LostWhy::CutShort`], [`crate::LostWhy::Replaced`]).
//!
//! - No FLUSH, and no durable change, is acknowledged before every device was verified: by a check that began
//!   after the FLUSH was submitted, or is not older than [`crate::DeviceSettings::verified_within`]. Checks
//!   run beside the flushes of a commit. That is enough: a truncation after the check began could as well
//!   have come after the acknowledgement.
//! - While clients use the pool, devices are verified at intervals ([`INTERVAL`]); and once more when
//!   everything is at rest after a stop.
//! - Once a device was found to be damaged in this way, FLUSH and durable changes fail for every volume with
//!   a single copy, since data that was durable is gone; volumes with two copies go on with the other one,
//!   until a second device is damaged.
//! - What operators change is in the metadata alone: it is durable as long as one of its members is whole.
//! - A file that was removed, or that another took the place of, is damaged as well, but not lost: it is
//!   whole as long as it is open, and read and written on, so that nothing is missing from it when somebody
//!   copies it. It may be truncated as well, so it is verified still. Metadata goes on with the other member,
//!   if there is one.
//!
//! A device that carries the record of a member left behind is checked before that record is written to its
//! last page: on a truncated device it would stand for the page that is gone.
//!
//! A check whose read fails with another error says nothing: the page is there, or the device is about to be
//! given up for other reasons.

pub(crate) mod last_check;

use crate::Base;
use crate::core::Core;
use crate::device::DeviceSettings;
use crate::effect::Effect;
use crate::flight::{NewIo, Purpose};
use crate::ids::Waiter;
use crate::notice::{LostWhy, Notice};
use crate::request::active::Answer;
use crate::task::Task;
use weir_map::{Reading, Superblock};
use weir_model::{
    BLOCK, Buffer, Bytes, DeviceId, DeviceSet, IoError, IoKind, Memory, Mutant, Nanos, RequestError, VolumeId,
};

/// How often devices are verified while clients use the pool.
const INTERVAL: Nanos = Nanos::secs(1);

/// The time between checks of a device whose checks count for so long: the next one is there before a FLUSH
/// needs it.
fn interval(within: Nanos) -> Nanos {
    INTERVAL.max(Nanos(within.0 / 2))
}

/// Names a moment among the checks: whoever waits for it waits for checks that began later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Round(u64);

/// The checks of one device.
#[derive(Debug)]
pub(super) struct Checks {
    /// What its last page is read to.
    buffer: Buffer,
    /// The age at which a check no longer counts.
    within: Nanos,
    /// When the last check that found it whole began.
    whole_at: Option<Nanos>,
    /// When the last check began.
    began: Nanos,
    /// The last round it is to be checked for, the one the check in flight is for, and the last one it was
    /// checked for.
    asked: Round,
    in_flight: Option<Round>,
    done: Round,
    /// It is lost or removed: nothing more is to be learnt of it.
    is_over: bool,
}

/// The checks of all devices, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Verification {
    /// By device; `None` if it is not verified.
    devices: Vec<Option<Checks>>,
    round: Round,
    waiting: Vec<(Round, Waiter)>,
    /// Devices that lost data which was durable, or will when they are closed.
    damaged: DeviceSet,
    /// Of them those whose files were removed.
    removed: DeviceSet,
    /// A client has used the pool since the last checks at intervals began.
    used: bool,
    /// How far the check is that ends a stop.
    last_check: LastCheck,
}

/// How far the check that ends a stop is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LastCheck {
    /// Nothing is being stopped.
    #[default]
    NotWanted,
    /// It begins once everything else is at rest.
    Wanted,
    Began(Round),
}

impl Verification {
    /// For devices with these settings, by id. `None`, taking nothing, if there is too little memory.
    pub(crate) fn take<'a, M: Memory>(
        devices: impl IntoIterator<Item = &'a DeviceSettings>,
        memory: &mut M,
    ) -> Option<Self> {
        let mut new = Self::default();
        for settings in devices {
            let Some(within) = settings.verified_within else {
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
            let checks = Checks { buffer, within, whole_at: never, began, asked, in_flight, done, is_over };
            new.devices.push(Some(checks));
        }
        Some(new)
    }

    /// Gives its buffers back.
    pub(crate) fn give<M: Memory>(self, memory: &mut M) {
        self.devices.into_iter().flatten().for_each(|checks| memory.give(checks.buffer));
    }

    /// The device is lost.
    pub(crate) fn lost(&mut self, device: DeviceId, why: LostWhy) {
        if why.is_damage() {
            self.damaged.insert(device);
        }
        self.checked_enough(device);
    }

    /// Whether a device was damaged.
    pub(crate) fn any_damaged(&self) -> bool {
        !self.damaged.is_empty()
    }

    /// Whether the device's file was removed while it was used.
    pub(crate) fn is_removed(&self, device: DeviceId) -> bool {
        self.removed.contains(device)
    }

    fn checked_enough(&mut self, device: DeviceId) {
        if let Some(checks) = self.devices.get_mut(device.index()).and_then(Option::as_mut) {
            (checks.done, checks.is_over) = (checks.asked, true);
        }
    }

    /// A client uses the pool.
    #[inline]
    pub(crate) fn note_use(&mut self) {
        self.used = true;
    }

    /// Whether every device has been verified as of a round.
    pub(super) fn is_over(&self, round: Round) -> bool {
        self.devices.iter().flatten().all(|checks| checks.done >= round || checks.done >= checks.asked)
    }

    /// Who waits for nothing any more.
    fn take_over(&mut self) -> Vec<Waiter> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let over: Vec<_> =
            waiting.extract_if(.., |(round, _)| self.is_over(*round)).map(|(_, who)| who).collect();
        self.waiting = waiting;
        over
    }
}

impl Task for Verification {
    type On = Base;

    /// When devices are to be verified next because clients use the pool.
    fn due(base: &Base) -> Option<Nanos> {
        if !base.verification.used {
            return None;
        }
        let checked = base.verification.devices.iter().flatten().filter(|checks| !checks.is_over);
        checked.map(|checks| checks.began + interval(checks.within)).min()
    }

    /// Has the devices verified whose turn it is because clients use the pool.
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
            if !checks.is_over && checks.began + interval(checks.within) <= base.core.now {
                checks.asked = round;
                base.verification.verify_device(&mut base.core, DeviceId(i as u8));
            }
        }
    }
}

impl Verification {
    /// Has every device verified whose last check is older than it may be, by checks that begin now or later.
    pub(crate) fn verify_devices(&mut self, core: &mut Core) -> Round {
        self.verify_unless(core, |checks, now| {
            checks.within > Nanos(0) && checks.whole_at.is_some_and(|at| now.since(at) <= checks.within)
        })
    }

    /// As above; but no device is verified whose checks so far are good enough.
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
            let counts = is_fresh(checks, core.now) || (once && checks.whole_at.is_some());
            if !counts && !checks.is_over {
                checks.asked = round;
                self.verify_device(core, DeviceId(i as u8));
            }
        }
        round
    }

    /// Begins a check of this device; `None` if it is not verified, or lost.
    pub(crate) fn check_device(&mut self, core: &mut Core, device: DeviceId) -> Option<Round> {
        if core.is_planted(Mutant::TruncationNotChecked) {
            return None;
        }
        let checks = self.devices.get_mut(device.index())?.as_mut()?;
        if checks.is_over {
            return None;
        }
        self.round.0 += 1;
        checks.asked = self.round;
        self.verify_device(core, device);
        Some(self.round)
    }

    /// Whether the check has ended, or nothing is to be learnt of the device any more.
    pub(crate) fn is_checked(&self, device: DeviceId, round: Round) -> bool {
        let checks = self.devices.get(device.index()).and_then(Option::as_ref);
        checks.is_none_or(|checks| checks.is_over || checks.done >= round)
    }

    /// Begins a check of the device, unless one is in flight: then another follows.
    fn verify_device(&mut self, core: &mut Core, device: DeviceId) {
        let Some(checks) = &mut self.devices[device.index()] else { return };
        if checks.in_flight.is_some() {
            return;
        }
        checks.in_flight = Some(checks.asked);
        checks.began = core.now;
        let at = Superblock::second_at(core.map.devices()[device.index()].size);
        let io = NewIo { device, kind: IoKind::Read, at, buffer: checks.buffer };
        core.launch(io, Purpose::Verify);
    }

    /// The only metadata member, if it is damaged: nothing can be made durable without it.
    pub(crate) fn metadata_damage(&self, core: &Core) -> Option<DeviceId> {
        let members = core.map.members().iter().copied();
        { members }.find(|device| self.damaged.contains(*device))
    }
}

impl Base {
    /// A check has ended. Returns whether the device no longer is the one it was; the caller goes on with
    /// [`Self::verified`].
    pub(crate) fn is_found_replaced<M: Memory>(
        &mut self,
        device: DeviceId,
        result: Result<(), IoError>,
        memory: &M,
    ) -> bool {
        let Some(checks) = &mut self.verification.devices[device.index()] else { return false };
        checks.done = checks.in_flight.take().unwrap_or_default().max(checks.done);
        if result.is_err() {
            return false;
        }
        let is_whole = is_of(&self.core.map.devices()[device.index()], memory.bytes(checks.buffer));
        if is_whole {
            checks.whole_at = Some(checks.began);
        }
        !is_whole
    }

    /// Goes on after a check whose result has been dealt with.
    pub(crate) fn verified<M: Memory>(&mut self, device: DeviceId, memory: &mut M) {
        let asked_again = |checks: &Checks| !checks.is_over && checks.asked > checks.done;
        if self.verification.devices[device.index()].as_ref().is_some_and(asked_again) {
            self.verification.verify_device(&mut self.core, device);
        }
        self.answer_verified();
        self.durability.write_superblock(&mut self.core, &mut self.verification, &mut self.space, memory);
    }

    /// The device's file was removed, or another took its place: what is on it is gone once it is closed.
    pub(crate) fn removed(&mut self, device: DeviceId) {
        if self.core.is_lost(device) || self.verification.removed.contains(device) {
            return;
        }
        self.verification.removed.insert(device);
        self.verification.damaged.insert(device);
        self.core.notices.push(Notice::Removed { device });
        self.member_failed(device, IoError::Removed);
        self.record_damage(device);
    }

    /// What may be found under the device's name later does not count unless it is what is open now: all
    /// superblocks say so, and until they do, durably, nothing is acknowledged that an older file does not
    /// have.
    pub(crate) fn record_damage(&mut self, device: DeviceId) {
        if !self.core.is_planted(Mutant::DamageNotRecorded) {
            self.core.map.note_damaged(device);
            self.durability.record_superblocks(&self.core, &self.verification);
        }
    }

    /// Acknowledges a FLUSH or a durable change, which nothing else stands in the way of, once every device
    /// has been verified as of `round`; with an error if durable data was found to be gone.
    pub(crate) fn acknowledge(&mut self, who: Waiter, round: Round) {
        if self.verification.is_over(round) && !self.durability.is_recording_damage(&self.verification) {
            self.answer_if_whole(who);
        } else {
            self.verification.waiting.push((round, who));
        }
    }

    /// Answers those that waited for checks, or for the record of what these found, and no longer do.
    pub(crate) fn answer_verified(&mut self) {
        if self.durability.is_recording_damage(&self.verification) {
            return;
        }
        for who in self.verification.take_over() {
            self.answer_if_whole(who);
        }
    }

    fn answer_if_whole(&mut self, who: Waiter) {
        match who {
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
            Waiter::Resync => self.durability.lacking.copies_are_durable(),
        }
    }

    /// The device because of which data of some volume, or the metadata, that was durable is gone, or will
    /// be once the device is closed. `None` if no device is damaged, or all that was on it is durable
    /// elsewhere.
    pub(crate) fn damaged_device(&self) -> Option<DeviceId> {
        let volumes = self.core.map.catalogue().volumes.keys();
        self.verification
            .metadata_damage(&self.core)
            .or_else(|| volumes.copied().find_map(|volume| self.damaged_for(volume)))
    }

    /// Why nothing of the volume can be acknowledged as durable any more.
    pub(crate) fn damage(&self, volume: VolumeId) -> Option<RequestError> {
        self.verification
            .metadata_damage(&self.core)
            .or_else(|| self.damaged_for(volume))
            .map(RequestError::FlushFailed)
    }

    /// A damaged device because of which durable data of the volume is gone: it is gone with as many
    /// devices as it has copies, or may be, since copies are missing for other reasons: with a device that
    /// is lost or absent, or not made yet.
    fn damaged_for(&self, volume: VolumeId) -> Option<DeviceId> {
        let damaged = &self.verification.damaged;
        let device = damaged.iter().next()?;
        let copies = self.core.map.volume(volume).map_or(1, |volume| usize::from(volume.copies));
        let is_lost = |device: DeviceId| self.core.is_lost(device);
        let mut devices = self.core.map.devices().iter().map(|superblock| superblock.device);
        // A damaged device that is lost as well leaves all it held degraded: that says nothing more.
        let is_degraded = || {
            !damaged.iter().any(is_lost) && self.durability.lacking.degraded(&self.core, volume).0 > Bytes(0)
        };
        let lacks = devices.any(|device| is_lost(device) && !damaged.contains(device)) || is_degraded();
        (damaged.len() + usize::from(lacks) >= copies).then_some(device)
    }
}

/// Whether a page is the superblock of this device. Its generation may be an older one: where a record of a
/// member left behind is being written, the second copy comes last.
fn is_of(expected: &Superblock, page: &[u8]) -> bool {
    let Reading::Good(found) = Superblock::decode(page) else { return false };
    (found.pool, found.device, found.size) == (expected.pool, expected.device, expected.size)
        && found.generation <= expected.generation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_that_count_for_long_are_made_anew_when_half_of_that_is_over() {
        let seconds = |within| interval(Nanos::secs(within));
        assert_eq!([0, 1, 2, 10, 60].map(seconds), [1, 1, 1, 5, 30].map(Nanos::secs));
    }
}
