//! The real engine in the simulated world, beside the oracle.
//!
//! [`Driver::run`] carries out a history step by step. It plays every part around the engine: the
//! clients that ask, the reactor that carries commands to devices and answers back, the operator
//! who stops and opens the pool. Each answer goes past the oracle.

use crate::net::Front;
use crate::{DeviceSpec, Fault, Moment, Oracle, Place, Seed, Statistics, Stop, Strike, Ticket, Trait, World};
use rustc_hash::{FxHashMap, FxHashSet};
use weir_engine::{Activity, DeviceState, DurableWrites, FlushRules, Percent, WhenFull};
use weir_map::{Hardening, Superblock, Whole};
use weir_model::{
    Buffer, Bytes, DeviceId, DeviceSet, ExtentSize, IoDone, Nanos, Op, Planted, RequestId, VolumeId,
};
use weir_policy::harm::Moves;

mod absence;
mod armed;
mod audit;
mod commands;
mod copies;
pub(crate) mod errors;
mod failure;
pub(crate) mod kept;
pub(crate) mod lifecycle;
mod metadata_room;
mod requests;
pub(crate) mod rot;
mod step;
mod stop;
mod tune;
mod usage;

pub(crate) use absence::Absence;
pub(crate) use armed::Armed;
pub use commands::{Order, Submission};
pub(crate) use copies::Copies;
use copies::Opened;
pub use failure::Failure;
pub use step::{Again, Ask, Crash, HistoryStep, Lose, Replace, Tune};

/// Everything a history starts from.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Decides every random choice of the world.
    pub seed: Seed,
    /// The pool's extent size.
    pub extent: ExtentSize,
    /// The placement policy, by name.
    pub policy: String,
    /// The pool's devices; the first one carries the map.
    pub devices: Vec<DeviceSpec>,
    /// Pages of the journal ring.
    pub journal_pages: u64,
    /// Pages for the map behind it.
    pub meta_pages: u64,
    /// Whether the second device carries the map as well as the first one.
    pub mirrored: bool,
    /// The volumes.
    pub volumes: Vec<VolumeSpec>,
    /// When a device that does not answer is given up.
    pub deadline: Nanos,
    /// What becomes of writes when there is no space.
    pub when_full: WhenFull,
    /// Of each device's time, what moves may take while clients use it.
    pub mover_share: Percent,
    /// What may be taken beyond one place an extent; without a bound: anything.
    pub extra: Option<Percent>,
    /// How long clients must ask for nothing before extents in pieces are put together, if they ever are.
    pub quiet: Option<Nanos>,
    /// Memory for whole extents; none: no extent cache.
    pub extent_cache: Bytes,
    /// Whether policies' moves are judged, and how.
    pub moves: Moves,
    /// How devices are flushed that no client asks to be.
    pub flushes: FlushRules,
    /// Buffer memory.
    pub memory: Bytes,
    /// Most requests under way at once.
    pub depth: usize,
    /// How devices carry out durable writes.
    pub durable_writes: DurableWrites,
    /// Whether devices are verified before FLUSH is answered: only then may one be truncated.
    pub verified: bool,
    /// For mutation testing.
    pub planted: Planted,
    /// The server before the pool, and its clients, if requests go through it.
    pub served: Option<Front>,
}

/// A volume to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its size.
    pub size: Bytes,
    /// When the map's part of its writes is durable.
    pub hardening: Hardening,
    /// Copies kept of every block.
    pub copies: u8,
    /// Its own placement policy, if it has one.
    pub policy: Option<&'static str>,
}

