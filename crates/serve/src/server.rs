//! The server over the reactor: one thread that owns sockets, devices, memory and the engine.
//!
//! Each round of [`Server::run`] waits for events, reports them to the session's server, and lets it take its
//! turn. Sends and device commands leave together, in few system calls.

use std::net::SocketAddr;
use std::path::Path;
use weir_device::{Arena, Device, DeviceError, Event, Listen, ListenerId, Reactor, Waker, save_removed};
use weir_model::{Buffer, ConnId, DeviceId, DeviceSet, Io, Nanos, ReceiveMode};
use weir_session::server::{Environment, StopRequest};
use weir_session::{ClientCounts, Limits, Port, ServerOutcome, Volumes};

/// Describes the state of the pool and the number of its clients, for the control socket.
pub type Describe<V> = Box<dyn Fn(&V, &Reactor, &ClientCounts) -> serde_json::Value>;

/// Serves volumes to clients until it is stopped.
pub struct Server<V> {
    port: ReactorPort,
    arena: Arena,
    now: Nanos,
    session: weir_session::Server<V, ReactorPort>,
    control: Option<ListenerId>,
    /// True once a request to stop has been answered with a warning about data that stopping would lose.
    has_warned: bool,
    /// When the locations of the devices were last checked, and the devices that had moved.
    last_location_check: Option<Nanos>,
    moved: DeviceSet,
}

/// Interval between checks that devices are where the next start looks for them, while there are events.
const LOCATION_CHECK_INTERVAL: Nanos = Nanos::secs(5);

/// The reactor as the session's port.
struct ReactorPort(Reactor);

impl Port for ReactorPort {
    fn recv(&mut self, conn: ConnId, into: &[Buffer], fill: ReceiveMode) {
        self.0.recv(conn, into, fill);
    }
    fn cancel_recv(&mut self, conn: ConnId) {
        self.0.cancel_recv(conn);
    }
    fn send(&mut self, conn: ConnId, parts: &[Buffer]) {
        self.0.send(conn, parts);
    }
    fn close(&mut self, conn: ConnId) {
        self.0.close(conn);
    }
    fn poll_hung_up(&mut self, conns: &[ConnId], gone: &mut Vec<ConnId>) {
        self.0.hung_up(conns, gone);
    }
    fn set_accepting(&mut self, accepting: bool) {
        self.0.set_accepting(accepting);
    }
    fn stop_listening(&mut self) {
        self.0.stop_listening();
    }
    fn start(&mut self, io: Io) {
        self.0.start(io);
    }
    fn save_removed(&self) -> Option<String> {
        let removed: Vec<_> = self.devices().filter_map(|(_, device)| device.removed()).collect();
        save_removed(&removed)
    }
}

impl ReactorPort {
    fn devices(&self) -> impl Iterator<Item = (DeviceId, &Device)> {
        (0..=u8::MAX).map(DeviceId).filter_map(|id| Some((id, self.0.device(id)?)))
    }
}

/// Whether the server continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continuation {
    Continue,
    StopAtOnce,
}

impl<V: Volumes> Server<V> {
    /// Creates a server that does not listen yet. The reactor must have been created with this arena and, for
    /// SIGTERM and SIGINT to stop the server, with `signals`.
    pub fn new(reactor: Reactor, arena: Arena, volumes: V, limits: &Limits, describe: Describe<V>) -> Self
    where
        V: 'static,
    {
        let now = reactor.now();
        let describe = Box::new(move |volumes: &V, port: &ReactorPort, counts: &ClientCounts| {
            describe(volumes, &port.0, counts)
        });
        let session = weir_session::Server::new(volumes, limits, now, describe);
        let misplaced = DeviceSet::default();
        let port = ReactorPort(reactor);
        Self {
            port,
            arena,
            now,
            session,
            control: None,
            has_warned: false,
            last_location_check: None,
            moved: misplaced,
        }
    }

    /// Serves NBD at this address; returns the TCP address, whose port the kernel may have chosen.
    ///
    /// # Errors
    /// Those of [`Reactor::listen`].
    pub fn listen(&mut self, at: &Listen) -> Result<Option<SocketAddr>, DeviceError> {
        let listener = self.port.0.listen(at)?;
        Ok(self.port.0.address(listener))
    }

    /// Answers [control requests](crate::control) of this user at `path`.
    ///
    /// # Errors
    /// Those of [`Reactor::listen`].
    pub fn listen_for_control(&mut self, path: &Path) -> Result<(), DeviceError> {
        let at = Listen::private(path.to_owned());
        self.control = Some(self.port.0.listen(&at)?);
        Ok(())
    }

