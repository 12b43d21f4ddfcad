//! The world: a virtual clock, devices, buffer memory and chance, all from one seed.

use crate::{
    Device, Disk, Fault, Faulty, Pace, Rng, Seed, Spoilt, Stop, Storage, Strike, UnknownModel, WorldMemory,
};
use weir_model::rng::mix;
use weir_model::{
    BLOCK, Buffer, Bytes, DeviceId, DeviceOffset, Io, IoDone, IoError, IoId, IoKind, Memory, Nanos, Store,
};

/// The longest piece the blocking access moves at once.
const PIECE: usize = 1 << 20;

/// What a simulated device is like.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// How long it is.
    pub size: Bytes,
    /// How fast it is.
    pub pace: Pace,
    /// Whether writes stay volatile until flushed.
    pub write_cache: bool,
    /// Its smallest unit, in bytes: 512 or 4096.
    pub sector: u16,
    /// What is wrong with it, innermost first.
    pub faults: Vec<Fault>,
}

/// The simulated world. Everything in it follows from its seed and from what it is asked to do.
///
/// Events happen when [`advance`](Self::advance) is called, never by themselves:
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
    /// For how long the devices have been asleep.
    slept: Nanos,
    rng: Rng,
    /// The pool's buffer memory.
    pub memory: WorldMemory,
    devices: Vec<Box<dyn Device>>,
    /// Carries the blocking access.
    scratch: WorldMemory,
    /// Where the last blocking read found something spoilt, and what: it stays so if the same bytes are
    /// written there again.
    just_read: Vec<(DeviceId, DeviceOffset, Box<[u8]>, Spoilt)>,
    store_commands: u64,
    writes_until_stop: Option<u64>,
    how_to_stop: Stop,
    dark: bool,
    digest: u64,
}

/// The memory that a world works with. Filling it with zeros takes half as long as a recovery with everything
/// read, so worlds that come one after the other hand it on.
pub(crate) struct Buffers {
    memory: WorldMemory,
    scratch: WorldMemory,
}

impl Buffers {
    /// For a world with so much buffer memory.
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
    /// A world with these devices, all zeros, and so much buffer memory, at time zero.
    pub fn new(seed: Seed, memory: Bytes, devices: &[DeviceSpec]) -> Result<Self, UnknownModel> {
        let mut rng = Rng::new(seed);
        let devices = devices.iter().map(|spec| build(spec, &mut rng)).collect::<Result<_, _>>()?;
        Ok(Self { rng, ..Self::with_devices(seed, memory, devices) })
    }

