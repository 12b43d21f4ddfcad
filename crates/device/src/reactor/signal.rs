//! Waking the reactor from outside: from other threads, and by the signals that request a stop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::Event;
use crate::DeviceError;

/// Ends a reactor's wait from another thread. It is cheap to clone and never blocks.
#[derive(Clone, Debug)]
pub struct Waker {
    counter: Arc<OwnedFd>,
}

impl Waker {
    /// Makes the reactor report [`Event::Woken`]; several calls may become one event.
    pub fn wake(&self) {
        // The only possible failure is a full counter, which wakes as well.
        let _ = rustix::io::write(&*self.counter, &1u64.to_ne_bytes());
    }
}

/// Receives wakes and signals.
#[derive(Debug)]
pub(super) struct Signals {
    waker: Waker,
    /// The reactor's end of the socket pair that the signal handlers write to.
    stop: Option<UnixStream>,
    handlers: Vec<SigId>,
}

/// A source of wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeSource {
    /// Another thread called [`Waker::wake`].
    Wake,
    /// A signal arrived.
    Stop,
}

impl WakeSource {
    pub(super) const ALL: [Self; 2] = [Self::Wake, Self::Stop];

    pub(super) fn event(self) -> Event {
        match self {
            Self::Wake => Event::Woken,
            Self::Stop => Event::Stop,
        }
    }
}

impl Signals {
    pub(super) fn new(catch: bool) -> Result<Self, DeviceError> {
        let setup = |source| DeviceError::Setup { what: "signal handling", source };
        let counter = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| setup(e.into()))?;
        let mut signals =
            Self { waker: Waker { counter: Arc::new(counter) }, stop: None, handlers: Vec::new() };
        if catch {
            signals.catch().map_err(setup)?;
        }
        Ok(signals)
    }

    fn catch(&mut self) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            self.handlers.push(signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?);
        }
        self.stop = Some(ours);
        Ok(())
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns the descriptor to watch; it is readable when the bell rings.
    pub(super) fn source(&self, bell: WakeSource) -> Option<RawFd> {
        match bell {
            WakeSource::Wake => Some(self.waker.counter.as_fd().as_raw_fd()),
            WakeSource::Stop => self.stop.as_ref().map(AsRawFd::as_raw_fd),
        }
    }
}

impl Signals {
    /// Consumes a bell's bytes after it rang, so that it can ring again.
    pub(super) fn drain(&self, bell: WakeSource) {
        let mut bytes = [0u8; 16];
        let _ = match (bell, &self.stop) {
            (WakeSource::Stop, Some(stop)) => rustix::io::read(stop, &mut bytes),
            _ => rustix::io::read(&*self.waker.counter, &mut bytes),
        };
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            signal_hook::low_level::unregister(handler);
        }
    }
}
