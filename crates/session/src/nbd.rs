//! The NBD protocol, server side, as pure functions and small machines over bytes: nothing here
//! opens a socket or knows the engine. Read [`handshake`], then [`transmission`].
//!
//! The protocol is described in the NBD project's `doc/proto.md`. Spoken here: the fixed newstyle
//! handshake, structured replies, the `base:allocation` context. Not spoken: TLS, extended
//! headers, resizing; clients that ask are told so and go on without.

pub mod handshake;
pub mod transmission;
pub mod wire;

use crate::volumes::Volumes;
use weir_engine::VolumeInfo;
use weir_model::{Bytes, VolumeId};

/// The longest payload of a read or write, as advertised: 32 MiB.
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// The longest export name, in bytes, as the protocol limits strings.
pub const NAME_MAX: usize = 4096;
/// The longest option a client may send, in bytes. Longer ones end the connection.
pub const OPTION_MAX: u32 = 32 << 10;

/// A volume as NBD clients see it: an *export*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// What clients ask for.
    pub name: String,
    /// The volume behind it.
    pub volume: VolumeId,
    /// Its size, a multiple of 512.
    pub size: Bytes,
}

impl Export {
    /// All volumes, as they are now.
    pub fn all<V: Volumes>(volumes: &V) -> Vec<Self> {
        let export = |info: VolumeInfo| Self { name: info.name, volume: info.id, size: info.size };
        volumes.volumes().into_iter().map(export).collect()
    }
}

/// The export a client means. The empty name is the only export there is, if there is only one.
pub fn find<'a>(exports: &'a [Export], name: &[u8]) -> Option<&'a Export> {
    match exports {
        [only] if name.is_empty() => Some(only),
        _ => exports.iter().find(|export| export.name.as_bytes() == name),
    }
}
