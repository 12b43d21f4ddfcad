//! The server side of the NBD protocol, as pure functions and small state machines over bytes: no sockets, no
//! engine. Read [`handshake`], then [`transmission`].
//!
//! The NBD project's `doc/proto.md` specifies the protocol. Supported: the fixed newstyle handshake,
//! structured replies, the `base:allocation` context. Not supported: TLS, extended headers, resizing; clients
//! that ask for them get an error reply and continue without.

pub mod handshake;
pub mod transmission;
pub mod wire;

use crate::volumes::Volumes;
use weir_engine::VolumeInfo;
use weir_model::{Bytes, VolumeId};

/// Longest payload of a read or write, as advertised: 32 MiB.
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// Longest export name, in bytes; the protocol's limit for strings.
pub const NAME_MAX: usize = 4096;
/// Longest option a client may send, in bytes. A longer one ends the connection.
pub const OPTION_MAX: u32 = 32 << 10;

/// A volume as NBD clients see it: an *export*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name that clients ask for.
    pub name: String,
    /// The volume behind it.
    pub volume: VolumeId,
    /// Size, a multiple of 512.
    pub size: Bytes,
}

impl Export {
    /// Returns the exports of all current volumes.
    pub fn all<V: Volumes>(volumes: &V) -> Vec<Self> {
        let export = |info: VolumeInfo| Self { name: info.name, volume: info.id, size: info.size };
        volumes.volumes().into_iter().map(export).collect()
    }
}

/// Returns the export of a name. The empty name means the only export, if there is exactly one.
pub fn find<'a>(exports: &'a [Export], name: &[u8]) -> Option<&'a Export> {
    match exports {
        [only] if name.is_empty() => Some(only),
        _ => exports.iter().find(|export| export.name.as_bytes() == name),
    }
}
