//! Errors of devices and sockets, each with what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use weir_model::{Bytes, ErrorKind};

/// An error of a device, of a socket, or of the reactor's setup.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The path cannot be opened.
    #[error("cannot open device {}: {source}; check that the path exists and that you may read and write it", path.display())]
    Open {
        /// The device.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not exist, and no size was given to create it with.
    #[error("device {} does not exist; correct its path, or add `size` to create it \
     as a sparse file", path.display())]
    Missing {
        /// The device.
        path: PathBuf,
    },
    /// The path does not exist, and no file may be created there: the folder is the kernel's.
    #[error("device {} does not exist, and weir creates no file in {}, which the kernel keeps in memory; name a device that exists (lsblk and ls -l /dev/disk/by-id list them), or a file elsewhere", path.display(), folder.display())]
    NoSuchDevice {
        /// The device.
        path: PathBuf,
        /// The folder, with symbolic links resolved.
        folder: PathBuf,
    },
    /// The path is a dangling symbolic link.
    #[error("device {} is a symbolic link to something that does not exist; correct the link, or remove it", path.display())]
    DanglingLink {
        /// The device.
        path: PathBuf,
    },
    /// The file system cannot allocate space that must always be available.
    #[error("device {}: its file system cannot set aside {len} for the pool's metadata: {source}; free some space there, or use another device", path.display())]
    Reserve {
        /// The device.
        path: PathBuf,
        /// The number of bytes.
        len: Bytes,
        /// The system's error.
        source: io::Error,
    },
    /// The path is neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device; name one of these as a device", path.display())]
    NotADevice {
        /// The path.
        path: PathBuf,
    },
    /// The size of the file differs from the declared size.
    #[error("device {} has {actual}, but its declared size is {declared}; correct `size`, or remove the file if it may be lost", path.display())]
    SizeDiffers {
        /// The device.
        path: PathBuf,
        /// The declared size.
        declared: Bytes,
        /// The actual size.
        actual: Bytes,
    },
    /// There is no drive model of this name.
    #[error("device {}: there is no drive model {name:?}; write one of {}", path.display(), weir_timing::NAMES.join(", "))]
    UnknownModel {
        /// The device.
        path: PathBuf,
        /// The given name.
        name: String,
    },
    /// Another process has the device open.
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
    /// Two paths lead to one device.
    #[error("{} and {} are the same device; name it once", first.display(), second.display())]
    SameDevice {
        /// The path that came first.
        first: PathBuf,
        /// The other path.
        second: PathBuf,
    },
    /// An operation on an open device failed.
    #[error("device {}: {what}: {source}", path.display())]
    Io {
        /// The device.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A server answers at this socket.
    #[error("a server already listens at {}; stop it, or choose another path", path.display())]
    SocketInUse {
        /// The socket's path.
        path: PathBuf,
    },
    /// The socket's path is occupied by another kind of file.
    #[error("{} exists and is not a socket; choose another path, or remove it", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Owner, group or mode of a socket cannot be set.
    #[error("cannot set {what} of the socket {}: {source}; {way_out}", path.display())]
    SocketAccess {
        /// The socket's path.
        path: PathBuf,
        /// The setting that failed.
        what: String,
        /// The system's error.
        source: io::Error,
        /// The remedy, for the end of the message.
        way_out: &'static str,
    },
    /// Listening at a path failed.
    #[error("cannot listen at {}: {source}", path.display())]
    ListenUnix {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Listening at an address failed.
    #[error("cannot listen at {address}: {source}; choose a free port and an address of this machine")]
    ListenTcp {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// io_uring was demanded and is refused.
    #[error(
        "the kernel refuses io_uring: {source}; allow it (sysctl kernel.io_uring_disabled=0, \
         container seccomp profile)"
    )]
    Ring {
        /// The system's error.
        source: io::Error,
    },
    /// A resource that the reactor needs at its start was refused.
    #[error("cannot set up {what}: {source}; free memory, or raise the limits of this process (ulimit -a)")]
    Setup {
        /// The resource.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl DeviceError {
    /// Classifies the error by what the user must do.
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
