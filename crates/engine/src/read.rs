//! Reads: each block comes from a place that is valid for it; a block valid nowhere reads as zeros.

pub(crate) mod fetch;
pub(crate) mod gap_read;
pub(crate) mod restart;

use crate::DataPath;
use crate::core::Core;
use crate::flight::{Flight, NewIo, Purpose, ReadIo};
use crate::ids::PieceId;
use crate::lookup::{self, Plan, Source, sole_address};
use crate::policy::Host;
use crate::policy::advice::places_of;
use crate::policy::route;
use crate::read::gap_read::GapRead;
use crate::request::Requests;
use crate::request::piece::{Piece, PieceState, Reading};
use weir_map::{BlockSet, ExtentState, Record, Whole};
use weir_model::{BLOCK, BlockRange, ExtentKey, IoError, IoKind, Memory, Mutant};
use weir_policy::placement::Places;

/// The state of reads.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) restarts: restart::Restarts,
    pub(crate) gap_reads: gap_read::GapReads,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self { restarts: restart::Restarts::default(), gap_reads: gap_read::GapReads::new() }
    }
}

impl Reads {
    /// Plans the reads of these blocks, perhaps as a gap read; `None` if no place is valid for any of them.
    fn plan_read(
        &mut self,
        core: &Core,
        host: &mut Host,
        key: ExtentKey,
        range: BlockRange,
    ) -> Option<(Plan, Option<GapRead>)> {
        let record = lookup::borrow_record(&core.map, key)?;
        let route = route::route(core, host, key.volume, &record, range);
        let has_holes = range.count > 1
            && !record.places.iter().any(|place| place.valid.contains_all(range))
            && self.may_read_gaps(host, key);
        let can_probe = !has_holes && route::can_probe(core, host, key.volume, &record, &route, range);
        let (plan, gap) = match has_holes {
            true => gap_read::plan_around_holes(core, &record, route, range),
            false => (lookup::plan(&core.map, &record, &route, range), None),
        };
        if !can_probe || !route::draw_probe(host) {
            return plan.iter().any(|(_, source)| source.is_some()).then_some((plan, gap));
        }
        let record = lookup::borrow_record(&core.map, key)?;
        Some((
            lookup::plan(&core.map, &record, &route::probe_first(core, &record, route, range), range),
            None,
        ))
    }
}

/// Counts one more command of a read piece that is about to begin.
pub(crate) fn expect_read(requests: &mut Requests, id: PieceId) {
    if let PieceState::Reading(reading) = &mut requests.pieces[id.0 as usize].state {
        reading.in_flight += 1;
    }
}

