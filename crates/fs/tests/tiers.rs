//! Files that move between region and tiers while programs use them, on a mounted file system. Without root
//! and `/dev/fuse` these tests say so and do nothing.

#[path = "support/mounted.rs"]
mod mounted;

use mounted::Mount;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_fs::report::{EXPLAIN, Explanation, STATUS, Status};

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
    moves_beside_writes(Mount::with_tiers(24 << 20));
    moves_beside_writes(Mount::without_passthrough(24 << 20));
}

fn moves_beside_writes(mount: Option<Mount>) {
    let Some(mut mount) = mount else { return };
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

fn ask<T: serde::de::DeserializeOwned>(path: &Path, attribute: &str) -> T {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::getxattr(path, attribute, &mut value[..]).expect("a report");
    serde_json::from_slice(&value[..len]).expect("JSON")
}

fn form(path: &Path) -> String {
    ask::<Explanation>(path, EXPLAIN).form
}

fn command(path: &Path, command: &str) {
    rustix::fs::setxattr(path, command, b"", XattrFlags::empty()).expect("it is moved");
}

/// Waits until a condition holds.
#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_region_is_emptied_before_it_is_full() {
    let Some(mount) = Mount::with_tiers(64 << 20) else { return };
    let used = || {
        let status: Status = ask(&mount.path(""), STATUS);
        status.used_bytes as f64 / status.usable_bytes as f64
    };
    let mut number = 0;
    // Not above the upper watermark for long: the thread that evicts looks ten times a second.
    while mount.containers() == 0 && used() < 0.92 {
        for _ in 0..8 {
            fs::write(mount.path(&format!("file-{number}")), vec![7; 64 << 10]).expect("space");
            number += 1;
        }
    }
    wait_for("files are evicted before the region is full", || mount.containers() > 0);
    wait_for("it stops between the watermarks", || used() < 0.86);
    assert!(used() > 0.80, "no more is evicted than needed: {}", used());
    // The first ones were not accessed for longest.
    assert_eq!(form(&mount.path("file-0")), "container");
    assert_ne!(form(&mount.path(&format!("file-{}", number - 1))), "container");
}

#[test]
fn a_file_that_turns_hot_returns_to_the_region() {
    let Some(mount) = Mount::without_passthrough(32 << 20) else { return };
    let path = mount.path("file");
    fs::write(&path, vec![7; 200_000]).expect("space");
    command(&path, "weir.evict");
    // Past the kernel's cache.
    let flags = OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).expect("the file");
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, 0).expect("a read");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(form(&path), "container", "one access is not enough");
    file.read_exact_at(&mut bytes, 0).expect("a read");
    wait_for("it is promoted", || form(&path) != "container");
    drop(file);
    assert!(fs::read(&path).expect("the file") == vec![7; 200_000]);
    wait_for("its container is removed", || mount.containers() == 0);
}

#[test]
fn space_requests_reach_the_container() {
    space_requests(Mount::with_tiers(32 << 20));
    space_requests(Mount::without_passthrough(32 << 20));
}

fn space_requests(mount: Option<Mount>) {
    let Some(mut mount) = mount else { return };
    let path = mount.path("file");
    fs::write(&path, vec![7; MIB]).expect("space");
    command(&path, "weir.evict");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("the file");
    let allocate = |flags, at: usize, len: usize| rustix::fs::fallocate(&file, flags, at as u64, len as u64);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    allocate(punch, 65_536, 131_072).expect("a hole");
    allocate(FallocateFlags::ZERO_RANGE, 300_000, 5000).expect("zeros");
    allocate(FallocateFlags::KEEP_SIZE, MIB, MIB).expect("space");
    assert_eq!(file.metadata().expect("it").len(), MIB as u64);
    allocate(FallocateFlags::empty(), MIB, 4096).expect("space");
    let mut expected = vec![7; MIB];
    expected[65_536..196_608].fill(0);
    expected[300_000..305_000].fill(0);
    expected.resize(MIB + 4096, 0);
    let seek = |to| rustix::fs::seek(&file, to).expect("an offset");
    assert_eq!((seek(SeekFrom::Hole(0)), seek(SeekFrom::Data(65_536))), (65_536, 196_608));
    assert_eq!(seek(SeekFrom::Data(0)), 0);
    file.set_len(10).expect("shorter");
    file.set_len(100_000).expect("longer");
    let mut short = vec![0; 100_000];
    short[..10].fill(7);
    let copy = mount.path("copy");
    assert!(fs::read(&path).expect("the file") == short, "what was cut off does not come back");
    fs::write(&path, &expected).expect("space");
    command(&path, "weir.evict");
    fs::copy(&path, copy).expect("a copy");
    drop(file);
    mount.remount();
    for name in ["file", "copy"] {
        assert!(fs::read(mount.path(name)).expect("the file") == expected, "{name}");
    }
    assert!(mount.path("file").metadata().expect("it").blocks() >= 2000);
}

/// The space of a file system is that of its region and that below.
#[test]
fn statistics_have_the_space_of_tiers() {
    let Some(mount) = Mount::with_tiers(32 << 20) else { return };
    let [all, below] = [mount.path(""), mount.directory.path().to_owned()]
        .map(|path| rustix::fs::statvfs(path).expect("it is there"));
    let (bytes, free) = (all.f_blocks * all.f_frsize, all.f_bfree * all.f_frsize);
    assert!(bytes >= below.f_blocks * below.f_frsize && all.f_bavail == all.f_bfree);
    // Others may write there meanwhile.
    assert!(free >= below.f_bavail * below.f_frsize / 10 * 9, "{free} bytes");
}

/// Changes of the last moment, too, are in the headers by which files are rescued.
#[test]
fn headers_are_current_after_an_unmount() {
    let Some(mut mount) = Mount::with_tiers(32 << 20) else { return };
    fs::create_dir(mount.path("old")).expect("space");
    let files = ["old/changed", "old/same"].map(|name| {
        fs::write(mount.path(name), vec![7; MIB]).expect("space");
        command(&mount.path(name), "weir.evict");
        ask::<Explanation>(&mount.path(name), EXPLAIN).container.expect("it was evicted").path
    });
    let headers = || {
        files.each_ref().map(|path| {
            let mut text = vec![0; 4096];
            let len = rustix::fs::getxattr(path, "user.weir.file", &mut text[..]).expect("a header");
            String::from_utf8_lossy(&text[..len]).into_owned()
        })
    };
    wait_for("headers are written", || headers().iter().all(|header| header.contains("path old/")));
    // Until nothing is to be done for them.
    std::thread::sleep(Duration::from_millis(1200));
    fs::set_permissions(mount.path("old/changed"), fs::Permissions::from_mode(0o400)).expect("a file");
    fs::rename(mount.path("old"), mount.path("new")).expect("a directory");
    mount.stop();
    let [changed, same] = headers();
    assert!(changed.contains("mode 100400\n") && changed.ends_with("path new/changed"), "{changed}");
    assert!(same.ends_with("path new/same"), "{same}");

    // After a crash, nothing says which are old.
    let old = changed.replace("mode 100400", "mode 100644");
    rustix::fs::setxattr(&files[0], "user.weir.file", old.as_bytes(), XattrFlags::REPLACE).expect("a header");
    mount.start();
    wait_for("the header is compared", || headers()[0] == changed);
    mount.stop();
    assert_eq!(headers(), [changed, same]);
}
