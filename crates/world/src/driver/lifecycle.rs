//! The operator's part: creates and removes volumes; stops, crashes and opens the engine.

use super::absence::Absence;
use super::audit::has_continued_without_device;
use super::rot;
use super::{
    Crash, Driver, Failure, Health, OpenEngine, PendingReplacement, RecoveryCrash, Replacement, RequestSpec,
    Setup, Volume, VolumeSpec,
};
use crate::{Answer, DeviceSpec, FaultKind, Moment, Oracle, Place, StopKind, Ticket, World};
use weir_engine::{Activity, AdminCommand, AdminId, DeviceSettings, Engine, Options, SpaceRules};
use weir_map::{ExtentState, Hardening, Location, MapError, OpenOptions, PoolId, Superblock, Value, Whole};
use weir_model::{
    BLOCK, Bytes, DeviceClass, DeviceId, DeviceOffset, DeviceSet, ExtentKey, Nanos, Op, PlaceKind, Seed,
    VolumeOffset,
};
use weir_policy::placement::for_tests;

/// Number of bytes that a check reads at once.
const CHECK: Bytes = Bytes::kib(256);

/// Number of attempts to open a pool with broken devices: more than a fault strikes.
const OPEN_ATTEMPTS: usize = 50;

/// Id of the pool.
pub(super) const POOL: PoolId = PoolId([7; 16]);

