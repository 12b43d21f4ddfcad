//! The simulated world: a virtual clock, devices, buffer memory and randomness, all from one seed.

use crate::{
    DamagedSectors, Device, Disk, Fault, FaultKind, Faulty, Pace, Rng, Seed, StopKind, Storage, UnknownModel,
    WorldMemory,
};
use weir_model::rng::mix;
use weir_model::{
    BLOCK, Buffer, Bytes, DeviceId, DeviceOffset, Io, IoCompletion, IoError, IoId, IoKind, Memory, Nanos,
    Store,
};

/// Maximum length of a piece of a blocking access.
const PIECE: usize = 1 << 20;

/// Characteristics of a simulated device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Size.
    pub size: Bytes,
    /// Speed.
    pub pace: Pace,
    /// Whether writes stay volatile until flushed.
    pub write_cache: bool,
    /// Sector size in bytes: 512 or 4096.
    pub sector: u16,
    /// Faults, innermost first.
    pub faults: Vec<Fault>,
}

/// The simulated world. Its seed and its calls determine everything in it.
///
/// Events happen only when [`advance`](Self::advance) is called:
///
/// ```
/// use weir_model::{Buffer, Bytes, DeviceId, DeviceOffset, Io, IoId, IoKind, Nanos};
/// use weir_world::{DeviceSpec, Pace, Seed, World};
///
/// let pace = Pace::Random(Nanos::millis(1));
/// let disk = DeviceSpec { size: Bytes::mib(1), pace, write_cache: true, sector: 512, faults: vec![] };
/// let mut world = World::new(Seed(1), Bytes::mib(1), &[disk])?;
/// let flush = Io {
///     id: IoId(7),
///     device: DeviceId(0),
///     kind: IoKind::Flush,
///     at: DeviceOffset(0),
///     buffer: Buffer::EMPTY,
/// };
/// world.start(flush);
/// let mut done = Vec::new();
/// while let Some(at) = world.next_event() {
///     world.advance(at, &mut done);
/// }
/// assert_eq!(done[0].id, IoId(7));
/// # Ok::<(), weir_world::UnknownModel>(())
/// ```
pub struct World {
    seed: Seed,
    now: Nanos,
    /// Total time that the devices have been asleep.
    slept: Nanos,
    rng: Rng,
    /// The pool's buffer memory.
    pub memory: WorldMemory,
    devices: Vec<Box<dyn Device>>,
    /// Memory for blocking accesses.
    scratch: WorldMemory,
    /// Ranges in which the last blocking read found damaged sectors, and which: they stay damaged if the same
    /// bytes are written there again.
    damaged_reads: Vec<(DeviceId, DeviceOffset, Box<[u8]>, DamagedSectors)>,
    store_commands: u64,
    writes_until_stop: Option<u64>,
    stop_kind: StopKind,
    stopped: bool,
    digest: u64,
}

/// The memory of a world. Zeroing it takes half as long as a recovery in which everything is read, so
/// consecutive worlds pass it on.
pub(crate) struct Buffers {
    memory: WorldMemory,
    scratch: WorldMemory,
}

impl Buffers {
    /// Creates the memory of a world with this much buffer memory.
    pub(crate) fn new(memory: Bytes) -> Self {
        Self { memory: WorldMemory::new(memory), scratch: WorldMemory::new(Bytes(PIECE as u64)) }
    }
}

/// A world drives an engine with its clock, its memory and its devices.
impl weir_engine::Driver for World {
    type Memory = WorldMemory;
    fn now(&self) -> Nanos {
        self.now
    }
    fn memory(&mut self) -> &mut WorldMemory {
        &mut self.memory
    }
    fn start(&mut self, io: Io) -> Option<Result<(), IoError>> {
        Self::start(self, io);
        None
    }
}

impl World {
    /// Creates a world with these devices, all zeros, and this much buffer memory, at time zero.
    pub fn new(seed: Seed, memory: Bytes, devices: &[DeviceSpec]) -> Result<Self, UnknownModel> {
        let mut rng = Rng::new(seed);
        let devices = devices.iter().map(|spec| build(spec, &mut rng)).collect::<Result<_, _>>()?;
        Ok(Self { rng, ..Self::with_devices(seed, memory, devices) })
    }

