//! The whole server in the simulated world: [`weir_session`] over simulated sockets, with NBD clients,
//! checked by the oracle on the clients' side.
//!
//! - [`sockets`]: both ends of every connection, as the server's port; a [`pipe`] is one direction.
//! - [`nbd`], [`handshake`]: the client side of the protocol, written independently of the server's.
//! - [`client`]: a client and its requests.
//! - [`hostile_client`]: hostile clients.
//! - `judge`: judges replies while devices fail.
//! - [`operator`]: an operator at the control socket.
//! - `recording`: checks recordings of client requests.
//! - [`served`]: all of it, driven by steps like the engine alone in [`driver`](crate::driver).
//! - [`generator`]: draws histories from seeds.

pub mod client;
pub mod generator;
mod handshake;
pub mod hostile_client;
mod judge;
mod nbd;
pub mod operator;
mod pipe;
mod recording;
pub mod served;
pub mod sockets;

pub use client::{ClientProfile, ClientRequest, InvalidRequest};
pub use generator::history;
pub use hostile_client::HostileClient;
pub use operator::OperatorRequest;
pub use served::{REPLY_TIMEOUT, ServedPool};
pub use sockets::SocketProfile;

use std::fmt;
use weir_model::Nanos;
use weir_session::Limits;

/// A server in front of a pool, and its clients.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSetup {
    /// Limits on clients.
    pub limits: Limits,
    /// Its clients: each has one connection at a time.
    pub clients: Vec<ClientProfile>,
}

/// How a client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// It sends DISC after all its requests, and waits for its replies.
    Graceful,
    /// It closes its sending side, and continues to receive.
    HalfClosed,
    /// It closes its end in any state.
    Immediate,
    /// It closes its end as soon as it is in the middle of sending something.
    MidMessage,
}

/// An action of a client or operator.
#[derive(Clone, PartialEq)]
pub enum NetAction {
    /// A client sends a request, over a new connection if it has none.
    Request(usize, ClientRequest),
    /// A client disconnects.
    Disconnect(usize, Disconnect),
    /// A client receives nothing for this long.
    Stall(usize, Nanos),
    /// All clients disconnect; nothing may be left of them.
    DisconnectAll,
    /// The operator gives an order.
    Order(OperatorRequest),
    /// A hostile client connects.
    HostileClient(HostileClient),
}

impl fmt::Debug for NetAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(client, request) => write!(f, "client {client}: {request:?}"),
            Self::Disconnect(client, how) => write!(f, "client {client} leaves: {how:?}"),
            Self::Stall(client, time) => write!(f, "client {client} receives nothing for {time}"),
            Self::DisconnectAll => f.write_str("all clients leave"),
            Self::Order(order) => write!(f, "operator: {order:?}"),
            Self::HostileClient(stranger) => write!(f, "stranger: {stranger:?}"),
        }
    }
}
