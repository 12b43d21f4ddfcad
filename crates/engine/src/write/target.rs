//! Target selection: a write goes in place, to fine slots (on one device, or on two:
//! [`crate::write::duplex`]) or a whole place elsewhere if the policy says so, else to the extent's whole
//! place, which is allocated if there is none.
//!
//! Blocks of one piece may be in several places: the piece is then split, and each part has its own target.
//! Blocks on a lost device that are replaced as whole blocks go to a place on another device, so that a
//! client can repair lost data by rewriting it. This module enforces rule 3 of docs/internals/invariants.md:
//! blocks valid in several places are not overwritten while a power loss could make the map take one for a
//! copy of the other (see [`weir_map::Map::may_overwrite`]).

use crate::core::Core;
use crate::ids::PieceId;
use crate::lookup::{self, Address};
use crate::policy::Host;
use crate::policy::index::PolicyIndex;
use crate::request::Requests;
use crate::request::piece::{Piece, PlacePreference, TargetRun, Work};
use crate::space::Space;
use crate::write::duplex::{duplexed_slots, reallocate_duplexed_slots};
use crate::{Base, DataPath};
use weir_map::{
    BlockSet, Chunk, ExtentState, Location, PLACES_MAX, Place, Record, Slot, WHOLE_PLACES_MAX, Whole,
};
use weir_model::{BLOCK, BlockRange, Buffer, DeviceId, ExtentKey, Mutant, PlaceId, PlaceKind, Span};
use weir_policy::placement::{Access, WriteTo};

/// Whether the extent can have one more whole place, by the limit on their number.
fn has_space(record: &Record) -> bool {
    record.places.len() < PLACES_MAX && lookup::whole_places(record).count() < WHOLE_PLACES_MAX
}

/// Returns the longest prefix of the range that satisfies `goes`.
fn first_run(range: BlockRange, goes: impl Fn(u16) -> bool) -> BlockRange {
    let count = (range.first..range.end()).take_while(|b| goes(*b)).count() as u16;
    BlockRange { first: range.first, count }
}

fn may_redirect(
    core: &Core,
    host: &Host,
    space: &Space,
    policy_index: PolicyIndex,
    device: Option<DeviceId>,
) -> bool {
    device.is_some_and(|device| accepts_redirects(core, space, device))
        && space.may_take_extra(core, host, policy_index)
}

/// Whether writes that could stay in place may be sent to the device.
pub(crate) fn accepts_redirects(core: &Core, space: &Space, device: DeviceId) -> bool {
    device.index() < core.devices.len() && core.is_usable(device) && !space.state.has_waiters()
}

/// Allocates fine slots on a device, if there are some.
fn slots_on(
    core: &mut Core,
    requests: &Requests,
    id: PieceId,
    record: Option<&Record>,
    device: DeviceId,
) -> Option<(Address, BlockRange)> {
    let Piece { key, range, .. } = requests.pieces[id.0 as usize];
    let place = PlaceId { device, kind: PlaceKind::Fine };
    // Blocks valid in this place are overwritten in place, unless they would have to wait until another place
    // is invalid for them.
    let valid = record.and_then(|r| r.place(place)).map(|p| &p.valid);
    let stays = |b: u16| {
        let one = BlockRange { first: b, count: 1 };
        valid.is_some_and(|h| h.contains(b)) && core.map.may_overwrite(key, place, one)
    };
    let count = (range.first..range.end()).take_while(|b| !stays(*b)).count() as u16;
    if count == 0 || !core.map.may_add_place(key, place) || !core.map.has_space_for_places() {
        return None;
    }
    let slots = core.adjacent_slots(device, count);
    let first = *slots.first()?;
    let run = BlockRange { first: range.first, count: slots.len() as u16 };
    Some((Address::Slots { device, first, fresh: true }, run))
}

/// Whether clients' reads of some of these blocks are in flight. Cost: linear in the pieces in flight.
fn is_being_read(requests: &Requests, key: ExtentKey, run: BlockRange) -> bool {
    requests.pieces.iter().any(|(_, piece)| piece.is_reading(key, run))
}

