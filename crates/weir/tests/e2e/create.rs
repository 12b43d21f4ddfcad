//! `weir pool create`: the devices that it accepts, and the files that it leaves behind.

use crate::harness::{Pool, client, installed};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const FAST: u64 = 256 << 20;
const SLOW: u64 = 1 << 30;

#[track_caller]
fn assert_contains(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} should be in:\n{said}");
    }
}

/// Creates a sparse file of the pool with these bytes at an offset.
fn file(pool: &Pool, name: &str, size: u64, at: u64, bytes: &[u8]) -> std::fs::File {
    let file =
        std::fs::File::options().create(true).truncate(true).read(true).write(true).open(pool.path(name));
    let file = file.expect("a file");
    file.set_len(size).and_then(|()| file.write_all_at(bytes, at)).expect("it is written");
    file
}

#[test]
fn occupied_devices_are_named_and_rejected() {
    let random: Vec<u8> = (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cases: [(u64, &[u8], &str); 13] = [
        (257, b"ustar\x0000", "a tar archive"),
        (0, b"QFI\xfb\0\0\0\x03", "a qcow2 disk image"),
        (0, b"SQLite format 3\0", "an SQLite database"),
        (0, b"\x1f\x8b\x08", "a gzip archive"),
        (0, b"PK\x03\x04", "a zip archive"),
        (0, b"KDMV", "a VMDK disk image"),
        (SLOW - 512, b"conectix", "a VHD disk image"),
        (SLOW - (512 << 10) + (128 << 10), b"\x0c\xb1\xba\0\0\0\0\0", "a member of a ZFS pool"),
        (0, &random, "data that is not zero at offset "),
        (SLOW - 1, &[1], "data that is not zero at offset 1073741823"),
        (700 << 20, &[7], "data that is not zero at offset 734003200"),
        (4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache device"),
        (65_600, b"_BHRfS_M", "a btrfs file system"),
    ];
    for (at, bytes, holds) in cases {
        let pool = Pool::small();
        let slow = file(&pool, "slow.img", SLOW, at, bytes);
        let said = pool.refused(&["pool", "create"], REFUSED);
        let message = format!("device \"slow\": {} holds {holds}", pool.path("slow.img").display());
        assert_contains(&said, &[&message, "help: choose another device, or pass --force to overwrite it"]);
        let mut after = vec![0; bytes.len()];
        slow.read_exact_at(&mut after, at).expect("it is read");
        assert_eq!(after, bytes, "{holds}: it is as it was");
        assert!(!pool.path("fast.img").exists(), "{holds}: what was made is removed again");
    }
}

#[test]
fn real_file_formats_are_rejected_unless_forced() {
    if !installed(&["tar", "qemu-img", "sqlite3"]) {
        return;
    }
    type MakeFile<'m> = &'m dyn Fn(&str);
    let made: [(&str, MakeFile<'_>); 3] = [
        ("a tar archive", &|path| {
            client("tar", ["-cf", path, "-C", env!("CARGO_MANIFEST_DIR"), "Cargo.toml"]);
        }),
        ("a qcow2 disk image", &|path| {
            client("qemu-img", ["create", "-q", "-f", "qcow2", path, "1G"]);
        }),
        ("an SQLite database", &|path| {
            client("sqlite3", [path, "create table t(x); insert into t values (1);"]);
        }),
    ];
    for (holds, make) in made {
        let pool = Pool::small();
        let path = pool.path("slow.img");
        make(path.to_str().expect("utf-8"));
        std::fs::File::options().write(true).open(&path).and_then(|it| it.set_len(SLOW)).expect("its size");
        assert_contains(&pool.refused(&["pool", "create"], REFUSED), &["slow.img", holds, "--force"]);
        pool.run(["pool", "create", "--force"]);
    }
}

#[test]
fn all_occupied_devices_are_reported_and_unchanged() {
    let pool = Pool::small();
    let (fast, slow) = (file(&pool, "fast.img", FAST, 77, b"a"), file(&pool, "slow.img", SLOW, 99, b"b"));
    let said = pool.refused(&["pool", "create"], REFUSED);
    assert_contains(
        &said,
        &[
            "fast.img holds data that is not zero at offset 77",
            "slow.img holds data that is not zero at offset 99",
        ],
    );
    for (file, size, at) in [(fast, FAST, 77), (slow, SLOW, 99)] {
        let mut bytes = vec![0; 1 << 20];
        file.read_exact_at(&mut bytes, 0).expect("it is read");
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 1, "nothing was added");
        assert!(bytes[at] != 0 && file.metadata().expect("its size").len() == size);
    }
}

#[test]
fn zeros_and_holes_are_accepted_without_force() {
    let pool = Pool::small();
    file(&pool, "fast.img", FAST, 0, &vec![0; FAST as usize]);
    file(&pool, "slow.img", SLOW, 0, &[]);
    pool.run(["pool", "create"]);
}

#[test]
fn a_create_that_fails_leaves_files_as_they_were() {
    let pool = Pool::small();
    // The create would give an empty file its size, and would create `fast.img`; `third.img` makes it fail.
    std::fs::write(pool.path("slow.img"), "").expect("an empty file");
    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    let third = "\n[[device]]\nname = \"third\"\npath = \"third.img\"\n";
    std::fs::write(pool.path("pool.toml"), text + third).expect("a third device");
    file(&pool, "third.img", FAST, 0, b"mine");
    assert_contains(&pool.refused(&["pool", "create"], REFUSED), &["third.img"]);
    assert!(!pool.path("fast.img").exists(), "it was made and is removed again");
    assert_eq!(std::fs::metadata(pool.path("slow.img")).expect("it stays").len(), 0, "empty as before");
    std::fs::remove_file(pool.path("third.img")).expect("removed");
    assert_contains(&pool.refused(&["pool", "create"], USAGE), &["third.img", "add `size`"]);
    assert!(!pool.path("fast.img").exists());
    assert_eq!(std::fs::metadata(pool.path("slow.img")).expect("it stays").len(), 0, "empty as before");
}

#[test]
fn all_unusable_devices_are_reported_at_once() {
    let pool = Pool::from_text(
        "[pool]\nname = \"x\"\n\
         [[device]]\nname = \"good\"\npath = \"good.img\"\nsize = \"64MiB\"\n\
         [[device]]\nname = \"typo\"\npath = \"/dev/weir-typo\"\nsize = \"64MiB\"\n\
         [[device]]\nname = \"kernel\"\npath = \"/proc/weir-typo\"\nsize = \"64MiB\"\n\
         [[device]]\nname = \"absent\"\npath = \"absent.img\"\n",
    );
    let refused = pool.refused(&["pool", "create"], USAGE);
    assert_contains(
        &refused,
        &["\"typo\"", "/dev/weir-typo", "\"kernel\"", "/proc/weir-typo", "\"absent\"", "add `size`"],
    );
    assert!(!pool.path("good.img").exists(), "as before");
}

#[test]
fn one_file_under_two_names_is_rejected() {
    let pool = Pool::small();
    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    let text = text.replace("1GiB", "256MiB").replace("slow.img", "./fast.img");
    std::fs::write(pool.path("pool.toml"), text).expect("the same file twice");
    assert_contains(
        &pool.refused(&["pool", "create"], USAGE),
        &["\"fast\" and \"slow\" are the same device", "fast.img"],
    );
    assert!(!pool.path("fast.img").exists());
    // A hard link is another name for the same file.
    file(&pool, "fast.img", FAST, 0, &[]);
    std::fs::hard_link(pool.path("fast.img"), pool.path("link.img")).expect("a link");
    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    std::fs::write(pool.path("pool.toml"), text.replace("./fast.img", "link.img")).expect("a hard link");
    assert_contains(&pool.refused(&["pool", "create"], USAGE), &["are the same device", "link.img"]);
}

#[test]
fn a_mistyped_device_does_not_become_a_file_in_memory() {
    let typo = format!("/dev/weir-typo-{}", std::process::id());
    for (path, size) in
        [(typo.as_str(), "\nsize = \"64MiB\""), (&typo, ""), ("/proc/weir", "\nsize = \"64MiB\"")]
    {
        let pool = Pool::from_text(&format!(
            "[pool]\nname = \"x\"\n\n[[device]]\nname = \"fast\"\npath = \"{path}\"{size}\n"
        ));
        for force in [&["pool", "create"][..], &["pool", "create", "--force"]] {
            let said = pool.refused(force, USAGE);
            assert_contains(&said, &["device \"fast\": ", path, "does not exist", "lsblk"]);
            assert!(!said.contains("size"), "a size is no way out:\n{said}");
        }
        assert!(!Path::new(path).exists(), "{path} was made");
    }
}

#[test]
fn nothing_is_written_among_the_kernels_files() {
    let pool = Pool::small().create("disk", "1GiB");
    let target = format!("/dev/weir-out-{}", std::process::id());
    pool.run(["trace", "generate", "zipf over=16MiB for=1s", "--out", "t.csv"]);
    let commands: [&[&str]; 4] = [
        &["pool", "dump", &target],
        &["trace", "generate", "zipf over=16MiB for=1s", "--out", &target],
        &["trace", "plot", "t.csv", "--out", &target],
        &["repro", "wardrop", "--plot", &target],
    ];
    for command in commands {
        let said = pool.weir(command);
        let (code, said) = (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned());
        assert!(code == Some(USAGE) && said.contains("no file is made in /dev"), "{command:?}: {said}");
        assert!(!Path::new(&target).exists(), "{command:?} made it");
    }
}

#[test]
fn plot_does_not_replace_other_files() {
    let pool = Pool::small();
    pool.run(["trace", "generate", "zipf over=16MiB for=1s", "--out", "t.csv"]);
    let text = std::fs::read(pool.path("pool.toml")).expect("the pool file");
    let commands: [&[&str]; 2] = [
        &["trace", "plot", "t.csv", "--what", "heat", "--out", "pool.toml"],
        &["trace", "analyze", "t.csv", "--html", "pool.toml"],
    ];
    for command in commands {
        assert_contains(
            &pool.refused(command, REFUSED),
            &["pool.toml exists and is no ", "name another file"],
        );
        assert_eq!(std::fs::read(pool.path("pool.toml")).expect("it stays"), text);
    }
    for _ in 0..2 {
        pool.run(["trace", "plot", "t.csv", "--what", "heat", "--out", "heat.svg"]);
        pool.run(["trace", "plot", "t.csv", "--what", "heat", "--out", "heat.png"]);
        pool.run(["trace", "analyze", "t.csv", "--html", "page.html"]);
    }
}

#[test]
fn a_dump_is_not_restored_over_another_file_system() {
    if !installed(&["mkfs.ext4"]) {
        return;
    }
    let pool = Pool::small().create("disk", "1GiB");
    pool.run(["pool", "dump", "saved"]);
    let image = pool.path("slow.img");
    std::fs::remove_file(&image).expect("removed");
    let slow = file(&pool, "slow.img", SLOW, 0, &[]);
    client("mkfs.ext4", ["-q", "-F", image.to_str().expect("utf-8")]);
    let mut before = vec![0; 1 << 20];
    slow.read_exact_at(&mut before, 0).expect("it is read");
    let said = pool.refused(&["pool", "restore", "--accept-rollback", "saved"], REFUSED);
    assert_contains(&said, &["device \"slow\": ", "slow.img holds an ext4 file system", "wipefs -a"]);
    let mut after = vec![0; 1 << 20];
    slow.read_exact_at(&mut after, 0).expect("it is read");
    assert!(before == after, "not a byte was written");
}
