//! The data path of volumes: split, look up, place, acknowledge.
//!
//! Sans-I/O. [`Request`]s and completions go in; device commands and [`Reply`]s come out; time is an
//! argument. Whoever drives it owns the real world (the reactor of weir-serve) or a simulated one
//! (weir-world):
//!
//! ```text
//! engine.submit(now, request, memory);          // from a client
//! engine.complete(now, done, memory);           // from a device
//! engine.tick(now, memory);                     // when deadline() has come
//! while let Some(io) = engine.next_io() { … }   // to a device
//! while let Some(reply) = engine.next_reply() { … }
//! ```
//!
//! Who does what:
//!
//! - [`request`]: checks a request, cuts it into *pieces*, one per extent, and answers it. A changing piece
//!   first takes its blocks ([`request::block_locks`]).
//! - [`lookup`]: where blocks are, as the map has it. [`flight`]: what device commands are for. [`ids`]: what
//!   things in flight are known by. [`notice`]: what whoever looks after the pool should know.
//! - [`read`]: a read piece becomes device reads at once, each to the place the policy prefers or that is
//!   expected to answer soonest ([`read::route`]); what a device could not deliver is read elsewhere
//!   (`read_elsewhere`).
//! - [`mod@write`]: selects the target ([`write::target`]), completes part-blocks and writes; volumes with
//!   two copies write both ([`write::copies`]), a duplexed write-back area two slots ([`write::duplex`]);
//!   [`write::clear`] trims and zeroes.
//! - `Core::launch` queues a device command; [`io`] hands it out, coalesces it with others, retries it and
//!   reports its end to whoever began it.
//! - [`device`]: what is measured of a device, and when it is given up: lost or silent.
//! - [`verify`]: whether devices still hold their superblocks; every FLUSH and durable change is acknowledged
//!   there.
//! - [`durability`]: completed changes are visible at once; commits make them durable, which FLUSH and FUA
//!   wait for. Checkpoints, metadata members, write intents, and what a failed flush leaves in doubt.
//! - [`space`]: admission of new data; where there is no space left copies give way to it
//!   ([`space::reclaim`]).
//! - [`mover`]: copies, moves and drops, as policies and background tasks ask.
//! - [`task`]: what the engine does by itself, step by step; all tasks are listed at the end of this file.
//! - [`background`]: second copies made anew, unreachable data, file systems' metadata, probes.
//! - [`policy`]: the host of the placement policies, and the guard that stops harmful moves.
//! - [`inspect`], [`admin`]: what people ask of the engine, and have it do.
//!
//! Pure: no I/O, no clock, no threads.
#![forbid(unsafe_code)]

mod admin;
mod background;
mod core;
mod device;
mod durability;
mod flight;
mod ids;
mod inspect;
mod io;
mod lookup;
mod mover;
mod notice;
mod options;
mod policy;
mod read;
mod request;
mod space;
mod task;
mod units;
mod verify;
mod walk;
mod write;

pub use admin::{AdminError, AdminReply, Command, VolumeInfo};
pub use background::consolidate::QUIET;
pub use device::lost::DeviceEvent;
pub use device::measure::{Load, Responses, ResponsesBySize};
pub use device::pacing::MoverShare;
pub use device::{DeviceSettings, DurableWrites, ErrorCounts};
pub use durability::commit::FlushRules;
pub use durability::doubt::Loss;
pub use ids::AdminId;
pub use inspect::activity::Activity;
pub use inspect::explain::{ExplainError, Explained, ExplainedPlace};
pub use inspect::status::{
    DeviceState, DeviceStatus, PoolStatus, RunKind, STATUS_EXTENTS_MAX, Status, Written,
};
pub use mover::{MOVER_SHARE, MoverStatus};
pub use notice::{LostWhy, Notice, SpaceKind};
pub use options::Options;
pub use policy::harm::MovesStatus;
pub use policy::rounds::Remark;
pub use read::cache::CacheStatus;
pub use space::extra::{EXTRA_SPACE, Spread};
pub use space::{SpaceRules, SpaceStatus, WhenFull};
pub use units::Percent;
pub use weir_map::Hardening;

use crate::core::Core;
use crate::device::Device;
use crate::durability::commit::Commits;

