//! Listening sockets: unix paths and TCP addresses.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::DeviceError;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Bytes a socket may hold on their way to a client: room for the replies of a deep queue in one
/// call, and little enough to stay in the processor's cache.
const SEND_BUFFER: usize = 1 << 18;

/// Where to listen.
#[derive(Clone, Debug)]
pub enum Listen {
    /// A unix socket.
    Unix {
        /// Its path. Replaced if its server is dead, removed when listening ends.
        path: PathBuf,
        /// Only this user may connect (mode 0600).
        private: bool,
    },
    /// A TCP address; port 0 takes any free one.
    Tcp(SocketAddr),
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    /// The socket file to remove at the end.
    path: Option<PathBuf>,
    address: Option<SocketAddr>,
}

impl Listener {
    pub(super) fn bind(at: &Listen) -> Result<Self, DeviceError> {
        match at {
            Listen::Unix { path, private } => {
                clear_the_way(path)?;
                let socket = bind_unix(path, *private)
                    .map_err(|source| DeviceError::ListenUnix { path: path.clone(), source })?;
                Ok(Self { socket, path: Some(path.clone()), address: None })
            }
            Listen::Tcp(address) => {
                let failed = |source| DeviceError::ListenTcp { address: *address, source };
                let socket = TcpListener::bind(address).map_err(failed)?;
                let address = socket.local_addr().map_err(failed)?;
                Ok(Self { socket: socket.into(), path: None, address: Some(address) })
            }
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Sets a client's socket up. What is refused costs only speed.
    pub(super) fn tune(&self, client: &OwnedFd) {
        if self.address.is_some() {
            let _ = sockopt::set_tcp_nodelay(client, true);
        } else if sockopt::set_socket_send_buffer_size_force(client, SEND_BUFFER).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(client, SEND_BUFFER);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes a dead server's socket file; refuses anything else that is there.
fn clear_the_way(path: &Path) -> Result<(), DeviceError> {
    let failed = |source| DeviceError::ListenUnix { path: path.to_owned(), source };
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(e)),
    };
    if !there.file_type().is_socket() {
        return Err(DeviceError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(failed),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        // Answers, or is too busy to (its backlog is full), or is not ours to ask.
        _ => Err(DeviceError::SocketInUse { path: path.to_owned() }),
    }
}

fn bind_unix(path: &Path, private: bool) -> io::Result<OwnedFd> {
    if !private {
        return Ok(UnixListener::bind(path)?.into());
    }
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Before binding, so that there is no moment at which others could connect.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}
