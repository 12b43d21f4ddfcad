//! Space for new data: who gets it, who waits for it, and what is said about it.
//!
//! Running out of it is a state with a way back. Reads go on, and writes to extents that have their
//! space; a write that needs more is refused with NoSpace or waits a while ([`WhenFull`]), holding
//! nothing but its own blocks. What gives space back (TRIM, write-zeroes, removing volumes) needs
//! none; for the one case that might, see `zero_in_place` in [`crate::write::clear`]. Whoever waits tries
//! again whenever some has come back.

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
mod lack;
mod quarantine;
pub(crate) mod reclaim;
pub(crate) mod scratch;

use fill_rate::FillRate;
use gauge::Gauge;
use lack::Lack;

/// See the module.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) state: SpaceState,
    pub(crate) reclaim: reclaim::Reclaim,
    pub(crate) extra: extra::Extra,
    pub(crate) scratch: scratch::Scratch,
    /// Blocks that places have given up to others since the start.
    pub(crate) dropped: u64,
    /// Idle responses of devices are still being measured: allocation waits for them.
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

/// Pieces that may wait for space to be freed by somebody: fewer than a client may have in flight,
/// so that one whose every write waits can still read, overwrite and trim.
const WAITING_MAX: usize = 64;
/// The buffer memory that pieces waiting for space may hold, for the same reason.
const WAITING_BYTES_MAX: Bytes = Bytes::mib(8);
/// The least time between two notices that the pool is full, or is no longer.
const NOTICE_AFTER: Nanos = Nanos::secs(10);

/// What becomes of a write that needs space when there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused at once.
    #[default]
    Error,
    /// It waits until some is freed, and is refused this long after it was submitted. At most 64
    /// pieces (each within one extent) and 8 MiB wait at a time; more are refused at once.
    Wait {
        /// How long.
        at_most: Nanos,
    },
}

/// How a pool deals with running out of space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRules {
    /// What becomes of writes that need space.
    pub when_full: WhenFull,
    /// How full it is when its users are to be warned, ascending.
    pub warn_at: Vec<Percent>,
    /// Of its space for data, what may be taken beyond one place an extent where the policy keeps none on
    /// purpose; without a bound unless given.
    pub extra: Option<Percent>,
    /// How long clients must have asked for nothing before extents in pieces are put together; they never are
    /// unless given.
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

/// How full a pool is: for status, log and metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpaceStatus {
    /// The sizes of all volumes together, times their copies: what clients may come to use.
    pub promised: Bytes,
    /// Space for data on the devices.
    pub total: Bytes,
    /// Of it, taken by what is in effect.
    pub used: Bytes,
    /// The highest warning threshold that space for data has passed.
    pub warning: Option<Percent>,
    /// The highest warning threshold that space for metadata has passed.
    pub metadata_warning: Option<Percent>,
    /// The last write that needed space got none, for want of this, and none has become free since.
    pub full: Option<SpaceKind>,
    /// Pieces of writes waiting for space.
    pub waiting: usize,
    /// Pieces of writes refused for want of space since the start.
    pub refused: u64,
    /// Net bytes taken per second of late, given back ones subtracted; negative while space is freed.
    pub fill_rate: f64,
    /// When all space is taken if this goes on; `None` if it would never be, or is, or nobody can tell: too
    /// little was seen, or it grows much faster or slower now than over the last half hour.
    pub full_in: Option<Nanos>,
}