impl DataPath {
    /// Begins a read: from the cache if possible, else from the devices.
    #[inline]
    pub(crate) fn start_read<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let goes_past = !self.base.cache.is_on()
            || self.base.durability.doubt_error(&self.base.core, &self.base.requests, id).is_some();
        if goes_past || !self.read_cached(id, memory) {
            self.read_uncached(id, memory);
        }
    }

    /// Reads from the devices: in one command if a single place has all blocks, else as planned
    /// (`read_found`).
    #[inline]
    pub(crate) fn read_uncached<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let key = self.base.requests.pieces[id.0 as usize].key;
        let alone = match self.base.core.map.find(key) {
            ExtentState::Direct(whole) if self.base.durability.doubt.is_empty() => {
                return self.read_directly(id, whole);
            }
            ExtentState::Record(record) if self.base.durability.doubt.is_empty() => {
                self.sole_source(id, &record)
            }
            _ => None,
        };
        match alone {
            Some((source, places)) => {
                self.base.report_access(id, |_| places);
                self.read_single(id, source);
            }
            None => self.read_found(id, memory),
        }
    }

    /// Returns the source of the whole piece, if exactly one place of a record is valid for it, its blocks
    /// are adjacent there, and the read need not wait for copies being written. Also returns the block
    /// locations if the policy wants reports.
    #[inline(never)]
    fn sole_source(&self, id: PieceId, record: &Record) -> Option<(Source, Places)> {
        let Piece { key, range, locks_blocks: takes_blocks, reported, .. } =
            self.base.requests.pieces[id.0 as usize];
        if !takes_blocks && self.is_being_mirrored(key, range) {
            return None;
        }
        let address = sole_address(record, range)?;
        let source = Source {
            device: address.place().device,
            at: lookup::device_offset(&self.base.core.map, address, range, 0),
        };
        let reports = self.base.host.policies.watches(key.volume).accesses && !reported;
        Some((source, if reports { places_of(record, range) } else { Places::NONE }))
    }

    #[inline(always)]
    fn read_directly(&mut self, id: PieceId, whole: Whole) {
        let range = self.base.requests.pieces[id.0 as usize].range;
        let at = self.base.core.map.address(whole, u32::from(range.first) * BLOCK as u32);
        self.base.report_access(id, |base| base.place_of_whole(whole, range));
        self.read_single(id, Source { device: whole.device, at });
    }

    /// Whether a read of these blocks must wait for writes to both copies.
    #[inline]
    fn is_being_mirrored(&self, key: ExtentKey, range: BlockRange) -> bool {
        self.base.mirror.is_writing(key, range) && !self.base.core.is_planted(Mutant::ReadBesideCopies)
    }

    /// Reads the whole piece in one command.
    #[inline(always)]
    fn read_single(&mut self, id: PieceId, source: Source) {
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        piece.state = PieceState::Reading(Reading::new(1, (true, false)));
        let (Source { device, at }, buffer) = (source, piece.buffer);
        self.base.core.launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::run(id));
        self.piggyback_move(id, source);
    }

    /// Reads a piece in the general case: any map entry, and blocks that may be in doubt.
    #[inline(never)]
    fn read_found<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let piece = &self.base.requests.pieces[id.0 as usize];
        let (key, range) = (piece.key, piece.range);
        if let Some(error) = self.base.durability.doubt_error(&self.base.core, &self.base.requests, id) {
            self.base.requests.pieces[id.0 as usize].error = Some(error);
            return self.base.piece_ended(id);
        }
        let is_written = !piece.locks_blocks && self.is_being_mirrored(key, range);
        let reports = self.base.host.policies.watches(key.volume).accesses;
        let places = match self.base.core.map.find(key) {
            ExtentState::Direct(whole) => return self.read_directly(id, whole),
            ExtentState::Record(_) if is_written => {
                return self.base.requests.lock_read(id);
            }
            ExtentState::Record(record) if reports => places_of(&record, range),
            ExtentState::Record(_) | ExtentState::Empty => Places::NONE,
        };
        self.base.report_access(id, |_| places);
        match self.reads.plan_read(&self.base.core, &mut self.base.host, key, range) {
            Some((plan, None)) => self.read_planned(id, &plan, memory),
            Some((plan, Some(gap))) => {
                gap_read::begin_gap_read(&mut self.base.core, &mut self.base.requests, id, &plan, gap);
            }
            None => self.read_zeros(id, memory),
        }
    }

    /// Answers a piece that is all zeros. Zeros are written to the buffer only if another piece of the
    /// request may have data: a request that is all zeros carries a flag instead.
    fn read_zeros<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        piece.state = PieceState::Reading(Reading::new(0, (false, true)));
        if self.base.requests.active[piece.request.0].request.len.0 > u64::from(piece.span.len) {
            memory.bytes_mut(piece.buffer).fill(0);
        }
        self.base.piece_ended(id);
    }

    fn read_planned<M: Memory>(&mut self, id: PieceId, plan: &Plan, memory: &mut M) {
        let first_counts = self.base.core.is_planted(Mutant::ReadEndsWithFirstPart);
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        let reads = plan.iter().filter(|(_, source)| source.is_some()).count();
        let holes = reads < plan.len();
        let left = if first_counts { 1 } else { reads as u32 };
        piece.state = PieceState::Reading(Reading::new(left, (true, holes)));
        for (run, source) in plan {
            let part = self.base.requests.pieces[id.0 as usize].part(*run);
            match *source {
                Some(Source { device, at }) => {
                    self.base
                        .core
                        .launch(NewIo { device, kind: IoKind::Read, at, buffer: part }, Purpose::run(id));
                }
                None => memory.bytes_mut(part).fill(0),
            }
        }
        if let [(_, Some(source))] = plan[..] {
            self.piggyback_move(id, source);
        }
    }

    /// Reads from other places the blocks that a device failed to deliver; blocks that were cleared in the
    /// meantime are zeros. The reads begin at once, unless the device may still change the buffer or copies
    /// are being written: then the piece restarts. Returns `false` if some block is on no other usable
    /// device.
    fn fail_over<M: Memory>(&mut self, id: PieceId, flight: &Flight, error: IoError, memory: &mut M) -> bool {
        let Some(tried) = flight.failed_devices() else { return false };
        let piece = &self.base.requests.pieces[id.0 as usize];
        let volume = piece.key.volume;
        let before = flight.buffer.at - piece.buffer.at;
        let first = piece.range.first + (before / BLOCK) as u16;
        let range = BlockRange { first, count: (u64::from(flight.buffer.len) / BLOCK) as u16 };
        let all = lookup::record(&self.base.core.map, piece.key)
            .unwrap_or_else(|| self.base.core.map.empty_record(piece.key).into());
        let mut record = Record::clone(&all);
        record.places.retain(|p| !tried.contains(p.device()) && self.base.core.is_usable(p.device()));
        let known = (range.first..range.end()).all(|b| record.has_block(b) || !all.has_block(b));
        if !known || self.base.durability.doubt_error(&self.base.core, &self.base.requests, id).is_some() {
            return false;
        }
        let written = !piece.locks_blocks && self.is_being_mirrored(piece.key, range);
        if written || self.base.core.abandoned.uses(flight.buffer) {
            self.base.requests.pieces[id.0 as usize].restart(Some(flight.error(error)));
            return true;
        }
        let route = route::route(&self.base.core, &self.base.host, volume, &record, range);
        for (run, source) in lookup::plan(&self.base.core.map, &record, &route, range) {
            let offset = u32::from(run.first - range.first) * BLOCK as u32;
            let buffer = flight.buffer.part(offset, u32::from(run.count) * BLOCK as u32);
            if let Some(Source { device, at }) = source {
                expect_read(&mut self.base.requests, id);
                let purpose = Purpose::Read(ReadIo::Failover(id, tried));
                self.base.core.launch(NewIo { device, kind: IoKind::Read, at, buffer }, purpose);
            } else {
                memory.bytes_mut(buffer).fill(0);
            }
        }
        true
    }

    /// Marks the copy of a mirrored volume that could not be read as invalid for these blocks, so that it is
    /// rewritten from the other copy.
    fn invalidate_unreadable(&mut self, id: PieceId, flight: &Flight) {
        let Piece { key, range, buffer, .. } = self.base.requests.pieces[id.0 as usize];
        if !self.base.core.is_mirrored(key) || self.base.requests.locks.is_in_use(key) {
            return;
        }
        let block = |at: u64| range.first + ((at - buffer.at) / weir_model::BLOCK) as u16;
        let (first, end) = (block(flight.buffer.at), block(flight.buffer.at + u64::from(flight.buffer.len)));
        let Some(record) = lookup::record(&self.base.core.map, key) else { return };
        let bad =
            lookup::whole_places(&record).map(|whole| whole.device).find(|device| *device != flight.device);
        let Some(bad) = bad.filter(|device| self.base.core.is_usable(*device)) else { return };
        let mut blocks = BlockSet::none(self.base.core.map.extent().blocks());
        blocks.insert(BlockRange { first, count: end - first });
        self.base.core.map.invalidate_doubtful(key, bad, &blocks);
        self.base.durability.missing_copies.note(&self.base.core, key);
        self.base.durability.note_change(&self.base.core);
    }

    /// Passes the end of a read command to the code for its purpose.
    pub(crate) fn read_io_ended<M: Memory>(
        &mut self,
        io: ReadIo,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        match io {
            ReadIo::Run(id) | ReadIo::Failover(id, _) => self.read_ended(id, flight, result, memory),
            ReadIo::Gap(id) => self.gap_read_ended(id, flight, result, memory),
            ReadIo::Fetch(id) => self.fetch_ended(id, flight, result, memory),
        }
    }

    /// Handles the end of a plain read command: if it failed, other places are read.
    pub(crate) fn read_ended<M: Memory>(
        &mut self,
        id: PieceId,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        if self.mover.awaits_client_reads() {
            self.piggyback_read_ended(id, flight, result, memory);
        }
        if result.is_ok() && !matches!(flight.purpose, Purpose::Read(ReadIo::Run(_))) {
            self.invalidate_unreadable(id, flight);
        }
        let saved = result.is_err_and(|error| self.fail_over(id, flight, error, memory));
        if let (Err(error), false) = (result, saved) {
            // The device may have been given up in the meantime, with writes to these blocks.
            let error = self
                .base
                .durability
                .doubt_error(&self.base.core, &self.base.requests, id)
                .unwrap_or_else(|| flight.error(error));
            self.base.requests.pieces[id.0 as usize].error.get_or_insert(error);
        }
        self.read_part_ended(id, memory);
    }

    /// Counts the end of one command of a read piece; the last one ends the piece, or restarts it.
    #[inline]
    pub(crate) fn read_part_ended<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let piece = &mut self.base.requests.pieces[id.0 as usize];
        let PieceState::Reading(reading) = &mut piece.state else { return };
        reading.in_flight -= 1;
        if reading.in_flight > 0 {
            return;
        }
        let restart = reading.take_restart();
        let Piece { key, range, locks_blocks, error, .. } = *piece;
        match (restart, error) {
            (Some(Some(error)), None) => self.restart_read(id, error, memory),
            (Some(None), None) => self.base.requests.lock_read(id),
            // A write to the copies has overtaken the read.
            (None, None) if !locks_blocks && self.is_being_mirrored(key, range) => {
                self.base.requests.lock_read(id);
            }
            _ => self.base.piece_ended(id),
        }
    }
}