/// Returns the place of the piece's first block, and how many of the next blocks are adjacent to it there;
/// `None` if it is nowhere or unreachable.
pub(crate) fn current_address(
    core: &Core,
    requests: &Requests,
    id: PieceId,
    record: &Record,
    preferred: PlacePreference,
) -> Option<(Address, BlockRange)> {
    let range = requests.pieces[id.0 as usize].range;
    let place = select_valid_place(core, record, range.first, preferred)?;
    if unreachable_blocks(core, requests, id, Some(record)).is_some_and(|leaves| leaves.contains(range.first))
    {
        return None;
    }
    match place.at {
        Location::Whole(whole) => {
            Some((Address::Whole(whole), first_run(range, |b| place.valid.contains(b))))
        }
        Location::Fine { device, .. } => {
            let first = place.slot(range.first)?;
            let next = |b: u16| Slot { block: first.block + (b - range.first), ..first };
            let run = first_run(range, |b| place.slot(b) == Some(next(b)));
            Some((Address::Slots { device, first, fresh: false }, run))
        }
    }
}

/// Returns the place to write among those valid for the block: the preferred one, else the one whose device
/// answers writes soonest.
fn select_valid_place<'a>(
    core: &Core,
    record: &'a Record,
    block: u16,
    preferred: PlacePreference,
) -> Option<&'a Place> {
    let holding = record.places.iter().filter(|p| p.valid.contains(block));
    holding.min_by_key(|p| {
        let device = p.at.id().device;
        let response = core.views.device(device).writes.response.get();
        (!core.is_usable(device), !preferred.matches(p.at.id()), response, device)
    })
}

/// Returns the extent's whole place to write to; `None` if one must be allocated: it has none, or none on a
/// usable device and may have one more.
fn whole_place(core: &Core, record: &Record) -> Option<Whole> {
    let best = lookup::whole_places(record).min_by_key(|w| !core.is_usable(w.device));
    best.filter(|whole| core.is_usable(whole.device) || !has_space(record))
}

/// Returns the piece's blocks that are replaced as whole blocks and are on lost devices only. They go to a
/// place on another device, which the extent has or gets. `None` if there are none.
fn unreachable_blocks(
    core: &Core,
    requests: &Requests,
    id: PieceId,
    record: Option<&Record>,
) -> Option<BlockSet> {
    let record = record.filter(|r| r.places.iter().any(|p| !core.is_usable(p.device())))?;
    let piece = &requests.pieces[id.0 as usize];
    let goes_on = has_space(record) || lookup::whole_places(record).any(|w| core.is_usable(w.device));
    if piece.work != (Work::Write { zeros: false }) || !goes_on {
        return None;
    }
    let mut blocks = BlockSet::none(core.map.extent().blocks());
    blocks.insert(piece.span.covered());
    for place in record.places.iter().filter(|p| core.is_usable(p.device())) {
        blocks.subtract(&place.valid);
    }
    Some(blocks)
}

/// Shortens the piece to its first blocks; the others become another piece.
fn split_piece(requests: &mut Requests, id: PieceId, count: u16) {
    let piece = &mut requests.pieces[id.0 as usize];
    if count == piece.range.count {
        return;
    }
    let (key, range, span, buffer) = (piece.key, piece.range, piece.span, piece.buffer);
    let border = u32::from(range.first + count) * BLOCK as u32;
    let bytes = u32::from(count) * BLOCK as u32;
    let part = |from: u32, len: u32| if buffer.len == 0 { Buffer::EMPTY } else { buffer.part(from, len) };
    let rest_span = Span { start: border, len: span.end() - border };
    let rest_buffer = part(bytes, buffer.len.saturating_sub(bytes));
    let rest = Piece {
        range: BlockRange { first: range.first + count, count: range.count - count },
        locks_blocks: true,
        reported: true,
        ..Piece::new(piece.request, key, rest_span, piece.work, rest_buffer)
    };
    piece.span.len = border - span.start;
    piece.range.count = count;
    piece.buffer = part(0, bytes);
    let request = piece.request;
    requests.locks.split(key, range, count);
    requests.active[request.0].pieces_left += 1;
    let rest = PieceId(requests.pieces.insert(rest) as u32);
    requests.ready.push(rest);
}

