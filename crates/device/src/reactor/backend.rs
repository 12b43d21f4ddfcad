//! The backends of a reactor, behind one interface.

use std::io;
use std::os::fd::RawFd;

use weir_model::{Buffer, ConnId, DeviceId, IoError, IoId, Nanos};

use super::disk::Disks;
use super::plain::Plain;
use super::signal::Signals;
use super::socket::{Direction, ListenerId, Sockets};
use super::uring::Uring;
use super::{Event, ReactorOptions, Ring};
use crate::DeviceError;
use crate::arena::Region;

/// The ring in use.
#[derive(Debug)]
pub(super) enum Backend {
    Uring(Box<Uring>),
    Plain(Box<Plain>),
}

/// A device command in a backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileOp {
    pub(super) id: IoId,
    pub(super) device: DeviceId,
    pub(super) action: Action,
    pub(super) at: u64,
    pub(super) buffer: Buffer,
    /// Number of bytes already moved.
    pub(super) transferred: u32,
    /// True if another thread executes it, because there is no device to wait for and it takes long.
    pub(super) is_offloaded: bool,
}

/// Operation on the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write { durable: bool },
    Sync,
}

/// A device command that a backend has completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    pub(super) op: FileOp,
    pub(super) result: Result<(), IoError>,
}

/// How long a backend may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// Not at all: poll and return.
    No,
    /// At most this long.
    For(Nanos),
    /// Until an event occurs.
    Forever,
}

impl Sleep {
    /// Returns the smaller of `time` and the sleep.
    pub(super) fn at_most(self, time: Nanos) -> Nanos {
        match self {
            Self::No => Nanos(0),
            Self::For(most) => time.min(most),
            Self::Forever => time,
        }
    }

    /// Returns the sleep, but of no more than `time`.
    pub(super) fn shortened(self, time: Nanos) -> Self {
        match self.at_most(time) {
            Nanos(0) => Self::No,
            time => Self::For(time),
        }
    }

    /// Returns the rest of the sleep after `time`.
    pub(super) fn after(self, time: Nanos) -> Self {
        match self {
            Self::For(most) if time >= most => Self::No,
            Self::For(most) => Self::For(most - time),
            other => other,
        }
    }
}

/// Objects that a backend works on in a turn.
pub(super) struct TurnContext<'a> {
    pub(super) region: &'a Region,
    pub(super) disks: &'a Disks,
    pub(super) sockets: &'a mut Sockets,
    pub(super) finished: &'a mut Vec<Finished>,
    pub(super) events: &'a mut Vec<Event>,
}

impl Backend {
    /// Creates the requested ring, or the one that is available.
    pub(super) fn new(
        options: &ReactorOptions,
        files: &[Option<RawFd>],
        region: &Region,
        signals: &Signals,
    ) -> Result<Self, DeviceError> {
        let plain = |why: &str| {
            tracing::info!(why, workers = options.workers, "running on the plain ring (poll and threads)");
            let plain = Plain::new(options.workers, region);
            plain
                .map(|plain| Self::Plain(Box::new(plain)))
                .map_err(|source| DeviceError::Setup { what: "the plain ring", source })
        };
        if options.ring == Ring::Plain {
            return plain("asked for");
        }
        match Uring::new(options, files, region, signals) {
            Ok(ring) => Ok(Self::Uring(Box::new(ring))),
            Err(source) if options.ring == Ring::Uring => Err(DeviceError::Ring { source }),
            Err(e) => plain(&format!("io_uring is refused: {e}")),
        }
    }

    /// Reports whether started commands can be submitted in a later turn.
    pub(super) fn can_defer(&mut self) -> bool {
        match self {
            Self::Uring(ring) => ring.can_defer(),
            Self::Plain(plain) => plain.can_defer(),
        }
    }

    /// Reports whether a turn could find or submit anything. It is cheap enough for spinning.
    pub(super) fn has_pending_work(&mut self) -> bool {
        match self {
            Self::Uring(ring) => ring.has_pending_work(),
            Self::Plain(_) => true,
        }
    }

    /// Reports whether polling for events takes no system call.
    pub(super) const fn may_poll(&self) -> bool {
        matches!(self, Self::Uring(_))
    }

    pub(super) fn start(&mut self, op: FileOp, region: &Region, disks: &Disks) {
        match self {
            Self::Uring(ring) => ring.start(op, region),
            Self::Plain(plain) => plain.start(op, disks),
        }
    }

