//! Device files that are truncated, removed or replaced while a server uses them, on a disk file system and
//! on one in memory.

use crate::harness::{Pool, Server};
use crate::nbd::Client;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(crate) const EXTENT: u64 = 128 << 10;
const SIZE: u64 = 64 << 20;

/// A pool whose first device holds data and whose second one holds metadata and data, with their paths.
pub(crate) struct Devices {
    pub(crate) pool: Pool,
    pub(crate) paths: [PathBuf; 2],
    /// The folder, which is removed at the end.
    _folder: tempfile::TempDir,
}

/// Creates the devices in a temporary folder below `place`.
fn devices(place: &Path, policy: &str) -> Devices {
    let folder = tempfile::Builder::new().prefix("weir-e2e-").tempdir_in(place).expect("a folder");
    let paths = ["data.img", "metadata.img"].map(|name| folder.path().join(name));
    let device = |name: &str, path: &Path, metadata: bool| {
        let path = path.display();
        format!("[[device]]\nname = \"{name}\"\npath = \"{path}\"\nmetadata = {metadata}\n")
    };
    for path in &paths {
        File::create(path).and_then(|file| file.set_len(SIZE)).expect("a device file");
    }
    let (data, metadata) = (device("data", &paths[0], false), device("metadata", &paths[1], true));
    let text = format!("[pool]\nname = \"test\"\npolicy = \"{policy}\"\n{data}{metadata}");
    Devices { pool: Pool::from_text(&text).create("disk", "32MiB"), paths, _folder: folder }
}

/// Returns the folders for devices: on a disk, and in memory, for which the server takes another code path.
pub(crate) fn places() -> Vec<PathBuf> {
    let memory = PathBuf::from("/dev/shm");
    if !memory.is_dir() {
        eprintln!("left out: files in memory; there is no /dev/shm");
    }
    [std::env::temp_dir(), memory].into_iter().filter(|place| place.is_dir()).collect()
}

/// Truncates a file to `len`, and grows it to its size again if `regrow`.
pub(crate) fn truncate(path: &Path, len: u64, regrow: bool) {
    let file = File::options().write(true).open(path).expect("the device file");
    file.set_len(len).expect("it is cut");
    if regrow {
        file.set_len(SIZE).expect("it grows again");
    }
}

pub(crate) fn connect(pool: &Pool) -> Client {
    Client::connect(&pool.socket(), "disk").expect("a client")
}

/// Returns a pool below `place`, its server, and a client that has filled it.
pub(crate) fn in_use(place: &Path) -> (Devices, Server, Client) {
    let of = devices(place, "stripe");
    let server = of.pool.serve();
    let mut client = connect(&of.pool);
    fill(&mut client);
    (of, server, client)
}

pub(crate) fn fill(client: &mut Client) {
    for i in 0..64 {
        client.write(i * EXTENT, &[7; 64 << 10]).expect("a write");
    }
    client.flush().expect("a flush");
}

