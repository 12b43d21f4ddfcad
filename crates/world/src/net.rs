//! The whole server in the simulated world: [`weir_session`] over simulated sockets, with clients that speak
//! NBD, beside the oracle, which stands on the clients' side.
//!
//! - [`sockets`]: both ends of every connection, as the server's port; a [`pipe`] is one direction.
//! - [`nbd`], [`hello`]: the protocol as clients read it, written without a look at the server's.
//! - [`client`]: a client and what it asks for. - [`stranger`]: those that mean no good.
//! - `judge`: what answers are held against while devices fail.
//! - [`operator`]: whoever is at the control socket.
//! - `recording`: what the server tells of what clients ask for.
//! - [`served`]: all of it, driven by steps like the engine alone in [`driver`](crate::driver).
//! - [`draw`]: what they have to go through, from a seed.

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

/// A server before a pool, and its clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Front {
    /// What clients may have.
    pub limits: Limits,
    /// Its clients: each has one connection at a time.
    pub clients: Vec<Character>,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It says so once all it asks is sent, and waits for its answers.
    Politely,
    /// It sends no more, and receives what comes.
    HalfClosed,
    /// It closes its end wherever it is.
    AtOnce,
    /// It closes its end as soon as it is in the middle of sending something.
    Midway,
}

/// What somebody does.
#[derive(Clone, PartialEq)]
pub enum Act {
    /// A client asks for something, over a new connection if it has none.
    Ask(usize, ClientRequest),
    /// A client leaves.
    Leave(usize, Leave),
    /// A client receives nothing for so long.
    Stall(usize, Nanos),
    /// All clients leave; nothing may be left of them.
    Empty,
    /// The operator wants something.
    Order(Order),
    /// Somebody connects who means no good.
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
