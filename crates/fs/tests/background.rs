//! What a mount does on its own. Without root and `/dev/fuse` these tests say so and do nothing.

#[path = "support/mounted.rs"]
mod mounted;

use mounted::Mount;
use std::fs::File;
use std::io::Write as _;
use std::time::Duration;
use weir_fs::check::check;
use weir_fs::fuse::{self, End};
use weir_fs::layout::Ino;
use weir_fs::layout::inode::Kind;
use weir_fs::namespace::{Durability, FileSystem, New};
use weir_fs::nvm::Mapped;

const PAGE: usize = 4096;
const INTERVAL: Duration = Duration::from_millis(50);

/// Mounts a region whose changes become durable, and whose background work is done, after each interval.
fn mount() -> Option<Mount> {
    let mut mount = Mount::new(64 << 20)?;
    mount.options.sync_interval = INTERVAL;
    mount.remount();
    Some(mount)
}

/// Appends pages, one at a time; returns the file.
fn grown(mount: &Mount, name: &str, pages: usize) -> File {
    let mut file = File::create(mount.path(name)).expect("a file");
    for _ in 0..pages {
        file.write_all(&[7; PAGE]).and_then(|()| file.sync_all()).expect("space");
    }
    file
}

/// Returns the number of free pages.
fn free(mount: &Mount) -> u64 {
    rustix::fs::statvfs(mount.path("")).expect("it is mounted").f_bfree
}

#[test]
fn what_a_file_has_ahead_of_need_is_freed() {
    let Some(mut mount) = mount() else { return };
    drop(grown(&mount, "first", 1));
    let before = free(&mount);
    let file = grown(&mount, "open", 5);
    let is_freed = (0..400).any(|_| {
        std::thread::sleep(INTERVAL);
        free(&mount) == before - 5
    });
    assert!(is_freed, "{} pages are taken for five", before - free(&mount));
    drop(file);
    // The end of the mount does not wait for an interval.
    mount.options.sync_interval = Duration::from_secs(3600);
    mount.remount();
    drop(grown(&mount, "closed", 5));
    assert_eq!(before - free(&mount), 5 + 8);
    mount.remount();
    assert_eq!(before - free(&mount), 5 + 5);
}

#[test]
fn a_file_that_is_written_over_wears_all_chunks() {
    const ROUNDS: u32 = 120;
    let Some(mut mount) = mount() else { return };
    let bytes = vec![9; 3 << 20];
    for round in 0..ROUNDS {
        let file = File::options().write(true).create(true).truncate(false).open(mount.path("hot"));
        let mut file = file.expect("a file");
        file.write_all(&bytes).and_then(|()| file.sync_all()).expect("space");
        if round % 8 == 7 {
            // The mount gets its turn.
            std::thread::sleep(4 * INTERVAL);
        }
    }
    mount.stop();
    let memory = Mapped::open(&mount.directory.path().join("region"), false).expect("it is free");
    let (_, most) = FileSystem::open_read_only(memory).expect("the file system").wear();
    // Without levelling, the chunk at the beginning of the file is written in each round.
    assert!(most < ROUNDS / 2, "a chunk was written {most} times");
}

#[test]
fn null_files_are_made() {
    let Some(mut mount) = mount() else { return };
    let before = free(&mount);
    std::thread::sleep(4 * INTERVAL);
    drop(grown(&mount, "first", 1));
    assert_eq!(before - free(&mount), 1, "they count as free");
    mount.stop();
    let memory = Mapped::open(&mount.directory.path().join("region"), false).expect("it is free");
    let fs = FileSystem::open_read_only(memory).expect("the file system");
    assert!(!fs.lacks_null_files());
}

/// What a crash left is for the next mount that may change the region.
#[test]
fn the_end_of_a_mount_that_only_reads_changes_nothing() {
    let Some(mut mount) = mount() else { return };
    mount.stop();
    let region = mount.directory.path().join("region");
    let open = |writable| Mapped::open(&region, writable).expect("it is free");
    let mut fs = FileSystem::open(open(true), Durability::Sync).expect("the file system");
    let (kind, permissions, target, attributes) = (Kind::File, 0o644, &[][..], &[][..]);
    let new = New { kind, permissions, uid: 0, gid: 0, device: 0, target, attributes };
    let (ino, _) = fs.create_file(Ino::ROOT, b"open", &new, fuse::now()).expect("space");
    fs.refer(ino);
    fs.unlink(Ino::ROOT, b"open", fuse::now()).expect("it exists");
    fs.sync().expect("no failure");
    drop(fs);
    let fs = FileSystem::open_read_only(open(false)).expect("the file system");
    let end = fuse::serve(fs, &mount.path(""), &mount.options, |stop| stop.stop());
    assert_eq!(end.expect("there is nothing to store"), End::Unmounted);
    let fs = FileSystem::open_read_only(open(false)).expect("the file system");
    assert_eq!(check(&fs).orphans, 1);
}
