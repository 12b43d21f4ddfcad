//! The table of mounts: which file systems of weir are mounted where, and their end.

use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use thiserror::Error;

/// What the source of a mount begins with in the table of mounts; the path of the region follows.
pub(super) const SOURCE: &str = "weir:";

/// A mounted file system of weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// Directory that it is mounted at.
    pub directory: PathBuf,
    /// Path of its region.
    pub region: PathBuf,
    /// Whether nothing can be changed through it.
    pub is_read_only: bool,
}

/// The reason why a file system cannot be unmounted.
#[derive(Debug, Error)]
pub enum UnmountError {
    /// A process has a file of it open, or works in one of its directories.
    #[error("{} is in use", .0.display())]
    Busy(PathBuf),
    /// Users other than root unmount with `fusermount3`, which cannot be started.
    #[error("cannot start fusermount3: {0}")]
    NoHelper(io::Error),
    /// The kernel or `fusermount3` refused.
    #[error("cannot unmount {}: {reason}", directory.display())]
    Refused {
        /// The directory.
        directory: PathBuf,
        /// What the kernel or the program said.
        reason: String,
    },
}

/// Returns the file systems of weir that are mounted, in the order of the table; of several at one directory
/// the last one is visible.
///
/// # Errors
/// Returns an error if the kernel's table cannot be read.
pub fn mounts() -> io::Result<Vec<MountPoint>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
}

/// Returns the mount that a line of `mountinfo` describes; `None` if it is not one of weir.
fn parse_line(line: &[u8]) -> Option<MountPoint> {
    let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let (kind, source) = (fields.get(separator + 1)?, unescape(fields.get(separator + 2)?));
    let region = source.strip_prefix(SOURCE.as_bytes()).filter(|_| kind.starts_with(b"fuse"))?.to_vec();
    let path = |bytes| PathBuf::from(OsString::from_vec(bytes));
    let is_read_only = fields.get(5)?.split(|byte| *byte == b',').any(|option| option == b"ro");
    Some(MountPoint { directory: path(unescape(fields.get(4)?)), region: path(region), is_read_only })
}

/// Replaces `\ooo`, by which the kernel writes white space and backslashes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, others)) = rest.split_first() {
        let octal =
            others.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    bytes
}

/// Unmounts the directory. With `lazily` it disappears at once, and the file system ends when nobody uses it
/// any more.
///
/// # Errors
/// `Busy` unless `lazily`, if it is in use; `Refused` if it is not mounted, or this user may not unmount it.
pub fn unmount(directory: &Path, lazily: bool) -> Result<(), UnmountError> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() } | UnmountFlags::NOFOLLOW;
    let refused = |reason| UnmountError::Refused { directory: directory.to_owned(), reason };
    match rustix::mount::unmount(directory, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(UnmountError::Busy(directory.to_owned())),
        Err(rustix::io::Errno::PERM) => {
            let output = Command::new("fusermount3")
                .args(["-u"])
                .args(lazily.then_some("-z"))
                .arg("--")
                .arg(directory)
                .env("LC_ALL", "C")
                .stdin(Stdio::null())
                .output()
                .map_err(UnmountError::NoHelper)?;
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            match output.status.success() {
                true => Ok(()),
                false if said.contains("busy") => Err(UnmountError::Busy(directory.to_owned())),
                false => Err(refused(said)),
            }
        }
        Err(error) => Err(refused(io::Error::from(error).to_string())),
    }
}

/// Returns the source of a mount. `fusermount3`, which mounts for users other than root, takes it as one of
/// several options with commas between them.
pub(super) fn source(region: &Path, is_root: bool) -> String {
    let source = format!("{SOURCE}{}", String::from_utf8_lossy(region.as_os_str().as_bytes()));
    if is_root { source } else { source.replace('\\', "\\\\").replace(',', "\\,") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_weir_are_recognised() {
        let line =
            br"61 29 0:53 / /mnt/a\040b rw,nosuid,nodev shared:9 - fuse weir:/srv/re\134gion rw,user_id=0";
        let found = parse_line(line).expect("a mount of weir");
        assert_eq!(found.directory, Path::new("/mnt/a b"));
        assert_eq!(found.region, Path::new(r"/srv/re\gion"));
        assert!(!found.is_read_only);
        let by_helper = br"61 29 0:53 / /mnt ro,nosuid - fuse.weir weir:/r rw";
        let found = parse_line(by_helper).expect("a mount of weir");
        assert!(found.region == Path::new("/r") && found.is_read_only);
        for other in
            [&b"61 29 0:53 / /mnt rw - ext4 weir:/r rw"[..], b"61 29 0:53 / /mnt rw - fuse sshfs rw", b""]
        {
            assert_eq!(parse_line(other), None);
        }
    }

    #[test]
    fn unmounting_what_is_not_mounted_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(unmount(directory.path(), false).is_err());
    }
}
