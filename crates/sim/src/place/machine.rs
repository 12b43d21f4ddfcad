//! A simulated machine: the real engine over modelled devices, in virtual time.

use super::dataless::DatalessDevice;
use super::metered_world::MeteredWorld;
use super::noise::{Noise, NoisyDrive};
use super::pool::{Layout, PoolSpec};
use crate::{Arrival, SimError, VolumeData};
use smallvec::SmallVec;
use weir_engine::{
    AdminCommand, AdminId, DeviceEvent, DeviceSettings, EXTRA_SPACE, Engine, Options, QUIET_PERIOD,
    SpaceRules,
};
use weir_map::{Hardening, OpenOptions, Superblock};
use weir_model::{
    Bytes, DeviceId, ExtentIndex, Hint, IoCompletion, Memory as _, Nanos, Op, Reply, Request, RequestId,
    Seed, VolumeId, VolumeOffset,
};
use weir_policy::placement::Placement;
use weir_timing::drives::{Drive, DriveKind};
use weir_timing::{RoundTrips, Timing};
use weir_world::{Device, Storage, World, flash_log};

/// Buffer memory: requests beyond it wait, like those of a client without credit.
const MEMORY: Bytes = Bytes::mib(256);
/// Maximum length of a piece of a request.
pub(super) const PIECE_MAX: Bytes = Bytes::mib(1);
/// I/O deadline: the engine never gives a modelled drive up, however long its queue.
const DEADLINE: Nanos = Nanos::secs(365 * 86_400);
/// Maximum number of steps at one instant; beyond it the engine is considered stuck in a loop.
const STEPS_MAX: u32 = 1_000_000;
/// Interval at which the round trips to remote devices are measured.
const ROUND_TRIP_INTERVAL: Nanos = Nanos::secs(1);
/// Number of requests in flight during the fill.
const FILL_DEPTH: usize = 32;

/// An engine with its devices and volumes.
pub struct Machine {
    engine: Engine,
    pub(crate) environment: MeteredWorld,
    pub(crate) volumes: Vec<VolumeId>,
    done: Vec<IoCompletion>,
    /// Measurements of the networks in front of devices, and when they are due.
    networks: Vec<(DeviceId, RoundTrips)>,
    next_round_trip: Nanos,
    steps: u32,
}

impl Machine {
    /// Creates a pool with these volumes and fills it: every extent that holds data is written once, in
    /// address order.
    ///
    /// # Errors
    /// Fails if the pool is invalid or too small.
    pub fn new(
        pool: &PoolSpec,
        policy: Box<dyn Placement>,
        spaces: &[VolumeData],
        seed: Seed,
    ) -> Result<Self, SimError> {
        let layout = pool.layout(spaces)?;
        let devices = devices(&layout, |_, drive, size| drive.timing(size, drive.cache, flash_log));
        Self::with_devices(pool, layout, devices, policy, spaces, seed, Nanos(0))
    }

    /// Like [`Self::new`], with these devices for the layout, from the time `start` on.
    pub(super) fn with_devices(
        pool: &PoolSpec,
        layout: Layout,
        devices: Vec<Box<dyn Device>>,
        policy: Box<dyn Placement>,
        spaces: &[VolumeData],
        seed: Seed,
        start: Nanos,
    ) -> Result<Self, SimError> {
        let mut world = World::with_devices(seed, MEMORY + pool.extent_cache, devices);
        world.advance(start, &mut Vec::new());
        weir_map::create::create_with_layout(&mut world, &layout.superblocks)?;
        let (map, _) = weir_map::open(&mut world, &layout.superblocks, &OpenOptions::default())?;
        let settings: Vec<_> = (0..layout.superblocks.len() as u8)
            .map(|i| DeviceSettings {
                volatile_cache: layout.is_volatile(DeviceId(i)),
                deadline: DEADLINE,
                // These devices keep neither data nor superblocks.
                verification_max_age: None,
                ..DeviceSettings::default()
            })
            .collect();
        let options = Options {
            // The defaults of a pool file.
            space: SpaceRules {
                extra: Some(EXTRA_SPACE),
                quiet: Some(QUIET_PERIOD),
                ..SpaceRules::default()
            },
            mover_share: pool.mover_share,
            extent_cache: pool.extent_cache,
            moves: pool.moves,
            seed,
            ..Options::default()
        };
        let engine = Engine::new(world.now(), map, policy, &settings, options, &mut world.memory)?;
        let mut machine = Self {
            engine,
            networks: networks(&layout, seed),
            next_round_trip: start,
            environment: MeteredWorld::new(world, layout.superblocks),
            volumes: Vec::new(),
            done: Vec::new(),
            steps: 0,
        };
        for (number, space) in spaces.iter().enumerate() {
            machine.create_volume(format!("v{number}"), space.size)?;
        }
        machine.fill(spaces)?;
        Ok(machine)
    }