/// A pool in the simulated world.
pub struct Driver {
    setup: Setup,
    world: World,
    engine: Opened,
    oracle: Oracle,
    volumes: Vec<Volume>,
    /// Extents told to keep their space: volume and offset.
    kept: FxHashSet<(usize, u64)>,
    /// What later writes are promised of it.
    kept_space: kept::Kept,
    /// Volumes that were replaced while requests were under way: when, and how many extents each may
    /// have held.
    gone: Vec<(Ticket, u64)>,
    /// The devices' superblocks, as they were created.
    layout: Vec<Superblock>,
    /// Extents all devices have for data.
    room: u64,
    health: Health,
    /// Devices that failed something since they were last mended.
    failing: DeviceSet,
    /// Devices that were truncated, and when.
    truncated: Vec<(DeviceId, Ticket)>,
    /// Devices on which reads failed since they were last mended.
    unreadable: DeviceSet,
    under_way: FxHashMap<RequestId, UnderWay>,
    requests: u64,
    admins: u64,
    names: u64,
    done: Vec<IoDone>,
    armed: Armed,
    copies: Copies,
    /// A jump of the clock to come, and after how many more events.
    jump: Option<(u64, Nanos)>,
    /// A volume on its way out, and the one to come in its place.
    replacing: Option<Replacing>,
    /// The engine is the one that runs now, not one that has stopped.
    is_serving: bool,
    /// Commands under way.
    commands: Option<commands::Commands>,
    /// Writes may go astray.
    astray: bool,
    /// What is left out when the pool is opened.
    absence: Absence,
    /// By volume: whether every request must succeed, whatever is left out. Nothing: none must.
    redundant: Vec<bool>,
    /// How often all volumes were read.
    checks: u64,
    /// Of a copy: nothing has failed or deceived that could explain a root that leads nowhere.
    has_sound_roots: bool,
    /// Of a copy: metadata members may have failed before it crashed, and no other device.
    was_broken: bool,
    /// Whether policies have changed: what earlier ones put in second places is still there.
    has_moved: bool,
    /// A volume whose hardening is being changed, and to what.
    hardening: Option<(usize, Hardening)>,
    /// Whether a device has done something without telling anybody.
    deceived: bool,
    /// What the pool is like.
    traits: Vec<Trait>,
    /// Who had each extent of the devices when last looked at.
    owners: FxHashMap<Whole, VolumeId>,
    answered_since_crash: u64,
    /// Events since anything came to its end.
    idle_events: u32,
    statistics: Statistics,
}

/// What the devices have suffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Whole,
    /// Some device may fail.
    Broken,
    /// The pool does not open any more, because of a device that fails.
    Dead,
}

#[derive(Clone)]
pub(crate) struct Volume {
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) spec: VolumeSpec,
}

#[derive(Clone)]
struct Replacing {
    volume: usize,
    new: String,
    removed: bool,
}

struct UnderWay {
    ask: Ask,
    ticket: Ticket,
    buffer: Option<Buffer>,
    since: Nanos,
    /// Of a read while devices fail.
    holders: Option<errors::Holders>,
}

impl UnderWay {
    const fn place(&self) -> Place {
        let Ask { volume, offset, len, .. } = self.ask;
        Place { volume, offset, len }
    }
}

impl Driver {
    /// A new pool with its volumes, idle.
    pub fn new(setup: Setup) -> Result<Self, Failure> {
        let mut world = World::new(setup.seed, setup.memory, &setup.devices)?;
        let layout = lifecycle::create_pool(&mut world, &setup)?;
        let engine = lifecycle::open_pool(&mut world, &setup, false, Absence::default())?;
        let mut driver = Self {
            oracle: lifecycle::oracle(&setup.volumes),
            world,
            engine: Opened::of(engine),
            volumes: Vec::new(),
            kept: FxHashSet::default(),
            kept_space: kept::Kept::default(),
            gone: Vec::new(),
            room: layout.iter().map(|superblock| u64::from(superblock.data_extents)).sum(),
            layout,
            health: Health::Whole,
            failing: DeviceSet::default(),
            truncated: Vec::new(),
            unreadable: DeviceSet::default(),
            under_way: FxHashMap::default(),
            requests: 0,
            admins: 0,
            names: 0,
            done: Vec::new(),
            armed: Armed::default(),
            copies: Copies::default(),
            jump: None,
            replacing: None,
            is_serving: true,
            commands: None,
            astray: false,
            absence: Absence::default(),
            redundant: Vec::new(),
            checks: 0,
            has_sound_roots: false,
            was_broken: false,
            has_moved: false,
            hardening: None,
            deceived: false,
            traits: Trait::of(&setup),
            owners: FxHashMap::default(),
            answered_since_crash: 0,
            idle_events: 0,
            statistics: Statistics { runs: 1, ..Statistics::default() },
            setup,
        };
        for (number, spec) in driver.setup.volumes.clone().into_iter().enumerate() {
            let volume = driver.create_volume(format!("volume{number}"), spec)?;
            driver.volumes.push(volume);
        }
        Ok(driver)
    }

