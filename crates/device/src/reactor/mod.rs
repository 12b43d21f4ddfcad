//! One thread's view of the outside: device commands, sockets, timers, signals.
//!
//! Whoever drives the engine calls [`Reactor::wait`] in a loop, hands each [`Event`] to whom it
//! concerns, and starts what they ask for. Nothing blocks but `wait`; what was started since is
//! submitted there, all in one system call.

mod backend;
mod disk;
mod listen;
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

use weir_model::{Buffer, ConnId, DeviceId, Fill, Io, IoDone, IoError, Nanos, Peer};

use crate::arena::Region;
use crate::pace::PaceStats;
use crate::{Arena, DeviceError, Devices};
use backend::{Backend, Finished, Sleep, World};
use disk::{Begun, Disks};
pub use listen::process_behind;
pub use polling::Poll;
use polling::Polling;
use signal::Signals;
pub use signal::Waker;
pub use socket::{Listen, ListenerId, SocketAccess};
use socket::{Sockets, Way};

/// Turns of a backend that may be skipped while there is other work, before what was started
/// must go out.
const SKIPS_MAX: u32 = 4;
/// How long before a paced command is due its sleep ends: a sixteenth of the sleep, within these
/// bounds. Waking takes some 5 microseconds after a short sleep and 100 after a long one, when
/// the processor sleeps deeper; what is left is slept again, and the last of it spun away.
const WAKING_MIN: Nanos = Nanos::micros(15);
const WAKING_MAX: Nanos = Nanos::micros(120);
/// How long a reactor that is dropped waits for the kernel to let go of its buffers.
const LAST_WAIT: Nanos = Nanos::secs(10);

/// How a reactor is made. `Default` is what a server wants.
#[derive(Clone, Debug)]
pub struct ReactorOptions {
    /// What to run on.
    pub ring: Ring,
    /// Commands submitted at once at most; a power of two. More wait their turn, none is lost.
    pub depth: u32,
    /// Register the buffer memory with the ring: spares the kernel finding its pages at every
    /// direct transfer. Needs as much locked memory as the arena has (`ulimit -l`); goes on
    /// without where that is refused.
    pub fixed_buffers: bool,
    /// Report SIGTERM and SIGINT as [`Event::Stop`]. The process no longer dies of them, not even
    /// when the reactor is gone.
    pub signals: bool,
    /// Threads for device commands on the plain ring.
    pub workers: usize,
    /// How long to look for events before sleeping. The plain ring always sleeps at once.
    pub poll: Poll,
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
        }
    }
}

/// What the reactor runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ring {
    /// io_uring, or the plain ring where that is refused; the log says which and why.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// `poll` for sockets, threads for devices.
    Plain,
}

/// Something happened.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A device command ended.
    Io(IoDone),
    /// A client connected.
    Accepted {
        /// Where.
        listener: ListenerId,
        /// The connection.
        conn: ConnId,
        /// Who it is.
        peer: Peer,
    },
    /// A receive ended; its buffers are the caller's again.
    Received {
        /// The connection.
        conn: ConnId,
        /// Bytes received. Fewer than there was room for if so asked ([`Fill::Some`]) or at the
        /// end of the stream; zero only at the end of the stream.
        result: Result<usize, IoError>,
    },
    /// A send ended: all of it was handed to the kernel, or the connection failed. Its buffers
    /// are the caller's again.
    Sent {
        /// The connection.
        conn: ConnId,
        /// Whether all was sent.
        result: Result<(), IoError>,
    },
    /// The connection is gone and the kernel is done with its buffers. Comes exactly once after
    /// [`Reactor::close`], and is the last event that names the connection.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// SIGTERM or SIGINT arrived.
    Stop,
    /// [`Waker::wake`] was called, once or more often.
    Woken,
}

/// Devices, sockets and timers on one thread.
///
/// Buffers named in [`Reactor::start`], [`Reactor::recv`] and [`Reactor::send`] belong to the
/// kernel until the event that ends the command: touching them meanwhile (through
/// [`weir_model::Memory`]) panics in debug builds and reads or writes garbage in others.
///
/// Stays on the thread that made it. Dropping it cancels what is in flight and waits for the
/// kernel to let go of the buffers.
#[derive(Debug)]
pub struct Reactor {
    origin: Instant,
    region: Region,
    disks: Disks,
    sockets: Sockets,
    signals: Signals,
    backend: Backend,
    polling: Polling,
    /// Ended without the kernel's ring: reported by the next `wait`.
    ready: Vec<Event>,
    finished: Vec<Finished>,
    here: PhantomData<*const ()>,
}

