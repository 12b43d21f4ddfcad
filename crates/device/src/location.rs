//! Where a file may be created: not on the kernel's own file systems.
//!
//! `/dev`, `/proc` and `/sys` describe devices and processes. A file created there is on no disk: `/dev` is
//! kept in memory (devtmpfs, in containers tmpfs), so a mistyped device name would become a file that fills
//! the memory and is lost at a restart. Both the path and the file system type count: the path, because in
//! containers `/dev` and parts of `/sys` are a plain tmpfs; the type, because these file systems can also be
//! mounted elsewhere. `/dev/shm` is an exception: it exists for users' files in memory.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders of the kernel.
const FOLDERS: [&str; 3] = ["/dev", "/proc", "/sys"];
/// The exception below them, for users' files.
const SHARED_MEMORY: &str = "/dev/shm";
/// File system types reserved for the kernel, as in `/proc/self/mountinfo`.
const TYPES: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// Returns the kernel's folder that a file at this path would be in, with symbolic links resolved; `None` if
/// a file may be created there. If the path's folder does not exist, its nearest existing ancestor counts.
///
/// # Errors
/// Fails if that folder cannot be resolved.
pub fn kernel_folder(path: &Path) -> io::Result<Option<PathBuf>> {
    let absolute = std::path::absolute(path)?;
    let mut folder = absolute.parent().unwrap_or(Path::new("/"));
    let resolved = loop {
        match (folder.canonicalize(), folder.parent()) {
            (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => folder = above,
            (resolved, _) => break resolved?,
        }
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let number = std::fs::metadata(&resolved)?.dev();
    Ok(is_kernel_folder(&resolved, number, &mounts).then_some(resolved))
}

/// Reports whether a resolved folder, on the device of this number, belongs to the kernel.
fn is_kernel_folder(folder: &Path, device: u64, mounts: &str) -> bool {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let kind = mounts.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        (mount.split(' ').nth(2)? == number).then(|| source.split(' ').next())?
    });
    if kind.is_some_and(|kind| TYPES.contains(&kind)) {
        return true;
    }
    FOLDERS.iter().any(|kernels| folder.starts_with(kernels)) && !folder.starts_with(SHARED_MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_folders_by_path_and_type() {
        let mounts = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      21 20 0:6 / /dev rw,nosuid shared:2 - devtmpfs udev rw\n\
                      22 21 0:25 / /dev/shm rw - tmpfs tmpfs rw\n\
                      23 20 0:30 / /run rw - tmpfs tmpfs rw\n\
                      24 20 0:31 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n";
        let is = |folder: &str, major: u32, minor: u32| {
            is_kernel_folder(Path::new(folder), rustix::fs::makedev(major, minor), mounts)
        };
        assert!(!is("/srv", 8, 1) && !is("/devices", 8, 1) && !is("/run/weir", 0, 30));
        assert!(is("/dev", 0, 6) && is("/dev/disk/by-id", 0, 6) && is("/dev", 0, 99) && is("/dev", 8, 1));
        assert!(!is("/dev/shm", 0, 25) && !is("/dev/shm/pool", 0, 25));
        assert!(is("/dev/shm", 0, 6), "a folder of devtmpfs, where nothing is mounted");
        assert!(is("/chroot/dev", 0, 6), "devtmpfs mounted elsewhere");
        assert!(is("/sys/fs/cgroup", 0, 31) && is("/proc/self/cwd", 8, 1));
    }

    #[test]
    fn the_folder_is_resolved() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).expect("a link");
        assert_eq!(kernel_folder(&link.join("file")).expect("it is there"), Some("/proc".into()));
        assert_eq!(kernel_folder(&link.join("../dev/x")).expect("it is there"), Some("/dev".into()));
        assert_eq!(kernel_folder(&folder.path().join("file")).expect("it is there"), None);
        assert_eq!(kernel_folder(&folder.path().join("no/file")).expect("resolved"), None);
        assert_eq!(kernel_folder(Path::new("/dev/no/such/file")).expect("resolved"), Some("/dev".into()));
        assert_eq!(kernel_folder(Path::new("file")).expect("resolved"), None);
    }
}
