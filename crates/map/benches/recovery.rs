//! The time and memory to open a pool.
//!
//! *Dense*: every extent of 1, 4 and 16 TB fully written, and closed cleanly. *Aged*: the same after so many
//! checkpoints that the map's pages are in no order. *Full journal*: aged, and the power failed when the
//! journal was full. *Scattered*: one 4 KiB block in every extent of a terabyte, so that each has a record.
//!
//! The devices are in memory, so the time is the map's own part of recovery; a real device adds the time to
//! read the bytes shown, in as many reads. `cargo bench -p weir-map --bench recovery [-- ROW...]`; as a test
//! it opens the same pools, 1/128 as large. Limits on memory and on the bytes read are asserted, time is not.
//!
//! `WEIR_IMAGE=FOLDER cargo bench -p weir-map --bench recovery -- ROW` writes the first such pool into the
//! folder, as sparse files with their `pool.toml`, instead of opening it, so that `weir pool status` and
//! `weir serve` can be timed.
#![allow(clippy::disallowed_types, reason = "a benchmark reads the clock")]
#![allow(clippy::disallowed_methods, reason = "a benchmark looks at its environment")]
#![allow(clippy::disallowed_macros, reason = "a benchmark prints its figures")]

mod support;

use std::path::Path;
use std::time::Duration;
use support::{
    ALL, DENSE_MAX, Kind, PENDING, Pool, SMOKE, TERABYTE, allocated_bytes, is_full_run, is_wanted, peak,
    processor_time, reset_peak,
};
use weir_map::open::Recovery;
use weir_map::{ExtentState, OpenOptions, PAGE};
use weir_model::{ExtentIndex, ExtentKey, VolumeId};

/// The number of openings of each pool; the median is shown.
const TRIES: usize = 3;
/// The tolerance above [`DENSE_MAX`], in percent.
const TOLERANCE: u64 = 10;
/// The additional maximum per record.
const RECORD_MAX: u64 = 64;
/// The fixed memory of any map.
const FIXED: u64 = 1 << 20;

/// The history of a pool after it was filled.
#[derive(Clone, Copy, PartialEq)]
enum Life {
    Closed,
    Aged,
    FullJournal,
}

const ROWS: [(&str, u64, Kind, Life); 7] = [
    ("dense", 1, Kind::Dense, Life::Closed),
    ("dense", 4, Kind::Dense, Life::Closed),
    ("dense", 16, Kind::Dense, Life::Closed),
    ("aged", 1, Kind::Dense, Life::Aged),
    ("aged", 16, Kind::Dense, Life::Aged),
    ("full journal", 1, Kind::Dense, Life::FullJournal),
    ("scattered", 1, Kind::Scattered, Life::Closed),
];

/// Moves an extent that has one whole place to the next free one.
fn relocate(pool: &mut Pool, index: u64) {
    let key = ExtentKey { volume: VolumeId(0), index: ExtentIndex(index) };
    let ExtentState::Direct(old) = pool.map.find(key) else { return };
    let whole = pool.map.allocate(old.device).expect("there is space");
    pool.map.attach_place(key, whole);
    pool.map.mark_written(key, whole, ALL, None);
    pool.map.release_empty_places(key);
}

/// Ages the pool: checkpoint after checkpoint writes some map pages, until they are in no order.
fn age(pool: &mut Pool) {
    let mut random = Rng(1);
    for _ in 0..64 {
        for page in 0..pool.extents.div_ceil(500) {
            if random.below(16) == 0 {
                relocate(pool, (page * 500 + random.below(500)) % pool.extents);
            }
        }
        pool.commit();
        pool.checkpoint();
    }
}

/// Changes extents at random until the journal is full.
fn fill_journal(pool: &mut Pool) {
    let mut random = Rng(2);
    while pool.map.has_journal_space() {
        for _ in 0..PENDING / 4 {
            relocate(pool, random.below(pool.extents));
        }
        pool.commit_while_space_remains();
    }
}

/// A linear congruential generator: the same in every run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

