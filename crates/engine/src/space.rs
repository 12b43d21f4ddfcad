//! Admission of new data: space allocation, waiting for space, and reports about it.
//!
//! Running out of space is a recoverable state. Reads continue, and so do writes to extents that have their
//! space; a write that needs more is refused with NoSpace or waits a while ([`WhenFull`]), keeping only its
//! block locks. The operations that free space (TRIM, write-zeroes, removing volumes) need none; for the one
//! exception see `zero_in_place` in [`crate::write::clear`]. Waiting pieces retry whenever some space has
//! been freed.

use crate::Base;
use crate::core::Core;
use crate::ids::PieceId;
use crate::notice::{Notice, SpaceKind};
use crate::request::Requests;
use crate::request::piece::WaitsFor;
use crate::task::Task;
use crate::units::Percent;
use std::collections::VecDeque;
use weir_map::Whole;
use weir_model::{Bytes, DeviceId, ExtentKey, Memory, Nanos, RequestError};
use weir_policy::placement::RESERVE;

pub(crate) mod extra;
mod fill_rate;
mod gauge;
mod give_up;
mod quarantine;
pub(crate) mod reclaim;
pub(crate) mod scratch;
mod shortage;

use fill_rate::FillRate;
use gauge::Gauge;
use shortage::Shortage;

/// The state of the pool's space.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) state: SpaceState,
    pub(crate) reclaim: reclaim::Reclaim,
    pub(crate) extra: extra::Extra,
    pub(crate) scratch: scratch::Scratch,
    /// Blocks dropped from places since the start.
    pub(crate) dropped: u64,
    /// Whether idle response times of devices are still being measured; allocation waits for them.
    pub(crate) awaits_probes: bool,
}

impl Space {
    pub(crate) fn new(now: Nanos, scratch: scratch::Scratch) -> Self {
        let (reclaim, extra) = Default::default();
        Self {
            state: SpaceState::new(now, Bytes(0)),
            reclaim,
            extra,
            scratch,
            dropped: 0,
            awaits_probes: false,
        }
    }
}

/// The maximum number of pieces that wait until space is freed. It is smaller than the number that a client
/// may have in flight, so that a client whose writes all wait can still read, overwrite and trim.
const WAITING_MAX: usize = 64;
/// The maximum buffer memory of pieces that wait for space, for the same reason.
const WAITING_BYTES_MAX: Bytes = Bytes::mib(8);
/// The minimum time between two notices that the pool is full, or is no longer.
const NOTICE_INTERVAL: Nanos = Nanos::secs(10);

/// The handling of a write that needs space when there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused at once.
    #[default]
    Error,
    /// It waits until space is freed, and is refused this long after it was submitted. At most 64 pieces
    /// (each within one extent) and 8 MiB wait at a time; more are refused at once.
    Wait {
        /// The maximum wait.
        timeout: Nanos,
    },
}

/// The rules for a pool that runs out of space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRules {
    /// The handling of writes that need space.
    pub when_full: WhenFull,
    /// The warning thresholds, ascending.
    pub warn_at: Vec<Percent>,
    /// The share of the pool's space that may be used beyond one place per extent, on devices where the
    /// policy keeps no copies on purpose. `None`: unbounded.
    pub extra: Option<Percent>,
    /// The time without client requests after which extents in several places are consolidated. `None`:
    /// never.
    pub quiet: Option<Nanos>,
}

impl Default for SpaceRules {
    fn default() -> Self {
        Self {
            when_full: WhenFull::default(),
            warn_at: vec![Percent(80), Percent(95)],
            extra: None,
            quiet: None,
        }
    }
}

/// The space use of a pool, for status, log and metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpaceStatus {
    /// The total size of all volumes, times their copies: the space that clients may come to use.
    pub provisioned: Bytes,
    /// Space for data on the devices.
    pub total: Bytes,
    /// Space in visible use.
    pub used: Bytes,
    /// The highest warning threshold that space for data has passed.
    pub warning: Option<Percent>,
    /// The highest warning threshold that space for metadata has passed.
    pub metadata_warning: Option<Percent>,
    /// The kind of space that the last write lacked, if none has become free since.
    pub full: Option<SpaceKind>,
    /// Pieces of writes waiting for space.
    pub waiting: usize,
    /// Pieces of writes refused for lack of space since the start.
    pub refused: u64,
    /// The recent rate of net allocation in bytes per second; negative while space is freed.
    pub fill_rate: f64,
    /// The time until the pool is full at the recent rate. `None` if it will not fill, is full, or no
    /// forecast is possible: too short a history, or a rate that differs much from that of the last half
    /// hour.
    pub full_in: Option<Nanos>,
}

