//! The server without its sockets: clients, control sessions and the volumes, driven by events.
//!
//! The driver waits for events until [`Server::deadline`], reports each with [`accepted`](Server::accepted),
//! [`received`](Server::received), [`sent`](Server::sent), [`closed`](Server::closed) or
//! [`completed`](Server::completed), and then calls [`Server::turn`]. In a turn the clients submit their
//! requests in turn, the engine's device commands start, and its replies are sent.
//!
//! - `clients`: the NBD clients.
//! - `sessions`: the control socket.
//! - `recorder`: recording of client requests.
//! - `trouble`: notices for the log.

mod clients;
mod notice_log;
mod recorder;
mod sessions;

use crate::admission::{ClientCounts, HANDSHAKES_MAX, Limits};
use crate::connection::Connection;
use crate::nbd::Export;
use crate::port::Port;
use crate::volumes::Volumes;
use clients::Clients;
use sessions::Sessions;
use weir_engine::Driver;
use weir_model::{
    Buffer, Bytes, ConnId, DeviceId, Io, IoCompletion, IoError, Memory, Nanos, Peer, RequestId,
};

/// How long clients may take to receive their last replies when the server stops.
const STOP_GRACE_PERIOD: Nanos = Nanos::secs(5);

impl Limits {
    /// Returns the amount of buffer memory that gives every client its entitlement, and a few clients with
    /// large requests the most they may use. Unused pages cost nothing.
    pub fn memory(&self) -> Bytes {
        let entitled = u64::from(self.clients + 2 * HANDSHAKES_MAX) * Connection::ENTITLED.0;
        Bytes((self.reserve.0 + entitled + 6 * self.memory_per_client.0).next_multiple_of(1 << 21))
    }
}

/// Describes the state of the pool and the number of its clients, for the control socket.
pub type Describe<V, P> = Box<dyn Fn(&V, &P, &ClientCounts) -> serde_json::Value>;

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerOutcome {
    /// All requests were answered, and their effects are on the devices.
    Graceful,
    /// A second request to stop ended it at once; all flushed data is durable.
    Immediate,
    /// Durable data is lost with this device, or will be once it is closed: its file was removed, truncated
    /// or overwritten.
    Damaged(DeviceId),
}

/// The effect of a request to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// The stop has begun.
    Started,
    /// The server was stopping already; a second request means that it should end at once.
    AlreadyStopping,
}

/// The server's environment: sockets, devices, memory and the time.
pub struct Environment<'a, P, M> {
    /// Sockets and devices.
    pub port: &'a mut P,
    /// Buffers of clients and devices.
    pub memory: &'a mut M,
    /// The current time.
    pub now: Nanos,
}

/// Serves volumes to clients until it is stopped.
pub struct Server<V, P> {
    volumes: V,
    exports: Vec<Export>,
    clients: Clients,
    sessions: Sessions,
    describe: Describe<V, P>,
    notice_log: notice_log::NoticeLog,
    /// Maximum number of clients.
    max_clients: u16,
    /// True while clients are accepted.
    is_accepting: bool,
    stop: Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Running,
    /// Clients receive their last replies, until this time.
    DrainingClients(Nanos),
    /// All clients have been disconnected; their requests are still in flight on the devices, however long
    /// that takes.
    DrainingRequests,
    /// The engine stops.
    StoppingVolumes,
}

impl<V: Volumes, P: Port> Server<V, P> {
    /// Creates a server without clients.
    pub fn new(volumes: V, limits: &Limits, now: Nanos, describe: Describe<V, P>) -> Self {
        let (exports, planted) = (Export::all(&volumes), volumes.planted());
        Self {
            volumes,
            exports,
            clients: Clients::new(limits, now, planted),
            sessions: Sessions::new(limits.control_timeout),
            describe,
            notice_log: notice_log::NoticeLog::default(),
            max_clients: limits.clients,
            is_accepting: true,
            stop: Stop::Running,
        }
    }