use crate::request::ranges::Ranges;
use crate::request::ready::Ready;
use crate::space::scratch::Scratch;
use weir_map::Map;
use weir_model::{Bytes, Io, Memory, Mutant, Nanos, Reply, Request, Rng};
use weir_policy::placement::Placement;

/// Requests in flight beyond which [`Engine::can_accept`] asks to wait.
const REQUESTS_MAX: usize = 8192;

/// The buffer memory an engine sets aside when it starts.
pub const RESERVED_MEMORY: Bytes = Bytes::mib(3);

/// The engine of one pool. See the crate's documentation.
#[derive(Debug)]
pub struct Engine {
    core: Core,
    requests: request::Requests,
    reads: read::Reads,
    mirror: write::copies::Mirror,
    space: space::Space,
    durability: durability::Durability,
    verification: verify::Verification,
    mover: mover::Mover,
    background: background::Background,
    host: policy::Host,
    admin: admin::Admin,
    counts: inspect::Counts,
}

/// Why the engine accepts no more changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoppedChanges {
    /// It is being stopped.
    Stopping,
    /// Its metadata cannot be written.
    MetadataFailed,
}

/// Why an engine could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The buffer memory is too small.
    #[error("{have} of buffer memory is too little; the engine alone needs {least}")]
    Memory {
        /// What is free.
        have: Bytes,
        /// What it needs.
        least: Bytes,
    },
    /// Settings for a different number of devices.
    #[error("settings for {given} devices, the pool has {expected}")]
    Devices {
        /// Settings given.
        given: usize,
        /// Devices of the pool.
        expected: usize,
    },
}

impl Engine {
    /// An engine for an opened map. Takes [`RESERVED_MEMORY`] of buffers for itself. `devices` are the
    /// settings of the pool's devices, by id; `options` hold as long as the engine does.
    ///
    /// # Errors
    /// If there is too little memory, or the settings do not fit the pool.
    pub fn new<M: Memory>(
        now: Nanos,
        map: Map,
        policy: Box<dyn Placement>,
        devices: &[DeviceSettings],
        options: Options,
        memory: &mut M,
    ) -> Result<Self, StartError> {
        if devices.len() != map.devices().len() {
            return Err(StartError::Devices { given: devices.len(), expected: map.devices().len() });
        }
        let have = memory.free();
        let scratch = Scratch::take(map.members().len(), memory)
            .ok_or(StartError::Memory { have, least: RESERVED_MEMORY })?;
        let Some(verification) = verify::Verification::take(devices, memory) else {
            scratch.give(memory);
            return Err(StartError::Memory { have, least: RESERVED_MEMORY });
        };
        let planted = map.planted();
        let per_device = devices.iter().map(|settings| Device::new(*settings, planted)).collect();
        let members = durability::members::Members::new(map.members(), &scratch);
        let host = policy::Host::new(now, policy, &map);
        let mut engine = Self {
            core: Core::new(now, map, per_device),
            requests: request::Requests::new(planted),
            reads: read::Reads::new(planted),
            mirror: write::copies::Mirror::default(),
            space: space::Space::new(now, scratch),
            durability: durability::Durability::new(members),
            verification,
            mover: mover::Mover::default(),
            background: background::Background::default(),
            host,
            admin: admin::Admin::default(),
            counts: inspect::Counts::default(),
        };
        let (used, _) = engine.core.data_space();
        engine.space.state = space::SpaceState::new(now, used);
        for device in engine.core.map.absent().iter() {
            engine.core.devices[device.index()].state =
                device::State::Lost { why: LostWhy::Absent, since: now };
            engine.verification.lost(device, LostWhy::Absent);
        }
        engine.begin_tasks();
        engine.set_options(options);
        Ok(engine)
    }

    /// Begins what an engine does as soon as it is there.
    fn begin_tasks(&mut self) {
        self.background.start_probes(&mut self.core, &mut self.space);
        self.admin.resume_removals(&mut self.core);
        self.background.look_for_lacking(&self.core);
        self.background.look_for_metadata(&self.core, &self.host);
        if !self.core.map.absent().is_empty() {
            self.background.unreachable.look(self.core.now, &self.core.map);
        }
    }

