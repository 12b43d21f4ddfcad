//! Common parts of the map's benchmarks: a counting allocator, a device in memory, and a pool whose map is
//! filled through it.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads its arguments and its clock")]
#![allow(clippy::disallowed_types, reason = "a benchmark may save its devices")]
#![allow(dead_code, reason = "not every benchmark uses all of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use weir_map::{Hardening, Map, NewDevice, NewPool, OpenOptions, PAGE, PoolId, Superblock};
use weir_model::{
    BlockRange, Bytes, DeviceClass, DeviceId, DeviceOffset, ExtentIndex, ExtentKey, ExtentSize, IoError,
    Store,
};

pub(crate) const TERABYTE: u64 = 1_000_000_000_000;
/// The size of a terabyte in a test.
pub(crate) const SMOKE: u64 = TERABYTE / 128;
/// The maximum memory of a dense terabyte.
pub(crate) const DENSE_MAX: u64 = 72_000_000;
/// The number of changes between two commits, as many as the engine collects.
pub(crate) const PENDING: u64 = 16_384;
/// The names of the devices.
const DEVICES: [&str; 2] = ["one", "two"];
pub(crate) const EXTENT: ExtentSize = ExtentSize::DEFAULT;
pub(crate) const ALL: BlockRange = BlockRange { first: 0, count: EXTENT.blocks() };

/// Whether this is a measurement; otherwise it is a test, which must end quickly.
pub(crate) fn is_full_run() -> bool {
    let asked = |name: &str| std::env::args().any(|a| a == name);
    asked("--bench") && !asked("--test")
}

/// Whether this row is wanted: those named on the command line, else all.
pub(crate) fn is_wanted(row: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|a| !a.starts_with("--")).peekable();
    names.peek().is_none() || names.any(|name| row.contains(&name))
}

/// Returns the processor time of this thread, which other programs do not affect.
pub(crate) fn processor_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = statistics.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory of the
// caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(ALLOCATED.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `at` came from `alloc` above, so from the system's, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes allocated and not freed.
pub(crate) fn allocated_bytes() -> u64 {
    ALLOCATED.load(Relaxed) as u64
}

/// Returns the peak since [`reset_peak`].
pub(crate) fn peak() -> u64 {
    PEAK.load(Relaxed) as u64
}

pub(crate) fn reset_peak() {
    PEAK.store(ALLOCATED.load(Relaxed), Relaxed);
}

/// Devices in memory; pages never written are zeros.
#[derive(Default)]
pub(crate) struct Ram {
    pages: BTreeMap<(u8, u64), Box<[u8; PAGE]>>,
    /// The number of reads so far.
    pub(crate) reads: u64,
}

impl Ram {
    /// Returns the bytes written.
    pub(crate) fn written(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }

    /// Writes the devices into a folder, each with this size, with the pool file they belong to.
    pub(crate) fn save(&self, folder: &Path, size: Bytes) -> std::io::Result<()> {
        let mut text = "[pool]\nname = \"bench\"\n".to_owned();
        for (number, name) in (0u8..).zip(DEVICES) {
            let file = File::create(folder.join(name))?;
            file.set_len(size.0)?;
            for ((_, page), bytes) in self.pages.range((number, 0)..=(number, u64::MAX)) {
                file.write_all_at(&bytes[..], page * PAGE as u64)?;
            }
            text += &format!("[[device]]\nname = \"{name}\"\npath = \"{name}\"\n");
        }
        std::fs::write(folder.join("pool.toml"), text)
    }
}

impl Store for Ram {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        self.reads += 1;
        for (i, to) in bytes.chunks_mut(PAGE).enumerate() {
            match self.pages.get(&(device.0, at.0 / PAGE as u64 + i as u64)) {
                Some(page) => to.copy_from_slice(&page[..]),
                None => to.fill(0),
            }
        }
        Ok(())
    }
    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        let (pages, _) = bytes.as_chunks::<PAGE>();
        for (i, page) in pages.iter().enumerate() {
            let slot = self.pages.entry((device.0, at.0 / PAGE as u64 + i as u64));
            **slot.or_insert_with(|| Box::new([0; PAGE])) = *page;
        }
        Ok(())
    }
    fn flush(&mut self, _: DeviceId) -> Result<(), IoError> {
        Ok(())
    }
}

/// The written parts of each extent.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// The whole extent.
    Dense,
    /// One block; the extents in random order.
    Scattered,
    /// The whole extent; a tenth of the extents has a second place.
    Mixed,
}

/// A pool, its map filled as the engine would.
pub(crate) struct Pool {
    pub(crate) store: Ram,
    pub(crate) superblocks: Vec<Superblock>,
    pub(crate) map: Map,
    pub(crate) extents: u64,
    /// Bytes of memory per extent with a pending change.
    pub(crate) pending: u64,
}

impl Pool {
    /// Creates an empty pool with space on two devices for this many places of `mapped` bytes, and for the
    /// map.
    pub(crate) fn new(mapped: u64, places: u64) -> Self {
        let mut store = Ram::default();
        let size = Bytes((mapped * places / 2 * 11 / 10 + (1 << 30)).next_multiple_of(PAGE as u64));
        let device = |name: &str| NewDevice { name: name.into(), size, class: DeviceClass::Ssd };
        let pool = NewPool {
            id: PoolId([1; 16]),
            name: "bench".into(),
            extent: EXTENT,
            devices: DEVICES.map(device).to_vec(),
            metadata: vec![DeviceId(0)],
        };
        let superblocks = weir_map::create(&mut store, &pool).expect("a store in memory does not fail");
        let (map, _) =
            weir_map::open(&mut store, &superblocks, &OpenOptions::default()).expect("a new pool opens");
        Self { store, superblocks, map, extents: mapped / EXTENT.bytes().0, pending: 0 }
    }

    /// Writes every extent of one volume, and a checkpoint.
    pub(crate) fn fill(&mut self, kind: Kind) {
        let volume = self.map.create_volume("all", Bytes(self.extents << 17), Hardening::Flush, 1);
        self.commit();
        let idle = allocated_bytes();
        for n in 0..self.extents {
            if n == PENDING - 1 {
                self.pending = (allocated_bytes() - idle) / PENDING;
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
            self.map.attach_place(key, whole);
            self.map.mark_written(key, whole, range, None);
        };
        let block = BlockRange { first: (n % 32) as u16, count: 1 };
        place((n % 2) as u8, if kind == Kind::Scattered { block } else { ALL });
        if kind == Kind::Mixed && n.is_multiple_of(10) {
            place(1 - (n % 2) as u8, block);
        }
    }

    /// Makes one commit, as far as the journal has space for it.
    pub(crate) fn commit_while_space_remains(&mut self) {
        let mut bytes = Vec::new();
        self.map.begin_commit();
        while self.map.has_journal_space() {
            let Some(to) = self.map.next_frame(|_| None, &mut bytes) else { break };
            self.store.write(self.map.members()[0], to, &bytes).expect("a store in memory does not fail");
        }
        self.complete_commit();
    }

    fn complete_commit(&mut self) {
        let mut released = Vec::new();
        self.map.finish_commit(&mut released);
        released.into_iter().for_each(|whole| self.map.reuse(whole));
    }

    /// Makes every change durable.
    pub(crate) fn commit(&mut self) {
        self.commit_while_space_remains();
        while !self.map.has_journal_space() {
            self.checkpoint();
            self.commit_while_space_remains();
        }
    }

    pub(crate) fn checkpoint(&mut self) {
        self.map.checkpoint_now(&mut self.store).expect("there is room");
    }
}
