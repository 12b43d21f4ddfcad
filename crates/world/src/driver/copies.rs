//! Crashes of copies of the pool, which itself goes on.
//!
//! What a power loss leaves depends on the devices alone, and recovery costs a fraction of what it takes to
//! bring a pool into a state worth crashing. So a history is crashed at many more moments than it ends at:
//! the devices are copied at one, with what is in their caches and in flight, and the power of the copy
//! fails. It is checked, opened, perhaps stopped again while it is opened, and all its volumes are read, as
//! after any other crash. Nothing of that reaches the pool that was copied: its history is the same with
//! copies and without.

use super::{Absence, Armed, Crash, Driver, Failure, Health, Setup, Volume};
use crate::world::Buffers;
use crate::{Oracle, Seed, Statistics, Stop, Trait, World};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::{Deref, DerefMut};
use weir_engine::{Activity, Engine};
use weir_map::Superblock;
use weir_model::rng::mix;
use weir_model::{Bytes, DeviceSet};

/// The engine of a pool that is open; none of one that was copied and is not opened yet.
pub(super) struct Opened(Option<Engine>);

impl Opened {
    pub(super) const fn of(engine: Engine) -> Self {
        Self(Some(engine))
    }
}

impl Deref for Opened {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.0.as_ref().expect("the pool is open")
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Engine {
        self.0.as_mut().expect("the pool is open")
    }
}

/// The crashes of copies to come, and what came of those there were.
#[derive(Default)]
pub(crate) struct Copies {
    /// After how many more events.
    armed: Vec<(u64, Crash)>,
    /// As soon as the engine is in the middle of this.
    armed_for: Vec<(Activity, Crash)>,
    taken: u64,
    digest: u64,
    /// Of the copy before.
    buffers: Option<Buffers>,
}

impl Copies {
    /// One is to come after as many events as it says.
    pub(crate) fn arm(&mut self, crash: &Crash) {
        self.armed.push((crash.after, crash.clone()));
    }

    /// One is to come as soon as the engine is in the middle of this.
    pub(crate) fn arm_for(&mut self, activity: Activity, crash: &Crash) {
        self.armed_for.push((activity, crash.clone()));
    }

    /// What is armed for a moment has missed it.
    pub(super) fn disarm(&mut self) {
        self.armed_for.clear();
    }

    /// An event has passed.
    pub(crate) fn burn(&mut self) {
        self.armed.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
    }

    /// One whose turn it is.
    pub(crate) fn due(&mut self) -> Option<Crash> {
        let at = self.armed.iter().position(|(left, _)| *left == 0)?;
        Some(self.armed.swap_remove(at).1)
    }

    /// What decides the next one, in a world of this digest.
    pub(crate) fn seed(&mut self, digest: u64) -> Seed {
        self.taken += 1;
        Seed(mix(digest ^ self.taken))
    }

    /// What the next one works with.
    pub(crate) fn buffers(&mut self, memory: Bytes) -> Buffers {
        self.buffers.take().unwrap_or_else(|| Buffers::new(memory))
    }

    /// A number that two runs share only if the same happened in all copies.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Opens the pool of a copy after its power has failed, and looks at everything that must be there. Adds
    /// what was gone through to `statistics`.
    pub(crate) fn try_out(
        &mut self,
        copy: Driver,
        crash: &Crash,
        statistics: &mut Statistics,
    ) -> Result<(), Failure> {
        self.try_out_once(copy, crash, statistics).map_err(|failure| Failure::InCopy(Box::new(failure)))
    }

    fn try_out_once(
        &mut self,
        mut copy: Driver,
        crash: &Crash,
        statistics: &mut Statistics,
    ) -> Result<(), Failure> {
        copy.checks = self.taken;
        copy.audit_roots_now_and_then()?;
        if copy.was_broken && self.taken % 4 == 1 {
            copy.try_other_member()?;
        }
        copy.recover(crash)?;
        if copy.statistics.excepted + copy.statistics.noticed == 0 {
            copy.check()?;
        }
        self.digest = mix(self.digest ^ copy.digest());
        // They are of crashes that a pool goes on after.
        copy.statistics.gaps.clear();
        statistics.in_copies += copy.statistics.crashes;
        *statistics += &copy.statistics;
        self.buffers = Some(copy.world.into_buffers());
        Ok(())
    }
}

