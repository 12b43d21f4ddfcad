//! Errors of creating, opening and changing a map.

use thiserror::Error;
use weir_model::{Bytes, DeviceId, DeviceOffset, DeviceSet, ErrorKind, IoError};

/// An error of the map's own storage.
#[derive(Debug, Error)]
pub enum MapError {
    /// A device failed while the map used it.
    #[error("device {device}: metadata {what} at {at} failed: {error}")]
    Io {
        /// The device.
        device: DeviceId,
        /// "read", "write" or "flush".
        what: &'static str,
        /// The offset.
        at: DeviceOffset,
        /// The device's error.
        error: IoError,
    },
    /// Stored metadata is damaged.
    #[error("device {device}: {what} at {at} is damaged: {why}; nothing was changed")]
    Damaged {
        /// The device.
        device: DeviceId,
        /// The structure.
        what: &'static str,
        /// The offset.
        at: DeviceOffset,
        /// The evidence of the damage.
        why: String,
    },
    /// The metadata was written by a newer weir.
    #[error(
        "device {device}: {what} {found:#x} is not known to this version of weir (it knows {known:#x}); use the version that wrote it, or a newer one"
    )]
    Unknown {
        /// The device.
        device: DeviceId,
        /// "format version" or "incompatible feature bits".
        what: &'static str,
        /// The stored value.
        found: u64,
        /// The value that this version supports.
        known: u64,
    },
    /// Two copies or two devices contradict each other.
    #[error("the devices do not belong together: {0}")]
    Mismatch(String),
    /// No present device has the pool's metadata, which is not mirrored.
    #[error("the only copy of the pool's metadata is on a device that is absent")]
    MetadataAbsent {
        /// The absent devices; one of them has it.
        absent: DeviceSet,
        /// The present devices.
        present: DeviceSet,
    },
    /// A device that contains only data is absent.
    #[error(
        "device {device} does not exist or is left out, and it holds data of the pool; bring it back, or \
         open the pool without it (--without NAME): its data then reads as EIO; if it is gone for \
         good, a blank one can take its place (weir pool replace NAME)"
    )]
    Absent {
        /// The device.
        device: DeviceId,
    },
    /// One of the two metadata members is absent, and nothing records that the other continued without it.
    #[error(
        "device {device} does not exist or is left out, and it has a copy of the pool's metadata that may be newer than the one at hand; bring it back, or go on with the one at hand (--accept-rollback): changes only the absent one knows are then lost for good"
    )]
    MirrorAbsent {
        /// The absent member.
        device: DeviceId,
    },
    /// The present metadata is not the newest: the pool has continued without it.
    #[error(
        "device {knows} says that the newest metadata is on device {newest} alone, which is absent; bring device {newest} back: the metadata on the devices present is older (generation {generation})"
    )]
    Stale {
        /// The device whose superblock records this.
        knows: DeviceId,
        /// A member with the newest metadata.
        newest: DeviceId,
        /// The generation that left the present members behind.
        generation: u64,
    },
    /// A device is present as an older file, and only it has some data.
    #[error(
        "the file of device {device} is older than what the pool has used: it was \
         truncated, removed or replaced while the pool was served; {bytes} of data are on this device alone, \
         and what is there now is from before"
    )]
    Outdated {
        /// The device.
        device: DeviceId,
        /// The data that no other present device has, in whole blocks.
        bytes: Bytes,
    },
    /// The only present metadata is that of an older file.
    #[error(
        "the file of device {device} is older than what the pool has used: it was \
         truncated, removed or replaced while the pool was served; it has the only copy of the pool's \
         metadata at hand, and that is from before"
    )]
    OutdatedMetadata {
        /// The device.
        device: DeviceId,
    },
    /// A device is present that another one has replaced.
    #[error(
        "device {device} is the old one, which another device has replaced; put the new \
         one there, or, if that is gone for good, go on without it (--without NAME) or make this one new \
         (weir pool replace NAME --force): its contents are obsolete"
    )]
    Replaced {
        /// The device.
        device: DeviceId,
    },
    /// A device to be replaced is present.
    #[error(
        "device {device} is present, and only an absent device can be replaced; to replace a failing one, take \
         it out, and name a blank one in the pool file"
    )]
    DevicePresent {
        /// The device.
        device: DeviceId,
    },
    /// A device to be replaced has data that no other one has.
    #[error(
        "device {device} cannot be replaced: {bytes} of volume {volume:?}{} are on it alone; bring it back, or \
         give these data up first: serve the pool without it (--without NAME), and remove the volume, or TRIM \
         or overwrite what is lost",
        Others(*others)
    )]
    OnlyCopy {
        /// The device.
        device: DeviceId,
        /// A volume.
        volume: String,
        /// The amount of that volume's data, in whole blocks.
        bytes: Bytes,
        /// The number of other affected volumes.
        others: usize,
    },
    /// Each of two devices has continued without the other.
    #[error(
        "device {one} and device {other} were each used without the other, and contradict one another; open the pool without one of them (--without NAME), which loses the data that it alone holds"
    )]
    Diverged {
        /// One device.
        one: DeviceId,
        /// The other device.
        other: DeviceId,
    },
    /// A device is too small.
    #[error("device {device} ({size}) is too small; use one of at least {least}")]
    TooSmall {
        /// The device.
        device: DeviceId,
        /// Its size.
        size: Bytes,
        /// The minimum size.
        least: Bytes,
    },
    /// A device has more extents than the format can number.
    #[error(
        "device {device} ({size}) is too large for the extent size; \
         choose larger extents (`extent` in the pool file)"
    )]
    TooLarge {
        /// The device.
        device: DeviceId,
        /// Its size.
        size: Bytes,
    },
    /// The metadata area cannot contain the map.
    #[error("the metadata area is full ({pages} pages); remove volumes, or TRIM unused data")]
    MetadataFull {
        /// The pages of the area.
        pages: u64,
    },
}

/// The number of volumes besides the named one, for display.
struct Others(usize);

impl std::fmt::Display for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str(", and some of another one,"),
            n => write!(f, ", and some of {n} others,"),
        }
    }
}

impl MapError {
    /// Returns the kind of the error.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } => ErrorKind::Environment,
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::Unknown { .. }
            | Self::Mismatch(_)
            | Self::Absent { .. }
            | Self::MetadataAbsent { .. }
            | Self::MirrorAbsent { .. }
            | Self::Stale { .. }
            | Self::Outdated { .. }
            | Self::OutdatedMetadata { .. }
            | Self::Diverged { .. }
            | Self::Replaced { .. }
            | Self::DevicePresent { .. }
            | Self::OnlyCopy { .. }
            | Self::MetadataFull { .. } => ErrorKind::Refused,
            Self::TooSmall { .. } | Self::TooLarge { .. } => ErrorKind::Usage,
        }
    }
}
