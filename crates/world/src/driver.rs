//! Runs the real engine in the simulated world, checked by the oracle.
//!
//! [`Driver::run`] executes a history step by step. It plays every role around the engine: the clients that
//! send requests, the reactor that passes commands to devices and completions back, the operator who stops
//! and opens the pool. The oracle checks every reply.

use crate::net::ServerSetup;
use crate::{
    DeviceSpec, Fault, FaultKind, Moment, Oracle, Place, Seed, Statistics, StopKind, Ticket, Trait, World,
};
use rustc_hash::{FxHashMap, FxHashSet};
use weir_engine::{Activity, DeviceState, DurableWrites, FlushRules, Percent, WhenFull};
use weir_map::{Hardening, Superblock, Whole};
use weir_model::{
    Buffer, Bytes, DeviceId, DeviceSet, ExtentSize, IoCompletion, Nanos, Planted, RequestId, VolumeId,
};
use weir_policy::harm::MoveControl;

mod absence;
pub(crate) mod audit;
mod commands;
mod copies;
pub(crate) mod errors;
mod failure;
pub(crate) mod lifecycle;
mod metadata_space;
mod pending_crash;
mod requests;
pub(crate) mod rot;
pub(crate) mod space_guarantees;
mod step;
mod stop;
mod tune;
mod usage;

pub(crate) use absence::Absence;
pub use commands::{OperatorCommand, Submission};
pub(crate) use copies::Copies;
use copies::OpenEngine;
pub use failure::Failure;
pub(crate) use pending_crash::PendingCrash;
pub use step::{Crash, DeviceLoss, HistoryStep, RecoveryCrash, Replacement, RequestSpec, SettingChange};

/// The initial state of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Seed of every random choice of the world.
    pub seed: Seed,
    /// Extent size of the pool.
    pub extent: ExtentSize,
    /// Name of the placement policy.
    pub policy: String,
    /// The pool's devices; the first one holds the map.
    pub devices: Vec<DeviceSpec>,
    /// Number of pages of the journal ring.
    pub journal_pages: u64,
    /// Number of pages for the map behind it.
    pub meta_pages: u64,
    /// Whether the second device holds the map as well.
    pub mirrored: bool,
    /// The volumes.
    pub volumes: Vec<VolumeSpec>,
    /// Time after which a device that does not respond is given up.
    pub deadline: Nanos,
    /// Behaviour of writes when there is no space.
    pub when_full: WhenFull,
    /// Share of each device's time that the mover may use while clients use the device.
    pub mover_share: Percent,
    /// Space that may be used beyond one location per extent; `None`: unlimited.
    pub extra: Option<Percent>,
    /// Idle time of the clients after which fragmented extents are made whole; `None`: never.
    pub quiet: Option<Nanos>,
    /// Memory for the cache of whole extents; zero disables it.
    pub extent_cache: Bytes,
    /// Whether and how the policies' moves are judged.
    pub moves: MoveControl,
    /// Rules for flushing devices without a client's request.
    pub flushes: FlushRules,
    /// Buffer memory.
    pub memory: Bytes,
    /// Maximum number of requests in flight.
    pub depth: usize,
    /// How devices execute durable writes.
    pub durable_writes: DurableWrites,
    /// Whether devices are verified before FLUSH is answered: only then may one be truncated.
    pub verified: bool,
    /// Active mutants, for mutation testing.
    pub planted: Planted,
    /// The server in front of the pool, and its clients, if requests go through it.
    pub served: Option<ServerSetup>,
}

/// The specification of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Size.
    pub size: Bytes,
    /// When the map changes of its writes are durable.
    pub hardening: Hardening,
    /// Number of copies of every block.
    pub copies: u8,
    /// Its own placement policy, if it has one.
    pub policy: Option<&'static str>,
}

