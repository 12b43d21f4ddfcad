//! Writes: in place, to the place that the policy selects, or to newly allocated space.
//!
//! A write of part of a block that is not valid in the target completes the block: with zeros if the block is
//! valid nowhere, else with the old block, which is read first (read-modify-write). If the block is valid in
//! the target, only its sectors are written, provided that the device's sectors are that small.

pub(crate) mod clear;
pub(crate) mod copies;
pub(crate) mod duplex;
pub(crate) mod finish;
pub(crate) mod target;

use crate::core::Core;
use crate::flight::{FailedDevices, Flight, NewIo, Purpose, WriteIo};
use crate::ids::PieceId;
use crate::lookup::{self, Address, Source, sole_address};
use crate::policy::Host;
use crate::policy::advice::{places_of, push_places_of_found};
use crate::policy::index::PolicyIndex;
use crate::policy::route;
use crate::request::Requests;
use crate::request::mirror::MirroredWrite;
use crate::request::piece::{OldBlocks, Piece, PieceState, PlacePreference, Target, WaitsFor, Work, Writing};
use crate::space::Space;
use crate::{Base, DataPath};
use smallvec::SmallVec;
use std::sync::Arc;
use weir_map::{ExtentState, Record};
use weir_model::{
    BLOCK, BlockRange, Buffer, ExtentKey, IoError, IoKind, Memory, Mutant, PlaceId, PlaceKind, RequestError,
    Span, VolumeId,
};
use weir_policy::placement::{Access, Places, WriteTo};

