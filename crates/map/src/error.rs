//! Why a map could not be created, opened or changed.

use thiserror::Error;
use weir_model::{Bytes, DeviceId, DeviceOffset, DeviceSet, ErrorKind, IoError};

/// What went wrong with the map's own storage.
#[derive(Debug, Error)]
pub enum MapError {
    /// A device failed under the map.
    #[error("device {device}: metadata {what} at {at} failed: {error}")]
    Io {
        /// The device.
        device: DeviceId,
        /// "read", "write" or "flush".
        what: &'static str,
        /// Where.
        at: DeviceOffset,
        /// How it failed.
        error: IoError,
    },
    /// What is stored is not what was written.
    #[error("device {device}: {what} at {at} is damaged: {why}; nothing was changed")]
    Damaged {
        /// The device.
        device: DeviceId,
        /// What should be there.
        what: &'static str,
        /// Where.
        at: DeviceOffset,
        /// How it shows.
        why: String,
    },
    /// Written by a newer weir.
    #[error(
        "device {device}: {what} {found:#x} is not known to this version of weir (it knows {known:#x}); use the version that wrote it, or a newer one"
    )]
    Unknown {
        /// The device.
        device: DeviceId,
        /// "format version" or "incompatible feature bits".
        what: &'static str,
        /// What is stored.
        found: u64,
        /// What would be understood.
        known: u64,
    },
    /// Two copies or two devices contradict each other.
    #[error("the devices do not belong together: {0}")]
    Mismatch(String),
    /// No device at hand has the pool's metadata, which is not mirrored.
    #[error("the only copy of the pool's metadata is on a device that is absent")]
    MetadataAbsent {
        /// The devices that are not there: one of them has it.
        absent: DeviceSet,
        /// Those that are.
        present: DeviceSet,
    },
    /// A device that holds data only is not there.
    #[error(
        "device {device} does not exist or is left out, and it holds data of the pool; bring it back, or \
         open the pool without it (--without NAME): its data then reads as EIO; if it is gone for \
         good, a blank one can take its place (weir pool replace NAME)"
    )]
    Absent {
        /// The device.
        device: DeviceId,
    },
    /// One of the two metadata members is not there, and nothing says that the other went on without it.
    #[error(
        "device {device} does not exist or is left out, and it has a copy of the pool's metadata that may be newer than the one at hand; bring it back, or go on with the one at hand (--accept-rollback): changes only the absent one knows are then lost for good"
    )]
    MirrorAbsent {
        /// The absent member.
        device: DeviceId,
    },
    /// The metadata at hand is not the newest: the pool has gone on without it.
    #[error(
        "device {knows} says that the newest metadata is on device {newest} alone, which is absent; bring device {newest} back: the metadata on the devices present is older (generation {generation})"
    )]
    Stale {
        /// The device that knows.
        knows: DeviceId,
        /// A member that holds the newest metadata.
        newest: DeviceId,
        /// The generation that left the present ones behind.
        generation: u64,
    },
    /// A device is there as an older file, which alone holds data.
    #[error(
        "the file of device {device} is older than what the pool has used: it was \
         truncated, removed or replaced while the pool was served; {bytes} of data are on this device alone, \
         and what is there now is from before"
    )]
    Outdated {
        /// The device.
        device: DeviceId,
        /// What no other device that is there holds, in whole blocks.
        bytes: Bytes,
    },
    /// The only metadata at hand is that of an older file.
    #[error(
        "the file of device {device} is older than what the pool has used: it was \
         truncated, removed or replaced while the pool was served; it has the only copy of the pool's \
         metadata at hand, and that is from before"
    )]
    OutdatedMetadata {
        /// The device.
        device: DeviceId,
    },
    /// A device is there that another one has taken the place of.
    #[error(
        "device {device} is the old one, which another device has replaced; put the new \
         one there, or, if that is gone for good, go on without it (--without NAME) or make this one new \
         (weir pool replace NAME --force): its contents are obsolete"
    )]
    Replaced {
        /// The device.
        device: DeviceId,
    },
    /// A device is to be replaced that is there.
    #[error(
        "device {device} is present, and only an absent device can be replaced; to replace a failing one, take \
         it out, and name a blank one in the pool file"
    )]
    NotGone {
        /// The device.
        device: DeviceId,
    },
    /// A device is to be replaced that holds what no other one does.
    #[error(
        "device {device} cannot be replaced: {bytes} of volume {volume:?}{} are on it alone; bring it back, or \
         give these data up first: serve the pool without it (--without NAME), and remove the volume, or TRIM \
         or overwrite what is lost",
        Others(*others)
    )]
    HeldAlone {
        /// The device.
        device: DeviceId,
        /// A volume.
        volume: String,
        /// How much of it, in whole blocks.
        bytes: Bytes,
        /// How many other volumes there are like it.
        others: usize,
    },
    /// Two devices have each gone on without the other.
    #[error(
        "device {one} and device {other} were each used without the other, and contradict one another; open the pool without one of them (--without NAME), which loses the data that it alone holds"
    )]
    Split {
        /// One of them.
        one: DeviceId,
        /// The other.
        other: DeviceId,
    },
    /// A device cannot hold what it must.
    #[error("device {device} ({size}) is too small; use one of at least {least}")]
    TooSmall {
        /// The device.
        device: DeviceId,
        /// Its size.
        size: Bytes,
        /// The least it may have.
        least: Bytes,
    },
    /// More than the format can number.
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
    /// The metadata area cannot hold the map.
    #[error("the metadata area is full ({pages} pages); remove volumes, or TRIM unused data")]
    MetadataFull {
        /// Pages of the area.
        pages: u64,
    },
}

/// Volumes besides the one that is named.
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
    /// What the caller must do.
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
            | Self::Split { .. }
            | Self::Replaced { .. }
            | Self::NotGone { .. }
            | Self::HeldAlone { .. }
            | Self::MetadataFull { .. } => ErrorKind::Refused,
            Self::TooSmall { .. } | Self::TooLarge { .. } => ErrorKind::Usage,
        }
    }
}
