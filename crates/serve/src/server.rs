//! The server: one thread that owns the reactor, the memory, the engine and all clients.
//!
//! Each turn of [`Server::run`]: wait for events; hand completions to the engine and bytes to the
//! clients; let the clients, in turn, submit what they have; start what the engine wants of the
//! devices; send what it answered. Sends and device commands leave together, in few system calls.
//!
//! - `clients`: NBD clients. - `sessions`: the control socket. - `recorder`: requests that are recorded. - `trouble`: what goes to
//!   the log.

mod clients;
mod recorder;
mod sessions;
mod trouble;

use crate::admission::{ClientCounts, HANDSHAKES, Limits};
use crate::connection::Connection;
use crate::nbd::Export;
use crate::volumes::Volumes;
use clients::Clients;
use recorder::Recorder;
use sessions::Sessions;
use std::net::SocketAddr;
use std::path::Path;
use weir_device::{Arena, ConnId, DeviceError, Event, Listen, ListenerId, Peer, Reactor, Waker};
use weir_model::{Bytes, Memory, Nanos, RequestId};

/// How long clients may take to receive their last replies when the server stops.
const FAREWELL: Nanos = Nanos::secs(5);

impl Limits {
    /// Buffer memory with which these limits leave every client what it is entitled to, and some
    /// large ones what they want. Pages nobody uses cost nothing.
    pub fn memory(&self) -> Bytes {
        let entitled = u64::from(self.clients + 2 * HANDSHAKES) * Connection::ENTITLED.0;
        Bytes((self.reserve.0 + entitled + 6 * self.each.0).next_multiple_of(1 << 21))
    }
}

/// Tells the control socket what the pool is doing, and how many clients it has.
pub type Describe<V> = Box<dyn Fn(&V, &Reactor, &ClientCounts) -> serde_json::Value>;

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything asked for was answered, and is at rest on the devices.
    Graceful,
    /// It was told twice to stop, and did so at once; what was flushed is durable.
    AtOnce,
}

/// Serves volumes to clients until it is told to stop.
pub struct Server<V> {
    outside: Outside,
    volumes: V,
    exports: Vec<Export>,
    clients: Clients,
    sessions: Sessions,
    control: Option<ListenerId>,
    describe: Describe<V>,
    trouble: trouble::Trouble,
    /// Clients there may be.
    limit: u16,
    /// Clients are accepted.
    accepts: bool,
    stop: Stop,
}

/// What reaches beyond the process, and the time.
struct Outside {
    reactor: Reactor,
    arena: Arena,
    now: Nanos,
    /// Of what clients ask for, while somebody wants it.
    recorder: Option<Box<Recorder>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Not,
    /// Clients get their last replies, until then.
    Clients(Nanos),
    /// All clients were cut off; what they asked for is still on its way through the devices,
    /// however long that takes.
    Requests,
    /// The engine comes to rest.
    Volumes,
}

impl<V: Volumes> Server<V> {
    /// A server that listens nowhere yet. The reactor must have been made with this arena and,
    /// for SIGTERM and SIGINT to stop the server, with `signals`.
    pub fn new(reactor: Reactor, arena: Arena, volumes: V, limits: &Limits, describe: Describe<V>) -> Self {
        let exports = Export::all(&volumes);
        let now = reactor.now();
        let clients = Clients::new(limits, now);
        Self {
            outside: Outside { reactor, arena, now, recorder: None },
            volumes,
            exports,
            clients,
            sessions: Sessions::new(limits.control),
            control: None,
            describe,
            trouble: trouble::Trouble::default(),
            limit: limits.clients,
            accepts: true,
            stop: Stop::Not,
        }
    }

    /// Serves NBD there; returns the TCP address, whose port was perhaps found.
    ///
    /// # Errors
    /// Those of [`Reactor::listen`].
    pub fn listen(&mut self, at: &Listen) -> Result<Option<SocketAddr>, DeviceError> {
        let listener = self.outside.reactor.listen(at)?;
        Ok(self.outside.reactor.address(listener))
    }

    /// Answers [control requests](crate::control) there, of this user only.
    ///
    /// # Errors
    /// Those of [`Reactor::listen`].
    pub fn listen_for_control(&mut self, path: &Path) -> Result<(), DeviceError> {
        let at = Listen::private(path.to_owned());
        self.control = Some(self.outside.reactor.listen(&at)?);
        Ok(())
    }

    /// Stops the server from another thread, as SIGTERM does.
    pub fn stopper(&self) -> Waker {
        self.outside.reactor.waker()
    }

