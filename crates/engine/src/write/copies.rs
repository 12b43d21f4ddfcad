//! Writes to two places: those of volumes with two copies, and to slots on two devices
//! ([`crate::write::duplex`]).
//!
//! An extent of a volume with two copies has a whole place on each of two devices. A write goes to both in
//! parallel, and is acknowledged when both have it. Blocks that both places are valid for are overwritten
//! only under a write intent ([`crate::durability::intents`]), because a power loss may leave the copies
//! different.
//!
//! If one write fails, that place is no longer valid for the blocks, and this is durable before the write is
//! acknowledged. If both fail, the copies may differ, and the blocks are in doubt. With only one usable
//! device, or with space on only one, a write goes there alone; [`crate::background::resync`] makes the
//! second copy later.
//!
//! A read that meets blocks being written waits for the write: it could return data of one copy that the
//! other never gets. So does one that a write overtakes: it restarts when it has been executed.

use crate::core::Core;
use crate::device::unflushed::UnflushedWrite;
use crate::flight::Flight;
use crate::ids::PieceId;
use crate::lookup::{self, Address, whole_places};
use crate::request::Requests;
use crate::request::mirror::MirroredWrite;
use crate::request::piece::{Piece, Target, Writing};
use crate::write;
use crate::{Base, DataPath};
use smallvec::SmallVec;
use weir_map::{BlockSet, Location, WHOLE_PLACES_MAX, Whole};
use weir_model::{
    BlockRange, Buffer, DeviceId, ExtentKey, IoError, IoKind, Memory, Mutant, PlaceId, PlaceKind,
    RequestError,
};

const fn place(whole: Whole) -> PlaceId {
    PlaceId { device: whole.device, kind: PlaceKind::Whole }
}

/// Returns the state of the piece's write to several places, if it is one.
fn copies_of(requests: &mut Requests, id: PieceId) -> Option<&mut MirroredWrite> {
    requests.pieces[id.0 as usize].writing()?.copies.as_deref_mut()
}

impl Base {
    /// Writes the piece's target to all its places that have not failed in the meantime. Returns the number
    /// of commands.
    pub(super) fn write_copies(&mut self, id: PieceId, target: Target, old: Option<Buffer>) -> u32 {
        let Self { core, requests, space, mirror, .. } = self;
        let Piece { key, range, request, .. } = requests.pieces[id.0 as usize];
        let fua = requests.active[request.0].request.fua && !target.makes_valid;
        let Some(write) = copies_of(requests, id) else { return 0 };
        write.fua = fua;
        let addresses: SmallVec<[Address; 2]> =
            write.legs.iter().filter(|leg| !leg.failed).map(|leg| leg.address).collect();
        if addresses.is_empty() {
            return 0;
        }
        if !target.address.is_fresh() {
            mirror.begin(id, key, range);
        }
        let mut left = 0;
        for address in addresses {
            let commands = write::issue_writes(core, requests, space, id, Target { address, ..target }, old);
            if let Some(write) = copies_of(requests, id) {
                let leg = write.legs.iter_mut().find(|leg| leg.device() == address.place().device);
                leg.into_iter().for_each(|leg| leg.in_flight = commands);
            }
            left += commands;
        }
        left
    }
}

/// Abandons the commands that the piece still has in flight.
fn abandon_commands(core: &mut Core, id: PieceId) {
    core.commands.abandon_all(|purpose| purpose.written() == Some(id));
}

