//! Serves volumes to clients: [`weir_session`] over real sockets and devices.
//!
//! - [`server`]: the event loop.
//! - [`control`]: client of a running server's control socket.
//! - [`recording`]: client of a recording of client requests.
#![forbid(unsafe_code)]

pub mod control;
pub mod recording;
pub mod server;

pub use server::{Describe, Server};
pub use weir_session::admission::HANDSHAKES_MAX;
pub use weir_session::{ClientCounts, Limits, Ram, ServerOutcome, Volumes, explain, volumes};
