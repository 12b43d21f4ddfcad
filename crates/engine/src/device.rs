//! What the engine keeps per device: measurements, flush epochs, and which space must still rest.

pub(crate) mod abandoned;
pub(crate) mod deadline;
pub(crate) mod flush_order;
pub(crate) mod last_check;
pub(crate) mod lost;
pub(crate) mod measure;
pub(crate) mod outstanding;
pub(crate) mod pacing;
pub(crate) mod routing;
pub(crate) mod unflushed;
pub(crate) mod verify;

use crate::device::deadline::Watch;
use crate::device::measure::Measure;
use crate::device::outstanding::{Behind, Outstanding};
use crate::device::pacing::{Ended, Pacing};
use crate::device::routing::Routing;
use crate::device::unflushed::{UNFLUSHED_MAX, Unflushed};
use crate::flight::{Flight, Whose};
use crate::notice::LostWhy;
use crate::units::Percent;
use weir_map::{Chunk, Epoch, Needs};
use weir_model::{DeviceId, IoKind, Mutant, Nanos, Planted};
use weir_policy::harm::Use;
use weir_policy::placement::Command;

/// What is declared about a device; speed never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Completed writes need a flush (or FUA) to be durable: it has a write cache that a power cut
    /// empties, or a file system above it that owes records of its own.
    pub volatile_cache: bool,
    /// Its smallest write in bytes: 512 to 4096. Shorter ones are read-modify-write.
    pub sector: u16,
    /// A command not answered within this time has the device given up. More than the slowest answer
    /// of a device in good order, retries in the operating system included.
    pub deadline: Nanos,
    /// How a durable write is carried out.
    pub durable_writes: DurableWrites,
    /// How old the last check that the device still is what its superblock says may be when a FLUSH or a
    /// durable change is acknowledged; `None`: it is never checked, as a device that holds no superblock. See
    /// [`crate::device::verify`].
    pub verified_within: Option<Nanos>,
}

/// How a device makes a single write durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurableWrites {
    /// By one command ([`IoKind::Write`] with `fua`). Whatever error it answers, a lack of space included,
    /// may be about an earlier write that was lost.
    #[default]
    OneCommand,
    /// By a plain write and, once that has ended well, a flush: of a file. A lack of space that the write
    /// reports is about that write alone; one that the flush reports is a lost write.
    WriteThenFlush,
}

impl DeviceSettings {
    /// The deadline unless another is asked for: as long as Linux waits for a SCSI disk.
    pub const DEADLINE: Nanos = Nanos::secs(30);
}

impl Default for DeviceSettings {
    fn default() -> Self {
        Self {
            volatile_cache: true,
            sector: 512,
            deadline: Self::DEADLINE,
            durable_writes: DurableWrites::OneCommand,
            verified_within: None,
        }
    }
}

/// Notes of unflushed writes whose memory is kept for the next epoch: as many as there usually are at
/// most, since to ask for it anew costs more than to note them.
const UNFLUSHED_KEPT: usize = UNFLUSHED_MAX;

/// Commands that failed, a retried one each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Plain writes for which there was no space below: these have not failed, they did nothing.
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

    /// All that failed.
    pub const fn total(self) -> u64 {
        self.reads + self.writes + self.flushes
    }
}

/// Whether a device is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    InUse,
    /// It gets no more commands until the pool is opened again.
    Lost {
        why: LostWhy,
        since: Nanos,
    },
}

/// A device as the engine sees it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) settings: DeviceSettings,
    pub(crate) flushes: u64,
    pub(crate) load: Measure,
    pub(crate) routing: Routing,
    pub(crate) pacing: Pacing,
    pub(crate) errors: ErrorCounts,
    pub(crate) state: State,
    /// Response to a 4 KiB read when the pool was idle.
    pub(crate) idle: Option<Nanos>,
    /// The first and the third quartile of the reads that told.
    pub(crate) idle_quartiles: Option<[Nanos; 2]>,
    /// The present flush epoch: writes that complete now belong to it.
    epoch: Epoch,
    /// Writes completed in this epoch.
    dirty: bool,
    /// The last epoch known durable.
    flushed: Option<Epoch>,
    /// When a flush began last.
    flush_began: Nanos,
    /// What was written and is not known to be durable: in this epoch, and in those a flush under way
    /// covers.
    unflushed: Vec<Unflushed>,
    flushing: Vec<Unflushed>,
    /// How often completed writes were lost.
    pub(crate) distrusts: u32,
    /// What the flush under way covers.
    flushing_epoch: Option<Epoch>,
    /// Commands begun in this generation or before say nothing by their success: a flush has failed
    /// since.
    distrusted: Option<u64>,
    watch: Watch,
    outstanding: Outstanding,
    /// Flushes and durable writes in flight.
    promises: Outstanding,
    /// Flushes that ended well, and the promises that must have ended before they count.
    held: Behind<Flight>,
    /// Space whose release is durable, resting until the commands that may touch it have ended.
    resting: Behind<Chunk>,
    /// Whole extents among it.
    resting_extents: u32,
    planted: Planted,
}