/// A pool in the simulated world.
pub struct Driver {
    setup: Setup,
    world: World,
    engine: OpenEngine,
    oracle: Oracle,
    volumes: Vec<Volume>,
    /// Extents whose space must be kept: volume and offset.
    reserved_extents: FxHashSet<(usize, u64)>,
    /// Space guaranteed to later writes.
    space_guarantees: space_guarantees::SpaceGuarantees,
    /// Volumes replaced while requests were in flight: the time, and the number of extents each may have
    /// occupied.
    replaced_volumes: Vec<(Ticket, u64)>,
    /// The devices' superblocks, as they were created.
    layout: Vec<Superblock>,
    /// Number of data extents of all devices.
    data_extents: u64,
    health: Health,
    /// Devices that have failed a command since they were last repaired.
    failing: DeviceSet,
    /// Truncated devices, with the time.
    truncated: Vec<(DeviceId, Ticket)>,
    /// Devices with failed reads since they were last repaired.
    unreadable: DeviceSet,
    in_flight: FxHashMap<RequestId, InFlightRequest>,
    requests: u64,
    admins: u64,
    names: u64,
    done: Vec<IoCompletion>,
    pending_crash: PendingCrash,
    copies: Copies,
    /// A future jump of the clock: the number of events until then, and its length.
    jump: Option<(u64, Nanos)>,
    /// A volume being removed, and its replacement.
    replacing: Option<PendingReplacement>,
    /// True while the engine runs, false after it has stopped.
    is_serving: bool,
    /// Commands in flight.
    commands: Option<commands::Commands>,
    /// True if writes may be misdirected.
    may_misdirect: bool,
    /// Devices that are missing when the pool is opened.
    absence: Absence,
    /// By volume: whether every request must succeed, whichever devices are missing. If empty, none must.
    redundant: Vec<bool>,
    /// Number of checks of all volumes so far.
    checks: u64,
    /// In a copy: no failure or deception has happened that could explain a broken root.
    has_sound_roots: bool,
    /// In a copy: metadata members, and no other devices, may have failed before it crashed.
    was_broken: bool,
    /// True if policies have changed: second locations of earlier ones still exist.
    has_moved: bool,
    /// A volume whose hardening is being changed, with the new value.
    hardening: Option<(usize, Hardening)>,
    /// True if a device has ever failed silently.
    had_silent_failure: bool,
    /// Traits of the pool.
    traits: Vec<Trait>,
    /// Owner of each device extent at the last look.
    owners: FxHashMap<Whole, VolumeId>,
    answered_since_crash: u64,
    /// Number of events since anything completed.
    idle_events: u32,
    statistics: Statistics,
}

/// State of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Healthy,
    /// Some device may fail.
    Broken,
    /// The pool does not open any more, because of a failing device.
    Dead,
}

#[derive(Clone)]
pub(crate) struct Volume {
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) spec: VolumeSpec,
}

#[derive(Clone)]
struct PendingReplacement {
    volume: usize,
    new: String,
    removed: bool,
}

struct InFlightRequest {
    ask: RequestSpec,
    ticket: Ticket,
    buffer: Option<Buffer>,
    since: Nanos,
    /// For a read while devices fail.
    holders: Option<errors::Holders>,
}

impl InFlightRequest {
    const fn place(&self) -> Place {
        let RequestSpec { volume, offset, len, .. } = self.ask;
        Place { volume, offset, len }
    }
}

