//! Serving volumes to clients.
//!
//! - [`nbd`]: the protocol, as pure functions over bytes.
//! - [`admission`]: who is let in, and what handshakes may take.
//! - [`turns`]: whose turn it is.
//! - [`connection`]: one client's state, without a socket.
//! - [`server`]: the loop that owns sockets, memory, engine and clients.
//! - [`control`]: what commands ask of a running server.
//! - [`explain`]: where a block is and why, as a document.
//! - [`recording`]: what clients ask for, as whoever records it is told.
//! - [`volumes`]: what is needed of the engine.
//! - [`fuzzing`]: any bytes as a client, for the fuzz target.
#![forbid(unsafe_code)]

pub mod admission;
pub mod connection;
pub mod control;
pub mod explain;
pub mod fuzzing;
pub mod nbd;
pub mod ram;
pub mod recording;
pub mod server;
mod slab;
#[cfg(test)]
mod testing;
pub mod turns;
pub mod volumes;

pub use admission::{ClientCounts, Limits};
pub use ram::Ram;
pub use server::{Describe, End, Server};
pub use volumes::Volumes;