    /// Creates a world with custom devices.
    #[must_use]
    pub fn with_devices(seed: Seed, memory: Bytes, devices: Vec<Box<dyn Device>>) -> Self {
        Self::with_buffers(seed, Buffers::new(memory), devices)
    }

    fn with_buffers(seed: Seed, buffers: Buffers, devices: Vec<Box<dyn Device>>) -> Self {
        let Buffers { memory, scratch } = buffers;
        Self {
            seed,
            now: Nanos(0),
            slept: Nanos(0),
            rng: Rng::new(seed),
            memory,
            devices,
            scratch,
            damaged_reads: Vec::new(),
            store_commands: 0,
            writes_until_stop: None,
            stop_kind: StopKind::PowerLoss,
            stopped: false,
            digest: seed.0,
        }
    }

    /// Creates another world whose healthy devices have the same contents, with nothing in flight. `specs`
    /// are those of this world.
    pub fn copy(&mut self, seed: Seed, memory: Bytes, specs: &[DeviceSpec]) -> Result<Self, UnknownModel> {
        let copy = Self::healthy(seed, Buffers::new(memory), specs)?;
        Ok(copy.with_storages(self.devices.iter_mut().map(|device| device.storage().clone())))
    }

    /// Creates another world whose healthy devices have the contents that a power loss at this moment would
    /// leave, as its seed decides. `specs` are those of this world, which continues.
    pub(crate) fn copy_without_power(
        &self,
        seed: Seed,
        buffers: Buffers,
        specs: &[DeviceSpec],
    ) -> Result<Self, UnknownModel> {
        let mut copy = Self::healthy(seed, buffers, specs)?;
        copy.now = self.now;
        let mut rng = copy.fork_rng();
        Ok(copy.with_storages(self.devices.iter().map(|device| device.after_power_loss(&mut rng))))
    }

    fn healthy(seed: Seed, buffers: Buffers, specs: &[DeviceSpec]) -> Result<Self, UnknownModel> {
        let mut rng = Rng::new(seed);
        let healthy = specs.iter().map(|spec| DeviceSpec { faults: vec![], ..spec.clone() });
        let devices = healthy.map(|spec| build(&spec, &mut rng)).collect::<Result<_, _>>()?;
        Ok(Self { rng, ..Self::with_buffers(seed, buffers, devices) })
    }

    /// Returns its memory, all of it free, for another world.
    pub(crate) fn into_buffers(self) -> Buffers {
        let Self { mut memory, mut scratch, .. } = self;
        memory.reset();
        scratch.reset();
        Buffers { memory, scratch }
    }

    fn with_storages(mut self, storages: impl Iterator<Item = Storage>) -> Self {
        self.devices.iter_mut().zip(storages).for_each(|(device, storage)| *device.storage() = storage);
        self
    }

    /// Returns the seed.
    #[must_use]
    pub const fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns the current time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Returns a random generator for an actor in this world.
    pub fn fork_rng(&mut self) -> Rng {
        self.rng.fork()
    }

    /// Returns the number of devices.
    #[must_use]
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Returns the bytes of a device; `None` if there is no such device.
    pub fn storage(&mut self, device: DeviceId) -> Option<&mut Storage> {
        self.devices.get_mut(device.index()).map(|device| device.storage())
    }

    /// Adds a fault to a device from now on. Does nothing if there is no such device.
    pub fn break_device(&mut self, device: DeviceId, fault: Fault) {
        if let (Fault::Truncate { keep, regrow }, Some(storage)) = (&fault, self.storage(device)) {
            // Whole pages: the rest of the last one is zeros anyway.
            let kept = storage.size().0 * u64::from(*keep) / 1000 / BLOCK * BLOCK;
            storage.truncate(Bytes(kept));
            if *regrow {
                storage.regrow();
            }
            return;
        }
        let (rng, now) = (self.rng.fork(), self.device_time());
        if device.index() < self.devices.len() {
            let whole = self.devices.remove(device.index());
            self.devices.insert(device.index(), Box::new(Faulty::new(whole, fault.from(now), rng)));
        }
    }

