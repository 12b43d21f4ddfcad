//! The extent cache: whole extents in memory, write-through. It is off unless it has memory.
//!
//! Source: Wardrop balancing (the dissertation behind it, chapter III): "a read miss fetches the whole
//! extent".
//!
//! A read miss fetches, in one command, the longest run around its blocks in the same place, and is answered
//! from that. A write to blocks of a cached extent updates the cache, and counts once it has succeeded. The
//! least recently used extent is evicted.
//!
//! The cache answers what a read of the devices would: blocks leave it when a write or clear of them begins,
//! and when they come into doubt. An extent is fetched only while no change of it is in flight; blocks that
//! begin to change before the fetch ends are not taken from it.
//!
//! Policies do not see cache hits, because no device does any work for them.

use crate::ids::{CachedId, PieceId};
use crate::request::Requests;
use crate::request::piece::Piece;
use slab::Slab;
use smallvec::SmallVec;
use weir_map::BlockSet;
use weir_model::{BLOCK, BlockRange, Buffer, Bytes, ExtentKey, Memory, Mutant, Planted, VolumeId};
use weir_policy::Lru;

/// The maximum number of extents, far beyond any memory.
const EXTENTS_MAX: usize = u32::MAX as usize - 1;
/// The number of least recently used extents examined for eviction.
const EVICTION_CANDIDATES: usize = 4;

/// A cached extent.
#[derive(Debug)]
struct CachedExtent {
    key: ExtentKey,
    /// The buffer, as long as the extent.
    buffer: Buffer,
    /// Blocks whose bytes equal a read of the devices.
    valid: BlockSet,
    /// Blocks that become valid if the write that put them here succeeds.
    pending: BlockSet,
    fetch: Option<Fetch>,
}

/// A fetch in flight.
#[derive(Debug)]
pub(crate) struct Fetch {
    run: BlockRange,
    /// Blocks that began to change since the fetch began.
    stale: BlockSet,
    /// Reads that wait for the fetch.
    pub(crate) waiting: SmallVec<[PieceId; 2]>,
}

/// The size of the extent cache, and its counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// The maximum size; zero: the cache is off.
    pub size: Bytes,
    /// The memory in use.
    pub memory_used: Bytes,
    /// Hits: reads of an extent, or of part of one, answered from the cache.
    pub hits: u64,
    /// Misses: reads of an extent, or of part of one, that the devices answered.
    pub misses: u64,
}

/// The extent cache.
#[derive(Debug)]
pub(crate) struct ExtentCache {
    extents: Slab<CachedExtent>,
    order: Lru<ExtentKey, CachedId>,
    pub(crate) counts: CacheStatus,
    planted: Planted,
}

impl ExtentCache {
    pub(crate) fn new(planted: Planted) -> Self {
        Self { extents: Slab::new(), order: Lru::new(EXTENTS_MAX), counts: CacheStatus::default(), planted }
    }

    /// Sets the maximum size, which is allocated from the buffer memory as needed; zero turns the cache off.
    /// Call it before the first request.
    pub(crate) fn set_size(&mut self, size: Bytes) {
        self.counts.size = size;
    }

