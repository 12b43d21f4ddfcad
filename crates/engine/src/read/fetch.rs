//! Reads answered from the extent cache ([`crate::cache`]), and the fetches that fill it.

use crate::DataPath;
use crate::core::Core;
use crate::flight::{Flight, NewIo, Purpose, ReadIo};
use crate::ids::{CachedId, PieceId};
use crate::lookup::Source;
use crate::policy::Host;
use crate::policy::route;
use crate::request::piece::{Piece, PieceState, Reading, WaitsFor};
use weir_map::{ExtentState, Whole};
use weir_model::{BLOCK, BlockRange, ExtentKey, IoError, IoKind, Memory};

/// Returns the longest run around these blocks that one command can read from the place that a read would
/// use.
fn fetch_run(core: &Core, host: &Host, key: ExtentKey, range: BlockRange) -> Option<(BlockRange, Source)> {
    let record = match core.map.find(key) {
        ExtentState::Empty => return None,
        ExtentState::Direct(whole) => {
            let run = BlockRange { first: 0, count: core.map.extent().blocks() };
            return Some((run, Source { device: whole.device, at: core.map.address(whole, 0) }));
        }
        ExtentState::Record(record) => record.into_owned(),
    };
    let route = route::route(core, host, key.volume, &record, range);
    let place = route.ordered_places(&record).find(|p| p.valid.contains(range.first))?;
    let next_to = |a: u16, b: u16| match (place.slot(a), place.slot(b)) {
        (Some(a), Some(b)) => a.extent == b.extent && b.block == a.block + 1,
        _ => false,
    };
    let valid = |b: u16| place.valid.contains(b);
    let mut first = range.first;
    while first > 0 && valid(first - 1) && next_to(first - 1, first) {
        first -= 1;
    }
    let mut end = range.first + 1;
    while end < core.map.extent().blocks() && valid(end) && next_to(end - 1, end) {
        end += 1;
    }
    let slot = place.slot(first)?;
    let whole = Whole { device: place.device(), extent: slot.extent };
    let at = core.map.address(whole, u32::from(slot.block) * BLOCK as u32);
    (range.end() <= end)
        .then_some((BlockRange { first, count: end - first }, Source { device: place.device(), at }))
}

impl DataPath {
    /// Answers a read piece from the cache, now or when its extent has been fetched. Returns `false` if the
    /// piece must be read from the devices.
    #[inline(never)]
    pub(crate) fn read_cached<M: Memory>(&mut self, id: PieceId, memory: &mut M) -> bool {
        let Piece { key, range, .. } = self.base.requests.pieces[id.0 as usize];
        if self.base.cache.find(key, range).is_some() {
            self.base.cache.counts.hits += 1;
            self.answer_cached(id, memory);
            return true;
        }
        self.base.cache.counts.misses += 1;
        let waits = self.base.cache.wait_for(key, range, id) || self.fetch(id, memory);
        if waits {
            self.base.requests.wait(id, WaitsFor::Fetch);
        }
        waits
    }

    /// Answers a piece whose blocks are in the cache.
    fn answer_cached<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let Piece { key, range, buffer, .. } = self.base.requests.pieces[id.0 as usize];
        if let Some(bytes) = self.base.cache.find(key, range) {
            memory.copy(bytes, buffer);
            self.base.requests.pieces[id.0 as usize].state =
                PieceState::Reading(Reading::new(0, (true, false)));
        }
        self.base.piece_ended(id);
    }

    /// Fetches the run around the piece's blocks. Returns `false` if the run is no longer than the piece, or
    /// if a change of the extent is in flight.
    fn fetch<M: Memory>(&mut self, id: PieceId, memory: &mut M) -> bool {
        let Piece { key, range, .. } = self.base.requests.pieces[id.0 as usize];
        if self.base.requests.locks.is_in_use(key) {
            return false;
        }
        let Some((run, Source { device, at })) = fetch_run(&self.base.core, &self.base.host, key, range)
        else {
            return false;
        };
        if run.count <= range.count || !self.base.core.is_usable(device) {
            return false;
        }
        let blocks = self.base.core.map.extent().blocks();
        let Some((cached, buffer)) = self.base.cache.begin_fetch(key, run, id, blocks, memory) else {
            return false;
        };
        self.base.report_access(id, |base| base.places_of_blocks(key, range));
        self.base
            .core
            .launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::Read(ReadIo::Fetch(cached)));
        true
    }

    /// Handles the end of a fetch: the waiting reads are answered from the cache, or read from the devices if
    /// it failed.
    pub(crate) fn fetch_ended<M: Memory>(
        &mut self,
        id: CachedId,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        let Some((key, fetch)) = self.base.cache.end_fetch(id, result.is_ok()) else { return };
        for piece in fetch.waiting {
            let range = self.base.requests.pieces[piece.0 as usize].range;
            if self.base.durability.doubt_error(&self.base.core, &self.base.requests, piece).is_none()
                && self.base.cache.find(key, range).is_some()
            {
                self.answer_cached(piece, memory);
            } else {
                self.read_uncached(piece, memory);
            }
        }
        if self.base.core.abandoned.uses(flight.buffer)
            && let Some(buffer) = self.base.cache.remove(key)
        {
            self.base.core.abandoned.release_when_idle(buffer, memory);
        }
    }
}
