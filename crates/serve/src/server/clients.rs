//! The NBD clients: whose turn it is, and what their sockets do.

use super::{Limits, Outside, client_of};
use crate::connection::{Connection, Credit, Step};
use crate::nbd::Export;
use crate::slab::Slab;
use crate::volumes::Volumes;
use weir_device::{Arena, ConnId, Fill};
use weir_model::{Bytes, IoError, Nanos, Reply, VolumeId};

/// Pieces of requests, and bytes of payload, that a client may submit before the next one has
/// its turn and the engine goes to work.
const TURN: usize = 32;
const TURN_BYTES: u64 = 512 << 10;
const NOBODY: u16 = u16::MAX;

/// All NBD clients.
pub(super) struct Clients {
    slots: Slab<Client>,
    /// The client of each of the reactor's connections, by their index.
    by_conn: Vec<u16>,
    credit: Credit,
    /// How long a client may take to say what it wants.
    handshake: Nanos,
    /// Whose turn is first.
    first: u16,
    /// When to look for clients that say nothing.
    look: Option<Nanos>,
}

struct Client {
    conn: ConnId,
    connection: Connection,
    since: Nanos,
    /// Waits for bytes.
    hungry: bool,
    socket: Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Socket {
    Open,
    /// The kernel still has buffers.
    Closing,
    Closed,
}

impl Clients {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            slots: Slab::new(limits.clients),
            by_conn: Vec::new(),
            credit: limits.credit(),
            handshake: limits.handshake,
            first: 0,
            look: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// When [`Self::close_what_is_over`] must be called at the latest.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.look
    }

    /// Clients that use a volume.
    pub(super) fn using(&self, volume: VolumeId) -> usize {
        self.slots.iter().filter(|(_, client)| client.connection.volume() == Some(volume)).count()
    }

    /// A client came; false if there is no room for it.
    pub(super) fn accept(&mut self, conn: ConnId, outside: &mut Outside) -> bool {
        if self.slots.is_full() {
            tracing::warn!("a client was turned away: there are {} already", self.slots.len());
            return false;
        }
        let number = self.slots.next();
        let Some(connection) = Connection::new(u32::from(number), &self.credit, &mut outside.arena) else {
            tracing::warn!("a client was turned away: there is no buffer memory for it");
            return false;
        };
        let since = outside.now;
        let client = Client { conn, connection, since, hungry: false, socket: Socket::Open };
        let Ok(_) = self.slots.insert(client) else { return false };
        if self.by_conn.len() <= conn.index() {
            self.by_conn.resize(conn.index() + 1, NOBODY);
        }
        self.by_conn[conn.index()] = number;
        self.look.get_or_insert(since + self.handshake);
        true
    }

    fn of(&mut self, conn: ConnId) -> Option<&mut Client> {
        let number = *self.by_conn.get(conn.index())?;
        self.slots.get_mut(number).filter(|client| client.conn == conn)
    }

    /// Bytes arrived; false if the connection is none of these.
    pub(super) fn received(&mut self, conn: ConnId, result: Result<usize, IoError>) -> bool {
        let Some(client) = self.of(conn) else { return false };
        client.hungry = false;
        match result {
            Ok(bytes) => client.connection.received(Bytes(bytes as u64)),
            Err(_) => client.connection.kill(),
        }
        true
    }

    /// A send ended; false if the connection is none of these.
    pub(super) fn sent(&mut self, conn: ConnId, result: Result<(), IoError>, arena: &mut Arena) -> bool {
        let Some(client) = self.of(conn) else { return false };
        client.connection.sent(arena);
        if result.is_err() {
            client.connection.kill();
        }
        true
    }

    /// The socket is gone, and its buffers are free.
    pub(super) fn closed(&mut self, conn: ConnId, arena: &mut Arena) {
        let Some(client) = self.of(conn) else { return };
        client.connection.kill();
        client.socket = Socket::Closed;
        let number = std::mem::replace(&mut self.by_conn[conn.index()], NOBODY);
        self.forget_if_done(number, arena);
    }

    fn forget_if_done(&mut self, number: u16, arena: &mut Arena) {
        let done = |client: &Client| client.socket == Socket::Closed && client.connection.is_idle();
        if self.slots.get(number).is_some_and(done)
            && let Some(client) = self.slots.remove(number)
        {
            client.connection.release(arena);
        }
    }

