//! Calls to the policies: the view of devices and map that they receive, and the actions that they request.

use crate::Base;
use crate::ids::PieceId;
use crate::policy::Host;
use crate::policy::runs::Runs;
use crate::policy::which::{Which, is_about};
use weir_map::{Found, Map, Place, Record, Whole};
use weir_model::{BlockRange, Bytes, ExtentIndex, ExtentKey, Hint, Op, PlaceId, PlaceKind, VolumeId};
use weir_policy::placement::{Access, Action, DeviceView, Moment, PlaceView, Placement, Places};

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
    pub(crate) fn continues(&mut self, request: &weir_model::Request) -> Bytes {
        if self.policies.watches(request.volume).runs && request.op.has_payload() {
            self.advice.runs.note(request.volume, request.offset, request.len)
        } else {
            Bytes(0)
        }
    }
}

impl Base {
    /// Returns the map as a policy sees it.
    pub(crate) fn whereabouts(&self, which: Which) -> impl weir_policy::placement::Whereabouts {
        Whereabouts { map: &self.core.map, which, own: &self.host.policies.own }
    }

    /// Asks a policy a question, and passes the actions that it appended to the mover.
    #[inline]
    pub(crate) fn ask_one<T>(
        &mut self,
        which: Which,
        question: impl FnOnce(&mut dyn Placement, &mut Moment<'_>) -> T,
    ) -> T {
        self.core.fill_in_views();
        self.ask_of(which, None, question)
    }

    /// Asks a policy a question about hypothetical devices.
    pub(crate) fn ask_about<T>(
        &mut self,
        which: Which,
        devices: &[DeviceView],
        question: impl FnOnce(&mut dyn Placement, &mut Moment<'_>) -> T,
    ) -> T {
        self.ask_of(which, Some(devices), question)
    }

    /// Asks a policy a question about the given devices, or the actual ones.
    #[inline(always)]
    fn ask_of<T>(
        &mut self,
        which: Which,
        devices: Option<&[DeviceView]>,
        question: impl FnOnce(&mut dyn Placement, &mut Moment<'_>) -> T,
    ) -> T {
        let Self { core, host: Host { advice, policies, random, actions, .. }, .. } = self;
        let mut moment = Moment {
            now: core.now,
            devices: devices.unwrap_or(core.views.all()),
            measured: core.views.measured(),
            extent: core.map.extent(),
            map: &Whereabouts { map: &core.map, which, own: &policies.own },
            random,
            actions: &mut advice.actions,
            actions_max: actions.free(),
        };
        let answer = question(&mut *policies.all[which.0].policy, &mut moment);
        if !self.host.advice.actions.is_empty() {
            self.take_actions(which);
        }
        answer
    }

    /// Queues the actions that a policy has requested, as far as they are permitted.
    #[inline(never)]
    fn take_actions(&mut self, which: Which) {
        let mut actions = std::mem::take(&mut self.host.advice.actions);
        let stopped = self.host.has_stopped_moves(which);
        for action in actions.drain(..) {
            let may = !stopped || self.brings_home(&action);
            if may && is_about(which, &self.host.policies.own, action.key().volume) {
                self.host.actions.push(action);
            }
        }
        self.host.advice.actions = actions;
    }

    /// Reports a piece's access to its volume's policy, once.
    #[inline(always)]
    pub(crate) fn report_access(&mut self, id: PieceId, places: impl FnOnce(&Self) -> Places) {
        let which = self.host.policies.of(self.requests.pieces[id.0 as usize].key.volume);
        if self.host.policies.all[which.0].watches.accesses {
            self.report_to_watcher(id, which, places);
        }
    }

    #[inline(never)]
    fn report_to_watcher(&mut self, id: PieceId, which: Which, places: impl FnOnce(&Self) -> Places) {
        let piece = &mut self.requests.pieces[id.0 as usize];
        if std::mem::replace(&mut piece.reported, true) {
            return;
        }
        let mut access = self.access(id);
        access.places = places(self);
        if access.op.changes() {
            self.host.note_superblock(&self.core, access.key, access.blocks);
        }
        self.ask_one(which, |policy, moment| policy.accessed(moment, &access));
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
            run: Bytes(request.len.0 + active.continues.0),
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
        places_found(&self.core.map.find(key), range, self.core.map.extent().blocks())
    }

    /// Returns the places of blocks in an extent that is in one whole place.
    #[inline]
    pub(crate) fn place_of_whole(&self, whole: Whole, range: BlockRange) -> Places {
        Places::one(in_whole(whole, range, self.core.map.extent().blocks()))
    }
}

/// Returns the places of the range's blocks, given the map entry.
pub(crate) fn places_found(found: &Found<'_>, range: BlockRange, all: u16) -> Places {
    let mut places = Places::NONE;
    push_places_found(found, range, all, &mut places);
    places
}

/// Adds the places of the blocks to `places`, because copying a list of places costs more than filling it.
#[inline]
pub(crate) fn push_places_found(found: &Found<'_>, range: BlockRange, all: u16, places: &mut Places) {
    match found {
        Found::Empty => {}
        Found::Direct(whole) => places.push(in_whole(*whole, range, all)),
        Found::Record(record) => push_places(record, range, places),
    }
}

#[inline]
fn in_whole(whole: Whole, range: BlockRange, all: u16) -> PlaceView {
    let id = PlaceId { device: whole.device, kind: PlaceKind::Whole };
    PlaceView { id, blocks: range.count, of_extent: all, alone: all, dirty: 0 }
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
        [a, b] => !a.valid.meets(&b.valid),
        _ => false,
    };
    for place in &record.places {
        let (id, of_extent) = (place.at.id(), place.count());
        let blocks = match range.count {
            1 => u16::from(place.valid.contains(range.first)),
            _ => place.valid.count_in(range) as u16,
        };
        let (alone, dirty) = if are_apart { (of_extent, of_extent) } else { alone_and_dirty(record, place) };
        let dirty = if id.kind == PlaceKind::Whole { 0 } else { dirty };
        places.push(PlaceView { id, blocks, of_extent, alone, dirty });
    }
}

/// Counts a place's blocks that are valid in no other place of the record, and those that are valid in no
/// other whole place.
#[inline(never)]
fn alone_and_dirty(record: &Record, place: &Place) -> (u16, u16) {
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
    which: Which,
    own: &'a [VolumeId],
}

impl weir_policy::placement::Whereabouts for Whereabouts<'_> {
    fn places(&self, key: ExtentKey) -> Places {
        let blocks = self.map.extent().blocks();
        places_found(&self.map.find(key), BlockRange { first: 0, count: blocks }, blocks)
    }

    fn next(&self, from: ExtentKey) -> Option<ExtentKey> {
        let volumes = self.map.catalogue().volumes_from(from.volume);
        let mut volumes = volumes.filter(|(volume, _)| is_about(self.which, self.own, **volume));
        volumes.find_map(|(volume, _): (&VolumeId, _)| {
            let first = if *volume == from.volume { from.index } else { ExtentIndex(0) };
            let index = self.map.next_used(*volume, first)?;
            Some(ExtentKey { volume: *volume, index })
        })
    }
}