    /// Returns a handle that stops the server from another thread, as SIGTERM does.
    pub fn stopper(&self) -> Waker {
        self.port.0.waker()
    }

    /// Serves until it is stopped: by SIGTERM, SIGINT, the control socket or [`stopper`](Self::stopper). The
    /// server then accepts no more clients, answers the requests in flight, and stops the volumes. A second
    /// request to stop returns at once. If device files were removed, and would be lost with the server, the
    /// first request only logs a warning; if they are removed during the stop, the server waits for the
    /// second request.
    pub fn run(mut self) -> ServerOutcome {
        let mut events = Vec::new();
        let mut ended = None;
        // The volumes may want device commands before the first event.
        self.turn();
        loop {
            let (session, mut outside) = self.parts();
            if ended.is_none() {
                ended = session.advance_stop(&mut outside);
                if let Some(end) = ended
                    && !self.warn_of_loss()
                {
                    return end;
                }
            }
            self.wait(&mut events);
            for event in events.drain(..) {
                if self.handle_event(event) == Continuation::StopAtOnce {
                    return ended.or_else(|| self.end_if_damaged()).unwrap_or(ServerOutcome::Immediate);
                }
            }
            self.turn();
        }
    }

    /// Returns the outcome of an immediate end, if data is lost with a device.
    fn end_if_damaged(&self) -> Option<ServerOutcome> {
        let removed = || self.port.devices().find_map(|(id, device)| device.removed_file().map(|_| id));
        self.session.volumes().damaged_device().or_else(removed).map(ServerOutcome::Damaged)
    }

    fn parts(&mut self) -> (&mut weir_session::Server<V, ReactorPort>, Environment<'_, ReactorPort, Arena>) {
        let outside = Environment { port: &mut self.port, memory: &mut self.arena, now: self.now };
        (&mut self.session, outside)
    }

    /// Waits for events, at most until the session's deadline.
    fn wait(&mut self, events: &mut Vec<Event>) {
        let deadline = self.session.deadline(self.now);
        self.now = self.port.0.wait(deadline, events);
    }

    /// Reports, once, whether stopping would lose the contents of files that were removed.
    fn warn_of_loss(&mut self) -> bool {
        let Some(save) = self.port.save_removed() else { return false };
        if std::mem::replace(&mut self.has_warned, true) {
            return false;
        }
        tracing::error!(
            "not stopping: device files were removed, or others took their places, and what is in them is gone \
             once this server ends; {save}. A second signal stops it all the same"
        );
        true
    }

    /// Logs which devices the next start will not find, and which it will find again.
    fn check_device_locations(&mut self) {
        if self.last_location_check.is_some_and(|at| self.now.since(at) < LOCATION_CHECK_INTERVAL) {
            return;
        }
        self.last_location_check = Some(self.now);
        let mut misplaced = DeviceSet::default();
        for (id, device) in self.port.devices() {
            let is_known = self.moved.contains(id);
            let name = || self.session.volumes().device_name(id);
            let Some(found) = device.moved() else {
                if is_known && device.removed_file().is_none() {
                    tracing::info!(device = name(), "the device is where the next start looks for it again");
                }
                continue;
            };
            misplaced.insert(id);
            if !is_known {
                tracing::warn!(device = name(), "{}", found.advice(device.path()));
            }
        }
        self.moved = misplaced;
    }

    fn handle_event(&mut self, event: Event) -> Continuation {
        if matches!(event, Event::Stop | Event::Woken) && self.warn_of_loss() {
            return Continuation::Continue;
        }
        let control = self.control;
        let (session, mut outside) = self.parts();
        match event {
            Event::Io(done) => session.completed(done, &mut outside),
            Event::Accepted { listener, conn, .. } if control == Some(listener) => {
                session.accepted_control(conn, &mut outside);
            }
            Event::Accepted { conn, peer, .. } => session.accepted(conn, peer, &mut outside),
            Event::Received { conn, result } => session.received(conn, result, &mut outside),
            Event::Sent { conn, result } => session.sent(conn, result, &mut outside),
            Event::Closed { conn } => session.closed(conn, &mut outside),
            Event::Stop | Event::Woken => {
                if session.begin_stop(&mut outside) == StopRequest::AlreadyStopping {
                    return Continuation::StopAtOnce;
                }
                // Devices that moved since the last check are logged before the end.
                self.last_location_check = None;
            }
        }
        Continuation::Continue
    }

    fn turn(&mut self) {
        let (session, mut outside) = self.parts();
        let answered = session.turn(&mut outside);
        self.port.0.record_answers(answered);
        self.check_device_locations();
    }
}

#[cfg(test)]
mod tests;
