//! Calls to the policies: the view of devices and map that they receive, and the actions that they request.

use crate::Base;
use crate::cache::ExtentCache;
use crate::ids::PieceId;
use crate::policy::Host;
use crate::policy::index::{PolicyIndex, decides_for};
use crate::policy::runs::Runs;
use weir_map::{ExtentState, Map, Place, Record, Whole};
use weir_model::{BlockRange, Bytes, ExtentIndex, ExtentKey, Hint, Op, PlaceId, PlaceKind, VolumeId};
use weir_policy::placement::{Access, Action, DeviceView, PlaceView, Placement, Places, PolicyContext};

/// The actions that policies request, and the sequential runs of requests.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    /// Actions that a policy requested and that are not queued for the mover yet.
    actions: Vec<Action>,
    runs: Runs,
}

impl Host {
    /// Returns the length of the sequential run that a request continues, if the policy wants to know.
    #[inline]
    pub(crate) fn note_request(&mut self, request: &weir_model::Request) -> Bytes {
        if self.policies.watches(request.volume).runs && request.op.has_payload() {
            self.advice.runs.note(request.volume, request.offset, request.len)
        } else {
            Bytes(0)
        }
    }
}

impl Base {
    /// Returns the map as a policy sees it.
    pub(crate) fn whereabouts(&self, policy_index: PolicyIndex) -> impl weir_policy::placement::PlaceLookup {
        Whereabouts {
            map: &self.core.map,
            cache: &self.cache,
            policy_index,
            policy_volumes: &self.host.policies.policy_volumes,
        }
    }

