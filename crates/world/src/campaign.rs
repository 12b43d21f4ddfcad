//! Histories from seeds: pools and the steps to execute, for tests and long campaigns.
//!
//! A seed gives a [`History`]: plain data that can be run, printed, [shrunk](shrink()) and run again.

mod audits;
mod commands;
pub(crate) mod copies;
pub(crate) mod faults;
mod report;
mod requests;
mod setup;
mod shrink;

pub use shrink::{ShrunkHistory, shrink};

use crate::device::BufferChanged;
use crate::driver::{Crash, Failure, HistoryStep, RecoveryCrash, Replacement, RequestSpec, Setup};
use crate::{Driver, Rng, Seed, Statistics, StopKind};
use faults::{draw_clock_jump, draw_device_failure, draw_misdirection, draw_read_errors};
pub(crate) use setup::setup;
use weir_model::{BLOCK, Bytes, ExtentSize, Nanos, Op, VolumeOffset};

/// Characteristics of histories.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryKind {
    /// Mean number of requests between two crashes; without crashes, of the whole history.
    pub requests: u64,
    /// Number of power losses and kills.
    pub crashes: u64,
    /// Mean number of power losses in copies of the pool for each of its own.
    pub copies: u64,
    /// Whether devices fail.
    pub faults: bool,
    /// Whether devices damage data silently.
    pub rot: bool,
    /// Whether several volumes of one extent each compete for less space than they need, so that freed space
    /// is reused at once.
    pub crowded: bool,
    /// Whether volumes have hundreds of extents, written a block here and there and trimmed entirely: frames
    /// and maps of many pages, in a metadata area that the map can outgrow; or there are as many small
    /// volumes, each of which uses a map page once it is written.
    pub many_extents: bool,
    /// Whether there are few extents of 512 KiB to 4 MiB.
    pub large_extents: bool,
    /// Whether volume sizes are not multiples of a block.
    pub odd_sizes: bool,
    /// Whether the devices are audited, and lost permanently in copies of the pool.
    pub audits: bool,
    /// Minimum number of devices.
    pub devices_min: u64,
    /// Minimum number of volumes.
    pub volumes_min: u64,
}

impl HistoryKind {
    /// Only requests, restarts and replacements of volumes.
    #[must_use]
    pub const fn fault_free(requests: u64) -> Self {
        Self {
            requests,
            crashes: 0,
            copies: 0,
            faults: false,
            rot: false,
            crowded: false,
            many_extents: false,
            large_extents: false,
            odd_sizes: false,
            audits: false,
            devices_min: 1,
            volumes_min: 1,
        }
    }

    /// Returns the kind that a campaign uses for this seed: a mix of everything, long, with crash after
    /// crash.
    #[must_use]
    pub fn of(seed: Seed) -> Self {
        let mut rng = Rng::new(seed).fork();
        let crowded = rng.chance(0.15);
        let wide = !crowded && rng.chance(0.05);
        let kinds = [(true, false), (false, false), (true, false), (false, true), (false, false)];
        let (faults, rot) = pick(&mut rng, &kinds);
        let crashes = if wide { 12 } else { 50 };
        Self {
            crowded,
            many_extents: wide,
            faults,
            rot,
            devices_min: 3,
            volumes_min: 2,
            ..Self::with_crashes(crashes, 350)
        }
    }

    /// Returns a kind with this many crashes and requests before each.
    #[must_use]
    pub const fn with_crashes(crashes: u64, requests: u64) -> Self {
        Self { crashes, copies: 3, ..Self::fault_free(requests) }
    }
}

/// A pool, and the steps to execute.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The pool.
    pub setup: Setup,
    /// The steps.
    pub steps: Vec<HistoryStep>,
}

/// The result of a history.
#[derive(Debug)]
pub struct Outcome {
    /// The failure, and the number of steps begun by then.
    pub failure: Option<(Failure, usize)>,
    /// Statistics.
    pub statistics: Statistics,
    /// Digest: equal for two runs only if the same happened in both.
    pub digest: u64,
}

