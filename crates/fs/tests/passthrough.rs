//! Files in containers that the kernel reads and writes without the server. Without root and `/dev/fuse`, or
//! with a kernel that lacks passthrough, these tests say so and do nothing.

#[path = "support/mounted.rs"]
mod mounted;

use mounted::{Mount, serve_in_process};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, XattrFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant, SystemTime};
use weir_fs::report::{EXPLAIN, Explanation, STATUS, Status};

const LEN: usize = 300_000;

fn ask<T: serde::de::DeserializeOwned>(path: &Path, attribute: &str) -> T {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::getxattr(path, attribute, &mut value[..]).expect("a report");
    serde_json::from_slice(&value[..len]).expect("JSON")
}

fn status(mount: &Mount) -> weir_fs::report::Mount {
    ask::<Status>(&mount.path(""), STATUS).mount.expect("it is mounted")
}

fn form(path: &Path) -> String {
    ask::<Explanation>(path, EXPLAIN).form
}

/// Returns the path of a file's container.
fn container(path: &Path) -> PathBuf {
    ask::<Explanation>(path, EXPLAIN).container.expect("it is in a container").path.into()
}

fn command(path: &Path, command: &str) -> Result<(), rustix::io::Errno> {
    rustix::fs::setxattr(path, command, b"", XattrFlags::empty())
}

/// Mounts a file system; `None` if the kernel does not pass through.
fn mount() -> Option<Mount> {
    let mount = Mount::with_tiers(32 << 20)?;
    let found = status(&mount);
    if !found.passthrough {
        println!("not tested: {:?}", found.passthrough_problem);
        return None;
    }
    Some(mount)
}

/// Creates a file in a container.
fn evicted(mount: &Mount, name: &str) -> PathBuf {
    let path = mount.path(name);
    fs::write(&path, vec![7; LEN]).expect("space");
    command(&path, "weir.evict").expect("it is moved");
    path
}

fn writer(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("the file")
}

/// Sets the size of a file that this does not open.
fn truncate(path: &Path, size: i64) {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: the path ends with a zero.
    assert_eq!(unsafe { libc::truncate(path.as_ptr(), size) }, 0, "{}", std::io::Error::last_os_error());
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the file can return to the region: nobody has it open or mapped.
fn promote(path: &Path) {
    wait_for("it returns to the region", || command(path, "weir.promote").is_ok());
    assert_ne!(form(path), "container");
}

#[test]
fn writes_go_past_the_server_and_attributes_follow() {
    let Some(mut mount) = mount() else { return };
    let path = evicted(&mount, "file");
    let link = mount.path("link");
    fs::hard_link(&path, &link).expect("a link");
    let below = container(&path);
    let file = writer(&path);
    assert_eq!(status(&mount).passthrough_files, 1);
    let before = fs::metadata(&path).expect("it");
    std::thread::sleep(Duration::from_millis(20));
    file.write_all_at(b"new", LEN as u64 + 10).expect("space");
    let raw = fs::read(&below).expect("the container");
    assert_eq!(&raw[LEN..], b"\0\0\0\0\0\0\0\0\0\0new", "it is in the container at once");
    for name in [&path, &link] {
        let found = fs::metadata(name).expect("it");
        assert_eq!(found.len(), LEN as u64 + 13);
        assert!(found.modified().expect("a time") > before.modified().expect("a time"));
        assert!((found.ctime(), found.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
    }
    // Other openings share the container, also by another name, also to append.
    let mut appender = OpenOptions::new().append(true).open(&link).expect("the file");
    appender.write_all(b"end").expect("space");
    let mut text = Vec::new();
    File::open(&link).expect("it").read_to_end(&mut text).expect("it");
    assert!(text[..LEN] == vec![7; LEN] && text[LEN + 10..] == *b"newend");
    // Requests that the server answers.
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 65_536, 65_536).expect("a hole");
    rustix::fs::fallocate(&file, FallocateFlags::empty(), LEN as u64, 100_000).expect("space");
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(65_536)), Ok(131_072));
    let year_2000 = SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_800);
    file.set_modified(year_2000).expect("a time");
    assert_eq!(fs::metadata(&path).expect("it").modified().expect("a time"), year_2000);
    let mut expected = vec![7; LEN];
    expected[65_536..131_072].fill(0);
    expected.extend(b"\0\0\0\0\0\0\0\0\0\0newend");
    expected.resize(LEN + 100_000, 0);
    file.sync_all().expect("durable");
    drop((file, appender));
    assert!(fs::read(&path).expect("it") == expected);
    assert_eq!(fs::metadata(&path).expect("it").modified().expect("a time"), year_2000);
    mount.remount();
    assert!(fs::read(mount.path("link")).expect("it") == expected);
    let found = fs::metadata(mount.path("file")).expect("it");
    assert_eq!((found.modified().expect("a time"), found.nlink()), (year_2000, 2));
    promote(&mount.path("file"));
    assert!(fs::read(mount.path("link")).expect("it") == expected);
}

