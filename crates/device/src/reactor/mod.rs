//! The reactor: device commands, sockets, timers and signals of one thread.
//!
//! The driver of the engine calls [`Reactor::wait`] in a loop, dispatches each [`Event`], and starts the
//! commands that follow from it. Only `wait` blocks; it submits everything started since its last call, in
//! one system call.

mod awake;
mod backend;
mod cpu_latency;
mod disk;
mod listen;
mod offload;
mod plain;
mod polling;
mod signal;
mod socket;
mod transfer;
mod uring;
mod workers;

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::time::Instant;

use weir_model::{Buffer, ConnId, DeviceId, Io, IoCompletion, IoError, Nanos, Peer, ReceiveMode};

use crate::arena::Region;
use crate::pace::PaceStats;
use crate::{Arena, DeviceError, Devices};
use awake::Awake;
use backend::{Backend, Finished, Sleep, TurnContext};
pub use cpu_latency::CpuLatency;
use cpu_latency::LatencyRequest;
use disk::{Disks, StartResult};
pub use listen::peer_process;
pub use polling::Poll;
use polling::Polling;
use signal::Signals;
pub use signal::Waker;
use socket::{Direction, Sockets};
pub use socket::{Listen, ListenerId, SocketAccess};

/// Number of backend turns that may be skipped while there is other work, before started commands must be
/// submitted.
const SKIPS_MAX: u32 = 4;
/// A sleep ends this long before a paced command is due: a sixteenth of the sleep, within these bounds.
/// Waking takes about 5 microseconds after a short sleep and 100 after a long one, when the processor sleeps
/// more deeply. The reactor sleeps again for the rest of the time, and spins for the last part.
const WAKE_MARGIN_MIN: Nanos = Nanos::micros(15);
const WAKE_MARGIN_MAX: Nanos = Nanos::micros(120);
/// How long a reactor that is dropped waits for the kernel to release its buffers.
const DROP_TIMEOUT: Nanos = Nanos::secs(10);

/// Options of a reactor. `Default` is right for a server.
#[derive(Clone, Debug)]
pub struct ReactorOptions {
    /// The backend to use.
    pub ring: Ring,
    /// Maximum number of commands submitted at once; a power of two. Further ones wait, none is lost.
    pub depth: u32,
    /// Register the buffer memory with the ring, so that the kernel need not look up its pages at every
    /// direct transfer. This needs as much locked memory as the arena has (`ulimit -l`); if it is refused,
    /// the reactor works without.
    pub fixed_buffers: bool,
    /// Report SIGTERM and SIGINT as [`Event::Stop`]. The process no longer dies of them, not even after the
    /// reactor is dropped.
    pub signals: bool,
    /// Number of threads for device commands on the plain ring.
    pub workers: usize,
    /// How long to poll for events before sleeping. The plain ring always sleeps at once.
    pub poll: Poll,
    /// Whether to keep idle processors awake.
    pub cpu_latency: CpuLatency,
}

impl Default for ReactorOptions {
    fn default() -> Self {
        Self {
            ring: Ring::Auto,
            depth: 256,
            fixed_buffers: false,
            signals: false,
            workers: 8,
            poll: Poll::default(),
            cpu_latency: CpuLatency::default(),
        }
    }
}

/// The reactor's backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ring {
    /// io_uring, or the plain ring where io_uring is refused; the log says which and why.
    #[default]
    Auto,
    /// io_uring; an error if it is refused.
    Uring,
    /// `poll` for sockets, threads for devices.
    Plain,
}

/// An event that the reactor reports.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A device command completed.
    Io(IoCompletion),
    /// A client connected.
    Accepted {
        /// The listener.
        listener: ListenerId,
        /// The connection.
        conn: ConnId,
        /// The client.
        peer: Peer,
    },
    /// A receive ended; its buffers belong to the caller again.
    Received {
        /// The connection.
        conn: ConnId,
        /// Number of bytes received. It is less than the buffers' size only with [`ReceiveMode::Any`] or at
        /// the end of the stream, and zero only at the end of the stream.
        result: Result<usize, IoError>,
    },
    /// A send ended: everything was handed to the kernel, or the connection failed. Its buffers belong to the
    /// caller again.
    Sent {
        /// The connection.
        conn: ConnId,
        /// Whether everything was sent.
        result: Result<(), IoError>,
    },
    /// The connection is closed and the kernel has released its buffers. It follows [`Reactor::close`]
    /// exactly once, as the last event of the connection.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// SIGTERM or SIGINT arrived.
    Stop,
    /// [`Waker::wake`] was called, once or more often.
    Woken,
}

