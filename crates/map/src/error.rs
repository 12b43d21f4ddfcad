//! Why a map could not be created, opened or changed.

use thiserror::Error;
use weir_model::{Bytes, DeviceId, DeviceOffset, ErrorKind, IoError};

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
    /// A device cannot hold what it must.
    #[error("device {device} ({size}) is too small: it needs at least {least}")]
    TooSmall {
        /// The device.
        device: DeviceId,
        /// Its size.
        size: Bytes,
        /// The least it may have.
        least: Bytes,
    },
    /// More than the format can number.
    #[error("device {device} ({size}) is too large for extents this small: use a larger extent size")]
    TooLarge {
        /// The device.
        device: DeviceId,
        /// Its size.
        size: Bytes,
    },
    /// The metadata area cannot hold the map.
    #[error("the metadata area is full ({pages} pages): remove volumes or TRIM unused data")]
    MetadataFull {
        /// Pages of the area.
        pages: u64,
    },
}

impl MapError {
    /// What the caller must do.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } => ErrorKind::Environment,
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::Unknown { .. } | Self::Mismatch(_) | Self::MetadataFull { .. } => ErrorKind::Refused,
            Self::TooSmall { .. } | Self::TooLarge { .. } => ErrorKind::Usage,
        }
    }
}