impl Driver {
    /// Creates a pool with its volumes, idle.
    pub fn new(setup: Setup) -> Result<Self, Failure> {
        let mut world = World::new(setup.seed, setup.memory, &setup.devices)?;
        let layout = lifecycle::create_pool(&mut world, &setup)?;
        let engine = lifecycle::open_pool(&mut world, &setup, false, Absence::default())?;
        let mut driver = Self {
            oracle: lifecycle::oracle(&setup.volumes),
            world,
            engine: OpenEngine::of(engine),
            volumes: Vec::new(),
            reserved_extents: FxHashSet::default(),
            space_guarantees: space_guarantees::SpaceGuarantees::default(),
            replaced_volumes: Vec::new(),
            data_extents: layout.iter().map(|superblock| u64::from(superblock.data_extents)).sum(),
            layout,
            health: Health::Healthy,
            failing: DeviceSet::default(),
            truncated: Vec::new(),
            unreadable: DeviceSet::default(),
            in_flight: FxHashMap::default(),
            requests: 0,
            admins: 0,
            names: 0,
            done: Vec::new(),
            pending_crash: PendingCrash::default(),
            copies: Copies::default(),
            jump: None,
            replacing: None,
            is_serving: true,
            commands: None,
            may_misdirect: false,
            absence: Absence::default(),
            redundant: Vec::new(),
            checks: 0,
            has_sound_roots: false,
            was_broken: false,
            has_moved: false,
            hardening: None,
            had_silent_failure: false,
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

    /// Executes a history, then waits for every reply and checks all volumes, before and after a restart.
    pub fn run(&mut self, steps: &[HistoryStep]) -> Result<(), Failure> {
        for step in steps {
            self.step(step)?;
        }
        self.end()
    }

    /// Waits for every reply and checks all volumes, before and after a restart. A pending crash is
    /// cancelled.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.pending_crash.disarm();
        [HistoryStep::Check, HistoryStep::Audit, HistoryStep::Restart, HistoryStep::Check]
            .iter()
            .try_for_each(|step| self.step(step))
    }

    /// Returns the map of the pool, which shows what a history has reached.
    #[must_use]
    pub fn map(&self) -> &weir_map::Map {
        self.engine.map()
    }

    /// Returns the statistics so far.
    #[must_use]
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Returns a digest that two runs share only if the same happened in both.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.world.digest() ^ self.copies.digest()
    }

    /// Executes one step; does nothing while the pool does not open because of broken devices.
    pub fn step(&mut self, step: &HistoryStep) -> Result<(), Failure> {
        let revives = matches!(step, HistoryStep::Crash(crash) if crash.kind == StopKind::PowerLoss);
        if self.health == Health::Dead && !revives {
            return Ok(());
        }
        let result = self.begin(step);
        match self.pending_crash.take_due(&result) {
            Some(crash) => self.crash(&crash),
            None => result,
        }
    }

    fn begin(&mut self, step: &HistoryStep) -> Result<(), Failure> {
        self.idle_events = 0;
        match step {
            HistoryStep::Request(ask) => self.submit_request(*ask),
            HistoryStep::Wait(answers) => self.wait(*answers),
            HistoryStep::Pass(time) => self.advance_by(*time),
            HistoryStep::Jump { after: 0, time } => {
                // Two jumps without a look at the replies between them would be a single pause.
                self.advance_by(Nanos(0))?;
                self.jump(*time);
                Ok(())
            }
            HistoryStep::Jump { after, time } => {
                self.jump = Some((*after, *time));
                Ok(())
            }
            HistoryStep::Replace(replace) => self.replace(replace),
            HistoryStep::Submit(all) => self.submit_all(all),
            HistoryStep::Break(device, fault) => {
                self.break_device(DeviceId((device % self.world.devices()) as u8), fault.clone());
                Ok(())
            }
            HistoryStep::Crash(crash) if self.health == Health::Dead => {
                Err(self.pending_crash.crash_now(crash))
            }
            HistoryStep::Crash(crash) => self.pending_crash.arm(crash),
            HistoryStep::CrashCopy(crash) => {
                self.copies.arm(crash);
                self.crash_copies()
            }
            HistoryStep::CrashCopyDuring(activity, crash) => {
                self.copies.arm_for(*activity, crash);
                self.crash_copies()
            }
            HistoryStep::CrashCopyAfterDurable(crash) => {
                self.copies.arm_for_durable(crash);
                Ok(())
            }
            HistoryStep::Restart => self.restart(),
            HistoryStep::Check => self.check(),
            HistoryStep::Audit => self.audit(),
            HistoryStep::Lose(lose) => self.test_loss(lose),
            HistoryStep::Tune(tune) => self.tune(tune),
            HistoryStep::Net(_) => Ok(()),
        }
    }

