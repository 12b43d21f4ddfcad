//! Listening sockets: unix paths and TCP addresses.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::DeviceError;
use weir_model::Peer;

/// Maximum number of clients that wait to be accepted, as far as the system allows (`net.core.somaxconn`).
/// Beyond it a unix socket refuses clients, or makes them wait without counting them.
const BACKLOG: i32 = 4096;
/// Send buffer of a client's socket, in bytes: large enough for the replies of a deep queue in one call, and
/// small enough to stay in the processor's cache.
const SEND_BUFFER: usize = 1 << 18;

/// A TCP client that is silent for this long is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Number of unanswered probes after which the client counts as disconnected.
const KEEPALIVE_PROBES: u32 = 4;
/// A TCP client that acknowledges nothing for this long (ms) counts as disconnected.
const ACKNOWLEDGE_TIMEOUT_MS: u32 = 120_000;

/// An address to listen on.
#[derive(Clone, Debug)]
pub enum Listen {
    /// A unix socket.
    Unix {
        /// Its path. The socket of a dead server is replaced; the file is removed when listening ends.
        path: PathBuf,
        /// Who may connect.
        access: SocketAccess,
    },
    /// A TCP address; port 0 takes any free one.
    Tcp(SocketAddr),
}

impl Listen {
    /// Makes a unix socket that only the server's user may connect to.
    pub fn private(path: PathBuf) -> Self {
        Self::Unix { path, access: SocketAccess::default() }
    }
}

/// Who may connect to a unix socket: users with write permission on its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// The file's permissions, independent of the umask.
    pub mode: u32,
    /// The file's owner; by default, the server's user.
    pub owner: Option<u32>,
    /// The file's group; by default, the server's group.
    pub group: Option<u32>,
}

impl Default for SocketAccess {
    /// Only the server's user may connect.
    fn default() -> Self {
        Self { mode: 0o600, owner: None, group: None }
    }
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
            Listen::Unix { path, access } => {
                remove_stale_socket(path)?;
                let failed = |source| DeviceError::ListenUnix { path: path.clone(), source };
                let socket = bind_unix(path).map_err(failed)?;
                // From here on the socket's file is removed again, whatever fails.
                let listener = Self { socket, path: Some(path.clone()), address: None };
                set_access(path, *access)?;
                rustix::net::listen(&listener.socket, BACKLOG).map_err(|error| failed(error.into()))?;
                Ok(listener)
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

    /// Returns the peer of a client's socket.
    pub(super) fn peer(&self, client: &OwnedFd) -> Peer {
        if self.address.is_some()
            && let Ok(Some(address)) = rustix::net::getpeername(client)
            && let Ok(address) = SocketAddr::try_from(address)
        {
            return Peer::Address(address.ip().to_canonical());
        }
        Peer::Process(peer_process(client))
    }

    /// Configures a client's socket. Refused options only cost speed.
    pub(super) fn configure_client(&self, client: &OwnedFd) {
        if self.address.is_some() {
            let _ = sockopt::set_tcp_nodelay(client, true);
            let _ = sockopt::set_socket_keepalive(client, true);
            let _ = sockopt::set_tcp_keepidle(client, KEEPALIVE_IDLE);
            let _ = sockopt::set_tcp_keepintvl(client, KEEPALIVE_INTERVAL);
            let _ = sockopt::set_tcp_keepcnt(client, KEEPALIVE_PROBES);
            let _ = sockopt::set_tcp_user_timeout(client, ACKNOWLEDGE_TIMEOUT_MS);
        } else if sockopt::set_socket_send_buffer_size_force(client, SEND_BUFFER).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(client, SEND_BUFFER);
        }
    }
}

/// Returns the process id of the peer of a unix socket, or 0 if it is unknown: the peer may be in another PID
/// namespace.
pub fn peer_process(client: &impl AsRawFd) -> u32 {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to the structure, which outlives the call.
    let answer = unsafe {
        libc::getsockopt(
            client.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len,
        )
    };
    if answer == 0 { credentials.pid.unsigned_abs() } else { 0 }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes a dead server's socket file; fails if the path is any other file.
fn remove_stale_socket(path: &Path) -> Result<(), DeviceError> {
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
        // A server answers, or is too busy to (its backlog is full), or this process may not connect.
        _ => Err(DeviceError::SocketInUse { path: path.to_owned() }),
    }
}

/// Creates a socket with its file. Nobody can connect yet: the socket does not listen.
fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file gets the socket's mode, less the umask.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Sets owner, group and mode of the socket's file. It changes the file itself, not another that may have
/// replaced it in a folder where others can write.
fn set_access(path: &Path, access: SocketAccess) -> Result<(), DeviceError> {
    let failed = |what: String, way_out| {
        let path = path.to_owned();
        move |source: rustix::io::Errno| DeviceError::SocketAccess {
            path,
            what,
            source: source.into(),
            way_out,
        }
    };
    let way_out = "check that its folder is written to by nobody else";
    let file =
        rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("access".to_owned(), way_out))?;
    if access.owner.is_some() || access.group.is_some() {
        let name = |what: &str, id: Option<u32>| id.map(|id| format!("{what} {id}"));
        let what: Vec<_> =
            [name("owner", access.owner), name("group", access.group)].into_iter().flatten().collect();
        let way_out = "run the server as root, or name a group that its user is a member of";
        let (owner, group) = (access.owner.map(Uid::from_raw), access.group.map(Gid::from_raw));
        rustix::fs::chownat(&file, "", owner, group, AtFlags::EMPTY_PATH)
            .map_err(failed(what.join(" and "), way_out))?;
    }
    // A file opened with O_PATH can only be changed through this name.
    let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::chmodat(CWD, by_descriptor, Mode::from_raw_mode(access.mode), AtFlags::empty())
        .map_err(failed(format!("mode {:04o}", access.mode), way_out))
}