impl History {
    /// Returns the history of a seed.
    #[must_use]
    pub fn new(seed: Seed, kind: &HistoryKind) -> Self {
        let mut rng = Rng::new(seed);
        let setup = setup(&mut rng, seed, kind);
        let mut steps = Vec::new();
        let largest = setup.volumes.iter().map(|volume| volume.size).max().unwrap_or_default();
        let extents = largest.0.div_ceil(setup.extent.bytes().0);
        let volumes = setup.volumes.len() as u64;
        let maker = StepGenerator { kind, extent: setup.extent, extents, volumes };
        let mut apart = audits::rng(seed);
        if kind.crashes == 0 {
            maker.add_requests(&mut rng, kind.requests, &mut steps);
        }
        for _ in 0..kind.crashes {
            let requests = kind.requests * 3 / 4 + rng.below(kind.requests / 2 + 1);
            maker.add_requests(&mut rng, requests, &mut steps);
            maker.audits(&mut apart, &mut steps);
            maker.crash(&mut rng, &mut steps);
            // Without a check of everything, much stays undecided until the next crash.
            if rng.below(if kind.many_extents { 4 } else { 2 }) == 0 {
                steps.push(HistoryStep::Check);
            }
        }
        maker.commands(seed, &mut steps);
        copies::insert_copy_crashes(&mut steps, seed, kind.copies as f64 / kind.requests as f64);
        Self { setup, steps }
    }

    /// Runs the history. A panic of the engine counts as a failure.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let mut begun = 0;
        let run = std::panic::AssertUnwindSafe(|| self.run_counting(&mut begun));
        std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            if let Some(BufferChanged(io)) = panic.downcast_ref() {
                return Outcome::failed(Failure::BufferChanged(*io), begun);
            }
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Outcome::failed(Failure::Panic(text.unwrap_or_default()), begun)
        })
    }

    fn run_counting(&self, begun: &mut usize) -> Outcome {
        if self.setup.served.is_some() {
            return self.run_served(begun);
        }
        let mut driver = match Driver::new(self.setup.clone()) {
            Ok(driver) => driver,
            Err(failure) => return Outcome::failed(failure, 0),
        };
        let mut steps = self.steps.iter();
        let result = steps.try_for_each(|step| {
            *begun += 1;
            driver.step(step)
        });
        let failure = result.and_then(|()| driver.end()).err().map(|failure| (failure, *begun));
        Outcome { failure, statistics: driver.statistics().clone(), digest: driver.digest() }
    }
}

impl Outcome {
    pub(crate) fn failed(failure: Failure, begun: usize) -> Self {
        Self { failure: Some((failure, begun)), statistics: Statistics::default(), digest: 0 }
    }
}

/// Picks one of several values with these weights.
pub(crate) fn weighted<T: Copy>(rng: &mut Rng, choices: &[(u64, T)]) -> T {
    let mut at = rng.below(choices.iter().map(|choice| choice.0).sum());
    let found = choices.iter().find(|(weight, _)| {
        let here = at < *weight;
        at = at.saturating_sub(*weight);
        here
    });
    found.unwrap_or(&choices[0]).1
}

pub(crate) fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

/// Returns a number from `least` to `most`.
pub(crate) fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below((most + 1).saturating_sub(least))
}

struct StepGenerator<'a> {
    kind: &'a HistoryKind,
    extent: ExtentSize,
    /// Number of extents of the largest volume.
    extents: u64,
    volumes: u64,
}

