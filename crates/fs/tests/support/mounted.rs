//! A mounted file system for tests. Without root and `/dev/fuse` they say so and do nothing.

// Each test uses a part of this.
#![allow(dead_code)]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use weir_fs::check::check_with_containers;
use weir_fs::fuse::{self, End, MountOptions};
use weir_fs::layout::Geometry;
use weir_fs::layout::superblock::Superblock;
use weir_fs::namespace::{Durability, FileSystem};
use weir_fs::nvm::Mapped;
use weir_fs::tiers::{Class, ContainerFiles, Containers, Tier};

const TIERS: [(Class, &str); 2] = [(Class::Flash, "flash"), (Class::Disk, "disk")];

/// A mounted file system in a temporary directory.
pub(crate) struct Mount {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) options: MountOptions,
    server: Option<JoinHandle<std::io::Result<End>>>,
    /// Evicts every file over and over, if all are to be in containers.
    evictor: Option<Evictor>,
    is_evicting: bool,
}

/// A thread that evicts all files below a directory until this is dropped.
struct Evictor(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Evictor {
    fn start(directory: PathBuf) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_stopped);
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                evict_all(&directory);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self(is_stopped, Some(thread))
    }
}

impl Drop for Evictor {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        drop(self.1.take().map(JoinHandle::join));
    }
}

/// Evicts what can be evicted now.
fn evict_all(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => evict_all(&entry.path()),
            Ok(kind) if kind.is_file() => {
                let _ =
                    rustix::fs::setxattr(entry.path(), "weir.evict", b"", rustix::fs::XattrFlags::empty());
            }
            _ => {}
        }
    }
}

impl Mount {
    /// Mounts a new file system; `None` if this machine does not allow it. With `WEIR_FS_FILES` it has tiers,
    /// to which all files are evicted: `passthrough` lets the kernel access them, `requests` does not.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let Ok(files) = std::env::var("WEIR_FS_FILES") else { return Self::create(bytes, &[], options()) };
        let options = MountOptions { passthrough: files == "passthrough", ..options() };
        let mut mount = Self::create(bytes, &TIERS, options)?;
        mount.is_evicting = true;
        mount.remount();
        Some(mount)
    }

    /// Mounts a new file system with a tier of flash and one of disks.
    pub(crate) fn with_tiers(bytes: u64) -> Option<Self> {
        Self::create(bytes, &TIERS, options())
    }

    /// As [`with_tiers`](Self::with_tiers), but the kernel asks the server for all reads and writes.
    pub(crate) fn without_passthrough(bytes: u64) -> Option<Self> {
        Self::create(bytes, &TIERS, MountOptions { passthrough: false, ..options() })
    }

    fn create(bytes: u64, tiers: &[(Class, &str)], options: MountOptions) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
            println!("not tested: mounting needs root and /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let memory = Mapped::create(&directory.path().join("region"), bytes, false).expect("a region");
        let geometry = Geometry::new(bytes, Geometry::CHUNK_BYTES).expect("a possible size");
        let superblock = Superblock { geometry, uuid: [3; 16], hash_key: [4; 16], has_tiers: false };
        let tier = |(class, name): &(Class, &str)| {
            let path = directory.path().join(name);
            fs::create_dir(&path).expect("a directory");
            Tier::new(*class, path, [5; 16])
        };
        let tiers: Vec<_> = tiers.iter().map(tier).collect();
        ContainerFiles::create(&tiers, superblock.uuid).expect("empty directories");
        FileSystem::create_with_tiers(memory, &superblock, &tiers, (0, 0), fuse::now())
            .expect("a new file system");
        fs::create_dir(directory.path().join("mount")).expect("a directory");
        let mut mount = Self { directory, options, server: None, evictor: None, is_evicting: false };
        mount.start();
        Some(mount)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("mount").join(name)
    }

    /// Returns the number of containers.
    pub(crate) fn containers(&self) -> usize {
        let script = "find flash/containers disk/containers -type f | wc -l";
        let output = Command::new("sh").args(["-euc", script]).current_dir(self.directory.path()).output();
        let text = String::from_utf8(output.expect("sh starts").stdout).expect("a number");
        text.trim().parse().expect("a number")
    }

    fn region(&self) -> PathBuf {
        self.directory.path().join("region")
    }

    fn memory(&self, writable: bool) -> Mapped {
        // A program that another test starts holds the lock until it has closed all that it inherited.
        let memory = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(20));
            Mapped::open(&self.region(), writable)
        });
        memory.take(200).find_map(Result::ok).expect("the region is free")
    }

    pub(crate) fn start(&mut self) {
        let memory = self.memory(true);
        let fs = FileSystem::open_with(memory, Durability::Sync, containers).expect("the file system");
        let (path, options) = (self.path(""), self.options.clone());
        let (ready, is_ready) = mpsc::channel();
        self.server = Some(std::thread::spawn(move || {
            fuse::serve(fs, &path, &options, move |_| ready.send(()).expect("the test waits"))
        }));
        is_ready.recv().expect("the file system is mounted");
        self.evictor = self.is_evicting.then(|| Evictor::start(self.path("")));
    }

    /// Unmounts, checks, and mounts again.
    pub(crate) fn remount(&mut self) {
        self.stop();
        self.start();
    }

    pub(crate) fn stop(&mut self) {
        self.evictor = None;
        let Some(server) = self.server.take() else { return };
        self.unmount();
        assert_eq!(server.join().expect("the server ends").expect("without an error"), End::Unmounted);
        let memory = self.memory(false);
        let fs = FileSystem::open_read_only_with(memory, containers).expect("the file system");
        let report = check_with_containers(&fs);
        assert!(report.is_clean() && report.orphans == 0, "{report:#?}");
    }

    fn unmount(&self) {
        // A program that another test starts has this test's files open until it runs.
        let unmounted = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            fuse::unmount(&self.path(""), false).is_ok()
        });
        assert!(unmounted, "it is not in use");
    }

    /// Runs a shell script in the file system; `false` if one of the programs is not installed.
    pub(crate) fn script(&self, programs: &[&str], script: &str) -> bool {
        for program in programs {
            let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
            if !found.is_ok_and(|output| output.status.success()) {
                println!("not tested: {program} is not installed");
                return false;
            }
        }
        let output = Command::new("sh")
            .args(["-euc", script])
            .current_dir(self.path(""))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .expect("sh starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(4000).collect::<String>();
        assert!(
            output.status.success(),
            "{script}\n{}: {}\n{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        true
    }
}

/// Opens the tiers of a file system.
pub(crate) fn containers(
    superblock: &Superblock,
    tiers: &[Tier],
) -> weir_fs::error::Result<Arc<dyn Containers>> {
    let opened = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(20));
        ContainerFiles::open(tiers, superblock.uuid, true, |_| false)
    });
    // As for the region.
    Ok(Arc::new(opened.take(200).find_map(Result::ok).expect("the tiers are free")))
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.evictor = None;
            let _ = rustix::mount::unmount(self.path(""), rustix::mount::UnmountFlags::DETACH);
        } else {
            self.stop();
        }
    }
}

