//! Clients' connections, as those who serve them name them.

use core::net::IpAddr;

/// A connection. Never used for another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    index: u32,
    generation: u32,
}

impl ConnId {
    /// The connection with this index, which no other open one has, and this generation of the index.
    #[inline]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// A small number that no other *open* connection has: an index into a table.
    #[inline]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// How many connections had this index before.
    #[inline]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

/// When a receive is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// As soon as there is anything.
    Some,
    /// When its buffers are full (or the stream ends).
    Whole,
}

/// Who a client is, as far as its socket says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A process on this machine, by its id when it connected; 0 if that is not known.
    Process(u32),
    /// Whoever is at this address.
    Address(IpAddr),
}