    /// The engine answered.
    #[inline]
    pub(super) fn reply(&mut self, reply: Reply, arena: &mut Arena) {
        let number = client_of(reply.id);
        let Some(client) = self.slots.get_mut(number) else { return };
        client.connection.reply(reply, arena);
        if client.socket == Socket::Closed {
            self.forget_if_done(number, arena);
        }
    }

    /// Lets each client, in turn, submit what has arrived from it and what its credit allows, up
    /// to a bound, and receives from those that have nothing more. Whether some may have more to
    /// submit at once.
    pub(super) fn submit<V: Volumes>(
        &mut self,
        volumes: &mut V,
        exports: &[Export],
        outside: &mut Outside,
    ) -> bool {
        let count = self.slots.reach();
        let mut more = false;
        for _ in 0..count {
            let number = self.first % count;
            if !volumes.can_accept() {
                break;
            }
            if let Some(client) = self.slots.get_mut(number).filter(|client| client.may_submit()) {
                more |= client.turn(volumes, exports, &self.credit, outside);
            }
            self.first = number + 1;
        }
        // A full engine makes room by what happens next; there is no use in asking again before.
        more && volumes.can_accept()
    }

    /// Sends what there is to be sent.
    pub(super) fn send<V: Volumes>(&mut self, volumes: &V, outside: &mut Outside) {
        for (_, client) in self.slots.iter_mut() {
            if client.socket == Socket::Open && client.connection.wants_to_send() {
                let parts = client.connection.gather(&mut outside.arena, |of, runs| volumes.runs(of, runs));
                outside.reactor.send(client.conn, parts);
            }
        }
    }

    /// Closes the sockets of clients that are done, or never said what they want.
    pub(super) fn close_what_is_over(&mut self, outside: &mut Outside) {
        let looking = self.look.is_some_and(|at| at <= outside.now);
        if looking {
            self.look = None;
        }
        for (number, client) in self.slots.iter_mut() {
            if looking && client.connection.in_handshake() {
                let until = client.since + self.handshake;
                if until <= outside.now {
                    tracing::debug!(client = number, "closing: it did not say what it wants");
                    client.connection.kill();
                } else {
                    self.look = Some(self.look.map_or(until, |look| look.min(until)));
                }
            }
            if client.socket == Socket::Open && client.connection.is_over() {
                client.socket = Socket::Closing;
                outside.reactor.close(client.conn);
            }
        }
    }

    /// No client may ask for more.
    pub(super) fn finish(&mut self) {
        self.slots.iter_mut().for_each(|(_, client)| client.connection.finish());
    }

    /// No client gets anything more.
    pub(super) fn kill_all(&mut self) {
        self.slots.iter_mut().for_each(|(_, client)| client.connection.kill());
    }
}

impl Client {
    fn may_submit(&self) -> bool {
        !self.hungry && self.socket == Socket::Open
    }

    /// Submits up to a bound; whether there may be more.
    fn turn<V: Volumes>(
        &mut self,
        volumes: &mut V,
        exports: &[Export],
        credit: &Credit,
        outside: &mut Outside,
    ) -> bool {
        let mut bytes = 0;
        for _ in 0..TURN {
            match self.connection.step(exports, credit, &mut outside.arena) {
                Step::Request(request) => {
                    bytes += request.buffer.map_or(0, |buffer| u64::from(buffer.len));
                    if let Some(recorder) = &mut outside.recorder
                        && let Some(asked) = self.connection.asked(&request)
                    {
                        recorder.note(outside.now, asked);
                    }
                    volumes.submit(outside.now, request, &mut outside.arena);
                }
                Step::Receive => {
                    self.receive(outside);
                    return false;
                }
                Step::Wait | Step::Over => return false,
            }
            if bytes >= TURN_BYTES || !volumes.can_accept() {
                break;
            }
        }
        true
    }

    fn receive(&mut self, outside: &mut Outside) {
        self.hungry = true;
        if let Some(room) = self.connection.receive(&mut outside.arena) {
            let fill = if room.whole { Fill::Whole } else { Fill::Some };
            outside.reactor.recv(self.conn, room.parts(), fill);
        }
    }
}
