//! Devices that are lost permanently, and devices that return: tested on copies of a pool.
//!
//! A test begins at a quiet moment, with everything durable and, in volumes with two copies, in two
//! locations. The pool's devices are copied, the copy suffers a power loss, and one of its devices is made
//! blank. So nothing is repaired in the pool itself, which continues as if nothing had been requested.
//!
//! The copy must refuse to open until the loss is accepted, and must open then. Without the device, every
//! block of volumes with two copies reads correctly, and everything can be written. Then a blank device
//! replaces it, and, on another copy, the device returns as it was when it was lost: the pool opens, and
//! redundancy is restored [soon](super::audit::RESTORE_TIMEOUT). If the device holds metadata, it also
//! returns alone: a pool that continued without it must not be confused with its contents.

use super::lifecycle::open_pool;
use super::{Crash, DeviceLoss, Driver, Failure, Health, InFlightRequest, OpenEngine};
use crate::{Seed, StopKind, Storage, World};
use weir_map::{MapError, OpenOptions};
use weir_model::{DeviceId, DeviceSet, Op, RequestError};

/// Devices that are missing when a pool is opened, and whether the operator accepts that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Absence {
    /// The missing devices.
    pub(super) devices: DeviceSet,
    /// Whether the operator accepts it: their data is not available, and metadata that only they have is
    /// lost.
    pub(super) accepted: bool,
}

impl Absence {
    const fn of(devices: DeviceSet, accepted: bool) -> Self {
        Self { devices, accepted }
    }
}

impl Driver {
    /// Tests on a copy of the pool what happens without one of its devices.
    pub(super) fn test_loss(&mut self, lose: &DeviceLoss) -> Result<(), Failure> {
        self.audit()?;
        if !self.is_auditable() {
            return Ok(());
        }
        let Some(pool) = self.read_pool()? else { return Ok(()) };
        let redundant = self.redundant(&pool);
        let lost = DeviceId((lose.device % self.setup.devices.len()) as u8);
        let gone: DeviceSet = [lost].into_iter().collect();
        let mut world = self.copy_world()?;
        world.stop(StopKind::PowerLoss);
        let Some(device) = world.storage(lost) else { return Ok(()) };
        let left = std::mem::replace(device, device.blank());
        // It must not open by mistake.
        self.check_refused(&mut world, Absence::of(gone, false), |error| match error {
            MapError::MirrorAbsent { device } | MapError::Absent { device } => *device == lost,
            MapError::MetadataAbsent { absent, .. } => absent.contains(lost),
            _ => false,
        })?;
        self.statistics.losses += 1;
        if self.members().all(|member| member == lost) {
            return Ok(());
        }
        let mut copy = self.copy(world, Absence::of(gone, true), redundant)?;
        copy.continue_without(lose)?;
        self.statistics.replacements += u64::from(copy.test_replacement(lost, &left)?);
        let went_on = copy.copy_world()?;
        copy.test_return(lost, &left)?;
        if self.members().any(|member| member == lost) {
            self.test_return_alone(went_on, lost, &left)?;
        }
        Ok(())
    }