    /// Returns the current time.
    pub fn now(&self) -> Nanos {
        self.environment.world.now()
    }

    /// Returns a digest of the seed and all events.
    pub(crate) fn digest(&self) -> u64 {
        self.environment.world.digest()
    }

    /// Returns the engine, for inspection.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the time of the next event.
    pub(crate) fn next(&self) -> Option<Nanos> {
        [self.environment.world.next_event(), self.engine.deadline()].into_iter().flatten().min()
    }

    /// Advances the time to `to` and handles the events due by then.
    pub(crate) fn advance(&mut self, to: Nanos) -> Result<(), SimError> {
        let before = self.now();
        let mut done = std::mem::take(&mut self.done);
        self.environment.advance(to.max(before), &mut done);
        let now = self.now();
        self.steps = if now > before { 0 } else { self.steps + 1 };
        if self.steps > STEPS_MAX {
            return Err(SimError::TimeStalled(now));
        }
        for answer in done.drain(..) {
            self.engine.complete(now, answer, &mut self.environment.world.memory);
        }
        self.done = done;
        self.measure_round_trips(now);
        Ok(())
    }

    /// Measures a round trip to each remote device, if that is due.
    fn measure_round_trips(&mut self, now: Nanos) {
        if self.networks.is_empty() || now < self.next_round_trip {
            return;
        }
        self.next_round_trip = now + ROUND_TRIP_INTERVAL;
        for (device, round_trips) in &mut self.networks {
            if let Some(time) = round_trips.next() {
                let event = DeviceEvent::RoundTrip(time);
                self.engine.device_event(now, *device, event, &mut self.environment.world.memory);
            }
        }
    }

    /// Advances until no device has a command in flight.
    pub(super) fn drain(&mut self) -> Result<(), SimError> {
        while let Some(at) = self.environment.world.next_event() {
            self.advance(at)?;
            self.pump();
        }
        Ok(())
    }

    /// Replaces the policy.
    pub(super) fn set_policy(&mut self, policy: Box<dyn Placement>) {
        self.engine.set_policy(self.now(), policy);
    }

    /// Lets the engine do the work that is due now.
    pub(crate) fn pump(&mut self) {
        self.engine.pump(&mut self.environment);
    }

