//! Files that move between region and tiers while programs use them, on a mounted file system. Without root and
//! `/dev/fuse` these tests say so and do nothing.

#[path = "support/mounted.rs"]
mod mounted;

use mounted::Mount;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::fs::XattrFlags;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const MIB: usize = 1 << 20;
const FILE_BYTES_MAX: usize = 3 * MIB;

/// Writes at random to a file and to a copy in memory, and compares what it reads.
fn write_at_random(path: &Path, seed: u64, operations: u32) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed);
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
    let mut copy: Vec<u8> = Vec::new();
    for number in 0..operations {
        let (at, len) = (random.random_range(0..FILE_BYTES_MAX), random.random_range(1..200_000));
        match random.random_range(0..10) {
            0 => {
                copy.resize(at, 0);
                file.set_len(at as u64).expect("a size");
            }
            1..3 => {
                let mut out = vec![0; len];
                let read = file.read_at(&mut out, at as u64).expect("a read");
                let expected = copy.get(at..copy.len().min(at + len)).unwrap_or_default();
                assert!(read <= expected.len() && out[..read] == expected[..read], "operation {number}");
            }
            3 => file.sync_data().expect("durable"),
            _ => {
                let bytes = vec![random.random(); len];
                file.write_all_at(&bytes, at as u64).expect("space below the region");
                copy.resize(copy.len().max(at + len), 0);
                copy[at..at + len].copy_from_slice(&bytes);
            }
        }
    }
    copy
}

#[test]
fn moves_beside_writes_lose_nothing() {
    let Some(mut mount) = Mount::with_tiers(24 << 20) else { return };
    let paths: Vec<_> = (0..4).map(|number| mount.path(&format!("file-{number}"))).collect();
    paths.iter().for_each(|path| drop(File::create(path).expect("a file")));
    let (is_done, moves) = (AtomicBool::new(false), AtomicU32::new(0));
    let copies: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = SmallRng::seed_from_u64(9);
            while !is_done.load(Ordering::Relaxed) {
                let command = ["weir.evict", "weir.promote"][random.random_range(0..2)];
                let path = &paths[random.random_range(0..paths.len())];
                // A file that is written all the time may be busy.
                let moved = rustix::fs::setxattr(path, command, b"", XattrFlags::empty());
                moves.fetch_add(u32::from(moved.is_ok()), Ordering::Relaxed);
            }
        });
        let writers: Vec<_> = (0..)
            .zip(&paths)
            .map(|(seed, path)| scope.spawn(move || write_at_random(path, seed, 400)))
            .collect();
        let copies = writers.into_iter().map(|writer| writer.join().expect("no difference")).collect();
        is_done.store(true, Ordering::Relaxed);
        copies
    });
    assert!(moves.load(Ordering::Relaxed) > 20, "{moves:?} moves");
    // Without the kernel's cache.
    mount.remount();
    for (path, copy) in paths.iter().zip(&copies) {
        assert!(fs::read(path).expect("the file") == *copy, "{}", path.display());
    }
}

#[test]
fn a_tree_larger_than_the_region_is_copied_back_the_same() {
    let Some(mut mount) = Mount::with_tiers(16 << 20) else { return };
    let script = "
        mkdir tree
        for number in $(seq 40); do
            mkdir tree/$number
            head -c $((number * 40000)) /dev/urandom > tree/$number/large
            seq $((number * 10)) > tree/$number/small
        done
        cp -a tree copy
        diff -r tree copy
        tar -cf archive.tar tree";
    if !mount.script(&["diff", "tar"], script) {
        return;
    }
    mount.remount();
    mount.script(
        &["diff", "tar"],
        "
        diff -r tree copy
        mkdir again
        tar -xf archive.tar -C again
        diff -r tree again/tree
        test $(stat -c %b tree/40/large) -ge 3000
        rm -r tree copy again archive.tar",
    );
    mount.remount();
    assert_eq!(mount.containers(), 0, "no container is left of files that were removed");
}