    /// Whether the cache is on.
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.counts.size.0 > 0
    }

    pub(crate) const fn status(&self) -> CacheStatus {
        self.counts
    }

    /// Invalidates the blocks: they begin to change, or are in doubt.
    #[inline]
    pub(crate) fn invalidate(&mut self, key: ExtentKey, range: BlockRange) {
        if let Some(id) = self.order.get(&key) {
            let cached = &mut self.extents[id.0];
            cached.valid.remove(range);
            cached.pending.remove(range);
            if let Some(fetch) = &mut cached.fetch
                && !self.planted.is(Mutant::FetchBringsStaleBlocks)
            {
                fetch.stale.insert(range);
            }
        }
    }

    /// Makes the bytes of a write that succeeded valid.
    #[inline]
    pub(crate) fn write_succeeded(&mut self, key: ExtentKey, range: BlockRange) {
        let Some(id) = self.order.get(&key) else { return };
        let cached = &mut self.extents[id.0];
        let end = range.end();
        let mut at = range.first;
        while let Some(run) = cached.pending.next_run(at, end) {
            cached.valid.insert(run);
            at = run.end();
        }
        cached.pending.remove(range);
    }

    /// Returns where to copy the bytes of these blocks: `None` if the extent is not cached, or is being
    /// fetched.
    pub(crate) fn buffer_for(&mut self, key: ExtentKey, range: BlockRange) -> Option<Buffer> {
        let cached = &mut self.extents[self.order.get(&key)?.0];
        if cached.fetch.is_some() {
            return None;
        }
        cached.pending.insert(range);
        if self.planted.is(Mutant::CachedBeforeWritten) {
            cached.valid.insert(range);
        }
        Some(part_of(cached.buffer, range))
    }

    /// Whether all of an extent's `count` blocks but these are cached.
    pub(crate) fn holds_besides(&self, key: ExtentKey, range: BlockRange, count: u16) -> bool {
        let Some(id) = self.order.get(&key) else { return false };
        let before = BlockRange { first: 0, count: range.first };
        let after = BlockRange { first: range.end(), count: count.saturating_sub(range.end()) };
        let valid = &self.extents[id.0].valid;
        [before, after].into_iter().filter(|part| part.count > 0).all(|part| valid.contains_all(part))
    }

    /// Returns the bytes of these blocks, if all are cached.
    pub(crate) fn find(&mut self, key: ExtentKey, range: BlockRange) -> Option<Buffer> {
        let id = *self.order.touch(key)?;
        let cached = &self.extents[id.0];
        cached.valid.contains_all(range).then(|| part_of(cached.buffer, range))
    }

    /// Makes the piece wait for a fetch in flight of these blocks. Returns `false` if there is none.
    pub(crate) fn wait_for(&mut self, key: ExtentKey, range: BlockRange, piece: PieceId) -> bool {
        let Some(id) = self.order.get(&key) else { return false };
        let Some(fetch) = &mut self.extents[id.0].fetch else { return false };
        let brings = fetch.run.first <= range.first && range.end() <= fetch.run.end();
        let comes = brings && !fetch.stale.contains_any(range);
        if comes {
            fetch.waiting.push(piece);
        }
        comes
    }

    /// Begins to fetch a run of an extent for a piece. Returns where to read it to; `None` if there is no
    /// memory, or a fetch is in flight.
    pub(crate) fn begin_fetch<M: Memory>(
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
                let buffer = self.take_memory(blocks, memory)?;
                let none = BlockSet::none(blocks);
                let cached = CachedExtent { key, buffer, valid: none.clone(), pending: none, fetch: None };
                let id = CachedId(self.extents.insert(cached));
                self.order.insert(key, id);
                id
            }
        };
        let cached = &mut self.extents[id.0];
        if cached.fetch.is_some() {
            return None;
        }
        // No change of the extent is in flight: bytes that have not become valid never will.
        cached.pending = BlockSet::none(blocks);
        cached.valid.remove(run);
        let stale = BlockSet::none(blocks);
        cached.fetch = Some(Fetch { run, stale, waiting: SmallVec::from_slice(&[piece]) });
        Some((id, part_of(cached.buffer, run)))
    }

    /// Takes memory for an extent: new, or that of an evicted extent.
    fn take_memory<M: Memory>(&mut self, blocks: u16, memory: &mut M) -> Option<Buffer> {
        let len = Bytes(u64::from(blocks) * BLOCK);
        if self.counts.memory_used + len <= self.counts.size
            && let Some(buffer) = memory.take(len)
        {
            self.counts.memory_used += len;
            return Some(buffer);
        }
        let can_go = |id: &CachedId| self.extents[id.0].fetch.is_none();
        let (key, id) = self
            .order
            .iter_oldest()
            .take(EVICTION_CANDIDATES)
            .find(|(_, id)| can_go(id))
            .map(|(k, id)| (k, *id))?;
        self.order.remove(&key);
        Some(self.extents.remove(id.0).buffer)
    }

    /// Ends a fetch, successful or not. Returns the extent and the waiting reads.
    pub(crate) fn end_fetch(&mut self, id: CachedId, fetched: bool) -> Option<(ExtentKey, Fetch)> {
        let cached = &mut self.extents[id.0];
        let fetch = cached.fetch.take()?;
        if fetched {
            cached.valid.insert(fetch.run);
            cached.valid.subtract(&fetch.stale);
        }
        Some((cached.key, fetch))
    }

    /// Removes the extent from the cache. Returns its memory.
    pub(crate) fn remove(&mut self, key: ExtentKey) -> Option<Buffer> {
        let id = self.order.remove(&key)?;
        let buffer = self.extents.remove(id.0).buffer;
        self.counts.memory_used = Bytes(self.counts.memory_used.0 - u64::from(buffer.len));
        Some(buffer)
    }

    /// Invalidates the extents of a removed volume.
    pub(crate) fn invalidate_volume(&mut self, volume: VolumeId) {
        for (_, cached) in self.extents.iter_mut().filter(|(_, cached)| cached.key.volume == volume) {
            cached.valid = cached.valid.empty_like();
        }
    }

    /// Returns all memory.
    pub(crate) fn release_memory<M: Memory>(self, memory: &mut M) {
        self.extents.into_iter().for_each(|(_, cached)| memory.give(cached.buffer));
    }
}

pub(crate) fn part_of(buffer: Buffer, range: BlockRange) -> Buffer {
    buffer.part(u32::from(range.first) * BLOCK as u32, u32::from(range.count) * BLOCK as u32)
}

impl ExtentCache {
    /// Copies the blocks that a beginning write covers to the cached extent; they become valid when the write
    /// succeeds.
    #[inline(never)]
    pub(crate) fn note_write<M: Memory>(&mut self, requests: &Requests, id: PieceId, memory: &mut M) {
        let Piece { key, range, span, buffer, .. } = requests.pieces[id.0 as usize];
        self.invalidate(key, range);
        let covered = span.covered();
        if buffer == Buffer::EMPTY || covered.is_empty() {
            return;
        }
        if let Some(to) = self.buffer_for(key, covered) {
            let from = u32::from(covered.first - range.first) * BLOCK as u32;
            memory.copy(buffer.part(from, to.len), to);
        }
    }
}
