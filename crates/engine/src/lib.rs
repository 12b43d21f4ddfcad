//! The data path of volumes: split, look up, place, acknowledge.
//!
//! Sans-I/O. [`Request`]s and completions go in; device commands and [`Reply`]s come out; time is an
//! argument. Whoever drives it owns the real world (the reactor of weir-serve) or a simulated one
//! (weir-world):
//!
//! ```text
//! engine.submit(now, request, memory);          // from a client
//! engine.complete(now, done, memory);           // from a device
//! engine.pump(&mut driver);                     // after these, and when deadline() has come
//! while let Some(reply) = engine.next_reply() { … }
//! ```
//!
//! Three layers, each a type that holds the one below and cannot name what is above it:
//!
//! - [`base`]: the lowest layer. Its owners, from below: [`core`], [`request`], [`verify`],
//!   [`cache`], [`policy`], [`counts`], [`space`], [`durability`].
//! - [`data_path`]: reads, writes and moves.
//! - [`Engine`]: the face, administration, inspection, background tasks.
//!
//! Who does what:
//!
//! - [`face`]: the entry points. Requests are cut into *pieces*, one per extent, which begin; ended device
//!   commands go to whoever began them; lost devices are given up; the engine stops. [`face::pump`]
//!   does what is due and hands device commands to the [`Driver`].
//! - [`effect`]: events that a layer raises for those above it. The face handles them.
//! - [`request`]: checks a request and answers it. A changing piece first takes its blocks
//!   ([`request::block_locks`]).
//! - [`lookup`]: where blocks are, as the map has it. [`flight`]: what device commands are for. [`ids`]: what
//!   things in flight are known by. [`notice`]: what whoever looks after the pool should know.
//! - [`read`]: a read piece becomes device reads at once, each to the place the policy prefers or that is
//!   expected to answer soonest ([`policy::route`]); what a device could not deliver is read elsewhere
//!   (`read_elsewhere`). [`cache`]: whole extents in memory.
//! - [`mod@write`]: selects the target ([`write::target`]), completes part-blocks and writes; volumes with
//!   two copies write both ([`write::copies`]), a duplexed write-back area two slots ([`write::duplex`]);
//!   [`write::clear`] trims and zeroes.
//! - `Core::launch` queues a device command; [`io`] hands it out and coalesces it with others.
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
mod base;
mod cache;
mod core;
mod counts;
mod data_path;
mod device;
mod durability;
mod effect;
mod face;
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

pub use admin::{AdminCommand, AdminError, AdminReply, VolumeInfo};
pub use background::consolidate::QUIET;
pub use background::probe::probed;
pub use cache::CacheStatus;
pub use counts::written::Written;
pub use device::measure::{Load, Responses, ResponsesBySize};
pub use device::pacing::MoverShare;
pub use device::{DeviceSettings, DurableWrites, ErrorCounts};
pub use durability::commit::FlushRules;
pub use durability::doubt::Loss;
pub use face::devices::DeviceEvent;
pub use face::pump::Driver;
pub use ids::AdminId;
pub use inspect::activity::Activity;
pub use inspect::explain::{ExplainError, Explained, ExplainedPlace};
pub use inspect::status::{DeviceState, DeviceStatus, PoolStatus, RunKind, STATUS_EXTENTS_MAX, Status};
pub use mover::{MOVER_SHARE, MoverStatus};
pub use notice::{LostWhy, Notice, SpaceKind};
pub use options::Options;
pub use policy::harm::MovesStatus;
pub use policy::rounds::Remark;
pub use space::extra::{EXTRA_SPACE, Spread};
pub use space::{SpaceRules, SpaceStatus, WhenFull};
pub use units::Percent;
pub use weir_map::Hardening;

use crate::base::Base;
use crate::core::Core;
use crate::data_path::DataPath;
use crate::device::Device;
use crate::durability::commit::Commits;

use crate::request::ranges::Ranges;
use crate::request::ready::Ready;
use crate::space::scratch::Scratch;
use weir_map::Map;
use weir_model::{Bytes, Memory, Nanos, Reply, Request, Rng};
use weir_policy::placement::Placement;

/// Requests in flight beyond which [`Engine::can_accept`] asks to wait.
const REQUESTS_MAX: usize = 8192;

/// The buffer memory an engine sets aside when it starts.
pub const RESERVED_MEMORY: Bytes = Bytes::mib(3);

