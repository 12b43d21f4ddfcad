//! How much memory a map takes per terabyte, and how long it takes to open.
//!
//! Three maps: *dense* (every extent fully written), *scattered* (one 4 KiB block written in each
//! extent, in random order), *mixed* (dense, a tenth of the extents with two places). Each is
//! counted twice: by an allocator that counts every byte handed out, and by what the map says of
//! itself. Opening is timed against a store in memory, so it is the map's own part of recovery.
//!
//! `cargo bench -p weir-map --bench memory` maps one terabyte; as a test it maps 8 GB. Either way the
//! limits are asserted.
#![allow(clippy::disallowed_types, reason = "a benchmark reads the clock")]
#![allow(clippy::disallowed_macros, reason = "a benchmark prints its figures")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_map::{Hardening, Map, NewDevice, NewPool, OpenOptions, PAGE, PoolId, Superblock};
use weir_model::{
    BlockRange, Bytes, DeviceClass, DeviceId, DeviceOffset, ExtentIndex, ExtentKey, ExtentSize, IoError,
    Store, VolumeId,
};

const TERABYTE: u64 = 1_000_000_000_000;
const SMOKE: u64 = TERABYTE / 128;
/// A dense terabyte may take this much memory.
const DENSE_MAX: u64 = 72_000_000;
/// A record of one or two places may take this much.
const RECORD_MAX: u64 = 64;
/// Changes between two commits, as many as the engine lets come together.
const PENDING: u64 = 16_384;
/// What any map takes, however small: the frame being built, reserves of growing tables.
const FIXED: u64 = 1 << 20;

struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory of
// the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(TAKEN.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `at` came from `alloc` above, so from the system's, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes handed out and not given back.
fn taken() -> u64 {
    TAKEN.load(Relaxed) as u64
}

/// A device in memory; pages never written are zeros.
#[derive(Default)]
struct Ram(BTreeMap<(u8, u64), Box<[u8; PAGE]>>);

impl Store for Ram {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        for (i, to) in bytes.chunks_mut(PAGE).enumerate() {
            match self.0.get(&(device.0, at.0 / PAGE as u64 + i as u64)) {
                Some(page) => to.copy_from_slice(&page[..]),
                None => to.fill(0),
            }
        }
        Ok(())
    }
    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        let (pages, _) = bytes.as_chunks::<PAGE>();
        for (i, page) in pages.iter().enumerate() {
            let slot = self.0.entry((device.0, at.0 / PAGE as u64 + i as u64));
            **slot.or_insert_with(|| Box::new([0; PAGE])) = *page;
        }
        Ok(())
    }
    fn flush(&mut self, _: DeviceId) -> Result<(), IoError> {
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Dense,
    Scattered,
    Mixed,
}

struct Bench {
    store: Ram,
    superblocks: Vec<Superblock>,
    map: Map,
    extents: u64,
    /// Bytes per extent with a change that is not durable.
    pending: u64,
}

const EXTENT: ExtentSize = ExtentSize::DEFAULT;
const ALL: BlockRange = BlockRange { first: 0, count: EXTENT.blocks() };

impl Bench {
    fn new(mapped: u64) -> Self {
        let mut store = Ram::default();
        // Room for two places of each extent, and for the map.
        let device = |name: &str| NewDevice {
            name: name.into(),
            size: Bytes(mapped + mapped / 10 + (1 << 30)),
            class: DeviceClass::Ssd,
        };
        let pool = NewPool {
            id: PoolId([1; 16]),
            name: "bench".into(),
            extent: EXTENT,
            devices: vec![device("one"), device("two")],
            metadata: vec![DeviceId(0)],
        };
        let superblocks = weir_map::create(&mut store, &pool).expect("a store in memory does not fail");
        let (map, _) =
            weir_map::open(&mut store, &superblocks, &OpenOptions::default()).expect("a new pool opens");
        Self { store, superblocks, map, extents: mapped / EXTENT.bytes().0, pending: 0 }
    }

    fn fill(&mut self, kind: Kind) {
        let volume = self.map.create_volume("all", Bytes(self.extents << 17), Hardening::Flush);
        self.commit();
        let idle = taken();
        for n in 0..self.extents {
            if n == PENDING - 1 {
                self.pending = (taken() - idle) / PENDING;
            }
            // A step that shares no factor with the number of extents visits each once.
            let index = if kind == Kind::Scattered { n * 4_999_999 % self.extents } else { n };
            self.write(ExtentKey { volume, index: ExtentIndex(index) }, n, kind);
            if n % PENDING == PENDING - 1 {
                self.commit();
            }
        }
        self.commit();
        self.checkpoint();
    }