/// Returns the address at which the piece can be overwritten, if exactly one usable place has all its blocks,
/// adjacent; `None` for two copies, or if a pending or durable state has the blocks in several places. Most
/// writes take this path, so it copies nothing. `know` receives the map entry.
#[inline(always)]
fn plain_address(
    core: &Core,
    key: ExtentKey,
    range: BlockRange,
    know: impl FnOnce(&ExtentState<'_>),
) -> Option<Address> {
    let found = core.map.find(key);
    let address = match &found {
        ExtentState::Empty => return None,
        ExtentState::Direct(whole) => Address::Whole(*whole),
        ExtentState::Record(record) if record.copies > 1 => return None,
        ExtentState::Record(record) => sole_address(record, range)?,
    };
    let place = address.place();
    // Without pending changes the durable state is the only one, and it has the blocks in one place.
    let may = core.map.pending_extents() == 0 || core.map.may_overwrite(key, place, range);
    debug_assert!(!may || core.map.may_overwrite(key, place, range), "{key} {place:?} {range:?}");
    if !may || !core.is_usable(place.device) {
        return None;
    }
    know(&found);
    Some(address)
}

/// Whether [`DataPath::select_target`] returns the same address if the policy leaves the piece in place.
fn is_default_target(core: &Core, requests: &Requests, id: PieceId, address: Address) -> bool {
    let Piece { key, range, .. } = requests.pieces[id.0 as usize];
    let current = lookup::record(&core.map, key)
        .and_then(|record| target::current_address(core, requests, id, &record, PlacePreference::Any));
    current == Some((address, range)) && core.map.may_overwrite(key, address.place(), range)
}

/// Returns the source of a block's old bytes; `None` if it is valid nowhere.
fn old_block(
    core: &Core,
    host: &Host,
    volume: VolumeId,
    address: Address,
    record: Option<&Record>,
    range: BlockRange,
    block: u16,
) -> Option<Source> {
    let Some(record) = record else {
        let at =
            lookup::device_offset(&core.map, address, range, u32::from(block - range.first) * BLOCK as u32);
        return Some(Source { device: address.place().device, at });
    };
    route::source_of(core, host, volume, record, block)
}

/// Returns another source of an old block that a device failed to deliver, if there is one.
fn merge_source(
    core: &Core,
    requests: &Requests,
    host: &Host,
    id: PieceId,
    flight: &Flight,
) -> Option<(Source, FailedDevices)> {
    let tried = flight.failed_devices()?;
    let piece = &requests.pieces[id.0 as usize];
    let volume = piece.key.volume;
    let PieceState::ReadingOld(writing) = &piece.state else { return None };
    let block = writing.old.as_ref()?.iter().find(|(buffer, _)| *buffer == flight.buffer)?.1;
    let mut record = lookup::record(&core.map, piece.key)?;
    Arc::make_mut(&mut record).places.retain(|p| !tried.contains(p.device()) && core.is_usable(p.device()));
    Some((route::source_of(core, host, volume, &record, block)?, tried))
}

/// Writes the piece's bytes to the target's address. Returns the number of commands.
pub(crate) fn issue_writes(
    core: &mut Core,
    requests: &Requests,
    space: &Space,
    id: PieceId,
    target: Target,
    old: Option<Buffer>,
) -> u32 {
    let piece = &requests.pieces[id.0 as usize];
    let len = target.end - target.start;
    let buffer = match (piece.work, old) {
        (Work::Write { zeros: true }, Some(old)) => old,
        (Work::Write { zeros: true }, None) => return write_zeros(core, requests, space, id, target),
        _ => piece.buffer.part(target.start - u32::from(piece.range.first) * BLOCK as u32, len),
    };
    write_bytes(core, requests, id, target, target.start, buffer);
    1
}

/// Writes zeros to the piece's target, at most the size of the shared zero buffer at a time.
fn write_zeros(core: &mut Core, requests: &Requests, space: &Space, id: PieceId, target: Target) -> u32 {
    let zeros = space.scratch.zeros();
    let starts = (target.start..target.end).step_by(zeros.len as usize);
    let commands = starts.len() as u32;
    for start in starts {
        write_bytes(core, requests, id, target, start, zeros.part(0, zeros.len.min(target.end - start)));
    }
    commands
}

fn write_bytes(
    core: &mut Core,
    requests: &Requests,
    id: PieceId,
    target: Target,
    start: u32,
    buffer: Buffer,
) {
    let piece = &requests.pieces[id.0 as usize];
    let fua = requests.active[piece.request.0].request.fua;
    // A write that changes the map waits for a commit, which flushes the device; it needs no FUA.
    let ignored = piece.work == (Work::Write { zeros: true }) && core.is_planted(Mutant::FuaIgnoredForZeros);
    let kind = IoKind::Write { fua: fua && !target.makes_valid && !ignored };
    let at = lookup::device_offset(
        &core.map,
        target.address,
        piece.range,
        start - u32::from(piece.range.first) * BLOCK as u32,
    );
    core.launch(NewIo { device: target.address.place().device, kind, at, buffer }, Purpose::data(id));
}

impl DataPath {
    /// Begins a write that has locked its blocks. It ends in `overwrite`, `write_to` or `write_mirrored`, or
    /// the piece waits or fails.
    pub(crate) fn start_write<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let piece = &self.base.requests.pieces[id.0 as usize];
        let (key, zeros) = (piece.key, piece.work == Work::Write { zeros: true });
        if self.base.core.changes_have_stopped() {
            return self.base.piece_failed(id, RequestError::ReadOnly);
        }
        if let Some(error) = self.base.durability.doubt_error(&self.base.core, &self.base.requests, id) {
            return self.base.piece_failed(id, error);
        }
        if self.base.cache.is_on() {
            self.base.cache.note_write(&self.base.requests, id, memory);
        }
        let policy_index = self.base.host.policies.index_of(key.volume);
        let watches = self.base.host.policies.all[policy_index.0].watches;
        let mut decision = None;
        let plain = if watches.accesses || watches.writes {
            let asked = self.plain_address_and_decision(id, policy_index);
            decision = asked.map(|(_, decision)| decision);
            asked
                .filter(|(address, decision)| stays_in_place(*address, *decision))
                .map(|(address, _)| address)
        } else {
            let Piece { key, range, .. } = self.base.requests.pieces[id.0 as usize];
            plain_address(&self.base.core, key, range, |_| ())
        };
        if let Some(address) = plain {
            return self.overwrite(id, address, memory);
        }
        let record = lookup::record(&self.base.core.map, key);
        self.base.report_access(id, |base| {
            let range = base.requests.pieces[id.0 as usize].range;
            record.as_ref().map_or(Places::NONE, |record| places_of(record, range))
        });
        let piece = &self.base.requests.pieces[id.0 as usize];
        if zeros
            && !record.as_ref().is_some_and(|r| r.places.iter().any(|p| p.valid.contains_any(piece.range)))
        {
            // An earlier request may have cleared the blocks, and its change may not be durable yet.
            if !self.base.core.is_planted(Mutant::ZerosNotAwaited) {
                self.base.requests.wait_for_pending(&self.base.core, id);
            }
            return self.base.piece_ended(id);
        }
        if record.as_ref().map_or_else(|| self.base.core.is_mirrored(key), |r| r.copies > 1) {
            return self.write_mirrored(id, memory);
        }
        let Some(chosen) = self.select_target(id, record.as_deref(), decision) else { return };
        // `select_target` may have given the extent a place.
        let record = lookup::record(&self.base.core.map, key)
            .unwrap_or_else(|| self.base.core.map.empty_record(key).into());
        self.write_to(id, chosen.address, chosen.second, Some(&record), memory);
    }

    /// Returns the address at which the piece can simply be overwritten, if there is one, and the policy's
    /// decision.
    #[inline(never)]
    fn plain_address_and_decision(
        &mut self,
        id: PieceId,
        policy_index: PolicyIndex,
    ) -> Option<(Address, WriteTo)> {
        let blocks = self.base.core.map.extent().blocks();
        let mut access = self.base.access(id);
        let Access { key, blocks: range, places, .. } = &mut access;
        let address = plain_address(&self.base.core, *key, *range, |found| {
            push_places_of_found(found, *range, blocks, places);
        })?;
        Some((address, self.report_and_ask(id, policy_index, &access)))
    }

    /// Overwrites blocks in place that no other place is valid for. Most writes take this path; nothing is
    /// left to decide if they cover whole blocks.
    fn overwrite<M: Memory>(&mut self, id: PieceId, address: Address, memory: &mut M) {
        debug_assert!(
            is_default_target(&self.base.core, &self.base.requests, id, address),
            "the long way leads elsewhere than to {address:?}"
        );
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        let (range, span, buffer) = (piece.range, piece.span, piece.buffer);
        if span.covered() != piece.range || piece.work == (Work::Write { zeros: true }) {
            return self.write_to(id, address, None, None, memory);
        }
        piece.state = PieceState::Writing(Writing::new(1, Target::at(address, span.start, span.end()), None));
        let fua = self.base.requests.active[piece.request.0].request.fua
            && !self.base.core.is_planted(Mutant::FuaIgnoredInPlace);
        let kind = IoKind::Write { fua };
        let at = lookup::device_offset(&self.base.core.map, address, range, 0);
        self.base.core.launch(NewIo { device: address.place().device, kind, at, buffer }, Purpose::data(id));
    }

    /// Writes to one address or two, and reads old blocks first if necessary. `record` is `None` if every
    /// block is valid there.
    fn write_to<M: Memory>(
        &mut self,
        id: PieceId,
        address: Address,
        second: Option<Address>,
        record: Option<&Record>,
        memory: &mut M,
    ) {
        let Piece { span, range, .. } = self.base.requests.pieces[id.0 as usize];
        let place = record.map(|r| r.place(address.place()).filter(|_| !address.is_fresh()));
        let valid_here = |b: u16| place.is_none_or(|p| p.is_some_and(|p| p.valid.contains(b)));
        let target = Target {
            makes_valid: (range.first..range.end()).any(|b| !valid_here(b)),
            has_other_places: record.is_some_and(|r| r.places.iter().any(|p| p.at.id() != address.place())),
            mirrored: second.is_some(),
            ..Target::at(address, span.start, span.end())
        };
        let sector = self.base.core.devices[address.place().device.index()].settings.sector;
        let copies = second.map(|second| MirroredWrite::for_addresses([address, second]));
        let writing = Writing::new(0, target, None).with_copies(copies);
        self.read_modify_write(id, writing, record, sector, valid_here, memory);
    }

    /// Reads the old blocks that the target needs, and writes it. `sector` is the unit in which part of a
    /// block can be written where the block is `valid_here` for every address of the target.
    pub(crate) fn read_modify_write<M: Memory>(
        &mut self,
        id: PieceId,
        mut writing: Writing,
        record: Option<&Record>,
        sector: u16,
        valid_here: impl Fn(u16) -> bool,
        memory: &mut M,
    ) {
        let Piece { key, span, range, buffer, .. } = self.base.requests.pieces[id.0 as usize];
        let (address, sector) = (writing.target.address, u32::from(sector));
        let in_sectors = span.start.is_multiple_of(sector) && span.end().is_multiple_of(sector);
        let sectors_anyway = in_sectors && self.base.core.is_planted(Mutant::SectorsToInvalidBlock);
        let mut reads: SmallVec<[(u16, Source); 2]> = SmallVec::new();
        let head_only = self.base.core.is_planted(Mutant::TailBlockNotCompleted);
        let whole = |edge: &u16| head_only && *edge != range.first;
        let as_is = |edge: &u16| (valid_here(*edge) && in_sectors) || sectors_anyway || whole(edge);
        for edge in partial_blocks(span, range).filter(|edge| !as_is(edge)) {
            writing.target.widen(edge);
            match old_block(&self.base.core, &self.base.host, key.volume, address, record, range, edge) {
                Some(source) => reads.push((edge, source)),
                // The block is valid nowhere: the rest of it is zeros.
                None => {
                    padding(buffer, range, edge, span).for_each(|(part, _)| memory.bytes_mut(part).fill(0));
                }
            }
        }
        if reads.is_empty() {
            return self.write_target(id, writing);
        }
        self.read_old(id, writing, &reads);
    }

    /// Reads the old blocks of a read-modify-write into scratch blocks. Without enough scratch blocks the
    /// piece waits for some, and selects its target again.
    fn read_old(&mut self, id: PieceId, mut writing: Writing, reads: &[(u16, Source)]) {
        let Some(blocks) = self.base.space.scratch.take_blocks(reads.len()) else {
            let addresses = writing.addresses();
            self.base.give_up_addresses(id, &addresses);
            self.base.requests.wait(id, WaitsFor::Scratch);
            self.base.space.scratch.wait(id);
            return;
        };
        let mut all = OldBlocks::new();
        for (old, &(edge, Source { device, at })) in blocks.into_iter().flatten().zip(reads) {
            all.push((old, edge));
            self.base.core.launch(
                NewIo { device, kind: IoKind::Read, at, buffer: old },
                Purpose::Write(WriteIo::ReadOld(id)),
            );
        }
        writing.in_flight = all.len() as u32;
        writing.old = Some(Box::new(all));
        self.base.requests.pieces[id.0 as usize].state = PieceState::ReadingOld(writing);
    }

    /// Passes the end of a write command to its step: the write itself, or the read of old blocks.
    pub(crate) fn write_io_ended<M: Memory>(
        &mut self,
        io: WriteIo,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        match io {
            WriteIo::Data(id) => self.write_ended(id, flight, result),
            WriteIo::ReadOld(id) | WriteIo::ReadOldFailover(id, _) => {
                self.merge_ended(id, flight, result, memory);
            }
        }
    }

    fn merge_ended<M: Memory>(
        &mut self,
        id: PieceId,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        let other = result.err().and_then(|error| {
            Some((error, merge_source(&self.base.core, &self.base.requests, &self.base.host, id, flight)?))
        });
        if let Some((error, (Source { device, at }, tried))) = other {
            if !self.base.core.abandoned.uses(flight.buffer) {
                let io = NewIo { device, kind: IoKind::Read, at, buffer: flight.buffer };
                return self.base.core.launch(io, Purpose::Write(WriteIo::ReadOldFailover(id, tried)));
            }
            self.base.requests.pieces[id.0 as usize].restart(Some(flight.error(error)));
        }
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        if let (Err(error), None) = (result, other) {
            piece.error.get_or_insert(flight.error(error));
        }
        let PieceState::ReadingOld(writing) = &mut piece.state else { return };
        writing.in_flight -= 1;
        if writing.in_flight > 0 {
            return;
        }
        let (failed, again) = (piece.error.is_some(), writing.must_restart());
        if failed || again {
            self.put_back_scratch(id);
            return if failed { self.base.change_failed(id) } else { self.restart_write(id) };
        }
        if let Some(error) = self.base.durability.doubt_error(&self.base.core, &self.base.requests, id) {
            // The old block has come into doubt since it was read.
            self.put_back_scratch(id);
            return self.base.piece_failed(id, error);
        }
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        let (span, range, buffer, work) = (piece.span, piece.range, piece.buffer, piece.work);
        let Some(writing) = piece.writing() else { return };
        let writing = Writing::new(0, writing.target, writing.old.take()).with_copies(writing.copies.take());
        for &(old, block) in writing.old.iter().flat_map(|old| old.iter()) {
            if work == (Work::Write { zeros: true }) {
                let start = span.start % BLOCK as u32;
                memory.bytes_mut(old.part(start, span.len)).fill(0);
            } else {
                for (part, at) in padding(buffer, range, block, span) {
                    memory.copy(old.part(at, part.len), part);
                }
            }
        }
        self.write_target(id, writing);
    }

    /// Makes a piece that has written nothing that counts select its target again.
    pub(crate) fn restart_write(&mut self, id: PieceId) {
        let addresses = self.base.requests.pieces[id.0 as usize].take_addresses();
        self.base.give_up_addresses(id, &addresses);
        self.base.requests.make_ready(id);
    }

    /// Writes the piece's bytes to its target, or to both places.
    fn write_target(&mut self, id: PieceId, writing: Writing) {
        let first_old = writing.old.as_ref().and_then(|old| old.first()).map(|(old, _)| *old);
        let target = writing.target;
        self.base.requests.pieces[id.0 as usize].state = PieceState::Writing(writing);
        let left = if target.mirrored {
            self.base.write_copies(id, target, first_old)
        } else {
            let Base { core, requests, space, .. } = &mut self.base;
            issue_writes(core, requests, space, id, target, first_old)
        };
        if left == 0 {
            // Every place has failed in the meantime.
            return self.finish_copies(id, target);
        }
        if let Some(writing) = self.base.requests.pieces[id.0 as usize].writing() {
            writing.in_flight = left;
        }
    }

    #[inline]
    pub(crate) fn put_back_scratch(&mut self, id: PieceId) {
        if let Some(old) =
            self.base.requests.pieces[id.0 as usize].writing().and_then(|writing| writing.old.take())
        {
            old.iter().for_each(|(buffer, _)| self.base.put_back_block(*buffer));
        }
    }
}

