//! Writes to two places: of volumes with two copies, and to slots on two devices ([`crate::write::duplex`]).
//!
//! An extent of a volume with two copies has a whole place on each of two devices. A write goes to both at
//! once, and is acknowledged when both have it. What both hold is overwritten only under a write intent
//! ([`crate::durability::intents`]): a cut may leave the copies different.
//!
//! If one of them fails, it no longer holds these blocks, and that is durable before the write is
//! acknowledged. If both fail, what they hold may differ, and the blocks are in doubt. With one usable
//! device, or space on one only, a write goes there alone; [`crate::background::resync`] makes the second
//! copy later.
//!
//! A read that meets blocks being written waits for that: what it showed of one copy, the other might
//! never get.

use crate::Engine;
use crate::core::Core;
use crate::device::unflushed::Unflushed;
use crate::flight::Flight;
use crate::ids::PieceId;
use crate::lookup::{self, Address, wholes};
use crate::request::Requests;
use crate::request::piece::{Piece, Target};
use crate::space::Space;
use crate::write;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use weir_map::{BlockSet, Location, Needs, WHOLE_MAX, Whole};
use weir_model::{
    BlockRange, Buffer, DeviceId, ExtentKey, IoError, IoKind, Memory, Mutant, PlaceId, PlaceKind,
    RequestError,
};

/// One of the places a write goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leg {
    pub(crate) address: Address,
    /// Device commands still to end.
    pub(super) left: u32,
    /// What it holds is not known.
    pub(crate) failed: bool,
    pub(crate) needs: Option<Needs>,
}

impl Leg {
    fn device(&self) -> DeviceId {
        self.address.place().device
    }
}

/// A write to several places.
#[derive(Clone, Debug, Default)]
pub(crate) struct MirroredWrite {
    pub(crate) legs: SmallVec<[Leg; 2]>,
    pub(crate) error: Option<RequestError>,
    /// Where it succeeds, it is durable.
    pub(super) fua: bool,
}

/// Writes to several places under way.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    writes: FxHashMap<PieceId, MirroredWrite>,
    /// The blocks being written, by extent.
    busy: FxHashMap<ExtentKey, SmallVec<[(PieceId, BlockRange); 2]>>,
}

impl Mirror {
    /// Whether some of the blocks are being written.
    #[inline]
    pub(crate) fn is_writing(&self, key: ExtentKey, range: BlockRange) -> bool {
        let writes = if self.busy.is_empty() { None } else { self.busy.get(&key) };
        writes.is_some_and(|writes| writes.iter().any(|(_, written)| written.overlaps(range)))
    }

    /// What is on its way to a device proves nothing by arriving there.
    pub(crate) fn fail(&mut self, device: DeviceId) {
        for write in self.writes.values_mut() {
            for leg in write.legs.iter_mut().filter(|leg| leg.device() == device) {
                leg.failed = true;
                write.error.get_or_insert(RequestError::FlushFailed(device));
            }
        }
    }

    /// The piece is to be written to these addresses.
    pub(crate) fn prepare(&mut self, id: PieceId, addresses: impl IntoIterator<Item = Address>) {
        let leg = |address| Leg { address, left: 0, failed: false, needs: None };
        let write =
            MirroredWrite { legs: addresses.into_iter().map(leg).collect(), ..MirroredWrite::default() };
        self.writes.insert(id, write);
    }

    /// Whether the piece is to be written to several addresses.
    #[inline]
    pub(crate) fn has(&self, id: PieceId) -> bool {
        !self.writes.is_empty() && self.writes.contains_key(&id)
    }

    /// The second address of a piece that is to be written to two, which it no longer is.
    #[inline]
    pub(crate) fn take_second(&mut self, id: PieceId) -> Option<Address> {
        let write = if self.writes.is_empty() { None } else { self.writes.remove(&id) };
        write.and_then(|write| write.legs.get(1).map(|leg| leg.address))
    }

