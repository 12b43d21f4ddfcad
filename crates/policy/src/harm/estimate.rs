//! The measured cost of a sample's commands, and their counterfactual cost at their extents' first places.

use super::{Curves, SampledCommand};
use crate::placement::SizeClass;
use weir_model::{DeviceId, Nanos};

/// The overhead of a further command, for the processor and for the client that waits for all of them:
/// submission, completion, look-up.
const COMMAND_OVERHEAD: f64 = 5e-6;
/// The utilization above which a queue does not grow further.
const UTILIZATION_MAX: f64 = 0.98;

/// The use of a device in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceUse {
    /// The time with commands in flight.
    pub busy: Nanos,
    /// The mover's share of it.
    pub mover_busy: Nanos,
}

/// The priced cost of a sample's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The number of commands; those that make up one access of an extent count as one.
    pub commands: u64,
    /// Their total cost.
    pub cost: Nanos,
    /// Their total cost without moves.
    pub counterfactual_cost: Nanos,
}

impl Estimate {
    /// Returns the ratio of the two costs; 1 without measurements.
    pub fn ratio(&self) -> f64 {
        if self.counterfactual_cost.0 == 0 {
            1.0
        } else {
            self.cost.0 as f64 / self.counterfactual_cost.0 as f64
        }
    }

    /// Returns the mean cost, and the mean cost without moves.
    pub fn mean(&self) -> (Nanos, Nanos) {
        let commands = self.commands.max(1);
        (Nanos(self.cost.0 / commands), Nanos(self.counterfactual_cost.0 / commands))
    }

    /// Adds another window.
    pub fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.cost += other.cost;
        self.counterfactual_cost += other.counterfactual_cost;
    }

    /// Returns the difference to an earlier sum.
    #[must_use]
    pub fn since(&self, earlier: Self) -> Self {
        Self {
            commands: self.commands - earlier.commands,
            cost: self.cost - earlier.cost,
            counterfactual_cost: self.counterfactual_cost - earlier.counterfactual_cost,
        }
    }
}

/// Counts of commands by direction and size.
type Counts = [[f64; SizeClass::COUNT]; 2];

/// The sampled commands of one device.
#[derive(Clone, Debug, Default)]
struct DeviceTally {
    /// The commands that went there; the same as parts of their accesses; and the accesses that would have
    /// gone there, each as one command.
    actual: Counts,
    access_parts: Counts,
    counterfactual: Counts,
    /// For those that went there: the sum of queue depths when they began, and their service time.
    depth: u64,
    service_time: Nanos,
}

/// The sampled commands of a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    devices: Vec<DeviceTally>,
    commands: u32,
    /// The number of accesses that they made up.
    accesses: f64,
    /// The sum of commands in flight on all devices.
    in_flight: u64,
}

/// Iterates over the non-zero counts.
fn nonzero_counts(counts: &Counts) -> impl Iterator<Item = (bool, SizeClass, f64)> + '_ {
    let both = [false, true].into_iter().zip(counts);
    let all = both.flat_map(|(write, sizes)| SizeClass::all().zip(sizes).map(move |(s, n)| (write, s, *n)));
    all.filter(|(.., n)| *n > 0.0)
}

fn sum(counts: &Counts) -> f64 {
    nonzero_counts(counts).map(|(.., n)| n).sum()
}

impl Tally {
    pub(super) fn commands(&self) -> u32 {
        self.commands
    }

    pub(super) fn note(&mut self, first: DeviceId, done: &SampledCommand) {
        let most = first.index().max(done.device.index());
        if self.devices.len() <= most {
            self.devices.resize(most + 1, DeviceTally::default());
        }
        let command = &done.command;
        let (direction, size) = (usize::from(command.write), command.size.index());
        let here = &mut self.devices[done.device.index()];
        // The part of a command that exceeds its access was read or written along with it.
        let part = (command.len.0 as f64 / done.access_bytes.0.max(1) as f64).min(1.0);
        let whole = if part < 1.0 { SizeClass::of(done.access_bytes).index() } else { size };
        here.actual[direction][size] += 1.0;
        here.access_parts[direction][size] += part;
        here.depth += u64::from(command.depth);
        here.service_time += command.service_time;
        self.devices[first.index()].counterfactual[direction][whole] += part;
        self.commands += 1;
        self.accesses += part;
        self.in_flight += u64::from(done.in_flight);
    }

    /// Returns the sizes of reads that would have gone to a device.
    pub(super) fn counterfactual_reads(&self, device: DeviceId) -> impl Iterator<Item = SizeClass> + '_ {
        let sizes = self.devices.get(device.index()).map(|side| &side.counterfactual[0]);
        SizeClass::all().filter(move |size| sizes.is_some_and(|sizes| sizes[size.index()] > 0.0))
    }

    /// Returns the cost with and without moves; `None` if some device has no curve yet.
    pub(super) fn estimate(&self, window: Nanos, uses: &[DeviceUse], curves: &[Curves]) -> Option<Estimate> {
        let window = window.as_secs_f64().max(1e-9);
        let all = f64::from(self.commands.max(1));
        let under_way = (self.in_flight as f64 / all).max(1.0);
        let scale = self.scale(uses);
        let (mut took, mut without, mut busiest) = (0.0, 0.0, 0.0f64);
        for ((side, of), curves) in self.devices.iter().zip(uses).zip(curves) {
            let time = |counts: &Counts| -> Option<f64> {
                nonzero_counts(counts)
                    .map(|(write, size, n)| Some(n * curves.service_time(write, size)?))
                    .sum()
            };
            let busy = of.busy.as_secs_f64() / window;
            let shift = scale * (time(&side.counterfactual)? - time(&side.actual)?) / window;
            let would_be = (busy - of.mover_busy.as_secs_f64() / window + shift).max(0.0);
            busiest = busiest.max(would_be);
            let depth = (side.depth as f64 / sum(&side.actual).max(1.0)).max(1.0);
            let grows = (1.0 - busy.min(UTILIZATION_MAX)) / (1.0 - would_be.min(UTILIZATION_MAX));
            let deeper = (depth * grows).clamp(1.0, depth.max(under_way));
            let price = |counts: &Counts, depth: f64| -> Option<f64> {
                nonzero_counts(counts)
                    .map(|(write, size, n)| Some(n * curves.response(write, size, depth)?))
                    .sum()
            };
            took += price(&side.access_parts, depth)?;
            without += price(&side.counterfactual, deeper)?;
        }
        took += COMMAND_OVERHEAD * (f64::from(self.commands) - self.accesses).max(0.0);
        if busiest > 1.0 {
            without = without.max(busiest * took);
        }
        Some(Estimate {
            commands: self.accesses.round() as u64,
            cost: Nanos::from_secs_f64(took),
            counterfactual_cost: Nanos::from_secs_f64(without),
        })
    }

    /// Returns the ratio of the device time of all clients' commands to that of the sample.
    fn scale(&self, uses: &[DeviceUse]) -> f64 {
        let sampled: f64 = self.devices.iter().map(|side| side.service_time.as_secs_f64()).sum();
        let all: f64 = uses.iter().map(|of| of.busy.since(of.mover_busy).as_secs_f64()).sum();
        if sampled > 0.0 { all / sampled } else { 0.0 }
    }
}