    /// Removes all faults from all devices. Nothing may be in flight.
    pub fn repair_devices(&mut self) {
        self.devices = std::mem::take(&mut self.devices).into_iter().map(Device::into_healthy).collect();
    }

    /// Reports whether a command submitted from now on may fail, hang or be falsified.
    #[must_use]
    pub fn may_fail(&self) -> bool {
        self.devices.iter().any(|device| device.may_fail(self.device_time()))
    }

    /// Lets the next flush of each device make durable what a failed one gave up. Nothing may be in flight.
    pub(crate) fn requeue_failed_writes(&mut self) {
        self.devices.iter_mut().for_each(|device| device.storage().requeue_failed_writes());
    }

    /// Returns what faults have done since the last call.
    pub fn take_faults(&mut self) -> Vec<(DeviceId, FaultKind)> {
        let (mut all, mut of_one) = (Vec::new(), Vec::new());
        for (id, device) in (0..).map(DeviceId).zip(&mut self.devices) {
            device.take_faults(&mut of_one);
            all.extend(of_one.drain(..).map(|strike| (id, strike)));
        }
        all
    }

    /// Jumps the clock ahead, as on a machine that was asleep: events due meanwhile come late. In one of two
    /// cases the devices were asleep as well, and continue where they were: their completions come some time
    /// after the jump.
    pub fn jump(&mut self, time: Nanos) {
        self.now += time;
        if self.rng.chance(0.5) {
            self.slept += time;
        }
    }

    /// Returns the time of the devices, which stands still while they sleep.
    fn device_time(&self) -> Nanos {
        self.now - self.slept
    }

    /// Starts a device command. A command to a device that does not exist never completes.
    pub fn start(&mut self, io: Io) {
        debug_assert!(io.device.index() < self.devices.len(), "{io:?} names no device");
        self.add_to_digest(
            mix(io.id.0) ^ mix(io.at.0 ^ u64::from(io.buffer.len)).rotate_left(u32::from(io.device.0)),
        );
        let now = self.device_time();
        if let Some(device) = self.devices.get_mut(io.device.index()) {
            device.submit(now, io, &mut self.memory);
        }
    }

