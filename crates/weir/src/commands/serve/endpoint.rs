//! Defines and parses the addresses at which NBD is served: `unix:PATH` with access options, or `HOST:PORT`.

use crate::failure::Failure;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weir_device::DeviceError;

/// An address at which NBD is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Unix(UnixSocket),
    /// A TCP address, `HOST:PORT`.
    Tcp(String),
}

/// A unix socket with its access rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Path of the socket.
    pub path: PathBuf,
    /// Permissions of the socket's file.
    pub mode: u32,
    /// Owner of the socket's file, by name or number; `None` for the server's user.
    pub owner: Option<String>,
    /// Group of the socket's file, by name or number; `None` for the server's group.
    pub group: Option<String>,
}

impl UnixSocket {
    /// Creates the address of a socket to which only the server's user may connect.
    pub fn private(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: 0o600, owner: None, group: None }
    }
}

/// Characters that are percent-encoded in a path or a query of a URI (RFC 3986, section 3.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Endpoint {
    /// Returns the NBD URI of an export, as clients take it.
    pub fn uri(&self, export: &str) -> String {
        let export = utf8_percent_encode(export, ESCAPED);
        match self {
            Self::Unix(socket) => {
                let path = percent_encode(socket.path.as_os_str().as_bytes(), ESCAPED);
                format!("nbd+unix:///{export}?socket={path}")
            }
            Self::Tcp(address) => format!("nbd://{address}/{export}"),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(socket) => write!(f, "unix:{}", socket.path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

/// Parses `unix:PATH[,mode=MODE][,owner=USER][,group=GROUP]` or `HOST:PORT`.
///
/// # Errors
/// Returns a message that says what is wrong and what is allowed.
pub(super) fn parse(text: &str) -> Result<Endpoint, String> {
    if let Some(rest) = text.strip_prefix("unix:") {
        return unix(rest).map(Endpoint::Unix);
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(Endpoint::Tcp(text.into()))
        }
        _ => Err("write unix:PATH or HOST:PORT, such as unix:/run/weir.sock, 127.0.0.1:10809 or [::1]:10809"
            .into()),
    }
}

fn unix(text: &str) -> Result<UnixSocket, String> {
    let mut parts = text.split(',');
    let path = parts.next().unwrap_or_default();
    // `sockaddr_un` holds 108 bytes, including the terminating zero.
    match path.len() {
        0 => return Err("a path must follow unix:".into()),
        1..=107 => {}
        _ => return Err("a unix socket's path has at most 107 bytes; use a shorter or a relative one".into()),
    }
    let mut socket = UnixSocket::private(path);
    let mut seen = Vec::new();
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if seen.contains(&key) {
            return Err(format!("{key} is given twice"));
        }
        seen.push(key);
        match key {
            "mode" => socket.mode = mode(value)?,
            "owner" => socket.owner = Some(named("owner", value)?),
            "group" => socket.group = Some(named("group", value)?),
            _ => {
                return Err(format!(
                    "{part:?} is no option of a unix socket; after a comma write mode=0660, group=NAME or \
                     owner=NAME (a path with a comma cannot be named)"
                ));
            }
        }
    }
    Ok(socket)
}

fn mode(text: &str) -> Result<u32, String> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| format!("mode is {text:?}; write it in octal, from 0000 to 0777, such as 0660"))
}

fn named(key: &str, text: &str) -> Result<String, String> {
    match text {
        "" => Err(format!("{key} is empty; write {key}=NAME")),
        _ => Ok(text.to_owned()),
    }
}

/// Converts a failure to listen at a socket to a message with advice.
///
/// `is_beside` marks a socket whose place beside the pool file is a default that the user did not choose.
pub(super) fn listen_failure(error: DeviceError, is_beside: bool) -> Failure {
    use std::io::ErrorKind as Os;
    let DeviceError::ListenUnix { path, source } = &error else { return error.into() };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let help = match source.kind() {
        Os::NotFound => format!("make the folder {} first, or name another path", folder.display()),
        Os::ReadOnlyFilesystem | Os::PermissionDenied if is_beside => {
            "this socket stands beside the pool file: move the pool file, or put a symbolic link to it, into \
             a folder that this user may write to, and name it there with --pool; paths of devices are \
             relative to that folder"
                .into()
        }
        Os::ReadOnlyFilesystem | Os::PermissionDenied => {
            "name a path in a folder that this user may write to".into()
        }
        Os::InvalidFilename => "a socket's path has at most 107 bytes; name a shorter one".into(),
        _ => String::new(),
    };
    Failure { help, ..Failure::from(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_unix_paths_or_host_and_port() {
        assert_eq!(parse("unix:a.sock"), Ok(Endpoint::Unix(UnixSocket::private("a.sock"))));
        assert_eq!(parse("[::1]:10809"), Ok(Endpoint::Tcp("[::1]:10809".into())));
        for bad in ["", "unix:", "localhost", ":1", "localhost:x", "localhost:70000"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn uris_escape_special_characters() {
        let uri = |path: &str, export| Endpoint::Unix(UnixSocket::private(path)).uri(export);
        assert_eq!(uri("/run/weir/a-b_1.sock", "vol"), "nbd+unix:///vol?socket=/run/weir/a-b_1.sock");
        assert_eq!(
            uri("/k x/sp%20/é&?.sock", "a b"),
            "nbd+unix:///a%20b?socket=/k%20x/sp%2520/%C3%A9%26%3F.sock"
        );
        assert_eq!(Endpoint::Tcp("[::1]:10809".into()).uri("a#b"), "nbd://[::1]:10809/a%23b");
    }

    #[test]
    fn unix_socket_access_is_parsed() {
        let shared = UnixSocket {
            mode: 0o660,
            owner: Some("root".into()),
            group: Some("libvirt".into()),
            ..UnixSocket::private("/run/a.sock")
        };
        assert_eq!(parse("unix:/run/a.sock,mode=0660,group=libvirt,owner=root"), Ok(Endpoint::Unix(shared)));
        let refused = |text: &str, says: &str| {
            let said = parse(&format!("unix:a{text}")).expect_err(text);
            assert!(said.contains(says), "{text}: {said}");
        };
        refused(",mode=", "mode is \"\"");
        refused(",mode=rw", "mode is \"rw\"");
        refused(",mode=0888", "octal");
        refused(",mode=1777", "from 0000 to 0777");
        refused(",mode=+660", "octal");
        refused(",mode=0600,mode=0660", "mode is given twice");
        refused(",group=", "group is empty");
        refused(",user=me", "\"user=me\" is no option");
        refused(",b.sock", "a path with a comma");
    }

    #[test]
    fn socket_failures_have_advice() {
        let help = |kind: std::io::ErrorKind, is_beside| {
            let error = DeviceError::ListenUnix { path: "ro/pool.control".into(), source: kind.into() };
            listen_failure(error, is_beside).help
        };
        use std::io::ErrorKind as Os;
        for kind in [Os::ReadOnlyFilesystem, Os::PermissionDenied] {
            assert!(
                help(kind, true).starts_with("this socket stands beside the pool file: move the pool file")
            );
            assert!(help(kind, false).starts_with("name a path in a folder"));
        }
        assert!(help(Os::NotFound, false).starts_with("make the folder ro first"));
        assert!(help(Os::InvalidFilename, true).contains("107 bytes"));
    }
}
