//! Serving volumes to clients: [`weir_session`] over real sockets and devices.
//!
//! - [`server`]: the loop that waits for events and hands them on.
//! - [`control`]: asking a running server.
//! - [`recording`]: hearing what its clients ask for.
#![forbid(unsafe_code)]

pub mod control;
pub mod recording;
pub mod server;

pub use server::{Describe, Server};
pub use weir_session::admission::HANDSHAKES;
pub use weir_session::{ClientCounts, End, Limits, Ram, Volumes, explain, volumes};