impl Driver {
    /// Copies crash whose turn it is.
    pub(super) fn crash_copies(&mut self) -> Result<(), Failure> {
        while let Some(crash) = self.copies.due() {
            self.crash_copy(&crash)?;
        }
        if self.copies.armed_for.is_empty() {
            return Ok(());
        }
        let is_now = |(activity, _): &(Activity, Crash)| self.engine.is_doing(*activity);
        if let Some(at) = self.copies.armed_for.iter().position(is_now) {
            let (_, crash) = self.copies.armed_for.swap_remove(at);
            self.crash_copy(&crash)?;
        }
        Ok(())
    }

    /// The power of a copy of the pool fails at this moment, and everything that must be there then is. Does
    /// nothing while devices deceive, or where one was truncated: after such a crash nothing could be
    /// promised.
    fn crash_copy(&mut self, crash: &Crash) -> Result<(), Failure> {
        let is_promised = self.health != Health::Dead && self.truncated.is_empty() && !self.deceives();
        if !is_promised || !self.absence.devices.is_empty() {
            return Ok(());
        }
        let seed = self.copies.seed(self.world.digest());
        let buffers = self.copies.buffers(self.setup.memory);
        let world = self.world.copy_without_power(seed, buffers, &self.setup.devices)?;
        self.note_crash(Stop::PowerCut);
        let is_auditable = self.is_auditable_but_for_commands();
        let mut copy = self.copied(world, Opened(None));
        let members: DeviceSet = self.members().collect();
        let others_are_well = self.failing.without(members).is_empty();
        (copy.has_sound_roots, copy.was_broken) =
            (is_auditable, self.health == Health::Broken && others_are_well);
        self.copies.try_out(copy, crash, &mut self.statistics)
    }

    /// A pool like this one in another world. Nothing is in flight there.
    pub(super) fn copied(&self, world: World, engine: Opened) -> Self {
        let (volumes, layout) = (self.volumes.clone(), self.layout.clone());
        Self {
            engine,
            kept: self.kept.clone(),
            requests: self.requests,
            admins: self.admins,
            names: self.names,
            has_moved: self.has_moved,
            deceived: self.deceived,
            replacing: self.replacing.clone(),
            is_serving: false,
            commands: self.commands.clone(),
            hardening: self.hardening,
            ..Self::unopened(self.setup.clone(), world, self.oracle.clone(), volumes, layout)
        }
    }

    /// A pool that is not open, to be [tried out](Copies::try_out).
    pub(crate) fn unopened(
        setup: Setup,
        world: World,
        oracle: Oracle,
        volumes: Vec<Volume>,
        layout: Vec<Superblock>,
    ) -> Self {
        Self {
            room: layout.iter().map(|superblock| u64::from(superblock.data_extents)).sum(),
            traits: Trait::of(&setup),
            setup,
            world,
            engine: Opened(None),
            oracle,
            volumes,
            layout,
            kept: FxHashSet::default(),
            kept_space: super::kept::Kept::default(),
            requests: 0,
            admins: 0,
            names: 0,
            has_moved: true,
            deceived: false,
            replacing: None,
            is_serving: false,
            commands: None,
            hardening: None,
            absence: Absence::default(),
            redundant: Vec::new(),
            gone: Vec::new(),
            health: Health::Whole,
            failing: DeviceSet::default(),
            truncated: Vec::new(),
            unreadable: DeviceSet::default(),
            under_way: FxHashMap::default(),
            done: Vec::new(),
            armed: Armed::default(),
            copies: Copies::default(),
            jump: None,
            astray: false,
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