/// The pieces that wait for space, and the pool's space use.
#[derive(Debug)]
pub(crate) struct SpaceState {
    pub(crate) rules: SpaceRules,
    /// Pieces that wait: until probes are done, until a release is durable, or until space is freed.
    waiting: VecDeque<PieceId>,
    waiting_bytes: Bytes,
    /// The time at which the first of them expires.
    expires: Option<Nanos>,
    data: Gauge,
    metadata: Gauge,
    full: Option<SpaceKind>,
    shortage: Shortage,
    refused: u64,
    fill_rate: FillRate,
    /// The last report, and its time.
    reported: Option<(Option<SpaceKind>, Nanos)>,
}

impl SpaceState {
    pub(crate) fn new(now: Nanos, used: Bytes) -> Self {
        Self {
            rules: SpaceRules::default(),
            waiting: VecDeque::new(),
            waiting_bytes: Bytes(0),
            expires: None,
            data: Gauge::default(),
            metadata: Gauge::default(),
            full: None,
            shortage: Shortage::default(),
            refused: 0,
            fill_rate: FillRate::new(now, used),
            reported: None,
        }
    }

    /// Returns the rules.
    #[inline]
    pub(crate) fn rules(&self) -> &SpaceRules {
        &self.rules
    }

    /// Whether a piece waits for space.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Task for SpaceState {
    type On = Base;

    /// Returns the time at which the first waiting piece expires.
    fn due(base: &Base) -> Option<Nanos> {
        base.space.state.expires
    }

    /// Refuses the pieces that have waited too long.
    fn run<M: Memory>(base: &mut Base, _: &mut M) {
        if base.space.state.expires.is_some_and(|at| at <= base.core.now) {
            base.space.retry_waiting_space(&mut base.requests);
        }
    }
}

impl Space {
    /// Replaces the rules for running out of space.
    pub(crate) fn set_space_rules(&mut self, core: &mut Core, rules: SpaceRules) {
        self.state.rules = rules;
        self.note_used(core);
    }

    /// Whether space is available again, after a write lacked this kind.
    fn has_space_again(&self, core: &Core, kind: SpaceKind) -> bool {
        match kind {
            SpaceKind::Data => self.state.shortage.is_over(core.available_extents()),
            SpaceKind::Metadata => core.map.has_metadata_space(),
        }
    }

    /// Notes that a write found space: the pool is not full.
    fn note_space(&mut self, core: &mut Core) {
        self.state.full = None;
        self.reclaim.note_space();
        self.report_full(core);
        self.note_used(core);
    }

    fn note_full(&mut self, core: &mut Core, kind: SpaceKind) {
        self.state.full = Some(kind);
        self.state.shortage =
            Shortage::new(core.available_extents(), core.data_space().1.0 / core.map.extent().bytes().0);
        self.report_full(core);
    }

    /// Reports a change between full and not full. Reports are rate-limited, because a pool at its limit may
    /// change many times a second.
    fn report_full(&mut self, core: &mut Core) {
        let (reported, recently) = match self.state.reported {
            Some((reported, at)) => (reported, core.now.since(at) < NOTICE_INTERVAL),
            None => (None, false),
        };
        if reported != self.state.full && !recently {
            self.state.reported = Some((self.state.full, core.now));
            core.notices.push(self.state.full.map_or(Notice::SpaceAvailable, Notice::Full));
        }
    }

    /// Notes that the space use has changed.
    pub(crate) fn note_used(&mut self, core: &mut Core) {
        if self.state.full.is_some_and(|lacking| self.has_space_again(core, lacking)) {
            self.state.full = None;
            self.report_full(core);
        }
        let (used, total) = core.data_space();
        self.state.fill_rate.note(core.now, used);
        if let Some(at) = self.state.data.note(&self.state.rules.warn_at, used.0, total.0) {
            core.notices.push(Notice::Filling { space: SpaceKind::Data, at, used, total });
        }
        let (used, total) = core.map.metadata_requirement();
        if let Some(at) = self.state.metadata.note(&self.state.rules.warn_at, used.0, total.0) {
            core.notices.push(Notice::Filling { space: SpaceKind::Metadata, at, used, total });
        }
    }
}

impl Space {
    fn wait_for_space(&mut self, requests: &mut Requests, id: PieceId, until: Option<Nanos>) {
        requests.wait(id, WaitsFor::Space);
        let space = &mut self.state;
        space.waiting.push_back(id);
        space.waiting_bytes += Bytes(requests.pieces[id.0 as usize].buffer.len.into());
        space.expires = space.expires.into_iter().chain(until).min();
    }

    /// Makes all waiting pieces retry, in the same order: space was freed, a piece has waited too long, or no
    /// more space is expected.
    pub(crate) fn retry_waiting_space(&mut self, requests: &mut Requests) {
        self.state.expires = None;
        self.state.waiting_bytes = Bytes(0);
        let waiting = std::mem::take(&mut self.state.waiting);
        waiting.into_iter().for_each(|id| requests.make_ready(id));
    }

    /// Whether copies may take space there: not while requests wait for space, and not the last reserve.
    pub(crate) fn has_reserve(&self, core: &Core, device: DeviceId) -> bool {
        let there = core.map.space(device);
        !self.state.has_waiters() && there.free() > there.extents() / RESERVE
    }

