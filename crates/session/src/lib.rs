//! The client side of the server without sockets: bytes in, requests to the engine, replies out.
//!
//! - [`nbd`]: the protocol, as pure functions over bytes.
//! - [`admission`]: admission of clients and the budget of handshakes.
//! - [`turns`]: fair scheduling of clients.
//! - [`connection`]: the state of one client.
//! - [`control`]: the protocol of the control socket.
//! - [`explain`]: the explanation of a block's location.
//! - [`recording`]: the protocol of recordings of client requests.
//! - [`throttle`]: rate-limited log lines for repeated events.
//! - [`volumes`]: the interface to the engine.
//! - [`port`]: the interface to sockets and devices.
//! - [`server`]: all of it together, one event at a time.
//! - [`client`]: a client's side of the protocol; for tests and for simulated clients.
//! - [`fuzzing`]: arbitrary bytes as a client, for the fuzz target.
//!
//! The crate is pure: no sockets, no clock, no threads. `weir-serve` runs it over real sockets, `weir-world`
//! over simulated ones.
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
pub mod server;
mod slab;
pub mod throttle;
pub mod turns;
pub mod volumes;

pub use admission::{ClientCounts, Limits};
pub use port::Port;
pub use ram::Ram;
pub use server::{Describe, Environment, Server, ServerOutcome, StopRequest};
pub use volumes::Volumes;
