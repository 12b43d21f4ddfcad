//! The backend without io_uring: `poll` for sockets, a few threads for devices.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::pollfd;
use weir_model::Nanos;

use super::backend::{FileOp, Finished, Sleep, TurnContext};
use super::disk::{Disks, TransferStep, lent};
use super::signal::{Signals, WakeSource};
use super::socket::{Direction, ListenerId, Sockets};
use super::workers::Workers;
use crate::arena::Region;

/// Delay before accepting is retried after it failed for lack of a resource.
const ACCEPT_PAUSE: Nanos = Nanos::millis(100);

/// The backend of `poll` and threads.
#[derive(Debug)]
pub(super) struct Plain {
    workers: Workers,
    /// Descriptors to poll, and the source of each.
    polled: Vec<pollfd>,
    sources: Vec<Source>,
    /// True if transfers were begun since the last turn: they are tried before sleeping.
    has_new_transfers: bool,
    skipped: u32,
    /// True after accepting has failed: listeners are left out until the pause is over.
    pause_accepting: bool,
    accepting: bool,
}

/// Source of a polled descriptor.
#[derive(Clone, Copy, Debug)]
enum Source {
    Workers,
    Wake(WakeSource),
    Listener(ListenerId),
    Conn(u32),
}

impl Plain {
    pub(super) fn new(workers: usize, region: &Region) -> io::Result<Self> {
        Ok(Self {
            workers: Workers::new(workers.clamp(1, 64), region)?,
            polled: Vec::new(),
            sources: Vec::new(),
            has_new_transfers: false,
            skipped: 0,
            pause_accepting: false,
            accepting: true,
        })
    }

    /// Reports whether sockets can wait for a later turn.
    pub(super) fn can_defer(&mut self) -> bool {
        self.skipped += 1;
        self.skipped <= super::SKIPS_MAX
    }

    pub(super) fn start(&mut self, op: FileOp, disks: &Disks) {
        self.workers.start(op, disks.file(op.device));
    }

    /// Prepares a listener. It is non-blocking, so that a client that disconnects before it is accepted does
    /// not make accepting block.
    pub(super) fn add_listener(&mut self, id: ListenerId, sockets: &Sockets) -> io::Result<()> {
        match sockets.listener(id) {
            Some(listener) => Ok(rustix::io::ioctl_fionbio(listener.socket(), true)?),
            None => Ok(()),
        }
    }

    /// Sets whether listeners accept.
    pub(super) fn set_accepting(&mut self, accepting: bool) {
        self.accepting = accepting;
    }

    /// Notes that a transfer has begun.
    pub(super) fn transfer(&mut self) {
        self.has_new_transfers = true;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.workers.is_idle()
    }

    /// Tries new transfers, sleeps if it may, and executes what has become possible.
    pub(super) fn turn(&mut self, sleep: Sleep, mut world: TurnContext<'_>, signals: &Signals) {
        self.skipped = 0;
        let before = world.events.len();
        if std::mem::take(&mut self.has_new_transfers) {
            let all: Vec<u32> = world.sockets.all().map(|(index, _)| index).collect();
            all.into_iter().for_each(|index| transfer_both_ways(index, &mut world));
        }
        let sleep = if world.events.len() > before { Sleep::No } else { sleep };
        self.collect_descriptors(world.sockets, signals);
        if self.poll(sleep) == 0 {
            return;
        }
        for at in 0..self.polled.len() {
            if self.polled[at].revents != 0 {
                self.handle_ready(self.sources[at], &mut world, signals);
            }
        }
    }

