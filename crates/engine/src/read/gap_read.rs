//! Gap reads: several runs of one place are read in one command, together with the blocks between them. What
//! it brings for those is stale; they are read again from where they are.
//!
//! Blocks that are written or copied to slots leave holes in the whole place of their extent, and a scan
//! would need a command for every run between them. What a hole has there is stale. So the blocks of the
//! holes are read from where they are once the command has ended, over what it brought; nobody is answered
//! before. What the two steps find of a block is of one moment, and may be of different ones for different
//! blocks, as with commands side by side.
//!
//! It is done where it is expected to take less of the devices' time, unless the policy has slots read first,
//! as published. If the long command fails, perhaps in a hole, the runs are read alone, from then on.

use crate::DataPath;
use crate::core::Core;
use crate::flight::{Flight, NewIo, Purpose, ReadIo};
use crate::ids::PieceId;
use crate::lookup::{self, BlockRun, Plan, Route, Source};
use crate::policy::Host;
use crate::policy::route;
use crate::read;
use crate::read::Reads;
use crate::request::Requests;
use crate::request::piece::{Piece, PieceState, Reading, Rest};
use weir_map::{Location, Record};
use weir_model::{BLOCK, BlockRange, Bytes, ExtentKey, IoError, IoKind, Memory};
use weir_policy::Lru;
use weir_policy::placement::ReadFrom;

/// Part of what is read that may come along at each end though the place does not hold it: extents side by
/// side are read in one command only if both reach where they meet.
const EDGE: u16 = 8;

/// How many extents are remembered where it has failed.
const FAILED: usize = 1024;

/// Where gap reads have failed.
#[derive(Debug)]
pub(crate) struct GapReads {
    /// Extents that are not read so again: a bad sector in a hole nobody wants would cost a drive's patience
    /// each time.
    failed: Lru<ExtentKey, ()>,
}

impl GapReads {
    pub(crate) fn new() -> Self {
        Self { failed: Lru::new(FAILED) }
    }
}

/// A gap read: one command that also reads the holes between runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GapRead {
    /// What is read in one command, and where its first block is.
    pub(crate) range: BlockRange,
    pub(crate) source: Source,
    pub(crate) rest: Rest,
}

impl Reads {
    /// Whether a gap read of the extent may be tried.
    pub(crate) fn may_read_gaps(&self, host: &Host, key: ExtentKey) -> bool {
        host.policies.read_from(key.volume) == ReadFrom::Soonest && self.gap_reads.failed.get(&key).is_none()
    }
}

/// What these commands are expected to take.
fn takes<'a>(core: &Core, runs: impl Iterator<Item = &'a BlockRun>) -> u64 {
    let len = |run: &BlockRange| Bytes(u64::from(run.count) * BLOCK);
    let sources = runs.filter_map(|(run, source)| Some((source.as_ref()?.device, len(run))));
    sources.map(|(device, len)| route::expected_read(core, device, len).0).fold(0, u64::saturating_add)
}

/// What the plan's commands are expected to take, and, if that is less, reading through the holes of one
/// of the record's whole places.
fn weigh_plan(core: &Core, record: &Record, plan: &Plan, range: BlockRange) -> (u64, Option<GapRead>) {
    let mut best = (takes(core, plan.iter()), None);
    for place in &record.places {
        let Location::Whole(whole) = place.at else { continue };
        let source = |block: u16| {
            let at = core.map.address(whole, u32::from(block) * BLOCK as u32);
            Source { device: whole.device, at }
        };
        let (here, others): (Plan, Plan) =
            plan.iter().copied().partition(|(run, from)| *from == Some(source(run.first)));
        let [(first, _), .., (last, _)] = here[..] else { continue };
        let mut span = BlockRange { first: first.first, count: last.end() - first.first };
        if range.count - span.count <= range.count / EDGE {
            span = range;
        }
        let source = source(span.first);
        let takes = takes(core, [(span, Some(source))].iter()).saturating_add(takes(core, others.iter()));
        if takes < best.0 {
            let rest = others.iter().map(|(run, _)| *run).collect();
            best = (takes, Some(GapRead { range: span, source, rest }));
        }
    }
    best
}