    fn write(&mut self, key: ExtentKey, n: u64, kind: Kind) {
        let mut place = |device: u8, range: BlockRange| {
            let whole = self.map.allocate(DeviceId(device)).expect("there is space");
            self.map.place(key, whole);
            self.map.written(key, whole, range, None);
        };
        let block = BlockRange { first: (n % 32) as u16, count: 1 };
        place((n % 2) as u8, if kind == Kind::Scattered { block } else { ALL });
        if kind == Kind::Mixed && n.is_multiple_of(10) {
            place(1 - (n % 2) as u8, block);
        }
    }

    fn commit(&mut self) {
        let (mut bytes, mut released) = (Vec::new(), Vec::new());
        self.map.begin_commit();
        loop {
            while !self.map.has_journal_room() {
                self.map.commit_durable(&mut released);
                self.checkpoint();
            }
            let Some(to) = self.map.next_frame(|_| None, &mut bytes) else { break };
            self.store.write(self.map.members()[0], to, &bytes).expect("a store in memory does not fail");
        }
        self.map.commit_durable(&mut released);
    }

    fn checkpoint(&mut self) {
        self.map.checkpoint_now(&mut self.store).expect("there is room");
    }
}

/// What a map costs.
struct Cost {
    extents: u64,
    pending: u64,
    records: u64,
    /// Counted by the allocator: the map as it grew, and as it was opened.
    grown: u64,
    opened: u64,
    /// Said by the map.
    said: u64,
    said_records: u64,
    /// Beyond that, while opening.
    peak: u64,
    open: Duration,
    read: Bytes,
}

fn cost(kind: Kind, mapped: u64) -> Cost {
    let mut bench = Bench::new(mapped);
    bench.fill(kind);
    let Bench { mut store, superblocks, map, extents, pending } = bench;
    let with_map = taken();
    drop(map);
    let grown = with_map - taken();

    let before = taken();
    PEAK.store(before as usize, Relaxed);
    let start = Instant::now();
    let (map, recovery) =
        weir_map::open(&mut store, &superblocks, &OpenOptions::default()).expect("what was written opens");
    let open = start.elapsed();
    let opened = taken() - before;
    assert_eq!(map.mapped_extents(VolumeId(0)), extents);
    Cost {
        extents,
        pending,
        records: map.records() as u64,
        grown,
        opened,
        said: map.memory().total().0,
        said_records: map.memory().records.0,
        peak: (PEAK.load(Relaxed) as u64).saturating_sub(before + opened),
        open,
        read: recovery.read,
    }
}

impl Cost {
    fn print(&self, name: &str) {
        let per_terabyte =
            |bytes: u64| bytes as f64 / 1e6 / (self.extents * EXTENT.bytes().0) as f64 * TERABYTE as f64;
        let record = if self.records == 0 { 0.0 } else { self.said_records as f64 / self.records as f64 };
        println!(
            "{name:<10} {:>9} {:>9} {:>10.1} {:>10.1} {:>10.1} {record:>9.1} {:>9} {:>9.1} {:>10.2?} {:>10}",
            self.extents,
            self.records,
            per_terabyte(self.grown),
            per_terabyte(self.opened),
            per_terabyte(self.said),
            self.pending,
            self.peak as f64 / 1e6,
            self.open,
            self.read.to_string(),
        );
    }

    fn check(&self) {
        let dense =
            u128::from(self.extents * EXTENT.bytes().0) * u128::from(DENSE_MAX) / u128::from(TERABYTE);
        let limit = dense as u64 + self.records * RECORD_MAX + FIXED;
        for bytes in [self.grown, self.opened, self.said] {
            assert!(bytes <= limit, "{bytes} bytes for {} extents: more than {limit}", self.extents);
        }
        assert!(
            self.said_records <= self.records * RECORD_MAX + FIXED,
            "{} bytes of records",
            self.said_records
        );
        let off = self.said.abs_diff(self.opened);
        assert!(off <= self.opened / 50 + FIXED, "the map says {}, it takes {}", self.said, self.opened);
    }
}

fn main() {
    let asked = |name: &str| std::env::args().any(|a| a == name);
    let full = asked("--bench") && !asked("--test");
    let mapped = if full { TERABYTE } else { SMOKE };
    println!("MB per terabyte mapped (10^12 bytes, {} extents)", EXTENT.bytes());
    println!(
        "{:<10} {:>9} {:>9} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>10} {:>10}",
        "map",
        "extents",
        "records",
        "grown",
        "opened",
        "it says",
        "B/record",
        "B/change",
        "peak MB",
        "open",
        "read"
    );
    for (name, kind) in [("dense", Kind::Dense), ("scattered", Kind::Scattered), ("mixed", Kind::Mixed)] {
        let cost = cost(kind, mapped);
        cost.print(name);
        cost.check();
    }
}
