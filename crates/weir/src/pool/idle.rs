//! An idle pool: the command itself opens, recovers and changes it, with one device command at a time.

use crate::args::{Accept, policies};
use crate::devices::{OpenedPool, Opening, PoolDescription};
use crate::failure::Failure;
use crate::pool_file::DeviceEntry;
use crate::progress;
use std::time::{Duration, Instant};
use weir_device::Devices;
use weir_engine::{
    AdminCommand, AdminError, AdminId, AdminReply, DeviceSettings, Driver, DurableWrites, Engine,
    ExplainError, Options, StartError,
};
use weir_model::{Bytes, DeviceId, HeapMemory, Io, IoError, Nanos, Store as _, VolumeOffset};
use weir_policy::placement;
use weir_serve::explain::Explanation;

/// Memory for metadata in flight.
const MEMORY: Bytes = Bytes::mib(32);

/// An idle pool, held by this process.
#[derive(Debug)]
pub(crate) struct IdlePool {
    engine: Engine,
    environment: IdleEnvironment,
    opening: Opening,
}

/// The devices of the pool, used with one command at a time.
#[derive(Debug)]
struct IdleEnvironment {
    devices: Devices,
    memory: HeapMemory,
    began: Instant,
}

impl Driver for IdleEnvironment {
    type Memory = HeapMemory;
    fn now(&self) -> Nanos {
        Nanos(self.began.elapsed().as_nanos() as u64)
    }
    fn memory(&mut self) -> &mut HeapMemory {
        &mut self.memory
    }
    fn start(&mut self, io: Io) -> Option<Result<(), IoError>> {
        Some(self.devices.execute(&io, &mut self.memory))
    }
}

impl IdlePool {
    /// Opens and recovers the pool, and waits up to `wait` for each device.
    ///
    /// # Errors
    /// Fails if devices are absent, belong to another pool, are in use, or are damaged.
    pub(crate) fn open(
        described: &PoolDescription,
        accept: &Accept,
        wait: Duration,
    ) -> Result<Self, Failure> {
        let OpenedPool { mut devices, superblocks, options } = described.open_pool(accept, wait)?;
        let (opened, opening) = progress::during("opening the pool", || {
            Opening::timed(&mut devices, |store| weir_map::open(store, &superblocks, &options))
        });
        let (mut map, recovery) = opened.map_err(|error| described.explain(error))?;
        tracing::debug!(?recovery, "the pool is open");
        described.report_recovery(&mut map, &recovery);
        let mut memory = HeapMemory::new(MEMORY);
        let policy = policy(described)?;
        let settings = settings(described, &devices);
        let options = Options { space: described.file.space.clone(), ..Options::default() };
        let mut engine = Engine::new(Nanos(0), map, policy, &settings, options, &mut memory)?;
        set_volume_policies(&mut engine, Nanos(0), described);
        Ok(Self { engine, environment: IdleEnvironment { devices, memory, began: Instant::now() }, opening })
    }

    /// Returns the engine for inspection.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Makes the engine count which data lack a copy.
    pub(crate) fn count_missing_copies(&mut self) {
        self.engine.find_missing_copies();
    }

    /// Returns where the block is that holds this byte of a volume, and why.
    pub(crate) fn explain(&self, volume: &str, at: VolumeOffset) -> Result<Explanation, ExplainError> {
        let devices = self.engine.map().devices();
        let name =
            |id: DeviceId| devices.get(id.index()).map(|sb| sb.device_name.clone()).unwrap_or_default();
        Ok(Explanation::new(volume, self.engine.explain(volume, at)?, name))
    }

    /// Returns the open device with this id.
    pub(crate) fn device(&self, id: DeviceId) -> Option<&weir_device::Device> {
        self.environment.devices.get(id)
    }

    /// Returns how long the opening took.
    pub(crate) fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Executes a command and waits until it is durable.
    pub(crate) fn admin(&mut self, command: AdminCommand) -> AdminReply {
        let now = self.environment.now();
        self.engine.admin(now, AdminId(1), command);
        loop {
            self.engine.pump(&mut self.environment);
            if let Some(reply) = self.engine.next_admin_reply() {
                return reply;
            }
        }
    }

    /// Makes everything durable and releases the devices. Returns the device because of which that failed: it
    /// was removed, truncated or overwritten in the meantime.
    pub(crate) fn close(mut self) -> Option<DeviceId> {
        let now = self.environment.now();
        self.engine.begin_stop(now);
        while !self.engine.stopped() {
            self.engine.pump(&mut self.environment);
        }
        self.engine.damaged_device()
    }
}

/// Returns the policy that the pool file names.
///
/// # Errors
/// Never fails for a checked pool file.
pub fn policy(described: &PoolDescription) -> Result<Box<dyn placement::Placement>, Failure> {
    let name = described.file.policy;
    let choice = tuned_policy(described, name);
    Ok(choice
        .ok_or_else(|| {
            Failure::usage(
                format!("there is no policy {name}"),
                format!("there are {}", policies().join(", ")),
            )
        })?
        .create())
}

/// Returns the policy with this name, with its tuning from the pool file.
fn tuned_policy(described: &PoolDescription, name: &str) -> Option<placement::TunedPolicy> {
    let settings = described.file.tuning.get(name).cloned().unwrap_or_default();
    placement::find_policy(name).map(|known| placement::TunedPolicy { info: known, settings })
}

/// Sets the policies that the pool file gives to volumes.
pub fn set_volume_policies(engine: &mut Engine, now: Nanos, described: &PoolDescription) {
    for (volume, policy) in &described.file.volumes {
        engine.set_volume_policy(now, volume, tuned_policy(described, policy));
    }
}

/// Maximum age of the last check of a block device when a FLUSH is answered; the check costs a read. Any
/// process can truncate a file, so the engine checks files before every answer, at almost no cost.
const BLOCK_DEVICE_VERIFIED: Nanos = Nanos::secs(10);

/// Returns the settings that the engine needs for each device, by id; absent devices have the defaults.
pub fn settings(described: &PoolDescription, devices: &Devices) -> Vec<DeviceSettings> {
    let settings = |(entry, id): (&DeviceEntry, DeviceId)| match devices.get(id) {
        Some(device) => DeviceSettings {
            volatile_cache: device.needs_flush(),
            sector: device.sector().get() as u16,
            deadline: entry.deadline.unwrap_or(DeviceSettings::DEADLINE),
            // For a file, the operating system reports a lack of space of the write separately from one that
            // a sync finds.
            durable_writes: match device.is_block() {
                true => DurableWrites::OneCommand,
                false => DurableWrites::WriteThenFlush,
            },
            verification_max_age: Some(if device.is_block() { BLOCK_DEVICE_VERIFIED } else { Nanos(0) }),
        },
        None => DeviceSettings::default(),
    };
    described.file.devices.iter().zip((0u8..).map(DeviceId)).map(settings).collect()
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        Self::from_message(error.kind(), &error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::from_message(weir_model::ErrorKind::Environment, &error.to_string())
    }
}