/// The plan for blocks that no place holds all of: from the place first that makes it the least, perhaps
/// through holes.
pub(crate) fn plan_around_holes(
    core: &Core,
    record: &Record,
    route: Route,
    range: BlockRange,
) -> (Plan, Option<GapRead>) {
    let mut best: Option<(u64, Plan, Option<GapRead>)> = None;
    for at in 0..record.places.len() {
        let mut route = route;
        route.prefer(at);
        let Some(place) = route.of(record).next() else { continue };
        let is_hopeless = core.is_lost(place.device()) || !place.valid.contains_any(range);
        if at > 0 && is_hopeless {
            continue;
        }
        let plan = lookup::plan(&core.map, record, &route, range);
        let (cost, gap) = weigh_plan(core, record, &plan, range);
        if best.as_ref().is_none_or(|best| cost < best.0) {
            best = Some((cost, plan, gap));
        }
    }
    best.map_or_else(|| (lookup::plan(&core.map, record, &route, range), None), |(_, plan, gap)| (plan, gap))
}

/// Begins the gap read of a piece.
pub(crate) fn begin_gap_read(
    core: &mut Core,
    requests: &mut Requests,
    id: PieceId,
    plan: &Plan,
    gap: GapRead,
) {
    let GapRead { range, source: Source { device, at }, rest } = gap;
    let piece = &mut requests.pieces[id.0 as usize];
    let found = (true, plan.iter().any(|(_, source)| source.is_none()));
    piece.state = PieceState::Reads(Reading::new(1, found).with_rest(rest));
    let buffer = piece.part(range);
    core.launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::Read(ReadIo::Gap(id)));
}

impl DataPath {
    /// The long command has ended: what it could not bring is read.
    pub(crate) fn gap_read_ended<M: Memory>(
        &mut self,
        id: PieceId,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        let PieceState::Reads(reading) = &mut self.base.requests.pieces[id.0 as usize].state else { return };
        let rest = reading.take_rest();
        if matches!(result, Err(IoError::Os(_))) {
            self.reads.gap_reads.failed.insert(self.base.requests.pieces[id.0 as usize].key, ());
        }
        match result {
            Ok(()) => rest.into_iter().for_each(|run| self.read_rest(id, run, memory)),
            Err(error) if self.base.core.abandoned.uses(flight.buffer) => {
                self.base.requests.pieces[id.0 as usize].begin_again(Some(flight.error(error)));
            }
            Err(_) => self.read_rest(id, self.base.requests.pieces[id.0 as usize].range, memory),
        }
        self.part_read(id, memory);
    }

    /// Reads blocks of a piece from where they are now, or has the piece begin again if they are being
    /// written.
    fn read_rest<M: Memory>(&mut self, id: PieceId, range: BlockRange, memory: &mut M) {
        let Piece { key, takes_blocks, .. } = self.base.requests.pieces[id.0 as usize];
        if let Some(error) = self.base.durability.doubtful(&self.base.core, &self.base.requests, id) {
            self.base.requests.pieces[id.0 as usize].error.get_or_insert(error);
            return;
        }
        if !takes_blocks && self.base.mirror.is_writing(key, range) {
            return self.base.requests.pieces[id.0 as usize].begin_again(None);
        }
        let record =
            lookup::record(&self.base.core.map, key).unwrap_or_else(|| self.base.core.map.empty_record(key));
        let route = route::route(&self.base.core, &self.base.host, key.volume, &record, range);
        for (run, source) in lookup::plan(&self.base.core.map, &record, &route, range) {
            let piece = &mut self.base.requests.pieces[id.0 as usize];
            let buffer = piece.part(run);
            match source {
                Some(Source { device, at }) => {
                    read::expect_read(&mut self.base.requests, id);
                    self.base.core.launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::run(id));
                }
                None => {
                    if let PieceState::Reads(reading) = &mut piece.state {
                        reading.found.1 = true;
                    }
                    memory.bytes_mut(buffer).fill(0);
                }
            }
        }
    }
}
