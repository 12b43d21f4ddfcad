//! The operator's part: volumes come and go, the engine stops, crashes and opens again.

use super::{Ask, Crash, Driver, Failure, Setup, Volume};
use crate::{DeviceSpec, Place, Stop, World};
use weir_engine::{AdminId, Command, DeviceSettings, Engine};
use weir_map::{MapError, NewDevice, NewPool, PoolId};
use weir_model::{Bytes, DeviceClass, DeviceId, Nanos, Op, VolumeOffset};

/// What a check reads at once.
const CHECK: Bytes = Bytes::kib(256);

impl Driver {
    /// Reads all volumes once nothing else is under way.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.drain()?;
        for volume in 0..self.volumes.len() {
            for at in (0..self.volumes[volume].size.0).step_by(CHECK.0 as usize) {
                let offset = VolumeOffset(at);
                self.ask(Ask { volume, op: Op::Read, offset, len: CHECK, fua: false })?;
            }
        }
        self.drain()
    }

    /// Stops in good order and opens again. The devices lose what was not flushed: a stop must
    /// have left nothing behind.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.drain()?;
        self.engine.begin_stop(self.world.now());
        self.pump()?;
        while !self.engine.stopped() {
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::NeverStops);
            }
        }
        for volume in 0..self.volumes.len() {
            let promised = self.oracle.flush(volume);
            self.oracle.flushed(promised);
        }
        self.world.stop(Stop::PowerCut);
        self.oracle.crash(Stop::PowerCut);
        self.open()
    }

    /// Everything stops in the middle; then the pool is opened, perhaps in several attempts.
    pub(super) fn crash(&mut self, crash: &Crash) -> Result<(), Failure> {
        self.world.stop(crash.how);
        self.oracle.crash(crash.how);
        self.under_way.clear();
        self.tally.crashes += 1;
        for write in &crash.again {
            self.world.cut_at_store_write(Some(*write));
            let opened = open_pool(&mut self.world, &self.setup);
            self.world.cut_at_store_write(None);
            if !self.world.is_dark() {
                opened?;
            }
            self.world.stop(Stop::PowerCut);
            self.oracle.crash(Stop::PowerCut);
            self.tally.crashes += 1;
        }
        self.open()
    }

    fn open(&mut self) -> Result<(), Failure> {
        self.engine = open_pool(&mut self.world, &self.setup)?;
        self.check_volumes()
    }

    /// The pool has the volumes it should have.
    fn check_volumes(&self) -> Result<(), Failure> {
        let mut found: Vec<_> = self.engine.volumes().map(|v| (v.name, v.id, v.size)).collect();
        let mut expected: Vec<_> = self.volumes.iter().map(|v| (v.name.clone(), v.id, v.size)).collect();
        found.sort();
        expected.sort();
        if found == expected {
            return Ok(());
        }
        Err(Failure::Volumes { found: format!("{found:?}"), expected: format!("{expected:?}") })
    }

    /// A volume gives way to a new one of the same size and name.
    pub(super) fn replace(&mut self, volume: usize) -> Result<(), Failure> {
        self.drain()?;
        let Volume { name, size, .. } = &self.volumes[volume];
        let (name, size) = (name.clone(), *size);
        self.admin(Command::RemoveVolume { name: name.clone() })?;
        self.volumes[volume] = self.create_volume(name, size)?;
        self.oracle.blank(volume);
        self.kept.retain(|(kept, _)| *kept != volume);
        self.check_volumes()
    }

    pub(super) fn create_volume(&mut self, name: String, size: Bytes) -> Result<Volume, Failure> {
        self.admin(Command::CreateVolume { name: name.clone(), size })?;
        let created = self.engine.volumes().find(|volume| volume.name == name);
        match created {
            Some(volume) => Ok(Volume { id: volume.id, name, size }),
            None => Err(Failure::Volumes { found: "no new one".to_owned(), expected: name }),
        }
    }

    /// Has a command carried out, waiting for its end.
    fn admin(&mut self, command: Command) -> Result<(), Failure> {
        self.admins += 1;
        let id = AdminId(self.admins);
        let what = format!("{command:?}");
        self.engine.admin(self.world.now(), id, command);
        self.pump()?;
        loop {
            while let Some(reply) = self.engine.next_admin_reply() {
                if reply.id == id {
                    let refused = |error| Failure::Admin { command: what.clone(), error };
                    return reply.result.map(drop).map_err(refused);
                }
            }
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::NeverDone(what));
            }
        }
    }

    /// Extents that may have to hold something: an upper bound.
    pub(super) fn extents_needed(&self) -> u64 {
        let extent = self.setup.extent.bytes();
        let mut needed = 0;
        for (volume, Volume { size, .. }) in self.volumes.iter().enumerate() {
            for start in (0..size.0).step_by(extent.0 as usize) {
                let len = Bytes(extent.0.min(size.0 - start));
                let place = Place { volume, offset: VolumeOffset(start), len };
                let kept = self.kept.contains(&(volume, start));
                needed += u64::from(kept || self.oracle.may_hold_data(place));
            }
        }
        needed
    }
}

/// Creates the pool; how many extents it has.
pub(super) fn create_pool(world: &mut World, setup: &Setup) -> Result<u64, Failure> {
    let device = |(number, spec): (usize, &DeviceSpec)| NewDevice {
        name: format!("device{number}"),
        size: spec.size,
        class: DeviceClass::Ssd,
    };
    let pool = NewPool {
        id: PoolId([7; 16]),
        name: "pool".to_owned(),
        extent: setup.extent,
        devices: setup.devices.iter().enumerate().map(device).collect(),
        metadata: DeviceId(0),
    };
    let superblocks = weir_map::create(world, &pool)?;
    Ok(superblocks.iter().map(|superblock| u64::from(superblock.data_extents)).sum())
}

/// Finds the devices' superblocks, opens the map and starts an engine.
pub(super) fn open_pool(world: &mut World, setup: &Setup) -> Result<Engine, Failure> {
    let mut superblocks = Vec::new();
    for (device, spec) in (0..).map(DeviceId).zip(&setup.devices) {
        let found = weir_map::create::read_superblock(world, device, spec.size)?;
        let missing = || MapError::Mismatch(format!("device {device} has no superblock"));
        superblocks.push(found.ok_or_else(missing)?);
    }
    let (map, _) = weir_map::open(world, superblocks)?;
    let policy = weir_policy::placement::by_name(&setup.policy);
    let policy = policy.ok_or_else(|| Failure::UnknownPolicy(setup.policy.clone()))?;
    let settings = |spec: &DeviceSpec| DeviceSettings { volatile_cache: spec.write_cache, sector: 512 };
    let settings: Vec<_> = setup.devices.iter().map(settings).collect();
    Ok(Engine::new(world.now(), map, policy, &settings, &mut world.memory)?)
}
