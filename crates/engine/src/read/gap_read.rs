//! Gap reads: one command reads several runs of one place together with the holes between them. The bytes it
//! returns for the holes are stale; those blocks are read again from their own places.
//!
//! Blocks that are written or copied to slots leave holes in the whole place of their extent, and a scan
//! would need one command for every run between them. A gap read instead reads runs and holes in one command;
//! once it has ended, the blocks of the holes are read from their own places, over the stale bytes. The
//! request is answered after that. Each block is consistent as of one moment; different blocks may be of
//! different moments, as with parallel commands.
//!
//! A gap read is used where it is expected to take less device time, unless the policy, as published, reads
//! slots first. If the long command fails, perhaps in a hole, the extent's runs are read separately from then
//! on.

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
use crate::request::piece::{DeferredRuns, Piece, PieceState, Reading};
use weir_map::{Location, Record};
use weir_model::{BLOCK, BlockRange, Bytes, ExtentKey, IoError, IoKind, Memory};
use weir_policy::Lru;
use weir_policy::placement::ReadFrom;

/// The number of blocks at each end that a gap read may include although the place is not valid for them.
/// Commands of adjacent extents are coalesced only if both reach the common boundary.
const EDGE_BLOCKS_MAX: u16 = 8;

/// The number of extents remembered because a gap read failed there.
const FAILED_MAX: usize = 1024;

/// The record of failed gap reads.
#[derive(Debug)]
pub(crate) struct GapReads {
    /// Extents that are not gap-read again: a bad sector in a hole that nobody wants would make the drive
    /// retry for long each time.
    failed: Lru<ExtentKey, ()>,
}

impl GapReads {
    pub(crate) fn new() -> Self {
        Self { failed: Lru::new(FAILED_MAX) }
    }
}

/// A gap read: one command that also reads the holes between runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GapRead {
    /// The blocks that the command reads, and the source of the first one.
    pub(crate) range: BlockRange,
    pub(crate) source: Source,
    pub(crate) rest: DeferredRuns,
}

impl Reads {
    /// Whether a gap read of the extent may be tried.
    pub(crate) fn may_read_gaps(&self, host: &Host, key: ExtentKey) -> bool {
        host.policies.read_from(key.volume) == ReadFrom::Soonest && self.gap_reads.failed.get(&key).is_none()
    }
}

/// Returns the expected service time of these commands, in nanoseconds.
fn service_time<'a>(core: &Core, runs: impl Iterator<Item = &'a BlockRun>) -> u64 {
    let len = |run: &BlockRange| Bytes(u64::from(run.count) * BLOCK);
    let sources = runs.filter_map(|(run, source)| Some((source.as_ref()?.device, len(run))));
    sources.map(|(device, len)| route::expected_read(core, device, len).0).fold(0, u64::saturating_add)
}

/// Returns the expected service time of the plan's commands, in nanoseconds, and a gap read of one of the
/// record's whole places if one is cheaper.
fn weigh_plan(core: &Core, record: &Record, plan: &Plan, range: BlockRange) -> (u64, Option<GapRead>) {
    let mut best = (service_time(core, plan.iter()), None);
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
        if range.count - span.count <= range.count / EDGE_BLOCKS_MAX {
            span = range;
        }
        let source = source(span.first);
        let takes = service_time(core, [(span, Some(source))].iter())
            .saturating_add(service_time(core, others.iter()));
        if takes < best.0 {
            let rest = others.iter().map(|(run, _)| *run).collect();
            best = (takes, Some(GapRead { range: span, source, rest }));
        }
    }
    best
}

/// Plans the read of blocks that no single place has: starting from the place that makes it cheapest, perhaps
/// with a gap read.
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
        let Some(place) = route.ordered_places(record).next() else { continue };
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
    piece.state = PieceState::Reading(Reading::new(1, found).with_rest(rest));
    let buffer = piece.part(range);
    core.launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::Read(ReadIo::Gap(id)));
}

impl DataPath {
    /// Handles the end of the long command: reads the blocks that it could not deliver.
    pub(crate) fn gap_read_ended<M: Memory>(
        &mut self,
        id: PieceId,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        let PieceState::Reading(reading) = &mut self.base.requests.pieces[id.0 as usize].state else {
            return;
        };
        let rest = reading.take_rest();
        if matches!(result, Err(IoError::Os(_))) {
            self.reads.gap_reads.failed.insert(self.base.requests.pieces[id.0 as usize].key, ());
        }
        match result {
            Ok(()) => rest.into_iter().for_each(|run| self.read_rest(id, run, memory)),
            Err(error) if self.base.core.abandoned.uses(flight.buffer) => {
                self.base.requests.pieces[id.0 as usize].restart(Some(flight.error(error)));
            }
            Err(_) => self.read_rest(id, self.base.requests.pieces[id.0 as usize].range, memory),
        }
        self.read_part_ended(id, memory);
    }

    /// Reads blocks of a piece from their current places, or restarts the piece if they are being written.
    fn read_rest<M: Memory>(&mut self, id: PieceId, range: BlockRange, memory: &mut M) {
        let Piece { key, locks_blocks: takes_blocks, .. } = self.base.requests.pieces[id.0 as usize];
        if let Some(error) = self.base.durability.doubt_error(&self.base.core, &self.base.requests, id) {
            self.base.requests.pieces[id.0 as usize].error.get_or_insert(error);
            return;
        }
        if !takes_blocks && self.base.mirror.is_writing(key, range) {
            return self.base.requests.pieces[id.0 as usize].restart(None);
        }
        let record = lookup::record(&self.base.core.map, key)
            .unwrap_or_else(|| self.base.core.map.empty_record(key).into());
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
                    if let PieceState::Reading(reading) = &mut piece.state {
                        reading.found.1 = true;
                    }
                    memory.bytes_mut(buffer).fill(0);
                }
            }
        }
    }
}
