//! Histories from seeds: what to do to which pool, for tests and for long campaigns.
//!
//! A seed gives a [`History`]: plain data that can be run, printed, [shrunk](shrink) and run again.

mod ask;
mod audits;
mod commands;
pub(crate) mod copies;
pub(crate) mod faults;
mod report;
mod setup;
mod shrink;

pub use shrink::{Shrunk, shrink};

use crate::driver::{Again, Ask, Crash, Failure, HistoryStep, Replace, Setup};
use crate::{Driver, Rng, Seed, Statistics, Stop};
use faults::{astray, breaking, leap, unreadable};
pub(crate) use setup::setup;
use weir_model::{BLOCK, Bytes, ExtentSize, Nanos, Op, VolumeOffset};

/// What histories are to be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryKind {
    /// Requests between one crash and the next, on average; without crashes, of the whole history.
    pub requests: u64,
    /// Power cuts and kills.
    pub crashes: u64,
    /// Power losses in copies of the pool, for each of its own, on average.
    pub copies: u64,
    /// Whether devices fail.
    pub faults: bool,
    /// Whether devices damage what is on them, telling nobody.
    pub rot: bool,
    /// Several volumes of one extent each fight over less space than they need, so that what one
    /// gives up another one gets at once.
    pub crowded: bool,
    /// Volumes of hundreds of extents, written a block here and there and trimmed all over: frames and
    /// maps of many pages, in a metadata area that the map can outgrow; or as many small ones, each of
    /// which takes a page of the map once it is written to.
    pub wide: bool,
    /// Extents of 512 KiB to 4 MiB, of which there are few.
    pub large: bool,
    /// Volumes that do not end with a whole block.
    pub odd: bool,
    /// Whether the devices are looked at, and lost for good in copies of the pool.
    pub audits: bool,
    /// At least so many devices.
    pub devices_min: u64,
    /// At least so many volumes.
    pub volumes_min: u64,
}

impl HistoryKind {
    /// No more than requests, restarts and volumes that come and go.
    #[must_use]
    pub const fn calm(requests: u64) -> Self {
        Self {
            requests,
            crashes: 0,
            copies: 0,
            faults: false,
            rot: false,
            crowded: false,
            wide: false,
            large: false,
            odd: false,
            audits: false,
            devices_min: 1,
            volumes_min: 1,
        }
    }

    /// What a campaign does with this seed: something of everything, long and crash after crash.
    #[must_use]
    pub fn of(seed: Seed) -> Self {
        let mut rng = Rng::new(seed).fork();
        let crowded = rng.chance(0.15);
        let wide = !crowded && rng.chance(0.05);
        let kinds = [(true, false), (false, false), (true, false), (false, true), (false, false)];
        let (faults, rot) = pick(&mut rng, &kinds);
        let crashes = if wide { 12 } else { 50 };
        Self { crowded, wide, faults, rot, devices_min: 3, volumes_min: 2, ..Self::crashing(crashes, 350) }
    }

    /// So many crashes with so many requests before each.
    #[must_use]
    pub const fn crashing(crashes: u64, requests: u64) -> Self {
        Self { crashes, copies: 3, ..Self::calm(requests) }
    }
}

/// A pool, and what is done to it.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The pool.
    pub setup: Setup,
    /// What is done.
    pub steps: Vec<HistoryStep>,
}

/// What came of a history.
#[derive(Debug)]
pub struct Outcome {
    /// The failure, and how many steps had been begun by then.
    pub failure: Option<(Failure, usize)>,
    /// What was gone through.
    pub statistics: Statistics,
    /// Two runs have the same only if the same happened in both.
    pub digest: u64,
}

impl History {
    /// The history that belongs to a seed.
    #[must_use]
    pub fn new(seed: Seed, kind: &HistoryKind) -> Self {
        let mut rng = Rng::new(seed);
        let setup = setup(&mut rng, seed, kind);
        let mut steps = Vec::new();
        let largest = setup.volumes.iter().map(|volume| volume.size).max().unwrap_or_default();
        let extents = largest.0.div_ceil(setup.extent.bytes().0);
        let volumes = setup.volumes.len() as u64;
        let maker = Maker { kind, extent: setup.extent, extents, volumes };
        let mut apart = audits::rng(seed);
        if kind.crashes == 0 {
            maker.some_requests(&mut rng, kind.requests, &mut steps);
        }
        for _ in 0..kind.crashes {
            let requests = kind.requests * 3 / 4 + rng.below(kind.requests / 2 + 1);
            maker.some_requests(&mut rng, requests, &mut steps);
            maker.audits(&mut apart, &mut steps);
            maker.crash(&mut rng, &mut steps);
            // Without looking at everything, much stays undecided until the next crash.
            if rng.below(if kind.wide { 4 } else { 2 }) == 0 {
                steps.push(HistoryStep::Check);
            }
        }
        maker.commands(seed, &mut steps);
        copies::among(&mut steps, seed, kind.copies as f64 / kind.requests as f64);
        Self { setup, steps }
    }

