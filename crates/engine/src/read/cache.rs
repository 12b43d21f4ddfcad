//! The extent cache: whole extents in memory, write-through. Off unless it is given memory.
//!
//! Source: Wardrop balancing (the dissertation behind it, chapter III): "a read miss fetches the whole
//! extent".
//!
//! A read that is not answered from here fetches all that lies around it in the same place, in one command,
//! and is answered from that. What a write puts into blocks of a cached extent is put here as well, and
//! counts once the write has ended well. The extent used longest ago makes way.
//!
//! What is here is what a read of the devices would find: blocks that begin to be written or cleared, and
//! those that come into doubt, are here no more. An extent is fetched while nobody changes its blocks; what
//! somebody begins to change before the fetched bytes are there is not taken from them.
//!
//! Policies do not see reads that are answered from here: no device does anything for them.

use crate::Engine;
use crate::core::Core;
use crate::flight::{Flight, NewIo, Purpose, ReadIo};
use crate::ids::{CachedId, PieceId};
use crate::lookup::Source;
use crate::policy::Host;
use crate::read::Reads;
use crate::read::route;
use crate::request::Requests;
use crate::request::piece::{Piece, PieceState, Reading, WaitsFor};
use slab::Slab;
use smallvec::SmallVec;
use weir_map::{BlockSet, Found, Whole};
use weir_model::{
    BLOCK, BlockRange, Buffer, Bytes, ExtentKey, IoError, IoKind, Memory, Mutant, Planted, VolumeId,
};
use weir_policy::Lru;

/// Extents beyond any memory.
const EXTENTS_MAX: usize = u32::MAX as usize - 1;
/// The oldest extents looked at for one that may make way.
const LOOKS: usize = 4;

/// An extent in memory.
#[derive(Debug)]
struct Cached {
    key: ExtentKey,
    /// As long as the extent.
    buffer: Buffer,
    /// Blocks that are as a read of the devices would find them.
    valid: BlockSet,
    /// Blocks that will be, if the write that put them here ends well.
    coming: BlockSet,
    fetch: Option<Fetch>,
}

/// Blocks on their way from a device.
#[derive(Debug)]
struct Fetch {
    run: BlockRange,
    /// What others began to change since.
    stale: BlockSet,
    /// Reads that want some of them.
    waiting: SmallVec<[PieceId; 2]>,
}

/// What the extent cache holds, and what it was good for since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// The most it may hold; none: it is off.
    pub size: Bytes,
    /// The memory it holds.
    pub held: Bytes,
    /// Reads of an extent, or of a part of one, answered from it.
    pub hits: u64,
    /// Reads of an extent, or of a part of one, that the devices answered.
    pub misses: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ExtentCache {
    extents: Slab<Cached>,
    order: Lru<ExtentKey, CachedId>,
    counts: CacheStatus,
    planted: Planted,
}

impl ExtentCache {
    pub(crate) fn new(planted: Planted) -> Self {
        Self { extents: Slab::new(), order: Lru::new(EXTENTS_MAX), counts: CacheStatus::default(), planted }
    }

    /// Keeps up to so many bytes of extents in memory, which it takes from the buffer memory as it goes; none
    /// for no cache. To be called before the first request.
    pub(crate) fn set_size(&mut self, size: Bytes) {
        self.counts.size = size;
    }

