//! Serving volumes to clients.
//!
//! - [`nbd`]: the protocol, as pure functions over bytes.
//! - [`connection`]: one client's state, without a socket.
#![forbid(unsafe_code)]

pub mod connection;
pub mod nbd;
mod slab;

/// x
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// x
    pub len: weir_model::Bytes,
    /// x
    pub data: bool,
}
