//! Which failed commands are tried again.
//!
//! A read can be repeated at will. A write can be repeated in place: its blocks are taken, so nothing else
//! was submitted there, and it covers whatever the failed attempt left; unless a flush of the device failed
//! meanwhile, after which where it was to go may be given up. A flush is never repeated, nor a durable write,
//! whatever the error: the operating system tells of a lost write once, and the repetition would succeed and
//! mean nothing. A durable write that takes two commands ([`crate::DurableWrites::WriteThenFlush`]) is a
//! plain write first, and then a flush.
//!
//! A plain write for which there is no space has done nothing, and nothing else is to be learnt from that. A
//! lack of space that a flush or a durable write reports may be an earlier write's, which the system could
//! not carry out: it counts like any other error.

use crate::core::Core;
use crate::flight::{Flight, Purpose};
use crate::flight::{ReadIo, is_full};
use crate::notice::Notice;
use weir_model::{IoError, IoKind, Mutant};

/// How often a command is tried in all.
const ATTEMPTS: u8 = 3;

impl Core {
    /// Whether nothing more may come of the command: its device is lost, or a flush failed while it was under
    /// way and it is a write. A second defence besides: when a flush fails, the writes in flight fail with it
    /// ([`crate::durability::doubt`]), moves give up their run, and a metadata member is left behind.
    pub(crate) fn is_spoilt(&self, flight: &Flight) -> bool {
        let device = &self.devices[flight.device.index()];
        let doubted = !flight.kind.is_read()
            && device.epochs.is_doubted(flight.generation)
            && !self.is_planted(Mutant::SpoiltSuccessCounts);
        device.is_lost() || doubted
    }

    /// Starts the command again if that is sound and may help; otherwise gives it back.
    pub(crate) fn retried(&mut self, mut flight: Flight, error: IoError) -> Option<Flight> {
        let kind = flight.command();
        let repeatable = matches!(kind, IoKind::Read | IoKind::Write { fua: false })
            || self.is_planted(Mutant::FlushRetried);
        // What is bad may be in a hole, which nobody wants: a drive may take long over it each time.
        let worthwhile = !matches!(flight.purpose, Purpose::Read(ReadIo::Gap(_)));
        let hopeful =
            worthwhile && matches!(error, IoError::Os(_)) && !is_full(kind, error, self.map.planted());
        let spoilt = self.is_spoilt(&flight) && !self.is_planted(Mutant::SpoiltWriteRetried);
        let again = repeatable && hopeful && flight.attempt < ATTEMPTS && !spoilt;
        // That the file was removed is told as such.
        if is_full(kind, error, self.map.planted()) {
            self.devices[flight.device.index()].errors.no_space += 1;
            let Flight { device, at, .. } = flight;
            self.notices.push(Notice::FullBelow { device, at, len: flight.len(), error });
        } else if error != IoError::Removed {
            self.note_failure(&flight, error, again);
        }
        if !again {
            return Some(flight);
        }
        flight.attempt += 1;
        flight.started = self.now;
        if flight.promise.is_some() {
            // The first step of a durable write: the one that was begun has ended.
            flight.promise = Some(self.devices[flight.device.index()].promises.begin());
        }
        // Of the same generation: what it reads may rest, waiting for the end of just this command.
        self.commands.send(flight);
        None
    }

    /// Starts a part of a joined command again, alone: what the whole failed with may be about another part.
    pub(crate) fn send_alone(&mut self, mut flight: Flight, error: IoError) {
        if !is_full(flight.command(), error, self.map.planted()) {
            self.note_failure(&flight, error, true);
        }
        flight.attempt += 1;
        flight.started = self.now;
        self.commands.send(flight);
    }

    fn note_failure(&mut self, flight: &Flight, error: IoError, again: bool) {
        let Flight { device, at, .. } = *flight;
        let kind = flight.command();
        self.devices[device.index()].errors.count(kind);
        self.notices.push(Notice::Failed { device, kind, at, len: flight.len(), error, again });
    }
}
