//! The clients' side without sockets: bytes in, requests to the engine, replies out.
//!
//! - [`nbd`]: the protocol, as pure functions over bytes.
//! - [`admission`]: who is let in, and what handshakes may take.
//! - [`turns`]: whose turn it is.
//! - [`connection`]: one client's state.
//! - [`control`]: what commands ask of a running server.
//! - [`explain`]: where a block is and why, as a document.
//! - [`recording`]: what clients ask for, as whoever records it is told.
//! - [`repeated`]: what happens over and over, for the log.
//! - [`volumes`]: what is needed of the engine.
//! - [`port`]: what is needed of the outside.
//! - [`server`]: all of it together, one event at a time.
//! - [`client`]: a client's bytes, made and understood; for tests, and for simulated clients.
//! - [`fuzzing`]: any bytes as a client, for the fuzz target.
//!
//! Pure: no sockets, no clock, no threads. `weir-serve` runs it over real sockets, `weir-world` over
//! simulated ones.
#![forbid(unsafe_code)]

pub mod admission;
pub mod client;
pub mod connection;
pub mod control;
pub mod explain;
pub mod fuzzing;
pub mod nbd;
pub mod port;
pub mod ram;
pub mod recording;
pub mod repeated;
pub mod server;
mod slab;
pub mod turns;
pub mod volumes;

pub use admission::{ClientCounts, Limits};
pub use port::Port;
pub use ram::Ram;
pub use server::{Describe, End, Outside, Server, StopRequest};
pub use volumes::Volumes;
