//! The engine's state of each device: measurements, flush epochs, pacing, and quarantined space.

pub(crate) mod abandoned;
pub(crate) mod deadline;
pub(crate) mod epochs;
pub(crate) mod flush_order;
pub(crate) mod measure;
pub(crate) mod outstanding;
pub(crate) mod pacing;
pub(crate) mod quarantine;
pub(crate) mod routing;
pub(crate) mod unflushed;
pub(crate) mod views;

use crate::device::deadline::Watchdog;
use crate::device::epochs::Epochs;
use crate::device::flush_order::DurabilityOrder;
use crate::device::measure::Measurements;
use crate::device::outstanding::Outstanding;
use crate::device::pacing::{EndedCommand, Pacing};
use crate::device::quarantine::Quarantine;
use crate::device::routing::Routing;
use crate::device::unflushed::UnflushedWrite;
use crate::flight::{Flight, Origin};
use crate::notice::LossReason;
use crate::units::Percent;
use weir_map::Chunk;
use weir_model::{IoKind, Nanos, Planted};
use weir_policy::harm::DeviceUse;
use weir_policy::placement::MeasuredCommand;

/// The declared properties of a device. Its speed is measured, never declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Whether completed writes need a flush (or FUA) to be durable: the device has a volatile write cache,
    /// or a file system above it has metadata of its own to write.
    pub volatile_cache: bool,
    /// The device's smallest write in bytes, 512 to 4096. Shorter writes are read-modify-write.
    pub sector: u16,
    /// The time after which a device with an unanswered command is given up. It must exceed the slowest
    /// response of a healthy device, including retries in the operating system.
    pub deadline: Nanos,
    /// The way a durable write is carried out.
    pub durable_writes: DurableWrites,
    /// The maximum age of the last check that the device still matches its superblock, when a FLUSH or a
    /// durable change is acknowledged. `None`: it is never checked, because it has no superblock. See
    /// [`crate::verify`].
    pub verification_max_age: Option<Nanos>,
}

/// The way a device makes a single write durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurableWrites {
    /// One command ([`IoKind::Write`] with `fua`). Any error it returns, a lack of space included, may
    /// concern an earlier write that was lost.
    #[default]
    OneCommand,
    /// A plain write followed, once it has succeeded, by a flush; used for files. A lack of space reported by
    /// the write concerns that write alone; one reported by the flush means a lost write.
    WriteThenFlush,
}

impl DeviceSettings {
    /// The default deadline: as long as Linux waits for a SCSI disk.
    pub const DEADLINE: Nanos = Nanos::secs(30);
}

impl Default for DeviceSettings {
    fn default() -> Self {
        Self {
            volatile_cache: true,
            sector: 512,
            deadline: Self::DEADLINE,
            durable_writes: DurableWrites::OneCommand,
            verification_max_age: None,
        }
    }
}

/// The number of failed commands; each attempt counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    /// Failed reads.
    pub reads: u64,
    /// Failed writes.
    pub writes: u64,
    /// Failed flushes.
    pub flushes: u64,
    /// Plain writes for which the storage below had no space. They did nothing, and do not count as failed.
    pub no_space: u64,
}

impl ErrorCounts {
    pub(crate) fn count(&mut self, kind: IoKind) {
        match kind {
            IoKind::Read => self.reads += 1,
            IoKind::Write { .. } => self.writes += 1,
            IoKind::Flush => self.flushes += 1,
        }
    }

    /// Returns the number of all failed commands.
    pub const fn total(self) -> u64 {
        self.reads + self.writes + self.flushes
    }
}

/// The response times of 4 KiB reads while the pool was idle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdleResponse {
    /// The median; `Nanos::MAX` if the reads failed, `None` before the first measurement.
    pub(crate) response: Option<Nanos>,
    /// The first and the third quartile.
    pub(crate) quartiles: Option<[Nanos; 2]>,
}

/// Whether a device is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    InUse,
    /// The device gets no more commands until the pool is opened again.
    Lost {
        reason: LossReason,
        since: Nanos,
    },
}

/// The engine's state of one device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) settings: DeviceSettings,
    pub(crate) load: Measurements,
    pub(crate) routing: Routing,
    pub(crate) pacing: Pacing,
    pub(crate) errors: ErrorCounts,
    pub(crate) state: Availability,
    pub(crate) idle: IdleResponse,
    pub(crate) epochs: Epochs,
    watchdog: Watchdog,
    outstanding: Outstanding,
    pub(crate) durability_order: DurabilityOrder,
    pub(crate) quarantined: Quarantine,
}

impl Device {
    pub(crate) fn new(settings: DeviceSettings, planted: Planted) -> Self {
        Self {
            settings,
            load: Measurements::new(),
            routing: Routing::default(),
            pacing: Pacing::default(),
            errors: ErrorCounts::default(),
            state: Availability::InUse,
            idle: IdleResponse::default(),
            epochs: Epochs::new(settings.volatile_cache, planted),
            watchdog: Watchdog::default(),
            outstanding: Outstanding::default(),
            durability_order: DurabilityOrder::default(),
            quarantined: Quarantine::default(),
        }
    }

