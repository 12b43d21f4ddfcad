//! Crashes of copies of the pool, while the pool itself continues.
//!
//! The result of a power loss depends only on the devices, and recovery costs a fraction of what it takes to
//! bring a pool into a state worth crashing. So a history crashes at many more moments than those at which it
//! ends: the devices are copied, with their caches and writes in flight, and the power of the copy fails. The
//! copy is checked, opened, possibly stopped again while it is opened, and all its volumes are read, as after
//! any other crash. Nothing of that affects the original pool: its history is the same with and without
//! copies.

use super::{Absence, Crash, Driver, Failure, Health, PendingCrash, Setup, Volume};
use crate::world::Buffers;
use crate::{Oracle, Seed, Statistics, StopKind, Trait, World};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::{Deref, DerefMut};
use weir_engine::{Activity, Engine};
use weir_map::Superblock;
use weir_model::rng::mix;
use weir_model::{Bytes, DeviceSet};

/// The engine of an open pool; `None` for a copy that is not open yet.
pub(super) struct OpenEngine(Option<Engine>);

impl OpenEngine {
    pub(super) const fn of(engine: Engine) -> Self {
        Self(Some(engine))
    }
}

impl Deref for OpenEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.0.as_ref().expect("the pool is open")
    }
}

impl DerefMut for OpenEngine {
    fn deref_mut(&mut self) -> &mut Engine {
        self.0.as_mut().expect("the pool is open")
    }
}

/// The pending crashes of copies, and the results of past ones.
#[derive(Default)]
pub(crate) struct Copies {
    /// Pending crashes with the number of events until they come.
    pending: Vec<(u64, Crash)>,
    /// Pending crashes that come as soon as the engine is doing this.
    pending_activities: Vec<(Activity, Crash)>,
    /// Pending crashes that come one by one with each change that is acknowledged as durable.
    pending_durable: Vec<Crash>,
    copies_made: u64,
    digest: u64,
    /// Buffers of the previous copy.
    buffers: Option<Buffers>,
}

impl Copies {
    /// Arms a crash that occurs after the number of events it specifies.
    pub(crate) fn arm(&mut self, crash: &Crash) {
        self.pending.push((crash.after, crash.clone()));
    }

    /// Arms a crash that occurs as soon as the engine is doing this.
    pub(crate) fn arm_for(&mut self, activity: Activity, crash: &Crash) {
        self.pending_activities.push((activity, crash.clone()));
    }

    /// Arms a crash that occurs as soon as a change is acknowledged as durable.
    pub(crate) fn arm_for_durable(&mut self, crash: &Crash) {
        self.pending_durable.push(crash.clone());
    }

    /// Notes that a change was acknowledged as durable.
    pub(super) fn note_durable(&mut self) {
        self.pending.extend(self.pending_durable.pop().map(|crash| (0, crash)));
    }

    /// Cancels crashes armed for a moment that has not come.
    pub(super) fn disarm(&mut self) {
        self.pending_activities.clear();
        self.pending_durable.clear();
    }

    /// Counts an event.
    pub(crate) fn count_event(&mut self) {
        self.pending.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
    }

    /// Takes a crash that is due.
    pub(crate) fn take_due(&mut self) -> Option<Crash> {
        let at = self.pending.iter().position(|(left, _)| *left == 0)?;
        Some(self.pending.swap_remove(at).1)
    }

    /// Returns the seed of the next copy, in a world of this digest.
    pub(crate) fn seed(&mut self, digest: u64) -> Seed {
        self.copies_made += 1;
        Seed(mix(digest ^ self.copies_made))
    }

    /// Returns the buffers for the next copy.
    pub(crate) fn buffers(&mut self, memory: Bytes) -> Buffers {
        self.buffers.take().unwrap_or_else(|| Buffers::new(memory))
    }

    /// Returns a digest that two runs share only if the same happened in all copies.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Opens the pool of a copy after its power has failed, and checks everything that must be there. Adds
    /// the copy's statistics to `statistics`.
    pub(crate) fn check_recovery(
        &mut self,
        copy: Driver,
        crash: &Crash,
        statistics: &mut Statistics,
    ) -> Result<(), Failure> {
        self.check_recovery_once(copy, crash, statistics)
            .map_err(|failure| Failure::InCopy(Box::new(failure)))
    }

