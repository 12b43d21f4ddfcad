//! The rules for retrying failed commands.
//!
//! A read can always be repeated. A plain write can be repeated in place: its blocks are locked, so no other
//! write was submitted there, and it overwrites whatever the failed attempt left. The exception is a write
//! during which a flush of the device failed: its location may have been freed. A flush or a durable write
//! is never repeated, whatever the error: the operating system reports a lost write once, and a repeated
//! flush would succeed and prove nothing. A durable write that takes two commands
//! ([`crate::DurableWrites::WriteThenFlush`]) is first a plain write, then a flush.
//!
//! A plain write that finds no space has done nothing and implies nothing else. When a flush or a durable
//! write reports a lack of space, the error may belong to an earlier write that the system could not carry
//! out; it counts like any other error.

use crate::core::Core;
use crate::flight::{Flight, Purpose};
use crate::flight::{ReadIo, is_out_of_space};
use crate::notice::Notice;
use weir_model::{IoError, IoKind, Mutant};

/// The maximum number of attempts of a command.
const ATTEMPTS: u8 = 3;

impl Core {
    /// Whether the result of the command must be ignored: its device is lost, or it is a write and a flush
    /// failed while it was in flight. This is a second line of defence: when a flush fails, the writes in
    /// flight fail with it ([`crate::durability::doubt`]), moves give up their run, and a metadata member is
    /// left behind.
    pub(crate) fn is_result_void(&self, flight: &Flight) -> bool {
        let device = &self.devices[flight.device.index()];
        let doubted = !flight.kind.is_read()
            && device.epochs.is_void(flight.generation)
            && !self.is_planted(Mutant::SpoiltSuccessCounts);
        device.is_lost() || doubted
    }

    /// Retries the command if that is sound and may help; otherwise returns it.
    pub(crate) fn retry(&mut self, mut flight: Flight, error: IoError) -> Option<Flight> {
        let kind = flight.command();
        let repeatable = matches!(kind, IoKind::Read | IoKind::Write { fua: false })
            || self.is_planted(Mutant::FlushRetried);
        // The bad block may be in a hole, which nobody wants, and a drive may take long over it each time.
        let worthwhile = !matches!(flight.purpose, Purpose::Read(ReadIo::Gap(_)));
        let hopeful = worthwhile
            && matches!(error, IoError::Os(_))
            && !is_out_of_space(kind, error, self.map.planted());
        let spoilt = self.is_result_void(&flight) && !self.is_planted(Mutant::SpoiltWriteRetried);
        let again = repeatable && hopeful && flight.attempt < ATTEMPTS && !spoilt;
        // The removal of a file has its own notice.
        if is_out_of_space(kind, error, self.map.planted()) {
            self.devices[flight.device.index()].errors.no_space += 1;
            let Flight { device, at, .. } = flight;
            self.notices.push(Notice::BackingStoreFull { device, at, len: flight.len(), error });
        } else if error != IoError::Removed {
            self.note_failure(&flight, error, again);
        }
        if !again {
            return Some(flight);
        }
        flight.attempt += 1;
        flight.started = self.now;
        if flight.durability_number.is_some() {
            // This is the first step of a durable write; the flush number it had has ended.
            flight.durability_number = Some(self.devices[flight.device.index()].durability_order.begin());
        }
        // The generation stays the same: the blocks that the command reads may be quarantined until this very
        // command ends.
        self.commands.send(flight);
        None
    }

    /// Retries one part of a joined command alone, because the error may concern another part.
    pub(crate) fn send_alone(&mut self, mut flight: Flight, error: IoError) {
        if !is_out_of_space(flight.command(), error, self.map.planted()) {
            self.note_failure(&flight, error, true);
        }
        flight.attempt += 1;
        flight.started = self.now;
        self.commands.send(flight);
    }

    fn note_failure(&mut self, flight: &Flight, error: IoError, is_retried: bool) {
        let Flight { device, at, .. } = *flight;
        let kind = flight.command();
        self.devices[device.index()].errors.count(kind);
        self.notices.push(Notice::Failed { device, kind, at, len: flight.len(), error, is_retried });
    }
}