    pub(super) fn add_listener(&mut self, id: ListenerId, sockets: &Sockets) -> io::Result<()> {
        match self {
            Self::Uring(ring) => {
                ring.add_listener(id, sockets);
                Ok(())
            }
            Self::Plain(plain) => plain.add_listener(id, sockets),
        }
    }

    pub(super) fn stop_listening(&mut self, sockets: &Sockets) {
        match self {
            Self::Uring(ring) => ring.stop_listening(sockets),
            // It looks at the list of listeners at every turn.
            Self::Plain(_) => {}
        }
    }

    /// Starts or continues a receive or send.
    pub(super) fn transfer(&mut self, conn: ConnId, way: Direction, sockets: &mut Sockets) {
        match self {
            Self::Uring(ring) => ring.transfer(conn.index() as u32, way, sockets),
            Self::Plain(plain) => plain.transfer(),
        }
    }

    /// Ends what is in flight on a connection whose socket has been shut down.
    pub(super) fn cancel(&mut self, conn: ConnId) {
        match self {
            Self::Uring(ring) => ring.cancel(conn),
            Self::Plain(plain) => plain.transfer(),
        }
    }

    /// Cancels a receive in flight.
    pub(super) fn cancel_recv(
        &mut self,
        conn: ConnId,
        sockets: &mut Sockets,
        region: &Region,
        events: &mut Vec<Event>,
    ) {
        match self {
            Self::Uring(ring) => ring.cancel_recv(conn),
            Self::Plain(_) => {
                sockets.handle_transfer(conn.index() as u32, Direction::In, -libc::ECANCELED, region, events);
            }
        }
    }

    /// Sets whether listeners accept.
    pub(super) fn set_accepting(&mut self, accepting: bool, sockets: &Sockets) {
        match self {
            Self::Uring(ring) => ring.set_accepting(accepting, sockets),
            Self::Plain(plain) => plain.set_accepting(accepting),
        }
    }

    /// Submits, sleeps if it may and nothing has completed yet, and reaps completions.
    pub(super) fn turn(&mut self, sleep: Sleep, world: TurnContext<'_>, signals: &Signals) {
        match self {
            Self::Uring(ring) => ring.turn(sleep, world),
            Self::Plain(plain) => plain.turn(sleep, world, signals),
        }
    }

    /// Ends commands that never end by themselves, once listening has ended and connections are closed.
    pub(super) fn stop(&mut self) {
        match self {
            Self::Uring(ring) => ring.stop(),
            Self::Plain(_) => {}
        }
    }

    /// Releases the devices' files once nothing is in flight.
    pub(super) fn release(&mut self) {
        match self {
            Self::Uring(ring) => ring.release(),
            Self::Plain(_) => {}
        }
    }

    /// Gives up on what is in flight: memory that the kernel may still access is never freed.
    pub(super) fn leak(&mut self, region: &Region) {
        match self {
            Self::Uring(ring) => ring.leak(region),
            // Its threads are joined, and share ownership of the region.
            Self::Plain(_) => {}
        }
    }

    /// Reports whether the kernel (or a worker) has completed every command.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Uring(ring) => ring.is_idle(),
            Self::Plain(plain) => plain.is_idle(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_is_part_of_a_sleep() {
        let (short, long) = (Nanos::micros(50), Nanos::millis(10));
        let sleep = Sleep::For(Nanos::millis(1));
        assert_eq!([sleep.at_most(short), sleep.at_most(long)], [short, Nanos::millis(1)]);
        assert_eq!(sleep.after(short), Sleep::For(Nanos::micros(950)));
        assert_eq!([sleep.after(Nanos::millis(1)), sleep.after(long)], [Sleep::No; 2]);
        assert_eq!((Sleep::Forever.at_most(long), Sleep::Forever.after(long)), (long, Sleep::Forever));
        assert_eq!((Sleep::No.at_most(long), Sleep::No.after(short)), (Nanos(0), Sleep::No));
        let shortened = [sleep, Sleep::Forever, Sleep::No].map(|sleep| sleep.shortened(short));
        assert_eq!(shortened, [Sleep::For(short), Sleep::For(short), Sleep::No]);
        assert_eq!((sleep.shortened(long), sleep.shortened(Nanos(0))), (sleep, Sleep::No));
    }
}