impl Reactor {
    /// A reactor over these devices and this buffer memory, for the calling thread.
    ///
    /// # Errors
    /// [`DeviceError::Ring`] if io_uring was demanded and is refused, [`DeviceError::Setup`] if
    /// something else is missing (open files, memory).
    pub fn new(options: &ReactorOptions, devices: Devices, arena: &Arena) -> Result<Self, DeviceError> {
        // Sleeps end within about a microsecond of their time instead of fifty.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let signals = Signals::new(options.signals)?;
        let region = arena.region().clone();
        let disks = Disks::new(devices);
        let backend = Backend::new(options, &disks.files(), &region, &signals)?;
        Ok(Self {
            origin: Instant::now(),
            region,
            disks,
            sockets: Sockets::default(),
            signals,
            backend,
            polling: Polling::new(options.poll),
            ready: Vec::new(),
            finished: Vec::new(),
            here: PhantomData,
        })
    }

    /// Which ring it runs on: [`Ring::Uring`] or [`Ring::Plain`].
    pub fn ring(&self) -> Ring {
        match self.backend {
            Backend::Uring(_) => Ring::Uring,
            Backend::Plain(_) => Ring::Plain,
        }
    }

    /// Time since the reactor was made. Costs some twenty nanoseconds.
    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// Starts a device command; ends in exactly one [`Event::Io`].
    ///
    /// Files in memory are read and written here and now: for these a ring only adds its own cost. But long
    /// writes to them are copied by another thread.
    ///
    /// A command outside its device ends with [`IoError::Short`], one that is not a whole number of the
    /// device's sectors with `EINVAL`.
    pub fn start(&mut self, io: Io) {
        if let Some(result) = self.disks.read_tail(&io, &self.region) {
            return self.ready.push(Event::Io(IoDone { id: io.id, result }));
        }
        self.disks.pace(&io, || Nanos(self.origin.elapsed().as_nanos() as u64));
        match self.disks.begin(&io, &self.region) {
            Begun::Never => {}
            Begun::Submit(op) => self.backend.start(op, &self.region, &self.disks),
            Begun::Done(result) => {
                let ended = self.disks.ended(io.device, IoDone { id: io.id, result });
                self.ready.extend(ended.map(Event::Io));
            }
        }
    }

    /// The open device with this id.
    pub fn device(&self, id: DeviceId) -> Option<&crate::Device> {
        self.disks.device(id)
    }

    /// How well a paced device kept to its model so far; `None` if it is not paced.
    pub fn pace_stats(&self, device: DeviceId) -> Option<PaceStats> {
        self.disks.pace_stats(device)
    }

    /// Listens for clients.
    ///
    /// # Errors
    /// [`DeviceError::SocketInUse`] if somebody answers there already; others if the address
    /// cannot be had. A dead server's socket file is replaced.
    pub fn listen(&mut self, at: &Listen) -> Result<ListenerId, DeviceError> {
        let id = self.sockets.listen(at)?;
        let ready = self.backend.listening(id, &self.sockets);
        ready.map_err(|source| DeviceError::Setup { what: "listening", source })?;
        Ok(id)
    }

    /// The address a TCP listener has: the port found if it was asked for port 0.
    pub fn address(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.sockets.address(listener)
    }

    /// Accepts no more clients anywhere and removes the socket files. Connections stay.
    pub fn stop_listening(&mut self) {
        self.backend.stop_listening(&self.sockets);
        self.sockets.stop_listening();
    }

    /// Receives into the buffers, in turn; ends in [`Event::Received`]. One receive at a time
    /// per connection. At most 1024 buffers, none of them empty. Ignored once the connection is
    /// being closed.
    ///
    /// # Panics
    /// If one is in flight.
    pub fn recv(&mut self, conn: ConnId, into: &[Buffer], fill: Fill) {
        if self.sockets.begin_recv(conn, into, fill, &self.region) {
            self.backend.transfer(conn, Way::In, &mut self.sockets);
        }
    }

    /// Ends a receive in flight, if there is one: its [`Event::Received`] then comes soon, with what arrived
    /// just now, or `ECANCELED`.
    pub fn cancel_recv(&mut self, conn: ConnId) {
        if self.sockets.is_receiving(conn) {
            let events = &mut self.ready;
            self.backend.cancel_recv(conn, &mut self.sockets, &self.region, events);
        }
    }

