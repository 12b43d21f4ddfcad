//! The file system over memory that is mapped by pages of 4 KiB and of 2 MiB: throughput by size of records.
//!
//! One file of 512 MiB in a region of 640 MiB is read and written by records, in order and at random, each
//! record once. Two regions, one for each size of pages, take turns to be first; the medians of five rounds
//! count. TLB misses are not counted: that takes counters of the processor.
//!
//! `bench/fs-pages` runs it on a tmpfs that grants large pages. As a test it takes a file of 4 MiB, and one
//! round, wherever temporary files are.
#![allow(clippy::disallowed_types, reason = "a benchmark reads the clock")]
#![allow(clippy::disallowed_macros, reason = "a benchmark prints its figures")]

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use std::path::{Path, PathBuf};
use std::time::Instant;
use weir_fs::layout::inode::Kind;
use weir_fs::layout::superblock::Superblock;
use weir_fs::layout::{Geometry, Ino, Time};
use weir_fs::namespace::{Durability, FileSystem, New};
use weir_fs::nvm::{Mapped, MappedPages};

const NEW: New<'static> =
    New { kind: Kind::File, permissions: 0o644, uid: 0, gid: 0, device: 0, target: &[], attributes: &[] };
/// Binary logarithms of the sizes of records: 4 KiB to 16 MiB.
const RECORDS: std::ops::RangeInclusive<u32> = 12..=24;
const RECORD_MAX: u64 = 1 << *RECORDS.end();
const ROUNDS: usize = 5;
const PAGES: [(&str, MappedPages); 2] = [("4 KiB", MappedPages::Small), ("2 MiB", MappedPages::Large)];
const PATTERNS: [(&str, bool, bool); 4] = [
    ("sequential read", false, false),
    ("sequential write", false, true),
    ("random read", true, false),
    ("random write", true, true),
];

/// A region with one file.
struct Bed {
    fs: FileSystem<Mapped>,
    file: Ino,
    bytes: u64,
}

impl Bed {
    /// Creates a region in this directory, as weir does or with small pages, and the file system with its
    /// file.
    fn new(bytes: u64, pages: MappedPages, directory: &Path) -> Self {
        let size = (bytes + bytes / 4).max(32 << 20);
        let path = directory.join(format!("pages-{pages:?}.region"));
        let start = Instant::now();
        match pages {
            MappedPages::Small => {
                let file = std::fs::File::create(&path).expect("a new region");
                rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size).expect("space");
            }
            MappedPages::Large | MappedPages::Collapsed => {
                drop(Mapped::create(&path, size, true).expect("a new region"));
            }
        }
        println!("{pages:?}: created in {:.3} s, {} MiB", start.elapsed().as_secs_f64(), size >> 20);
        let memory = Mapped::open(&path, true).expect("the region");
        if pages == MappedPages::Small {
            memory.ask_for(pages).expect("the kernel has small pages");
        }
        std::fs::remove_file(path).expect("it exists");
        let geometry = Geometry::new(size, Geometry::CHUNK_BYTES).expect("a possible size");
        let superblock = Superblock { geometry, uuid: [1; 16], hash_key: [2; 16], has_tiers: false };
        let now = Time::default();
        let memory = FileSystem::create(memory, &superblock, (0, 0), now).expect("a new file system");
        let mut fs = FileSystem::open(memory, Durability::Sync).expect("it was just created");
        let (file, _) = fs.create_file(Ino::ROOT, b"file", &NEW, now).expect("a new file");
        let part = vec![1; 1 << 20];
        for at in (0..bytes).step_by(part.len()) {
            fs.write(file, at, &part, now).expect("space");
        }
        fs.sync().expect("no failure");
        Self { fs, file, bytes }
    }

    /// Reads or writes all records; returns bytes a second.
    fn run(&mut self, record: u64, is_random: bool, is_write: bool, buffer: &mut [u8], seed: u64) -> f64 {
        let mut records: Vec<u64> = (0..self.bytes / record).collect();
        if is_random {
            records.shuffle(&mut rand::rngs::SmallRng::seed_from_u64(seed));
        }
        let buffer = &mut buffer[..record as usize];
        let start = Instant::now();
        for nth in &records {
            let done = match is_write {
                true => self.fs.write(self.file, nth * record, buffer, Time::default()),
                false => self.fs.read(self.file, nth * record, buffer),
            };
            assert_eq!(done.expect("no failure"), buffer.len());
        }
        (records.len() as u64 * record) as f64 / start.elapsed().as_secs_f64()
    }
}

/// Returns the bytes that are mapped by large pages, as the kernel says.
fn mapped_by_large_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let counted = text.lines().filter_map(|line| line.split_once("PmdMapped:"));
    let kib = counted.filter_map(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.sum::<u64>() << 10
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is_test = !arguments.iter().any(|one| one == "--bench");
    let given = arguments.iter().position(|one| one == "--directory").and_then(|at| arguments.get(at + 1));
    let directory = given.map_or_else(std::env::temp_dir, PathBuf::from);
    let (bytes, rounds) = if is_test { (4 << 20, 1) } else { (512 << 20, ROUNDS) };
    let mut beds = PAGES.map(|(_, pages)| Bed::new(bytes, pages, &directory));
    println!("file of {} MiB; {} MiB by large pages", bytes >> 20, mapped_by_large_pages() >> 20);
    println!("{:<18}{:>10}{:>12}{:>12}{:>8}", "", "record", "4 KiB", "2 MiB", "ratio");
    let mut buffer = vec![2; RECORD_MAX as usize];
    for (name, is_random, is_write) in PATTERNS {
        for record in RECORDS.map(|log| 1 << log).filter(|record| *record <= bytes) {
            for bed in &mut beds {
                bed.run(record, is_random, is_write, &mut buffer, 0);
            }
            let mut rates = [const { Vec::new() }; 2];
            for round in 0..rounds {
                for turn in 0..beds.len() {
                    let which = (turn + round) % beds.len();
                    let rate = beds[which].run(record, is_random, is_write, &mut buffer, round as u64);
                    rates[which].push(rate);
                }
            }
            let [small, large] = rates.map(median);
            let (kib, [one, two]) = (record >> 10, [small, large].map(|rate| rate / 1e9));
            println!("{name:<18}{kib:>6} KiB{one:>7.2} GB/s{two:>7.2} GB/s{:>8.2}", two / one);
        }
    }
}