/// Whether an extent's blocks still are at an address written in place.
pub(crate) fn is_still_at(core: &Core, key: ExtentKey, address: Address, range: BlockRange) -> bool {
    let Address::Slots { device, first, fresh: false } = address else { return true };
    let ExtentState::Record(record) = core.map.find(key) else { return false };
    let place = record.place(PlaceId { device, kind: PlaceKind::Fine });
    let slot = |b: u16| Slot { block: first.block + (b - range.first), ..first };
    place.is_some_and(|p| (range.first..range.end()).all(|b| p.slot(b) == Some(slot(b))))
}

impl DataPath {
    /// Reports a piece's access to the policy, unless that was done, and asks for a target among the
    /// permitted ones.
    #[inline]
    pub(crate) fn report_and_ask(
        &mut self,
        id: PieceId,
        policy_index: PolicyIndex,
        access: &Access,
    ) -> WriteTo {
        let watches = self.base.host.policies.all[policy_index.0].watches;
        let reports = watches.accesses
            && !std::mem::replace(&mut self.base.requests.pieces[id.0 as usize].reported, true);
        let asks = watches.writes && !self.base.host.has_stopped_moves(policy_index);
        if !reports && !asks {
            return WriteTo::InPlace;
        }
        if reports {
            self.base.host.note_superblock(&self.base.core, access.key, access.blocks);
        }
        let decision = self.base.ask(policy_index, |policy, moment| match (reports, asks) {
            (true, true) => policy.write(moment, access),
            (false, _) => policy.write_to(moment, access),
            (true, false) => {
                policy.accessed(moment, access);
                WriteTo::InPlace
            }
        });
        // A duplexed write that cannot go to both devices goes to its home location, which may differ from
        // its present place; `select_target` handles that.
        if matches!(decision, WriteTo::FineDuplexed(_))
            || may_redirect(
                &self.base.core,
                &self.base.host,
                &self.base.space,
                policy_index,
                decision.device(),
            )
        {
            return decision;
        }
        WriteTo::InPlace
    }

    /// Asks the policy for the target of a piece whose places have not been looked up.
    fn ask_write_target(&mut self, id: PieceId) -> WriteTo {
        let policy_index =
            self.base.host.policies.index_of(self.base.requests.pieces[id.0 as usize].key.volume);
        let watches = self.base.host.policies.all[policy_index.0].watches;
        if !watches.accesses && !watches.writes {
            return WriteTo::InPlace;
        }
        let mut access = self.base.access(id);
        access.places = self.base.places_of_blocks(access.key, access.blocks);
        self.report_and_ask(id, policy_index, &access)
    }

