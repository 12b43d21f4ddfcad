//! The engine alone: 4 KiB requests at queue depth 32 to a device in memory, on one core.
//!
//! `copied`: the device copies every block, as memory does. `counted`: it answers without touching data,
//! which isolates the engine's own cost. The working set (8 MiB of a 256 MiB volume) fits the processor's
//! cache, so that main memory is not measured. The target is 2 million requests per second.
//!
//! `placement`: the same with two devices that answer without touching data, for each policy; the cost of a
//! policy is the difference from `sequential`, which decides nothing but the device of new data. The target
//! is 150 ns per request. `bench/placement-overhead` makes the table.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use weir_engine::{AdminCommand, AdminId, DeviceSettings, Driver, Engine, Options};
use weir_map::{Hardening, NewDevice, NewPool, OpenOptions, PoolId};
use weir_model::{
    Buffer, Bytes, DeviceClass, DeviceId, DeviceOffset, ExtentSize, HeapMemory, Hint, Io, IoError, Memory,
    Nanos, Op, Request, RequestId, Store, VolumeId, VolumeOffset,
};

const DEPTH: u64 = 32;
const BATCH: u64 = 1024;
const VOLUME: u64 = 256 << 20;
const WORKING_SET: u64 = 8 << 20;

struct Disks(Vec<Vec<u8>>);

impl Store for Disks {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        bytes.copy_from_slice(&self.0[device.index()][at.0 as usize..][..bytes.len()]);
        Ok(())
    }
    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        self.0[device.index()][at.0 as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self, _: DeviceId) -> Result<(), IoError> {
        Ok(())
    }
}

/// Devices that answer at once, with or without copying data.
struct Outside {
    disks: Disks,
    memory: HeapMemory,
    now: Nanos,
    copies: bool,
    /// Whether a command was started.
    any: bool,
}

impl Driver for Outside {
    type Memory = HeapMemory;
    fn now(&self) -> Nanos {
        self.now
    }
    fn memory(&mut self) -> &mut HeapMemory {
        &mut self.memory
    }
    fn start(&mut self, io: Io) -> Option<Result<(), IoError>> {
        self.any = true;
        if self.copies {
            let done = self.disks.execute(&io, &mut self.memory);
            black_box(done).expect("memory does not fail");
        }
        Some(Ok(()))
    }
}

struct Bench {
    engine: Engine,
    outside: Outside,
    buffers: Vec<Buffer>,
    /// The virtual duration of a round.
    round: Nanos,
    random: u64,
}

impl Bench {
    /// Creates a benchmark with one device that copies blocks or not.
    fn one(copies: bool) -> Self {
        let mut bench = Self::new("sequential", &[VOLUME + (64 << 20)], Nanos(100));
        bench.outside.copies = copies;
        bench
    }

    /// Creates a benchmark with two devices, the first with space for half of the volume. A round takes about
    /// its real time.
    fn two(policy: &str) -> Self {
        Self::new(policy, &[VOLUME / 2, VOLUME + (64 << 20)], Nanos::micros(2))
    }

    fn new(policy: &str, sizes: &[u64], round: Nanos) -> Self {
        let mut disks = Disks(sizes.iter().map(|size| vec![0; *size as usize]).collect());
        let device = |(at, size): (usize, &u64)| {
            let class = if at == 0 { DeviceClass::Nvm } else { DeviceClass::Ssd };
            NewDevice { name: format!("memory{at}"), size: Bytes(*size), class }
        };
        let pool = NewPool {
            id: PoolId([1; 16]),
            name: "bench".into(),
            extent: ExtentSize::DEFAULT,
            devices: sizes.iter().enumerate().map(device).collect(),
            metadata: vec![DeviceId(0)],
        };
        let superblocks = weir_map::create(&mut disks, &pool).expect("created");
        let (map, _) = weir_map::open(&mut disks, &superblocks, &OpenOptions::default()).expect("opened");
        let mut memory = HeapMemory::new(Bytes::mib(16));
        let policy = weir_policy::placement::by_name(policy).expect("a policy");
        let settings = vec![DeviceSettings::default(); sizes.len()];
        let options = Options::default();
        let engine = Engine::new(Nanos(0), map, policy, &settings, options, &mut memory).expect("an engine");
        let buffers = (0..DEPTH).map(|_| memory.take(Bytes(4096)).expect("memory")).collect();
        let outside = Outside { disks, memory, now: Nanos(0), copies: true, any: false };
        let mut bench = Self { engine, outside, buffers, round, random: 1 };
        bench.settle();
        bench.engine.admin(
            Nanos(0),
            AdminId(0),
            AdminCommand::CreateVolume {
                name: "v".into(),
                size: Bytes(VOLUME),
                hardening: Hardening::Flush,
                copies: 1,
            },
        );
        bench.settle();
        bench.fill();
        bench.outside.copies = false;
        bench
    }

    /// Fills every extent, so that overwrites are in place.
    fn fill(&mut self) {
        let large = self.outside.memory.take(Bytes::kib(128)).expect("memory");
        for at in (0..VOLUME).step_by(128 << 10) {
            self.submit(Op::Write, at, Some(large));
            self.settle();
        }
        self.submit(Op::Flush, 0, None);
        self.settle();
        self.outside.memory.give(large);
    }

    fn submit(&mut self, op: Op, at: u64, buffer: Option<Buffer>) {
        let len = Bytes(buffer.map_or(0, |b| b.len.into()));
        let (offset, hint) = (VolumeOffset(at), Hint::None);
        let request =
            Request { id: RequestId(at), volume: VolumeId(0), op, offset, len, fua: false, hint, buffer };
        self.engine.submit(self.outside.now, request, &mut self.outside.memory);
    }

    /// Runs one round of a driver: executes commands and collects replies. Returns whether anything happened.
    fn round(&mut self) -> bool {
        self.outside.now += self.round;
        self.outside.any = false;
        self.engine.pump(&mut self.outside);
        let mut any = self.outside.any;
        while let Some(reply) = self.engine.next_reply() {
            black_box(reply.result).expect("a good reply");
            any = true;
        }
        any
    }

    fn settle(&mut self) {
        while self.round() || self.engine.deadline().is_some_and(|d| d <= self.outside.now) {}
    }

    fn run(&mut self, op: Op) {
        for _ in 0..BATCH / DEPTH {
            for i in 0..DEPTH as usize {
                // A linear congruential generator: cheap, and the same in every run.
                self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (self.random >> 33) % (WORKING_SET / 4096) * 4096;
                self.submit(op, at, Some(self.buffers[i]));
            }
            while self.round() {}
        }
    }
}

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine_4k_depth_32");
    group.throughput(Throughput::Elements(BATCH));
    for (name, op) in [("read", Op::Read), ("overwrite", Op::Write)] {
        for (device, copies) in [("counted", false), ("copied", true)] {
            // Created once, and only if the row is requested.
            let mut made = None;
            group.bench_function(format!("{name}/{device}"), |b| {
                let bench = made.get_or_insert_with(|| Bench::one(copies));
                b.iter(|| bench.run(op));
            });
        }
    }
    group.finish();
}

fn placement(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine_4k_depth_32_placement");
    group.throughput(Throughput::Elements(BATCH));
    for (name, op) in [("read", Op::Read), ("overwrite", Op::Write)] {
        for policy in weir_policy::placement::ALL {
            let mut made = None;
            group.bench_function(format!("{name}/{}", policy.name), |b| {
                let bench = made.get_or_insert_with(|| Bench::two(policy.name));
                b.iter(|| bench.run(op));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, requests, placement);
criterion_main!(benches);