    /// Notes that a command begins, and stores in its flight when and in which generation it does.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos, flight: &mut Flight) {
        flight.busy_at_start = self.load.begin(now);
        self.watchdog.begin(now, self.settings.deadline);
        flight.generation = self.outstanding.begin();
        self.pacing.begin(flight.purpose.origin());
        flight.depth = self.load.in_flight();
    }

    /// Notes that a command has ended. `share` is the mover's share of the device's time.
    #[inline(always)]
    pub(crate) fn end(
        &mut self,
        now: Nanos,
        flight: &Flight,
        origin: Origin,
        share: Percent,
    ) -> EndedCommand {
        let started = flight.started;
        let took = self.load.end(now, flight.busy_at_start);
        let ended = EndedCommand { origin, started, response: now.since(started), service_time: took };
        self.pacing.end(now, ended, share);
        self.outstanding.end(flight.generation);
        ended
    }

    /// Returns how the device's time was used since the start.
    pub(crate) fn usage(&self, now: Nanos) -> DeviceUse {
        DeviceUse { busy: self.load.busy(now), mover_busy: self.pacing.service_time() }
    }

    /// Returns the number of commands in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.load.in_flight()
    }

    /// Measures a command that succeeded.
    #[inline]
    pub(crate) fn measure(&mut self, kind: IoKind, command: &MeasuredCommand, now: Nanos) {
        match kind {
            IoKind::Flush => return self.load.note_flush(),
            IoKind::Read => self.routing.note_read(command.size, now),
            IoKind::Write { .. } => {}
        }
        self.load.note(command);
    }

    /// Handles a failed flush: returns the writes that are not durable and never will be without being
    /// rewritten. Writes in flight prove nothing by completing.
    pub(crate) fn flush_failed(&mut self) -> Vec<UnflushedWrite> {
        self.epochs.flush_failed(self.outstanding.close())
    }

    /// Quarantines space whose release is durable, until every command begun so far has ended.
    pub(crate) fn quarantine(&mut self, chunk: Chunk) {
        self.quarantined.add(chunk, &mut self.outstanding);
    }

    /// Returns the next space that no command can touch any more.
    pub(crate) fn next_released(&mut self) -> Option<Chunk> {
        self.quarantined.next(&self.outstanding)
    }

    /// Whether no client uses the device.
    pub(crate) fn is_idle(&self, now: Nanos) -> bool {
        self.pacing.is_idle(now)
    }

    /// Whether the device gets no more commands.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, Availability::Lost { .. })
    }

    /// Returns the next time to check for overdue commands.
    pub(crate) fn next_overdue_check(&self) -> Option<Nanos> {
        self.watchdog.due().filter(|_| !self.is_lost() && self.outstanding.is_any_in_flight())
    }

    /// Whether it is time to check for overdue commands.
    #[inline]
    pub(crate) fn is_overdue_check_due(&self, now: Nanos) -> bool {
        self.watchdog.due().is_some_and(|due| due <= now) && !self.is_lost()
    }

    /// Whether the oldest command, begun at `oldest`, is overdue: see [`Watchdog`].
    pub(crate) fn is_overdue(&mut self, now: Nanos, oldest: Option<Nanos>) -> bool {
        self.watchdog.check(now, self.settings.deadline, oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight::{MetadataIo, NewIo, Purpose};
    use weir_map::Whole;
    use weir_model::{DeviceExtent, DeviceId};

    #[test]
    fn quarantine_ends_after_earlier_commands() {
        let mut device = Device::new(DeviceSettings::default(), Planted::for_tests());
        let whole = |n| Chunk::Whole(Whole { device: DeviceId(0), extent: DeviceExtent(n) });
        device.quarantine(whole(0));
        assert_eq!(device.next_released(), Some(whole(0)), "nothing is in flight");
        let begin = |device: &mut Device| {
            let mut flight = NewIo::flush(DeviceId(0)).flight(Purpose::Metadata(MetadataIo::PagesFlush));
            device.begin(Nanos(0), &mut flight);
            flight
        };
        let end = |device: &mut Device, flight| device.end(Nanos(0), &flight, Origin::Other, Percent(20));
        let (a, b) = (begin(&mut device), begin(&mut device));
        device.quarantine(whole(1));
        let c = begin(&mut device);
        device.quarantine(whole(2));
        assert_eq!(device.next_released(), None);
        end(&mut device, b);
        end(&mut device, c);
        assert_eq!(device.next_released(), None, "a is still in flight");
        end(&mut device, a);
        assert_eq!(
            (device.next_released(), device.next_released(), device.next_released()),
            (Some(whole(1)), Some(whole(2)), None)
        );
    }

    #[test]
    fn flush_is_needed_until_flush_in_flight_succeeds() {
        let mut device = Device::new(DeviceSettings::default(), Planted::for_tests());
        let id = DeviceId(0);
        let needs = device.epochs.write_completed(id, false);
        let covered = device.epochs.begin_flush(Nanos(0));
        assert_eq!(device.epochs.needed_flush(id), needs, "whoever copies it now must wait for the flush");
        device.epochs.flush_succeeded(covered);
        assert_eq!(device.epochs.needed_flush(id), None);
    }
}