    /// From now on these options hold. What was known of policies' moves is forgotten.
    fn set_options(&mut self, options: Options) {
        let Options { space, mover_share, extent_cache, moves, flushes, seed } = options;
        self.space.set_space_rules(&mut self.core, space);
        self.mover.set_share(mover_share);
        self.reads.cache.set_size(extent_cache);
        self.host.judge_moves(&mut self.core, moves);
        self.durability.commits.set_rules(flushes);
        self.host.random = Rng::new(seed);
    }

    /// Takes a request. Its reply comes from [`Self::next_reply`], exactly once. What waits for a commit
    /// (FLUSH, FUA) goes on in [`Self::tick`].
    pub fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M) {
        self.core.now = now;
        self.accept(request, memory);
    }

    /// Does what has become due: commits, checkpoints, the rest of long requests. To be called once
    /// after each batch of [`Self::submit`] and [`Self::complete`] (a batch of FLUSHes is then one
    /// commit), and when [`Self::deadline`] has come.
    pub fn tick<M: Memory>(&mut self, now: Nanos, memory: &mut M) {
        self.core.now = now;
        self.run_tasks(memory);
    }

    /// The next command for a device, to be started now.
    #[inline]
    pub fn next_io(&mut self) -> Option<Io> {
        self.core.commands.next()
    }

    /// The next finished request.
    #[inline]
    pub fn next_reply(&mut self) -> Option<Reply> {
        self.requests.replies.pop_front()
    }

    /// The next thing whoever looks after the pool should know.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.core.notices.pop()
    }

    /// When [`Self::tick`] must be called at the latest.
    pub fn deadline(&self) -> Option<Nanos> {
        if self.can_run_tasks() { Some(self.core.now) } else { self.tasks_due() }
    }

    /// Whether requests should be submitted at all: back-pressure, not a promise.
    pub fn can_accept(&self) -> bool {
        self.requests.active.len() < REQUESTS_MAX
            && !self.core.devices.iter().any(|device| device.epochs.is_behind())
    }

    /// Stops accepting changes; once everything in flight has ended, commits, writes a checkpoint, and
    /// verifies the devices once more.
    pub fn begin_stop(&mut self, now: Nanos) {
        self.core.now = now;
        self.core.stopped_changes.get_or_insert(StoppedChanges::Stopping);
        self.admin.fail_draining_removals(&self.core, &self.verification);
        self.verification.want_last_check();
        self.durability.close_intents(&mut self.core, &self.requests);
        self.space.retry_waiting_space(&mut self.requests);
    }

    /// After [`Self::begin_stop`]: everything is durable that can be, nothing is in flight, and
    /// [`Self::damaged_device`] says what is gone all the same.
    pub fn stopped(&self) -> bool {
        self.is_at_rest() && self.verification.last_check_is_over()
    }

    fn is_at_rest(&self) -> bool {
        let has_commands =
            self.core.commands.len() != self.core.abandoned.len() || self.core.commands.any_wait();
        self.core.stopped_changes.is_some()
            && !has_commands
            && self.requests.replies.is_empty()
            && self.tasks_are_idle()
    }

    /// Returns the buffers taken at the start. For a driver that goes on using the memory.
    pub fn release_memory<M: Memory>(self, memory: &mut M) {
        self.verification.give(memory);
        self.reads.cache.give(memory);
        self.space.scratch.give(memory);
    }

    /// Whether this mutant is planted.
    #[inline(always)]
    pub(crate) fn is_planted(&self, mutant: Mutant) -> bool {
        self.core.is_planted(mutant)
    }

    /// The map, to look at.
    pub fn map(&self) -> &Map {
        &self.core.map
    }
}

// In this order: what becomes possible by one of them is done by those behind it in the same tick.
task::tasks!(
    space::SpaceState,
    device::deadline::Deadlines,
    device::abandoned::Abandoned,
    read::restart::Again,
    Ranges,
    admin::Admin,
    durability::members::Members,
    policy::rounds::Rounds,
    background::fs_metadata::Inference,
    background::unreachable::Unreachable,
    policy::harm::Harm,
    durability::intents::Intents,
    background::resync::Resync,
    space::reclaim::Reclaim,
    background::consolidate::Consolidation,
    mover::Mover,
    verify::Verification,
    Commits,
    durability::checkpoint::Checkpoint,
    verify::LastCheck,
    Ready,
);

#[cfg(test)]
mod tests;
