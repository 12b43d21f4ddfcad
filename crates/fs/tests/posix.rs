//! What POSIX and Linux's manual demand of operations, on a mounted file system. Without root and `/dev/fuse`
//! these tests say so and do nothing.

#[path = "support/mounted.rs"]
mod mounted;

use mounted::{Mount, errno};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, RenameFlags, Timespec, Timestamps,
};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{
    FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn write(path: impl AsRef<Path>, bytes: &[u8]) {
    fs::write(path, bytes).expect("space");
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

fn raw<T>(result: rustix::io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error())
}

/// rename(): names of one file are left alone; what it replaces must be of the same kind and empty.
#[test]
fn rename_replaces_by_kind() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let path = |name: &str| mount.path(name);
    write(path("a"), b"a");
    fs::hard_link(path("a"), path("b")).expect("a link");
    fs::rename(path("a"), path("b")).expect("both are one file");
    assert_eq!(names(&path("")), ["a", "b"].map(str::to_owned).into(), "nothing was done");
    for directory in ["empty", "full", "full/sub", "moved"] {
        fs::create_dir(path(directory)).expect("a directory");
    }
    assert_eq!(errno(fs::rename(path("a"), path("empty"))), libc::EISDIR);
    assert_eq!(errno(fs::rename(path("empty"), path("a"))), libc::ENOTDIR);
    assert_eq!(errno(fs::rename(path("empty"), path("full"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::rename(path("full"), path("full/sub/x"))), libc::EINVAL);
    assert_eq!(errno(fs::rename(path("none"), path("x"))), libc::ENOENT);
    let links = |name: &str| fs::metadata(path(name)).expect("it").nlink();
    assert_eq!((links("full"), links("empty")), (3, 2));
    fs::rename(path("full/sub"), path("empty")).expect("it is empty");
    assert_eq!((links("full"), links("empty"), links("")), (2, 2, 5));
    fs::rename(path("moved"), path("full/moved")).expect("it moves");
    assert_eq!((links("full"), links("")), (3, 4));
    let parent = fs::metadata(path("full/moved/..")).expect("it").ino();
    assert_eq!(parent, fs::metadata(path("full")).expect("it").ino(), ".. is the new directory");
    mount.remount();
}

/// renameat2(): RENAME_NOREPLACE, RENAME_EXCHANGE.
#[test]
fn rename_flags() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let path = |name: &str| mount.path(name);
    let rename =
        |from: &str, to: &str, flags| raw(rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags));
    write(path("file"), b"file");
    fs::create_dir_all(path("d/sub")).expect("directories");
    assert_eq!(rename("file", "d", RenameFlags::NOREPLACE), libc::EEXIST);
    assert_eq!(rename("file", "d/file", RenameFlags::NOREPLACE), 0);
    assert_eq!(rename("d/file", "none", RenameFlags::EXCHANGE), libc::ENOENT);
    assert_eq!(rename("d", "d/sub", RenameFlags::EXCHANGE), libc::EINVAL);
    write(path("top"), b"top");
    assert_eq!(rename("top", "d/sub", RenameFlags::EXCHANGE), 0);
    assert!(path("top").is_dir());
    assert_eq!(fs::read(path("d/sub")).expect("a file"), b"top");
    let links = |name: &str| fs::metadata(path(name)).expect("it").nlink();
    assert_eq!((links("d"), links("")), (2, 4));
    assert_eq!(rename("top", "x", RenameFlags::WHITEOUT), libc::EINVAL);
    mount.remount();
}

/// The times that each operation marks for update.
#[test]
fn operations_update_times() {
    let Some(mount) = Mount::new(64 << 20) else { return };
    let path = |name: &str| mount.path(name);
    let times = |path: &Path| {
        let it = fs::metadata(path).expect("it");
        ((it.mtime(), it.mtime_nsec()), (it.ctime(), it.ctime_nsec()))
    };
    // Returns whether the contents' and the inode's time changed.
    let changed = |path: &Path, operation: &dyn Fn()| {
        let before = times(path);
        std::thread::sleep(Duration::from_millis(3));
        operation();
        let after = times(path);
        (before.0 != after.0, before.1 != after.1)
    };
    let (root, file) = (path(""), path("file"));
    assert_eq!(changed(&root, &|| write(&file, b"")), (true, true), "create: the directory");
    assert_eq!(changed(&file, &|| write(&file, b"x")), (true, true), "write");
    let open = OpenOptions::new().write(true).open(&file).expect("a file");
    assert_eq!(changed(&file, &|| open.set_len(100).expect("space")), (true, true), "ftruncate");
    let mode = fs::Permissions::from_mode(0o600);
    assert_eq!(
        changed(&file, &|| fs::set_permissions(&file, mode.clone()).expect("ours")),
        (false, true),
        "chmod"
    );
    assert_eq!(
        changed(&file, &|| fs::hard_link(&file, path("link")).expect("a link")),
        (false, true),
        "link"
    );
    assert_eq!(
        changed(&file, &|| fs::remove_file(path("link")).expect("it")),
        (false, true),
        "unlink: the file"
    );
    assert_eq!(changed(&root, &|| fs::rename(&file, path("new")).expect("it")), (true, true), "rename");
    assert_eq!(changed(&root, &|| fs::create_dir(path("d")).expect("space")), (true, true), "mkdir");
    assert_eq!(changed(&root, &|| fs::remove_dir(path("d")).expect("empty")), (true, true), "rmdir");
    assert_eq!(changed(&path("new"), &|| drop(fs::read(path("new")))), (false, false), "read");
}