    /// Returns when the next completion is due; `None` if nothing in flight will complete.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        self.devices.iter().filter_map(|device| device.next()).min().map(|due| due + self.slept)
    }

    /// Advances the clock to `to` (never back) and appends the completions due by then, in order.
    pub fn advance(&mut self, to: Nanos, done: &mut Vec<IoCompletion>) {
        while let Some((due, index)) = self.next_device().filter(|next| next.0 <= to) {
            self.now = self.now.max(due);
            let now = self.device_time();
            let Some(answer) = self.devices[index].pop(now, &mut self.memory) else { continue };
            self.add_to_digest(answer.id.0 ^ self.now.0.rotate_left(17) ^ u64::from(answer.result.is_err()));
            done.push(answer);
        }
        self.now = self.now.max(to);
    }

    fn next_device(&self) -> Option<(Nanos, usize)> {
        let due = self.devices.iter().map(|device| device.next()).zip(0..);
        due.filter_map(|(at, index)| Some((at? + self.slept, index))).min()
    }

    /// Stops everything: no command in flight completes, all buffer memory is free again, and the devices
    /// keep what [`StopKind`] says. The devices can be used again at once.
    pub fn stop(&mut self, how: StopKind) {
        for device in &mut self.devices {
            device.stop(how);
        }
        self.memory.reset();
        self.stopped = false;
        self.add_to_digest(0xdead);
    }

    /// Stops everything during the `writes`-th blocking write from now on (counted from 1; `None`: never).
    /// Every blocking command from that one on fails with [`IoError::Lost`] until [`stop`](Self::stop) is
    /// called.
    pub fn stop_at_store_write(&mut self, writes: Option<u64>, how: StopKind) {
        self.writes_until_stop = writes;
        self.stop_kind = how;
    }

    /// Reports whether everything stopped during a blocking access.
    #[must_use]
    pub const fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns a digest that two worlds share only if the same happened in both.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Adds `word` to the digest.
    pub fn add_to_digest(&mut self, word: u64) {
        self.digest = mix(self.digest ^ word);
    }

    /// Executes a blocking command through the scratch memory, on the same path as the engine's commands, so
    /// that faults affect both equally.
    fn blocking(
        &mut self,
        device: DeviceId,
        kind: IoKind,
        at: DeviceOffset,
        buffer: Buffer,
    ) -> Result<(), IoError> {
        if self.stopped {
            return Err(IoError::Lost);
        }
        let now = self.device_time();
        let slot = self.devices.get_mut(device.index()).ok_or(IoError::Lost)?;
        self.store_commands += 1;
        let id = IoId(u64::MAX - self.store_commands);
        slot.submit(now, Io { id, device, kind, at, buffer }, &mut self.scratch);
        if matches!(kind, IoKind::Write { .. }) && self.last_write_before_stop() {
            for device in &mut self.devices {
                device.stop(self.stop_kind);
            }
            self.stopped = true;
            return Err(IoError::Lost);
        }
        let slot = &mut self.devices[device.index()];
        // A device that hangs for good counts as lost: blocking callers have given it up.
        while let Some(due) = slot.next() {
            self.now = self.now.max(due + self.slept);
            match slot.pop(self.now - self.slept, &mut self.scratch) {
                Some(done) if done.id == id => return done.result,
                _ => {}
            }
        }
        Err(IoError::Lost)
    }

    fn last_write_before_stop(&mut self) -> bool {
        let Some(left) = &mut self.writes_until_stop else { return false };
        *left = left.saturating_sub(1);
        let last = *left == 0;
        if last {
            self.writes_until_stop = None;
        }
        last
    }
}

/// Blocking access, for creating and opening a pool. The engine may have nothing in flight: completions of
/// its commands would be lost.
impl Store for World {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        self.damaged_reads.clear();
        for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
            let buffer = Buffer { at: 0, len: piece.len() as u32 };
            let at = at + Bytes((index * PIECE) as u64);
            self.blocking(device, IoKind::Read, at, buffer)?;
            piece.copy_from_slice(self.scratch.bytes(buffer));
            let spoilt = self.scratch.damaged_sectors(buffer);
            if !spoilt.is_empty() {
                self.damaged_reads.push((device, at, (&*piece).into(), spoilt));
            }
        }
        Ok(())
    }

    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            let buffer = Buffer { at: 0, len: piece.len() as u32 };
            let at = at + Bytes((index * PIECE) as u64);
            self.scratch.bytes_mut(buffer).copy_from_slice(piece);
            let mut read = self.damaged_reads.iter();
            let same =
                read.find(|(from, there, bytes, _)| (*from, *there) == (device, at) && **bytes == *piece);
            if let Some((.., spoilt)) = same {
                self.scratch.set_damaged(buffer, spoilt);
            }
            self.blocking(device, IoKind::Write { fua: false }, at, buffer)?;
        }
        Ok(())
    }

    fn flush(&mut self, device: DeviceId) -> Result<(), IoError> {
        self.blocking(device, IoKind::Flush, DeviceOffset(0), Buffer::EMPTY)
    }
}

fn build(spec: &DeviceSpec, rng: &mut Rng) -> Result<Box<dyn Device>, UnknownModel> {
    let timing = spec.pace.timing(spec.size, rng)?;
    let storage = Storage::new(spec.size, spec.write_cache).with_sector(Bytes(spec.sector.into()));
    let mut device: Box<dyn Device> = Box::new(Disk::new(storage, timing, rng.fork()));
    for fault in &spec.faults {
        device = Box::new(Faulty::new(device, fault.clone(), rng.fork()));
    }
    Ok(device)
}