    /// Takes the next reply and releases its buffer.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        let reply = self.engine.next_reply()?;
        if let Some(buffer) = reply.buffer {
            self.environment.world.memory.give(buffer);
        }
        Some(reply)
    }

    /// Submits a request as pieces that share its id; returns the number of pieces, or `None` if the request
    /// has to wait.
    pub(crate) fn submit(&mut self, id: RequestId, ask: &Arrival) -> Option<u32> {
        if !self.engine.can_accept() {
            return None;
        }
        let Arrival { volume, op, offset, len, hint, .. } = *ask;
        let volume = self.volumes[volume];
        let whole = Request { id, volume, op, offset, len, fua: false, hint, buffer: None };
        if !op.has_payload() {
            self.submit_to_engine(whole);
            return Some(1);
        }
        let mut pieces: SmallVec<[Request; 4]> = SmallVec::new();
        for start in (offset.0..offset.0 + len.0).step_by(PIECE_MAX.0 as usize) {
            let (offset, len) = (VolumeOffset(start), Bytes(PIECE_MAX.0.min(offset.0 + len.0 - start)));
            let buffer = self.environment.world.memory.take(Request::buffer_len(offset, len));
            if buffer.is_none() {
                let taken = pieces.iter().filter_map(|piece| piece.buffer);
                taken.for_each(|buffer| self.environment.world.memory.give(buffer));
                return None;
            }
            pieces.push(Request { offset, len, buffer, ..whole });
        }
        let count = pieces.len() as u32;
        pieces.into_iter().for_each(|piece| self.submit_to_engine(piece));
        Some(count)
    }

    fn submit_to_engine(&mut self, request: Request) {
        self.engine.submit(self.environment.world.now(), request, &mut self.environment.world.memory);
    }

    fn create_volume(&mut self, name: String, size: Bytes) -> Result<(), SimError> {
        let id = AdminId(self.volumes.len() as u64);
        let command =
            AdminCommand::CreateVolume { name: name.clone(), size, hardening: Hardening::Flush, copies: 1 };
        self.engine.admin(self.now(), id, command);
        let reply = loop {
            self.pump();
            if let Some(reply) = self.engine.next_admin_reply() {
                break reply;
            }
            self.advance(self.next().ok_or(SimError::Stuck(self.now()))?)?;
        };
        reply.result.map_err(SimError::Volume)?;
        let created = self.engine.volumes().find(|volume| volume.name == name);
        self.volumes.push(created.ok_or(SimError::Stuck(self.now()))?.id);
        Ok(())
    }

    /// Writes every extent that holds data before the load, and flushes.
    fn fill(&mut self, spaces: &[VolumeData]) -> Result<(), SimError> {
        let extent = self.engine.map().extent();
        let all = spaces.iter().enumerate().flat_map(|(volume, space)| {
            let runs = space.extents.iter().flat_map(|run| run.start.0..run.end.0);
            runs.map(move |index| (volume, index))
        });
        let mut all = all.peekable();
        let mut under_way = 0;
        while under_way > 0 || all.peek().is_some() {
            while let Some(&(volume, index)) = all.peek().filter(|_| under_way < FILL_DEPTH) {
                let offset = extent.start(ExtentIndex(index));
                let hint = Hint::None;
                let ask = Arrival { at: Nanos(0), volume, op: Op::Write, offset, len: extent.bytes(), hint };
                let Some(pieces) = self.submit(RequestId(0), &ask) else { break };
                under_way += pieces as usize;
                all.next();
            }
            under_way -= self.advance_to_next()?;
        }
        for volume in 0..spaces.len() {
            let (offset, len, hint) = (VolumeOffset(0), Bytes(0), Hint::None);
            self.submit(RequestId(0), &Arrival { at: Nanos(0), volume, op: Op::Flush, offset, len, hint });
            while self.advance_to_next()? == 0 {}
        }
        Ok(())
    }

    /// Advances to the next event; returns the number of replies.
    fn advance_to_next(&mut self) -> Result<usize, SimError> {
        self.pump();
        let mut answers = 0;
        while let Some(reply) = self.reply() {
            reply.result.map_err(|error| SimError::Request(error, self.now()))?;
            answers += 1;
        }
        if answers == 0 {
            self.advance(self.next().ok_or(SimError::Stuck(self.now()))?)?;
        }
        Ok(answers)
    }
}

/// Returns the devices of a layout, each with the timing that `timing` returns for its index, drive and size.
pub(super) fn devices(
    layout: &Layout,
    mut timing: impl FnMut(usize, &Drive, Bytes) -> Box<dyn Timing>,
) -> Vec<Box<dyn Device>> {
    let device = |(i, ((superblock, drive), noise)): (usize, ((&Superblock, &Drive), &Option<Noise>))| {
        let data = superblock.data_at..Superblock::second_at(superblock.size);
        let storage = Storage::new(superblock.size, false);
        let timing = timing(i, drive, superblock.size);
        let timing = match noise {
            Some(noise) => Box::new(NoisyDrive::new(timing, *noise)),
            None => timing,
        };
        Box::new(DatalessDevice::new(storage, data, timing)) as Box<dyn Device>
    };
    layout.superblocks.iter().zip(&layout.drives).zip(&layout.noises).enumerate().map(device).collect()
}

/// Returns the round trips to each device that is behind a network.
fn networks(layout: &Layout, seed: Seed) -> Vec<(DeviceId, RoundTrips)> {
    let network = |(drive, id): (&Drive, DeviceId)| match &drive.kind {
        DriveKind::Remote(params, _) => Some((id, RoundTrips::new(params, seed.0 ^ u64::from(id.0)))),
        _ => None,
    };
    layout.drives.iter().zip((0..).map(DeviceId)).filter_map(network).collect()
}