    fn begin(&mut self, id: PieceId, key: ExtentKey, range: BlockRange) {
        self.busy.entry(key).or_default().push((id, range));
    }

    /// The write has ended, whatever became of it.
    pub(super) fn end(&mut self, id: PieceId, key: ExtentKey) -> MirroredWrite {
        if let Some(writes) = self.busy.get_mut(&key) {
            writes.retain(|(piece, _)| *piece != id);
            if writes.is_empty() {
                self.busy.remove(&key);
            }
        }
        self.writes.remove(&id).unwrap_or_default()
    }
}

const fn place(whole: Whole) -> PlaceId {
    PlaceId { device: whole.device, kind: PlaceKind::Whole }
}

impl Mirror {
    /// Writes the piece's target to all its places that have not failed meanwhile; how many commands that
    /// takes.
    pub(crate) fn write_copies(
        &mut self,
        core: &mut Core,
        requests: &Requests,
        space: &Space,
        id: PieceId,
        target: Target,
        old: Option<Buffer>,
    ) -> u32 {
        let Piece { key, range, request, .. } = requests.pieces[id.0 as usize];
        let fua = requests.active[request.0].request.fua && !target.changes;
        let Some(write) = self.writes.get_mut(&id) else { return 0 };
        write.fua = fua;
        let addresses: SmallVec<[Address; 2]> =
            write.legs.iter().filter(|leg| !leg.failed).map(|leg| leg.address).collect();
        if addresses.is_empty() {
            return 0;
        }
        if !target.address.is_fresh() {
            self.begin(id, key, range);
        }
        let mut left = 0;
        for address in addresses {
            let commands = write::issue_writes(core, requests, space, id, Target { address, ..target }, old);
            if let Some(write) = self.writes.get_mut(&id) {
                let leg = write.legs.iter_mut().find(|leg| leg.device() == address.place().device);
                leg.into_iter().for_each(|leg| leg.left = commands);
            }
            left += commands;
        }
        left
    }
}

/// Nobody waits for what the piece still writes.
fn forget_commands(core: &mut Core, id: PieceId) {
    core.commands.abandon_all(|purpose| purpose.written() == Some(id));
}

