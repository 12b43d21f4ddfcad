//! File systems with tiers: more than the region holds, crashes, vanished and full directories, rescue.

use crate::fs::{Region, can_mount, signal};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const CHECK_DAMAGED: i32 = 4;
const MIB: usize = 1 << 20;
const TIERS: [&str; 4] = ["--flash", "ssd", "--disk", "hdd"];

/// Returns a region of 32 MiB with two directories below it.
fn region() -> Region {
    Region::with("32MiB", &["ssd", "hdd"], &TIERS)
}

/// Returns bytes that differ from those of every other seed, in each page.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let word = |at: usize| (seed << 32 | (at as u64 / 512)).to_le_bytes();
    (0..len / 8).flat_map(|at| word(at * 8)).collect()
}

pub(crate) fn form(region: &Region, name: &str) -> String {
    let explained = region.json(&["fs", "explain", &format!("files/{name}")]);
    explained["form"].as_str().expect("a form").to_owned()
}

pub(crate) fn tier_files(region: &Region, path: &str) -> u64 {
    let status = region.json(&["fs", "status", path]);
    let tiers = status["tiers"].as_array().expect("tiers");
    tiers.iter().map(|tier| tier["files"].as_u64().expect("a number")).sum()
}

#[test]
fn files_beyond_the_size_of_the_region_go_to_tiers_and_survive_a_crash() {
    if !can_mount() {
        return;
    }
    let region = region();
    let mut server = region.serve();
    let files: Vec<_> = (0..24).map(|number| (format!("file-{number}"), 3 * MIB + 4096 * number)).collect();
    for (seed, (name, len)) in (0..).zip(&files) {
        fs::write(region.path(name), bytes(seed, *len)).expect("space below the region");
    }
    // Larger than its share of the region.
    fs::write(region.path("large"), bytes(99, 40 * MIB)).expect("space below the region");
    assert_eq!(form(&region, "large"), "container");
    let verify = || {
        for (seed, (name, len)) in (0..).zip(&files) {
            assert!(
                fs::read(region.path(name)).expect("it") == bytes(seed, *len),
                "{name} has what was written"
            );
        }
        assert!(fs::read(region.path("large")).expect("it") == bytes(99, 40 * MIB));
    };
    verify();
    assert!(tier_files(&region, "files") >= 15, "most files are in containers");
    let below = rustix::fs::statvfs(region.folder()).expect("the file system of the tiers");
    let all = rustix::fs::statvfs(region.path("")).expect("the mount");
    let total = |found: &rustix::fs::StatVfs| found.f_blocks * found.f_frsize;
    assert!(total(&all) > total(&below), "the tiers count once, the region beside them");
    fs::File::open(region.path("large")).and_then(|file| file.sync_all()).expect("durable");
    fs::write(region.path("late"), bytes(7, 9 * MIB)).expect("space");
    signal(&server, "KILL");
    server.wait().expect("it ends");
    region.weir(&["fs", "unmount", "files"]);
    region.mount();
    verify();
    // Its blocks are those of a file with data, or programs would take it for a hole.
    assert!(region.path("large").metadata().expect("it").blocks() * 512 >= 40 * MIB as u64);
    region.unmount();
    let report = region.json(&["fs", "check", "region"]);
    assert!(report["containers"].as_u64() >= Some(15), "{report}");
    assert_eq!(report["garbage_containers"], 0, "the mount has removed it: {report}");
}