    /// Selects the piece's target, and splits the piece so that all of it goes there. `None` if it waits or
    /// has failed. The policy is asked, unless its `decision` is given.
    pub(crate) fn select_target(
        &mut self,
        id: PieceId,
        record: Option<&Record>,
        decision: Option<WriteTo>,
    ) -> Option<TargetRun> {
        let decision = match decision {
            Some(decision) => decision,
            None => self.ask_write_target(id),
        };
        let device = decision.device();
        let elsewhere = match (decision, device) {
            (WriteTo::Fine(_), Some(device)) => {
                slots_on(&mut self.base.core, &self.base.requests, id, record, device).map(TargetRun::single)
            }
            (WriteTo::Whole(_), Some(device)) => {
                self.select_whole_on(id, record, device).map(TargetRun::single)
            }
            (WriteTo::FineDuplexed(_), Some(device))
                if self.base.core.is_planted(Mutant::BufferedInOneSlot) =>
            {
                slots_on(&mut self.base.core, &self.base.requests, id, record, device).map(TargetRun::single)
            }
            (WriteTo::FineDuplexed(pair), Some(_)) if self.may_duplex_on(id, pair) => {
                let range = self.base.requests.pieces[id.0 as usize].range;
                duplexed_slots(&mut self.base.core, &self.base.requests, id, pair, range)
            }
            _ => None,
        };
        let elsewhere = elsewhere
            .or_else(|| reallocate_duplexed_slots(&mut self.base.core, &self.base.requests, id, record?));
        let chosen = match elsewhere {
            Some(chosen) => {
                self.base.space.note_redirect();
                chosen
            }
            // A clean copy in slots is not overwritten: it would become the only copy.
            None if matches!(decision, WriteTo::FineDuplexed(_)) => {
                TargetRun::single(self.select_in_place(id, record, PlacePreference::Home)?)
            }
            None => TargetRun::single(self.select_in_place(
                id,
                record,
                device.map_or(PlacePreference::Any, PlacePreference::On),
            )?),
        };
        self.base.counts.note_new_place(
            &self.base.core,
            self.base.requests.pieces[id.0 as usize].key,
            record,
            chosen.address.place(),
        );
        split_piece(&mut self.base.requests, id, chosen.run.count);
        Some(chosen)
    }

    /// Whether the piece may go to slots of both devices, which may need more places than the extent has.
    fn may_duplex_on(&self, id: PieceId, pair: [DeviceId; 2]) -> bool {
        let policy_index =
            self.base.host.policies.index_of(self.base.requests.pieces[id.0 as usize].key.volume);
        let may_go_to = |device| {
            may_redirect(&self.base.core, &self.base.host, &self.base.space, policy_index, Some(device))
        };
        pair[0] != pair[1] && self.base.core.map.has_space_for_places() && pair.into_iter().all(may_go_to)
    }

    /// Selects the extent's whole place on a device, allocating it if necessary. Only where this loses
    /// nothing: not over blocks that a power loss or a failed flush may fall back on, nor blocks that the
    /// mover is writing, nor blocks being read. A read sent to the place while it was valid for them would
    /// return the write before it is visible, and a later read, sent elsewhere, would not. The first write of
    /// an extent goes where its space is allocated.
    fn select_whole_on(
        &mut self,
        id: PieceId,
        record: Option<&Record>,
        device: DeviceId,
    ) -> Option<(Address, BlockRange)> {
        let record = record?;
        let Piece { key, range, .. } = self.base.requests.pieces[id.0 as usize];
        let place = PlaceId { device, kind: PlaceKind::Whole };
        let there = record.place(place);
        let others = |b: &u16| there.is_none_or(|p| !p.valid.contains(*b));
        let count = (range.first..range.end()).take_while(others).count() as u16;
        let run = BlockRange { first: range.first, count };
        if count == 0
            || !self.base.core.map.may_overwrite(key, place, run)
            || self.base.core.map.may_become_valid_again(key, place, run)
            || self.mover.is_writing(key, place, run)
            || (there.is_some() && is_being_read(&self.base.requests, key, run))
        {
            return None;
        }
        let whole = match there.map(|p| &p.at) {
            Some(Location::Whole(whole)) => *whole,
            _ => self.allocate_extra_whole(key, record, device)?,
        };
        Some((Address::Whole(whole), run))
    }

    /// Allocates a whole place for the extent on a device where it has none, if it may have one and spare
    /// space is left.
    fn allocate_extra_whole(&mut self, key: ExtentKey, record: &Record, device: DeviceId) -> Option<Whole> {
        let place = PlaceId { device, kind: PlaceKind::Whole };
        let may_have = self.base.core.map.may_add_place(key, place)
            && (lookup::whole_places(record).next().is_some() || self.base.core.map.may_attach_place(key));
        if !may_have
            || !self.base.space.has_reserve(&self.base.core, device)
            || !self.base.core.map.has_space_for_places()
        {
            return None;
        }
        let whole = self.base.core.map.allocate(device)?;
        self.base.space.note_used(&mut self.base.core);
        self.base.space.note_second_place();
        self.base.counts.place(&mut self.base.core, &mut self.base.host, key, whole);
        Some(whole)
    }

