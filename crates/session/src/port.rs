//! The interface to sockets and devices that the server needs.

use weir_model::{Buffer, ConnId, Io, ReceiveMode};

/// Sockets and devices as the server sees them. The implementer reports the result of each call to the
/// [`Server`](crate::Server).
///
/// Buffers passed to a call belong to the implementer until the report that ends the call.
pub trait Port {
    /// Receives into the buffers, in order; ends in one [`received`](crate::Server::received). A connection
    /// has at most one receive in flight. The call is ignored once the connection is being closed.
    fn recv(&mut self, conn: ConnId, into: &[Buffer], fill: ReceiveMode);

    /// Cancels the receive in flight, if there is one: its report comes soon, with the bytes that had arrived
    /// or an error.
    fn cancel_recv(&mut self, conn: ConnId);

    /// Sends all bytes of the buffers, in order; ends in one [`sent`](crate::Server::sent). A connection has
    /// at most one send in flight. The call is ignored once the connection is being closed.
    fn send(&mut self, conn: ConnId, parts: &[Buffer]);

    /// Closes a connection, whatever is in flight on it. Exactly one [`closed`](crate::Server::closed)
    /// follows when its buffers are free, as the last report of the connection. Closing twice has no effect.
    fn close(&mut self, conn: ConnId);

    /// Appends those of `conns` whose peer has closed its end (or is gone), whether or not everything it had
    /// sent was received. Cost: one system call for all of them.
    fn poll_hung_up(&mut self, conns: &[ConnId], gone: &mut Vec<ConnId>);

    /// Sets whether clients are accepted.
    fn set_accepting(&mut self, accepting: bool);

    /// Stops accepting clients permanently.
    fn stop_listening(&mut self);

    /// Starts a device command; ends in one [`completed`](crate::Server::completed).
    fn start(&mut self, io: Io);

    /// Returns, for the log, the command that saves the contents of devices whose files were removed. `None`
    /// if there are none.
    fn save_removed(&self) -> Option<String> {
        None
    }
}
