//! File systems: create, mount, status, explain, unmount, check, and what they refuse.

use crate::harness::{Pool, weir};
use crate::schemas::validate_as;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_fs::layout::superblock::checksum;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const DAMAGED: i32 = 4;
const ENVIRONMENT: i32 = 5;
/// Exit codes of `weir fs check`.
const CHECK_REPAIRED: i32 = 1;
const CHECK_DAMAGED: i32 = 4;
const CHECK_OPERATIONAL: i32 = 8;
const CHECK_USAGE: i32 = 16;

/// Returns whether this machine lets this user mount; says so if not.
pub(crate) fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root()
        && File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("left out: mounting needs root and /dev/fuse");
    }
    can
}

/// A region `region` in a folder of its own, and an empty directory `files` to mount it at.
pub(crate) struct Region {
    pool: Pool,
}

impl Region {
    pub(crate) fn new(size: &str) -> Self {
        Self::with(size, &[], &[])
    }

    /// Creates a region with these arguments, after these directories.
    pub(crate) fn with(size: &str, directories: &[&str], arguments: &[&str]) -> Self {
        let pool = Pool::from_text("");
        for directory in [&["files"], directories].concat() {
            fs::create_dir(pool.path(directory)).expect("a directory");
        }
        pool.run([&["fs", "create", "region", "--size", size], arguments].concat());
        Self { pool }
    }

    /// Runs weir and returns what it prints.
    pub(crate) fn weir(&self, arguments: &[&str]) -> String {
        self.pool.run(arguments)
    }

    /// Runs weir and returns its document.
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        self.pool.json(arguments)
    }

    /// Runs weir, which must end with this code, and returns what it prints.
    pub(crate) fn refused_output(&self, arguments: &[&str], code: i32) -> String {
        let output = self.pool.weir(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a script of `sh` in the region's directory, with mounts of its own and the program as `WEIR`.
    pub(crate) fn run_script(&self, script: &str) -> Output {
        Command::new("unshare")
            .args(["--mount", "sh", "-euc", script])
            .current_dir(self.folder())
            .env("WEIR", env!("CARGO_BIN_EXE_weir"))
            .output()
            .expect("unshare starts")
    }

    /// Runs a script as [`run_script`](Self::run_script). Returns its code and what it said; `None`, with a
    /// notice, if it ends with 77: what it needs is not here.
    pub(crate) fn script(&self, script: &str) -> Option<(Option<i32>, String)> {
        let output = self.run_script(script);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(77) {
            eprintln!("left out: {said}");
            return None;
        }
        Some((output.status.code(), said))
    }

    /// Returns a mounted region.
    pub(crate) fn mounted(size: &str) -> Self {
        let region = Self::new(size);
        region.mount();
        region
    }

    pub(crate) fn mount(&self) {
        let document = self.pool.json(&["fs", "mount", "region", "files"]);
        assert!(document["pid"].as_u64().is_some_and(|pid| pid > 1), "{document}");
    }

    /// Unmounts it, and checks it.
    pub(crate) fn unmount(&self) {
        let busy_until = Instant::now() + Duration::from_secs(10);
        // A program that another test starts has files of this test open until it runs.
        while !self.pool.weir(["fs", "unmount", "files"]).status.success() {
            assert!(Instant::now() < busy_until, "{}", self.pool.run(["fs", "unmount", "files"]));
            std::thread::sleep(Duration::from_millis(50));
        }
        self.check();
    }

    /// Returns the folder of the region.
    pub(crate) fn folder(&self) -> &Path {
        self.pool.folder.path()
    }

    pub(crate) fn check(&self) {
        let report = self.pool.json(&["fs", "check", "region"]);
        assert_eq!((&report["clean"], &report["orphans"]), (&true.into(), &0.into()), "{report}");
    }

    /// Returns the path of a file of the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.pool.path("files").join(name)
    }

    /// Serves it in the foreground.
    pub(crate) fn serve(&self) -> Child {
        let mut server = Command::new(env!("CARGO_BIN_EXE_weir"))
            .current_dir(self.pool.folder.path())
            .args(["fs", "mount", "region", "files", "--foreground", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("weir starts");
        let lines = BufReader::new(server.stdout.take().expect("its output")).lines();
        let document: String = lines.map_while(Result::ok).take_while(|line| line != "}").collect();
        validate_as("fs mount", format!("{document}}}").as_bytes());
        server
    }

    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str], code: i32, parts: &[&str]) {
        let said = self.pool.refused(arguments, code);
        for part in parts.iter().chain(&["help:"]) {
            assert!(said.contains(part), "{part:?} should be in:\n{said}");
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // After a failure, the folder could not be removed.
        let _ = weir(self.pool.folder.path(), ["fs", "unmount", "files", "--lazy"]);
    }
}

pub(crate) fn signal(process: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &process.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "the signal is sent");
}

