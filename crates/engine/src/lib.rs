//! The data path of volumes: it splits requests, looks up blocks, selects places and acknowledges.
//!
//! The engine is sans-I/O. [`Request`]s and completions go in; device commands and [`Reply`]s come out; time
//! is an argument. The caller drives it: the reactor of weir-serve in the real world, weir-world in a
//! simulated one.
//!
//! ```text
//! engine.submit(now, request, memory);          // from a client
//! engine.complete(now, done, memory);           // from a device
//! engine.pump(&mut driver);                     // after these, and when deadline() has come
//! while let Some(reply) = engine.next_reply() { … }
//! ```
//!
//! The engine has three layers. Each is a type that contains the one below and cannot name the one above:
//!
//! - [`base`]: the lowest layer. It contains, from the bottom up: [`core`], [`request`], [`verify`],
//!   [`cache`], [`policy`], [`counts`], [`space`], [`durability`].
//! - [`data_path`]: reads, writes and moves.
//! - [`Engine`]: entry points, administration, inspection, background tasks.
//!
//! The modules:
//!
//! - [`api`]: the entry points. It cuts requests into *pieces*, one per extent, and begins them; it passes
//!   completions to the module that issued the command, gives up lost devices and stops the engine.
//!   [`api::pump`] runs due tasks and hands device commands to the [`Driver`].
//! - [`effect`]: events that a layer raises for the layers above it. [`api`] handles them.
//! - [`request`]: checks requests and answers them. A piece that changes data first locks its blocks
//!   ([`request::block_locks`]).
//! - [`lookup`]: finds blocks in the map. [`flight`]: the purpose of each device command. [`ids`]: ids of
//!   things in flight. [`notice`]: events for the administrator.
//! - [`read`]: turns a read piece into device reads at once, each from the place that the policy prefers or
//!   that is expected to answer soonest ([`policy::route`]); it reads from another place when a device fails
//!   (`fail_over`). [`cache`]: whole extents in memory.
//! - [`mod@write`]: selects the target ([`write::target`]), does the read-modify-write of part-blocks, and
//!   writes. Volumes with two copies write both ([`write::copies`]), a duplexed write-back area writes two
//!   slots ([`write::duplex`]); [`write::clear`] trims and zeroes.
//! - `Core::launch` queues a device command; [`io`] coalesces it with adjacent ones and hands it out.
//! - [`device`]: measurements of a device, and its loss: gone or unresponsive.
//! - [`verify`]: checks that devices still contain their superblocks before a FLUSH or a durable change is
//!   acknowledged.
//! - [`durability`]: a completed change is visible at once; commits make it durable, and FLUSH and FUA wait
//!   for them. Also checkpoints, metadata members, write intents, and blocks that a failed flush leaves in
//!   doubt.
//! - [`space`]: admission of new data; when space runs out, copies are evicted ([`space::reclaim`]).
//! - [`mover`]: copies, moves and drops that policies and background tasks request.
//! - [`task`]: periodic work, step by step; the end of this file lists all tasks.
//! - [`background`]: restores second copies, surveys unreachable data and file-system metadata, probes
//!   devices.
//! - [`policy`]: hosts the placement policies, and the guard that stops harmful moves.
//! - [`inspect`], [`admin`]: status queries and administrative commands.
//!
//! The crate is pure: no I/O, no clock, no threads.
#![forbid(unsafe_code)]

mod admin;
mod api;
mod background;
mod base;
mod cache;
mod core;
mod counts;
mod data_path;
mod device;
mod durability;
mod effect;
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
pub use api::devices::DeviceEvent;
pub use api::pump::Driver;
pub use background::consolidate::QUIET_PERIOD;
pub use background::probe::probe_extents;
pub use cache::CacheStatus;
pub use counts::written::BytesWritten;
pub use device::measure::{Load, Responses, ResponsesBySize};
pub use device::pacing::MoverShare;
pub use device::{DeviceSettings, DurableWrites, ErrorCounts};
pub use durability::commit::FlushRules;
pub use durability::doubt::Loss;
pub use ids::AdminId;
pub use inspect::activity::Activity;
pub use inspect::explain::{BlockExplanation, ExplainError, ExplainedPlace};
pub use inspect::status::{BlockStatus, DeviceState, DeviceStatus, PoolStatus, RunKind, STATUS_EXTENTS_MAX};
pub use mover::{MOVER_SHARE, MoverStatus};
pub use notice::{LossReason, Notice, SpaceKind};
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

/// The number of requests in flight above which [`Engine::can_accept`] returns false.
const REQUESTS_MAX: usize = 8192;