impl Driver {
    /// Waits for everything in flight, then reads all volumes and checks what is reported about them.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.drain()?;
        for volume in 0..self.volumes.len() {
            for at in (0..self.volumes[volume].spec.size.0).step_by(CHECK.0 as usize) {
                let offset = VolumeOffset(at);
                self.submit_request(RequestSpec { volume, op: Op::Read, offset, len: CHECK, fua: false })?;
            }
            let (offset, len) = (VolumeOffset(0), Bytes(0));
            self.submit_request(RequestSpec { volume, op: Op::Flush, offset, len, fua: false })?;
        }
        self.drain()?;
        for volume in 0..self.volumes.len() {
            self.check_holes(volume)?;
            self.check_usage(volume)?;
        }
        self.check_space()?;
        self.audit_sometimes()
    }

    /// Checks that reported holes read as zeros.
    fn check_holes(&mut self, volume: usize) -> Result<(), Failure> {
        let Volume { id, spec: VolumeSpec { size, .. }, .. } = self.volumes[volume];
        let (mut at, mut runs) = (VolumeOffset(0), Vec::new());
        while at.0 < size.0 {
            self.engine.block_status(id, at, size - Bytes(at.0), 16, &mut runs);
            if runs.iter().all(|run| run.len.0 == 0) {
                return Err(Failure::NoStatus(at));
            }
            for run in runs.drain(..) {
                if run.kind != weir_engine::RunKind::Data {
                    let ask = RequestSpec { volume, op: Op::Read, offset: at, len: run.len, fua: false };
                    let ticket = self.oracle.read(Place { volume, offset: at, len: run.len });
                    let same = self.oracle.read_done(ticket, Answer::Zeros);
                    same.map_err(|difference| Failure::Difference { ask, difference })?;
                }
                at = at + run.len;
            }
        }
        Ok(())
    }

    /// Checks that all space is either owned or free.
    fn check_space(&mut self) -> Result<(), Failure> {
        // Freed space is quarantined until earlier commands, including a checkpoint's, have ended.
        if !self.wait_for_commands()? {
            return Ok(());
        }
        let (map, extent) = (self.engine.map(), self.setup.extent.bytes().0);
        let spaces = map.devices().iter().map(|sb| map.space(sb.device));
        // Space whose release is not durable is still owned.
        let taken = spaces.map(|space| u64::from(space.extents() - space.free())).sum::<u64>() * extent;
        let owned = map.owned_extents() * extent;
        if taken == owned || self.health != Health::Healthy {
            return Ok(());
        }
        Err(Failure::Leak { taken: Bytes(taken), owned: Bytes(owned) })
    }

    /// Stops gracefully and opens again. The devices lose everything not flushed: a stop must have left
    /// nothing unflushed.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.drain()?;
        self.engine.begin_stop(self.world.now());
        self.pump()?;
        while !self.engine.stopped() {
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::NeverStops);
            }
        }
        let whole = self.health == Health::Healthy;
        for volume in (0..self.volumes.len()).filter(|_| whole) {
            let promised = self.oracle.flush(volume);
            self.oracle.flushed(promised);
        }
        self.world.stop(StopKind::PowerLoss);
        self.oracle.crash(StopKind::PowerLoss);
        if self.is_tail_damaged() || !self.truncated.is_empty() {
            return self.abandon_pool();
        }
        self.open()
    }

    /// Stops everything abruptly; then opens the pool, possibly in several attempts.
    pub(super) fn crash(&mut self, crash: &Crash) -> Result<(), Failure> {
        self.note_crash(crash.kind);
        self.recover(crash)
    }

    /// Records what the pool is doing when it crashes.
    pub(super) fn note_crash(&mut self, how: StopKind) {
        self.record_fault(fault_kind(how));
        let checkpoint = [Activity::CheckpointPages, Activity::CheckpointFlush, Activity::CheckpointRoot];
        let in_checkpoint = checkpoint.into_iter().any(|activity| self.engine.is_doing(activity));
        self.statistics.in_checkpoint += u64::from(in_checkpoint);
        self.statistics.after_wrap += u64::from(self.engine.is_doing(Activity::JournalWrapped));
    }

    /// Stops everything and opens the pool.
    pub(super) fn recover(&mut self, crash: &Crash) -> Result<(), Failure> {
        self.stop(crash.kind);
        if !self.truncated.is_empty() {
            return self.abandon_pool();
        }
        let mut damaged = !self.damaged_metadata().is_empty();
        self.check_metadata(damaged)?;
        if self.is_tail_damaged() {
            return self.abandon_pool();
        }
        if let Some(rot) = crash.rot.filter(|_| crash.kind == StopKind::PowerLoss) {
            // With one member left behind and another that rots, no guarantee could be checked.
            if !has_continued_without_device(&mut self.world, &self.setup) {
                self.rot(rot)?;
            }
        }
        for RecoveryCrash { write, kind: how } in &crash.recovery_crashes {
            // An opening that starts from the older root may overwrite damaged pages of the newest root
            // before it writes a root of its own: then no sector is damaged any more, but the newest root is
            // still invalid.
            damaged |= !self.damaged_metadata().is_empty();
            self.world.stop_at_store_write(Some(*write), *how);
            let lenient = self.health == Health::Broken;
            let opened = open_pool(&mut self.world, &self.setup, lenient, self.absence);
            self.world.stop_at_store_write(None, *how);
            self.record_recovery_faults();
            match opened {
                Err(failure) if !self.world.has_stopped() && self.health == Health::Healthy => {
                    return self.handle_refused_open(failure);
                }
                _ => {}
            }
            if self.world.has_stopped() {
                self.statistics.in_recovery += 1;
                self.record_recovery_fault(fault_kind(*how));
            }
            self.stop(*how);
            self.check_metadata(damaged)?;
            // Opening writes, too, and these writes may have been misdirected to the position of the last
            // frame.
            if self.is_tail_damaged() {
                return self.abandon_pool();
            }
        }
        self.open()
    }

    /// Replaces a pool whose damage cannot be noticed, and which may be older than it should be.
    fn abandon_pool(&mut self) -> Result<(), Failure> {
        self.statistics.pools_abandoned += 1;
        self.recreate_pool()
    }

    /// Records the faults that have struck since the last call; returns whether there were any.
    fn record_recovery_faults(&mut self) -> bool {
        let strikes = self.world.take_faults();
        for (device, strike) in &strikes {
            self.record_recovery_fault(*strike);
            if !strike.is_silent() {
                self.failing.insert(*device);
            }
        }
        !strikes.is_empty()
    }

    fn record_recovery_fault(&mut self, strike: FaultKind) {
        self.record_hit(strike, Moment::Recovery);
    }

    /// Checks that the metadata is as a crash may leave it, unless it was `damaged` before.
    fn check_metadata(&mut self, damaged: bool) -> Result<(), Failure> {
        if damaged || self.health != Health::Healthy || !self.damaged_metadata().is_empty() {
            return Ok(());
        }
        let sizes: Vec<_> = self.setup.devices.iter().map(|device| Some(device.size)).collect();
        let report = weir_map::check(&mut self.world, &sizes);
        if report.is_clean() { Ok(()) } else { Err(Failure::Check(Box::new(report))) }
    }

    fn open(&mut self) -> Result<(), Failure> {
        match self.reopen() {
            Err(failure) => return self.handle_refused_open(failure),
            Ok(()) if self.health == Health::Dead => return Ok(()),
            Ok(()) => {}
        }
        self.settle_hardening();
        self.settle_replacement()?;
        self.settle_commands()?;
        self.note_owners();
        self.check_volumes()
    }

    /// Opens the pool. With broken devices this may take several attempts, or be impossible.
    fn reopen(&mut self) -> Result<(), Failure> {
        let mut foretold = self.predict_open();
        for _ in 0..OPEN_ATTEMPTS {
            let lenient = self.health == Health::Broken;
            let opened = open_pool(&mut self.world, &self.setup, lenient, self.absence);
            let had_faults = self.record_recovery_faults();
            foretold.take().map_or(Ok(()), |report| rot::check_prediction(report, opened.is_ok()))?;
            match opened {
                Ok(engine) => {
                    self.engine = OpenEngine::of(engine);
                    self.is_serving = true;
                    self.apply_policies();
                    if self.health == Health::Healthy || !(had_faults || self.may_fail()) {
                        self.oracle.make_all_durable();
                    }
                    return Ok(());
                }
                Err(Failure::Open(error)) if self.may_fail_to_open(&error) => {
                    // The server is started again: data that could not be flushed can still be read.
                    self.world.stop(StopKind::Kill);
                    self.world.requeue_failed_writes();
                    self.oracle.crash(StopKind::Kill);
                    if self.is_tail_damaged() {
                        return self.abandon_pool();
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        self.health = Health::Dead;
        Ok(())
    }

    /// Reports whether a device may fail from now on, or be missing. A pool that opens while none does has
    /// found everything and made it durable, whatever failed before.
    pub(super) fn may_fail(&mut self) -> bool {
        self.world.may_fail()
            || !self.absence.devices.is_empty()
            || !self.truncated.is_empty()
            || self.has_silent_faults()
    }

    /// Reports whether the pool may fail to open with this error: devices fail, and not only the missing
    /// ones.
    fn may_fail_to_open(&self, error: &MapError) -> bool {
        self.health == Health::Broken && self.absence.devices.is_empty() && is_device_error(error)
    }

    /// Sets the volumes' own policies, which the engine does not store.
    pub(super) fn apply_policies(&mut self) {
        for Volume { name, spec, .. } in &self.volumes {
            let choice = spec.policy.and_then(for_tests);
            self.engine.set_volume_policy(self.world.now(), name, choice);
        }
    }

    /// Checks that the pool has the volumes it should have.
    pub(super) fn check_volumes(&self) -> Result<(), Failure> {
        let mut found: Vec<_> =
            self.engine.volumes().map(|v| (v.name, v.id, v.size, v.hardening as u8)).collect();
        let named = |v: &Volume| (v.name.clone(), v.id, v.spec.size, v.spec.hardening as u8);
        let mut expected: Vec<_> = self.volumes.iter().map(named).collect();
        found.sort();
        expected.sort();
        if found == expected {
            return Ok(());
        }
        Err(Failure::Volumes { found: format!("{found:?}"), expected: format!("{expected:?}") })
    }

    /// Replaces a volume by a new one of the same size. With failing devices this may not complete: then a
    /// power loss repairs the devices.
    pub(super) fn replace(&mut self, replace: &Replacement) -> Result<(), Failure> {
        match self.try_to_replace(replace.volume % self.volumes.len(), &replace.meanwhile) {
            Err(Failure::Admin { .. }) if self.health == Health::Broken => {
                Err(self.pending_crash.crash_now(&Crash::power_loss_now()))
            }
            other => other,
        }
    }

    fn try_to_replace(&mut self, volume: usize, meanwhile: &[RequestSpec]) -> Result<(), Failure> {
        while self.in_flight.values().any(|request| request.ask.volume == volume) {
            self.wait(1)?;
        }
        let (old, spec) = (self.volumes[volume].name.clone(), self.volumes[volume].spec);
        self.names += 1;
        let new = format!("volume{volume}-{}", self.names);
        self.replacing = Some(PendingReplacement { volume, new: new.clone(), removed: false });
        let removal = self.submit_command(AdminCommand::RemoveVolume { name: old })?;
        self.submit_to_others(volume, meanwhile)?;
        self.wait_for_command(&removal)?;
        if let Some(replacing) = &mut self.replacing {
            replacing.removed = true;
        }
        self.create_successor(volume, &new, spec)?;
        self.check_volumes()
    }

    /// Submits requests to all volumes but one.
    fn submit_to_others(&mut self, but: usize, asks: &[RequestSpec]) -> Result<(), Failure> {
        let volumes = self.volumes.len();
        let mut asks = asks.iter().filter(|_| volumes > 1);
        asks.try_for_each(|ask| {
            let own = ask.volume % volumes == but;
            self.submit_request(RequestSpec { volume: ask.volume + usize::from(own), ..*ask })
        })
    }

    pub(super) fn replaced(&mut self, volume: usize, new: Volume) {
        if let Some(oldest) = self.in_flight.values().map(|request| request.ticket).min() {
            self.replaced_volumes.retain(|(at, _)| *at >= oldest);
            self.replaced_volumes.push((self.oracle.latest(), self.extents_used(volume, oldest)));
        }
        self.volumes[volume] = new;
        self.oracle.reset_volume(volume);
        self.reserved_extents.retain(|(kept, _)| *kept != volume);
        self.space_guarantees.forget_volume(volume);
        self.replacing = None;
    }

    /// Settles the replacement of a volume that a crash has interrupted: the volume is unchanged, or removed,
    /// or the new one exists.
    fn settle_replacement(&mut self) -> Result<(), Failure> {
        let Some(PendingReplacement { volume, new, removed }) = self.replacing.take() else { return Ok(()) };
        let (old, spec) = (self.volumes[volume].name.clone(), self.volumes[volume].spec);
        let found = self.engine.volumes().find(|v| v.name == new || v.name == old);
        match found {
            Some(v) if v.name == new => self.replaced(volume, Volume { id: v.id, name: new, spec }),
            Some(v) if removed => {
                return Err(Failure::Volumes { found: v.name, expected: "none, it was removed".to_owned() });
            }
            // It was not removed yet.
            Some(_) => {}
            None => {
                self.replacing = Some(PendingReplacement { volume, new: new.clone(), removed: true });
                match self.create_successor(volume, &new, spec) {
                    Ok(()) => {}
                    Err(_) if self.health == Health::Broken => return self.crash(&Crash::power_loss_now()),
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(())
    }

    /// Records whether any volume has received space that another one has freed.
    fn note_owners(&mut self) {
        let (map, owners) = (self.engine.map(), &mut self.owners);
        let mut reused = false;
        for volume in &self.volumes {
            map.for_each(volume.id, |_, value| {
                let mut own =
                    |whole: Whole| reused |= owners.insert(whole, volume.id).is_some_and(|o| o != volume.id);
                match value {
                    Value::Empty => {}
                    Value::Direct(whole) => own(*whole),
                    Value::Record(record) => record.places.iter().for_each(|place| match place.at {
                        Location::Whole(whole) => own(whole),
                        Location::Fine { .. } => {}
                    }),
                }
            });
        }
        if reused {
            self.statistics.runs_with_reuse = 1;
        }
    }

    pub(super) fn create_volume(&mut self, name: String, spec: VolumeSpec) -> Result<Volume, Failure> {
        let VolumeSpec { size, hardening, copies, policy } = spec;
        self.engine.set_volume_policy(self.world.now(), &name, policy.and_then(for_tests));
        self.admin(AdminCommand::CreateVolume { name: name.clone(), size, hardening, copies })?;
        let created = self.engine.volumes().find(|volume| volume.name == name);
        match created {
            Some(volume) => Ok(Volume { id: volume.id, name, spec }),
            None => Err(Failure::Volumes { found: "no new one".to_owned(), expected: name }),
        }
    }

    /// Creates the successor of a removed volume.
    fn create_successor(&mut self, volume: usize, name: &str, spec: VolumeSpec) -> Result<(), Failure> {
        let create = |driver: &mut Self| match driver.create_volume(name.to_owned(), spec) {
            Ok(created) => {
                driver.replaced(volume, created);
                Ok(true)
            }
            Err(failure) if driver.is_refused_for_space(&failure) => Ok(false),
            Err(failure) => Err(failure),
        };
        if create(self)? { Ok(()) } else { self.free_metadata_space(create) }
    }

    /// Gives a command.
    pub(super) fn submit_command(&mut self, command: AdminCommand) -> Result<SubmittedCommand, Failure> {
        self.admins += 1;
        let given = SubmittedCommand { id: AdminId(self.admins), what: format!("{command:?}") };
        self.engine.admin(self.world.now(), given.id, command);
        self.pump()?;
        Ok(given)
    }

    /// Executes a command and waits for its end.
    pub(super) fn admin(&mut self, command: AdminCommand) -> Result<(), Failure> {
        let given = self.submit_command(command)?;
        self.wait_for_command(&given)
    }

    /// Waits for the end of a command.
    fn wait_for_command(&mut self, given: &SubmittedCommand) -> Result<(), Failure> {
        loop {
            while let Some(reply) = self.engine.next_admin_reply() {
                if reply.id == given.id {
                    self.idle_events = 0;
                    let refused = |error| Failure::Admin { command: given.what.clone(), error };
                    return reply.result.map(drop).map_err(refused);
                }
            }
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::NeverDone(given.what.clone()));
            }
        }
    }

    /// Returns an upper bound of the number of extents that had to hold data at any time since a request was
    /// submitted.
    pub(super) fn extents_needed(&self, since: Ticket) -> u64 {
        let held = (0..self.volumes.len()).map(|volume| self.extents_used(volume, since));
        let gone = self.replaced_volumes.iter().filter(|(at, _)| *at >= since).map(|(_, extents)| *extents);
        held.chain(gone).sum()
    }

    /// Returns one volume's share of that. Data rewritten while its device was lost is in two locations, each
    /// of which has blocks that the other lacks.
    fn extents_used(&self, volume: usize, since: Ticket) -> u64 {
        let (extent, size) = (self.setup.extent.bytes(), self.volumes[volume].spec.size);
        let copies = u64::from(self.volumes[volume].spec.copies);
        let held = |start: u64| {
            let len = Bytes(extent.0.min(size.0 - start));
            let place = Place { volume, offset: VolumeOffset(start), len };
            let may_hold =
                self.reserved_extents.contains(&(volume, start)) || self.oracle.may_hold_data(place, since);
            let needed = if may_hold { copies } else { 0 };
            needed.max(self.whole_places(volume, VolumeOffset(start)))
        };
        (0..size.0).step_by(extent.0 as usize).map(held).sum()
    }

    /// Returns the number of whole locations of an extent that has a record.
    fn whole_places(&self, volume: usize, at: VolumeOffset) -> u64 {
        let key = ExtentKey { volume: self.volumes[volume].id, index: self.setup.extent.index(at) };
        let ExtentState::Record(record) = self.engine.map().find(key) else { return 0 };
        record.places.iter().filter(|place| place.at.id().kind == PlaceKind::Whole).count() as u64
    }
}

const fn fault_kind(how: StopKind) -> FaultKind {
    match how {
        StopKind::Kill => FaultKind::Kill,
        StopKind::PowerLoss => FaultKind::PowerLoss,
    }
}

/// A command of the operator.
pub(super) struct SubmittedCommand {
    id: AdminId,
    what: String,
}

/// Reports whether a pool may fail to open with this error because of failing devices.
pub(crate) fn is_device_error(error: &MapError) -> bool {
    use MapError::{Absent, Io, MetadataAbsent, MirrorAbsent, Mismatch, Stale};
    matches!(
        error,
        Io { .. } | Absent { .. } | MetadataAbsent { .. } | MirrorAbsent { .. } | Stale { .. } | Mismatch(_)
    )
}

/// Creates an oracle for these volumes.
pub(crate) fn oracle(volumes: &[VolumeSpec]) -> Oracle {
    let mut oracle = Oracle::new(&volumes.iter().map(|volume| volume.size).collect::<Vec<_>>());
    for (number, _) in volumes.iter().enumerate().filter(|(_, v)| v.hardening == Hardening::Write) {
        oracle.first_writes_are_durable(number);
    }
    oracle
}

/// Creates the pool; returns its superblocks.
pub(crate) fn create_pool(world: &mut World, setup: &Setup) -> Result<Vec<Superblock>, Failure> {
    let extent = setup.extent.bytes().0;
    let members: DeviceSet = (0..if setup.mirrored { 2 } else { 1 }).map(DeviceId).collect();
    let superblock = |(number, spec): (u8, &DeviceSpec)| {
        let member = members.contains(DeviceId(number));
        let mut superblock = Superblock {
            pool: POOL,
            generation: 1,
            size: spec.size,
            device: DeviceId(number),
            devices: setup.devices.len() as u8,
            extent: setup.extent,
            class: DeviceClass::Ssd,
            incarnation: 0,
            journal_pages: if member { setup.journal_pages } else { 0 },
            meta_pages: if member { setup.meta_pages } else { 0 },
            data_at: DeviceOffset(extent),
            data_extents: 0,
            pool_name: "pool".to_owned(),
            device_name: format!("device{number}"),
            members: if setup.mirrored { members } else { DeviceSet::default() },
            missing: DeviceSet::default(),
            abandoned: DeviceSet::default(),
            damaged: DeviceSet::default(),
            damaged_since: 0,
            join_generations: Vec::new(),
        };
        if member {
            let behind = superblock.pages_at().0 + setup.meta_pages * BLOCK;
            superblock.data_at = DeviceOffset(behind.next_multiple_of(extent));
        }
        let end = Superblock::second_at(spec.size).0;
        superblock.data_extents = (end.saturating_sub(superblock.data_at.0) / extent) as u32;
        superblock
    };
    let superblocks: Vec<_> = (0..).zip(&setup.devices).map(superblock).collect();
    weir_map::create::create_with_layout(world, &superblocks)?;
    Ok(superblocks)
}

/// Finds the devices' superblocks, opens the map and starts an engine; with `lenient`, without devices that
/// do not respond.
pub(crate) fn open_pool(
    world: &mut World,
    setup: &Setup,
    lenient: bool,
    absence: Absence,
) -> Result<Engine, Failure> {
    let mut superblocks = Vec::new();
    let without = if absence.accepted { absence.devices } else { DeviceSet::default() };
    let mut options = OpenOptions { accept_rollback: absence.accepted, without, planted: setup.planted };
    let there = |device: &(DeviceId, &DeviceSpec)| !absence.devices.contains(device.0);
    for (device, spec) in (0..).map(DeviceId).zip(&setup.devices).filter(there) {
        match weir_map::create::read_superblock(world, device, spec.size) {
            Ok(Some(found)) => superblocks.push(found),
            Ok(None) => {
                return Err(MapError::Mismatch(format!("device {device} has no superblock")).into());
            }
            Err(MapError::Io { .. }) if lenient => {
                options.without.insert(device);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let (map, _) = weir_map::open(world, &superblocks, &options)?;
    let policy = for_tests(&setup.policy);
    let policy = policy.ok_or_else(|| Failure::UnknownPolicy(setup.policy.clone()))?.create();
    let settings = |spec: &DeviceSpec| DeviceSettings {
        volatile_cache: spec.write_cache,
        sector: spec.sector,
        deadline: setup.deadline,
        durable_writes: setup.durable_writes,
        verification_max_age: setup.verified.then_some(Nanos(0)),
    };
    let settings: Vec<_> = setup.devices.iter().map(settings).collect();
    let options = Options {
        space: SpaceRules {
            when_full: setup.when_full,
            extra: setup.extra,
            quiet: setup.quiet,
            ..SpaceRules::default()
        },
        mover_share: setup.mover_share,
        extent_cache: setup.extent_cache,
        moves: setup.moves,
        flushes: setup.flushes,
        seed: Seed(setup.seed.0 ^ world.now().0),
    };
    Ok(Engine::new(world.now(), map, policy, &settings, options, &mut world.memory)?)
}