    /// Asks a policy a question, and passes the actions that it appended to the mover.
    #[inline]
    pub(crate) fn ask<T>(
        &mut self,
        policy_index: PolicyIndex,
        question: impl FnOnce(&mut dyn Placement, &mut PolicyContext<'_>) -> T,
    ) -> T {
        self.core.fill_in_views();
        self.ask_with_devices(policy_index, None, question)
    }

    /// Asks a policy a question about hypothetical devices.
    pub(crate) fn ask_hypothetical<T>(
        &mut self,
        policy_index: PolicyIndex,
        devices: &[DeviceView],
        question: impl FnOnce(&mut dyn Placement, &mut PolicyContext<'_>) -> T,
    ) -> T {
        self.ask_with_devices(policy_index, Some(devices), question)
    }

    /// Asks a policy a question about the given devices, or the actual ones.
    #[inline(always)]
    fn ask_with_devices<T>(
        &mut self,
        policy_index: PolicyIndex,
        devices: Option<&[DeviceView]>,
        question: impl FnOnce(&mut dyn Placement, &mut PolicyContext<'_>) -> T,
    ) -> T {
        let Self { core, cache, host: Host { advice, policies, random, actions, .. }, .. } = self;
        let mut moment = PolicyContext {
            now: core.now,
            devices: devices.unwrap_or(core.views.all()),
            measured: core.views.measured(),
            extent: core.map.extent(),
            map: &Whereabouts {
                map: &core.map,
                cache,
                policy_index,
                policy_volumes: &policies.policy_volumes,
            },
            random,
            actions: &mut advice.actions,
            actions_max: actions.free(),
        };
        let answer = question(&mut *policies.all[policy_index.0].policy, &mut moment);
        if !self.host.advice.actions.is_empty() {
            self.take_actions(policy_index);
        }
        answer
    }

    /// Queues the actions that a policy has requested, as far as they are permitted.
    #[inline(never)]
    fn take_actions(&mut self, policy_index: PolicyIndex) {
        let mut actions = std::mem::take(&mut self.host.advice.actions);
        let stopped = self.host.has_stopped_moves(policy_index);
        for action in actions.drain(..) {
            let may = !stopped || self.is_exempt_from_stop(&action);
            if may && decides_for(policy_index, &self.host.policies.policy_volumes, action.key().volume) {
                self.host.actions.push(action);
            }
        }
        self.host.advice.actions = actions;
    }

    /// Reports a piece's access to its volume's policy, once.
    #[inline(always)]
    pub(crate) fn report_access(&mut self, id: PieceId, places: impl FnOnce(&Self) -> Places) {
        let policy_index = self.host.policies.index_of(self.requests.pieces[id.0 as usize].key.volume);
        if self.host.policies.all[policy_index.0].watches.accesses {
            self.report_to_watcher(id, policy_index, places);
        }
    }

    #[inline(never)]
    fn report_to_watcher(
        &mut self,
        id: PieceId,
        policy_index: PolicyIndex,
        places: impl FnOnce(&Self) -> Places,
    ) {
        let piece = &mut self.requests.pieces[id.0 as usize];
        if std::mem::replace(&mut piece.reported, true) {
            return;
        }
        let mut access = self.access(id);
        access.places = places(self);
        if access.op.changes() {
            self.host.note_superblock(&self.core, access.key, access.blocks);
        }
        self.ask(policy_index, |policy, moment| policy.accessed(moment, &access));
    }

    /// Returns a piece as policies see it, without its places.
    #[inline(always)]
    pub(crate) fn access(&self, id: PieceId) -> Access {
        let piece = &self.requests.pieces[id.0 as usize];
        let active = &self.requests.active[piece.request.0];
        let request = &active.request;
        Access {
            key: piece.key,
            blocks: piece.range,
            op: request.op,
            bytes: Bytes(piece.span.len.into()),
            run: Bytes(request.len.0 + active.run_length.0),
            hint: self.host.hint(&self.core, request.hint, piece.key, piece.range),
            places: Places::NONE,
        }
    }

    /// Returns an access that writes a whole extent.
    pub(crate) fn access_to_all(&self, key: ExtentKey) -> Access {
        let bytes = self.core.map.extent().bytes();
        let blocks = BlockRange { first: 0, count: self.core.map.extent().blocks() };
        let places = self.places_of_extent(key);
        Access { key, blocks, op: Op::Write, bytes, run: bytes, hint: Hint::None, places }
    }

    /// Returns the places of an extent.
    pub(crate) fn places_of_extent(&self, key: ExtentKey) -> Places {
        self.places_of_blocks(key, BlockRange { first: 0, count: self.core.map.extent().blocks() })
    }

    /// Returns the places of some blocks of an extent.
    pub(crate) fn places_of_blocks(&self, key: ExtentKey, range: BlockRange) -> Places {
        places_of_found(&self.core.map.find(key), range, self.core.map.extent().blocks())
    }

    /// Returns the places of blocks in an extent that is in one whole place.
    #[inline]
    pub(crate) fn place_of_whole(&self, whole: Whole, range: BlockRange) -> Places {
        Places::one(whole_view(whole, range, self.core.map.extent().blocks()))
    }
}

/// Returns the places of the range's blocks, given the map entry.
pub(crate) fn places_of_found(found: &ExtentState<'_>, range: BlockRange, all: u16) -> Places {
    let mut places = Places::NONE;
    push_places_of_found(found, range, all, &mut places);
    places
}

/// Adds the places of the blocks to `places`, because copying a list of places costs more than filling it.
#[inline]
pub(crate) fn push_places_of_found(
    found: &ExtentState<'_>,
    range: BlockRange,
    all: u16,
    places: &mut Places,
) {
    match found {
        ExtentState::Empty => {}
        ExtentState::Direct(whole) => places.push(whole_view(*whole, range, all)),
        ExtentState::Record(record) => push_places(record, range, places),
    }
}

#[inline]
fn whole_view(whole: Whole, range: BlockRange, all: u16) -> PlaceView {
    let id = PlaceId { device: whole.device, kind: PlaceKind::Whole };
    PlaceView { id, blocks: range.count, of_extent: all, sole: all, dirty: 0 }
}

/// Returns the places of the range's blocks in a record.
pub(crate) fn places_of(record: &Record, range: BlockRange) -> Places {
    let mut places = Places::NONE;
    push_places(record, range, &mut places);
    places
}

#[inline(never)]
pub(crate) fn push_places(record: &Record, range: BlockRange, places: &mut Places) {
    let are_apart = match &record.places[..] {
        [_] => true,
        [a, b] => !a.valid.intersects(&b.valid),
        _ => false,
    };
    for place in &record.places {
        let (id, of_extent) = (place.at.id(), place.count());
        let blocks = match range.count {
            1 => u16::from(place.valid.contains(range.first)),
            _ => place.valid.count_in(range) as u16,
        };
        let (alone, dirty) =
            if are_apart { (of_extent, of_extent) } else { count_sole_and_dirty(record, place) };
        let dirty = if id.kind == PlaceKind::Whole { 0 } else { dirty };
        places.push(PlaceView { id, blocks, of_extent, sole: alone, dirty });
    }
}

/// Counts a place's blocks that are valid in no other place of the record, and those that are valid in no
/// other whole place.
#[inline(never)]
fn count_sole_and_dirty(record: &Record, place: &Place) -> (u16, u16) {
    let outside = |others: &dyn Fn(&Place) -> bool| {
        let others = record.places.iter().filter(|other| others(other)).map(|other| &other.valid);
        place.valid.count_outside(others) as u16
    };
    let alone = outside(&|other| !std::ptr::eq(other, place));
    (alone, outside(&|other| !std::ptr::eq(other, place) && other.at.id().kind == PlaceKind::Whole))
}

/// The map as a policy sees it, limited to its own volumes.
struct Whereabouts<'a> {
    map: &'a Map,
    cache: &'a ExtentCache,
    policy_index: PolicyIndex,
    policy_volumes: &'a [VolumeId],
}

impl weir_policy::placement::PlaceLookup for Whereabouts<'_> {
    fn places(&self, key: ExtentKey) -> Places {
        let blocks = self.map.extent().blocks();
        places_of_found(&self.map.find(key), BlockRange { first: 0, count: blocks }, blocks)
    }

    fn has_place(&self, key: ExtentKey, place: PlaceId) -> bool {
        self.map.has_blocks(key, place)
    }

    fn have_place(&self, first: ExtentKey, extents: u64, place: PlaceId) -> u64 {
        self.map.have_blocks(first, extents, place)
    }

    fn visit_place_ids(&self, key: ExtentKey, visit: &mut dyn FnMut(PlaceId)) {
        self.map.visit_place_ids(key, visit);
    }

    fn is_in_memory_besides(&self, key: ExtentKey, blocks: BlockRange) -> bool {
        self.cache.holds_besides(key, blocks, self.map.extent().blocks())
    }

    fn next(&self, from: ExtentKey) -> Option<ExtentKey> {
        let volumes = self.map.catalogue().volumes_from(from.volume);
        let mut volumes =
            volumes.filter(|(volume, _)| decides_for(self.policy_index, self.policy_volumes, **volume));
        volumes.find_map(|(volume, _): (&VolumeId, _)| {
            let first = if *volume == from.volume { from.index } else { ExtentIndex(0) };
            let index = self.map.next_used(*volume, first)?;
            Some(ExtentKey { volume: *volume, index })
        })
    }
}