/// Who waits, and how full the pool is.
#[derive(Debug)]
pub(crate) struct SpaceState {
    pub(crate) rules: SpaceRules,
    /// Pieces waiting: until probes are done, until a release is durable, until somebody frees some.
    waiting: VecDeque<PieceId>,
    waiting_bytes: Bytes,
    /// When the first of them has waited long enough.
    expires: Option<Nanos>,
    data: Gauge,
    metadata: Gauge,
    full: Option<SpaceKind>,
    lack: Lack,
    refused: u64,
    rate: FillRate,
    /// What was last said of it, and when.
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
            lack: Lack::default(),
            refused: 0,
            rate: FillRate::new(now, used),
            reported: None,
        }
    }

    /// The rules there are.
    #[inline]
    pub(crate) fn rules(&self) -> &SpaceRules {
        &self.rules
    }

    /// Whether somebody waits.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Task for SpaceState {
    type On = Base;

    /// When the first piece has waited long enough.
    fn due(base: &Base) -> Option<Nanos> {
        base.space.state.expires
    }

    /// Refuses what has waited long enough.
    fn run<M: Memory>(base: &mut Base, _: &mut M) {
        if base.space.state.expires.is_some_and(|at| at <= base.core.now) {
            base.space.retry_waiting_space(&mut base.requests);
        }
    }
}

impl Space {
    /// From now on these are the rules for running out of space.
    pub(crate) fn set_space_rules(&mut self, core: &mut Core, rules: SpaceRules) {
        self.state.rules = rules;
        self.note_used(core);
    }

    /// Whether there is room again since a write last got none for want of this.
    fn has_room_again(&self, core: &Core, lacking: SpaceKind) -> bool {
        match lacking {
            SpaceKind::Data => self.state.lack.is_over(core.available_extents()),
            SpaceKind::Metadata => core.map.has_metadata_room(),
        }
    }

    /// Space was found: the pool is not full.
    fn note_room(&mut self, core: &mut Core) {
        self.state.full = None;
        self.reclaim.note_room();
        self.report_full(core);
        self.note_used(core);
    }

    fn note_full(&mut self, core: &mut Core, lacking: SpaceKind) {
        self.state.full = Some(lacking);
        self.state.lack =
            Lack::of(core.available_extents(), core.data_space().1.0 / core.map.extent().bytes().0);
        self.report_full(core);
    }

    /// Says whether the pool is full if that is not what was said last; not at once, since a pool at
    /// its limit may be full and not full many times a second.
    fn report_full(&mut self, core: &mut Core) {
        let (reported, recently) = match self.state.reported {
            Some((reported, at)) => (reported, core.now.since(at) < NOTICE_AFTER),
            None => (None, false),
        };
        if reported != self.state.full && !recently {
            self.state.reported = Some((self.state.full, core.now));
            core.notices.push(self.state.full.map_or(Notice::RoomAgain, Notice::Full));
        }
    }