struct Opening {
    recovery: Recovery,
    reads: u64,
    /// The bytes that both roots reach, and those of the journal.
    needed: u64,
    records: u64,
    /// The memory of the opened map in bytes, and the peak while opening.
    memory: u64,
    peak: u64,
    /// Processor time: the time of an opening if no other program runs and the devices are fast.
    time: Duration,
}

fn open(pool: &mut Pool) -> Opening {
    let (before, reads, written) = (allocated_bytes(), pool.store.reads, pool.store.written());
    reset_peak();
    let start = processor_time();
    let (map, recovery) = weir_map::open(&mut pool.store, &pool.superblocks, &OpenOptions::default())
        .expect("what was written opens");
    let time = processor_time() - start;
    let recovered = allocated_bytes() + written - pool.store.written();
    let metadata = map.metadata_space();
    Opening {
        reads: pool.store.reads - reads,
        needed: u64::from(metadata.pages - metadata.free) * PAGE as u64
            + pool.superblocks[0].journal_pages * PAGE as u64,
        records: map.records() as u64,
        // The devices are in memory too, and a checkpoint was written to them.
        memory: recovered - before,
        peak: peak() + written - pool.store.written() - before,
        recovery,
        time,
    }
}

fn measure(name: &str, terabytes: u64, kind: Kind, life: Life) {
    let mapped = terabytes * if is_full_run() { TERABYTE } else { SMOKE };
    let mut pool = Pool::new(mapped, 1);
    pool.fill(kind);
    if life != Life::Closed {
        age(&mut pool);
    }
    if life == Life::FullJournal {
        fill_journal(&mut pool);
    }
    if let Ok(folder) = std::env::var("WEIR_IMAGE") {
        pool.store.save(Path::new(&folder), pool.superblocks[0].size).expect("the folder takes the files");
        println!("{name}, {terabytes} TB: written to {folder}");
        return;
    }
    // The first opening writes a checkpoint, so a full journal exists only once.
    let tries = if life == Life::FullJournal { 1 } else { TRIES };
    let mut openings: Vec<_> = (0..tries).map(|_| open(&mut pool)).collect();
    openings.sort_by_key(|o| o.time);
    let Opening { recovery, reads, memory, peak, time, .. } = &openings[tries / 2];
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{name:<13} {:>9.3} {:>10} {:>8.1} {:>8.1} {:>7} {:>9.1} {reads:>6} {:>9.0} {:>9.0}",
        mapped as f64 / TERABYTE as f64,
        pool.extents,
        megabytes(*memory),
        megabytes(*peak),
        recovery.frames,
        megabytes(recovery.bytes_read.0),
        time.as_secs_f64() * 1e3,
        time.as_secs_f64() * 1e3 * TERABYTE as f64 / mapped as f64,
    );
    openings.iter().for_each(|opening| check(mapped, opening));
}

/// Checks the limits that hold however fast the machine is.
fn check(mapped: u64, opening: &Opening) {
    let dense = mapped / 1000 * DENSE_MAX / (TERABYTE / 1000);
    let limit = dense * (100 + TOLERANCE) / 100 + opening.records * RECORD_MAX + FIXED;
    assert!(opening.memory <= limit, "{} bytes for {mapped} mapped: more than {limit}", opening.memory);

    // Few unnecessary bytes are read. Pages of older roots are in between, and are read along where that is
    // faster than another command.
    let limit = 2 * opening.needed + FIXED;
    assert!(
        opening.recovery.bytes_read.0 <= limit,
        "{} read, more than {limit} bytes",
        opening.recovery.bytes_read
    );
}

fn main() {
    println!(
        "{:<13} {:>9} {:>10} {:>8} {:>8} {:>7} {:>9} {:>6} {:>9} {:>9}",
        "pool", "TB mapped", "extents", "map MB", "peak MB", "frames", "MB read", "reads", "ms", "ms per TB"
    );
    for (name, terabytes, kind, life) in ROWS {
        if is_wanted(name) {
            measure(name, terabytes, kind, life);
        }
    }
}
