//! Reads: each block from a place that holds the truth for it; blocks true nowhere are zeros.

pub(crate) mod cache;
pub(crate) mod failover;
pub(crate) mod gap_read;
pub(crate) mod route;

use crate::Engine;
use crate::policy::advice::places_of;
use crate::read::gap_read::Long;
use crate::read::route::Route;
use crate::request::piece::{Flight, NewIo, Piece, PieceId, Purpose};
use crate::write::alone_in;
use smallvec::SmallVec;
use weir_map::{Found, Record, Whole};
use weir_model::{
    BLOCK, BlockRange, DeviceId, DeviceOffset, ExtentKey, IoError, IoKind, Memory, Mutant, VolumeId,
};
use weir_policy::placement::Places;

/// Where a run of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) device: DeviceId,
    pub(crate) at: DeviceOffset,
}

/// Blocks side by side, and where they are; what is nowhere is zeros.
pub(crate) type Run = (BlockRange, Option<Source>);

/// All runs of a read's blocks, in order.
pub(crate) type Plan = SmallVec<[Run; 2]>;

impl Engine {
    #[inline]
    pub(crate) fn start_read<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let goes_past = !self.cache.is_on() || self.doubtful(id).is_some();
        if goes_past || !self.read_cached(id, memory) {
            self.read_past_cache(id, memory);
        }
    }

    #[inline]
    pub(crate) fn read_past_cache<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let key = self.pieces[id.0 as usize].key;
        let alone = match self.map.find(key) {
            Found::Direct(whole) if self.doubt.is_empty() => return self.read_directly(id, whole),
            Found::Record(record) if self.doubt.is_empty() => self.alone(id, &record),
            _ => None,
        };
        match alone {
            Some((source, held)) => {
                self.tell_access(id, |_| held);
                self.read_one(id, source);
            }
            None => self.read_found(id, memory),
        }
    }

    /// Where all of a piece is to be read, if one place of a record has it alone, side by side, and it need
    /// not wait for copies being written; and, if the policy is to be told, where its blocks are.
    #[inline(never)]
    fn alone(&self, id: PieceId, record: &Record) -> Option<(Source, Places)> {
        let Piece { key, range, takes_blocks, told, .. } = self.pieces[id.0 as usize];
        if !takes_blocks && self.is_being_copied(key, range) {
            return None;
        }
        let spot = alone_in(record, range)?;
        let source = Source { device: spot.place().device, at: self.spot_address(spot, range, 0) };
        let is_told = self.policies.watches(key.volume).accesses && !told;
        Some((source, if is_told { places_of(record, range) } else { Places::NONE }))
    }

    #[inline(always)]
    fn read_directly(&mut self, id: PieceId, whole: Whole) {
        let range = self.pieces[id.0 as usize].range;
        let at = self.map.address(whole, u32::from(range.first) * BLOCK as u32);
        self.tell_access(id, |engine| engine.held_directly(whole, range));
        self.read_one(id, Source { device: whole.device, at });
    }

    /// Whether a read of these blocks has to wait for writes to both copies.
    #[inline]
    fn is_being_copied(&self, key: ExtentKey, range: BlockRange) -> bool {
        self.mirror.is_writing(key, range) && !self.is_planted(Mutant::ReadBesideCopies)
    }

    /// Reads all of the piece in one command.
    #[inline(always)]
    fn read_one(&mut self, id: PieceId, source: Source) {
        let piece = &mut self.pieces[id.0 as usize];
        (piece.found.0, piece.left) = (true, 1);
        let (Source { device, at }, buffer) = (source, piece.buffer);
        self.launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::Read(id));
        self.feed_move(id, source);
    }

    /// Reads a piece whatever it is that the map has, and though there may be doubt.
    #[inline(never)]
    fn read_found<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let piece = &self.pieces[id.0 as usize];
        let (key, range) = (piece.key, piece.range);
        if let Some(error) = self.doubtful(id) {
            self.pieces[id.0 as usize].error = Some(error);
            return self.piece_ended(id);
        }
        let is_written = !piece.takes_blocks && self.is_being_copied(key, range);
        let is_told = self.policies.watches(key.volume).accesses;
        let held = match self.map.find(key) {
            Found::Direct(whole) => return self.read_directly(id, whole),
            Found::Record(_) if is_written => return self.read_in_turn(id),
            Found::Record(record) if is_told => places_of(&record, range),
            Found::Record(_) | Found::Empty => Places::NONE,
        };
        self.tell_access(id, |_| held);
        match self.plan_read(key, range) {
            Some((plan, None)) => self.read_planned(id, &plan, memory),
            Some((plan, Some(through))) => self.read_through(id, &plan, through),
            None => self.read_zeros(id, memory),
        }
    }

    /// The piece is all zeros. They are filled in only if another piece of the request may hold data:
    /// a request that is all zeros says so instead.
    fn read_zeros<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let piece = &mut self.pieces[id.0 as usize];
        piece.found.1 = true;
        if self.active[piece.request.0].request.len.0 > u64::from(piece.span.len) {
            memory.bytes_mut(piece.buffer).fill(0);
        }
        self.piece_ended(id);
    }

    /// What is to be read for these blocks, perhaps through holes; `None` if they are true nowhere.
    fn plan_read(&mut self, key: ExtentKey, range: BlockRange) -> Option<(Plan, Option<Long>)> {
        let record = self.lent(key)?;
        let route = self.route(key.volume, &record, range);
        let has_holes = range.count > 1
            && !record.places.iter().any(|place| place.valid.contains_all(range))
            && self.may_read_through(key);
        let can_probe = !has_holes && self.can_probe(key.volume, &record, &route, range);
        let (plan, through) = match has_holes {
            true => self.plan_around_holes(&record, route, range),
            false => (self.plan(&record, &route, range), None),
        };
        if !can_probe || !self.is_probe_drawn() {
            return plan.iter().any(|(_, source)| source.is_some()).then_some((plan, through));
        }
        let record = self.lent(key)?;
        Some((self.plan(&record, &self.probe_first(&record, route, range), range), None))
    }

    /// The runs of these blocks, each to be read in one command or all zeros.
    pub(crate) fn plan(&self, record: &Record, route: &Route, range: BlockRange) -> Plan {
        let mut plan = Plan::new();
        let mut at = range.first;
        while at < range.end() {
            let (run, source) = self.run(record, route, BlockRange { first: at, count: range.end() - at });
            plan.push((run, source));
            at = run.end();
        }
        plan
    }

    fn read_planned<M: Memory>(&mut self, id: PieceId, plan: &Plan, memory: &mut M) {
        let first_counts = self.is_planted(Mutant::ReadEndsWithFirstPart);
        let piece = &mut self.pieces[id.0 as usize];
        let reads = plan.iter().filter(|(_, source)| source.is_some()).count();
        let holes = reads < plan.len();
        piece.found = (true, holes);
        piece.left = if first_counts { 1 } else { reads as u32 };
        for (run, source) in plan {
            let part = self.pieces[id.0 as usize].part(*run);
            match *source {
                Some(Source { device, at }) => {
                    self.launch(NewIo { device, kind: IoKind::Read, at, buffer: part }, Purpose::Read(id));
                }
                None => memory.bytes_mut(part).fill(0),
            }
        }
        if let [(_, Some(source))] = plan[..] {
            self.feed_move(id, source);
        }
    }

    /// The longest run from the first block of `range` that can be read in one command, or is all
    /// zeros.
    pub(crate) fn run(
        &self,
        record: &Record,
        route: &Route,
        range: BlockRange,
    ) -> (BlockRange, Option<Source>) {
        let first = self.source(record, route, range.first);
        let mut count = 1;
        while count < range.count {
            let next = self.source(record, route, range.first + count);
            let continues = match (first, next) {
                (None, None) => true,
                (Some(a), Some(b)) => a.device == b.device && b.at.0 == a.at.0 + u64::from(count) * BLOCK,
                _ => false,
            };
            if !continues {
                break;
            }
            count += 1;
        }
        (BlockRange { first: range.first, count }, first)
    }

    /// Where a block is: of several places that hold it, the first on the route.
    fn source(&self, record: &Record, route: &Route, block: u16) -> Option<Source> {
        let place = route.of(record).find(|p| p.valid.contains(block))?;
        let device = place.at.id().device;
        let slot = place.slot(block)?;
        let at =
            self.map.address(Whole { device, extent: slot.extent }, u32::from(slot.block) * BLOCK as u32);
        Some(Source { device, at })
    }

    /// Where a single block of a volume is.
    pub(crate) fn source_of(&self, volume: VolumeId, record: &Record, block: u16) -> Option<Source> {
        let route = self.route(volume, record, BlockRange { first: block, count: 1 });
        self.source(record, &route, block)
    }

    /// Reads what a device could not deliver from other places; blocks that have become zeros meanwhile are
    /// zeros. At once, unless the device may still change the buffer or copies are being written: then the
    /// piece begins again. `false` if some block is held by no other usable device.
    fn read_elsewhere<M: Memory>(
        &mut self,
        id: PieceId,
        flight: &Flight,
        error: IoError,
        memory: &mut M,
    ) -> bool {
        let Some(tried) = flight.tried() else { return false };
        let piece = &self.pieces[id.0 as usize];
        let volume = piece.key.volume;
        let before = flight.buffer.at - piece.buffer.at;
        let first = piece.range.first + (before / BLOCK) as u16;
        let range = BlockRange { first, count: (u64::from(flight.buffer.len) / BLOCK) as u16 };
        let all = self.record(piece.key).unwrap_or_else(|| self.map.empty_record(piece.key));
        let mut record = all.clone();
        record.places.retain(|p| !tried.contains(p.device()) && self.is_usable(p.device()));
        let known = (range.first..range.end()).all(|b| record.holds(b) || !all.holds(b));
        if !known || self.doubtful(id).is_some() {
            return false;
        }
        let written = !piece.takes_blocks && self.is_being_copied(piece.key, range);
        if written || self.abandoned.uses(flight.buffer) {
            self.again.note(id, flight.error(error));
            return true;
        }
        let route = self.route(volume, &record, range);
        for (run, source) in self.plan(&record, &route, range) {
            let offset = u32::from(run.first - range.first) * BLOCK as u32;
            let buffer = flight.buffer.part(offset, u32::from(run.count) * BLOCK as u32);
            if let Some(Source { device, at }) = source {
                self.pieces[id.0 as usize].left += 1;
                let purpose = Purpose::ReadElsewhere(id, tried);
                self.launch(NewIo { device, kind: IoKind::Read, at, buffer }, purpose);
            } else {
                memory.bytes_mut(buffer).fill(0);
            }
        }
        true
    }

    pub(crate) fn read_ended<M: Memory>(
        &mut self,
        id: PieceId,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        if self.mover_is_fed() {
            self.read_feeds(id, flight, result, memory);
        }
        if result.is_ok() && !matches!(flight.purpose, Purpose::Read(_)) {
            self.replace_unreadable(id, flight);
        }
        let saved = result.is_err_and(|error| self.read_elsewhere(id, flight, error, memory));
        if let (Err(error), false) = (result, saved) {
            // The device may have been given up meanwhile, with writes to these blocks.
            let error = self.doubtful(id).unwrap_or_else(|| flight.error(error));
            self.pieces[id.0 as usize].error.get_or_insert(error);
        }
        self.part_read(id, memory);
    }

    /// One of the commands of a read piece has ended.
    #[inline]
    pub(crate) fn part_read<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let piece = &mut self.pieces[id.0 as usize];
        piece.left -= 1;
        if piece.left > 0 {
            return;
        }
        match (self.again.take(id), piece.error) {
            (Some(Some(error)), None) => self.read_again(id, error, memory),
            (Some(None), None) => {
                piece.found = (false, false);
                self.read_in_turn(id);
            }
            _ => self.piece_ended(id),
        }
    }
}
