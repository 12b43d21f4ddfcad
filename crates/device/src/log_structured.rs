//! File systems that write to a log of their own: a pool's device in a file there is a log on a log.

use std::io;
use std::path::Path;

/// A file system that never overwrites data in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStructured {
    /// Name of the file system.
    pub name: &'static str,
    /// How a file on it is overwritten in place after all; `None` if that is not possible.
    pub in_place: Option<&'static str>,
    /// Its number in `statfs`, from Linux's `magic.h` and OpenZFS.
    magic: u64,
}

const ALL: [LogStructured; 4] = [
    LogStructured { name: "F2FS", in_place: None, magic: 0xf2f5_2010 },
    LogStructured {
        name: "Btrfs",
        in_place: Some("run chattr +C on the empty folder before the file is created"),
        magic: 0x9123_683e,
    },
    LogStructured { name: "NILFS2", in_place: None, magic: 0x3434 },
    LogStructured { name: "ZFS", in_place: None, magic: 0x2fc1_2fc1 },
];

impl LogStructured {
    /// Returns the file system of this number in `statfs`; `None` if it overwrites in place.
    pub fn by_magic(magic: u64) -> Option<Self> {
        // The field is signed, and of 32 bits on some machines.
        ALL.into_iter().find(|one| one.magic == magic & 0xffff_ffff)
    }
}

/// Returns the number in `statfs` of the file system that a file is on, unless the file is excepted from its
/// log by the attribute `C` (no copy on write): then, and for a block device, 0.
///
/// # Errors
/// Fails if the file cannot be opened or its file system does not answer.
pub fn file_system_magic(path: &Path) -> io::Result<u64> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(0);
    }
    let file = std::fs::File::open(path)?;
    // Few file systems have attributes.
    let flags = rustix::fs::ioctl_getflags(&file).unwrap_or(rustix::fs::IFlags::empty());
    if flags.contains(rustix::fs::IFlags::NOCOW) {
        return Ok(0);
    }
    Ok(rustix::fs::fstatfs(&file)?.f_type as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_known_by_their_numbers() {
        let name = |magic: u64| LogStructured::by_magic(magic).map(|one| one.name);
        // `f_type` of Btrfs is negative on machines of 32 bits.
        assert_eq!(name(0x9123_683e_u32 as i32 as u64), Some("Btrfs"));
        assert_eq!([0xf2f5_2010, 0x3434, 0x2fc1_2fc1].map(name), ["F2FS", "NILFS2", "ZFS"].map(Some));
        // ext4, XFS, tmpfs, none.
        assert_eq!([0xef53, 0x5846_5342, 0x0102_1994, 0].map(name), [None; 4]);
    }

    #[test]
    fn the_number_is_that_of_the_files_own_file_system() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("d.img");
        std::fs::write(&path, "").expect("written");
        let of_folder = rustix::fs::statfs(folder.path()).expect("it answers").f_type as u64;
        assert_eq!(file_system_magic(&path).ok(), Some(of_folder));
        assert_eq!(file_system_magic(folder.path()).ok(), Some(0), "no file");
        assert!(file_system_magic(&folder.path().join("none")).is_err());
    }
}