    /// Returns how many of `count` slots copies may take on the device: below the reserve, only slots of
    /// extents already divided into slots.
    pub(crate) fn slots_for_copies(&self, core: &Core, device: DeviceId, count: u16) -> u16 {
        let there = if self.state.has_waiters() { 0 } else { core.map.space(device).free_slots() };
        if self.has_reserve(core, device) { count } else { count.min(there.try_into().unwrap_or(u16::MAX)) }
    }
}

impl Base {
    /// Returns the pool's space use.
    pub(crate) fn space_status(&self) -> SpaceStatus {
        let (used, total) = self.core.data_space();
        let (need, room) = self.core.map.metadata_requirement();
        let rate = self.space.state.fill_rate.per_second(self.core.now);
        let full_in =
            self.space.state.fill_rate.time_for(self.core.now, Bytes(total.0.saturating_sub(used.0)));
        SpaceStatus {
            provisioned: self.provisioned(),
            total,
            used,
            warning: self.space.state.data.threshold_for(&self.space.state.rules.warn_at, used.0, total.0),
            metadata_warning: self.space.state.metadata.threshold_for(
                &self.space.state.rules.warn_at,
                need.0,
                room.0,
            ),
            full: self.space.state.full.filter(|lacking| !self.space.has_space_again(&self.core, *lacking)),
            waiting: self.space.state.waiting.len(),
            refused: self.space.state.refused,
            fill_rate: rate,
            full_in,
        }
    }

    fn provisioned(&self) -> Bytes {
        let volumes = self.core.map.catalogue().volumes.iter();
        let staying = volumes.filter(|(id, _)| !self.requests.is_being_removed(**id));
        let sizes = staying.map(|(_, volume)| volume.size.0.saturating_mul(volume.copies.into()));
        Bytes(sizes.fold(0, u64::saturating_add))
    }

    /// Allocates space for an extent. Without space the piece waits or fails, and the caller has nothing more
    /// to do.
    pub(crate) fn allocate(&mut self, id: PieceId, key: ExtentKey) -> Option<Whole> {
        if self.space.awaits_probes {
            self.space.wait_for_space(&mut self.requests, id, None);
            return None;
        }
        let lacking = match self.find_space(id, key) {
            Ok(whole) => {
                self.space.note_space(&mut self.core);
                return Some(whole);
            }
            Err(lacking) => lacking,
        };
        // Space may be about to become free: its release is not durable yet, or a command that may still
        // touch it has not ended. Space quarantined on a lost device may stay there forever.
        let releasing = self.core.map.pending_release_count() > 0;
        if releasing {
            self.durability.request_commit();
        }
        if releasing || self.core.devices.iter().any(|d| d.quarantined.has_chunks() && !d.is_lost()) {
            // After its time the piece still waits for this space, but no longer for clients to free some.
            let until = self.may_wait_until(id).filter(|until| *until > self.core.now);
            self.space.wait_for_space(&mut self.requests, id, until);
            return None;
        }
        if lacking == SpaceKind::Data && self.begin_reclaim() {
            self.space.wait_for_space(&mut self.requests, id, None);
            return None;
        }
        self.space.note_full(&mut self.core, lacking);
        let until = self.may_wait_until(id).filter(|until| *until > self.core.now);
        let len = Bytes(self.requests.pieces[id.0 as usize].buffer.len.into());
        let fits = self.space.state.waiting.len() < WAITING_MAX
            && self.space.state.waiting_bytes + len <= WAITING_BYTES_MAX;
        if until.is_some() && fits {
            self.space.wait_for_space(&mut self.requests, id, until);
        } else {
            self.space.state.refused += 1;
            self.piece_failed(id, RequestError::NoSpace);
        }
        None
    }

    fn find_space(&mut self, id: PieceId, key: ExtentKey) -> Result<Whole, SpaceKind> {
        if !self.core.map.has_metadata_space() {
            return Err(SpaceKind::Metadata);
        }
        let mut access = self.access(id);
        access.places = self.places_of_extent(key);
        let policy_index = self.host.policies.index_of(key.volume);
        let chosen = self.ask(policy_index, |policy, moment| policy.allocate(moment, &access));
        chosen.and_then(|device| self.core.map.allocate(device)).ok_or(SpaceKind::Data)
    }

    /// Returns until when the piece's request may wait for others to free space; `None` if not at all.
    fn may_wait_until(&self, id: PieceId) -> Option<Nanos> {
        let WhenFull::Wait { timeout: at_most } = self.space.state.rules.when_full else { return None };
        let active = &self.requests.active[self.requests.pieces[id.0 as usize].request.0];
        let stays = !self.requests.is_being_removed(active.request.volume);
        (stays && self.core.stopped_changes.is_none()).then(|| active.submitted + at_most)
    }
}