impl Device {
    pub(crate) fn new(settings: DeviceSettings, planted: Planted) -> Self {
        Self {
            settings,
            flushes: 0,
            load: Measure::new(),
            routing: Routing::default(),
            pacing: Pacing::default(),
            errors: ErrorCounts::default(),
            state: State::InUse,
            idle: None,
            idle_quartiles: None,
            epoch: Epoch(1),
            dirty: false,
            flushed: None,
            flush_began: Nanos(0),
            unflushed: Vec::new(),
            flushing: Vec::new(),
            distrusts: 0,
            flushing_epoch: None,
            distrusted: None,
            watch: Watch::default(),
            outstanding: Outstanding::default(),
            promises: Outstanding::default(),
            held: Behind::default(),
            resting: Behind::default(),
            resting_extents: 0,
            planted,
        }
    }

    /// A command begins, which is told when and among which it does.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos, flight: &mut Flight) {
        flight.taken = self.load.begin(now);
        self.watch.begin(now, self.settings.deadline);
        flight.generation = self.outstanding.begin();
        self.pacing.begin(flight.purpose.whose());
        flight.depth = self.load.in_flight();
    }

    /// A command ended. `share` is the mover's of the device's time.
    #[inline(always)]
    pub(crate) fn end(&mut self, now: Nanos, flight: &Flight, whose: Whose, share: Percent) -> Ended {
        let started = flight.started;
        let took = self.load.end(now, flight.taken);
        let ended = Ended { whose, started, response: now.since(started), took };
        self.pacing.end(now, ended, share);
        self.outstanding.end(flight.generation);
        ended
    }

    /// What has been done with its time since the start.
    pub(crate) fn used(&self, now: Nanos) -> Use {
        Use { busy: self.load.busy(now), moved: self.pacing.taken() }
    }

    /// A flush or durable write begins; the number goes to [`Self::end_promise`].
    #[inline]
    pub(crate) fn begin_promise(&mut self) -> u64 {
        self.promises.begin()
    }

    /// A flush or durable write ended, well or not.
    #[inline]
    pub(crate) fn end_promise(&mut self, promise: u64) {
        self.promises.end(promise);
    }

    /// A flush ended well: it counts once the promises begun before have ended.
    pub(crate) fn hold(&mut self, flush: Flight) {
        self.held.add(flush, &mut self.promises);
    }

    /// The next flush that counts.
    pub(crate) fn next_counting(&mut self) -> Option<Flight> {
        self.held.next(&self.promises)
    }

    /// Flushes that ended well and will never count.
    pub(crate) fn take_held(&mut self) -> impl Iterator<Item = Flight> + use<> {
        self.held.take_all()
    }

    /// Commands in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.load.in_flight()
    }

    /// Measures a command that ended well.
    #[inline]
    pub(crate) fn measure(&mut self, kind: IoKind, command: &Command, now: Nanos) {
        match kind {
            IoKind::Flush => return self.flushes += 1,
            IoKind::Read => self.routing.answered(command.size, now),
            IoKind::Write { .. } => {}
        }
        self.load.note(command);
    }

    /// A write completed; what a map change that refers to it must wait for.
    #[inline]
    pub(crate) fn wrote(&mut self, id: DeviceId, fua: bool) -> Option<Needs> {
        if fua || !self.settings.volatile_cache {
            return None;
        }
        self.dirty = true;
        Some(Needs { device: id, epoch: self.epoch })
    }

    /// What must be flushed for everything that has completed and counts to be durable; `None` if it
    /// is. (What a failed flush was to cover does not count any more.)
    pub(crate) fn owes(&self, id: DeviceId) -> Option<Needs> {
        let epoch = match (self.dirty, self.flushing_epoch) {
            (true, _) => self.epoch,
            (false, Some(_)) if self.planted.is(Mutant::FlushInFlightOwesNothing) => return None,
            (false, Some(flushing)) => flushing,
            (false, None) => return None,
        };
        Some(Needs { device: id, epoch })
    }

    /// Whether some completed write is not durable.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// A flush begins: it covers the writes completed up to now; later ones are of the next epoch.
    pub(crate) fn begin_flush(&mut self, now: Nanos) -> Epoch {
        let covered = self.epoch;
        self.flush_began = now;
        if !self.planted.is(Mutant::EpochNotClosed) {
            self.epoch = Epoch(covered.0 + 1);
        }
        self.dirty = false;
        if self.flushing.is_empty() {
            std::mem::swap(&mut self.flushing, &mut self.unflushed);
        } else {
            self.flushing.append(&mut self.unflushed);
        }
        self.flushing_epoch = Some(covered);
        covered
    }

    /// A flush succeeded.
    pub(crate) fn flush_succeeded(&mut self, covered: Epoch) {
        self.flushed = self.flushed.max(Some(covered));
        self.flushing_epoch = self.flushing_epoch.filter(|e| *e > covered);
        self.flushing.clear();
        self.flushing.shrink_to(UNFLUSHED_KEPT);
        if !self.dirty {
            // Durable writes alone: they settle what is no longer in question.
            self.unflushed.clear();
        }
    }

    /// A completed write that is not durable, or one that settles an earlier one. How many there are.
    #[inline]
    pub(crate) fn note_unflushed(&mut self, unflushed: Unflushed) -> usize {
        self.unflushed.push(unflushed);
        self.unflushed.len()
    }

    /// Something that completed earlier, up to this epoch, and was not noted then.
    pub(crate) fn note_earlier(&mut self, unflushed: Unflushed, epoch: Epoch) {
        let is_covered = self.flushing_epoch.is_some_and(|flushing| epoch <= flushing);
        if is_covered { self.flushing.push(unflushed) } else { self.unflushed.push(unflushed) }
    }

    /// Whether some completed write is not known to be durable.
    #[cfg(test)]
    fn has_unflushed(&self) -> bool {
        !self.unflushed.is_empty() || !self.flushing.is_empty()
    }

    /// Writes that are not durable beyond what one flush should cover: more must wait.
    pub(crate) fn is_behind(&self) -> bool {
        self.unflushed.len() > 2 * UNFLUSHED_MAX
    }

    /// A flush failed: what is not durable never will be, by itself; it is returned. Writes under way
    /// prove nothing by completing.
    pub(crate) fn distrust(&mut self) -> Vec<Unflushed> {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.dirty = false;
        self.flushing_epoch = None;
        self.distrusts += 1;
        self.distrusted = Some(self.outstanding.close()).filter(|g| *g != u64::MAX).or(self.distrusted);
        let mut all = std::mem::take(&mut self.flushing);
        if self.planted.is(Mutant::FlushingNotDoubted) {
            all.clear();
        }
        all.append(&mut self.unflushed);
        all
    }

    /// Whether a write or flush of this generation proves nothing by its success.
    #[inline]
    pub(crate) fn is_distrusted(&self, generation: u64) -> bool {
        self.distrusted.is_some_and(|last| generation <= last)
    }

    /// For how long it has not been flushed.
    pub(crate) fn unflushed_for(&self, now: Nanos) -> Nanos {
        now.since(self.flush_began)
    }

    /// Whether more writes are noted as not durable than are to be.
    pub(crate) fn has_many_unflushed(&self) -> bool {
        self.unflushed.len() > UNFLUSHED_MAX
    }

    /// Whether no client uses it.
    pub(crate) fn is_idle(&self, now: Nanos) -> bool {
        self.pacing.is_idle(now)
    }

    /// Whether it gets no more commands.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost { .. })
    }

    /// When to look next whether some command is overdue.
    pub(crate) fn watch(&self) -> Option<Nanos> {
        self.watch.due().filter(|_| !self.is_lost() && self.outstanding.any())
    }

    /// Whether it is time to look whether some command is overdue.
    #[inline]
    pub(crate) fn is_watch_due(&self, now: Nanos) -> bool {
        self.watch.due().is_some_and(|due| due <= now) && !self.is_lost()
    }

    /// Whether the oldest command, begun at `oldest`, is overdue: see [`Watch`].
    pub(crate) fn is_overdue(&mut self, now: Nanos, oldest: Option<Nanos>) -> bool {
        self.watch.look(now, self.settings.deadline, oldest)
    }

    /// The last epoch known durable.
    pub(crate) fn flushed(&self) -> Option<Epoch> {
        self.flushed
    }

    /// Space whose release is durable: it rests until every command begun so far has ended.
    pub(crate) fn rest(&mut self, chunk: Chunk) {
        self.resting_extents += u32::from(matches!(chunk, Chunk::Whole(_)));
        self.resting.add(chunk, &mut self.outstanding);
    }

    /// Space that has rested.
    pub(crate) fn rested(&mut self) -> Option<Chunk> {
        let chunk = self.resting.next(&self.outstanding)?;
        self.resting_extents -= u32::from(matches!(chunk, Chunk::Whole(_)));
        Some(chunk)
    }

    /// Extents that are resting.
    pub(crate) fn resting_extents(&self) -> u32 {
        self.resting_extents
    }

    /// Whether some space is resting.
    pub(crate) fn has_resting(&self) -> bool {
        !self.resting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::unflushed::Wrote;
    use crate::flight::{MetadataIo, NewIo, Purpose};
    use weir_map::Whole;
    use weir_model::{BlockRange, DeviceExtent, ExtentKey};

    #[test]
    fn space_rests_until_the_commands_begun_before_have_ended() {
        let mut device = Device::new(DeviceSettings::default(), Planted::for_tests());
        let whole = |n| Chunk::Whole(Whole { device: DeviceId(0), extent: DeviceExtent(n) });
        device.rest(whole(0));
        assert_eq!(device.rested(), Some(whole(0)), "nothing is in flight");
        let begin = |device: &mut Device| {
            let mut flight = NewIo::flush(DeviceId(0)).flight(Purpose::Metadata(MetadataIo::PagesFlush));
            device.begin(Nanos(0), &mut flight);
            flight
        };
        let end = |device: &mut Device, flight| device.end(Nanos(0), &flight, Whose::Other, Percent(20));
        let (a, b) = (begin(&mut device), begin(&mut device));
        device.rest(whole(1));
        let c = begin(&mut device);
        device.rest(whole(2));
        assert_eq!(device.rested(), None);
        end(&mut device, b);
        end(&mut device, c);
        assert_eq!(device.rested(), None, "a is still in flight");
        end(&mut device, a);
        assert_eq!(
            (device.rested(), device.rested(), device.rested()),
            (Some(whole(1)), Some(whole(2)), None)
        );
    }

    #[test]
    fn durable_writes_during_a_flush_are_forgotten_with_what_they_settle() {
        let mut device = Device::new(DeviceSettings::default(), Planted::for_tests());
        let note =
            |wrote| Unflushed { key: ExtentKey::default(), range: BlockRange { first: 0, count: 1 }, wrote };
        device.wrote(DeviceId(0), false);
        device.note_unflushed(note(Wrote::Data));
        let covered = device.begin_flush(Nanos(0));
        device.note_unflushed(note(Wrote::Durable));
        assert!(device.has_unflushed(), "the flush may fail");
        device.flush_succeeded(covered);
        assert!(!device.has_unflushed(), "no later flush would have anything to do");
    }

    #[test]
    fn what_a_flush_in_flight_covers_is_owed_until_that_flush_has_succeeded() {
        let mut device = Device::new(DeviceSettings::default(), Planted::for_tests());
        let id = DeviceId(0);
        let needs = device.wrote(id, false);
        let covered = device.begin_flush(Nanos(0));
        assert_eq!(device.owes(id), needs, "whoever copies it now must wait for the flush");
        device.flush_succeeded(covered);
        assert_eq!(device.owes(id), None);
    }

    #[test]
    fn a_flush_covers_what_had_completed_before_it() {
        let mut device = Device::new(DeviceSettings::default(), Planted::for_tests());
        let id = DeviceId(0);
        let before = device.wrote(id, false).unwrap();
        let covered = device.begin_flush(Nanos(0));
        let during = device.wrote(id, false).unwrap();
        device.flush_succeeded(covered);
        assert!(device.flushed() >= Some(before.epoch) && device.flushed() < Some(during.epoch));
        assert!(device.is_dirty());
        assert_eq!(device.wrote(id, true), None);
    }
}