    /// Carries out a history, then waits for every answer and checks all volumes, before and
    /// after a restart.
    pub fn run(&mut self, steps: &[HistoryStep]) -> Result<(), Failure> {
        for step in steps {
            self.step(step)?;
        }
        self.end()
    }

    /// Waits for every answer and checks all volumes, before and after a restart. A crash that has
    /// not come by then does not come.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.armed.disarm();
        [HistoryStep::Check, HistoryStep::Audit, HistoryStep::Restart, HistoryStep::Check]
            .iter()
            .try_for_each(|step| self.step(step))
    }

    /// What has been done so far.
    #[must_use]
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// A number that two runs share only if the same happened in both.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.world.digest() ^ self.copies.digest()
    }

    /// Carries out one step; does nothing once the pool does not open because of broken devices.
    pub fn step(&mut self, step: &HistoryStep) -> Result<(), Failure> {
        let revives = matches!(step, HistoryStep::Crash(crash) if crash.how == Stop::PowerCut);
        if self.health == Health::Dead && !revives {
            return Ok(());
        }
        let result = self.begin(step);
        match self.armed.ended(&result) {
            Some(crash) => self.crash(&crash),
            None => result,
        }
    }

    fn begin(&mut self, step: &HistoryStep) -> Result<(), Failure> {
        self.idle_events = 0;
        match step {
            HistoryStep::Ask(ask) => self.ask(*ask),
            HistoryStep::Wait(answers) => self.wait(*answers),
            HistoryStep::Pass(time) => self.pass(*time),
            HistoryStep::Jump { after: 0, time } => {
                // Two without a look at what was answered between them would be one pause, not two.
                self.pass(Nanos(0))?;
                self.jump(*time);
                Ok(())
            }
            HistoryStep::Jump { after, time } => {
                self.jump = Some((*after, *time));
                Ok(())
            }
            HistoryStep::Replace(replace) => self.replace(replace),
            HistoryStep::Tell(all) => self.submit_all(all),
            HistoryStep::Break(device, fault) => {
                self.break_device(DeviceId((device % self.world.devices()) as u8), fault.clone());
                Ok(())
            }
            HistoryStep::Crash(crash) if self.health == Health::Dead => Err(self.armed.now(crash)),
            HistoryStep::Crash(crash) => self.armed.arm(crash),
            HistoryStep::CrashCopy(crash) => {
                self.copies.arm(crash);
                self.crash_copies()
            }
            HistoryStep::CrashCopyDuring(activity, crash) => {
                self.copies.arm_for(*activity, crash);
                self.crash_copies()
            }
            HistoryStep::Restart => self.restart(),
            HistoryStep::Check => self.check(),
            HistoryStep::Audit => self.audit(),
            HistoryStep::Lose(lose) => self.lose(lose),
            HistoryStep::Tune(tune) => self.tune(tune),
            HistoryStep::Net(_) => Ok(()),
        }
    }

    fn break_device(&mut self, device: DeviceId, fault: Fault) {
        if let Fault::Truncate { .. } = fault {
            return self.truncate(device, fault);
        }
        let Fault::Astray { further, chance, times, .. } = fault else {
            // Of a device that fails while another one deceives nothing could be promised.
            if !self.deceives() {
                self.world.break_device(device, fault);
                self.health = Health::Broken;
                self.kept_space.forget_all();
            }
            return;
        };
        if self.health == Health::Whole {
            let superblock = &self.layout[device.index()];
            let range = rot::astray_range(superblock, self.setup.mirrored);
            self.world.break_device(device, Fault::Astray { range, further, chance, times });
            (self.astray, self.deceived) = (true, true);
        }
    }

    /// Whether a device may deceive, or has, so that metadata is not what was written.
    fn deceives(&mut self) -> bool {
        self.astray || (self.deceived && !self.spoilt_metadata().is_empty())
    }

    /// A device is truncated. Where that would not be noticed it is gone instead: it is not verified, or the
    /// superblock in its last page is perhaps being written at this moment.
    fn truncate(&mut self, device: DeviceId, fault: Fault) {
        if self.deceives() {
            return;
        }
        self.health = Health::Broken;
        self.kept_space.forget_all();
        if !self.setup.verified || self.engine.is_recording() {
            return self.world.break_device(device, Fault::Vanish { at: Nanos(0) });
        }
        self.world.break_device(device, fault);
        self.struck(Strike::Truncated);
        self.failing.insert(device);
        self.truncated.push((device, self.oracle.latest()));
    }

    /// Nothing of a volume with one copy is acknowledged as durable that was asked for after a device was
    /// truncated: of what was durable before, some is gone.
    fn check_truncated(&self, request: &UnderWay) -> Result<(), Failure> {
        let UnderWay { ask, ticket, .. } = request;
        let claims = ask.op == Op::Flush || (ask.fua && ask.op.changes());
        let single = self.volumes[ask.volume].spec.copies < 2;
        let mut truncated = self.truncated.iter().filter(|(_, at)| claims && single && at < ticket);
        match truncated.find(|(device, _)| self.is_noticeable(*device)) {
            Some((device, _)) => Err(Failure::Truncated { ask: *ask, device: *device }),
            None => Ok(()),
        }
    }

    /// Whether it could be noticed that a device was truncated: its last page can be read, and it is not lost
    /// for another reason.
    fn is_noticeable(&self, device: DeviceId) -> bool {
        let status = self.engine.status();
        let state = status.devices.get(device.index()).map(|device| device.state);
        let is_lost = matches!(state, Some(DeviceState::Lost { why, .. }) if !why.is_damage());
        !is_lost && !self.unreadable.contains(device)
    }

    fn jump(&mut self, time: Nanos) {
        self.struck(Strike::TimeJump);
        self.world.jump(time);
    }

    /// An event has passed: the armed crash comes nearer.
    fn burn(&mut self) -> Result<(), Failure> {
        if let Some((left, time)) = self.jump.take() {
            match left {
                0 | 1 => self.jump(time),
                _ => self.jump = Some((left - 1, time)),
            }
        }
        self.copies.burn();
        self.crash_copies()?;
        self.armed.burn()
    }

    /// What has struck commands, which the engine still takes to be under way.
    fn note_strikes(&mut self) {
        if self.health != Health::Whole || self.astray {
            for (device, strike) in self.world.struck() {
                self.struck(strike);
                if !strike.is_silent() {
                    self.failing.insert(device);
                }
                if matches!(strike, Strike::ReadError | Strike::ReadErrors) {
                    self.unreadable.insert(device);
                }
            }
        }
    }

    /// Something happened to the pool, at this moment.
    fn struck(&mut self, strike: Strike) {
        let mut idle = true;
        for activity in Activity::ALL {
            if self.engine.is_doing(activity) {
                idle = false;
                self.note_hit(strike, Moment::Doing(activity));
            }
        }
        if idle {
            self.note_hit(strike, Moment::Idle);
        }
    }

    fn note_hit(&mut self, strike: Strike, moment: Moment) {
        *self.statistics.hits.entry((strike, moment)).or_default() += 1;
        for of in &self.traits {
            *self.statistics.triples.entry((strike, moment, *of)).or_default() += 1;
        }
    }
}
