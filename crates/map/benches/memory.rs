//! The memory of a map per terabyte, and the time to open it.
//!
//! Three maps: *dense* (every extent fully written), *scattered* (one 4 KiB block written in each extent, in
//! random order), *mixed* (dense, a tenth of the extents with two places). Each is measured twice: by an
//! allocator that counts every byte, and by the map's own report. Opening is timed against a store in memory,
//! so it is the map's own part of recovery.
//!
//! `cargo bench -p weir-map --bench memory` maps one terabyte; as a test it maps 8 GB. Either way the limits
//! are asserted.
#![allow(clippy::disallowed_types, reason = "a benchmark reads the clock")]
#![allow(clippy::disallowed_macros, reason = "a benchmark prints its figures")]

mod support;

use std::time::{Duration, Instant};
use support::{
    DENSE_MAX, EXTENT, Kind, Pool, SMOKE, TERABYTE, allocated_bytes, is_full_run, peak, reset_peak,
};
use weir_map::OpenOptions;
use weir_model::{Bytes, VolumeId};

/// The maximum memory of a record of one or two places.
const RECORD_MAX: u64 = 64;
/// The fixed memory of any map: the frame being built, reserves of growing tables.
const FIXED: u64 = 1 << 20;

/// The memory and time of a map.
struct Cost {
    extents: u64,
    pending: u64,
    records: u64,
    /// Counted by the allocator: the map as it grew, and as it was opened.
    grown: u64,
    opened: u64,
    /// Reported by the map.
    said: u64,
    said_records: u64,
    /// The additional peak while opening.
    peak: u64,
    open: Duration,
    read: Bytes,
}

fn cost(kind: Kind, mapped: u64) -> Cost {
    let mut bench = Pool::new(mapped, 2);
    bench.fill(kind);
    let Pool { mut store, superblocks, map, extents, pending } = bench;
    let with_map = allocated_bytes();
    drop(map);
    let grown = with_map - allocated_bytes();

    let before = allocated_bytes();
    reset_peak();
    let start = Instant::now();
    let (map, recovery) =
        weir_map::open(&mut store, &superblocks, &OpenOptions::default()).expect("what was written opens");
    let open = start.elapsed();
    let opened = allocated_bytes() - before;
    assert_eq!(map.mapped_extents(VolumeId(0)), extents);
    Cost {
        extents,
        pending,
        records: map.records() as u64,
        grown,
        opened,
        said: map.memory().total().0,
        said_records: map.memory().records.0,
        peak: peak().saturating_sub(before + opened),
        open,
        read: recovery.bytes_read,
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
    let mapped = if is_full_run() { TERABYTE } else { SMOKE };
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