#[test]
fn a_region_is_created_and_checked_without_a_mount() {
    let region = Region::new("32MiB");
    let status = region.pool.json(&["fs", "status", "region"]);
    assert_eq!((&status["mount"], &status["files"]), (&serde_json::Value::Null, &1.into()), "{status}");
    assert_eq!(status["region_bytes"], 32 << 20, "{status}");
    assert!(region.pool.run(["fs", "status", "region"]).contains("not mounted"));
    assert!(region.pool.run(["fs", "check", "region"]).contains("clean"));
    let before = fs::read(region.pool.path("region")).expect("the region");
    region.refused(
        &["fs", "create", "region", "--size", "32MiB"],
        REFUSED,
        &["holds a file system", "--force"],
    );
    assert!(before == fs::read(region.pool.path("region")).expect("the region"), "nothing was changed");
    region.pool.run(["fs", "create", "region", "--size", "16MiB", "--force"]);
    assert_eq!(region.pool.json(&["fs", "status", "region"])["region_bytes"], 16 << 20);
    fs::write(region.pool.path("text"), "kept").expect("a file");
    region.refused(&["fs", "create", "text", "--size", "32MiB"], REFUSED, &["text exists", "--force"]);
    assert_eq!(fs::read(region.pool.path("text")).expect("the file"), b"kept");
    region.refused(&["fs", "create", "small", "--size", "8MiB"], USAGE, &["8 MiB", "at least 10 MiB"]);
    region.refused(&["fs", "create", "files", "--size", "32MiB", "--force"], ENVIRONMENT, &["files"]);
    assert!(!region.pool.path("small").exists());
    region.pool.run(["fs", "create", "small", "--size", "10MiB"]);
}

/// Changes a superblock of the region in place and gives it the right checksum.
fn change_superblocks(region: &Region, at: usize, bytes: &[u8]) {
    let file = File::options().read(true).write(true).open(region.pool.path("region")).expect("the region");
    for copy in [0, 4096] {
        let mut page = [0; 4096];
        file.read_exact_at(&mut page, copy).expect("a superblock");
        page[at..at + bytes.len()].copy_from_slice(bytes);
        let sum = checksum(&page[..4088]);
        page[4088..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&page, copy).expect("written");
    }
}