    /// Whether clients are accepted: one at each listener a [`wait`](Self::wait), or none from now on (but
    /// one at each that is on its way already). The others stay in the listeners' queues.
    pub fn set_accepting(&mut self, accepting: bool) {
        self.backend.set_accepting(accepting, &self.sockets);
    }

    /// Sends the buffers' bytes, all of them, in turn; ends in [`Event::Sent`]. One send at a
    /// time per connection. Ignored once the connection is being closed.
    ///
    /// What the socket takes at once is sent at once.
    ///
    /// # Panics
    /// If one is in flight.
    pub fn send(&mut self, conn: ConnId, parts: &[Buffer]) {
        if self.sockets.begin_send(conn, parts, &self.region)
            && self.sockets.send_now(conn, &self.region, &mut self.ready)
        {
            self.backend.transfer(conn, Way::Out, &mut self.sockets);
        }
    }

    /// Ends a connection, whatever is in flight on it: no more [`Event::Received`] or
    /// [`Event::Sent`] is reported for it (but those a `wait` already returned), and
    /// [`Event::Closed`] once its buffers are free. Closing twice does nothing.
    pub fn close(&mut self, conn: ConnId) {
        if self.sockets.begin_close(conn, &mut self.ready) {
            self.backend.cancel(conn);
        }
    }

    /// Appends those of `conns` whose peer has closed its end, or is gone: whether or not all it had sent was
    /// received. Costs one system call.
    pub fn hung_up(&self, conns: &[ConnId], gone: &mut Vec<ConnId>) {
        self.sockets.hung_up(conns, gone);
    }

    /// A handle with which other threads end [`Reactor::wait`].
    pub fn waker(&self) -> Waker {
        self.signals.waker()
    }

    /// Submits what was started and waits until something happens or `deadline` has come
    /// (`None`: for as long as it takes). Appends what happened to `events`; returns the time.
    ///
    /// May return early without an event. Precise to some ten microseconds.
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
            // A caller that has more to do is given what has arrived as well, each time: events that need no ring
            // (sends that the socket took at once) must not keep the ring from being looked at. Other clients'
            // bytes arrive there, and device commands leave.
            if has && !is_due && self.backend.can_wait() {
                return now;
            }
            match until(now, deadline, self.disks.due()) {
                _ if has => self.turn(Sleep::No, events),
                _ if is_due => {
                    self.turn(Sleep::No, events);
                    return now;
                }
                Sleep::No if !self.backend.has_news() => std::hint::spin_loop(),
                sleep => self.poll_or_sleep(now, sleep, events),
            }
            if events.len() > before {
                return self.now();
            }
        }
    }

    /// Looks for events for a while, then sleeps.
    fn poll_or_sleep(&mut self, now: Nanos, sleep: Sleep, events: &mut Vec<Event>) {
        let before = events.len();
        let polled = sleep.at_most(self.polling.time(now));
        if polled > Nanos(0) && self.backend.may_poll() && !self.disks.has_offloaded() {
            let end = now + polled;
            // What was started leaves first.
            self.turn(Sleep::No, events);
            while events.len() == before && self.now() < end {
                if self.backend.has_news() {
                    self.turn(Sleep::No, events);
                } else {
                    std::hint::spin_loop();
                }
            }
        }
        if events.len() == before {
            self.turn(sleep.after(self.now() - now), events);
        }
        let has_event = events.len() > before;
        let ended = self.now();
        self.polling.waited(ended, ended - now, has_event, polling::scheduled);
    }

    /// One round of the backend.
    fn turn(&mut self, sleep: Sleep, events: &mut Vec<Event>) {
        let world = World {
            region: &self.region,
            disks: &self.disks,
            sockets: &mut self.sockets,
            finished: &mut self.finished,
            events,
        };
        self.backend.turn(sleep, world, &self.signals);
        for finished in self.finished.drain(..) {
            events.extend(self.disks.finished(finished).map(Event::Io));
        }
    }
}

/// How long to sleep for a caller who waits until `deadline` and a paced command due at `due`.
fn until(now: Nanos, deadline: Option<Nanos>, due: Option<Nanos>) -> Sleep {
    let sleep = due.map(|due| {
        let left = due - now;
        left - Nanos(left.0 / 16).clamp(WAKING_MIN, WAKING_MAX)
    });
    match deadline.map(|at| at - now).into_iter().chain(sleep).min() {
        None => Sleep::Forever,
        Some(Nanos(0)) => Sleep::No,
        Some(time) => Sleep::For(time),
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.stop_listening();
        for conn in self.sockets.ids() {
            self.close(conn);
        }
        self.backend.stop();
        let end = self.now() + LAST_WAIT;
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