    fn check_recovery_once(
        &mut self,
        mut copy: Driver,
        crash: &Crash,
        statistics: &mut Statistics,
    ) -> Result<(), Failure> {
        copy.checks = self.copies_made;
        copy.audit_roots_sometimes()?;
        if copy.was_broken && self.copies_made % 4 == 1 {
            copy.try_other_member()?;
        }
        copy.recover(crash)?;
        if copy.statistics.pools_abandoned + copy.statistics.damage_detected == 0 {
            copy.check()?;
        }
        self.digest = mix(self.digest ^ copy.digest());
        // Gaps are only for crashes after which the pool itself continues.
        copy.statistics.gaps.clear();
        statistics.in_copies += copy.statistics.crashes;
        *statistics += &copy.statistics;
        self.buffers = Some(copy.world.into_buffers());
        Ok(())
    }
}

impl Driver {
    /// Crashes the copies that are due.
    pub(super) fn crash_copies(&mut self) -> Result<(), Failure> {
        while let Some(crash) = self.copies.take_due() {
            self.crash_copy(&crash)?;
        }
        if self.copies.pending_activities.is_empty() {
            return Ok(());
        }
        let is_now = |(activity, _): &(Activity, Crash)| self.engine.is_doing(*activity);
        if let Some(at) = self.copies.pending_activities.iter().position(is_now) {
            let (_, crash) = self.copies.pending_activities.swap_remove(at);
            self.crash_copy(&crash)?;
        }
        Ok(())
    }

    /// Copies the pool, fails the power of the copy at this moment, and checks everything that must be there.
    /// Does nothing while metadata may be damaged, or if a device was truncated: after such a crash no
    /// guarantee could be checked.
    fn crash_copy(&mut self, crash: &Crash) -> Result<(), Failure> {
        let is_promised =
            self.health != Health::Dead && self.truncated.is_empty() && !self.has_silent_faults();
        if !is_promised || !self.absence.devices.is_empty() {
            return Ok(());
        }
        let seed = self.copies.seed(self.world.digest());
        let buffers = self.copies.buffers(self.setup.memory);
        let world = self.world.copy_without_power(seed, buffers, &self.setup.devices)?;
        self.note_crash(StopKind::PowerLoss);
        let is_auditable = self.is_auditable_ignoring_commands();
        let mut copy = self.copy_into(world, OpenEngine(None));
        let members: DeviceSet = self.members().collect();
        let others_are_well = self.failing.without(members).is_empty();
        (copy.has_sound_roots, copy.was_broken) =
            (is_auditable, self.health == Health::Broken && others_are_well);
        self.copies.check_recovery(copy, crash, &mut self.statistics)
    }

    /// Creates a pool like this one in another world, with nothing in flight.
    pub(super) fn copy_into(&self, world: World, engine: OpenEngine) -> Self {
        let (volumes, layout) = (self.volumes.clone(), self.layout.clone());
        Self {
            engine,
            reserved_extents: self.reserved_extents.clone(),
            requests: self.requests,
            admins: self.admins,
            names: self.names,
            has_moved: self.has_moved,
            had_silent_failure: self.had_silent_failure,
            replacing: self.replacing.clone(),
            is_serving: false,
            commands: self.commands.clone(),
            hardening: self.hardening,
            ..Self::new_unopened(self.setup.clone(), world, self.oracle.clone(), volumes, layout)
        }
    }

    /// Creates a pool that is not open, to be [tried out](Copies::check_recovery).
    pub(crate) fn new_unopened(
        setup: Setup,
        world: World,
        oracle: Oracle,
        volumes: Vec<Volume>,
        layout: Vec<Superblock>,
    ) -> Self {
        Self {
            data_extents: layout.iter().map(|superblock| u64::from(superblock.data_extents)).sum(),
            traits: Trait::of(&setup),
            setup,
            world,
            engine: OpenEngine(None),
            oracle,
            volumes,
            layout,
            reserved_extents: FxHashSet::default(),
            space_guarantees: super::space_guarantees::SpaceGuarantees::default(),
            requests: 0,
            admins: 0,
            names: 0,
            has_moved: true,
            had_silent_failure: false,
            replacing: None,
            is_serving: false,
            commands: None,
            hardening: None,
            absence: Absence::default(),
            redundant: Vec::new(),
            replaced_volumes: Vec::new(),
            health: Health::Healthy,
            failing: DeviceSet::default(),
            truncated: Vec::new(),
            unreadable: DeviceSet::default(),
            in_flight: FxHashMap::default(),
            done: Vec::new(),
            pending_crash: PendingCrash::default(),
            copies: Copies::default(),
            jump: None,
            may_misdirect: false,
            checks: 0,
            has_sound_roots: false,
            was_broken: false,
            owners: FxHashMap::default(),
            answered_since_crash: 0,
            idle_events: 0,
            statistics: Statistics::default(),
        }
    }
}
