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

use crate::ids::{CachedId, PieceId};
use crate::request::Requests;
use crate::request::piece::Piece;
use slab::Slab;
use smallvec::SmallVec;
use weir_map::BlockSet;
use weir_model::{BLOCK, BlockRange, Buffer, Bytes, ExtentKey, Memory, Mutant, Planted, VolumeId};
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
pub(crate) struct Fetch {
    run: BlockRange,
    /// What others began to change since.
    stale: BlockSet,
    /// Reads that want some of them.
    pub(crate) waiting: SmallVec<[PieceId; 2]>,
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
    pub(crate) counts: CacheStatus,
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
    pub(crate) fn room_for(&mut self, key: ExtentKey, range: BlockRange) -> Option<Buffer> {
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
    pub(crate) fn find(&mut self, key: ExtentKey, range: BlockRange) -> Option<Buffer> {
        let id = *self.order.touch(key)?;
        let cached = &self.extents[id.0];
        cached.valid.contains_all(range).then(|| part_of(cached.buffer, range))
    }

    /// Whether the blocks are on their way: then the piece waits for them.
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

    /// A run of an extent begins to be fetched for a piece: where to. `None` if there is no memory, or it is
    /// being fetched already.
    pub(crate) fn begin<M: Memory>(
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
    pub(crate) fn end(&mut self, id: CachedId, fetched: bool) -> Option<(ExtentKey, Fetch)> {
        let cached = &mut self.extents[id.0];
        let fetch = cached.fetch.take()?;
        if fetched {
            cached.valid.insert(fetch.run);
            cached.valid.subtract(&fetch.stale);
        }
        Some((cached.key, fetch))
    }

    /// The extent is not cached any more; its memory.
    pub(crate) fn remove(&mut self, key: ExtentKey) -> Option<Buffer> {
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

pub(crate) fn part_of(buffer: Buffer, range: BlockRange) -> Buffer {
    buffer.part(u32::from(range.first) * BLOCK as u32, u32::from(range.count) * BLOCK as u32)
}

impl ExtentCache {
    /// A write begins: what it covers of a cached extent is put there, and counts when it has ended well.
    #[inline(never)]
    pub(crate) fn note_write<M: Memory>(&mut self, requests: &Requests, id: PieceId, memory: &mut M) {
        let Piece { key, range, span, buffer, .. } = requests.pieces[id.0 as usize];
        self.forget(key, range);
        let covered = span.covered();
        if buffer == Buffer::EMPTY || covered.is_empty() {
            return;
        }
        if let Some(to) = self.room_for(key, covered) {
            let from = u32::from(covered.first - range.first) * BLOCK as u32;
            memory.copy(buffer.part(from, to.len), to);
        }
    }
}