/// Asserts that the status names the device, its size, and what to do, and that the server has not panicked.
fn assert_reported(pool: &Pool, server: &Server, at: usize, name: &str) {
    let status = pool.json(&["pool", "status"]);
    let device = &status["devices"][at];
    assert_eq!(
        (device["state"].as_str(), device["damaged"].as_bool()),
        (Some("lost"), Some(true)),
        "{device}"
    );
    assert_eq!(device["size_bytes"], SIZE);
    let said = pool.weir(["pool", "status"]);
    let said = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = words.contains(&format!("device {name} (")) && words.contains("it should have 64 MiB");
    assert!(told, "{said}");
    // The pool cannot open without its only metadata.
    let (offered, is_metadata) = (words.contains(&format!("--without {name}")), name == "metadata");
    assert_eq!((offered, words.contains("weir pool restore")), (!is_metadata, is_metadata), "{said}");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn no_flush_succeeds_once_a_data_device_was_truncated() {
    for place in places() {
        for (regrow, writes) in [(false, false), (false, true), (true, false), (true, true)] {
            let (of, server, mut client) = in_use(&place);
            truncate(&of.paths[0], 4 << 20, regrow);
            if writes {
                // The writes go to both devices, on one of them beyond its end.
                for i in 64..128 {
                    let _may_fail = client.write(i * EXTENT, &[8; 4096]);
                }
            }
            for _ in 0..3 {
                client.flush().expect_err("what was durable is gone");
            }
            for i in 0..64 {
                // From now on a read never returns zeros: it returns the old data or an error.
                if let Ok(bytes) = client.read(i * EXTENT, 4096) {
                    assert_eq!(bytes, [7; 4096], "{place:?}, grown again: {regrow}, extent {i}");
                }
            }
            assert_reported(&of.pool, &server, 0, "data");
            client.disconnect();
            server.signal("TERM");
            server.expect_exit(4);
            // The pool does not open silently. Without the device, the data of the other one is there.
            let (check, serve) = (["pool", "check"], ["serve", "--nbd", "unix:nbd.sock"]);
            let is_short = std::fs::metadata(&of.paths[0]).expect("the file").len() < SIZE;
            let said = of.pool.refused(&serve, 3);
            assert!(said.contains("device data (") && said.contains("--without"), "{said}");
            let checked = of.pool.weir(check);
            let checked = String::from_utf8_lossy(&checked.stdout).into_owned();
            let expected = if is_short { "had 64 MiB (67108864 bytes) when it joined" } else { "truncated" };
            assert!(checked.contains("data") && checked.contains(expected), "{checked}");
            let server = of.pool.serve_with(&["--without", "data"]);
            let mut client = connect(&of.pool);
            let read: Vec<_> = (0..64).map(|i| client.read(i * EXTENT, 4096)).collect();
            let good =
                read.iter().filter(|bytes| bytes.as_ref().is_ok_and(|bytes| *bytes == [7; 4096])).count();
            assert_eq!((good, read.iter().filter(|bytes| bytes.is_err()).count()), (32, 32));
            client.disconnect();
            server.stop("TERM");
        }
    }
}

#[test]
fn no_flush_succeeds_once_the_metadata_device_was_truncated() {
    for place in places() {
        for regrow in [false, true] {
            let (of, server, mut client) = in_use(&place);
            truncate(&of.paths[1], 1 << 20, regrow);
            let _may_fail = client.write(64 * EXTENT, &[8; 4096]);
            for _ in 0..3 {
                client.flush().expect_err("the metadata is gone");
            }
            assert_eq!(of.pool.json(&["pool", "status"])["pool"]["read_only"], true);
            assert_reported(&of.pool, &server, 1, "metadata");
            client.disconnect();
            server.signal("TERM");
            server.expect_exit(4);
            let said = of.pool.refused(&["serve", "--nbd", "unix:nbd.sock"], 3);
            assert!(said.contains("device metadata (") && !said.contains("--without"), "{said}");
            let without = ["serve", "--nbd", "unix:nbd.sock", "--without", "metadata"];
            let said = of.pool.refused(&without, 3);
            assert!(said.contains("is left out, and it has the pool's only metadata"), "{said}");
            assert!(!said.contains("does not exist") && !said.contains("pool create"), "{said}");
        }
    }
}

/// A policy's copies are elsewhere as well: the pool's only metadata device cannot come back without a
/// backup, and whoever asks is told so.
#[test]
fn check_says_why_a_truncated_metadata_device_is_left_alone() {
    let of = devices(&std::env::temp_dir(), "mirror");
    let server = of.pool.serve();
    let mut client = connect(&of.pool);
    fill(&mut client);
    let has_copy = || of.pool.json(&["explain", "disk", "0"])["places"].as_array().map(Vec::len) == Some(2);
    let copied = (0..100).any(|_| {
        (0..2000).for_each(|i| drop(client.read(i % 4 * EXTENT, 4096).expect("a read")));
        std::thread::sleep(std::time::Duration::from_millis(100));
        has_copy()
    });
    assert!(copied, "extents that are read much get a second copy");
    client.disconnect();
    server.stop("TERM");
    truncate(&of.paths[1], SIZE / 2, true);
    let said = of.pool.refused(&["serve", "--nbd", "unix:nbd.sock"], 3);
    assert!(said.contains("which refuses if other devices hold a part of its data"), "{said}");
    for arguments in [&["pool", "check"][..], &["pool", "check", "--repair"]] {
        let output = of.pool.weir(arguments);
        assert_eq!(output.status.code(), Some(4));
        let said = String::from_utf8_lossy(&output.stdout);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("only metadata") && said.contains("--repair leaves it alone"), "{said}");
    }
}