    /// A world with devices of one's own making.
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
            just_read: Vec::new(),
            store_commands: 0,
            writes_until_stop: None,
            how_to_stop: Stop::PowerCut,
            dark: false,
            digest: seed.0,
        }
    }

    /// Another world whose healthy devices hold the same, nothing being in flight there. This one was made of
    /// these `specs`.
    pub fn copy(&mut self, seed: Seed, memory: Bytes, specs: &[DeviceSpec]) -> Result<Self, UnknownModel> {
        let copy = Self::healthy(seed, Buffers::new(memory), specs)?;
        Ok(copy.holding(self.devices.iter_mut().map(|device| device.storage().clone())))
    }

    /// Another world whose healthy devices hold what a power loss at this moment leaves, which its seed
    /// decides. This one was made of these `specs`, and goes on.
    pub(crate) fn copy_without_power(
        &self,
        seed: Seed,
        buffers: Buffers,
        specs: &[DeviceSpec],
    ) -> Result<Self, UnknownModel> {
        let mut copy = Self::healthy(seed, buffers, specs)?;
        copy.now = self.now;
        let mut rng = copy.fork_rng();
        Ok(copy.holding(self.devices.iter().map(|device| device.after_power_loss(&mut rng))))
    }

    fn healthy(seed: Seed, buffers: Buffers, specs: &[DeviceSpec]) -> Result<Self, UnknownModel> {
        let mut rng = Rng::new(seed);
        let healthy = specs.iter().map(|spec| DeviceSpec { faults: vec![], ..spec.clone() });
        let devices = healthy.map(|spec| build(&spec, &mut rng)).collect::<Result<_, _>>()?;
        Ok(Self { rng, ..Self::with_buffers(seed, buffers, devices) })
    }

    /// What it worked with, for another world: all of it free.
    pub(crate) fn into_buffers(self) -> Buffers {
        let Self { mut memory, mut scratch, .. } = self;
        memory.reset();
        scratch.reset();
        Buffers { memory, scratch }
    }

    fn holding(mut self, storages: impl Iterator<Item = Storage>) -> Self {
        self.devices.iter_mut().zip(storages).for_each(|(device, storage)| *device.storage() = storage);
        self
    }

    /// The seed everything follows from.
    #[must_use]
    pub const fn seed(&self) -> Seed {
        self.seed
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// A generator for whoever acts in this world.
    pub fn fork_rng(&mut self) -> Rng {
        self.rng.fork()
    }

    /// The devices' number.
    #[must_use]
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// The bytes of a device; `None` if there is no such device.
    pub fn storage(&mut self, device: DeviceId) -> Option<&mut Storage> {
        self.devices.get_mut(device.index()).map(|device| device.storage())
    }

    /// Something goes wrong with a device from now on, besides what is wrong already.
    /// Does nothing if there is no such device.
    pub fn break_device(&mut self, device: DeviceId, fault: Fault) {
        if let (Fault::Truncate { keep, regrow }, Some(storage)) = (&fault, self.storage(device)) {
            // Whole pages: the end of the last one is zeros anyway.
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

    /// Nothing is wrong with any device any more. Only while nothing is under way.
    pub fn mend_devices(&mut self) {
        self.devices = std::mem::take(&mut self.devices).into_iter().map(Device::mended).collect();
    }

    /// The next flush of each device makes durable what a failed one gave up, after all. Only while nothing
    /// is under way.
    pub(crate) fn recall_unflushed(&mut self) {
        self.devices.iter_mut().for_each(|device| device.storage().recall());
    }

    /// What faults have done since the last call.
    pub fn struck(&mut self) -> Vec<(DeviceId, Strike)> {
        let (mut all, mut of_one) = (Vec::new(), Vec::new());
        for (id, device) in (0..).map(DeviceId).zip(&mut self.devices) {
            device.struck(&mut of_one);
            all.extend(of_one.drain(..).map(|strike| (id, strike)));
        }
        all
    }

    /// The clock jumps ahead, as that of a machine that was asleep: what was due meanwhile comes late. In one
    /// of two cases the devices were asleep with it, and go on where they were: their answers come some time
    /// after the jump.
    pub fn jump(&mut self, time: Nanos) {
        self.now += time;
        if self.rng.chance(0.5) {
            self.slept += time;
        }
    }

    /// The time of the devices, which does not go on while they sleep.
    fn device_time(&self) -> Nanos {
        self.now - self.slept
    }

    /// Begins a device command. A command to a device that does not exist is never answered.
    pub fn start(&mut self, io: Io) {
        debug_assert!(io.device.index() < self.devices.len(), "{io:?} names no device");
        self.note(mix(io.id.0) ^ mix(io.at.0 ^ u64::from(io.buffer.len)).rotate_left(u32::from(io.device.0)));
        let now = self.device_time();
        if let Some(device) = self.devices.get_mut(io.device.index()) {
            device.submit(now, io, &mut self.memory);
        }
    }

    /// When the next answer is due; `None` if nothing is under way that will be answered.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        self.devices.iter().filter_map(|device| device.next()).min().map(|due| due + self.slept)
    }

    /// Moves the clock to `to` (never back) and appends the answers due by then, in order.
    pub fn advance(&mut self, to: Nanos, done: &mut Vec<IoDone>) {
        while let Some((due, index)) = self.next_device().filter(|next| next.0 <= to) {
            self.now = self.now.max(due);
            let now = self.device_time();
            let Some(answer) = self.devices[index].pop(now, &mut self.memory) else { continue };
            self.note(answer.id.0 ^ self.now.0.rotate_left(17) ^ u64::from(answer.result.is_err()));
            done.push(answer);
        }
        self.now = self.now.max(to);
    }

    fn next_device(&self) -> Option<(Nanos, usize)> {
        let due = self.devices.iter().map(|device| device.next()).zip(0..);
        due.filter_map(|(at, index)| Some((at? + self.slept, index))).min()
    }

    /// Everything stops: no command under way is answered, all buffer memory is free again, and
    /// the devices keep what [`Stop`] says. The devices can be used again at once.
    pub fn stop(&mut self, how: Stop) {
        for device in &mut self.devices {
            device.stop(how);
        }
        self.memory.reset();
        self.dark = false;
        self.note(0xdead);
    }

    /// Everything stops while the `writes`-th blocking write from now on is under way (counted
    /// from 1; `None`: not at all). Every blocking command from that one on is refused with
    /// [`IoError::Lost`] until [`stop`](Self::stop) is called.
    pub fn stop_at_store_write(&mut self, writes: Option<u64>, how: Stop) {
        self.writes_until_stop = writes;
        self.how_to_stop = how;
    }

    /// Whether everything stopped during blocking access.
    #[must_use]
    pub const fn is_dark(&self) -> bool {
        self.dark
    }

    /// A number that two worlds share only if the same happened in both.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Lets `word` enter the digest.
    pub fn note(&mut self, word: u64) {
        self.digest = mix(self.digest ^ word);
    }

    /// One blocking command through the scratch memory: the same way the engine's commands take,
    /// so that faults strike both alike.
    fn blocking(
        &mut self,
        device: DeviceId,
        kind: IoKind,
        at: DeviceOffset,
        buffer: Buffer,
    ) -> Result<(), IoError> {
        if self.dark {
            return Err(IoError::Lost);
        }
        let now = self.device_time();
        let slot = self.devices.get_mut(device.index()).ok_or(IoError::Lost)?;
        self.store_commands += 1;
        let id = IoId(u64::MAX - self.store_commands);
        slot.submit(now, Io { id, device, kind, at, buffer }, &mut self.scratch);
        if matches!(kind, IoKind::Write { .. }) && self.last_write_before_stop() {
            for device in &mut self.devices {
                device.stop(self.how_to_stop);
            }
            self.dark = true;
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

/// Blocking access, for creating and opening a pool. Only while the engine has nothing under
/// way: answers to its commands would be lost.
impl Store for World {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        self.just_read.clear();
        for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
            let buffer = Buffer { at: 0, len: piece.len() as u32 };
            let at = at + Bytes((index * PIECE) as u64);
            self.blocking(device, IoKind::Read, at, buffer)?;
            piece.copy_from_slice(self.scratch.bytes(buffer));
            let spoilt = self.scratch.spoilt(buffer);
            if !spoilt.is_empty() {
                self.just_read.push((device, at, (&*piece).into(), spoilt));
            }
        }
        Ok(())
    }

    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            let buffer = Buffer { at: 0, len: piece.len() as u32 };
            let at = at + Bytes((index * PIECE) as u64);
            self.scratch.bytes_mut(buffer).copy_from_slice(piece);
            let mut read = self.just_read.iter();
            let same =
                read.find(|(from, there, bytes, _)| (*from, *there) == (device, at) && **bytes == *piece);
            if let Some((.., spoilt)) = same {
                self.scratch.spoil(buffer, spoilt);
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
