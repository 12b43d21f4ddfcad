//! Errors of the file system.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The result of an operation of the file system.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation on files failed. Each has an errno ([`Error::errno`]).
#[derive(Debug, Error)]
pub enum Error {
    /// No entry of this name, or no such inode.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// A directory is needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory cannot be used here.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The operation does not apply to this kind of file.
    #[error("operation not permitted on this kind of file")]
    NotPermitted,
    /// An argument is out of range.
    #[error("invalid argument")]
    Invalid,
    /// The name has more than 255 bytes.
    #[error("file name too long")]
    NameTooLong,
    /// The file would become larger than the region's format can map.
    #[error("file too large")]
    TooLarge,
    /// The inode has as many names as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// No free space, even after space that was freed has been made reusable.
    #[error("no space left in the region")]
    NoSpace,
    /// The owner of a file, or its group, would come to have more than its limit.
    #[error("disk quota exceeded")]
    OverQuota,
    /// The extended attribute does not exist; also: no data or hole at or after the offset.
    #[error("no such attribute")]
    NoAttribute,
    /// An extended attribute, or all of an inode, is too large.
    #[error("extended attributes too large")]
    AttributesTooLarge,
    /// No data or no hole at or after the offset.
    #[error("no data or hole at or after this offset")]
    NoSuchOffset,
    /// The operation is not supported.
    #[error("not supported")]
    NotSupported,
    /// The file system is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// An earlier flush of the region failed: what it covered may be lost, and nothing can be changed.
    #[error("an earlier flush of the region failed")]
    Failed,
    /// The region could not be flushed.
    #[error("cannot flush the region: {0}")]
    Io(#[from] io::Error),
    /// A container cannot be read or written.
    #[error("cannot use a container: {0}")]
    Container(io::Error),
    /// The file's data stays in the region.
    #[error("the file is pinned to the region")]
    Pinned,
    /// The file was changed while it was copied to another tier.
    #[error("the file changed while it was moved")]
    Changing,
    /// Programs access the file's container through the kernel.
    #[error("programs have the file open")]
    InUse,
    /// No tier below the region can take the file.
    #[error("no tier can take the file")]
    NoTier,
    /// The region has no superblock: it was never made, or making it did not end.
    #[error("no weir file system is there")]
    NoFileSystem,
    /// The format is older or newer than this version knows, or has features that it does not know.
    #[error(
        "format version {version} with features {features:#x} is not known to this version of weir (it knows \
         {known})"
    )]
    UnknownFormat {
        /// Version in the superblock.
        version: u32,
        /// Incompatible and read-only-compatible features.
        features: u64,
        /// Version that this code knows.
        known: u32,
    },
    /// The region is smaller than its file system.
    #[error("the region has {found} of the {size} bytes of its file system; it was truncated")]
    Truncated {
        /// Bytes that are there.
        found: u64,
        /// Bytes that the superblock has.
        size: u64,
    },
    /// A tier of the region cannot be used.
    #[error("tier {number} ({class} {}): {reason}", path.display())]
    Tier {
        /// The tier.
        number: u32,
        /// What it is made of.
        class: &'static str,
        /// Its directory.
        path: PathBuf,
        /// Why.
        reason: TierError,
    },
    /// The tier table cannot be read, so nothing says where the tiers are.
    #[error(
        "damaged: the tier table cannot be read; weir fs check --repair --tier DIR, with --tier for the \
         directory of each tier, writes it again"
    )]
    TierTable,
    /// The region's contents contradict its format.
    #[error("damaged: {0}")]
    Damaged(String),
}

/// The reason why a tier cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TierError {
    /// The directory does not exist.
    #[error("the directory is not there")]
    NoDirectory,
    /// The directory has no marker: its file system is not mounted, or it is another directory.
    #[error("the directory has no file weir.tier")]
    NoMarker,
    /// The marker is that of another region, with this UUID.
    #[error("the directory belongs to the region with UUID {0}")]
    OtherRegion(String),
    /// The marker is that of another tier of the region.
    #[error("the directory is that of tier {0}")]
    OtherTier(u32),
    /// The tier was removed from the region.
    #[error("it was removed")]
    Removed,
    /// A process has the tier open.
    #[error("the directory is in use by another process")]
    InUse,
    /// The operating system refused.
    #[error("the directory cannot be used: {0}")]
    Os(String),
}

impl Error {
    /// Returns the errno that a program sees.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound => libc::ENOENT,
            Self::Exists => libc::EEXIST,
            Self::NotDirectory => libc::ENOTDIR,
            Self::IsDirectory => libc::EISDIR,
            Self::NotEmpty => libc::ENOTEMPTY,
            Self::NotPermitted => libc::EPERM,
            Self::Invalid => libc::EINVAL,
            Self::NameTooLong => libc::ENAMETOOLONG,
            Self::TooLarge => libc::EFBIG,
            Self::TooManyLinks => libc::EMLINK,
            Self::NoSpace | Self::AttributesTooLarge => libc::ENOSPC,
            Self::OverQuota => libc::EDQUOT,
            Self::NoAttribute => libc::ENODATA,
            Self::NoSuchOffset => libc::ENXIO,
            Self::NotSupported => libc::EOPNOTSUPP,
            Self::ReadOnly => libc::EROFS,
            Self::NoFileSystem | Self::UnknownFormat { .. } | Self::Truncated { .. } => libc::EINVAL,
            Self::Container(error) => match error.raw_os_error() {
                // Others would say something about the file that is not so.
                Some(
                    errno @ (libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EROFS | libc::EOPNOTSUPP),
                ) => errno,
                _ => libc::EIO,
            },
            Self::Pinned => libc::EPERM,
            Self::Changing => libc::EBUSY,
            Self::InUse => libc::ETXTBSY,
            Self::NoTier => libc::ENOSPC,
            Self::Tier { .. } => libc::ENODEV,
            Self::Failed | Self::Io(_) | Self::Damaged(_) | Self::TierTable => libc::EIO,
        }
    }
}
