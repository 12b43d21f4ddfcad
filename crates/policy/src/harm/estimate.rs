//! The measured cost of a sample's commands, and their counterfactual cost at their extents' first places.

use super::{Curves, Done};
use crate::placement::SizeClass;
use weir_model::{DeviceId, Nanos};

/// The overhead of a further command, for the processor and for the client that waits for all of them:
/// submission, completion, look-up.
const COMMAND: f64 = 5e-6;
/// The utilization above which a queue does not grow further.
const BUSIEST: f64 = 0.98;

/// The use of a device in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// The time with commands in flight.
    pub busy: Nanos,
    /// The mover's share of it.
    pub moved: Nanos,
}

/// The priced cost of a sample's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The number of commands; those that make up one access of an extent count as one.
    pub commands: u64,
    /// Their total cost.
    pub took: Nanos,
    /// Their total cost without moves.
    pub without: Nanos,
}

impl Estimate {
    /// Returns the ratio of the two costs; 1 without measurements.
    pub fn ratio(&self) -> f64 {
        if self.without.0 == 0 { 1.0 } else { self.took.0 as f64 / self.without.0 as f64 }
    }

    /// Returns the mean cost, and the mean cost without moves.
    pub fn mean(&self) -> (Nanos, Nanos) {
        let commands = self.commands.max(1);
        (Nanos(self.took.0 / commands), Nanos(self.without.0 / commands))
    }

    /// Adds another window.
    pub fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.took += other.took;
        self.without += other.without;
    }

    /// Returns the difference to an earlier sum.
    #[must_use]
    pub fn since(&self, earlier: Self) -> Self {
        Self {
            commands: self.commands - earlier.commands,
            took: self.took - earlier.took,
            without: self.without - earlier.without,
        }
    }
}

/// Counts of commands by direction and size.
type Counts = [[f64; SizeClass::COUNT]; 2];

/// The sampled commands of one device.
#[derive(Clone, Debug, Default)]
struct Side {
    /// The commands that went there; the same as parts of their accesses; and the accesses that would have
    /// gone there, each as one command.
    here: Counts,
    parts: Counts,
    there: Counts,
    /// For those that went there: the sum of queue depths when they began, and their service time.
    depth: u64,
    took: Nanos,
}

/// The sampled commands of a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    devices: Vec<Side>,
    commands: u32,
    /// The number of accesses that they made up.
    accesses: f64,
    /// The sum of commands in flight on all devices.
    under_way: u64,
}

/// Iterates over the non-zero counts.
fn each(counts: &Counts) -> impl Iterator<Item = (bool, SizeClass, f64)> + '_ {
    let both = [false, true].into_iter().zip(counts);
    let all = both.flat_map(|(write, sizes)| SizeClass::all().zip(sizes).map(move |(s, n)| (write, s, *n)));
    all.filter(|(.., n)| *n > 0.0)
}

fn sum(counts: &Counts) -> f64 {
    each(counts).map(|(.., n)| n).sum()
}

impl Tally {
    pub(super) fn commands(&self) -> u32 {
        self.commands
    }

    pub(super) fn note(&mut self, first: DeviceId, done: &Done) {
        let most = first.index().max(done.device.index());
        if self.devices.len() <= most {
            self.devices.resize(most + 1, Side::default());
        }
        let command = &done.command;
        let (direction, size) = (usize::from(command.write), command.size.index());
        let here = &mut self.devices[done.device.index()];
        // The part of a command that exceeds its access was read or written along with it.
        let part = (command.len.0 as f64 / done.of.0.max(1) as f64).min(1.0);
        let whole = if part < 1.0 { SizeClass::of(done.of).index() } else { size };
        here.here[direction][size] += 1.0;
        here.parts[direction][size] += part;
        here.depth += u64::from(command.depth);
        here.took += command.took;
        self.devices[first.index()].there[direction][whole] += part;
        self.commands += 1;
        self.accesses += part;
        self.under_way += u64::from(done.under_way);
    }

    /// Returns the sizes of reads that would have gone to a device.
    pub(super) fn reads_there(&self, device: DeviceId) -> impl Iterator<Item = SizeClass> + '_ {
        let sizes = self.devices.get(device.index()).map(|side| &side.there[0]);
        SizeClass::all().filter(move |size| sizes.is_some_and(|sizes| sizes[size.index()] > 0.0))
    }

    /// Returns the cost with and without moves; `None` if some device has no curve yet.
    pub(super) fn estimate(&self, window: Nanos, uses: &[Use], curves: &[Curves]) -> Option<Estimate> {
        let window = window.as_secs_f64().max(1e-9);
        let all = f64::from(self.commands.max(1));
        let under_way = (self.under_way as f64 / all).max(1.0);
        let scale = self.scale(uses);
        let (mut took, mut without, mut busiest) = (0.0, 0.0, 0.0f64);
        for ((side, of), curves) in self.devices.iter().zip(uses).zip(curves) {
            let time = |counts: &Counts| -> Option<f64> {
                each(counts).map(|(write, size, n)| Some(n * curves.took(write, size)?)).sum()
            };
            let busy = of.busy.as_secs_f64() / window;
            let shift = scale * (time(&side.there)? - time(&side.here)?) / window;
            let would_be = (busy - of.moved.as_secs_f64() / window + shift).max(0.0);
            busiest = busiest.max(would_be);
            let depth = (side.depth as f64 / sum(&side.here).max(1.0)).max(1.0);
            let grows = (1.0 - busy.min(BUSIEST)) / (1.0 - would_be.min(BUSIEST));
            let deeper = (depth * grows).clamp(1.0, depth.max(under_way));
            let price = |counts: &Counts, depth: f64| -> Option<f64> {
                each(counts).map(|(write, size, n)| Some(n * curves.response(write, size, depth)?)).sum()
            };
            took += price(&side.parts, depth)?;
            without += price(&side.there, deeper)?;
        }
        took += COMMAND * (f64::from(self.commands) - self.accesses).max(0.0);
        if busiest > 1.0 {
            without = without.max(busiest * took);
        }
        Some(Estimate {
            commands: self.accesses.round() as u64,
            took: Nanos::from_secs_f64(took),
            without: Nanos::from_secs_f64(without),
        })
    }

    /// Returns the ratio of the device time of all clients' commands to that of the sample.
    fn scale(&self, uses: &[Use]) -> f64 {
        let sampled: f64 = self.devices.iter().map(|side| side.took.as_secs_f64()).sum();
        let all: f64 = uses.iter().map(|of| of.busy.since(of.moved).as_secs_f64()).sum();
        if sampled > 0.0 { all / sampled } else { 0.0 }
    }
}
