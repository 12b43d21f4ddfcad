//! Histories from seeds: what to do to which pool, for tests and for long campaigns.
//!
//! A seed gives a [`History`]: plain data that can be run, printed, [shrunk](shrink) and run again.

mod ask;
mod report;
mod shrink;

pub use shrink::{Shrunk, shrink};

use crate::driver::{Again, Ask, Crash, Failure, Replace, Setup, Step, VolumeSpec};
use crate::fault::{EDQUOT, EIO, ENOSPC};
use crate::{DeviceSpec, Driver, Fault, Kinds, Pace, Rng, Seed, Statistics, Stop};
use weir_engine::{DurableWrites, FlushRules, Percent, WhenFull};
use weir_map::Hardening;
use weir_model::{BLOCK, Bytes, DeviceOffset, ExtentSize, Nanos, Op, Planted, VolumeOffset};
use weir_policy::harm::{Moves, Rules};

/// What histories are to be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Requests between one crash and the next, on average; without crashes, of the whole history.
    pub requests: u64,
    /// Power cuts and kills.
    pub crashes: u64,
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
    /// At least so many devices.
    pub devices_min: u64,
    /// At least so many volumes.
    pub volumes_min: u64,
}

impl Kind {
    /// No more than requests, restarts and volumes that come and go.
    #[must_use]
    pub const fn calm(requests: u64) -> Self {
        Self {
            requests,
            crashes: 0,
            faults: false,
            rot: false,
            crowded: false,
            wide: false,
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
        Self { crashes, ..Self::calm(requests) }
    }
}

/// A pool, and what is done to it.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The pool.
    pub setup: Setup,
    /// What is done.
    pub steps: Vec<Step>,
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
    pub fn new(seed: Seed, kind: &Kind) -> Self {
        let mut rng = Rng::new(seed);
        let setup = setup(&mut rng, seed, kind);
        let mut steps = Vec::new();
        let largest = setup.volumes.iter().map(|volume| volume.size).max().unwrap_or_default();
        let extents = largest.0.div_ceil(setup.extent.bytes().0);
        let volumes = setup.volumes.len() as u64;
        let maker = Maker { kind, extent: setup.extent, extents, volumes };
        if kind.crashes == 0 {
            maker.some_requests(&mut rng, kind.requests, &mut steps);
        }
        for _ in 0..kind.crashes {
            let requests = kind.requests * 3 / 4 + rng.below(kind.requests / 2 + 1);
            maker.some_requests(&mut rng, requests, &mut steps);
            maker.crash(&mut rng, &mut steps);
            // Without looking at everything, much stays undecided until the next crash.
            if rng.below(if kind.wide { 4 } else { 2 }) == 0 {
                steps.push(Step::Check);
            }
        }
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
    fn failed(failure: Failure, begun: usize) -> Self {
        Self { failure: Some((failure, begun)), statistics: Statistics::default(), digest: 0 }
    }
}

/// Picks one of several, each as often as the number beside it says.
fn weighted<T: Copy>(rng: &mut Rng, choices: &[(u64, T)]) -> T {
    let mut at = rng.below(choices.iter().map(|choice| choice.0).sum());
    let found = choices.iter().find(|(weight, _)| {
        let here = at < *weight;
        at = at.saturating_sub(*weight);
        here
    });
    found.unwrap_or(&choices[0]).1
}

fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

/// From `least` to `most`.
fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below((most + 1).saturating_sub(least))
}

/// Extents of a wide volume at most, and of a device under it.
const WIDE: u64 = 600;