#[test]
fn what_is_no_intact_region_is_refused_with_a_way_out() {
    let region = Region::new("32MiB");
    region.refused(&["fs", "status", "nowhere"], USAGE, &["there is no region or directory nowhere"]);
    region.refused(
        &["fs", "check", "nowhere"],
        CHECK_USAGE,
        &["there is no region nowhere", "weir fs create"],
    );
    region.refused(&["fs", "check", "pool.toml"], CHECK_USAGE, &["holds no region"]);
    region.refused(&["fs", "check", "files"], CHECK_USAGE, &["holds no region"]);
    fs::write(region.pool.path("text"), [b'x'; 10_000]).expect("a file");
    region.refused(&["fs", "status", "text"], USAGE, &["no weir file system is there", "weir fs create"]);
    region.refused(&["fs", "status", "files"], USAGE, &["no file system of weir is mounted at files"]);
    region.refused(&["fs", "explain", "text"], USAGE, &["in no mounted file system of weir"]);
    region.refused(
        &["fs", "unmount", "files"],
        USAGE,
        &["no file system of weir is mounted at files", "help: "],
    );
    region.refused(&["fs", "unmount", "nodir"], USAGE, &["there is no directory nodir", "findmnt"]);

    change_superblocks(&region, 8, &2_u32.to_le_bytes());
    region.refused(&["fs", "status", "region"], REFUSED, &["format version 2", "it knows 1", "newer"]);
    change_superblocks(&region, 8, &0_u32.to_le_bytes());
    region.refused(&["fs", "check", "region"], CHECK_OPERATIONAL, &["format version 0", "copy its files"]);
    change_superblocks(&region, 8, &1_u32.to_le_bytes());
    change_superblocks(&region, 16, &[2]);
    region.refused(&["fs", "status", "region"], REFUSED, &["features 0x2"]);
    change_superblocks(&region, 16, &[0]);
    region.check();

    let file = File::options().write(true).open(region.pool.path("region")).expect("the region");
    file.write_all_at(&[9; 100], 4096 + 64).expect("written");
    let report = region.pool.refused(&["fs", "check", "region", "--json"], CHECK_DAMAGED);
    assert_eq!(report, "", "the report is on standard output");
    let said = region.pool.weir(["fs", "check", "region"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("second copy of the superblock"));
    file.write_all_at(&[9; 100], 64).expect("written");
    region.refused(&["fs", "status", "region"], DAMAGED, &["checksum is wrong", "backup"]);

    region.pool.run(["fs", "create", "region", "--size", "32MiB", "--force"]);
    let file = File::options().write(true).open(region.pool.path("region")).expect("the region");
    file.set_len(20 << 20).expect("truncated");
    region.refused(
        &["fs", "status", "region"],
        DAMAGED,
        &["20971520 of the 33554432 bytes", "backup", "truncate -s"],
    );
    region.refused(&["fs", "check", "region"], CHECK_DAMAGED, &["20971520 of the 33554432 bytes"]);
    file.set_len(32 << 20).expect("grown");
    region.check();
}

#[test]
fn a_damaged_region_is_repaired() {
    let region = Region::new("32MiB");
    let clean = region.pool.json(&["fs", "check", "region", "--repair"]);
    assert_eq!((&clean["clean"], &clean["repair"]), (&true.into(), &serde_json::Value::Null), "{clean}");
    let file = File::options().write(true).open(region.pool.path("region")).expect("the region");
    file.write_all_at(&[9; 100], 4096 + 64).expect("written");
    drop(file);
    let check = |options: &[&str]| {
        let arguments = ["fs", "check", "region"].iter().chain(options);
        let output = region.pool.weir(arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, said) = check(&[]);
    assert!(code == Some(CHECK_DAMAGED) && said.contains("--repair"), "{said}");
    let (code, said) = check(&["--repair"]);
    assert!(code == Some(CHECK_REPAIRED) && said.contains("clean after the repair"), "{said}");
    assert!(said.contains("repaired:\n- second copy of the superblock"), "{said}");
    region.check();

    // An inode map and a chunk table without the chunk of inodes: nothing is left to go by.
    let file = File::options().write(true).open(region.pool.path("region")).expect("the region");
    file.write_all_at(&vec![0; 1 << 20], 16_384).expect("written");
    region.refused(
        &["fs", "check", "region", "--repair"],
        CHECK_DAMAGED,
        &["not repaired: all inodes are lost"],
    );
}

#[test]
fn lost_output_fails_these_commands() {
    let region = Region::new("16MiB");
    for (command, code) in [("status", ENVIRONMENT), ("check", CHECK_OPERATIONAL)] {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let status = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["fs", command])
            .arg(region.pool.path("region"))
            .stdout(full)
            .stderr(Stdio::null())
            .status();
        assert_eq!(status.expect("weir starts").code(), Some(code), "{command}");
    }
    region.pool.refused(&["fs", "check"], CHECK_USAGE);
}

#[test]
fn an_unmount_says_what_the_next_mount_finds() {
    if !can_mount() {
        return;
    }
    let region = Region::new("32MiB");
    let unmounted = |is_killed: bool, options: &[&str]| {
        region.pool.run([&["fs", "mount", "region", "files"][..], options].concat());
        if is_killed {
            let pid = region.pool.json(&["fs", "status", "files"])["mount"]["pid"].to_string();
            Command::new("kill").args(["-KILL", &pid]).status().expect("kill runs");
            let until = Instant::now() + Duration::from_secs(10);
            while Path::new("/proc").join(&pid).join("root").exists() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        region.pool.run(["fs", "unmount", "files"])
    };
    let said = unmounted(true, &[]);
    assert!(said.contains("had ended before: the next mount finds the last commit"), "{said}");
    assert!(!said.contains("everything is durable"), "{said}");
    assert!(unmounted(false, &[]).contains("; everything is durable"));
    for is_killed in [false, true] {
        let said = unmounted(is_killed, &["--read-only"]);
        assert!(!said.contains(';'), "nothing could be lost: {said}");
    }
}

#[test]
fn files_survive_an_unmount_and_are_explained() {
    if !can_mount() {
        return;
    }
    let region = Region::mounted("64MiB");
    fs::write(region.path("small"), "hello").expect("space");
    fs::write(region.path("large"), vec![7; 5 << 20]).expect("space");
    File::create(region.path("empty")).expect("space");
    for place in ["files", "region"] {
        let status = region.pool.json(&["fs", "status", place]);
        assert_eq!(status["files"], 4, "{status}");
        let directory = region.pool.path("files").canonicalize().expect("the mount");
        assert_eq!(status["mount"]["directory"], directory.to_str().expect("UTF-8"), "{status}");
    }
    let explain = |name: &str| region.pool.json(&["fs", "explain", &format!("files/{name}")]);
    assert_eq!(explain("empty")["form"], "empty");
    assert_eq!(explain("large")["form"], "chunks");
    let small = explain("small");
    assert_eq!((&small["form"], &small["size_bytes"]), (&"run".into(), &5.into()));
    assert!(region.pool.run(["fs", "explain", "files/large"]).contains("chunks of its own"));
    region.refused(&["fs", "explain", "files/none"], ENVIRONMENT, &["files/none"]);
    region.unmount();
    let at = small["ranges"][0]["region_offset_bytes"].as_u64().expect("an offset");
    let mut bytes = [0; 5];
    let file = File::open(region.pool.path("region")).expect("the region");
    file.read_exact_at(&mut bytes, at).expect("the region");
    assert_eq!(&bytes, b"hello", "the bytes are where the explanation said");
    drop(file);
    region.mount();
    assert_eq!(fs::read(region.path("small")).expect("it"), b"hello");
    assert_eq!(fs::read(region.path("large")).expect("it"), vec![7; 5 << 20]);
    region.unmount();
}

#[test]
fn mounts_that_cannot_be_are_refused_with_a_way_out() {
    if !can_mount() {
        return;
    }
    let region = Region::mounted("32MiB");
    fs::create_dir(region.pool.path("other")).expect("a directory");
    let mount = |region: &'static str, directory: &'static str| ["fs", "mount", region, directory];
    region.refused(&mount("region", "other"), REFUSED, &["is mounted at", "files", "weir fs unmount"]);
    region.refused(&mount("region", "files"), REFUSED, &["already", "choose another directory"]);
    region.refused(&["fs", "check", "region"], CHECK_OPERATIONAL, &["is mounted at", "weir fs unmount"]);
    region.refused(&["fs", "create", "region", "--size", "32MiB", "--force"], REFUSED, &["is mounted at"]);
    fs::write(region.pool.path("other/file"), "").expect("a file");
    region.refused(&mount("region", "other"), REFUSED, &["is not empty"]);
    region.refused(&mount("region", "nowhere"), USAGE, &["there is no directory nowhere", "mkdir"]);
    region.refused(&mount("region", "pool.toml"), USAGE, &["is not a directory"]);
    let full = region.path("too-large");
    let full = full.to_str().expect("UTF-8");
    region.refused(
        &["fs", "create", full, "--size", "64MiB"],
        ENVIRONMENT,
        &["cannot allocate", "No space left"],
    );
    assert!(!region.path("too-large").exists(), "what could not be made is removed");
    let open = File::create(region.path("open")).expect("space");
    region.refused(&["fs", "unmount", "files"], REFUSED, &["is in use", "fuser", "--lazy"]);
    let lazy = region.pool.json(&["fs", "unmount", "files", "--lazy"]);
    assert_eq!(lazy["ended"], false, "{lazy}");
    (&open).write_all(b"late").expect("it still works");
    open.sync_all().expect("it still works");
    drop(open);
    let until = Instant::now() + Duration::from_secs(20);
    while !region.pool.weir(["fs", "check", "region"]).status.success() {
        assert!(Instant::now() < until, "the server ends when nobody uses it");
        std::thread::sleep(Duration::from_millis(50));
    }
    region.mount();
    assert_eq!(fs::read(region.path("open")).expect("it"), b"late");
    region.unmount();
}

#[test]
fn a_read_only_mount_changes_nothing() {
    if !can_mount() {
        return;
    }
    let region = Region::mounted("32MiB");
    fs::write(region.path("file"), "text").expect("space");
    region.unmount();
    let before = fs::read(region.pool.path("region")).expect("the region");
    region.pool.run(["fs", "mount", "region", "files", "--read-only"]);
    assert_eq!(fs::read(region.path("file")).expect("it"), b"text");
    let refused = fs::write(region.path("new"), "").expect_err("it is read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(region.pool.run(["fs", "status", "files"]).contains("read-only"));
    let said = region.pool.run(["fs", "unmount", "files"]);
    assert!(said.contains("unmounted") && !said.contains(';'), "{said}");
    region.check();
    assert!(before == fs::read(region.pool.path("region")).expect("the region"));
}

#[test]
fn sigterm_unmounts_even_in_use() {
    if !can_mount() {
        return;
    }
    let region = Region::new("32MiB");
    for is_in_use in [false, true] {
        let mut server = region.serve();
        let mut file = File::create(region.path("log")).expect("space");
        file.write_all(format!("in use: {is_in_use}").as_bytes()).expect("space");
        let file = Some(file).filter(|_| is_in_use);
        signal(&server, "TERM");
        let status = server.wait().expect("it ends");
        assert!(status.success(), "{status}");
        assert_eq!(fs::read_dir(region.path("")).expect("the directory").count(), 0, "it is unmounted");
        if let Some(mut file) = file {
            assert!(file.write_all(b"more").is_err(), "programs that go on get errors");
        }
        region.check();
        region.mount();
        let text = fs::read_to_string(region.path("log")).expect("it");
        assert_eq!(text, format!("in use: {is_in_use}"), "everything written is durable, without fsync");
        region.unmount();
    }
}

#[test]
fn a_killed_server_loses_nothing_that_was_synced() {
    if !can_mount() {
        return;
    }
    let region = Region::new("32MiB");
    let mut server = region.serve();
    let mut synced = 0_u32;
    let acknowledged = AtomicU32::new(0);
    let step = |number: u32| -> std::io::Result<()> {
        let mut new = File::create(region.path("new"))?;
        new.write_all(&number.to_le_bytes().repeat(2000))?;
        new.sync_all()?;
        fs::rename(region.path("new"), region.path("kept"))?;
        File::open(region.path(""))?.sync_all()
    };
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            while acknowledged.load(Ordering::SeqCst) < 20 {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill().and_then(|()| server.wait())
        });
        while step(synced + 1).is_ok() {
            synced += 1;
            acknowledged.store(synced, Ordering::SeqCst);
        }
        // Had a step failed for another reason, the thread would wait for ever.
        acknowledged.store(u32::MAX, Ordering::SeqCst);
        killer.join().expect("the thread ends").expect("the server is killed");
    });
    region.refused(&["fs", "status", "files"], REFUSED, &["has ended without unmounting", "weir fs unmount"]);
    region.refused(&["fs", "mount", "region", "files"], REFUSED, &["has ended without unmounting"]);
    // The killed server left an orphan at most; the region is clean as it is.
    let report = region.pool.json(&["fs", "check", "region"]);
    assert_eq!(report["clean"], true, "{report}");
    let document = region.pool.json(&["fs", "unmount", "files"]);
    assert_eq!(
        (&document["ended"], &document["content"]),
        (&true.into(), &"last_commit".into()),
        "{document}"
    );
    region.mount();
    let bytes = fs::read(region.path("kept")).unwrap_or_default();
    let found = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    assert!(synced >= 20, "a step failed before the server was killed");
    assert!(found == synced || found == synced + 1, "{synced} synced, {found} found");
    assert_eq!(bytes, found.to_le_bytes().repeat(if found == 0 { 0 } else { 2000 }));
    region.unmount();
}