/// utimensat(): nanoseconds, UTIME_OMIT, times before 1970 and after 2106.
#[test]
fn times_have_nanoseconds_and_64_bits() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let set = |seconds, nanos, omit: bool| {
        let accessed = Timespec { tv_sec: seconds, tv_nsec: nanos };
        let modified =
            Timespec { tv_sec: seconds, tv_nsec: if omit { rustix::fs::UTIME_OMIT } else { nanos } };
        let times = Timestamps { last_access: accessed, last_modification: modified };
        rustix::fs::utimensat(CWD, mount.path("f"), &times, AtFlags::empty()).expect("ours");
    };
    write(mount.path("f"), b"");
    set(-5, 123_456_789, false);
    set(1 << 33, 999_999_999, true);
    let read = |mount: &Mount| {
        let it = fs::metadata(mount.path("f")).expect("it");
        [(it.atime(), it.atime_nsec()), (it.mtime(), it.mtime_nsec())]
    };
    let expected = [(1 << 33, 999_999_999), (-5, 123_456_789)];
    assert_eq!(read(&mount), expected);
    mount.remount();
    assert_eq!(read(&mount), expected);
}

/// mknod(), mkfifo(), sockets: types and device numbers stay, and pipes work.
#[test]
fn special_files() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let device = rustix::fs::makedev(300, 70_000);
    let make = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, mount.path(name), kind, Mode::from_raw_mode(0o600), device).expect("space");
    };
    make("char", FileType::CharacterDevice, device);
    make("block", FileType::BlockDevice, rustix::fs::makedev(7, 1));
    make("fifo", FileType::Fifo, 0);
    let socket = std::os::unix::net::UnixListener::bind(mount.path("socket")).expect("a socket");
    let fifo = mount.path("fifo");
    let writer = std::thread::spawn(move || fs::write(fifo, b"through"));
    let mut text = String::new();
    File::open(mount.path("fifo")).and_then(|mut fifo| fifo.read_to_string(&mut text)).expect("a pipe");
    assert_eq!(text, "through");
    writer.join().expect("it ends").expect("a pipe");
    assert!(std::os::unix::net::UnixStream::connect(mount.path("socket")).is_ok());
    drop(socket);
    mount.remount();
    let kind = |name: &str| fs::metadata(mount.path(name)).expect("it");
    assert!(kind("char").file_type().is_char_device() && kind("block").file_type().is_block_device());
    assert!(kind("fifo").file_type().is_fifo() && kind("socket").file_type().is_socket());
    assert_eq!((kind("char").rdev(), kind("block").rdev()), (device, rustix::fs::makedev(7, 1)));
}

/// Names and link targets of the longest lengths.
#[test]
fn longest_names() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let name = |letter: char| std::iter::repeat_n(letter, 255).collect::<String>();
    let (a, b) = (name('a'), name('b'));
    fs::create_dir(mount.path(&a)).expect("255 bytes");
    std::os::unix::fs::symlink(&a, mount.path(&b)).expect("255 bytes");
    write(mount.path(&b).join(name('c')), b"deep");
    let target = "t".repeat(4095);
    std::os::unix::fs::symlink(&target, mount.path("long")).expect("4095 bytes");
    assert_eq!(errno(fs::create_dir(mount.path(&"d".repeat(256)))), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::rename(mount.path(&a), mount.path(&"d".repeat(256)))), libc::ENAMETOOLONG);
    mount.remount();
    assert_eq!(fs::read(mount.path(&a).join(name('c'))).expect("it"), b"deep");
    assert_eq!(fs::read_link(mount.path("long")).expect("it"), PathBuf::from(&target));
    assert_eq!(fs::symlink_metadata(mount.path("long")).expect("it").len(), 4095);
}