    fn break_device(&mut self, device: DeviceId, fault: Fault) {
        if let Fault::Truncate { .. } = fault {
            return self.truncate(device, fault);
        }
        let Fault::Misdirect { shift: further, chance, times, .. } = fault else {
            // If a device failed while another one may have damaged metadata, no guarantee could be checked.
            if !self.has_silent_faults() {
                self.world.break_device(device, fault);
                self.health = Health::Broken;
                self.space_guarantees.forget_all();
            }
            return;
        };
        if self.health == Health::Healthy {
            let superblock = &self.layout[device.index()];
            let range = rot::misdirection_range(superblock, self.setup.mirrored);
            self.world.break_device(device, Fault::Misdirect { range, shift: further, chance, times });
            (self.may_misdirect, self.had_silent_failure) = (true, true);
        }
    }

    /// Reports whether writes may be misdirected, or metadata has been damaged silently.
    fn has_silent_faults(&mut self) -> bool {
        self.may_misdirect || (self.had_silent_failure && !self.damaged_metadata().is_empty())
    }

    /// Truncates a device. If that could not be noticed, the device vanishes instead: it is not verified, or
    /// the superblock in its last page may be in the middle of a write.
    fn truncate(&mut self, device: DeviceId, fault: Fault) {
        if self.has_silent_faults() {
            return;
        }
        self.health = Health::Broken;
        self.space_guarantees.forget_all();
        if !self.setup.verified || self.engine.is_recording() {
            return self.world.break_device(device, Fault::Vanish { at: Nanos(0) });
        }
        self.world.break_device(device, fault);
        self.record_fault(FaultKind::Truncated);
        self.failing.insert(device);
        self.truncated.push((device, self.oracle.latest()));
    }

    /// Checks that no request to a volume with one copy, submitted after a device was truncated, is
    /// acknowledged as durable: some durable data is lost.
    fn check_truncated(&self, request: &InFlightRequest) -> Result<(), Failure> {
        let InFlightRequest { ask, ticket, .. } = request;
        let claims = ask.claims_durable();
        let single = self.volumes[ask.volume].spec.copies < 2;
        let mut truncated = self.truncated.iter().filter(|(_, at)| claims && single && at < ticket);
        match truncated.find(|(device, _)| self.is_noticeable(*device)) {
            Some((device, _)) => Err(Failure::Truncated { ask: *ask, device: *device }),
            None => Ok(()),
        }
    }

    /// Reports whether the truncation of a device could be noticed: its last page can be read, and it is not
    /// lost for another reason.
    fn is_noticeable(&self, device: DeviceId) -> bool {
        let status = self.engine.status();
        let state = status.devices.get(device.index()).map(|device| device.state);
        let is_lost = matches!(state, Some(DeviceState::Lost { reason, .. }) if !reason.is_damage());
        !is_lost && !self.unreadable.contains(device)
    }

    fn jump(&mut self, time: Nanos) {
        self.record_fault(FaultKind::TimeJump);
        self.world.jump(time);
    }

    /// Counts an event: the pending crash is one event nearer.
    fn count_event(&mut self) -> Result<(), Failure> {
        if let Some((left, time)) = self.jump.take() {
            match left {
                0 | 1 => self.jump(time),
                _ => self.jump = Some((left - 1, time)),
            }
        }
        self.copies.count_event();
        self.crash_copies()?;
        self.pending_crash.count_event()
    }

    /// Records the faults that have struck commands which the engine still considers in flight.
    fn record_faults(&mut self) {
        if self.health != Health::Healthy || self.may_misdirect {
            for (device, strike) in self.world.take_faults() {
                self.record_fault(strike);
                if !strike.is_silent() {
                    self.failing.insert(device);
                }
                if matches!(strike, FaultKind::ReadError | FaultKind::ReadErrors) {
                    self.unreadable.insert(device);
                }
            }
        }
    }

    /// Records what the pool was doing when a fault struck.
    fn record_fault(&mut self, strike: FaultKind) {
        let mut idle = true;
        for activity in Activity::ALL {
            if self.engine.is_doing(activity) {
                idle = false;
                self.record_hit(strike, Moment::During(activity));
            }
        }
        if idle {
            self.record_hit(strike, Moment::Idle);
        }
    }

    fn record_hit(&mut self, strike: FaultKind, moment: Moment) {
        *self.statistics.hits.entry((strike, moment)).or_default() += 1;
        for of in &self.traits {
            *self.statistics.triples.entry((strike, moment, *of)).or_default() += 1;
        }
    }
}