    /// Serves until told to stop: by SIGTERM, SIGINT, the control socket or
    /// [`stopper`](Self::stopper). Then accepts nothing more, answers what is in flight, and
    /// brings the volumes to rest. Told twice, returns at once.
    pub fn run(mut self) -> End {
        let mut events = Vec::new();
        // What the volumes wanted of the devices before anything happened.
        self.turn();
        loop {
            if let Some(end) = self.advance_stop() {
                return end;
            }
            let deadline = self.deadline();
            self.outside.now = self.outside.reactor.wait(deadline, &mut events);
            for event in events.drain(..) {
                if self.take(event) == Told::StopAtOnce {
                    return End::AtOnce;
                }
            }
            self.turn();
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        let stop = match self.stop {
            Stop::Clients(until) => Some(until),
            _ => None,
        };
        let now = self.outside.now;
        let clients = self.clients.deadline(now, self.volumes.can_accept(), self.accepts);
        let recorder = self.outside.recorder.as_ref().and_then(|recorder| recorder.deadline());
        let all = [self.volumes.deadline(), clients, self.sessions.deadline(now), recorder, stop];
        all.into_iter().flatten().min()
    }

    fn take(&mut self, event: Event) -> Told {
        match event {
            Event::Io(done) => self.volumes.complete(self.outside.now, done, &mut self.outside.arena),
            Event::Accepted { listener, conn, peer } => self.accept(listener, conn, peer),
            Event::Received { conn, result } => {
                if !self.clients.received(conn, result, &mut self.outside) {
                    self.sessions.received(conn, result, &mut self.outside);
                }
            }
            Event::Sent { conn, result } => {
                if !self.clients.sent(conn, result, &mut self.outside.arena) {
                    self.sessions.sent(conn, result, &mut self.outside);
                }
            }
            Event::Closed { conn } => {
                self.clients.closed(conn, &mut self.outside.arena);
                self.sessions.closed(conn, &mut self.outside);
            }
            Event::Stop | Event::Woken => return self.begin_stop(),
        }
        Told::GoOn
    }

    fn accept(&mut self, listener: ListenerId, conn: ConnId, peer: Peer) {
        self.clients.note_accepted();
        let taken = if self.stop != Stop::Not {
            false
        } else if self.control == Some(listener) {
            let taken = self.sessions.accept(conn, &mut self.outside);
            if let Err(why) = taken {
                self.clients.refused.note(why);
            }
            taken.is_ok()
        } else {
            self.clients.accept(conn, peer, &mut self.outside)
        };
        if !taken {
            self.outside.reactor.close(conn);
        }
    }

    /// Everything that follows from what has arrived.
    fn turn(&mut self) {
        let outside = &mut self.outside;
        self.clients.submit(&mut self.volumes, &self.exports, outside);
        self.answer_sessions();
        let outside = &mut self.outside;
        self.volumes.tick(outside.now, &mut outside.arena);
        while let Some(io) = self.volumes.next_io() {
            outside.reactor.start(io);
        }
        while let Some(reply) = self.volumes.next_reply() {
            self.clients.reply(reply, &mut outside.arena);
        }
        while let Some(reply) = self.volumes.next_admin_reply() {
            self.exports = Export::all(&self.volumes);
            self.sessions.reply(reply);
        }
        while let Some(notice) = self.volumes.next_notice() {
            let volume_name = |id| {
                let all = self.volumes.volumes();
                all.into_iter().find(|v| v.id == id).map_or_else(|| format!("{id:?}"), |v| v.name)
            };
            self.trouble.tell(outside.now, notice, |device| self.volumes.device_name(device), volume_name);
        }
        self.clients.finish_turn(&self.volumes, outside);
        self.sessions.send(outside);
        let accepts = self.clients.may_accept(outside.now);
        if accepts != std::mem::replace(&mut self.accepts, accepts) {
            outside.reactor.set_accepting(accepts);
        }
    }

    /// How many clients there are.
    fn counts(&self) -> ClientCounts {
        ClientCounts { sessions: self.sessions.count() as u64, ..self.clients.counts(self.limit) }
    }

    fn begin_stop(&mut self) -> Told {
        if self.stop != Stop::Not {
            return Told::StopAtOnce;
        }
        tracing::info!("stopping: answering what is in flight, then bringing the pool to rest");
        self.stop = Stop::Clients(self.outside.now + FAREWELL);
        self.outside.reactor.stop_listening();
        self.volumes.stop_waiting_for_space(self.outside.now);
        self.clients.finish();
        if let Some(recorder) = &mut self.outside.recorder {
            recorder.end();
        }
        Told::GoOn
    }

    fn advance_stop(&mut self) -> Option<End> {
        match self.stop {
            Stop::Clients(_) | Stop::Requests if self.clients.is_empty() => {
                self.volumes.begin_stop(self.outside.now);
                self.stop = Stop::Volumes;
                self.turn();
            }
            Stop::Clients(until) if self.outside.now >= until => {
                self.clients.kill_all(&mut self.outside);
                self.stop = Stop::Requests;
            }
            Stop::Not | Stop::Clients(_) | Stop::Requests | Stop::Volumes => {}
        }
        (self.stop == Stop::Volumes && self.volumes.stopped()).then_some(End::Graceful)
    }
}

/// What an event means for the server as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    GoOn,
    StopAtOnce,
}

/// The client a request belongs to.
const fn client_of(id: RequestId) -> u16 {
    (id.0 >> 16) as u16
}

impl Outside {
    /// Sends bytes over a connection that keeps no buffer of its own.
    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Option<weir_model::Buffer> {
        let buffer = self.arena.take(Bytes(bytes.len() as u64))?;
        let part = buffer.part(0, bytes.len() as u32);
        self.arena.bytes_mut(part).copy_from_slice(bytes);
        self.reactor.send(conn, &[part]);
        Some(buffer)
    }
}

#[cfg(test)]
mod tests;