/// Drives devices, sockets and timers on one thread.
///
/// Buffers passed to [`Reactor::start`], [`Reactor::recv`] and [`Reactor::send`] belong to the kernel until
/// the event that ends the command. Accessing them before that (through [`weir_model::Memory`]) panics in
/// debug builds and reads or writes garbage in others.
///
/// A reactor stays on the thread that created it. Dropping it cancels what is in flight and waits for the
/// kernel to release the buffers.
#[derive(Debug)]
pub struct Reactor {
    origin: Instant,
    region: Region,
    disks: Disks,
    sockets: Sockets,
    signals: Signals,
    backend: Backend,
    polling: Polling,
    awake: Awake,
    /// Events of commands that completed without the kernel's ring; the next `wait` reports them.
    ready: Vec<Event>,
    finished: Vec<Finished>,
    not_send: PhantomData<*const ()>,
}

impl Reactor {
    /// Creates a reactor over these devices and this buffer memory, for the calling thread.
    ///
    /// # Errors
    /// [`DeviceError::Ring`] if io_uring was demanded and is refused, [`DeviceError::Setup`] if something
    /// else is missing (open files, memory).
    pub fn new(options: &ReactorOptions, devices: Devices, arena: &Arena) -> Result<Self, DeviceError> {
        // With this timer slack sleeps end about a microsecond late instead of fifty.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let signals = Signals::new(options.signals)?;
        let region = arena.region().clone();
        let disks = Disks::new(devices);
        let polling = Polling::new(options.poll);
        let backend = Backend::new(options, &disks.files(), &region, &signals)?;
        Ok(Self {
            origin: Instant::now(),
            region,
            disks,
            sockets: Sockets::default(),
            signals,
            backend,
            awake: Awake::new(LatencyRequest::new(options.cpu_latency.here()), polling.adapts()),
            polling,
            ready: Vec::new(),
            finished: Vec::new(),
            not_send: PhantomData,
        })
    }

    /// Returns the backend in use: [`Ring::Uring`] or [`Ring::Plain`].
    pub fn ring(&self) -> Ring {
        match self.backend {
            Backend::Uring(_) => Ring::Uring,
            Backend::Plain(_) => Ring::Plain,
        }
    }

    /// Returns the time since the reactor was created. Cost: about twenty nanoseconds.
    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// Starts a device command; it ends in exactly one [`Event::Io`].
    ///
    /// Files in memory are read and written at once, since a ring would only add its own cost. Another thread
    /// copies long writes to them if the client would otherwise wait until this thread receives again.
    ///
    /// A command outside its device ends with [`IoError::Short`], one that is not a whole number of the
    /// device's sectors with `EINVAL`.
    pub fn start(&mut self, io: Io) {
        if let Some(result) = self.disks.read_tail(&io, &self.region) {
            return self.ready.push(Event::Io(IoCompletion { id: io.id, result }));
        }
        self.disks.pace(&io, || Nanos(self.origin.elapsed().as_nanos() as u64));
        match self.disks.begin(&io, &self.region, self.sockets.sender_blocks()) {
            StartResult::Never | StartResult::Waiting => {}
            StartResult::Submit(op) => self.backend.start(op, &self.region, &self.disks),
            StartResult::Done(result) => {
                let ended = self.disks.handle_completion(io.device, IoCompletion { id: io.id, result });
                self.ready.extend(ended.map(Event::Io));
            }
        }
    }

    /// Returns the open device with this id.
    pub fn device(&self, id: DeviceId) -> Option<&crate::Device> {
        self.disks.device(id)
    }

    /// Returns how well a paced device has kept to its model; `None` if it is not paced.
    pub fn pace_stats(&self, device: DeviceId) -> Option<PaceStats> {
        self.disks.pace_stats(device)
    }