#[test]
fn read_only_load_is_checked_at_intervals() {
    for place in places() {
        let (of, server, mut client) = in_use(&place);
        truncate(&of.paths[0], 4 << 20, true);
        // This takes about a second, and ten seconds on a busy machine.
        let is_lost = || of.pool.json(&["pool", "status"])["devices"][0]["state"] == "lost";
        let found = (0..200).any(|_| {
            let _zeros_or_an_error = client.read(0, 4096);
            std::thread::sleep(std::time::Duration::from_millis(50));
            is_lost()
        });
        assert!(found, "nobody flushes, and it is found out all the same");
        client.flush().expect_err("what was durable is gone");
        client.disconnect();
        server.signal("TERM");
        server.expect_exit(4);
    }
}

/// Returns the command that the status or the log suggests.
pub(crate) fn command_in(told: &str) -> String {
    let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let from = words.find("kill -STOP").unwrap_or_else(|| panic!("no command in: {words}"));
    let end = words[from..].find(" ; then").unwrap_or_else(|| panic!("no end of it in: {words}"));
    words[from..from + end].to_owned()
}

#[test]
fn removed_device_file_fails_flushes_and_can_be_saved() {
    for place in places() {
        for (at, name, replaced) in
            [(0, "data", false), (0, "data", true), (1, "metadata", false), (1, "metadata", true)]
        {
            let (of, server, mut client) = in_use(&place);
            if replaced {
                let other = of.paths[at].with_extension("other");
                File::create(&other).and_then(|_| std::fs::rename(&other, &of.paths[at])).expect("replaced");
            } else {
                std::fs::remove_file(&of.paths[at]).expect("removed");
            }
            for i in 0..64 {
                // If the metadata device is gone, the writes fail.
                let _may_fail = client.write(i * EXTENT, &[8; 4096]);
            }
            for _ in 0..3 {
                client.flush().expect_err("it would be gone with the server");
            }
            let written = [vec![7; 4096], vec![8; 4096]];
            let before: Vec<_> =
                (0..64).map(|i| client.read(i * EXTENT, 4096).expect("it is there")).collect();
            assert!(before.iter().all(|bytes| written.contains(bytes)));
            let status = of.pool.json(&["pool", "status"]);
            assert_eq!(status["devices"][at]["state"], "removed", "{status}");
            let human = of.pool.weir(["pool", "status"]);
            let human = [human.stdout, human.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            assert!(server.log().contains("was removed, or another file took its place"), "{}", server.log());
            let command = command_in(&human.concat());
            let done = std::process::Command::new("sh").args(["-c", &command]).status();
            assert!(done.is_ok_and(|status| status.success()), "{command}");
            drop(server);
            let server = of.pool.serve();
            let mut client = connect(&of.pool);
            for (i, bytes) in (0..64).zip(before) {
                let found = client.read(i * EXTENT, 4096).expect("it was saved");
                // Data that no flush has made durable may have its previous value.
                assert!(found == bytes || found == written[0], "{name}, replaced: {replaced}, extent {i}");
            }
            client.flush().expect("all is well again");
            client.disconnect();
            server.stop("TERM");
        }
    }
}

#[test]
fn stop_with_removed_file_fails() {
    for place in places() {
        let (of, server, mut client) = in_use(&place);
        // No client uses the pool from now on.
        std::fs::remove_file(&of.paths[0]).expect("removed");
        assert_eq!(of.pool.json(&["pool", "status"])["devices"][0]["state"], "removed");
        server.signal("TERM");
        let told = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            server.log().contains("not stopping: device files were removed")
        });
        assert!(told, "{}", server.log());
        assert_eq!(client.read(0, 4096).expect("it goes on"), [7; 4096]);
        client.disconnect();
        let command = command_in(&server.log());
        assert!(command.contains(&of.paths[0].display().to_string()), "{command}");
        server.signal("TERM");
        server.expect_exit(4);
    }
}