#[test]
fn sizes_change_in_the_container_while_it_is_open() {
    let Some(mut mount) = mount() else { return };
    let path = evicted(&mount, "file");
    let below = container(&path);
    let reader = File::open(&path).expect("the file");
    let commits = status(&mount).commits;
    let other = File::open(&path).expect("the file");
    assert_eq!(status(&mount).commits, commits, "to read, nothing has to become durable");
    let read = |file: &File| {
        let mut bytes = vec![0; 2 * LEN];
        let len = file.read_at(&mut bytes, 0).expect("a read");
        bytes.truncate(len);
        bytes
    };
    truncate(&path, 1000);
    assert_eq!(read(&reader), [7; 1000]);
    truncate(&path, 1500);
    assert_eq!(read(&other)[990..], [&[7; 10][..], &[0; 500]].concat());
    // Emptied by an opening: the kernel goes on to use the container.
    fs::write(&path, b"short").expect("space");
    assert_eq!((read(&reader), fs::metadata(&path).expect("it").len()), (b"short".to_vec(), 5));
    assert_eq!((form(&path).as_str(), fs::read(&below).expect("it")), ("container", b"short".to_vec()));
    drop((reader, other));
    wait_for("it is closed", || status(&mount).passthrough_files == 0);
    // Emptied when nobody has it open, it is a file of the region.
    fs::write(&path, b"again").expect("space");
    assert_eq!(form(&path), "run");
    let empty = evicted(&mount, "empty");
    let file = writer(&empty);
    file.set_len(0).expect("empty");
    assert_eq!(form(&empty), "container");
    drop(file);
    wait_for("it needs no container", || form(&empty) == "empty");
    wait_for("its container is removed", || mount.containers() == 0);
    mount.remount();
    assert_eq!(fs::read(mount.path("file")).expect("it"), b"again");
}

#[test]
fn what_is_open_or_mapped_does_not_move() {
    let Some(mut mount) = mount() else { return };
    let path = evicted(&mount, "file");
    let file = writer(&path);
    assert_eq!(command(&path, "weir.promote"), Err(rustix::io::Errno::TXTBSY));
    // SAFETY: nothing else is mapped there, and the mapping is used within its length.
    let map = unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, &file, 0).expect("a mapping")
    };
    let map_byte = map.cast::<u8>();
    let before = fs::metadata(&path).expect("it").modified().expect("a time");
    std::thread::sleep(Duration::from_millis(20));
    // SAFETY: as above.
    unsafe { map_byte.add(4096).write_volatile(1) };
    assert!(fs::metadata(&path).expect("it").modified().expect("a time") > before);
    drop(file);
    wait_for("it is closed", || status(&mount).passthrough_files == 0);
    // Longer than the background needs.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(command(&path, "weir.promote"), Err(rustix::io::Errno::TXTBSY), "it is mapped still");
    // SAFETY: as above.
    unsafe {
        map_byte.add(8192).write_volatile(2);
        munmap(map, LEN).expect("a mapping");
    }
    promote(&path);
    let mut expected = vec![7; LEN];
    (expected[4096], expected[8192]) = (1, 2);
    assert!(fs::read(&path).expect("it") == expected);
    // A mapping of what is in the region is one of the server's pages, whatever comes then.
    let file = writer(&path);
    command(&path, "weir.evict").expect("it is moved");
    let second = writer(&path);
    assert_eq!(status(&mount).passthrough_files, 0, "one opening decides for all");
    second.write_all_at(b"x", 0).expect("space");
    drop((file, second));
    expected[0] = b'x';
    mount.remount();
    assert!(fs::read(mount.path("file")).expect("it") == expected);
}