#[test]
fn files_are_moved_and_pinned_on_request() {
    if !can_mount() {
        return;
    }
    let region = region();
    region.mount();
    let content = bytes(3, 3 * MIB / 2);
    fs::write(region.path("file"), &content).expect("space");
    assert_eq!(form(&region, "file"), "chunks");
    let moved = region.json(&["fs", "evict", "files/file"]);
    let container = moved["container"]["path"].as_str().expect("a path").to_owned();
    assert!(fs::read(&container).expect("a file of a tier") == content);
    assert!(region.weir(&["fs", "explain", "files/file"]).contains(&container));
    // In place: the beginning, beyond the end, and shorter.
    let write = |at: u64, part: &[u8]| {
        let file = fs::File::options().write(true).open(region.path("file")).expect("the file");
        std::os::unix::fs::FileExt::write_all_at(&file, part, at).expect("written");
    };
    write(0, b"new");
    write(2 * MIB as u64, b"end");
    let mut expected = content.clone();
    expected[..3].copy_from_slice(b"new");
    expected.resize(2 * MIB, 0);
    expected.extend(b"end");
    assert!(fs::read(region.path("file")).expect("the file") == expected);
    let promoted = region.json(&["fs", "promote", "files/file"]);
    assert_eq!(promoted["container"], serde_json::Value::Null);
    assert!(fs::read(region.path("file")).expect("the file") == expected);
    assert!(!Path::new(&container).exists(), "a container that no file has is removed");
    region.json(&["fs", "evict", "files/file"]);
    assert_eq!(region.json(&["fs", "pin", "files/file"])["pinned"], true);
    assert_ne!(form(&region, "file"), "container");
    region.refused(&["fs", "evict", "files/file"], REFUSED, &["pinned to the region", "weir fs unpin"]);
    region.unmount();
    region.mount();
    region.refused(&["fs", "evict", "files/file"], REFUSED, &["pinned"]);
    assert_eq!(region.json(&["fs", "unpin", "files/file"])["pinned"], false);
    assert!(region.weir(&["fs", "evict", "files/file"]).contains("in tier"));
    fs::File::options()
        .write(true)
        .open(region.path("file"))
        .and_then(|file| file.set_len(0))
        .expect("emptied");
    assert_eq!(form(&region, "file"), "empty");
    region.refused(&["fs", "evict", "files"], USAGE, &["not a regular file"]);
    region.unmount();
}

#[test]
fn a_vanished_directory_takes_only_its_files_along() {
    if !can_mount() {
        return;
    }
    let region = Region::with("32MiB", &["hdd"], &["--disk", "hdd"]);
    region.mount();
    fs::write(region.path("evicted"), bytes(1, MIB)).expect("space");
    fs::write(region.path("kept"), bytes(2, MIB)).expect("space");
    region.weir(&["fs", "evict", "files/evicted"]);
    region.unmount();
    let (here, away) = (region.folder().join("hdd"), region.folder().join("away"));
    fs::rename(&here, &away).expect("moved");
    region.refused(
        &["fs", "mount", "region", "files"],
        REFUSED,
        &["tier 0 (disk ", "hdd): the directory is not there", "--without"],
    );
    assert!(region.weir(&["fs", "status", "region"]).contains("GONE: "));
    let report = region.refused_output(&["fs", "check", "region"], CHECK_DAMAGED);
    assert!(report.contains("the directory is not there; it has 1 files"), "{report}");
    region.weir(&["fs", "mount", "region", "files", "--without", "hdd"]);
    assert!(fs::read(region.path("kept")).expect("it is in the region") == bytes(2, MIB));
    let error = fs::read(region.path("evicted")).expect_err("its container is not there");
    assert_eq!(error.raw_os_error(), Some(libc_eio()));
    assert!(fs::write(region.path("new"), "").is_err(), "it is read-only");
    region.json(&["fs", "unmount", "files"]);
    // The directory of another file system in its place.
    fs::create_dir(&here).expect("a directory");
    region.refused(&["fs", "mount", "region", "files"], REFUSED, &["no file weir.tier", "--without"]);
    region.weir(&["fs", "create", "other", "--size", "16MiB", "--disk", "hdd"]);
    region.refused(&["fs", "mount", "region", "files"], REFUSED, &["belongs to the region with UUID"]);
    fs::remove_dir_all(&here).expect("removed");
    fs::rename(&away, &here).expect("moved back");
    region.refused(
        &["fs", "mount", "region", "files", "--without", "ssd"],
        USAGE,
        &["no tier at ssd", "name one of its directories"],
    );
    // It vanishes while the file system is mounted.
    region.mount();
    fs::rename(&here, &away).expect("moved");
    assert!(fs::read(region.path("evicted")).is_err());
    fs::write(region.path("new"), bytes(3, MIB)).expect("others go on");
    fs::File::open(region.path("new")).and_then(|file| file.sync_all()).expect("durable");
    assert!(region.weir(&["fs", "status", "files"]).contains("GONE: "));
    fs::rename(&away, &here).expect("moved back");
    assert!(fs::read(region.path("evicted")).expect("it is back") == bytes(1, MIB));
    region.unmount();
}

fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

#[test]
fn files_are_rescued_without_the_region() {
    if !can_mount() {
        return;
    }
    let region = region();
    region.mount();
    fs::create_dir_all(region.path("old/deep")).expect("directories");
    for (seed, name) in [(1, "old/one"), (2, "old/deep/two"), (3, "three")] {
        let path = region.path(name);
        fs::write(&path, bytes(seed, MIB)).expect("space");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4640)).expect("set");
        std::os::unix::fs::chown(&path, Some(1234), Some(99)).expect("root may");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        region.weir(&["fs", "evict", &format!("files/{name}")]);
    }
    // All paths below change, and one inode.
    fs::rename(region.path("old"), region.path("new")).expect("renamed");
    fs::rename(region.path("three"), region.path("new/four")).expect("renamed");
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = fs::File::options().write(true).open(region.path("new/one")).expect("the file");
    file.set_modified(time).expect("set");
    drop(file);
    // Headers follow in the background.
    let until = Instant::now() + Duration::from_secs(20);
    let header = |name: &str| {
        let path = region.json(&["fs", "explain", &format!("files/{name}")])["container"]["path"].clone();
        let mut value = vec![0; 4096];
        let path = path.as_str().expect("a path").to_owned();
        let len = rustix::fs::getxattr(path, "user.weir.file", &mut value[..]).unwrap_or(0);
        String::from_utf8_lossy(&value[..len]).into_owned()
    };
    for (name, part) in
        [("new/deep/two", "path new/deep/two"), ("new/four", "path new/four"), ("new/one", "path new/one")]
    {
        while !header(name).contains(part) {
            assert!(Instant::now() < until, "{}", header(name));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    region.unmount();
    fs::remove_file(region.folder().join("region")).expect("lost");
    region.refused(&["fs", "rescue", "files", "--to", "restored"], USAGE, &["not the directory of a tier"]);
    let document = region.json(&["fs", "rescue", "ssd", "hdd", "--to", "restored"]);
    assert_eq!((&document["files"], &document["nameless"]), (&3.into(), &0.into()), "{document}");
    assert_eq!(document["problems"].as_array().map(Vec::len), Some(0), "{document}");
    let restored = region.folder().join("restored");
    for (seed, name) in [(1, "new/one"), (2, "new/deep/two"), (3, "new/four")] {
        assert!(fs::read(restored.join(name)).expect("restored") == bytes(seed, MIB), "{name}");
        let found = restored.join(name).metadata().expect("restored");
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o640, 1234, 99), "{name}");
    }
    assert_eq!(restored.join("new/one").metadata().expect("it").modified().expect("a time"), time);
    let deep = restored.join("new/deep").metadata().expect("restored");
    assert_eq!(deep.mode() & 0o7777, 0o700, "nothing says who could enter it");
    let twice = ["fs", "rescue", "ssd", "hdd", "ssd", "--to", "restored"];
    region.refused(&twice, USAGE, &["two of the directories are the same tier", "name each directory once"]);
    // Nothing that exists is replaced.
    let again = region.json(&["fs", "rescue", "ssd", "hdd", "--to", "restored"]);
    assert_eq!(again["problems"].as_array().map(Vec::len), Some(3), "{again}");
}