    /// Tests, on an unopened copy whose power failed while metadata members did, the loss of one of two
    /// members. Either the other one is refused as outdated, as devices without metadata
    /// record, or it has every acknowledged change.
    pub(super) fn try_other_member(&mut self) -> Result<(), Failure> {
        if !self.setup.mirrored
            || self.replacing.is_some()
            || self.commands.is_some()
            || self.hardening.is_some()
        {
            return Ok(());
        }
        let lost = DeviceId((self.checks / 4 % 2) as u8);
        let mut world = self.copy_world()?;
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

    /// Uses the pool without the device, and opens it again without it; its absence is recorded by then.
    fn continue_without(&mut self, lose: &DeviceLoss) -> Result<(), Failure> {
        self.check()?;
        lose.requests.iter().try_for_each(|ask| self.submit_request(*ask))?;
        self.check()?;
        self.absence.accepted = false;
        self.crash(&Crash::power_loss_now())?;
        self.check()
    }

    /// Replaces the missing device by a blank one; then data that was on two devices is on two devices again.
    /// Returns false if that was not possible, because only the lost device has data of a volume that was not
    /// in two locations.
    fn test_replacement(&mut self, lost: DeviceId, left: &Storage) -> Result<bool, Failure> {
        let mut world = self.copy_world()?;
        world.stop(StopKind::PowerLoss);
        let mut found = Vec::new();
        for (device, spec) in (0..).map(DeviceId).zip(&self.setup.devices).filter(|(id, _)| *id != lost) {
            found.extend(weir_map::create::read_superblock(&mut world, device, spec.size)?);
        }
        let options = OpenOptions { planted: self.setup.planted, ..OpenOptions::default() };
        match weir_map::replace_with_layout(&mut world, &found, &self.layout[lost.index()], &options) {
            Ok(_) => {}
            Err(MapError::OnlyCopy { volume, .. }) if self.may_be_only_copy(&volume) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let mut copy = self.copy(world, Absence::default(), Vec::new())?;
        copy.check()?;
        copy.audit()?;
        // The lost device must no longer be accepted in place of the new one.
        let mut world = copy.copy_world()?;
        world.stop(StopKind::PowerLoss);
        if let Some(storage) = world.storage(lost) {
            *storage = left.clone();
        }
        let is_right = |error: &MapError| matches!(error, MapError::Replaced { device } if *device == lost);
        self.check_refused(&mut world, Absence::default(), is_right)?;
        Ok(true)
    }

    /// Reports whether a device may have been the only one with data of the volume of this name.
    fn may_be_only_copy(&self, name: &str) -> bool {
        let volume = self.volumes.iter().position(|volume| volume.name == name);
        volume.is_some_and(|volume| !self.redundant.get(volume).copied().unwrap_or(false))
    }

    /// Lets the device return as it was when it was lost.
    fn test_return(&mut self, device: DeviceId, left: &Storage) -> Result<(), Failure> {
        if let Some(storage) = self.world.storage(device) {
            *storage = left.clone();
        }
        (self.absence, self.redundant) = (Absence::default(), Vec::new());
        self.crash(&Crash::power_loss_now())?;
        if self.health != Health::Healthy {
            return Err(Failure::DeviceUnused(device));
        }
        self.check()?;
        self.audit()
    }

    /// Lets a member return without the one with which the pool continued. Devices that recorded the change
    /// of members refuse it. If none does, it may continue alone with the operator's consent, and never joins
    /// the others again.
    fn test_return_alone(
        &mut self,
        mut world: World,
        member: DeviceId,
        left: &Storage,
    ) -> Result<(), Failure> {
        if let Some(storage) = world.storage(member) {
            *storage = left.clone();
        }
        world.stop(StopKind::PowerLoss);
        let other: DeviceSet = self.members().filter(|other| *other != member).collect();
        let all = || (0..self.setup.devices.len() as u8).map(DeviceId);
        if all().any(|device| device != member && !other.contains(device)) {
            self.check_refused(&mut world, Absence::of(other, true), |e| {
                matches!(e, MapError::Stale { .. })
            })?;
        }
        let others: DeviceSet = all().filter(|device| *device != member).collect();
        self.check_refused(&mut world, Absence::of(others, false), |error| {
            matches!(error, MapError::MirrorAbsent { .. } | MapError::Absent { .. })
        })?;
        let mut alone = self.copy(world, Absence::of(others, true), Vec::new())?;
        alone.check()?;
        let mut world = alone.world;
        world.stop(StopKind::PowerLoss);
        let is_split = |error: &MapError| matches!(error, MapError::Diverged { .. } | MapError::Stale { .. });
        self.check_refused(&mut world, Absence::default(), is_split)
    }

    /// Opens a pool like this one in another world.
    fn copy(&mut self, mut world: World, absence: Absence, redundant: Vec<bool>) -> Result<Self, Failure> {
        let engine = open_pool(&mut world, &self.setup, false, absence)?;
        let mut copy = self.copy_into(world, OpenEngine::of(engine));
        copy.oracle.crash(StopKind::PowerLoss);
        (copy.absence, copy.redundant, copy.has_moved) = (absence, redundant, true);
        (copy.replacing, copy.hardening, copy.commands) = (None, None, None);
        copy.mark_missing_as_failing();
        copy.apply_policies();
        Ok(copy)
    }

    /// Makes the missing devices count as failing, for every request.
    pub(super) fn mark_missing_as_failing(&mut self) {
        if !self.absence.devices.is_empty() {
            self.health = Health::Broken;
            self.failing = self.failing.or(self.absence.devices);
        }
    }

    fn copy_world(&mut self) -> Result<World, Failure> {
        let seed = Seed(self.world.seed().0 ^ self.world.now().0.rotate_left(20));
        Ok(self.world.copy(seed, self.setup.memory, &self.setup.devices)?)
    }

    /// Checks that the pool does not open this way, for an accepted reason.
    fn check_refused(
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

    /// Reports whether a request must succeed whichever devices are missing: each block of its volume was in
    /// two locations.
    pub(super) fn must_succeed(&self, request: &InFlightRequest, error: RequestError) -> bool {
        let redundant = self.redundant.get(request.ask.volume).copied().unwrap_or(false);
        redundant && (error != RequestError::NoSpace || matches!(request.ask.op, Op::Read | Op::Flush))
    }
}
