//! How long a pool takes to open, and in how much memory.
//!
//! *Dense*: every extent of 1, 4 and 16 TB fully written, and closed cleanly. *Aged*: the same after so
//! many checkpoints that the map's pages lie in any order. *Full journal*: aged, and the power went
//! when the journal could hold no more. *Scattered*: one 4 KiB block in every extent of a terabyte, so
//! that each has a record.
//!
//! The devices are in memory, so it is the map's own part of recovery; a device adds what it takes to
//! read the bytes shown, in as many reads. `cargo bench -p weir-map --bench recovery [-- ROW...]`; as a
//! test it opens the same pools, 1/128 as large. Limits on memory and on what is read are asserted, time
//! is not.
//!
//! `WEIR_IMAGE=FOLDER cargo bench -p weir-map --bench recovery -- ROW` writes the first such pool into the
//! folder, as sparse files with their `pool.toml`, instead of opening it: for `weir pool status` and
//! `weir serve` to be timed.
#![allow(clippy::disallowed_types, reason = "a benchmark reads the clock")]
#![allow(clippy::disallowed_methods, reason = "a benchmark looks at its environment")]
#![allow(clippy::disallowed_macros, reason = "a benchmark prints its figures")]

mod support;

use std::path::Path;
use std::time::Duration;
use support::{
    ALL, DENSE_MAX, Kind, PENDING, Pool, SMOKE, TERABYTE, forget_peak, in_earnest, is_wanted, peak,
    processor_time, taken,
};
use weir_map::open::Recovery;
use weir_map::{Found, OpenOptions, PAGE};
use weir_model::{ExtentIndex, ExtentKey, VolumeId};

/// Openings of each pool; the median is shown.
const TRIES: usize = 3;
/// More than this much above [`DENSE_MAX`] is too much, in percent.
const TOLERANCE: u64 = 10;
/// What a record may take beyond that.
const RECORD_MAX: u64 = 64;
/// What any map takes, however small.
const FIXED: u64 = 1 << 20;

/// What became of a pool after it was filled.
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
    let Found::Direct(old) = pool.map.find(key) else { return };
    let whole = pool.map.allocate(old.device).expect("there is space");
    pool.map.place(key, whole);
    pool.map.written(key, whole, ALL, None);
    pool.map.give_back(key);
}

/// A long life: checkpoint after checkpoint writes some map pages, until they lie in any order.
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

/// Changes extents here and there until the journal is full.
fn fill_journal(pool: &mut Pool) {
    let mut random = Rng(2);
    while pool.map.has_journal_room() {
        for _ in 0..PENDING / 4 {
            relocate(pool, random.below(pool.extents));
        }
        pool.commit_while_there_is_room();
    }
}

/// A linear congruential generator: the same every run.
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
    /// Bytes of what both roots reach, and of the journal.
    needed: u64,
    records: u64,
    /// Bytes of memory the opened map takes, and the most there were on the way.
    memory: u64,
    peak: u64,
    /// Of the processor: openings take as long where nothing else runs and the devices are quick.
    time: Duration,
}

fn open(pool: &mut Pool) -> Opening {
    let (before, reads, written) = (taken(), pool.store.reads, pool.store.written());
    forget_peak();
    let start = processor_time();
    let (map, recovery) = weir_map::open(&mut pool.store, &pool.superblocks, &OpenOptions::default())
        .expect("what was written opens");
    let time = processor_time() - start;
    let recovered = taken() + written - pool.store.written();
    let metadata = map.room();
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
    let mapped = terabytes * if in_earnest() { TERABYTE } else { SMOKE };
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
    // The first opening writes a checkpoint; a full journal is there only once.
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
        megabytes(recovery.read.0),
        time.as_secs_f64() * 1e3,
        time.as_secs_f64() * 1e3 * TERABYTE as f64 / mapped as f64,
    );
    openings.iter().for_each(|opening| check(mapped, opening));
}

/// What must hold however fast the machine is.
fn check(mapped: u64, opening: &Opening) {
    let dense = mapped / 1000 * DENSE_MAX / (TERABYTE / 1000);
    let limit = dense * (100 + TOLERANCE) / 100 + opening.records * RECORD_MAX + FIXED;
    assert!(opening.memory <= limit, "{} bytes for {mapped} mapped: more than {limit}", opening.memory);

    // Nothing is read that need not be. Pages of older roots lie between, and are read along where that
    // is quicker than another command.
    let limit = 2 * opening.needed + FIXED;
    assert!(opening.recovery.read.0 <= limit, "{} read, more than {limit} bytes", opening.recovery.read);
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