    /// Selects the place of the first block, or the extent's whole place, and counts the next blocks that go
    /// there too. Among several places the `preferred` one wins.
    fn select_in_place(
        &mut self,
        id: PieceId,
        record: Option<&Record>,
        preferred: PlacePreference,
    ) -> Option<(Address, BlockRange)> {
        if let Some((address, run)) =
            record.and_then(|r| current_address(&self.base.core, &self.base.requests, id, r, preferred))
        {
            let place = address.place();
            let shared = record.is_some_and(|r| {
                r.shared_blocks(place, self.base.core.map.extent().blocks()).contains_any(run)
            });
            return self.can_overwrite(id, place, run, shared).then_some((address, run));
        }
        let leaves = unreachable_blocks(&self.base.core, &self.base.requests, id, record);
        let leaves = |b: u16| leaves.as_ref().is_some_and(|blocks| blocks.contains(b));
        let run = first_run(self.base.requests.pieces[id.0 as usize].range, |b| {
            record.is_none_or(|r| !r.has_block(b)) || leaves(b)
        });
        let whole = match record.and_then(|r| whole_place(&self.base.core, r)) {
            Some(whole) => whole,
            None => self.allocate_whole(id, record)?,
        };
        let place = PlaceId { device: whole.device, kind: PlaceKind::Whole };
        if !self.can_overwrite(id, place, run, false)
            || self.mover.waits_for_mover(&self.base.core, &mut self.base.requests, id, place, run)
        {
            return None;
        }
        Some((Address::Whole(whole), run))
    }

    /// Rule 3 of docs/internals/invariants.md: whether these blocks of a place may be overwritten. If other
    /// places are valid for them too (`shared`), those become invalid now, and the piece waits until that is
    /// durable. The extent's other blocks are narrowed in the same step, because a client that overwrites one
    /// block usually overwrites the next.
    fn can_overwrite(&mut self, id: PieceId, place: PlaceId, run: BlockRange, shared: bool) -> bool {
        let Base { core, requests, durability, .. } = &mut self.base;
        let key = requests.pieces[id.0 as usize].key;
        if core.map.may_overwrite(key, place, run) {
            return true;
        }
        let all = BlockRange { first: 0, count: core.map.extent().blocks() };
        // The mover's work on the extent is not undone beyond these blocks.
        let range = if shared && !requests.locks.has_mover(key) { all } else { run };
        core.map.invalidate_others(key, place, range);
        requests.locks.request_tidying(key);
        durability.note_change(core);
        if core.map.may_overwrite(key, place, run) {
            return true;
        }
        durability.wait_to_overwrite(requests, id);
        false
    }

    /// Allocates a whole place for the extent. `None` if the piece waits or has failed.
    fn allocate_whole(&mut self, id: PieceId, record: Option<&Record>) -> Option<Whole> {
        let key = self.base.requests.pieces[id.0 as usize].key;
        let is_second = record.is_some_and(|r| lookup::whole_places(r).next().is_some());
        if !is_second && !self.base.core.map.may_attach_place(key) {
            self.base.durability.wait_to_overwrite(&mut self.base.requests, id);
            return None;
        }
        let whole = self.base.allocate(id, key)?;
        let place = PlaceId { device: whole.device, kind: PlaceKind::Whole };
        if is_second && !self.base.core.map.may_add_place(key, place) {
            self.base.core.map.reuse(Chunk::Whole(whole));
            self.base.durability.wait_to_overwrite(&mut self.base.requests, id);
            return None;
        }
        self.base.counts.place(&mut self.base.core, &mut self.base.host, key, whole);
        Some(whole)
    }
}
