//! The whole server in the simulated world: [`weir_session`] over simulated sockets, with NBD clients,
//! checked by the oracle on the clients' side.
//!
//! - [`sockets`]: both ends of every connection, as the server's port; a [`pipe`] is one direction.
//! - [`nbd`], [`hello`]: the client side of the protocol, written independently of the server's.
//! - [`client`]: a client and its requests.
//! - [`stranger`]: hostile clients.
//! - `judge`: judges replies while devices fail.
//! - [`operator`]: an operator at the control socket.
//! - `recording`: checks recordings of client requests.
//! - [`served`]: all of it, driven by steps like the engine alone in [`driver`](crate::driver).
//! - [`draw`]: draws histories from seeds.

pub mod client;
pub mod draw;
mod hello;
mod judge;
mod nbd;
pub mod operator;
mod pipe;
mod recording;
pub mod served;
pub mod sockets;
pub mod stranger;

pub use client::{Character, ClientRequest, Wrong};
pub use draw::history;
pub use operator::Order;
pub use served::{ANSWERED_WITHIN, Served};
pub use sockets::Wire;
pub use stranger::Stranger;

use std::fmt;
use weir_model::Nanos;
use weir_session::Limits;

/// A server in front of a pool, and its clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Front {
    /// Limits on clients.
    pub limits: Limits,
    /// Its clients: each has one connection at a time.
    pub clients: Vec<Character>,
}

/// How a client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It sends DISC after all its requests, and waits for its replies.
    Politely,
    /// It closes its sending side, and continues to receive.
    HalfClosed,
    /// It closes its end in any state.
    AtOnce,
    /// It closes its end as soon as it is in the middle of sending something.
    Midway,
}

/// An action of a client or operator.
#[derive(Clone, PartialEq)]
pub enum Act {
    /// A client sends a request, over a new connection if it has none.
    Ask(usize, ClientRequest),
    /// A client disconnects.
    Leave(usize, Leave),
    /// A client receives nothing for this long.
    Stall(usize, Nanos),
    /// All clients disconnect; nothing may be left of them.
    Empty,
    /// The operator gives an order.
    Order(Order),
    /// A hostile client connects.
    Stranger(Stranger),
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(client, request) => write!(f, "client {client}: {request:?}"),
            Self::Leave(client, how) => write!(f, "client {client} leaves: {how:?}"),
            Self::Stall(client, time) => write!(f, "client {client} receives nothing for {time}"),
            Self::Empty => f.write_str("all clients leave"),
            Self::Order(order) => write!(f, "operator: {order:?}"),
            Self::Stranger(stranger) => write!(f, "stranger: {stranger:?}"),
        }
    }
}