pub(crate) fn options() -> MountOptions {
    MountOptions {
        region: "/region".into(),
        allow_other: true,
        is_trusted: true,
        sync_interval: Duration::from_millis(200),
        passthrough: true,
        omega: weir_policy::eviction::OMEGA,
    }
}

/// Returns the errno of a failure; 0 if there was none.
pub(crate) fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

/// Name of the test that every program with [`serve_in_process`] has; it calls [`serve_if_asked`].
const SERVER: &str = "serve_until_killed";

/// The server of [`serve_in_process`], in a process of its own; nothing in the test program itself.
pub(crate) fn serve_if_asked() {
    let Some(directory) = std::env::var_os("WEIR_FS_SERVE").map(PathBuf::from) else { return };
    let memory = Mapped::open(&directory.join("region"), true).expect("the region");
    let fs = FileSystem::open_with(memory, Durability::Sync, containers).expect("the file system");
    let passthrough = std::env::var_os("WEIR_FS_PASSTHROUGH").is_some();
    let options = MountOptions { passthrough, ..options() };
    let _ = fuse::serve(fs, &directory.join("mount"), &options, |_| ());
}

/// Serves a mount in a process of its own: this program, which runs [`SERVER`] alone.
pub(crate) fn serve_in_process(mount: &mut Mount) -> Child {
    mount.stop();
    let mut server = Command::new(std::env::current_exe().expect("this program"));
    if mount.options.passthrough {
        server.env("WEIR_FS_PASSTHROUGH", "1");
    }
    server.args(["--exact", SERVER]).env("WEIR_FS_SERVE", mount.directory.path()).stdout(Stdio::null());
    let server = server.spawn();
    let root = fs::metadata(mount.directory.path()).expect("a directory").dev();
    while fs::metadata(mount.path("")).map_or(root, |it| it.dev()) == root {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.expect("this program starts")
}

/// Unmounts what [`serve_in_process`] serves, and serves it in this process.
pub(crate) fn serve_here(mount: &mut Mount, mut server: Child) {
    mount.unmount();
    assert!(server.wait().expect("the server ends").success());
    mount.start();
}
