//! Serving volumes to clients.
//!
//! - [`nbd`]: the protocol, as pure functions over bytes.
//! - [`connection`]: one client's state, without a socket.
//! - [`volumes`]: what is needed of the engine.
//! - [`fuzzing`]: any bytes as a client, for the fuzz target.
#![forbid(unsafe_code)]

pub mod connection;
pub mod fuzzing;
pub mod nbd;
pub mod ram;
mod slab;
pub mod volumes;

pub use ram::Ram;
