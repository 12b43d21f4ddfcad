//! Properties of an open file: size, sector, class, and whether it is in memory.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};
use weir_model::{BLOCK, Bytes, DeviceClass};

use crate::DeviceError;

/// `f_type` of tmpfs.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// `f_type` of ramfs.
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Detected properties of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceProperties {
    pub(crate) size: Bytes,
    pub(crate) sector: Bytes,
    pub(crate) class: DeviceClass,
    pub(crate) is_block: bool,
    pub(crate) memory_backed: bool,
    pub(crate) volatile_cache: bool,
    pub(crate) identity: Identity,
}

/// Identity of a device: equal for two paths if and only if they lead to one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    File { device: u64, inode: u64 },
    Block { number: u64 },
}

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            Self::Block { number: metadata.rdev() }
        } else {
            Self::File { device: metadata.dev(), inode: metadata.ino() }
        }
    }
}

impl DeviceProperties {
    /// Reports whether it is a block device; `None` if it is not a regular file either.
    pub(crate) fn is_block(metadata: &Metadata) -> Option<bool> {
        let kind = metadata.file_type();
        (kind.is_block_device() || kind.is_file()).then(|| kind.is_block_device())
    }

    /// Detects the properties of an open file with `size` bytes.
    pub(crate) fn of(path: &Path, file: &File, size: Bytes) -> Result<Self, DeviceError> {
        let io = |what| move |source| DeviceError::Io { path: path.to_owned(), what, source };
        let metadata = file.metadata().map_err(io("asking what it is"))?;
        let is_block = metadata.file_type().is_block_device();
        let memory_backed = !is_block && is_in_memory(file);
        let queue = queue_folder(if is_block { metadata.rdev() } else { metadata.dev() });
        let setting = |name: &str| {
            let text = std::fs::read_to_string(queue.as_ref()?.join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        let class = match setting("rotational").as_deref() {
            _ if memory_backed => DeviceClass::Nvm,
            Some("1") => DeviceClass::Hdd,
            _ => DeviceClass::Ssd,
        };
        Ok(Self {
            size: Bytes(size.0 - size.0 % BLOCK),
            sector: sector(file, is_block),
            class,
            is_block,
            memory_backed,
            volatile_cache: !memory_backed && setting("write_cache").as_deref() != Some("write through"),
            identity: Identity::of(&metadata),
        })
    }
}

/// Reports whether the file's file system is in memory.
fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|s| matches!(s.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC))
}

/// Returns the unit of direct transfers; a block where the system does not say.
fn sector(file: &File, is_block: bool) -> Bytes {
    let said = if is_block {
        rustix::fs::ioctl_blksszget(file).ok()
    } else {
        let asked = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        asked.ok().map(|s| s.stx_dio_offset_align).filter(|&align| align > 0)
    };
    match said.map(u64::from) {
        Some(sector) if sector.is_power_of_two() && sector <= BLOCK => Bytes(sector.max(512)),
        // tmpfs and the like can transfer at any byte.
        _ if is_in_memory(file) => Bytes(512),
        _ => Bytes(BLOCK),
    }
}

/// Returns the sysfs folder of the request queue of a block device (or of the disk that a partition is on).
fn queue_folder(number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let device = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    [device.join("queue"), device.parent()?.join("queue")].into_iter().find(|p| p.is_dir())
}