/// Tiny devices, so that space runs out, under volumes that promise more than there is; a short
/// journal, so that it goes around often.
fn setup(rng: &mut Rng, seed: Seed, kind: &Kind) -> Setup {
    let (crowd, wide) = (kind.crowded, kind.wide);
    let kib = if wide { 64 } else { weighted(rng, &[(16, 64), (3, 128), (1, 256)]) };
    let bytes = kib << 10;
    let devices = if crowd { kind.devices_min } else { between(rng, kind.devices_min, kind.devices_min + 2) };
    let many = wide && rng.chance(0.5);
    let volumes = match (crowd, many) {
        (true, _) => between(rng, 3, 4),
        (_, true) => between(rng, 100, 140),
        _ => between(rng, kind.volumes_min, kind.volumes_min + 2),
    };
    let (journal_pages, meta_pages) = (between(rng, 8, 40), between(rng, 108, 140));
    let mirrored = devices > 1 && rng.chance(0.4);
    let device = |rng: &mut Rng, number: u64| {
        let extents = match (crowd, wide) {
            (true, _) => between(rng, 1, 2),
            (_, true) => between(rng, WIDE / 2, WIDE),
            _ => between(rng, 1, 10),
        };
        let pace = match rng.below(8) {
            0 => Pace::Model(pick(rng, &weir_timing::NAMES).to_owned()),
            _ => Pace::Random(Nanos::micros(between(rng, 1, 2000))),
        };
        let before = if number == 0 || (number == 1 && mirrored) {
            (192 << 10) + (journal_pages + meta_pages) * BLOCK
        } else {
            bytes
        };
        let size = before.next_multiple_of(bytes) + extents * bytes + BLOCK;
        let write_cache = rng.chance(0.8);
        DeviceSpec {
            size: Bytes(size),
            pace,
            write_cache,
            sector: pick(rng, &[512, 512, 4096]),
            faults: vec![],
        }
    };
    // Two copies need a map on two devices. Drawn apart, so that all else is as it is without them.
    let mut apart = Rng::new(seed).fork().fork();
    let mut own = apart.fork();
    let chance = if mirrored && apart.chance(0.5) { 0.7 } else { 0.0 };
    let mut volume = |rng: &mut Rng| {
        let size = match (crowd, rng.below(4)) {
            (true, _) => Bytes(bytes),
            _ if many => Bytes(between(rng, 1, 3) * bytes),
            _ if wide => Bytes(between(rng, WIDE / 2, WIDE) * bytes),
            // Often one that ends within an extent.
            (false, 0) => Bytes(between(rng, 1, 6) * bytes + rng.below(bytes / BLOCK) * BLOCK),
            (false, _) => Bytes(between(rng, 1, 8) * bytes),
        };
        let hardening = pick(rng, &[Hardening::Flush, Hardening::Flush, Hardening::Write]);
        let copies = if apart.chance(chance) { 2 } else { 1 };
        let policy = if own.chance(0.2) { Some(policy(&mut own)) } else { None };
        VolumeSpec { size, hardening, copies, policy }
    };
    // Of a few extents, so that they make way for one another.
    let mut cached = Rng::new(Seed(!seed.0));
    let extent_cache = if cached.chance(0.25) { Bytes(between(&mut cached, 1, 8) * bytes) } else { Bytes(0) };
    // Drawn apart, too.
    let moves = moves(&mut Rng::new(Seed(seed.0.rotate_left(32))));
    let mut spread = Rng::new(Seed(seed.0.rotate_left(48)));
    let extra = weighted(&mut spread, &[(4, None), (1, Some(Percent(1))), (1, Some(Percent(20)))]);
    // So short that it is quiet between two requests, or while one waits.
    let micros = between(&mut spread, 1, 20_000);
    let quiet = weighted(&mut spread, &[(2, None), (1, Some(Nanos::micros(micros)))]);
    let flushes = flushes(&mut Rng::new(Seed(seed.0.rotate_left(16))));
    let mut files = Rng::new(Seed(seed.0.rotate_left(48)));
    let patience = WhenFull::Wait { at_most: Nanos::micros(between(rng, 1, 50_000)) };
    Setup {
        seed,
        extent: ExtentSize::new(Bytes(bytes)).expect("a power of two from 64 KiB to 4 MiB"),
        policy: in_two_copies(policy(rng), seed).to_owned(),
        devices: (0..devices).map(|number| device(rng, number)).collect(),
        journal_pages,
        meta_pages,
        mirrored,
        deadline: Nanos::millis(pick(rng, &[3_000, 10_000, 30_000])),
        when_full: weighted(rng, &[(1, WhenFull::Error), (1, patience)]),
        volumes: (0..volumes).map(|_| volume(rng)).collect(),
        // Mostly without a limit, so that much is being moved.
        mover_share: Percent(weighted(rng, &[(3, 100), (1, 20), (1, 1)])),
        extra,
        quiet,
        extent_cache,
        moves,
        flushes,
        // For all that devices that hang may keep of it, and all that may be asked for besides.
        memory: Bytes::mib(32) + extent_cache,
        depth: if crowd { pick(rng, &[16, 32]) } else { pick(rng, &[1, 2, 4, 8, 16, 32]) },
        durable_writes: pick(&mut files, &[DurableWrites::OneCommand, DurableWrites::WriteThenFlush]),
        // Superblocks that rot or go astray are no reason to give a device up.
        verified: files.chance(0.5) && !kind.rot,
        planted: Planted::NONE,
    }
}