    /// Whether anything is cached at all.
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.counts.size.0 > 0
    }

    pub(crate) const fn status(&self) -> CacheStatus {
        self.counts
    }

    /// The blocks begin to change, or are not known any more.
    #[inline]
    pub(crate) fn forget(&mut self, key: ExtentKey, range: BlockRange) {
        if let Some(id) = self.order.get(&key) {
            let cached = &mut self.extents[id.0];
            cached.valid.remove(range);
            cached.coming.remove(range);
            if let Some(fetch) = &mut cached.fetch
                && !self.planted.is(Mutant::FetchBringsStaleBlocks)
            {
                fetch.stale.insert(range);
            }
        }
    }

    /// The blocks have been written: what was put here of them counts.
    #[inline]
    pub(crate) fn written(&mut self, key: ExtentKey, range: BlockRange) {
        let Some(id) = self.order.get(&key) else { return };
        let cached = &mut self.extents[id.0];
        let end = range.end();
        let mut at = range.first;
        while let Some(run) = cached.coming.next_run(at, end) {
            cached.valid.insert(run);
            at = run.end();
        }
        cached.coming.remove(range);
    }

    /// Where bytes for these blocks may be put: the extent is cached, and nothing else is being put there.
    fn room_for(&mut self, key: ExtentKey, range: BlockRange) -> Option<Buffer> {
        let cached = &mut self.extents[self.order.get(&key)?.0];
        if cached.fetch.is_some() {
            return None;
        }
        cached.coming.insert(range);
        if self.planted.is(Mutant::CachedBeforeWritten) {
            cached.valid.insert(range);
        }
        Some(part_of(cached.buffer, range))
    }

    /// The bytes of these blocks, if all are here.
    fn find(&mut self, key: ExtentKey, range: BlockRange) -> Option<Buffer> {
        let id = *self.order.touch(key)?;
        let cached = &self.extents[id.0];
        cached.valid.contains_all(range).then(|| part_of(cached.buffer, range))
    }

    /// Whether the blocks are on their way: then the piece waits for them.
    fn wait_for(&mut self, key: ExtentKey, range: BlockRange, piece: PieceId) -> bool {
        let Some(id) = self.order.get(&key) else { return false };
        let Some(fetch) = &mut self.extents[id.0].fetch else { return false };
        let brings = fetch.run.first <= range.first && range.end() <= fetch.run.end();
        let comes = brings && !fetch.stale.contains_any(range);
        if comes {
            fetch.waiting.push(piece);
        }
        comes
    }

    /// A run of an extent begins to be fetched for a piece: where to. `None` if there is no memory, or it is
    /// being fetched already.
    fn begin<M: Memory>(
        &mut self,
        key: ExtentKey,
        run: BlockRange,
        piece: PieceId,
        blocks: u16,
        memory: &mut M,
    ) -> Option<(CachedId, Buffer)> {
        let id = match self.order.get(&key) {
            Some(id) => *id,
            None => {
                let buffer = self.take(blocks, memory)?;
                let none = BlockSet::none(blocks);
                let cached = Cached { key, buffer, valid: none.clone(), coming: none, fetch: None };
                let id = CachedId(self.extents.insert(cached));
                self.order.insert(key, id);
                id
            }
        };
        let cached = &mut self.extents[id.0];
        if cached.fetch.is_some() {
            return None;
        }
        // Nobody changes a block now: what was put here and did not come to count never will.
        cached.coming = BlockSet::none(blocks);
        cached.valid.remove(run);
        let stale = BlockSet::none(blocks);
        cached.fetch = Some(Fetch { run, stale, waiting: SmallVec::from_slice(&[piece]) });
        Some((id, part_of(cached.buffer, run)))
    }

    /// Memory for an extent: new, or that of one used long ago.
    fn take<M: Memory>(&mut self, blocks: u16, memory: &mut M) -> Option<Buffer> {
        let len = Bytes(u64::from(blocks) * BLOCK);
        if self.counts.held + len <= self.counts.size
            && let Some(buffer) = memory.take(len)
        {
            self.counts.held += len;
            return Some(buffer);
        }
        let can_go = |id: &CachedId| self.extents[id.0].fetch.is_none();
        let (key, id) =
            self.order.iter_oldest().take(LOOKS).find(|(_, id)| can_go(id)).map(|(k, id)| (k, *id))?;
        self.order.remove(&key);
        Some(self.extents.remove(id.0).buffer)
    }

    /// The run has been fetched, or could not be; who waits for it.
    fn end(&mut self, id: CachedId, fetched: bool) -> Option<(ExtentKey, Fetch)> {
        let cached = &mut self.extents[id.0];
        let fetch = cached.fetch.take()?;
        if fetched {
            cached.valid.insert(fetch.run);
            cached.valid.subtract(&fetch.stale);
        }
        Some((cached.key, fetch))
    }

    /// The extent is not cached any more; its memory.
    fn remove(&mut self, key: ExtentKey) -> Option<Buffer> {
        let id = self.order.remove(&key)?;
        let buffer = self.extents.remove(id.0).buffer;
        self.counts.held = Bytes(self.counts.held.0 - u64::from(buffer.len));
        Some(buffer)
    }

    /// Its volume is gone.
    pub(crate) fn forget_volume(&mut self, volume: VolumeId) {
        for (_, cached) in self.extents.iter_mut().filter(|(_, cached)| cached.key.volume == volume) {
            cached.valid = cached.valid.none_of_these();
        }
    }

    /// Gives all memory back.
    pub(crate) fn give<M: Memory>(self, memory: &mut M) {
        self.extents.into_iter().for_each(|(_, cached)| memory.give(cached.buffer));
    }
}