    /// Listens for clients.
    ///
    /// # Errors
    /// [`DeviceError::SocketInUse`] if a server answers there already; others if the address is unavailable.
    /// A dead server's socket file is replaced.
    pub fn listen(&mut self, at: &Listen) -> Result<ListenerId, DeviceError> {
        let id = self.sockets.listen(at)?;
        let ready = self.backend.add_listener(id, &self.sockets);
        ready.map_err(|source| DeviceError::Setup { what: "listening", source })?;
        Ok(id)
    }

    /// Returns the address of a TCP listener, with the actual port if it was created with port 0.
    pub fn address(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.sockets.address(listener)
    }

    /// Stops accepting clients on all listeners and removes the socket files. Connections stay open.
    pub fn stop_listening(&mut self) {
        self.backend.stop_listening(&self.sockets);
        self.sockets.stop_listening();
    }

    /// Receives into the buffers, in order; ends in [`Event::Received`]. At most 1024 buffers, none of them
    /// empty. The call is ignored once the connection is being closed.
    ///
    /// # Panics
    /// Panics if a receive is in flight on the connection.
    pub fn recv(&mut self, conn: ConnId, into: &[Buffer], fill: ReceiveMode) {
        if self.sockets.begin_recv(conn, into, fill, &self.region) {
            self.backend.transfer(conn, Direction::In, &mut self.sockets);
        }
    }

    /// Cancels the receive in flight, if there is one: its [`Event::Received`] then comes soon, with the
    /// bytes that arrived just before, or `ECANCELED`.
    pub fn cancel_recv(&mut self, conn: ConnId) {
        if self.sockets.is_receiving(conn) {
            let events = &mut self.ready;
            self.backend.cancel_recv(conn, &mut self.sockets, &self.region, events);
        }
    }

    /// Sets whether clients are accepted: one at each listener per [`wait`](Self::wait), or none from now on
    /// (except one at each listener that is already being accepted). The others stay in the listeners'
    /// queues.
    pub fn set_accepting(&mut self, accepting: bool) {
        self.backend.set_accepting(accepting, &self.sockets);
    }

    /// Sends all bytes of the buffers, in order; ends in [`Event::Sent`]. The call is ignored once the
    /// connection is being closed.
    ///
    /// Bytes that the socket takes at once are sent at once.
    ///
    /// # Panics
    /// Panics if a send is in flight on the connection.
    pub fn send(&mut self, conn: ConnId, parts: &[Buffer]) {
        if self.sockets.begin_send(conn, parts, &self.region)
            && self.sockets.send_now(conn, &self.region, &mut self.ready)
        {
            self.backend.transfer(conn, Direction::Out, &mut self.sockets);
        }
    }

    /// Closes a connection, whatever is in flight on it. No more [`Event::Received`] or [`Event::Sent`] is
    /// reported for it (except those that a `wait` has already returned), and [`Event::Closed`] follows once
    /// its buffers are free. Closing twice has no effect.
    pub fn close(&mut self, conn: ConnId) {
        if self.sockets.begin_close(conn, &mut self.ready) {
            self.backend.cancel(conn);
        }
    }

    /// Appends those of `conns` whose peer has closed its end, or is gone, whether or not everything it had
    /// sent was received. Cost: one system call.
    pub fn hung_up(&self, conns: &[ConnId], gone: &mut Vec<ConnId>) {
        self.sockets.hung_up(conns, gone);
    }

    /// Returns a handle with which other threads end [`Reactor::wait`].
    pub fn waker(&self) -> Waker {
        self.signals.waker()
    }

    /// Submits started commands and waits until an event occurs or `deadline` has passed (`None`: without
    /// limit). Appends the events to `events`; returns the time.
    ///
    /// It may return early without an event. Its precision is about ten microseconds.
    pub fn wait(&mut self, deadline: Option<Nanos>, events: &mut Vec<Event>) -> Nanos {
        let before = events.len();
        loop {
            events.append(&mut self.ready);
            let due = self.disks.due();
            let now = self.now();
            if due.is_some_and(|due| due <= now) {
                self.disks.release(now, events);
            }
            let has = events.len() > before;
            let is_due = deadline.is_some_and(|at| at <= now);
            // A caller that has more work also gets new arrivals, each time: events that need no ring (sends
            // that the socket took at once) must not keep the reactor from polling the ring, where other
            // clients' bytes arrive and device commands leave.
            if has && !is_due && self.backend.can_defer() {
                return now;
            }
            match sleep_until(now, deadline, self.disks.due()) {
                _ if has => self.turn(Sleep::No, events),
                _ if is_due => {
                    self.turn(Sleep::No, events);
                    return now;
                }
                Sleep::No if !self.backend.has_pending_work() => std::hint::spin_loop(),
                sleep => self.poll_or_sleep(now, sleep, events),
            }
            if events.len() > before {
                return self.now();
            }
        }
    }

