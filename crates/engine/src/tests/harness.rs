//! An engine over devices in memory that answer at once, in order.

mod devices;

pub(super) use devices::{Devices, Disks};

use crate::lookup;
use crate::{AdminCommand, AdminError, AdminId, DeviceSettings, Engine, Options, SpaceRules};
use proptest::prelude::*;
use weir_map::{
    Hardening, Map, MapError, NewDevice, NewPool, OpenOptions, PoolId, Record, Recovery, Superblock,
};
use weir_model::{
    Buffer, Bytes, DeviceClass, DeviceId, ExtentIndex, ExtentKey, ExtentSize, HeapMemory, Hint, Io,
    IoCompletion, IoError, IoKind, Memory, Nanos, Op, Planted, ReadShape, Request, RequestError, RequestId,
    Store, VolumeId, VolumeOffset,
};
use weir_policy::placement::{self, Action};

pub(super) const EXTENT: usize = 128 << 10;
pub(super) const VOLUME_SIZE: u64 = 64 << 20;
const DEVICE_SIZE: u64 = 8 << 20;
/// The maximum number of rounds, more than any request needs.
const ROUNDS_MAX: usize = 100_000;

/// The configuration of a harness.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) devices: usize,
    /// The number of metadata members, which are the last devices.
    pub(super) members: usize,
    pub(super) settings: DeviceSettings,
    /// The volume's size in bytes.
    pub(super) volume: u64,
    /// The volume's copies.
    pub(super) copies: u8,
}

impl Default for Shape {
    fn default() -> Self {
        Self { devices: 1, members: 1, settings: DeviceSettings::default(), volume: VOLUME_SIZE, copies: 1 }
    }
}

pub(super) struct Harness {
    pub(super) engine: Engine,
    pub(super) volume: VolumeId,
    volume_size: u64,
    pub(super) copies: u8,
    pub(super) devices: Devices,
    settings: Vec<DeviceSettings>,
    policy: &'static str,
}

/// Returns the superblocks of the devices that have one.
fn superblocks(disks: &mut Disks) -> Vec<Superblock> {
    let ids = (0..disks.0.len() as u8).map(DeviceId);
    ids.filter_map(|id| weir_map::create::read_superblock(disks, id, Bytes(DEVICE_SIZE)).expect("readable"))
        .collect()
}

fn open(disks: &mut Disks, options: OpenOptions) -> Result<(Map, Recovery), MapError> {
    let superblocks = superblocks(disks);
    weir_map::open(disks, &superblocks, &OpenOptions { planted: Planted::for_tests(), ..options })
}

/// Generates the offset and length of a request, in whole sectors: up to 40 KiB within `size` bytes.
pub(super) fn span_within(size: usize) -> impl Strategy<Value = (u64, usize)> + Clone {
    (0u64..size as u64 / 512, 1usize..80)
        .prop_map(move |(at, len)| (at * 512, (len * 512).min(size - at as usize * 512)))
}

impl Harness {
    pub(super) fn new(devices: usize, policy: &'static str) -> Self {
        Self::with_settings(devices, policy, DeviceSettings::default())
    }

    pub(super) fn with_settings(devices: usize, policy: &'static str, settings: DeviceSettings) -> Self {
        Self::of(Shape { devices, settings, ..Shape::default() }, policy)
    }

    pub(super) fn of(shape: Shape, policy: &'static str) -> Self {
        let Shape { devices, members, settings, volume, copies } = shape;
        let mut disks = Disks(vec![vec![0xee; DEVICE_SIZE as usize]; devices], None);
        let new = |i| NewDevice { name: format!("d{i}"), size: Bytes(DEVICE_SIZE), class: DeviceClass::Ssd };
        let pool = NewPool {
            id: PoolId([9; 16]),
            name: "test".into(),
            extent: ExtentSize::DEFAULT,
            devices: (0..devices).map(new).collect(),
            metadata: (devices - members..devices).map(|n| DeviceId(n as u8)).collect(),
        };
        weir_map::create(&mut disks, &pool).expect("created");
        let (map, _) = open(&mut disks, OpenOptions::default()).expect("a pool");
        let mut memory = HeapMemory::new(Bytes::mib(8));
        let settings = vec![settings; devices];
        let policy_box = placement::by_name(policy).expect("a policy");
        let engine = Engine::new(Nanos(1), map, policy_box, &settings, Options::default(), &mut memory);
        let engine = engine.expect("an engine");
        let mut harness = Self {
            engine,
            volume: VolumeId(0),
            volume_size: volume,
            copies,
            devices: Devices::new(disks, memory),
            settings,
            policy,
        };
        harness.run();
        harness.create_volume().expect("a volume");
        harness
    }