    /// How much is taken has changed.
    pub(crate) fn note_used(&mut self, core: &mut Core) {
        if self.state.full.is_some_and(|lacking| self.has_room_again(core, lacking)) {
            self.state.full = None;
            self.report_full(core);
        }
        let (used, total) = core.data_space();
        self.state.rate.note(core.now, used);
        if let Some(at) = self.state.data.note(&self.state.rules.warn_at, used.0, total.0) {
            core.notices.push(Notice::Filling { room: SpaceKind::Data, at, used, total });
        }
        let (used, total) = core.map.metadata_need();
        if let Some(at) = self.state.metadata.note(&self.state.rules.warn_at, used.0, total.0) {
            core.notices.push(Notice::Filling { room: SpaceKind::Metadata, at, used, total });
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

    /// Space has come back, or some piece has waited long enough, or none is on its way any more:
    /// whoever waits tries again, in the same order.
    pub(crate) fn retry_waiting_space(&mut self, requests: &mut Requests) {
        self.state.expires = None;
        self.state.waiting_bytes = Bytes(0);
        let waiting = std::mem::take(&mut self.state.waiting);
        waiting.into_iter().for_each(|id| requests.go_on(id));
    }

    /// Whether copies may take space there: not what requests wait for, nor the last of it.
    pub(crate) fn has_reserve(&self, core: &Core, device: DeviceId) -> bool {
        let there = core.map.space(device);
        !self.state.is_waited_for() && there.free() > there.extents() / RESERVE
    }

    /// Of so many slots, how many copies may take there: where no more extents may be cut, those of extents
    /// that are.
    pub(crate) fn slots_for_copies(&self, core: &Core, device: DeviceId, count: u16) -> u16 {
        let there = if self.state.is_waited_for() { 0 } else { core.map.space(device).free_slots() };
        if self.has_reserve(core, device) { count } else { count.min(there.try_into().unwrap_or(u16::MAX)) }
    }
}

impl Base {
    /// How full the pool is.
    pub(crate) fn space_status(&self) -> SpaceStatus {
        let (used, total) = self.core.data_space();
        let (need, room) = self.core.map.metadata_need();
        let rate = self.space.state.rate.per_second(self.core.now);
        let full_in = self.space.state.rate.time_for(self.core.now, Bytes(total.0.saturating_sub(used.0)));
        SpaceStatus {
            promised: self.promised(),
            total,
            used,
            warning: self.space.state.data.at(&self.space.state.rules.warn_at, used.0, total.0),
            metadata_warning: self.space.state.metadata.at(&self.space.state.rules.warn_at, need.0, room.0),
            full: self.space.state.full.filter(|lacking| !self.space.has_room_again(&self.core, *lacking)),
            waiting: self.space.state.waiting.len(),
            refused: self.space.state.refused,
            fill_rate: rate,
            full_in,
        }
    }

    fn promised(&self) -> Bytes {
        let volumes = self.core.map.catalogue().volumes.iter();
        let staying = volumes.filter(|(id, _)| !self.requests.is_being_removed(**id));
        let sizes = staying.map(|(_, volume)| volume.size.0.saturating_mul(volume.copies.into()));
        Bytes(sizes.fold(0, u64::saturating_add))
    }

    /// Space for an extent; without any the piece waits or fails, and there is nothing more to do.
    pub(crate) fn allocate(&mut self, id: PieceId, key: ExtentKey) -> Option<Whole> {
        if self.space.awaits_probes {
            self.space.wait_for_space(&mut self.requests, id, None);
            return None;
        }
        let lacking = match self.find_space(id, key) {
            Ok(whole) => {
                self.space.note_room(&mut self.core);
                return Some(whole);
            }
            Err(lacking) => lacking,
        };
        // Space may be on its way: given up, but its release not durable yet, or a command that may
        // still touch it not ended. What is quarantined on a lost device may stay so for good.
        let releasing = self.core.map.releasing() > 0;
        if releasing {
            self.durability.request_commit();
        }
        if releasing || self.core.devices.iter().any(|d| d.quarantined.any() && !d.is_lost()) {
            // Past its time it still waits for that, but no longer for anybody else.
            let until = self.may_wait_until(id).filter(|until| *until > self.core.now);
            self.space.wait_for_space(&mut self.requests, id, until);
            return None;
        }
        if lacking == SpaceKind::Data && self.may_reclaim() {
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
        if !self.core.map.has_metadata_room() {
            return Err(SpaceKind::Metadata);
        }
        let mut access = self.access(id);
        access.places = self.places_of_extent(key);
        let which = self.host.policies.of(key.volume);
        let chosen = self.ask_one(which, |policy, moment| policy.allocate(moment, &access));
        chosen.and_then(|device| self.core.map.allocate(device)).ok_or(SpaceKind::Data)
    }

    /// How long the piece's request may wait for others to free some space; `None` if not at all.
    fn may_wait_until(&self, id: PieceId) -> Option<Nanos> {
        let WhenFull::Wait { at_most } = self.space.state.rules.when_full else { return None };
        let active = &self.requests.active[self.requests.pieces[id.0 as usize].request.0];
        let stays = !self.requests.is_being_removed(active.request.volume);
        (stays && self.core.stopped_changes.is_none()).then(|| active.submitted + at_most)
    }
}