/// open(): flags that decide what it finds.
#[test]
fn open_flags() {
    let Some(mount) = Mount::new(64 << 20) else { return };
    let path = |name: &str| mount.path(name);
    write(path("file"), b"contents");
    std::os::unix::fs::symlink("file", path("link")).expect("space");
    let open =
        |name: &str, flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path(name));
    assert_eq!(errno(OpenOptions::new().write(true).create_new(true).open(path("file"))), libc::EEXIST);
    assert_eq!(errno(open("link", libc::O_NOFOLLOW)), libc::ELOOP);
    assert_eq!(errno(File::open(path("file/x"))), libc::ENOTDIR);
    let directory = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path("file"));
    assert_eq!(errno(directory), libc::ENOTDIR);
    let append = || OpenOptions::new().append(true).open(path("file")).expect("it");
    let (mut one, mut two) = (append(), append());
    for _ in 0..3 {
        one.write_all(b"1").expect("space");
        two.write_all(b"2").expect("space");
    }
    assert_eq!(fs::read(path("file")).expect("it"), b"contents121212");
    drop(OpenOptions::new().write(true).truncate(true).open(path("link")).expect("through the link"));
    assert_eq!(fs::metadata(path("file")).expect("it").len(), 0);
}

/// flock() and fcntl() locks exclude other open files, and end with them.
#[test]
fn locks_exclude() {
    let Some(mount) = Mount::new(64 << 20) else { return };
    write(mount.path("f"), b"");
    let open = || OpenOptions::new().read(true).write(true).open(mount.path("f")).expect("it");
    let (one, two) = (open(), open());
    rustix::fs::flock(&one, FlockOperation::LockExclusive).expect("free");
    assert_eq!(raw(rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared)), libc::EWOULDBLOCK);
    drop(one);
    // A program that another test starts keeps the file open until it runs.
    let is_free = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared).is_ok()
    });
    assert!(is_free, "the lock ended with its file");
    let script = "flock -x f sh -c 'if flock -n -x f true; then exit 1; fi'; flock -n -x g true";
    drop(two);
    mount.script(&["flock"], script);
}

/// copy_file_range(): within and between files, up to the source's end.
#[test]
fn copies_of_ranges() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let file = |name: &str| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(mount.path(name))
            .expect("it")
    };
    let (source, target) = (file("source"), file("target"));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    source.write_all_at(&bytes, 0).expect("space");
    // A call may copy less than it is asked for, as a read may.
    // One request holds up others, so that it copies no more than one of a write.
    let once = rustix::fs::copy_file_range(&source, Some(&mut 5), &target, Some(&mut 4_000_000), 1_500_000);
    assert!(once.is_ok_and(|len| (1..=1 << 20).contains(&len)), "{once:?}");
    let copy = |from: &File, at: u64, to: &File, to_at: u64, len: usize| {
        let (mut at, mut to_at, mut done) = (at, to_at, 0);
        while done < len {
            match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut to_at), len - done)? {
                0 => break,
                more => done += more,
            }
        }
        Ok(done)
    };
    assert_eq!(copy(&source, 5, &target, 4_000_000, 1_500_000), Ok(1_500_000));
    assert_eq!(copy(&source, 2_999_990, &target, 0, 100), Ok(10), "the source ends");
    assert_eq!(copy(&source, 3_000_000, &target, 0, 100), Ok(0));
    assert_eq!(copy(&source, 0, &source, 10, 100), Err(rustix::io::Errno::INVAL), "the ranges overlap");
    assert_eq!(copy(&source, 0, &source, 3_000_000, 1000), Ok(1000));
    drop((source, target));
    mount.remount();
    let found = fs::read(mount.path("target")).expect("it");
    assert!(found[..10] == bytes[2_999_990..] && found[10..4_000_000].iter().all(|byte| *byte == 0));
    assert!(found[4_000_000..] == bytes[5..1_500_005]);
    assert!(fs::read(mount.path("source")).expect("it")[3_000_000..] == bytes[..1000]);
}