    /// Returns the volumes.
    pub const fn volumes(&self) -> &V {
        &self.volumes
    }

    /// Returns the volumes, to change them other than by requests.
    pub const fn volumes_mut(&mut self) -> &mut V {
        &mut self.volumes
    }

    /// Ends the server and returns the volumes.
    pub fn into_volumes(self) -> V {
        self.volumes
    }

    /// Returns the time by which [`turn`](Self::turn) must be called; `None` means not before the next event.
    pub fn deadline(&self, now: Nanos) -> Option<Nanos> {
        let stop = match self.stop {
            Stop::DrainingClients(until) => Some(until),
            _ => None,
        };
        let clients = self.clients.deadline(now, self.volumes.can_accept(), self.is_accepting);
        let all = [
            self.volumes.deadline(),
            clients,
            self.sessions.deadline(now),
            self.notice_log.deadline(now),
            stop,
        ];
        all.into_iter().flatten().min()
    }

    /// Handles a new NBD connection. It is closed at once if it is not admitted.
    pub fn accepted<M: Memory>(&mut self, conn: ConnId, peer: Peer, environment: &mut Environment<'_, P, M>) {
        self.clients.note_accepted();
        if self.stop != Stop::Running || !self.clients.accept(conn, peer, environment) {
            environment.port.close(conn);
        }
    }

    /// Handles a new connection to the control socket. It is closed at once if it is not admitted.
    pub fn accepted_control<M: Memory>(&mut self, conn: ConnId, environment: &mut Environment<'_, P, M>) {
        self.clients.note_accepted();
        if self.stop != Stop::Running {
            return environment.port.close(conn);
        }
        if let Err(why) = self.sessions.accept(conn, environment) {
            self.clients.refusals.note(why);
            environment.port.close(conn);
        }
    }

    /// Handles the end of a receive: the number of bytes that arrived (0 only at the end of the stream), or
    /// an error. Its buffers belong to the server again.
    pub fn received<M: Memory>(
        &mut self,
        conn: ConnId,
        result: Result<usize, IoError>,
        environment: &mut Environment<'_, P, M>,
    ) {
        if !self.clients.received(conn, result, environment) {
            self.sessions.received(conn, result, environment);
        }
    }

    /// Handles the end of a send: everything was sent, or the connection failed. Its buffers belong to the
    /// server again.
    pub fn sent<M: Memory>(
        &mut self,
        conn: ConnId,
        result: Result<(), IoError>,
        environment: &mut Environment<'_, P, M>,
    ) {
        if !self.clients.sent(conn, result, environment.memory) {
            self.sessions.sent(conn, result, environment);
        }
    }

    /// Handles the end of a connection, with nothing in flight on it.
    pub fn closed<M: Memory>(&mut self, conn: ConnId, environment: &mut Environment<'_, P, M>) {
        self.clients.closed(conn, environment.memory);
        self.sessions.closed(conn, environment);
    }

    /// Handles the completion of a device command.
    #[inline]
    pub fn completed<M: Memory>(&mut self, done: IoCompletion, environment: &mut Environment<'_, P, M>) {
        self.volumes.complete(environment.now, done, environment.memory);
    }

    /// Processes everything that has arrived. Returns the number of requests of volumes answered.
    pub fn turn<M: Memory>(&mut self, environment: &mut Environment<'_, P, M>) -> usize {
        // Failures are delivered before new requests are submitted, so that requests see their effects.
        let mut answered = self.deliver(environment);
        self.clients.submit(&mut self.volumes, &self.exports, self.sessions.recorder(), environment);
        self.answer_sessions(environment);
        self.volumes.pump(environment);
        answered += self.deliver(environment);
        while let Some(reply) = self.volumes.next_admin_reply() {
            self.exports = Export::all(&self.volumes);
            self.sessions.reply(reply);
        }
        while let Some(notice) = self.volumes.next_notice() {
            let volume_name = |id| {
                let all = self.volumes.volumes();
                all.into_iter().find(|v| v.id == id).map_or_else(|| format!("{id:?}"), |v| v.name)
            };
            let device_name = |device| self.volumes.device_name(device);
            let save = || environment.port.save_removed();
            self.notice_log.log_notice(environment.now, notice, device_name, volume_name, save);
        }
        self.notice_log.log_failures(environment.now, |device| self.volumes.device_name(device));
        self.clients.finish_turn(&self.volumes, environment);
        self.sessions.send(environment);
        let accepts = self.clients.may_accept(environment.now);
        if accepts != std::mem::replace(&mut self.is_accepting, accepts) {
            environment.port.set_accepting(accepts);
        }
        answered
    }

