//! The server without its sockets: clients, control sessions and the volumes, driven by events.
//!
//! Whoever drives it waits for events until [`Server::deadline`], reports each with
//! [`accepted`](Server::accepted), [`received`](Server::received), [`sent`](Server::sent),
//! [`closed`](Server::closed) or [`completed`](Server::completed), and then calls [`Server::turn`]: the
//! clients, in turn, submit what they have; the device commands the engine wants are started; what it
//! answered is sent.
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
use crate::port::Port;
use crate::volumes::Volumes;
use clients::Clients;
use sessions::Sessions;
use weir_engine::Driver;
use weir_model::{Buffer, Bytes, ConnId, DeviceId, Io, IoDone, IoError, Memory, Nanos, Peer, RequestId};

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
pub type Describe<V, P> = Box<dyn Fn(&V, &P, &ClientCounts) -> serde_json::Value>;

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything asked for was answered, and is at rest on the devices.
    Graceful,
    /// It was told twice to stop, and did so at once; what was flushed is durable.
    AtOnce,
    /// Data that was durable is gone with this device, or will be once it is closed: it was removed,
    /// truncated or overwritten.
    Damaged(DeviceId),
}

/// What became of a request to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// It stops in good order.
    Begun,
    /// It was stopping already: whoever asks twice wants it to end at once.
    Again,
}

/// What reaches beyond the server, and the time.
pub struct Outside<'a, P, M> {
    /// Sockets and devices.
    pub port: &'a mut P,
    /// The buffers of both.
    pub memory: &'a mut M,
    /// The time.
    pub now: Nanos,
}

/// Serves volumes to clients until it is told to stop.
pub struct Server<V, P> {
    volumes: V,
    exports: Vec<Export>,
    clients: Clients,
    sessions: Sessions,
    describe: Describe<V, P>,
    trouble: trouble::Trouble,
    /// Clients there may be.
    limit: u16,
    /// Clients are accepted.
    accepts: bool,
    stop: Stop,
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

impl<V: Volumes, P: Port> Server<V, P> {
    /// A server without clients.
    pub fn new(volumes: V, limits: &Limits, now: Nanos, describe: Describe<V, P>) -> Self {
        let (exports, planted) = (Export::all(&volumes), volumes.planted());
        Self {
            volumes,
            exports,
            clients: Clients::new(limits, now, planted),
            sessions: Sessions::new(limits.control),
            describe,
            trouble: trouble::Trouble::default(),
            limit: limits.clients,
            accepts: true,
            stop: Stop::Not,
        }
    }

    /// What it serves.
    pub const fn volumes(&self) -> &V {
        &self.volumes
    }

    /// What it serves, to change it otherwise than by requests.
    pub const fn volumes_mut(&mut self) -> &mut V {
        &mut self.volumes
    }

    /// What it served, for whoever goes on with it.
    pub fn into_volumes(self) -> V {
        self.volumes
    }

    /// When [`turn`](Self::turn) must be called at the latest; `None`: not before the next event.
    pub fn deadline(&self, now: Nanos) -> Option<Nanos> {
        let stop = match self.stop {
            Stop::Clients(until) => Some(until),
            _ => None,
        };
        let clients = self.clients.deadline(now, self.volumes.can_accept(), self.accepts);
        let all =
            [self.volumes.deadline(), clients, self.sessions.deadline(now), self.trouble.deadline(now), stop];
        all.into_iter().flatten().min()
    }

    /// An NBD client connected. It is closed at once if it is not let in.
    pub fn accepted<M: Memory>(&mut self, conn: ConnId, peer: Peer, outside: &mut Outside<'_, P, M>) {
        self.clients.note_accepted();
        if self.stop != Stop::Not || !self.clients.accept(conn, peer, outside) {
            outside.port.close(conn);
        }
    }

    /// Somebody connected to the control socket. It is closed at once if it is not let in.
    pub fn accepted_control<M: Memory>(&mut self, conn: ConnId, outside: &mut Outside<'_, P, M>) {
        self.clients.note_accepted();
        if self.stop != Stop::Not {
            return outside.port.close(conn);
        }
        if let Err(why) = self.sessions.accept(conn, outside) {
            self.clients.refused.note(why);
            outside.port.close(conn);
        }
    }