/// Returns a pool with two copies on three devices, two of which have the metadata.
fn mirrored(place: &Path) -> (Pool, [PathBuf; 3], tempfile::TempDir) {
    let folder = tempfile::Builder::new().prefix("weir-e2e-").tempdir_in(place).expect("a folder");
    let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
    let mut text = "[pool]\nname = \"test\"\npolicy = \"stripe\"\n".to_owned();
    for (path, name) in paths.iter().zip(["a", "b", "c"]) {
        File::create(path).and_then(|file| file.set_len(SIZE)).expect("a device file");
        let path = path.display();
        text += &format!("[[device]]\nname = \"{name}\"\npath = \"{path}\"\nmetadata = {}\n", name != "c");
    }
    let pool = Pool::from_text(&text);
    pool.json(&["pool", "create"]);
    pool.json(&["volume", "create", "disk", "--size", "32MiB", "--copies", "2"]);
    (pool, paths, folder)
}

#[test]
fn stale_copy_of_removed_device_is_not_read() {
    for place in places() {
        for at in 0..3 {
            let (pool, paths, _folder) = mirrored(&place);
            let server = pool.serve();
            let mut client = connect(&pool);
            fill(&mut client);
            // The file is replaced by an older backup of the device while the pool is served.
            let older = paths[at].with_extension("older");
            std::fs::copy(&paths[at], &older).expect("a copy");
            std::fs::rename(&older, &paths[at]).expect("replaced");
            for i in 0..64 {
                client.write(i * EXTENT, &[8; 64 << 10]).expect("the open files go on");
            }
            client.flush().expect("the other copy has a name");
            drop(client);
            drop(server);
            let server = pool.serve();
            assert!(server.log().contains("is older than what the pool has used"), "{}", server.log());
            let mut client = connect(&pool);
            for i in 0..64 {
                assert_eq!(
                    client.read(i * EXTENT, 4096).expect("it is there"),
                    [8; 4096],
                    "device {at}, extent {i}"
                );
            }
            client.disconnect();
            server.stop("TERM");
        }
    }
}

/// Returns the generation in the first superblock of a device: see docs/reference/format.md.
fn generation(path: &Path) -> u64 {
    let mut bytes = [0; 8];
    File::open(path).and_then(|file| file.read_exact_at(&mut bytes, 56)).expect("a superblock");
    u64::from_le_bytes(bytes)
}

#[test]
fn stale_only_copy_is_rejected() {
    for at in 0..2 {
        let (of, server, mut client) = in_use(&std::env::temp_dir());
        let before = generation(&of.paths[1 - at]);
        let older = of.paths[at].with_extension("older");
        std::fs::copy(&of.paths[at], &older).expect("a copy");
        std::fs::rename(&older, &of.paths[at]).expect("replaced");
        let _may_be_read_only = client.write(0, &[8; 4096]);
        client.flush().expect_err("what is open has no name");
        // A flush that fails promises nothing and does not wait for the record.
        let recorded = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            generation(&of.paths[1 - at]) > before
        });
        assert!(recorded, "{}", server.log());
        drop(client);
        drop(server);
        let name = ["data", "metadata"][at];
        let said = of.pool.refused(&["serve", "--nbd", "unix:nbd.sock"], 3);
        let told = said.contains(&format!("device {name} (")) && said.contains("--accept-rollback");
        assert!(told && said.contains("is older than what the pool has used"), "{said}");
        let checked = of.pool.weir(["pool", "check"]);
        assert_eq!(checked.status.code(), Some(4), "{}", String::from_utf8_lossy(&checked.stdout));
        let server = of.pool.serve_with(&["--accept-rollback"]);
        let mut client = connect(&of.pool);
        assert_eq!(client.read(EXTENT, 4096).expect("the older data"), [7; 4096]);
        client.write(0, &[9; 4096]).expect("it goes on");
        client.flush().expect("it goes on");
        client.disconnect();
        server.stop("TERM");
        of.pool.serve().stop("TERM");
    }
}
