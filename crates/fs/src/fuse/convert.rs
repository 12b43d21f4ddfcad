//! Conversions between the kernel's terms and the file system's.

use crate::layout::inode::{Form, Inode, Kind};
use crate::layout::{Ino, PAGE_BYTES, Time};
use fuser::{FileAttr, FileType, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the file system's form of a time.
pub(super) fn time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time { seconds: after.as_secs().cast_signed(), nanos: after.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            let seconds = -before.as_secs().cast_signed();
            match before.subsec_nanos() {
                0 => Time { seconds, nanos: 0 },
                nanos => Time { seconds: seconds - 1, nanos: 1_000_000_000 - nanos },
            }
        }
    }
}

/// Returns a time that the kernel asks to set. Before 1970 the library subtracts the nanoseconds, which the
/// kernel means to be added to the seconds.
pub(super) fn requested_time(requested: SystemTime) -> Time {
    match requested.duration_since(UNIX_EPOCH) {
        Ok(_) => time(requested),
        Err(error) => {
            let before = error.duration();
            Time { seconds: -before.as_secs().cast_signed(), nanos: before.subsec_nanos() }
        }
    }
}

/// Returns the standard library's form of a time.
fn system_time(time: Time) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let seconds =
        if time.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    seconds.and_then(|seconds| seconds.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// Returns the kernel's name of a type.
pub(super) const fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// Returns the pages of a file's container, as if it had no holes: a file with a size and without blocks
/// would count as one without data.
const fn container_pages(inode: &Inode) -> u64 {
    match inode.form {
        Form::Container(_) => inode.size.div_ceil(PAGE_BYTES),
        _ => 0,
    }
}

/// Returns the attributes that the kernel shows.
pub(super) fn attributes(ino: Ino, inode: &Inode) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino.0),
        size: inode.size,
        blocks: (inode.pages + container_pages(inode)) * (PAGE_BYTES / 512),
        atime: system_time(inode.accessed),
        mtime: system_time(inode.modified),
        ctime: system_time(inode.changed),
        crtime: system_time(inode.created),
        kind: inode.kind().map_or(FileType::RegularFile, file_type),
        perm: (inode.mode & 0o7777) as u16,
        nlink: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.device,
        blksize: PAGE_BYTES as u32,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_are_kept() {
        for (seconds, nanos) in [(0, 0), (5, 999_999_999), (-1, 500), (-7, 0), (1 << 34, 1)] {
            let original = Time { seconds, nanos };
            assert_eq!(time(system_time(original)), original);
        }
    }
}
