//! The ids of clients' connections, for the code that serves them.

use core::net::IpAddr;

/// A connection. The id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    index: u32,
    generation: u32,
}

impl ConnId {
    /// Creates the id of the connection with this index, which no other open one has, and this generation of
    /// the index.
    #[inline]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// Returns a small number that no other *open* connection has: an index in a table.
    #[inline]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Returns how many connections had this index before.
    #[inline]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

/// The condition that completes a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveMode {
    /// Any bytes have arrived.
    Any,
    /// Its buffers are full (or the stream has ended).
    Full,
}

/// The peer of a client's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A process on this machine, by its id when it connected; 0 if unknown.
    Process(u32),
    /// A remote address.
    Address(IpAddr),
}
