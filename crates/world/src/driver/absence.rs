//! Devices lost for good, and devices that return: what becomes of a pool, tried on a copy of it.
//!
//! A story begins at a quiet moment with everything durable and, in volumes with two copies, in two places.
//! The pool's devices are copied, the power of the copy is cut, and one of its devices is blank. So nothing
//! of it is mended for the pool itself, which goes on as if nothing had been asked.
//!
//! Told of the loss the copy must open, and refuse to before. Without that device every block of volumes with
//! two copies reads as it must, and everything can be written. Then a blank device takes its place, and, on
//! another copy, it returns as it was when it was lost: the pool opens, and redundancy is back
//! [soon](super::audit::RESTORED_WITHIN). If it carries metadata, it also returns alone: a pool that went on
//! without it must not be mistaken for what it holds.

use super::lifecycle::open_pool;
use super::{Crash, Driver, Failure, Health, Lose, Opened, UnderWay};
use crate::{Seed, Stop, Storage, World};
use weir_map::{MapError, OpenOptions};
use weir_model::{DeviceId, DeviceSet, Op, RequestError};

/// What is left out of a pool when it is opened, and what the operator says to that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Absence {
    /// The devices that are not there.
    pub(super) devices: DeviceSet,
    /// Whether the operator accepts it: what they hold is not there, and what they alone know is lost.
    pub(super) accepted: bool,
}

impl Absence {
    const fn of(devices: DeviceSet, accepted: bool) -> Self {
        Self { devices, accepted }
    }
}

impl Driver {
    /// Tries on a copy of the pool what becomes of it without one of its devices.
    pub(super) fn lose(&mut self, lose: &Lose) -> Result<(), Failure> {
        self.audit()?;
        if !self.is_auditable() {
            return Ok(());
        }
        let Some(pool) = self.look()? else { return Ok(()) };
        let redundant = self.redundant(&pool);
        let lost = DeviceId((lose.device % self.setup.devices.len()) as u8);
        let gone: DeviceSet = [lost].into_iter().collect();
        let mut world = self.copy_of_the_world()?;
        world.stop(Stop::PowerCut);
        let Some(device) = world.storage(lost) else { return Ok(()) };
        let left = std::mem::replace(device, device.blank());
        // Nobody opens it by mistake.
        self.is_refused(&mut world, Absence::of(gone, false), |error| match error {
            MapError::MirrorAbsent { device } | MapError::Absent { device } => *device == lost,
            MapError::MetadataAbsent { absent, .. } => absent.contains(lost),
            _ => false,
        })?;
        self.statistics.losses += 1;
        if self.members().all(|member| member == lost) {
            return Ok(());
        }
        let mut copy = self.copy(world, Absence::of(gone, true), redundant)?;
        copy.go_on_without(lose)?;
        self.statistics.replacements += u64::from(copy.is_replaced(lost, &left)?);
        let went_on = copy.copy_of_the_world()?;
        copy.returns(lost, &left)?;
        if self.members().any(|member| member == lost) {
            self.returns_alone(went_on, lost, &left)?;
        }
        Ok(())
    }