/// fallocate(): each mode's effect on size, space and contents.
#[test]
fn allocation_modes() {
    let Some(mount) = Mount::new(64 << 20) else { return };
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("f")).expect("space");
    let state = || {
        let it = file.metadata().expect("it");
        (it.len(), it.blocks() * 512)
    };
    let allocate = |flags, at, len| raw(rustix::fs::fallocate(&file, flags, at, len));
    assert_eq!(allocate(FallocateFlags::KEEP_SIZE, 0, 8 << 20), 0);
    let (len, space) = state();
    assert!(len == 0 && space >= 8 << 20, "{space}");
    assert_eq!(allocate(FallocateFlags::empty(), 0, 6 << 20), 0);
    assert_eq!(state().0, 6 << 20);
    file.write_all_at(&vec![7; 6 << 20], 0).expect("allocated");
    assert_eq!(allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 << 20, 4 << 20), 0);
    assert!(state().1 < space, "whole chunks are free");
    assert_eq!(allocate(FallocateFlags::ZERO_RANGE, 100, 50), 0);
    let mut bytes = vec![0; 6 << 20];
    file.read_exact_at(&mut bytes, 0).expect("it");
    let is_zero = |at: usize| (1 << 20..5 << 20).contains(&at) || (100..150).contains(&at);
    assert!((0..6 << 20).all(|at| bytes[at] == if is_zero(at) { 0 } else { 7 }));
    assert_eq!(allocate(FallocateFlags::COLLAPSE_RANGE, 0, 4096), libc::EOPNOTSUPP);
    assert_eq!(allocate(FallocateFlags::empty(), 0, 1 << 30), libc::ENOSPC);
    assert_eq!(state().0, 6 << 20, "a failure does not change the size");
}

/// readdir(): each entry once, whatever is removed and added meanwhile.
#[test]
fn listing_while_the_directory_changes() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let directory = mount.path("d");
    fs::create_dir(&directory).expect("space");
    (0..3000).for_each(|number| write(directory.join(format!("f{number}")), b""));
    let mut seen = BTreeSet::new();
    for (at, entry) in fs::read_dir(&directory).expect("it").enumerate() {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        if name.starts_with('f') {
            fs::remove_file(directory.join(&name)).expect("it is there");
            assert!(seen.insert(name), "an entry is there twice");
        }
        if at % 3 == 0 {
            write(directory.join(format!("new{at}")), b"");
        }
    }
    assert_eq!(seen.len(), 3000, "an entry that stays is listed");
    assert!(names(&directory).iter().all(|name| name.starts_with("new")));
    fs::remove_dir_all(&directory).expect("it can be emptied");
    mount.remount();
}

/// statvfs() follows what is written and removed.
#[test]
fn statistics_follow_use() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let statistics = |mount: &Mount| rustix::fs::statvfs(mount.path("")).expect("it");
    let before = statistics(&mount);
    assert_eq!((before.f_namemax, before.f_bsize), (255, 4096));
    assert!(before.f_blocks * before.f_frsize <= 64 << 20);
    write(mount.path("f"), &vec![1; 8 << 20]);
    let after = statistics(&mount);
    let taken = (before.f_bfree - after.f_bfree) * after.f_frsize;
    assert!((8 << 20..9 << 20).contains(&taken), "{taken}");
    fs::remove_file(mount.path("f")).expect("it");
    mount.remount();
    assert!(statistics(&mount).f_bfree + 16 >= before.f_bfree);
}

/// A full region: every operation that needs space says so, and what exists stays whole.
#[test]
fn a_full_region_refuses_each_operation() {
    let Some(mut mount) = Mount::new(16 << 20) else { return };
    fs::create_dir(mount.path("d")).expect("space");
    write(mount.path("kept"), b"kept");
    let mut fill = File::create(mount.path("fill")).expect("space");
    for len in [1 << 20, 4096, 1] {
        while fill.write_all(&vec![5; len]).is_ok() {}
    }
    // Pages are left where chunks are not: small files take them.
    let mut made = 0;
    let error = loop {
        match fs::write(mount.path(&format!("d/{made}")), [1; 4096]) {
            Ok(()) => made += 1,
            Err(error) => break error.raw_os_error(),
        }
        assert!(made < 100_000, "a region of 16 MiB is full");
    };
    assert_eq!(error, Some(libc::ENOSPC));
    assert_eq!(fs::read(mount.path("kept")).expect("it"), b"kept");
    fs::rename(mount.path("kept"), mount.path("renamed")).expect("it needs no space");
    fs::remove_file(mount.path("fill")).expect("it needs no space");
    drop(fill);
    mount.remount();
    write(mount.path("after"), &vec![3; 1 << 20]);
    assert_eq!(fs::read(mount.path("renamed")).expect("it"), b"kept");
    fs::remove_dir_all(mount.path("d")).expect("it");
    mount.remount();
    assert_eq!(names(&mount.path("")), ["after", "renamed"].map(str::to_owned).into());
}

/// All of this again, while files move to containers, which the kernel or the server reads and writes. Left
/// out is what depends on the space of the region, and what would take long.
#[test]
fn files_in_containers_behave_the_same() {
    if std::env::var_os("WEIR_FS_FILES").is_some() {
        return;
    }
    for files in ["passthrough", "requests"] {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(
                ["a_full_region", "statistics", "allocation", "listing"]
                    .map(|name| ["--skip", name])
                    .as_flattened(),
            )
            .env("WEIR_FS_FILES", files)
            .output()
            .expect("this program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(" passed; 0 failed"), "{files}:\n{text}");
    }
}