    /// Runs until nothing is in flight; devices answer in order.
    pub(super) fn run(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.devices.now += Nanos::micros(1);
            self.devices.is_asked = false;
            self.engine.pump(&mut self.devices);
            if !self.devices.is_asked && self.engine.deadline().is_none_or(|d| d > self.devices.now) {
                return;
            }
        }
        panic!("something is due again and again: {:?}", self.engine);
    }

    pub(super) fn key(&self, index: u64) -> ExtentKey {
        ExtentKey { volume: self.volume, index: ExtentIndex(index) }
    }

    /// Returns the map's record of an extent.
    pub(super) fn record(&self, key: ExtentKey) -> Option<Record> {
        lookup::record(self.engine.map(), key).map(std::sync::Arc::unwrap_or_clone)
    }

    /// Requests an action from the mover, and runs it.
    pub(super) fn act(&mut self, action: Action) {
        self.engine.request_action(action);
        self.run();
    }

    /// Advances the time, running the engine at its deadlines.
    pub(super) fn wait(&mut self, time: Nanos) {
        let end = self.devices.now + time;
        while self.devices.now < end {
            self.devices.now = self.engine.deadline().map_or(end, |at| at.max(self.devices.now).min(end));
            self.run();
        }
    }

    /// Undoes a device's write: the old data is back.
    pub(super) fn lose_write(&mut self, io: Io, before: &[u8]) {
        self.devices.disks.write(io.device, io.at, before).expect("memory");
    }

    /// Truncates a device, and optionally grows it again to its size.
    pub(super) fn truncate(&mut self, device: DeviceId, len: Bytes, regrow: bool) {
        let disk = &mut self.devices.disks.0[device.index()];
        disk.truncate(len.0 as usize);
        if regrow {
            disk.resize(DEVICE_SIZE as usize, 0);
        }
    }

    /// Makes a device that hung answer its commands.
    pub(super) fn wake(&mut self, device: DeviceId) {
        self.devices.hanging.retain(|d| *d != device);
        self.release(None);
    }

    /// Answers the delayed commands: with the error, or after executing them.
    pub(super) fn release(&mut self, error: Option<IoError>) {
        for io in std::mem::take(&mut self.devices.delayed) {
            let result = error.map_or_else(|| self.devices.carry_out(io), Err);
            self.engine.complete(
                self.devices.now,
                IoCompletion { id: io.id, result },
                &mut self.devices.memory,
            );
        }
        self.run();
    }

    /// Fails the last delayed command.
    pub(super) fn release_last(&mut self, error: IoError) {
        self.release_one(self.devices.delayed.len() - 1, Some(error));
    }

    /// Answers one of the delayed commands: with the error, or after executing it.
    pub(super) fn release_one(&mut self, at: usize, error: Option<IoError>) {
        let io = self.devices.delayed.remove(at);
        let result = error.map_or_else(|| self.devices.carry_out(io), Err);
        self.engine.complete(self.devices.now, IoCompletion { id: io.id, result }, &mut self.devices.memory);
        self.run();
    }

    /// Makes a device disappear.
    pub(super) fn lose(&mut self, device: DeviceId) {
        self.engine.device_event(
            self.devices.now,
            device,
            crate::DeviceEvent::Lost,
            &mut self.devices.memory,
        );
        self.run();
    }

    /// Submits a request and leaves it in flight.
    pub(super) fn begin(&mut self, op: Op, offset: u64, len: u64) {
        let (at, len) = (VolumeOffset(offset), Bytes(len));
        let buffer =
            op.has_payload().then(|| self.devices.memory.take(Request::buffer_len(at, len)).expect("memory"));
        let (id, volume, hint) = (RequestId(78), self.volume, Hint::None);
        let request = Request { id, volume, op, offset: at, len, fua: false, hint, buffer };
        self.engine.submit(self.devices.now, request, &mut self.devices.memory);
        self.run();
    }

    /// Advances the clock at once.
    pub(super) fn jump(&mut self, time: Nanos) {
        self.devices.now += time;
        self.run();
    }

    /// Takes all free memory; [`Self::give`] returns it.
    pub(super) fn take_memory(&mut self) -> Vec<Buffer> {
        std::iter::from_fn(|| self.devices.memory.take(Bytes(4096))).collect()
    }

    pub(super) fn give(&mut self, buffers: Vec<Buffer>) {
        buffers.into_iter().for_each(|buffer| self.devices.memory.give(buffer));
    }

    /// Returns the free memory, without the replacement of kept buffers.
    pub(super) fn free_memory(&self) -> Bytes {
        self.devices.memory.free() - self.devices.memory.grown()
    }

    pub(super) fn fail_next(&mut self, kind: IoKind, error: IoError) {
        self.devices.failing.push_back((kind, Some(error)));
    }

    /// Lets the next command succeed, among those that [`Self::fail_next`] affects.
    pub(super) fn pass_next(&mut self, kind: IoKind) {
        self.devices.failing.push_back((kind, None));
    }

    /// Executes one request; `bytes` gives its length.
    pub(super) fn request(
        &mut self,
        op: Op,
        offset: u64,
        bytes: &[u8],
        fua: bool,
    ) -> Result<ReadShape, RequestError> {
        self.request_with(op, offset, bytes, fua).0
    }

    fn request_with(
        &mut self,
        op: Op,
        offset: u64,
        bytes: &[u8],
        fua: bool,
    ) -> (Result<ReadShape, RequestError>, Vec<u8>) {
        let (at, len) = (VolumeOffset(offset), Bytes(bytes.len() as u64));
        let within = (offset % 4096) as u32;
        let payload = |b: Buffer| b.part(within, bytes.len() as u32);
        let buffer =
            op.has_payload().then(|| self.devices.memory.take(Request::buffer_len(at, len)).expect("memory"));
        if let (Op::Write, Some(buffer)) = (op, buffer) {
            self.devices.memory.bytes_mut(payload(buffer)).copy_from_slice(bytes);
        }
        let id = RequestId(77);
        let request = Request { id, volume: self.volume, op, offset: at, len, fua, hint: Hint::None, buffer };
        if let (Op::Read, Some(buffer)) = (op, buffer) {
            self.devices.memory.bytes_mut(buffer).fill(0xcd);
        }
        self.engine.submit(self.devices.now, request, &mut self.devices.memory);
        self.run();
        let mut reply = self.engine.next_reply();
        for _ in &self.devices.hanging.clone() {
            if reply.is_none() {
                self.wait(DeviceSettings::DEADLINE + Nanos::secs(1));
                reply = self.engine.next_reply();
            }
        }
        let reply = reply.expect("a reply");
        assert_eq!(reply.id, id);
        if reply.buffer.is_none() {
            return (reply.result, Vec::new());
        }
        // A hanging device may have kept the buffer: a read then has another one.
        let is_other = op == Op::Read && !self.devices.hanging.is_empty();
        assert!(reply.buffer == buffer || is_other, "{reply:?}");
        let buffer = reply.buffer;
        let mut found = vec![0; bytes.len()];
        if let Some(buffer) = buffer {
            if reply.result != Ok(ReadShape::Zeros) {
                found.copy_from_slice(self.devices.memory.bytes(payload(buffer)));
            }
            self.devices.memory.give(buffer);
        }
        (reply.result, found)
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.request(Op::Write, offset, bytes, false).expect("a write");
    }

    /// Submits writes of `byte`, all before any is executed; all must succeed.
    pub(super) fn write_at_once(&mut self, offsets: &[u64], len: u64, byte: u8) {
        for (i, at) in offsets.iter().enumerate() {
            self.submit(i as u64, Op::Write, *at, len, byte);
        }
        self.run();
        for _ in offsets {
            let reply = self.engine.next_reply().expect("a reply");
            reply.result.expect("a write");
            self.devices.memory.give(reply.buffer.expect("its buffer"));
        }
    }

    /// Submits a request; the caller collects its reply. A payload is filled with `byte`.
    pub(super) fn submit(&mut self, id: u64, op: Op, offset: u64, len: u64, byte: u8) {
        self.submit_with(id, op, offset, len, byte, false);
    }

    /// Submits a durable write; the caller collects its reply.
    pub(super) fn submit_fua(&mut self, id: u64, offset: u64, len: u64, byte: u8) {
        self.submit_with(id, Op::Write, offset, len, byte, true);
    }

    fn submit_with(&mut self, id: u64, op: Op, offset: u64, len: u64, byte: u8, fua: bool) {
        let (offset, len) = (VolumeOffset(offset), Bytes(len));
        let buffer = op.has_payload().then(|| {
            let buffer = self.devices.memory.take(Request::buffer_len(offset, len)).expect("memory");
            self.devices.memory.bytes_mut(buffer).fill(byte);
            buffer
        });
        let (volume, hint) = (self.volume, Hint::None);
        let request = Request { id: RequestId(id), volume, op, offset, len, fua, hint, buffer };
        self.engine.submit(self.devices.now, request, &mut self.devices.memory);
    }

    /// Returns the next reply to a submitted request, if there is one.
    pub(super) fn answer(&mut self) -> Option<(u64, Result<ReadShape, RequestError>)> {
        let reply = self.engine.next_reply()?;
        reply.buffer.into_iter().for_each(|buffer| self.devices.memory.give(buffer));
        Some((reply.id.0, reply.result))
    }

    pub(super) fn now(&self) -> Nanos {
        self.devices.now
    }

    /// Advances the time, and runs due work.
    pub(super) fn pass(&mut self, time: Nanos) {
        // Running takes time itself.
        self.devices.now = Nanos((self.devices.now + time).0 - 1000);
        self.run();
    }

    pub(super) fn set_space_rules(&mut self, rules: SpaceRules) {
        self.set_options(Options { space: rules, ..Options::default() });
    }

    /// Replaces the options.
    pub(super) fn set_options(&mut self, options: Options) {
        self.engine.set_options(options);
    }

    pub(super) fn read(&mut self, offset: u64, len: usize) -> (ReadShape, Vec<u8>) {
        let (result, bytes) = self.request_with(Op::Read, offset, &vec![0; len], false);
        (result.expect("a read"), bytes)
    }

    pub(super) fn try_read(&mut self, offset: u64, len: usize) -> Result<(ReadShape, Vec<u8>), RequestError> {
        let (result, bytes) = self.request_with(Op::Read, offset, &vec![0; len], false);
        result.map(|shape| (shape, bytes))
    }

    /// Cancels the failures that have not occurred.
    pub(super) fn forget_failures(&mut self) {
        self.devices.failing.clear();
    }

    pub(super) fn flush(&mut self) -> Result<ReadShape, RequestError> {
        self.request(Op::Flush, 0, &[], false)
    }

    pub(super) fn commands(&self, kind: IoKind) -> usize {
        self.devices.log.iter().filter(|io| io.kind == kind).count()
    }

    /// Returns the free extents of all devices.
    pub(super) fn free(&self) -> u32 {
        let map = self.engine.map();
        map.devices().iter().map(|sb| map.space(sb.device).free()).sum()
    }

    pub(super) fn admin(&mut self, command: AdminCommand) -> Result<VolumeId, AdminError> {
        self.engine.admin(self.devices.now, AdminId(1), command);
        self.run();
        self.engine.next_admin_reply().expect("a reply").result
    }

    pub(super) fn create_volume(&mut self) -> Result<(), AdminError> {
        let command = AdminCommand::CreateVolume {
            name: "vol".into(),
            size: Bytes(self.volume_size),
            hardening: Hardening::Flush,
            copies: self.copies,
        };
        self.volume = self.admin(command)?;
        Ok(())
    }

    /// Creates empty volumes until the metadata area has no space for optional places; required ones still
    /// fit.
    pub(super) fn fill_metadata_area(&mut self) {
        for n in 0.. {
            if !self.engine.map().has_space_for_places() {
                break;
            }
            let (name, size) = (format!("empty{n}"), Bytes(self.volume_size));
            self.admin(AdminCommand::CreateVolume { name, size, hardening: Hardening::Flush, copies: 1 })
                .expect("a volume");
        }
        assert!(self.engine.map().has_metadata_space());
    }

    pub(super) fn set_hardening(&mut self, hardening: Hardening) -> Result<VolumeId, AdminError> {
        self.admin(AdminCommand::SetHardening { name: "vol".into(), hardening })
    }

    pub(super) fn remove_volume(&mut self) -> Result<VolumeId, AdminError> {
        self.admin(AdminCommand::RemoveVolume { name: "vol".into() })
    }

    pub(super) fn begin_stop(&mut self) {
        self.engine.begin_stop(self.devices.now);
        self.run();
    }

    pub(super) fn stop(&mut self) {
        self.begin_stop();
        assert!(self.engine.stopped());
    }

    /// Returns the report of an offline check of the devices.
    pub(super) fn check(&mut self) -> weir_map::check::Report {
        let sizes = vec![Some(Bytes(DEVICE_SIZE)); self.devices.disks.0.len()];
        weir_map::check(&mut self.devices.disks, &sizes)
    }

    /// Reopens the pool as after a kill: the engine's memory is lost, its writes are not.
    pub(super) fn reopen(&mut self) {
        self.try_reopen(OpenOptions::default()).expect("a pool");
    }

    pub(super) fn try_reopen(&mut self, options: OpenOptions) -> Result<Recovery, MapError> {
        let (map, recovery) = open(&mut self.devices.disks, options)?;
        self.devices.memory = HeapMemory::new(Bytes::mib(8));
        let policy = placement::by_name(self.policy).expect("a policy");
        let options = Options::default();
        let engine =
            Engine::new(self.devices.now, map, policy, &self.settings, options, &mut self.devices.memory);
        self.engine = engine.expect("an engine");
        self.run();
        Ok(recovery)
    }

    /// Opens the pool with a power loss after this many writes. Returns whether it was open by then.
    pub(super) fn opens_within(&mut self, writes: usize) -> bool {
        self.devices.disks.1 = Some(writes);
        let opened = open(&mut self.devices.disks, OpenOptions::default());
        self.devices.disks.1 = None;
        opened.is_ok()
    }

    /// Replaces this device with a blank one, with at most this many writes.
    pub(super) fn replace(&mut self, device: DeviceId, writes: Option<usize>) -> Result<(), MapError> {
        self.devices.disks.1 = writes;
        let replaced = self.replace_without(device, device);
        self.devices.disks.1 = None;
        replaced
    }

    /// Replaces this device with a blank one, while another one is absent as well.
    pub(super) fn replace_without(&mut self, device: DeviceId, away: DeviceId) -> Result<(), MapError> {
        self.devices.disks.0[device.index()] = vec![0; DEVICE_SIZE as usize];
        let found = superblocks(&mut self.devices.disks);
        let new = NewDevice { name: "new".into(), size: Bytes(DEVICE_SIZE), class: DeviceClass::Ssd };
        let without = [away].into_iter().collect();
        let options = OpenOptions { accept_rollback: true, without, ..OpenOptions::default() };
        weir_map::replace(&mut self.devices.disks, &found, device, &new, &options).map(|_| ())
    }

    /// Returns the device's superblock.
    pub(super) fn superblock(&self, device: DeviceId) -> Superblock {
        let found = superblocks(&mut self.devices.disks.clone());
        found.into_iter().find(|sb| sb.device == device).expect("it has one")
    }

    /// Returns the contents of all devices.
    pub(super) fn disks(&self) -> Disks {
        self.devices.disks.clone()
    }

    pub(super) fn put_disks(&mut self, disks: Disks) {
        self.devices.disks = disks;
    }

    /// Restores the device's file from these older contents.
    pub(super) fn put_back(&mut self, device: DeviceId, older: &Disks) {
        self.devices.disks.0[device.index()].clone_from(&older.0[device.index()]);
        self.devices.removed.retain(|removed| *removed != device);
    }
}