    /// Records the number of requests that the caller has answered since the last [`wait`](Self::wait).
    /// Without this the reactor polls as if clients waited for each answer, and never stays awake.
    pub fn record_answers(&mut self, answered: usize) {
        self.polling.record_answers(answered);
        self.awake.record_answers(answered);
    }

    /// Returns how long to poll before a sleep that begins now: not at all while another thread copies a long
    /// write, which needs the processor.
    fn polling_time(&self, now: Nanos) -> Nanos {
        if !self.backend.may_poll() || self.disks.has_offloaded() {
            Nanos(0)
        } else if self.awake.is_awake() {
            self.polling.time_awake(now)
        } else {
            self.polling.time(now)
        }
    }

    /// Polls for events for a while, then sleeps.
    fn poll_or_sleep(&mut self, now: Nanos, sleep: Sleep, events: &mut Vec<Event>) {
        let before = events.len();
        self.awake.begin_wait(now, self.disks.is_busy());
        if self.disks.has_offloaded() {
            self.polling.record_pipelining();
        }
        let polled = sleep.at_most(self.polling_time(now));
        if polled > Nanos(0) {
            self.polling.record_polling();
            let end = now + polled;
            // Started commands are submitted first.
            self.turn(Sleep::No, events);
            while events.len() == before && self.now() < end {
                if self.backend.has_pending_work() {
                    self.turn(Sleep::No, events);
                } else {
                    std::hint::spin_loop();
                }
            }
        }
        if events.len() == before {
            let idle_at = self.awake.idle_at();
            let (so_far, rest) = (self.now(), sleep.after(self.now() - now));
            self.turn(idle_at.map_or(rest, |at| rest.shortened(at.since(so_far))), events);
            if events.len() == before && idle_at.is_some_and(|at| self.now() >= at) {
                self.awake.sleep();
                self.turn(sleep.after(self.now() - now), events);
            }
        }
        let has_event = events.len() > before;
        let ended = self.now();
        self.awake.end_wait(ended);
        self.polling.record_wait(ended, ended - now, has_event, polling::scheduler_stats);
    }

    /// Runs one round of the backend.
    fn turn(&mut self, sleep: Sleep, events: &mut Vec<Event>) {
        let world = TurnContext {
            region: &self.region,
            disks: &self.disks,
            sockets: &mut self.sockets,
            finished: &mut self.finished,
            events,
        };
        self.backend.turn(sleep, world, &self.signals);
        for finished in self.finished.drain(..) {
            self.disks.handle_finished(finished, &self.region, events);
        }
    }
}

/// Returns how long to sleep if the caller waits until `deadline` and a paced command is due at `due`.
fn sleep_until(now: Nanos, deadline: Option<Nanos>, due: Option<Nanos>) -> Sleep {
    let sleep = due.map(|due| {
        let left = due - now;
        left - Nanos(left.0 / 16).clamp(WAKE_MARGIN_MIN, WAKE_MARGIN_MAX)
    });
    match deadline.map(|at| at - now).into_iter().chain(sleep).min() {
        None => Sleep::Forever,
        Some(Nanos(0)) => Sleep::No,
        Some(time) => Sleep::For(time),
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.awake.sleep();
        self.stop_listening();
        for conn in self.sockets.ids() {
            self.close(conn);
        }
        self.backend.stop();
        let end = self.now() + DROP_TIMEOUT;
        let mut events = Vec::new();
        while !(self.backend.is_idle() && self.sockets.are_idle()) {
            let left = end.since(self.now());
            if left == Nanos(0) {
                tracing::error!("the kernel still holds buffers; leaving them to it");
                std::mem::forget(std::mem::take(&mut self.sockets));
                self.backend.leak(&self.region);
                return;
            }
            self.turn(Sleep::For(left), &mut events);
            events.clear();
        }
        self.backend.release();
    }
}