/// The buffer memory that an engine reserves when it starts.
pub const RESERVED_MEMORY: Bytes = Bytes::mib(3);

/// The engine of one pool. See the crate's documentation.
#[derive(Debug)]
pub struct Engine {
    data: DataPath,
    background: background::Background,
    admin: admin::Admin,
}

/// The reason why the engine accepts no more changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoppedChanges {
    /// The engine is stopping.
    Stopping,
    /// The metadata cannot be written.
    MetadataFailed,
}

/// An error that keeps an engine from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The buffer memory is too small.
    #[error(
        "{have} of buffer memory is too little: the engine alone needs {least}; \
         raise `clients` under [serve] in the pool file"
    )]
    Memory {
        /// The free buffer memory.
        have: Bytes,
        /// The buffer memory that the engine needs.
        least: Bytes,
    },
    /// The settings are for a different number of devices.
    #[error("internal error: settings for {given} devices, and the pool has {expected}; please report it")]
    Devices {
        /// The number of settings given.
        given: usize,
        /// The number of devices in the pool.
        expected: usize,
    },
}

impl Engine {
    /// Creates an engine for an opened map.
    ///
    /// The engine takes [`RESERVED_MEMORY`] of buffers for itself. `devices` are the settings of the pool's
    /// devices, by id; `options` are fixed for the engine's lifetime.
    ///
    /// # Errors
    /// Fails if there is too little memory, or if the settings do not fit the pool.
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
                device::Availability::Lost { reason: LossReason::Absent, since: now };
            engine.data.base.verification.device_lost(device, LossReason::Absent);
        }
        engine.begin_tasks();
        engine.set_options(options);
        Ok(engine)
    }

    /// Starts the tasks that run from the beginning.
    fn begin_tasks(&mut self) {
        self.background.probing.start(&mut self.data.base.core, &mut self.data.base.space);
        self.admin.resume_removals(&mut self.data.base.core, &mut self.data.base.requests);
        self.data.base.durability.missing_copies.begin_scan(&self.data.base.core);
        self.data.base.host.look_for_metadata(&self.data.base.core);
        if !self.data.base.core.map.absent().is_empty() {
            self.background.unreachable.restart_walk(self.data.base.core.now, &self.data.base.core.map);
        }
    }

    /// Replaces the options. This resets the measurements of policies' moves.
    fn set_options(&mut self, options: Options) {
        let Options { space, mover_share, extent_cache, moves, flushes, seed } = options;
        self.data.base.space.set_space_rules(&mut self.data.base.core, space);
        self.data.mover.set_share(mover_share);
        self.data.base.cache.set_size(extent_cache);
        self.data.base.host.judge_moves(&mut self.data.base.core, moves);
        self.data.base.durability.commits.set_rules(flushes);
        self.data.base.host.random = Rng::new(seed);
    }

    /// Submits a request. Its reply comes from [`Self::next_reply`], exactly once. Requests that wait for a
    /// commit (FLUSH, FUA) continue in [`Self::pump`].
    pub fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M) {
        self.data.base.core.now = now;
        self.accept(request, memory);
    }

    /// Returns the next finished request.
    #[inline]
    pub fn next_reply(&mut self) -> Option<Reply> {
        self.data.base.requests.replies.pop_front()
    }

    /// Returns the next event for the administrator.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.data.base.core.notices.pop()
    }

    /// Returns the latest time at which [`Self::pump`] must be called.
    pub fn deadline(&self) -> Option<Nanos> {
        if self.can_run_tasks() { Some(self.data.base.core.now) } else { self.tasks_due() }
    }

    /// Whether the caller should submit requests now. This is back-pressure, not a guarantee.
    pub fn can_accept(&self) -> bool {
        self.data.base.requests.active.len() < REQUESTS_MAX
            && !self.data.base.core.devices.iter().any(|device| device.epochs.must_throttle())
    }

    /// Returns the reserved buffers to a memory that outlives the engine.
    pub fn release_memory<M: Memory>(self, memory: &mut M) {
        self.data.base.verification.give(memory);
        self.data.base.cache.release_memory(memory);
        self.data.base.space.scratch.give(memory);
    }

    /// Returns the map, read-only.
    pub fn map(&self) -> &Map {
        &self.data.base.core.map
    }
}

// The order matters: a task enables work of those below it, which they do in the same tick.
task::tasks!(
    space::SpaceState,
    api::devices::Deadlines,
    device::abandoned::AbandonedCommands,
    read::restart::Restarts,
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
    api::stop::LastCheck,
    Ready,
);

#[cfg(test)]
mod tests;
