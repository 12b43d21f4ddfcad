//! What the server needs of the outside: sockets, and devices to start commands at.

use weir_model::{Buffer, ConnId, Fill, Io};

/// The outside as the server sees it. Whoever implements it reports what comes of each call to the
/// [`Server`](crate::Server): see there.
///
/// Buffers named in a call belong to the outside until the report that ends it.
pub trait Port {
    /// Receives into the buffers, in turn; ends in one [`received`](crate::Server::received). One receive at a
    /// time for each connection. Ignored once the connection is being closed.
    fn recv(&mut self, conn: ConnId, into: &[Buffer], fill: Fill);

    /// Ends a receive in flight, if there is one: its report comes soon, with what had arrived or an error.
    fn cancel_recv(&mut self, conn: ConnId);

    /// Sends the buffers' bytes, all of them, in turn; ends in one [`sent`](crate::Server::sent). One send at a
    /// time for each connection. Ignored once the connection is being closed.
    fn send(&mut self, conn: ConnId, parts: &[Buffer]);

    /// Ends a connection, whatever is in flight on it. [`closed`](crate::Server::closed) comes exactly once after
    /// it, when the buffers are free, and is the last report of the connection. Closing twice does nothing.
    fn close(&mut self, conn: ConnId);

    /// Appends those of `conns` whose peer has closed its end (or is gone), whether or not all it had sent was
    /// received. Cost: one system call for all of them.
    fn hung_up(&mut self, conns: &[ConnId], gone: &mut Vec<ConnId>);

    /// Whether clients are accepted.
    fn set_accepting(&mut self, accepting: bool);

    /// Accepts no more clients, ever.
    fn stop_listening(&mut self);

    /// Starts a device command; ends in one [`completed`](crate::Server::completed).
    fn start(&mut self, io: Io);

    /// How to save what is on devices whose files were removed, for the log. `None` if there is nothing to
    /// say.
    fn save_removed(&self) -> Option<String> {
        None
    }
}