    /// Collects the descriptors to poll.
    fn collect_descriptors(&mut self, sockets: &Sockets, signals: &Signals) {
        self.polled.clear();
        self.sources.clear();
        self.watch(Source::Workers, self.workers.completion_event(), libc::POLLIN);
        for bell in WakeSource::ALL {
            if let Some(source) = signals.source(bell) {
                self.watch(Source::Wake(bell), source, libc::POLLIN);
            }
        }
        if self.accepting && !self.pause_accepting {
            for (id, socket) in sockets.listeners() {
                self.watch(Source::Listener(id), socket, libc::POLLIN);
            }
        }
        for (index, conn) in sockets.all() {
            let events = [(conn.recv.is_active(), libc::POLLIN), (conn.send.is_active(), libc::POLLOUT)];
            let events = events.into_iter().filter(|e| e.0).fold(0, |all, e| all | e.1);
            if events != 0 {
                self.watch(Source::Conn(index), conn.socket.as_raw_fd(), events);
            }
        }
    }

    fn watch(&mut self, source: Source, fd: RawFd, events: i16) {
        self.polled.push(pollfd { fd, events, revents: 0 });
        self.sources.push(source);
    }

    /// Polls; returns the number of ready descriptors.
    fn poll(&mut self, sleep: Sleep) -> i32 {
        let sleep = match sleep {
            Sleep::Forever if self.pause_accepting => Sleep::For(ACCEPT_PAUSE),
            Sleep::For(time) if self.pause_accepting => Sleep::For(time.min(ACCEPT_PAUSE)),
            other => other,
        };
        self.pause_accepting = false;
        let time = match sleep {
            Sleep::No => Some(Nanos(0)),
            Sleep::For(time) => Some(time),
            Sleep::Forever => None,
        };
        let time = time.map(|t| libc::timespec {
            tv_sec: (t.0 / 1_000_000_000) as _,
            tv_nsec: (t.0 % 1_000_000_000) as _,
        });
        let limit = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array holds as many entries as said and the time outlives the call.
        unsafe { libc::ppoll(self.polled.as_mut_ptr(), self.polled.len() as _, limit, std::ptr::null()) }
    }

    fn handle_ready(&mut self, source: Source, world: &mut TurnContext<'_>, signals: &Signals) {
        match source {
            Source::Workers => self.collect(world),
            Source::Conn(index) => transfer_both_ways(index, world),
            Source::Listener(id) => self.accept(id, world),
            Source::Wake(bell) => {
                signals.drain(bell);
                world.events.push(bell.event());
            }
        }
    }

    fn collect(&mut self, world: &mut TurnContext<'_>) {
        for (mut op, answer) in self.workers.collect() {
            match op.step(answer) {
                TransferStep::Continue => self.workers.start(op, world.disks.file(op.device)),
                TransferStep::Complete(result) => {
                    world.region.returned(op.buffer, lent(op.action));
                    world.finished.push(Finished { op, result });
                }
            }
        }
    }

    fn accept(&mut self, id: ListenerId, world: &mut TurnContext<'_>) {
        let Some(listener) = world.sockets.listener(id) else { return };
        let listening = listener.socket().as_raw_fd();
        // SAFETY: no address is asked for.
        let client = unsafe {
            libc::accept4(listening, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC)
        };
        if client >= 0 {
            // SAFETY: a fresh descriptor that nobody else has.
            let client = unsafe { OwnedFd::from_raw_fd(client) };
            world.events.extend(world.sockets.accepted(id, client));
            return;
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ECONNABORTED | libc::EINTR)) {
            tracing::warn!(%error, "a client could not be accepted; trying again in a moment");
            self.pause_accepting = true;
        }
    }
}

/// Receives and sends what is possible on a connection.
fn transfer_both_ways(index: u32, world: &mut TurnContext<'_>) {
    for way in [Direction::In, Direction::Out] {
        loop {
            let Some(conn) = world.sockets.by_index(index) else { return };
            let socket = conn.socket.as_fd();
            let answer = match way {
                Direction::In if conn.recv.is_active() => conn.recv.try_recv(socket),
                Direction::Out if conn.send.is_active() => conn.send.try_send(socket),
                _ => break,
            };
            let again = world.sockets.handle_transfer(index, way, answer, world.region, world.events);
            if !again || answer == -libc::EAGAIN {
                break;
            }
        }
    }
}