#[test]
fn a_file_that_is_opened_again_returns_to_the_region() {
    let Some(mut mount) = mount() else { return };
    let path = evicted(&mount, "file");
    assert!(fs::read(&path).expect("it") == vec![7; LEN]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(form(&path), "container", "one access is not enough");
    assert!(fs::read(&path).expect("it") == vec![7; LEN]);
    wait_for("it is promoted", || form(&path) != "container");
    let accessed = fs::metadata(&path).expect("it").accessed().expect("a time");
    assert!(accessed > fs::metadata(&path).expect("it").modified().expect("a time"), "it was read");
    mount.remount();
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_open() {
    let Some(mut mount) = mount() else { return };
    let path = evicted(&mount, "file");
    let file = writer(&path);
    fs::remove_file(&path).expect("it");
    fs::write(mount.path("other"), b"other").expect("space");
    file.write_all_at(b"end", LEN as u64).expect("space");
    assert_eq!(
        (file.metadata().expect("it").len(), file.metadata().expect("it").nlink()),
        (LEN as u64 + 3, 0)
    );
    std::thread::sleep(Duration::from_millis(1500));
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, LEN as u64 - 1).expect("a read");
    assert_eq!(&bytes, b"\x07end");
    drop(file);
    wait_for("its container is removed", || mount.containers() == 0);
    mount.remount();
}

/// The kernel keeps attributes for long, but not those of a file that it may write.
#[test]
fn attributes_are_asked_for_again_after_an_opening() {
    let Some(mount) = mount() else { return };
    let path = evicted(&mount, "file");
    assert_eq!(fs::metadata(&path).expect("it").len(), LEN as u64);
    let file = writer(&path);
    // Behind the kernel's back, as by a mapping.
    let below = OpenOptions::new().append(true).open(container(&path));
    below.expect("a container").write_all(b"end").expect("space");
    assert_eq!(fs::metadata(&path).expect("it").len(), LEN as u64 + 3);
    drop(file);
}

/// The server reads and writes it until it is closed, also if it moves to a container meanwhile.
#[test]
fn a_new_file_that_moves_is_opened_again() {
    let Some(mount) = mount() else { return };
    let path = mount.path("file");
    let mut first = File::create(&path).expect("space");
    first.write_all(&[7; LEN]).expect("space");
    command(&path, "weir.evict").expect("it is moved");
    assert_eq!(form(&path), "container");
    let mut bytes = Vec::new();
    File::open(&path).expect("it is open").read_to_end(&mut bytes).expect("a read");
    assert!(bytes == [7; LEN]);
    assert_eq!(status(&mount).passthrough_files, 0);
    drop((first, bytes));
}

#[test]
fn privileges_end_with_a_write() {
    let Some(mount) = mount() else { return };
    evicted(&mount, "file");
    let script = "
        chmod 755 .; chmod 6777 file
        setpriv --reuid 1 --regid 1 --clear-groups sh -c 'echo x >> file'
        test \"$(stat -c %a file)\" = 777";
    mount.script(&["setpriv", "stat"], script);
}

/// Several openings write and read at random, and the file is closed and moved between.
#[test]
fn random_access_agrees_with_a_copy() {
    let Some(mut mount) = mount() else { return };
    let seed = 11;
    let mut random = SmallRng::seed_from_u64(seed);
    let path = evicted(&mount, "file");
    let mut copy = vec![7; LEN];
    let mut files: Vec<File> = Vec::new();
    for number in 0..3000 {
        if files.is_empty() || random.random_ratio(1, 20) {
            let mut options = OpenOptions::new();
            if random.random_ratio(1, 4) {
                options.custom_flags(OFlags::SYNC.bits().cast_signed());
            }
            files.push(options.read(true).write(true).open(&path).expect("the file"));
        }
        let file = &files[random.random_range(0..files.len())];
        let (at, len) = (random.random_range(0..2 * LEN), random.random_range(1..20_000));
        match random.random_range(0..20) {
            0 => {
                file.set_len(at as u64).expect("a size");
                copy.resize(at, 0);
            }
            1..4 => {
                let mut out = vec![0; len];
                let read = file.read_at(&mut out, at as u64).expect("a read");
                let expected = copy.get(at..copy.len().min(at + len)).unwrap_or_default();
                assert!(out[..read] == *expected, "seed {seed}, operation {number}");
            }
            4 => assert_eq!(fs::metadata(&path).expect("it").len(), copy.len() as u64, "operation {number}"),
            5 => file.sync_data().expect("durable"),
            6 => files.clear(),
            7 => drop(command(&path, ["weir.promote", "weir.evict"][random.random_range(0..2)])),
            8 if number > 2900 => mount_again(&mut mount, &mut files),
            _ => {
                let bytes = vec![random.random(); len];
                file.write_all_at(&bytes, at as u64).expect("space");
                copy.resize(copy.len().max(at + len), 0);
                copy[at..at + len].copy_from_slice(&bytes);
            }
        }
    }
    files.clear();
    mount.remount();
    assert!(fs::read(&path).expect("it") == copy, "seed {seed}");
}

fn mount_again(mount: &mut Mount, files: &mut Vec<File>) {
    files.clear();
    mount.remount();
}

/// The server of [`serve_in_process`].
#[test]
fn serve_until_killed() {
    mounted::serve_if_asked();
}

fn kill(mount: &Mount, mut server: Child) {
    server.kill().expect("it is there");
    server.wait().expect("it ends");
    rustix::mount::unmount(mount.path(""), rustix::mount::UnmountFlags::DETACH).expect("a mount");
}

#[test]
fn a_killed_server_loses_no_size() {
    let Some(mut mount) = mount() else { return };
    let (path, other) = (evicted(&mount, "file"), evicted(&mount, "other"));
    let server = serve_in_process(&mut mount);
    let (file, reader) = (writer(&path), File::open(&other).expect("the file"));
    file.write_all_at(b"grown", LEN as u64).expect("space");
    kill(&mount, server);
    // What has a file open goes on to write to the container.
    file.write_all_at(b"later", LEN as u64 + 5).expect("space");
    mount.start();
    assert_eq!(fs::metadata(&path).expect("it").len(), LEN as u64 + 10);
    assert_eq!(fs::read(&path).expect("it")[LEN..], *b"grownlater");
    std::thread::sleep(Duration::from_millis(1500));
    file.write_all_at(b"last", LEN as u64 + 10).expect("space");
    assert_eq!(
        fs::metadata(&path).expect("it").len(),
        LEN as u64 + 14,
        "it is flagged as long as it is open"
    );
    assert_eq!(command(&path, "weir.promote"), Err(rustix::io::Errno::TXTBSY));
    drop((file, reader));
    promote(&path);
    assert_eq!(fs::read(&path).expect("it")[LEN..], *b"grownlaterlast");
    promote(&other);
    // Shorter, too, and then the check of a region that is not mounted.
    let path = evicted(&mount, "shorter");
    let server = serve_in_process(&mut mount);
    let file = writer(&path);
    file.set_len(10).expect("shorter");
    file.write_all_at(b"xy", 10).expect("space");
    kill(&mount, server);
    drop(file);
    mount.start();
    mount.remount();
    assert_eq!(fs::read(mount.path("shorter")).expect("it"), b"\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07xy");
}