impl DataPath {
    /// Writes a piece to all its places.
    pub(crate) fn write_mirrored<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let Some(places) = self.select_places(id) else { return };
        let Piece { key, span, .. } = self.base.requests.pieces[id.0 as usize];
        let record = lookup::record(&self.base.core.map, key)
            .unwrap_or_else(|| self.base.core.map.empty_record(key).into());
        let goes_to = |p: &weir_map::Place| places.iter().any(|whole| p.at == Location::Whole(*whole));
        // Whether a block is valid wherever it is written, and nowhere else.
        let settled = |b: u16| record.places.iter().all(|p| p.valid.contains(b) == goes_to(p));
        let range = self.base.requests.pieces[id.0 as usize].range;
        let target = Target {
            makes_valid: (range.first..range.end()).any(|b| !settled(b)),
            has_other_places: true,
            mirrored: true,
            ..Target::at(Address::Whole(places[0]), span.start, span.end())
        };
        let sectors = places.iter().map(|w| self.base.core.devices[w.device.index()].settings.sector);
        let sector = sectors.max().unwrap_or(weir_model::BLOCK as u16);
        let copies = MirroredWrite::for_addresses(places.iter().copied().map(Address::Whole));
        let writing = Writing::new(0, target, None).with_copies(Some(copies));
        self.read_modify_write(id, writing, Some(&record), sector, settled, memory);
    }

    /// Selects the places to write the piece to: two, or as many as are available. `None` if the piece waits
    /// or has failed.
    fn select_places(&mut self, id: PieceId) -> Option<SmallVec<[Whole; 2]>> {
        let Piece { key, range, .. } = self.base.requests.pieces[id.0 as usize];
        let record = lookup::record(&self.base.core.map, key);
        let all: SmallVec<[Whole; 2]> = record.iter().flat_map(|record| whole_places(record)).collect();
        let mut usable: SmallVec<[Whole; 2]> =
            all.iter().copied().filter(|w| self.base.core.is_usable(w.device)).collect();
        if usable.is_empty() && all.len() > 1 {
            // Both copies are on lost devices: the write fails with that error.
            usable.push(all[0]);
        }
        if usable.is_empty() {
            if all.is_empty() && !self.base.core.map.may_attach_place(key) {
                self.base.durability.wait_to_overwrite(&mut self.base.requests, id);
                return None;
            }
            let whole = self.base.allocate(id, key)?;
            if !all.is_empty() && !self.base.core.map.may_add_place(key, place(whole)) {
                self.base.core.map.reuse(weir_map::Chunk::Whole(whole));
                self.base.durability.wait_to_overwrite(&mut self.base.requests, id);
                return None;
            }
            self.base.counts.place(&mut self.base.core, &mut self.base.host, key, whole);
            usable.push(whole);
        }
        let takes_one = self.base.core.is_planted(Mutant::SecondPlaceNotTaken);
        if all.len() < 2 && usable.len() < 2 && !self.base.requests.locks.has_mover(key) && !takes_one {
            let second = self.second_device(key).and_then(|device| self.base.core.map.allocate(device));
            if let Some(whole) = second {
                self.base.space.note_used(&mut self.base.core);
                self.base.counts.place(&mut self.base.core, &mut self.base.host, key, whole);
                usable.push(whole);
            }
        }
        // A withdrawn change may have left more places than copies; the surplus ones become invalid for the
        // blocks.
        usable.truncate(WHOLE_PLACES_MAX);
        self.may_overwrite_all(id, &usable).then_some(())?;
        let waits = usable.iter().any(|whole| {
            self.mover.waits_for_mover(&self.base.core, &mut self.base.requests, id, place(*whole), range)
        });
        (!waits).then_some(usable)
    }

    /// Selects a device for an extent's second copy; `None` if none has space, or if requests wait for space.
    pub(crate) fn second_device(&mut self, key: ExtentKey) -> Option<DeviceId> {
        if self.base.space.state.has_waiters() || !self.base.core.map.has_metadata_space() {
            return None;
        }
        let record = lookup::record(&self.base.core.map, key);
        self.base.core.fill_in_views();
        let mut views: SmallVec<[_; 8]> = self.base.core.views.all().into();
        for view in &mut views {
            let id = PlaceId { device: view.id, kind: PlaceKind::Whole };
            let taken =
                record.iter().flat_map(|record| whole_places(record)).any(|whole| whole.device == view.id);
            if taken || !self.base.core.map.may_add_place(key, id) {
                view.free = 0;
            }
        }
        let access = self.base.access_to_all(key);
        self.base.ask_hypothetical(self.base.host.policies.index_of(key.volume), &views, |policy, moment| {
            policy.allocate(moment, &access)
        })
    }

    /// Rule 3 of docs/internals/invariants.md for all the places: opens a write intent if necessary, and
    /// makes the piece wait until it is durable.
    fn may_overwrite_all(&mut self, id: PieceId, places: &[Whole]) -> bool {
        let Piece { key, range, .. } = self.base.requests.pieces[id.0 as usize];
        let may = |core: &Core| places.iter().all(|w| core.map.may_overwrite(key, place(*w), range));
        if may(&self.base.core) {
            return true;
        }
        self.base.durability.open_intent(&mut self.base.core, key);
        if may(&self.base.core) || self.base.core.is_planted(Mutant::IntentNotAwaited) {
            return true;
        }
        self.base.durability.wait_to_overwrite(&mut self.base.requests, id);
        false
    }

    /// Handles the end of one command of a write to several places.
    pub(crate) fn copy_ended(
        &mut self,
        id: PieceId,
        target: Target,
        flight: &Flight,
        result: Result<(), IoError>,
    ) {
        let (key, range) =
            (self.base.requests.pieces[id.0 as usize].key, self.base.requests.pieces[id.0 as usize].range);
        let fua = flight.kind == IoKind::Write { fua: true };
        let needs = result.ok().and_then(|()| {
            self.base.core.devices[flight.device.index()].epochs.write_completed(flight.device, fua)
        });
        let counts = self.base.core.is_planted(Mutant::CopyFailureIgnored);
        let Some(write) = copies_of(&mut self.base.requests, id) else { return };
        if let Err(error) = result {
            write.error = Some(flight.error(error));
        }
        let Some(leg) = write.legs.iter_mut().find(|leg| leg.device() == flight.device) else { return };
        leg.failed |= result.is_err() && !counts;
        // The epoch of the last command is that of all of them, or later.
        leg.needs = needs;
        leg.in_flight -= 1;
        let (ended, failed) = (leg.in_flight == 0, leg.failed);
        if ended && failed {
            self.base.durability.note_failed_write(
                &mut self.base.core,
                &self.base.requests,
                id,
                flight.device,
            );
        } else if ended {
            let written = UnflushedWrite::volatile(key, range);
            self.base.durability.note_written(
                &mut self.base.core,
                flight.device,
                written,
                &target,
                needs.is_some(),
            );
        }
        let Some(writing) = self.base.requests.pieces[id.0 as usize].writing() else { return };
        writing.in_flight -= 1;
        let mut is_last = writing.in_flight == 0;
        if self.base.core.is_planted(Mutant::SecondCopyNotAwaited) && target.address.is_fresh() {
            abandon_commands(&mut self.base.core, id);
            is_last = true;
        }
        if is_last {
            self.finish_copies(id, target);
        }
    }

    /// Handles a write that no copy took: the places valid for the blocks may differ now. One of them stays
    /// valid, and since nobody knows which data was read from the other, the blocks are in doubt. They are in
    /// doubt as well if the other place is no longer valid for them in memory but may be again after a power
    /// loss: nothing guarantees that this change becomes durable.
    pub(super) fn all_copies_failed(
        &mut self,
        id: PieceId,
        addresses: &[Address],
        error: Option<RequestError>,
    ) {
        let Piece { key, range, .. } = self.base.requests.pieces[id.0 as usize];
        let mut differ = BlockSet::none(self.base.core.map.extent().blocks());
        let record = lookup::record(&self.base.core.map, key);
        let holders = |b: u16| record.iter().flat_map(|r| &r.places).filter(move |p| p.valid.contains(b));
        for b in range.first..range.end() {
            let block = BlockRange { first: b, count: 1 };
            let is_valid = holders(b).next().is_some();
            let may_hold = |address: &&Address| {
                let id = address.place();
                holders(b).any(|p| p.at.id() == id)
                    || self.base.core.map.may_become_valid_again(key, id, block)
            };
            if is_valid && (holders(b).count() > 1 || addresses.iter().filter(may_hold).count() > 1) {
                differ.insert(block);
            }
        }
        let kept = differ.iter().next().and_then(|b| {
            let all = holders(b).map(|p| p.at.id());
            all.min_by_key(|id| !self.base.core.is_usable(id.device))
        });
        if let Some(kept) = kept.filter(|_| !self.base.core.is_planted(Mutant::BothFailedNotDoubted)) {
            for block in differ.iter() {
                self.base.core.map.invalidate_others(key, kept, BlockRange { first: block, count: 1 });
            }
            self.base.durability.put_in_doubt(&mut self.base.core, kept.device, key, differ);
            self.base.durability.note_change(&self.base.core);
        }
        self.base.piece_failed(id, error.unwrap_or(RequestError::ReadOnly));
    }
}
