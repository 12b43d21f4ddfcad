//! Why a device or a socket could not be used, and the way out.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use weir_model::{Bytes, ErrorKind};

/// A device could not be opened, or the reactor could not be set up.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The path cannot be opened.
    #[error("cannot open device {}: {source}; check that the path exists and that you may read and write it", path.display())]
    Open {
        /// The device.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not exist and no size was given to create it with.
    #[error("device {} does not exist; correct its path, or add `size` to create it \
     as a sparse file", path.display())]
    Missing {
        /// The device.
        path: PathBuf,
    },
    /// There is nothing at the path, and no file is made there: the folder is the kernel's.
    #[error("device {} does not exist, and weir creates no file in {}, which the kernel keeps in memory; name a device that exists (lsblk and ls -l /dev/disk/by-id list them), or a file elsewhere", path.display(), folder.display())]
    NoSuchDevice {
        /// The device.
        path: PathBuf,
        /// The folder, symbolic links resolved.
        folder: PathBuf,
    },
    /// A symbolic link to nothing.
    #[error("device {} is a symbolic link to something that does not exist; correct the link, or remove it", path.display())]
    DanglingLink {
        /// The device.
        path: PathBuf,
    },
    /// The file system cannot hold what must always find room.
    #[error("device {}: its file system cannot set aside {len} for the pool's metadata: {source}; free some space there, or use another device", path.display())]
    Reserve {
        /// The device.
        path: PathBuf,
        /// How much.
        len: Bytes,
        /// What the system said.
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device; name one of these as a device", path.display())]
    NotADevice {
        /// The path.
        path: PathBuf,
    },
    /// The file has another size than was declared.
    #[error("device {} has {actual}, but its declared size is {declared}; correct `size`, or remove the file if it may be lost", path.display())]
    SizeDiffers {
        /// The device.
        path: PathBuf,
        /// What was declared.
        declared: Bytes,
        /// What was found.
        actual: Bytes,
    },
    /// No drive of this name is modelled.
    #[error("device {}: there is no drive model {name:?}; write one of {}", path.display(), weir_timing::NAMES.join(", "))]
    UnknownModel {
        /// The device.
        path: PathBuf,
        /// The name given.
        name: String,
    },
    /// Another process holds the device.
    #[error("device {} is in use by another weir process (waited {:.1} s); stop that one, or use its control socket", path.display(), waited.as_secs_f64())]
    InUse {
        /// The device.
        path: PathBuf,
        /// How long its lock was waited for.
        waited: Duration,
    },
    /// The system itself uses the block device.
    #[error("block device {} is mounted or otherwise claimed by the system; unmount it first", path.display())]
    Claimed {
        /// The device.
        path: PathBuf,
    },
    /// Two names lead to one device.
    #[error("{} and {} are the same device; name it once", first.display(), second.display())]
    SameDevice {
        /// The name that came first.
        first: PathBuf,
        /// The other name.
        second: PathBuf,
    },
    /// An operation on an open device failed.
    #[error("device {}: {what}: {source}", path.display())]
    Io {
        /// The device.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody answers at this socket.
    #[error("a server already listens at {}; stop it, or choose another path", path.display())]
    SocketInUse {
        /// The socket's path.
        path: PathBuf,
    },
    /// The socket's path is taken by something else.
    #[error("{} exists and is not a socket; choose another path, or remove it", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A socket cannot be given to whom it is to belong.
    #[error("cannot set {what} of the socket {}: {source}; {way_out}", path.display())]
    SocketAccess {
        /// The socket's path.
        path: PathBuf,
        /// What was to be set.
        what: String,
        /// What the system said.
        source: io::Error,
        /// What to do.
        way_out: &'static str,
    },
    /// Listening at a path failed.
    #[error("cannot listen at {}: {source}", path.display())]
    ListenUnix {
        /// The socket's path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Listening at an address failed.
    #[error("cannot listen at {address}: {source}; choose a free port and an address of this machine")]
    ListenTcp {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// io_uring was demanded and refused.
    #[error(
        "the kernel refuses io_uring: {source}; allow it (sysctl kernel.io_uring_disabled=0, \
         container seccomp profile)"
    )]
    Ring {
        /// What the system said.
        source: io::Error,
    },
    /// Something the reactor needs at start was refused.
    #[error("cannot set up {what}: {source}; free memory, or raise the limits of this process (ulimit -a)")]
    Setup {
        /// What it was.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl DeviceError {
    /// What whoever meets the error has to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing { .. }
            | Self::NoSuchDevice { .. }
            | Self::DanglingLink { .. }
            | Self::NotADevice { .. }
            | Self::SameDevice { .. }
            | Self::UnknownModel { .. } => ErrorKind::Usage,
            Self::SizeDiffers { .. }
            | Self::InUse { .. }
            | Self::Claimed { .. }
            | Self::SocketInUse { .. }
            | Self::NotASocket { .. } => ErrorKind::Refused,
            Self::Open { .. }
            | Self::Reserve { .. }
            | Self::Io { .. }
            | Self::SocketAccess { .. }
            | Self::ListenUnix { .. }
            | Self::ListenTcp { .. }
            | Self::Ring { .. }
            | Self::Setup { .. } => ErrorKind::Environment,
        }
    }
}