fn part_of(buffer: Buffer, range: BlockRange) -> Buffer {
    buffer.part(u32::from(range.first) * BLOCK as u32, u32::from(range.count) * BLOCK as u32)
}

impl Reads {
    /// A write begins: what it covers of a cached extent is put there, and counts when it has ended well.
    #[inline(never)]
    pub(crate) fn cache_write<M: Memory>(&mut self, requests: &Requests, id: PieceId, memory: &mut M) {
        let Piece { key, range, span, buffer, .. } = requests.pieces[id.0 as usize];
        self.cache.forget(key, range);
        let covered = span.covered();
        if buffer == Buffer::EMPTY || covered.is_empty() {
            return;
        }
        if let Some(to) = self.cache.room_for(key, covered) {
            let from = u32::from(covered.first - range.first) * BLOCK as u32;
            memory.copy(buffer.part(from, to.len), to);
        }
    }
}

/// The longest run around these blocks that can be read in one command from where a read would go.
fn around(core: &Core, host: &Host, key: ExtentKey, range: BlockRange) -> Option<(BlockRange, Source)> {
    let record = match core.map.find(key) {
        Found::Empty => return None,
        Found::Direct(whole) => {
            let run = BlockRange { first: 0, count: core.map.extent().blocks() };
            return Some((run, Source { device: whole.device, at: core.map.address(whole, 0) }));
        }
        Found::Record(record) => record.into_owned(),
    };
    let route = route::route(core, host, key.volume, &record, range);
    let place = route.of(&record).find(|p| p.valid.contains(range.first))?;
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

impl Engine {
    /// Answers a read piece from the cache, now or when its extent has been fetched; `false` if it is to go
    /// past it.
    #[inline(never)]
    pub(crate) fn read_cached<M: Memory>(&mut self, id: PieceId, memory: &mut M) -> bool {
        let Piece { key, range, .. } = self.requests.pieces[id.0 as usize];
        if self.reads.cache.find(key, range).is_some() {
            self.reads.cache.counts.hits += 1;
            self.answer_cached(id, memory);
            return true;
        }
        self.reads.cache.counts.misses += 1;
        let waits = self.reads.cache.wait_for(key, range, id) || self.fetch(id, memory);
        if waits {
            self.requests.wait(id, WaitsFor::Fetch);
        }
        waits
    }

    /// The piece's blocks are here.
    fn answer_cached<M: Memory>(&mut self, id: PieceId, memory: &mut M) {
        let Piece { key, range, buffer, .. } = self.requests.pieces[id.0 as usize];
        if let Some(bytes) = self.reads.cache.find(key, range) {
            memory.copy(bytes, buffer);
            self.requests.pieces[id.0 as usize].state = PieceState::Reads(Reading::new(0, (true, false)));
        }
        self.piece_ended(id);
    }

    /// Fetches what lies around the piece's blocks, if that is more than these, and nobody is changing some
    /// of it.
    fn fetch<M: Memory>(&mut self, id: PieceId, memory: &mut M) -> bool {
        let Piece { key, range, .. } = self.requests.pieces[id.0 as usize];
        if self.requests.locks.is_taken(key) {
            return false;
        }
        let Some((run, Source { device, at })) = around(&self.core, &self.host, key, range) else {
            return false;
        };
        if run.count <= range.count || !self.core.is_usable(device) {
            return false;
        }
        let blocks = self.core.map.extent().blocks();
        let Some((cached, buffer)) = self.reads.cache.begin(key, run, id, blocks, memory) else {
            return false;
        };
        self.tell_access(id, |engine| engine.held_of(key, range));
        self.core
            .launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::Read(ReadIo::Fetch(cached)));
        true
    }

    /// A run has been fetched, or could not be: the reads that wait are answered, or go past the cache.
    pub(crate) fn fetch_ended<M: Memory>(
        &mut self,
        id: CachedId,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        let Some((key, fetch)) = self.reads.cache.end(id, result.is_ok()) else { return };
        for piece in fetch.waiting {
            let range = self.requests.pieces[piece.0 as usize].range;
            if self.durability.doubtful(&self.core, &self.requests, piece).is_none()
                && self.reads.cache.find(key, range).is_some()
            {
                self.answer_cached(piece, memory);
            } else {
                self.read_past_cache(piece, memory);
            }
        }
        if self.core.abandoned.uses(flight.buffer)
            && let Some(buffer) = self.reads.cache.remove(key)
        {
            self.core.abandoned.let_go(buffer, memory);
        }
    }
}