/// Whether a write stays in place, given that its blocks are valid at this address only.
fn stays_in_place(address: Address, decision: WriteTo) -> bool {
    match decision {
        WriteTo::InPlace => true,
        WriteTo::Whole(device) => address.place() == PlaceId { device, kind: PlaceKind::Whole },
        WriteTo::Fine(device) => address.place() == PlaceId { device, kind: PlaceKind::Fine },
        WriteTo::FineDuplexed(_) => false,
    }
}

/// Returns the blocks at a span's ends that it covers in part: at most one at each end.
fn partial_blocks(span: Span, range: BlockRange) -> impl Iterator<Item = u16> {
    let block = BLOCK as u32;
    let head = (!span.start.is_multiple_of(block)).then_some(range.first);
    let tail = (!span.end().is_multiple_of(block)).then_some(range.end() - 1);
    head.into_iter().chain(tail.filter(|tail| head != Some(*tail)))
}

/// Returns the parts of a piece's buffer that belong to a touched block but lie outside the span, each with
/// its offset in the block: at most one before and one after.
fn padding(buffer: Buffer, range: BlockRange, block: u16, span: Span) -> impl Iterator<Item = (Buffer, u32)> {
    let size = BLOCK as u32;
    let base = u32::from(range.first) * size;
    let (start, end) = (u32::from(block) * size, u32::from(block) * size + size);
    let before = (start, span.start.clamp(start, end));
    let behind = (span.end().clamp(start, end), end);
    [before, behind]
        .into_iter()
        .filter(|(from, to)| from < to)
        .map(move |(from, to)| (buffer.part(from - base, to - from), from - start))
}