    /// Passes replies of the volumes to the clients; returns their number.
    fn deliver<M: Memory>(&mut self, environment: &mut Environment<'_, P, M>) -> usize {
        let mut replies = 0;
        while let Some(reply) = self.volumes.next_reply() {
            self.notice_log.note_reply(&reply.result);
            self.clients.reply(reply, &self.volumes, environment.memory);
            replies += 1;
        }
        replies
    }

    /// Returns the number of clients of each kind.
    pub fn counts(&self) -> ClientCounts {
        ClientCounts { sessions: self.sessions.count() as u64, ..self.clients.counts(self.max_clients) }
    }

    /// Begins to stop: accepts no more clients, answers requests in flight, and stops the volumes.
    pub fn begin_stop<M>(&mut self, environment: &mut Environment<'_, P, M>) -> StopRequest {
        if self.stop != Stop::Running {
            return StopRequest::AlreadyStopping;
        }
        tracing::info!("stopping: answering requests in flight, then flushing the pool");
        self.stop = Stop::DrainingClients(environment.now + STOP_GRACE_PERIOD);
        environment.port.stop_listening();
        self.volumes.stop_waiting_for_space(environment.now);
        self.clients.finish();
        if let Some(recorder) = self.sessions.recorder() {
            recorder.end();
        }
        StopRequest::Started
    }

    /// Advances the stop; the driver calls it before each wait for events. Returns the outcome once the stop
    /// is complete.
    pub fn advance_stop<M: Memory>(
        &mut self,
        environment: &mut Environment<'_, P, M>,
    ) -> Option<ServerOutcome> {
        match self.stop {
            Stop::DrainingClients(_) | Stop::DrainingRequests if self.clients.is_empty() => {
                self.volumes.begin_stop(environment.now);
                self.stop = Stop::StoppingVolumes;
                self.turn(environment);
            }
            Stop::DrainingClients(until) if environment.now >= until => {
                self.clients.abort_all(environment);
                self.stop = Stop::DrainingRequests;
            }
            Stop::Running | Stop::DrainingClients(_) | Stop::DrainingRequests | Stop::StoppingVolumes => {}
        }
        let stopped = self.stop == Stop::StoppingVolumes && self.volumes.stopped();
        stopped.then(|| self.volumes.damaged_device().map_or(ServerOutcome::Graceful, ServerOutcome::Damaged))
    }
}

/// Returns the client that a request belongs to.
const fn client_of(id: RequestId) -> u16 {
    (id.0 >> 16) as u16
}

impl<P: Port, M: Memory> Driver for Environment<'_, P, M> {
    type Memory = M;
    fn now(&self) -> Nanos {
        self.now
    }
    fn memory(&mut self) -> &mut M {
        self.memory
    }
    fn start(&mut self, io: Io) -> Option<Result<(), IoError>> {
        self.port.start(io);
        None
    }
}

impl<P: Port, M: Memory> Environment<'_, P, M> {
    /// Sends bytes over a connection that keeps no buffer of its own.
    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Option<Buffer> {
        let buffer = self.memory.take(Bytes(bytes.len() as u64))?;
        let part = buffer.part(0, bytes.len() as u32);
        self.memory.bytes_mut(part).copy_from_slice(bytes);
        self.port.send(conn, &[part]);
        Some(buffer)
    }
}

#[cfg(test)]
mod tests;