    /// Runs it. A panic of the engine counts as a failure of the history.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let mut begun = 0;
        let run = std::panic::AssertUnwindSafe(|| self.run_counting(&mut begun));
        std::panic::catch_unwind(run).unwrap_or_else(|panic| {
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

/// Picks one of several, each as often as the number beside it says.
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

/// From `least` to `most`.
pub(crate) fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below((most + 1).saturating_sub(least))
}

struct Maker<'a> {
    kind: &'a HistoryKind,
    extent: ExtentSize,
    /// Of the largest volume.
    extents: u64,
    volumes: u64,
}

impl Maker<'_> {
    fn some_requests(&self, rng: &mut Rng, requests: u64, steps: &mut Vec<HistoryStep>) {
        for _ in 0..requests {
            steps.push(HistoryStep::Ask(self.ask(rng)));
            while rng.below(6) == 0 {
                self.interlude(rng, steps);
            }
        }
    }

    /// What happens between requests.
    fn interlude(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
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
            7 => HistoryStep::Break(rng.below(4) as usize, astray(rng)),
            6 => HistoryStep::Jump { after: 0, time: leap(rng) },
            _ => breaking(rng),
        };
        steps.push(step);
    }

    /// A volume makes way for another one, and perhaps something happens to the pool before or meanwhile.
    fn replace(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) -> HistoryStep {
        let asks = match weighted(rng, &[(3, 0), (3, 1), (1, 2), (1, 3), (1, 4)]) {
            0 => 0,
            1 => between(rng, 1, 8),
            2 => {
                steps.push(HistoryStep::Jump { after: between(rng, 1, 12), time: leap(rng) });
                0
            }
            3 if self.kind.faults => {
                steps.push(HistoryStep::Break(rng.below(4) as usize, unreadable(rng)));
                8
            }
            _ => {
                steps.extend(self.breakage(rng));
                (0..4).for_each(|_| steps.push(HistoryStep::Ask(self.ask(rng))));
                8
            }
        };
        let volume = rng.below(self.volumes) as usize;
        HistoryStep::Replace(Replace { volume, meanwhile: self.asks(rng, asks) })
    }

    fn asks(&self, rng: &mut Rng, asks: u64) -> Vec<Ask> {
        (0..asks).map(|_| self.ask(rng)).collect()
    }

    /// A device begins to fail or to deceive, if any may.
    fn breakage(&self, rng: &mut Rng) -> Option<HistoryStep> {
        match (self.kind.faults, self.kind.rot) {
            (true, _) => Some(breaking(rng)),
            (false, true) => Some(HistoryStep::Break(rng.below(4) as usize, astray(rng))),
            (false, false) => None,
        }
    }

    /// Many extents change, and one flush asks for all of it: a frame of several sectors, which a crash
    /// can tear.
    fn storm(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        for _ in 0..between(rng, 30, 60) {
            let volume = rng.below(self.volumes) as usize;
            let offset = VolumeOffset(rng.below(self.extents) * self.extent.bytes().0 + rng.below(8) * BLOCK);
            let op = weighted(rng, &[(6, Op::Write), (1, Op::Trim), (1, Op::WriteZeroes { no_hole: false })]);
            steps.push(HistoryStep::Ask(Ask { volume, op, offset, len: Bytes(BLOCK), fua: false }));
        }
        let volume = rng.below(self.volumes) as usize;
        steps.push(HistoryStep::Ask(Ask {
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
        let how = weighted(rng, &[(5, Stop::PowerCut), (1, Stop::Kill)]);
        let again = again(rng, how);
        let rot = (self.kind.rot && rng.chance(0.95)).then(|| rng.word());
        if how == Stop::Kill && rng.chance(0.8) {
            // Only a power cut ends it: the pool is opened with it.
            steps.extend(self.breakage(rng));
        }
        if quiet {
            steps.push(HistoryStep::Wait(usize::MAX));
        } else if rng.chance(if self.kind.wide { 0.5 } else { 0.15 }) {
            self.storm(rng, steps);
        }
        steps.push(HistoryStep::Crash(Crash { after, how, rot, again }));
        if replaced {
            let volume = rng.below(self.volumes) as usize;
            let asks = pick(rng, &[0, 4]);
            steps.push(HistoryStep::Replace(Replace { volume, meanwhile: self.asks(rng, asks) }));
        }
    }
}

/// What else happens while the pool is opened. After a kill more often: what it left in the devices'
/// caches, and what a failed opening put there, is lost only with the power.
fn again(rng: &mut Rng, first: Stop) -> Vec<Again> {
    let (times, kills) = match first {
        Stop::PowerCut => (weighted(rng, &[(14, 0), (4, 1), (1, 2)]), 0.1),
        Stop::Kill => (weighted(rng, &[(4, 0), (3, 1), (2, 2)]), 0.4),
    };
    let stop = |rng: &mut Rng| {
        let write = between(rng, 1, 12);
        Again { write, how: if rng.chance(kills) { Stop::Kill } else { Stop::PowerCut } }
    };
    (0..times).map(|_| stop(rng)).collect()
}