    /// A receive ended: so many bytes arrived, none only at the end of the stream; or it failed. Its buffers are
    /// the server's again.
    pub fn received<M: Memory>(
        &mut self,
        conn: ConnId,
        result: Result<usize, IoError>,
        outside: &mut Outside<'_, P, M>,
    ) {
        if !self.clients.received(conn, result, outside) {
            self.sessions.received(conn, result, outside);
        }
    }

    /// A send ended: all of it was taken, or the connection failed. Its buffers are the server's again.
    pub fn sent<M: Memory>(
        &mut self,
        conn: ConnId,
        result: Result<(), IoError>,
        outside: &mut Outside<'_, P, M>,
    ) {
        if !self.clients.sent(conn, result, outside.memory) {
            self.sessions.sent(conn, result, outside);
        }
    }

    /// The connection is gone, and nothing is in flight on it.
    pub fn closed<M: Memory>(&mut self, conn: ConnId, outside: &mut Outside<'_, P, M>) {
        self.clients.closed(conn, outside.memory);
        self.sessions.closed(conn, outside);
    }

    /// A device command ended.
    #[inline]
    pub fn completed<M: Memory>(&mut self, done: IoDone, outside: &mut Outside<'_, P, M>) {
        self.volumes.complete(outside.now, done, outside.memory);
    }

    /// Everything that follows from what has arrived.
    pub fn turn<M: Memory>(&mut self, outside: &mut Outside<'_, P, M>) {
        // What has failed already is known before anything is asked.
        self.deliver(outside);
        self.clients.submit(&mut self.volumes, &self.exports, self.sessions.recorder(), outside);
        self.answer_sessions(outside);
        self.volumes.pump(outside);
        self.deliver(outside);
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
            let save = || outside.port.save_removed();
            self.trouble.tell(outside.now, notice, device_name, volume_name, save);
        }
        self.trouble.tell_failures(outside.now, |device| self.volumes.device_name(device));
        self.clients.finish_turn(&self.volumes, outside);
        self.sessions.send(outside);
        let accepts = self.clients.may_accept(outside.now);
        if accepts != std::mem::replace(&mut self.accepts, accepts) {
            outside.port.set_accepting(accepts);
        }
    }

    /// What the volumes answered goes to the clients.
    fn deliver<M: Memory>(&mut self, outside: &mut Outside<'_, P, M>) {
        while let Some(reply) = self.volumes.next_reply() {
            self.trouble.note_reply(&reply.result);
            self.clients.reply(reply, &self.volumes, outside.memory);
        }
    }

    /// How many clients there are.
    pub fn counts(&self) -> ClientCounts {
        ClientCounts { sessions: self.sessions.count() as u64, ..self.clients.counts(self.limit) }
    }

    /// Stops: accepts nothing more, answers what is in flight, and brings the volumes to rest.
    pub fn begin_stop<M>(&mut self, outside: &mut Outside<'_, P, M>) -> StopRequest {
        if self.stop != Stop::Not {
            return StopRequest::Again;
        }
        tracing::info!("stopping: answering requests in flight, then flushing the pool");
        self.stop = Stop::Clients(outside.now + FAREWELL);
        outside.port.stop_listening();
        self.volumes.stop_waiting_for_space(outside.now);
        self.clients.finish();
        if let Some(recorder) = self.sessions.recorder() {
            recorder.end();
        }
        StopRequest::Begun
    }

    /// Goes on stopping; call it before each wait for events. The end, once it has come.
    pub fn advance_stop<M: Memory>(&mut self, outside: &mut Outside<'_, P, M>) -> Option<End> {
        match self.stop {
            Stop::Clients(_) | Stop::Requests if self.clients.is_empty() => {
                self.volumes.begin_stop(outside.now);
                self.stop = Stop::Volumes;
                self.turn(outside);
            }
            Stop::Clients(until) if outside.now >= until => {
                self.clients.kill_all(outside);
                self.stop = Stop::Requests;
            }
            Stop::Not | Stop::Clients(_) | Stop::Requests | Stop::Volumes => {}
        }
        let stopped = self.stop == Stop::Volumes && self.volumes.stopped();
        stopped.then(|| self.volumes.damaged_device().map_or(End::Graceful, End::Damaged))
    }
}

/// The client a request belongs to.
const fn client_of(id: RequestId) -> u16 {
    (id.0 >> 16) as u16
}

impl<P: Port, M: Memory> Driver for Outside<'_, P, M> {
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

impl<P: Port, M: Memory> Outside<'_, P, M> {
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
