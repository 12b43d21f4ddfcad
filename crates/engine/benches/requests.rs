//! The engine alone: 4 KiB requests at depth 32 against a device in memory, one core.
//!
//! `copied`: the device copies every block, as memory does. `counted`: it answers without touching
//! data, which leaves the engine's own cost. The working set (8 MiB of a 256 MiB volume) fits the
//! processor's cache, so that it is not main memory that is measured. The target is 2 million
//! requests a second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use weir_engine::{AdminId, Command, DeviceSettings, Engine};
use weir_map::{Hardening, NewDevice, NewPool, OpenOptions, PoolId};
use weir_model::{
    Buffer, Bytes, DeviceClass, DeviceId, DeviceOffset, ExtentSize, HeapMemory, Hint, IoDone, IoError,
    IoKind, Memory, Nanos, Op, Request, RequestId, Store, VolumeId, VolumeOffset,
};

const DEPTH: u64 = 32;
const BATCH: u64 = 1024;
const VOLUME: u64 = 256 << 20;
const WORKING_SET: u64 = 8 << 20;

struct Disk(Vec<u8>);

impl Store for Disk {
    fn read(&mut self, _: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        bytes.copy_from_slice(&self.0[at.0 as usize..][..bytes.len()]);
        Ok(())
    }
    fn write(&mut self, _: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        self.0[at.0 as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self, _: DeviceId) -> Result<(), IoError> {
        Ok(())
    }
}

struct Bench {
    engine: Engine,
    memory: HeapMemory,
    disk: Disk,
    buffers: Vec<Buffer>,
    now: Nanos,
    copies: bool,
    random: u64,
}

impl Bench {
    fn new(copies: bool) -> Self {
        let size = Bytes(VOLUME + (64 << 20));
        let mut disk = Disk(vec![0; size.0 as usize]);
        let pool = NewPool {
            id: PoolId([1; 16]),
            name: "bench".into(),
            extent: ExtentSize::DEFAULT,
            devices: vec![NewDevice { name: "memory".into(), size, class: DeviceClass::Nvm }],
            metadata: vec![DeviceId(0)],
        };
        let superblocks = weir_map::create(&mut disk, &pool).expect("created");
        let (map, _) = weir_map::open(&mut disk, &superblocks, &OpenOptions::default()).expect("opened");
        let mut memory = HeapMemory::new(Bytes::mib(16));
        let policy = weir_policy::placement::by_name("sequential").expect("a policy");
        let engine =
            Engine::new(Nanos(0), map, policy, &[DeviceSettings::default()], &mut memory).expect("an engine");
        let buffers = (0..DEPTH).map(|_| memory.take(Bytes(4096)).expect("memory")).collect();
        let mut bench = Self { engine, memory, disk, buffers, now: Nanos(0), copies: true, random: 1 };
        bench.settle();
        bench.engine.admin(
            Nanos(0),
            AdminId(0),
            Command::CreateVolume {
                name: "v".into(),
                size: Bytes(VOLUME),
                hardening: Hardening::Flush,
                copies: 1,
            },
        );
        bench.settle();
        bench.fill();
        bench.copies = copies;
        bench
    }

    /// Every extent whole, so that overwrites are in place.
    fn fill(&mut self) {
        let large = self.memory.take(Bytes::kib(128)).expect("memory");
        for at in (0..VOLUME).step_by(128 << 10) {
            self.submit(Op::Write, at, Some(large));
            self.settle();
        }
        self.submit(Op::Flush, 0, None);
        self.settle();
        self.memory.give(large);
    }

    fn submit(&mut self, op: Op, at: u64, buffer: Option<Buffer>) {
        let len = Bytes(buffer.map_or(0, |b| b.len.into()));
        let (offset, hint) = (VolumeOffset(at), Hint::None);
        let request =
            Request { id: RequestId(at), volume: VolumeId(0), op, offset, len, fua: false, hint, buffer };
        self.engine.submit(self.now, request, &mut self.memory);
    }

    /// One round of a driver: commands carried out, replies collected. Whether anything happened.
    fn round(&mut self) -> bool {
        self.now += Nanos(100);
        self.engine.tick(self.now, &mut self.memory);
        let mut any = false;
        while let Some(io) = self.engine.next_io() {
            any = true;
            if self.copies {
                let done = match io.kind {
                    IoKind::Read => self.disk.read(io.device, io.at, self.memory.bytes_mut(io.buffer)),
                    IoKind::Write { .. } => self.disk.write(io.device, io.at, self.memory.bytes(io.buffer)),
                    IoKind::Flush => Ok(()),
                };
                black_box(done).expect("memory does not fail");
            }
            self.engine.complete(self.now, IoDone { id: io.id, result: Ok(()) }, &mut self.memory);
        }
        while let Some(reply) = self.engine.next_reply() {
            black_box(reply.result).expect("a good reply");
            any = true;
        }
        any
    }

    fn settle(&mut self) {
        while self.round() || self.engine.deadline().is_some_and(|d| d <= self.now) {}
    }

    fn run(&mut self, op: Op) {
        for _ in 0..BATCH / DEPTH {
            for i in 0..DEPTH as usize {
                // A linear congruential generator: cheap, and the same every run.
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
            let mut bench = Bench::new(copies);
            group.bench_function(format!("{name}/{device}"), |b| b.iter(|| bench.run(op)));
        }
    }
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);