#[test]
fn a_missing_container_is_found_and_its_file_can_be_removed() {
    if !can_mount() {
        return;
    }
    let region = region();
    region.mount();
    fs::write(region.path("file"), bytes(1, MIB)).expect("space");
    fs::write(region.path("short"), bytes(2, MIB)).expect("space");
    let path = |name: &str| {
        let moved = region.json(&["fs", "evict", &format!("files/{name}")]);
        moved["container"]["path"].as_str().expect("a path").to_owned()
    };
    let (missing, short) = (path("file"), path("short"));
    region.unmount();
    fs::remove_file(missing).expect("removed");
    fs::File::options().write(true).open(short).and_then(|file| file.set_len(5)).expect("cut");
    fs::write(region.folder().join("ssd/containers/07/263"), "garbage").expect("written");
    let found = region.refused_output(&["fs", "check", "region"], CHECK_DAMAGED);
    for part in [
        "(\"file\"): container",
        "is missing",
        "has 5 of its 1048576 bytes",
        "1 containers belong to no file",
    ] {
        assert!(found.contains(part), "{part:?} in\n{found}");
    }
    // The region itself is sound, and no repair brings containers back.
    assert!(found.contains("put them back") && !found.contains("--repair"), "{found}");
    let before = fs::read(region.folder().join("region")).expect("a region");
    let repaired = region.refused_output(&["fs", "check", "region", "--repair"], CHECK_DAMAGED);
    assert_eq!(repaired, found);
    assert!(fs::read(region.folder().join("region")).expect("a region") == before);
    region.mount();
    assert!(fs::read(region.path("file")).is_err() && fs::read(region.path("short")).is_err());
    fs::remove_file(region.path("file")).expect("removed");
    fs::remove_file(region.path("short")).expect("removed");
    region.unmount();
}

/// A small file system at a directory, which is unmounted in the end.
pub(crate) struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    pub(crate) fn new(directory: &'a Path) -> Self {
        mount(&["-t", "tmpfs", "-o", "size=6m", "tmpfs"], directory);
        Self(directory)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

fn mount(arguments: &[&str], directory: &Path) {
    let status = Command::new("mount").args(arguments).arg(directory).status().expect("mount starts");
    assert!(status.success());
}

#[test]
fn full_and_read_only_tiers_are_passed_over() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let small = Small::new(folder.path());
    let path = folder.path().to_str().expect("a path");
    let region = Region::with("32MiB", &["hdd"], &["--flash", path, "--disk", "hdd"]);
    region.mount();
    for number in 0..30 {
        fs::write(region.path(&format!("file-{number}")), bytes(number, 3 * MIB))
            .expect("the other tier has space");
    }
    for number in 0..30 {
        let found = fs::read(region.path(&format!("file-{number}"))).expect("the file");
        assert!(found == bytes(number, 3 * MIB), "file-{number}");
    }
    region.unmount();
    mount(&["-o", "remount,ro"], folder.path());
    region.mount();
    assert!(region.weir(&["fs", "status", "files"]).contains("READ-ONLY: "));
    for number in 0..30 {
        let found = fs::read(region.path(&format!("file-{number}"))).expect("the file");
        assert!(found == bytes(number, 3 * MIB), "file-{number}");
    }
    fs::write(region.path("more"), bytes(77, 20 * MIB)).expect("the other tier has space");
    assert!(fs::read(region.path("more")).expect("the file") == bytes(77, 20 * MIB));
    mount(&["-o", "remount,rw"], folder.path());
    region.unmount();
    drop(small);
}

#[test]
fn directories_that_cannot_be_tiers_are_refused() {
    let region = region();
    region.refused(
        &["fs", "create", "other", "--size", "16MiB", "--disk", "hdd"],
        REFUSED,
        &["holds the containers of another file system"],
    );
    region.refused(
        &["fs", "create", "other", "--size", "16MiB", "--disk", "nowhere"],
        USAGE,
        &["there is no directory nowhere", "mkdir nowhere"],
    );
    region.refused(
        &["fs", "create", "other", "--size", "16MiB", "--disk", "files", "--flash", "files"],
        USAGE,
        &["named twice"],
    );
    region.refused(
        &["fs", "create", "other", "--size", "16MiB", "--disk", "region"],
        USAGE,
        &["is not a directory"],
    );
    assert!(!region.folder().join("other").exists());
    assert!(
        fs::read_dir(region.folder().join("files")).expect("it").next().is_none(),
        "nothing is left behind"
    );
}