    /// Of a copy whose power failed while metadata members did, and which is not opened yet: one of two is
    /// lost as well. The other one is refused as older, as devices without metadata know, or it knows
    /// everything that was acknowledged.
    pub(super) fn try_other_member(&mut self) -> Result<(), Failure> {
        if !self.setup.mirrored
            || self.replacing.is_some()
            || self.commands.is_some()
            || self.hardening.is_some()
        {
            return Ok(());
        }
        let lost = DeviceId((self.checks / 4 % 2) as u8);
        let mut world = self.copy_of_the_world()?;
        if let Some(device) = world.storage(lost) {
            *device = device.blank();
        }
        let absence = Absence::of([lost].into_iter().collect(), true);
        match self.copy(world, absence, Vec::new()) {
            Ok(mut alone) => alone.check(),
            Err(Failure::Open(MapError::Stale { .. } | MapError::MetadataAbsent { .. })) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// The pool is used without the device, and opened again without it, which is on record by then.
    fn go_on_without(&mut self, lose: &Lose) -> Result<(), Failure> {
        self.check()?;
        lose.asks.iter().try_for_each(|ask| self.ask(*ask))?;
        self.check()?;
        self.absence.accepted = false;
        self.crash(&Crash::at_once())?;
        self.check()
    }

    /// A blank device takes the place of the one that is not there: what was on two devices is again. Whether
    /// it could: not while the lost one alone has something of a volume that was not in two places.
    fn is_replaced(&mut self, lost: DeviceId, left: &Storage) -> Result<bool, Failure> {
        let mut world = self.copy_of_the_world()?;
        world.stop(Stop::PowerCut);
        let mut found = Vec::new();
        for (device, spec) in (0..).map(DeviceId).zip(&self.setup.devices).filter(|(id, _)| *id != lost) {
            found.extend(weir_map::create::read_superblock(&mut world, device, spec.size)?);
        }
        let options = OpenOptions { planted: self.setup.planted, ..OpenOptions::default() };
        match weir_map::replace_laid_out(&mut world, &found, &self.layout[lost.index()], &options) {
            Ok(_) => {}
            Err(MapError::HeldAlone { volume, .. }) if self.may_be_held_alone(&volume) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let mut copy = self.copy(world, Absence::default(), Vec::new())?;
        copy.check()?;
        copy.audit()?;
        // The lost one is not taken for the new one any more.
        let mut world = copy.copy_of_the_world()?;
        world.stop(Stop::PowerCut);
        if let Some(storage) = world.storage(lost) {
            *storage = left.clone();
        }
        let is_right = |error: &MapError| matches!(error, MapError::Replaced { device } if *device == lost);
        self.is_refused(&mut world, Absence::default(), is_right)?;
        Ok(true)
    }

    /// Whether a device may have been the only one with something of the volume of this name.
    fn may_be_held_alone(&self, name: &str) -> bool {
        let volume = self.volumes.iter().position(|volume| volume.name == name);
        volume.is_some_and(|volume| !self.redundant.get(volume).copied().unwrap_or(false))
    }

    /// The device is back, as it was when it was lost.
    fn returns(&mut self, device: DeviceId, left: &Storage) -> Result<(), Failure> {
        if let Some(storage) = self.world.storage(device) {
            *storage = left.clone();
        }
        (self.absence, self.redundant) = (Absence::default(), Vec::new());
        self.crash(&Crash::at_once())?;
        if self.health != Health::Whole {
            return Err(Failure::NotWhole(device));
        }
        self.check()?;
        self.audit()
    }

    /// A member is back without the one the pool went on with: refused by all who know better. Where nobody
    /// does, it may go on alone, if that is accepted, and is then never mixed with the others.
    fn returns_alone(&mut self, mut world: World, member: DeviceId, left: &Storage) -> Result<(), Failure> {
        if let Some(storage) = world.storage(member) {
            *storage = left.clone();
        }
        world.stop(Stop::PowerCut);
        let other: DeviceSet = self.members().filter(|other| *other != member).collect();
        let all = || (0..self.setup.devices.len() as u8).map(DeviceId);
        if all().any(|device| device != member && !other.contains(device)) {
            self.is_refused(&mut world, Absence::of(other, true), |e| matches!(e, MapError::Stale { .. }))?;
        }
        let others: DeviceSet = all().filter(|device| *device != member).collect();
        self.is_refused(&mut world, Absence::of(others, false), |error| {
            matches!(error, MapError::MirrorAbsent { .. } | MapError::Absent { .. })
        })?;
        let mut alone = self.copy(world, Absence::of(others, true), Vec::new())?;
        alone.check()?;
        let mut world = alone.world;
        world.stop(Stop::PowerCut);
        let is_split = |error: &MapError| matches!(error, MapError::Split { .. } | MapError::Stale { .. });
        self.is_refused(&mut world, Absence::default(), is_split)
    }

    /// A pool like this one in another world, opened.
    fn copy(&mut self, mut world: World, absence: Absence, redundant: Vec<bool>) -> Result<Self, Failure> {
        let engine = open_pool(&mut world, &self.setup, false, absence)?;
        let mut copy = self.copied(world, Opened::of(engine));
        copy.oracle.crash(Stop::PowerCut);
        (copy.absence, copy.redundant, copy.has_moved) = (absence, redundant, true);
        (copy.replacing, copy.hardening, copy.commands) = (None, None, None);
        copy.note_absence();
        copy.apply_policies();
        Ok(copy)
    }

    /// The devices that are not there fail, whatever is asked of them.
    pub(super) fn note_absence(&mut self) {
        if !self.absence.devices.is_empty() {
            self.health = Health::Broken;
            self.failing = self.failing.or(self.absence.devices);
        }
    }

    fn copy_of_the_world(&mut self) -> Result<World, Failure> {
        let seed = Seed(self.world.seed().0 ^ self.world.now().0.rotate_left(20));
        Ok(self.world.copy(seed, self.setup.memory, &self.setup.devices)?)
    }

    /// The pool does not open like this, for one of these reasons.
    fn is_refused(
        &self,
        world: &mut World,
        absence: Absence,
        is_right: impl Fn(&MapError) -> bool,
    ) -> Result<(), Failure> {
        match open_pool(world, &self.setup, false, absence) {
            Err(Failure::Open(error)) if is_right(&error) => Ok(()),
            Err(failure) => Err(failure),
            Ok(_) => Err(Failure::OpenedWithout(absence.devices)),
        }
    }

    /// Whether a request must succeed whatever devices are absent: each block of its volume was in two
    /// places.
    pub(super) fn is_promised(&self, request: &UnderWay, error: RequestError) -> bool {
        let redundant = self.redundant.get(request.ask.volume).copied().unwrap_or(false);
        redundant && (error != RequestError::NoSpace || matches!(request.ask.op, Op::Read | Op::Flush))
    }
}
