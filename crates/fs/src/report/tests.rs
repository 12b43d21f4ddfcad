//! Reports of a file system in simulated memory.

use super::*;
use crate::layout::superblock::Superblock;
use crate::layout::{Geometry, Time};
use crate::namespace::{Allocate, New};
use crate::nvm::{Granule, Simulated};

fn file_system() -> FileSystem<Simulated> {
    let geometry = Geometry::new(4 << 20, Geometry::CHUNK_BYTES_MIN).expect("a possible size");
    let superblock = Superblock { geometry, uuid: [0xab; 16], hash_key: [2; 16], has_tiers: false };
    let memory = Simulated::new(4 << 20, Granule::Sector);
    let memory = FileSystem::create(memory, &superblock, (0, 0), Time::default()).expect("a new file system");
    FileSystem::open(memory, Durability::Sync).expect("the file system")
}

fn new_file(fs: &mut FileSystem<Simulated>, name: &[u8]) -> Ino {
    let kind = Kind::File;
    let new = New { kind, permissions: 0o644, uid: 0, gid: 0, device: 0, target: &[], attributes: &[] };
    fs.create_file(Ino::ROOT, name, &new, Time::default()).expect("space").0
}

#[test]
fn status_counts_space_and_files() {
    let mut fs = file_system();
    let before = Status::of(&fs, Path::new("region"), Durability::Sync, None);
    let ino = new_file(&mut fs, b"file");
    fs.write(ino, 0, &[1; 8192], Time::default()).expect("space");
    fs.sync().expect("no failure");
    let after = Status::of(&fs, Path::new("region"), Durability::Sync, None);
    assert_eq!((after.files, after.region_bytes), (before.files + 1, 4 << 20));
    // Beside the file, its directory entry may have taken a page.
    let taken = after.used_bytes - before.used_bytes;
    assert!((8192..=3 * 8192).contains(&taken), "{taken}");
    assert_eq!(after.used_bytes + after.free_bytes, after.usable_bytes);
    assert_eq!(after.id, "ab".repeat(16));
}

#[test]
fn explanations_list_ranges_and_leave_out_holes() {
    let mut fs = file_system();
    let ino = new_file(&mut fs, b"file");
    let explain = |fs: &FileSystem<Simulated>| Explanation::of(fs, ino).expect("it exists");
    let empty = explain(&fs);
    assert_eq!((empty.form.as_str(), empty.ranges.len(), empty.allocated_bytes), ("empty", 0, 0));
    fs.write(ino, 0, &[7; 5000], Time::default()).expect("space");
    let run = explain(&fs);
    assert_eq!((run.form.as_str(), run.size_bytes, run.ranges.len()), ("run", 5000, 1));
    let mut found = [0; 5000];
    fs.store().load_data(run.ranges[0].region_offset_bytes, &mut found);
    assert_eq!(found, [7; 5000], "the bytes are where the explanation says");
    fs.write(ino, 640 << 10, &[8; 100], Time::default()).expect("space");
    fs.allocate(ino, 1 << 20..1100 << 10, Allocate::Space { keep_size: false }, Time::default())
        .expect("space");
    let chunks = explain(&fs);
    assert_eq!(chunks.form, "chunks");
    let starts: Vec<_> = chunks.ranges.iter().map(|range| (range.offset_bytes, range.unwritten)).collect();
    assert_eq!(starts[..3], [(0, false), (640 << 10, false), (1 << 20, true)]);
    let mut found = [0; 100];
    fs.store().load_data(chunks.ranges[1].region_offset_bytes, &mut found);
    assert_eq!(found, [8; 100]);
}

/// An attribute holds 64 KiB; the longest explanation must fit.
#[test]
fn the_longest_explanation_fits_into_an_attribute() {
    let range = RangePart {
        offset_bytes: u64::MAX,
        length_bytes: u64::MAX,
        region_offset_bytes: u64::MAX,
        unwritten: false,
        wear: u32::MAX,
    };
    let mut longest = Explanation::of(&file_system(), Ino::ROOT).expect("the root");
    longest.ranges = vec![range; RANGES_MAX];
    let bytes = serde_json::to_vec(&longest).expect("JSON").len();
    assert!(bytes < BYTES_MAX, "{bytes}");
}
