//! Serves a device with the timing of a modelled drive.
//!
//! A [`Pacer`] stands between the engine's commands and their completions. The real I/O is
//! carried out at once, by whoever holds the pacer; its end is held back until the model says
//! that the modelled drive would have finished. The model goes by submission times alone, so a
//! real completion that comes late delays its own command and no other.
//!
//! A command that comes out later than the model wanted, because the real I/O or the driver was
//! too slow, is an *overrun*. [`PaceStats`] counts them and sums up the lateness;
//! [`PaceStats::is_valid`] is false where the figures describe this machine and not the modelled drive.
//!
//! A state machine without I/O or clock: time is an argument.

use std::collections::{HashMap, VecDeque};
use weir_model::{Io, IoCompletion, IoError, IoId, Nanos};
use weir_timing::Timing;

/// The share of overruns up to which figures taken from a paced device are valid, whatever the lateness.
pub const OVERRUNS_MAX: f64 = 0.01;

/// The lateness of all commands together up to which figures are valid, as a share of what the model
/// takes for them: the mean response is then within this share of the model's.
pub const LATENESS_MAX: f64 = 0.05;

/// So few overruns are put down to chance, however few the commands: one of fourteen is no share
/// to go by.
const OVERRUNS_TOLERATED: u64 = 3;

/// Lateness that is no overrun: this much, or a twentieth of the modelled response if that is more. The
/// scheduler of an idle machine wakes a thread within this time.
const TOLERANCE: Nanos = Nanos::micros(50);

/// How well a paced device kept to its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceStats {
    /// Commands completed.
    pub ios: u64,
    /// Of these, how many came out later than the model wanted by more than 5 % of the modelled
    /// response and by more than 50 microseconds.
    pub overruns: u64,
    /// The modelled responses of all commands, summed up.
    pub modelled: Nanos,
    /// The lateness of all commands, overruns or not, summed up.
    pub late: Nanos,
}

impl PaceStats {
    /// Overruns per command, from 0 to 1; 0 without commands.
    pub fn overrun_share(&self) -> f64 {
        if self.ios == 0 { 0.0 } else { self.overruns as f64 / self.ios as f64 }
    }

    /// Lateness as a share of the modelled responses; 0 without commands.
    pub fn lateness(&self) -> f64 {
        if self.modelled.0 == 0 { 0.0 } else { self.late.0 as f64 / self.modelled.0 as f64 }
    }

    /// Whether figures taken from the device describe the modelled drive. They do if one of these holds:
    /// - there are no more than 3 overruns,
    /// - overruns are no larger share of the commands than [`OVERRUNS_MAX`],
    /// - lateness is no larger share of the modelled responses than [`LATENESS_MAX`].
    ///
    /// The last one is relative to the drive's own time: 100 microseconds do not change the mean response of
    /// a disk, and double that of an SSD. It bounds the error of the mean and of the throughput; a high
    /// percentile may be off by more.
    pub fn is_valid(&self) -> bool {
        self.overruns <= OVERRUNS_TOLERATED
            || self.overrun_share() <= OVERRUNS_MAX
            || self.lateness() <= LATENESS_MAX
    }
}

/// A command between [`Pacer::submit`] and its release.
#[derive(Clone, Copy, Debug)]
struct PacedCommand {
    submitted: Nanos,
    /// When the model completed it, once it has.
    due: Option<Nanos>,
    /// Result of the real I/O, once it has completed.
    result: Option<Result<(), IoError>>,
}

/// Holds back completions until the modelled drive would have delivered them.
///
/// The driver calls [`submit`](Self::submit) and starts the real I/O, calls [`real_done`](Self::real_done) at
/// its end, and then [`release`](Self::release), which it also calls at the time that [`next`](Self::next)
/// returns. Every command is released exactly once, with its real result. The times passed in must not
/// decrease.
pub struct Pacer {
    timing: Box<dyn Timing>,
    commands: HashMap<IoId, PacedCommand>,
    /// Commands whose real I/O completed after the model: they are released at once.
    late: VecDeque<IoId>,
    stats: PaceStats,
}

impl Pacer {
    /// Creates a pacer with a model that has nothing in flight.
    pub fn new(timing: Box<dyn Timing>) -> Self {
        Self { timing, commands: HashMap::new(), late: VecDeque::new(), stats: PaceStats::default() }
    }

    /// Notes that a command is being started. Its id must not be in flight already.
    pub fn submit(&mut self, now: Nanos, io: &Io) {
        self.commands.insert(io.id, PacedCommand { submitted: now, due: None, result: None });
        self.timing.submit(now, io.id, io.kind, io.at, io.len());
    }

    /// Handles the completion of a command's real I/O. An id that is not in flight is ignored.
    pub fn real_done(&mut self, done: IoCompletion) {
        if let Some(flight) = self.commands.get_mut(&done.id) {
            flight.result = Some(done.result);
            if flight.due.is_some() {
                self.late.push_back(done.id);
            }
        }
    }

    /// Returns the time by which [`release`](Self::release) must be called; it is in the past if something
    /// already waits. `None` if nothing can be released before a further real completion or submission.
    pub fn next(&self) -> Option<Nanos> {
        if self.late.is_empty() { self.timing.next() } else { Some(Nanos(0)) }
    }

    /// Passes on every completion that is due by `now` and whose real I/O has completed, in the order in
    /// which the model completed them; those delayed by their real I/O come first.
    pub fn release(&mut self, now: Nanos, out: &mut impl FnMut(IoCompletion)) {
        while let Some(id) = self.late.pop_front() {
            self.finish(now, id, out);
        }
        while let Some(due) = self.timing.next().filter(|due| *due <= now) {
            let Some(id) = self.timing.pop(due) else { continue };
            let Some(flight) = self.commands.get_mut(&id) else { continue };
            flight.due = Some(due);
            if flight.result.is_some() {
                self.finish(now, id, out);
            }
        }
    }

    fn finish(&mut self, now: Nanos, id: IoId, out: &mut impl FnMut(IoCompletion)) {
        let Some(PacedCommand { submitted, due: Some(due), result: Some(result) }) =
            self.commands.remove(&id)
        else {
            return;
        };
        let (modelled, late) = (due - submitted, now - due);
        self.stats.ios += 1;
        self.stats.overruns += u64::from(late > TOLERANCE.max(Nanos(modelled.0 / 20)));
        self.stats.modelled += modelled;
        self.stats.late += late;
        out(IoCompletion { id, result });
    }

    /// Returns the number of commands submitted and not released.
    pub fn in_flight(&self) -> usize {
        self.commands.len()
    }

    /// Returns how well the model has been kept so far.
    pub fn stats(&self) -> PaceStats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