/// Mostly moves go on whatever comes of them, so that much is being moved; now and then they are stopped all the time
/// and begin again.
fn moves(rng: &mut Rng) -> Moves {
    let rules = Rules {
        sample: 1,
        window: Nanos::millis(between(rng, 1, 20)),
        commands: between(rng, 1, 8) as u32,
        // Whatever it came to is harm.
        margin: -1.0,
        pause: Nanos::millis(between(rng, 1, 50)),
        longest_pause: Nanos::millis(200),
    };
    weighted(rng, &[(4, Moves::Free(Rules::default())), (1, Moves::default()), (1, Moves::Judged(rules))])
}

/// Half of the time devices are flushed as by default, else most of them beside commits, and not at once.
fn flushes(rng: &mut Rng) -> FlushRules {
    let dear = pick(rng, &[Nanos(0), Nanos::micros(300), Nanos::millis(1)]);
    let patience = pick(rng, &[Nanos(0), Nanos::millis(2), Nanos::millis(50), Nanos::secs(30)]);
    if rng.chance(0.5) { FlushRules::default() } else { FlushRules { dear, patience } }
}

/// Often the one that makes use of everything.
fn policy(rng: &mut Rng) -> &'static str {
    let plain = pick(rng, weir_policy::placement::ALL).name;
    pick(rng, &[plain, plain, "chaos"])
}

/// Half of the pools of `hystor`, and one in eight of the others, keep two copies of what is dirty. Drawn apart, too.
fn in_two_copies(policy: &'static str, seed: Seed) -> &'static str {
    let mut rng = Rng::new(Seed(seed.0.rotate_left(16)));
    let chance = if policy == "hystor" { 0.5 } else { 0.125 };
    if rng.chance(chance) { "hystor-twice" } else { policy }
}

struct Maker<'a> {
    kind: &'a Kind,
    extent: ExtentSize,
    /// Of the largest volume.
    extents: u64,
    volumes: u64,
}