/// The engine of one pool. See the crate's documentation.
#[derive(Debug)]
pub struct Engine {
    data: DataPath,
    background: background::Background,
    admin: admin::Admin,
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
    #[error(
        "{have} of buffer memory is too little: the engine alone needs {least}; \
         raise `clients` under [serve] in the pool file"
    )]
    Memory {
        /// What is free.
        have: Bytes,
        /// What it needs.
        least: Bytes,
    },
    /// Settings for a different number of devices.
    #[error("internal error: settings for {given} devices, and the pool has {expected}; please report it")]
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
        let base = Base {
            core: Core::new(now, map, per_device),
            requests: request::Requests::new(planted),
            cache: cache::ExtentCache::new(planted),
            mirror: request::mirror::Mirror::default(),
            host,
            space: space::Space::new(now, scratch),
            durability: durability::Durability::new(members),
            verification,
            counts: counts::Counts::default(),
            effects: effect::Effects::default(),
        };
        let data = DataPath { base, mover: mover::Mover::default(), reads: read::Reads::new() };
        let mut engine =
            Self { data, background: background::Background::default(), admin: admin::Admin::default() };
        let (used, _) = engine.data.base.core.data_space();
        engine.data.base.space.state = space::SpaceState::new(now, used);
        for device in engine.data.base.core.map.absent().iter() {
            engine.data.base.core.devices[device.index()].state =
                device::Availability::Lost { why: LostWhy::Absent, since: now };
            engine.data.base.verification.lost(device, LostWhy::Absent);
        }
        engine.begin_tasks();
        engine.set_options(options);
        Ok(engine)
    }

    /// Begins what an engine does as soon as it is there.
    fn begin_tasks(&mut self) {
        self.background.probing.start(&mut self.data.base.core, &mut self.data.base.space);
        self.admin.resume_removals(&mut self.data.base.core, &mut self.data.base.requests);
        self.data.base.durability.lacking.look_for_all(&self.data.base.core);
        self.data.base.host.look_for_metadata(&self.data.base.core);
        if !self.data.base.core.map.absent().is_empty() {
            self.background.unreachable.look(self.data.base.core.now, &self.data.base.core.map);
        }
    }

    /// From now on these options hold. What was known of policies' moves is forgotten.
    fn set_options(&mut self, options: Options) {
        let Options { space, mover_share, extent_cache, moves, flushes, seed } = options;
        self.data.base.space.set_space_rules(&mut self.data.base.core, space);
        self.data.mover.set_share(mover_share);
        self.data.base.cache.set_size(extent_cache);
        self.data.base.host.judge_moves(&mut self.data.base.core, moves);
        self.data.base.durability.commits.set_rules(flushes);
        self.data.base.host.random = Rng::new(seed);
    }

    /// Takes a request. Its reply comes from [`Self::next_reply`], exactly once. What waits for a commit
    /// (FLUSH, FUA) goes on in [`Self::pump`].
    pub fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M) {
        self.data.base.core.now = now;
        self.accept(request, memory);
    }

    /// The next finished request.
    #[inline]
    pub fn next_reply(&mut self) -> Option<Reply> {
        self.data.base.requests.replies.pop_front()
    }

    /// The next thing whoever looks after the pool should know.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.data.base.core.notices.pop()
    }

    /// When [`Self::pump`] must be called at the latest.
    pub fn deadline(&self) -> Option<Nanos> {
        if self.can_run_tasks() { Some(self.data.base.core.now) } else { self.tasks_due() }
    }

    /// Whether requests should be submitted at all: back-pressure, not a promise.
    pub fn can_accept(&self) -> bool {
        self.data.base.requests.active.len() < REQUESTS_MAX
            && !self.data.base.core.devices.iter().any(|device| device.epochs.is_behind())
    }

    /// Returns the buffers taken at the start. For a driver that goes on using the memory.
    pub fn release_memory<M: Memory>(self, memory: &mut M) {
        self.data.base.verification.give(memory);
        self.data.base.cache.give(memory);
        self.data.base.space.scratch.give(memory);
    }

    /// The map, to look at.
    pub fn map(&self) -> &Map {
        &self.data.base.core.map
    }
}

// In this order: what becomes possible by one of them is done by those behind it in the same tick.
task::tasks!(
    space::SpaceState,
    face::devices::Deadlines,
    device::abandoned::Abandoned,
    read::restart::Again,
    Ranges,
    admin::Admin,
    durability::members::Members,
    policy::rounds::Rounds,
    policy::harm::Harm,
    durability::intents::Intents,
    background::Background,
    mover::Mover,
    verify::Verification,
    Commits,
    durability::checkpoint::Checkpoint,
    face::stop::LastCheck,
    Ready,
);

#[cfg(test)]
mod tests;