impl Engine {
    /// Writes a piece to all the places it is to be in.
    pub(crate) fn write_mirrored<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let Some(places) = self.choose_both(id) else { return };
        let Piece { key, span, .. } = self.requests.pieces[id.0 as usize];
        let record = lookup::record(&self.core.map, key).unwrap_or_else(|| self.core.map.empty_record(key));
        let goes_to = |p: &weir_map::Place| places.iter().any(|whole| p.at == Location::Whole(*whole));
        // Valid wherever it is written, and nowhere else.
        let settled = |b: u16| record.places.iter().all(|p| p.valid.contains(b) == goes_to(p));
        let range = self.requests.pieces[id.0 as usize].range;
        let target = Target {
            changes: (range.first..range.end()).any(|b| !settled(b)),
            several: true,
            mirrored: true,
            ..Target::at(Address::Whole(places[0]), span.start, span.end())
        };
        let sectors = places.iter().map(|w| self.core.devices[w.device.index()].settings.sector);
        let sector = sectors.max().unwrap_or(weir_model::BLOCK as u16);
        self.mirror.prepare(id, places.iter().copied().map(Address::Whole));
        self.complete_blocks(id, target, Some(&record), sector, settled, memory);
    }

    /// The places the piece is written to: two, or what can be had. `None` if it waits or has failed.
    fn choose_both(&mut self, id: PieceId) -> Option<SmallVec<[Whole; 2]>> {
        let Piece { key, range, .. } = self.requests.pieces[id.0 as usize];
        let record = lookup::record(&self.core.map, key);
        let all: SmallVec<[Whole; 2]> = record.iter().flat_map(wholes).collect();
        let mut usable: SmallVec<[Whole; 2]> =
            all.iter().copied().filter(|w| self.core.is_usable(w.device)).collect();
        if usable.is_empty() && all.len() > 1 {
            // Both copies are on devices that are lost: the write says so.
            usable.push(all[0]);
        }
        if usable.is_empty() {
            if all.is_empty() && !self.core.map.may_place(key) {
                self.durability.wait_to_overwrite(&mut self.requests, id);
                return None;
            }
            let whole = self.allocate(id, key)?;
            if !all.is_empty() && !self.core.map.may_have(key, place(whole)) {
                self.core.map.reuse(weir_map::Chunk::Whole(whole));
                self.durability.wait_to_overwrite(&mut self.requests, id);
                return None;
            }
            self.counts.place(&mut self.core, &mut self.host, key, whole);
            usable.push(whole);
        }
        let takes_one = self.is_planted(Mutant::SecondPlaceNotTaken);
        if all.len() < 2 && usable.len() < 2 && !self.requests.locks.has_mover(key) && !takes_one {
            let second = self.second_device(key).and_then(|device| self.core.map.allocate(device));
            if let Some(whole) = second {
                self.space.note_used(&mut self.core);
                self.counts.place(&mut self.core, &mut self.host, key, whole);
                usable.push(whole);
            }
        }
        // A change withdrawn may have left more places than copies are wanted: the rest no longer hold what
        // is written.
        usable.truncate(WHOLE_MAX);
        self.may_overwrite_all(id, &usable).then_some(())?;
        let waits = usable.iter().any(|whole| {
            self.mover.waits_for_mover(&self.core, &mut self.requests, id, place(*whole), range)
        });
        (!waits).then_some(usable)
    }

    /// A device for an extent's second copy; `None` if there is none with space, or others wait for space.
    pub(crate) fn second_device(&mut self, key: ExtentKey) -> Option<DeviceId> {
        if self.space.state.is_waited_for() || !self.core.map.has_metadata_room() {
            return None;
        }
        let record = lookup::record(&self.core.map, key);
        self.core.fill_in_views();
        let mut views: SmallVec<[_; 8]> = self.core.views.all().into();
        for view in &mut views {
            let id = PlaceId { device: view.id, kind: PlaceKind::Whole };
            let taken = record.iter().flat_map(wholes).any(|whole| whole.device == view.id);
            if taken || !self.core.map.may_have(key, id) {
                view.free = 0;
            }
        }
        let access = self.access_to_all(key);
        self.ask_about(self.host.policies.of(key.volume), &views, |policy, moment| {
            policy.allocate(moment, &access)
        })
    }

    /// Rule 3 for all the places: opens an intent where there must be one, and has the piece wait
    /// until that is durable.
    fn may_overwrite_all(&mut self, id: PieceId, places: &[Whole]) -> bool {
        let Piece { key, range, .. } = self.requests.pieces[id.0 as usize];
        let may = |engine: &Self| places.iter().all(|w| engine.core.map.may_overwrite(key, place(*w), range));
        if may(self) {
            return true;
        }
        self.durability.open_intent(&mut self.core, key);
        if may(self) || self.is_planted(Mutant::IntentNotAwaited) {
            return true;
        }
        self.durability.wait_to_overwrite(&mut self.requests, id);
        false
    }

    /// A command of a write to several places has ended.
    pub(crate) fn copy_ended(
        &mut self,
        id: PieceId,
        target: Target,
        flight: &Flight,
        result: Result<(), IoError>,
    ) {
        let (key, range) =
            (self.requests.pieces[id.0 as usize].key, self.requests.pieces[id.0 as usize].range);
        let fua = flight.kind == IoKind::Write { fua: true };
        let needs = result
            .ok()
            .and_then(|()| self.core.devices[flight.device.index()].epochs.wrote(flight.device, fua));
        let counts = self.is_planted(Mutant::CopyFailureIgnored);
        let Some(write) = self.mirror.writes.get_mut(&id) else { return };
        if let Err(error) = result {
            write.error = Some(flight.error(error));
        }
        let Some(leg) = write.legs.iter_mut().find(|leg| leg.device() == flight.device) else { return };
        leg.failed |= result.is_err() && !counts;
        // The last one's epoch is that of them all, or later.
        leg.needs = needs;
        leg.left -= 1;
        let (ended, failed) = (leg.left == 0, leg.failed);
        if ended && failed {
            self.durability.note_unfinished(&mut self.core, &self.requests, id, flight.device);
        } else if ended {
            let written = Unflushed::data(key, range);
            self.durability.note_written(&mut self.core, flight.device, written, &target, needs.is_some());
        }
        let Some(writing) = self.requests.pieces[id.0 as usize].writing() else { return };
        writing.left -= 1;
        let mut is_last = writing.left == 0;
        if self.is_planted(Mutant::SecondCopyNotAwaited) && target.address.is_fresh() {
            forget_commands(&mut self.core, id);
            is_last = true;
        }
        if is_last {
            self.finish_copies(id, target);
        }
    }

    /// No copy took the write: those that held the blocks may differ now. One of them counts from now on,
    /// and as nobody knows what was seen of the other, they are in doubt. So they are where the other one no
    /// longer holds them, but may again after a cut: nothing says that this becomes durable.
    pub(super) fn both_failed(&mut self, id: PieceId, addresses: &[Address], error: Option<RequestError>) {
        let Piece { key, range, .. } = self.requests.pieces[id.0 as usize];
        let mut differ = BlockSet::none(self.core.map.extent().blocks());
        let record = lookup::record(&self.core.map, key);
        let holders = |b: u16| record.iter().flat_map(|r| &r.places).filter(move |p| p.valid.contains(b));
        for b in range.first..range.end() {
            let block = BlockRange { first: b, count: 1 };
            let held = holders(b).next().is_some();
            let may_hold = |address: &&Address| {
                let id = address.place();
                holders(b).any(|p| p.at.id() == id) || self.core.map.may_come_back(key, id, block)
            };
            if held && (holders(b).count() > 1 || addresses.iter().filter(may_hold).count() > 1) {
                differ.insert(block);
            }
        }
        let kept = differ.iter().next().and_then(|b| {
            let all = holders(b).map(|p| p.at.id());
            all.min_by_key(|id| !self.core.is_usable(id.device))
        });
        if let Some(kept) = kept.filter(|_| !self.is_planted(Mutant::BothFailedNotDoubted)) {
            for block in differ.iter() {
                self.core.map.narrowed(key, kept, BlockRange { first: block, count: 1 });
            }
            self.durability.put_in_doubt(&mut self.core, kept.device, key, differ);
            self.durability.note_change(&self.core);
        }
        self.piece_failed(id, error.unwrap_or(RequestError::ReadOnly));
    }

    /// What one copy could not deliver has been read from the other: the former is to be written anew,
    /// and holds nothing until then.
    pub(crate) fn replace_unreadable(&mut self, id: PieceId, flight: &Flight) {
        let Piece { key, range, buffer, .. } = self.requests.pieces[id.0 as usize];
        if !self.core.is_mirrored(key) || self.requests.locks.is_taken(key) {
            return;
        }
        let block = |at: u64| range.first + ((at - buffer.at) / weir_model::BLOCK) as u16;
        let (first, end) = (block(flight.buffer.at), block(flight.buffer.at + u64::from(flight.buffer.len)));
        let Some(record) = lookup::record(&self.core.map, key) else { return };
        let bad = wholes(&record).map(|whole| whole.device).find(|device| *device != flight.device);
        let Some(bad) = bad.filter(|device| self.core.is_usable(*device)) else { return };
        let mut blocks = BlockSet::none(self.core.map.extent().blocks());
        blocks.insert(BlockRange { first, count: end - first });
        self.core.map.distrust(key, bad, &blocks);
        self.background.note_lacking(&self.core, key);
        self.durability.note_change(&self.core);
    }
}