impl Maker<'_> {
    fn some_requests(&self, rng: &mut Rng, requests: u64, steps: &mut Vec<Step>) {
        for _ in 0..requests {
            steps.push(Step::Ask(self.ask(rng)));
            while rng.below(6) == 0 {
                self.interlude(rng, steps);
            }
        }
    }

    /// What happens between requests.
    fn interlude(&self, rng: &mut Rng, steps: &mut Vec<Step>) {
        let faults = if self.kind.faults { 2 } else { 0 };
        let rot = if self.kind.rot { 1 } else { 0 };
        let step = match weighted(
            rng,
            &[(100, 0), (60, 1), (1, 2), (4, 3), (1, 4), (faults, 5), (1, 6), (rot, 7)],
        ) {
            0 => Step::Wait(between(rng, 1, 8) as usize),
            1 => Step::Pass(Nanos::micros(between(rng, 1, 3000))),
            2 => Step::Check,
            3 => self.replace(rng, steps),
            4 => Step::Restart,
            7 => Step::Break(rng.below(4) as usize, astray(rng)),
            6 => Step::Jump { after: 0, time: leap(rng) },
            _ => breaking(rng),
        };
        steps.push(step);
    }

    /// A volume makes way for another one, and perhaps something happens to the pool before or meanwhile.
    fn replace(&self, rng: &mut Rng, steps: &mut Vec<Step>) -> Step {
        let asks = match weighted(rng, &[(3, 0), (3, 1), (1, 2), (1, 3), (1, 4)]) {
            0 => 0,
            1 => between(rng, 1, 8),
            2 => {
                steps.push(Step::Jump { after: between(rng, 1, 12), time: leap(rng) });
                0
            }
            3 if self.kind.faults => {
                steps.push(Step::Break(rng.below(4) as usize, unreadable(rng)));
                8
            }
            _ => {
                steps.extend(self.breakage(rng));
                (0..4).for_each(|_| steps.push(Step::Ask(self.ask(rng))));
                8
            }
        };
        let volume = rng.below(self.volumes) as usize;
        Step::Replace(Replace { volume, meanwhile: self.asks(rng, asks) })
    }

    fn asks(&self, rng: &mut Rng, asks: u64) -> Vec<Ask> {
        (0..asks).map(|_| self.ask(rng)).collect()
    }

    /// A device begins to fail or to deceive, if any may.
    fn breakage(&self, rng: &mut Rng) -> Option<Step> {
        match (self.kind.faults, self.kind.rot) {
            (true, _) => Some(breaking(rng)),
            (false, true) => Some(Step::Break(rng.below(4) as usize, astray(rng))),
            (false, false) => None,
        }
    }

    /// Many extents change, and one flush asks for all of it: a frame of several sectors, which a crash
    /// can tear.
    fn storm(&self, rng: &mut Rng, steps: &mut Vec<Step>) {
        for _ in 0..between(rng, 30, 60) {
            let volume = rng.below(self.volumes) as usize;
            let offset = VolumeOffset(rng.below(self.extents) * self.extent.bytes().0 + rng.below(8) * BLOCK);
            let op = weighted(rng, &[(6, Op::Write), (1, Op::Trim), (1, Op::WriteZeroes { no_hole: false })]);
            steps.push(Step::Ask(Ask { volume, op, offset, len: Bytes(BLOCK), fua: false }));
        }
        let volume = rng.below(self.volumes) as usize;
        steps.push(Step::Ask(Ask {
            volume,
            op: Op::Flush,
            offset: VolumeOffset(0),
            len: Bytes(0),
            fua: false,
        }));
    }

    fn crash(&self, rng: &mut Rng, steps: &mut Vec<Step>) {
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
            steps.push(Step::Wait(usize::MAX));
        } else if rng.chance(if self.kind.wide { 0.5 } else { 0.15 }) {
            self.storm(rng, steps);
        }
        steps.push(Step::Crash(Crash { after, how, rot, again }));
        if replaced {
            let volume = rng.below(self.volumes) as usize;
            let asks = pick(rng, &[0, 4]);
            steps.push(Step::Replace(Replace { volume, meanwhile: self.asks(rng, asks) }));
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

/// How far the clock jumps.
fn leap(rng: &mut Rng) -> Nanos {
    Nanos::micros(pick(rng, &[1_000, 1_000_000, 3_100_000, 10_500_000, 100_000_000]))
}

/// Writes that go somewhere else, or nowhere.
fn astray(rng: &mut Rng) -> Fault {
    Fault::Astray {
        range: DeviceOffset(0)..DeviceOffset(u64::MAX),
        further: if rng.chance(0.5) { Some(Bytes(between(rng, 1, 200) * BLOCK)) } else { None },
        chance: pick(rng, &[0.1, 1.0]),
        times: between(rng, 1, 3),
    }
}

/// A device begins to fail. Flushes that fail matter most where the map is.
fn breaking(rng: &mut Rng) -> Step {
    let fault = fault(rng);
    let of_flushes = Kinds { flushes: true, ..Kinds::default() };
    let devices = match &fault {
        Fault::Errors { kinds, .. } if *kinds == of_flushes => &[0, 0, 0, 1, 2, 3][..],
        _ => &[0, 1, 2, 3],
    };
    Step::Break(pick(rng, devices), fault)
}

/// A few reads fail.
fn unreadable(rng: &mut Rng) -> Fault {
    Fault::Errors {
        kinds: Kinds { reads: true, ..Kinds::default() },
        range: DeviceOffset(0)..DeviceOffset(u64::MAX),
        chance: 1.0,
        times: between(rng, 1, 3),
        error: EIO,
    }
}

/// Something that goes wrong with a device: a few errors, a pause, or its end.
fn fault(rng: &mut Rng) -> Fault {
    let soon = Nanos::micros(rng.below(20_000));
    let until = Nanos(soon.0 + Nanos::millis(between(rng, 1, 500)).0);
    match weighted(rng, &[(2, 0), (2, 1), (2, 2), (5, 3), (2, 4), (26, 5)]) {
        0 => Fault::Slow { factor: 100, during: soon..until },
        1 => Fault::Hang { during: soon..until },
        2 => Fault::Hang { during: soon..Nanos::MAX },
        // Decided by what was drawn for other faults, so that seeds from before these remain what they were.
        3 if (soon.0 / 1000).is_multiple_of(2) => {
            Fault::Truncate { keep: (soon.0 / 4000 % 1000) as u16, regrow: (soon.0 / 1000).is_multiple_of(4) }
        }
        3 => Fault::Vanish { at: soon },
        4 => Fault::Full { room: Bytes(rng.below(64) * BLOCK) },
        _ => {
            // Rarely asked for flushes fail more often, half of them for good: a device that carries the
            // map is given up after the first one.
            let few = &[1, 1, 2, 3, u64::MAX][..];
            let ((reads, writes, flushes), times) = weighted(
                rng,
                &[
                    (7, ((true, false, false), few)),
                    (6, ((false, true, false), few)),
                    (10, ((false, false, true), &[1, 3, u64::MAX, u64::MAX])),
                    (1, ((true, true, false), few)),
                    (2, ((false, true, true), few)),
                ],
            );
            Fault::Errors {
                kinds: Kinds { reads, writes, flushes },
                range: DeviceOffset(0)..DeviceOffset(u64::MAX),
                chance: pick(rng, &[0.1, 1.0]),
                times: pick(rng, times),
                error: [EIO, EIO, ENOSPC, EDQUOT][(soon.0 / 1000 % 4) as usize],
            }
        }
    }
}