impl StepGenerator<'_> {
    fn add_requests(&self, rng: &mut Rng, requests: u64, steps: &mut Vec<HistoryStep>) {
        for _ in 0..requests {
            steps.push(HistoryStep::Request(self.draw_request(rng)));
            while rng.below(6) == 0 {
                self.draw_step(rng, steps);
            }
        }
    }

    /// Draws a step between requests.
    fn draw_step(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        let faults = if self.kind.faults { 2 } else { 0 };
        let rot = if self.kind.rot { 1 } else { 0 };
        let step = match weighted(
            rng,
            &[(100, 0), (60, 1), (1, 2), (4, 3), (1, 4), (faults, 5), (1, 6), (rot, 7)],
        ) {
            0 => HistoryStep::Wait(between(rng, 1, 8) as usize),
            1 => HistoryStep::Pass(Nanos::micros(between(rng, 1, 3000))),
            2 => HistoryStep::Check,
            3 => self.replace(rng, steps),
            4 => HistoryStep::Restart,
            7 => HistoryStep::Break(rng.below(4) as usize, draw_misdirection(rng)),
            6 => HistoryStep::Jump { after: 0, time: draw_clock_jump(rng) },
            _ => draw_device_failure(rng),
        };
        steps.push(step);
    }

    /// Draws the replacement of a volume, perhaps with a fault before or meanwhile.
    fn replace(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) -> HistoryStep {
        let asks = match weighted(rng, &[(3, 0), (3, 1), (1, 2), (1, 3), (1, 4)]) {
            0 => 0,
            1 => between(rng, 1, 8),
            2 => {
                steps.push(HistoryStep::Jump { after: between(rng, 1, 12), time: draw_clock_jump(rng) });
                0
            }
            3 if self.kind.faults => {
                steps.push(HistoryStep::Break(rng.below(4) as usize, draw_read_errors(rng)));
                8
            }
            _ => {
                steps.extend(self.draw_fault(rng));
                (0..4).for_each(|_| steps.push(HistoryStep::Request(self.draw_request(rng))));
                8
            }
        };
        let volume = rng.below(self.volumes) as usize;
        HistoryStep::Replace(Replacement { volume, meanwhile: self.draw_requests(rng, asks) })
    }

    fn draw_requests(&self, rng: &mut Rng, asks: u64) -> Vec<RequestSpec> {
        (0..asks).map(|_| self.draw_request(rng)).collect()
    }

    /// Draws a device failure or deception, if the kind allows one.
    fn draw_fault(&self, rng: &mut Rng) -> Option<HistoryStep> {
        match (self.kind.faults, self.kind.rot) {
            (true, _) => Some(draw_device_failure(rng)),
            (false, true) => Some(HistoryStep::Break(rng.below(4) as usize, draw_misdirection(rng))),
            (false, false) => None,
        }
    }

    /// Changes many extents, followed by one flush for all of it: a journal frame of several sectors, which a
    /// crash can tear.
    fn add_large_frame(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        for _ in 0..between(rng, 30, 60) {
            let volume = rng.below(self.volumes) as usize;
            let offset = VolumeOffset(rng.below(self.extents) * self.extent.bytes().0 + rng.below(8) * BLOCK);
            let op = weighted(rng, &[(6, Op::Write), (1, Op::Trim), (1, Op::WriteZeroes { no_hole: false })]);
            steps.push(HistoryStep::Request(RequestSpec {
                volume,
                op,
                offset,
                len: Bytes(BLOCK),
                fua: false,
            }));
        }
        let volume = rng.below(self.volumes) as usize;
        steps.push(HistoryStep::Request(RequestSpec {
            volume,
            op: Op::Flush,
            offset: VolumeOffset(0),
            len: Bytes(0),
            fua: false,
        }));
    }

    fn crash(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        let (replaced, quiet) = (rng.chance(0.16), rng.chance(0.05));
        let after = weighted(rng, &[(1, 0), (6, 20), (2, 200)]);
        let after = if quiet { 0 } else { rng.below(after + 1) };
        let how = weighted(rng, &[(5, StopKind::PowerLoss), (1, StopKind::Kill)]);
        let again = draw_recovery_crashes(rng, how);
        let rot = (self.kind.rot && rng.chance(0.95)).then(|| rng.word());
        if how == StopKind::Kill && rng.chance(0.8) {
            // Only a power loss ends it: the pool is opened with the failing device.
            steps.extend(self.draw_fault(rng));
        }
        if quiet {
            steps.push(HistoryStep::Wait(usize::MAX));
        } else if rng.chance(if self.kind.many_extents { 0.5 } else { 0.15 }) {
            self.add_large_frame(rng, steps);
        }
        steps.push(HistoryStep::Crash(Crash { after, kind: how, rot, recovery_crashes: again }));
        if replaced {
            let volume = rng.below(self.volumes) as usize;
            let asks = pick(rng, &[0, 4]);
            steps
                .push(HistoryStep::Replace(Replacement { volume, meanwhile: self.draw_requests(rng, asks) }));
        }
    }
}

/// Draws further stops while the pool is opened. They are more frequent after a kill: what it left in the
/// devices' caches, and what a failed opening put there, is lost only with the power.
fn draw_recovery_crashes(rng: &mut Rng, first: StopKind) -> Vec<RecoveryCrash> {
    let (times, kills) = match first {
        StopKind::PowerLoss => (weighted(rng, &[(14, 0), (4, 1), (1, 2)]), 0.1),
        StopKind::Kill => (weighted(rng, &[(4, 0), (3, 1), (2, 2)]), 0.4),
    };
    let stop = |rng: &mut Rng| {
        let write = between(rng, 1, 12);
        RecoveryCrash { write, kind: if rng.chance(kills) { StopKind::Kill } else { StopKind::PowerLoss } }
    };
    (0..times).map(|_| stop(rng)).collect()
}
