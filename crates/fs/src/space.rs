//! Free space: chunks of the region, and pages of the chunks that are divided into pages.
//!
//! The chunk table has the truth; what is here in memory is rebuilt from it at every mount. Space that an
//! operation frees is *quarantined* until the next commit: until then the durable metadata still refers to
//! it.

mod bits;

use crate::error::{Error, Result};
use crate::layout::chunk::{BIT_WORDS, BITS_AT, Entry, Purpose, Use};
use crate::layout::{Chunk, Geometry, Page};
use crate::nvm::Memory;
use crate::store::Store;
use bits::{find_run, longest_run, set, used};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// The page bits of a chunk.
pub(crate) type Bits = [u64; BIT_WORDS];

/// Chunks that are kept free, so that data can move there when free pages are scattered.
const RESERVED: u64 = 1;
/// Number of chunks of the smallest region that keeps some.
const RESERVING_CHUNKS_MIN: u32 = 32;
/// Chunks that an allocation looks at which may have no run that is long enough.
const TRIED_MAX: usize = 4;

/// Chunks of which data moves at a time.
const SOURCES_MAX: usize = 64;

/// Steps of the operation in progress, for [`Space::abort`].
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Took a chunk with this wear.
    Chunk(Chunk, u32),
    /// Divided a chunk into pages, after it was taken.
    Divided(Chunk),
    /// Took pages.
    Pages(Page, u32),
    /// Took the first page for metadata.
    Fixed(Chunk),
}

/// Free space of a region.
#[derive(Debug)]
pub struct Space {
    geometry: Geometry,
    /// Free chunks, those with the least wear first.
    chunks: BTreeSet<(u32, Chunk)>,
    /// For each chunk that is divided into pages: pages that are allocated or quarantined.
    busy: FxHashMap<Chunk, Bits>,
    /// Chunks that are divided into pages, and that have metadata.
    fixed: FxHashSet<Chunk>,
    /// Chunks with free pages, by the binary logarithm of their longest run of free pages: first those with
    /// data alone, then the others.
    by_run: [Vec<BTreeSet<Chunk>>; 2],
    free_pages: u64,
    /// Freed since the last commit.
    quarantined_pages: Vec<(Page, u32)>,
    quarantined_chunks: Vec<(u32, Chunk)>,
    /// Chunks whose last page was freed since the last commit.
    emptied: FxHashSet<Chunk>,
    steps: Vec<Step>,
    /// Lengths of the lists of quarantined space when the operation began.
    marks: (usize, usize),
    emptied_now: Vec<Chunk>,
    reserved: u64,
    /// Consecutive pages that were not to be had when an allocation failed last.
    missed: u64,
    /// What was missed when data moved in vain, and the number of free pages then.
    in_vain: Option<(u64, u64)>,
}

impl Space {
    /// Reads the chunk table. If it is `lenient`, a chunk with an unknown use is not free; otherwise it is an
    /// error.
    ///
    /// # Errors
    /// Returns `Damaged` if an entry has an unknown use.
    pub fn load<M: Memory>(store: &Store<M>, geometry: Geometry, lenient: bool) -> Result<Self> {
        let classes = geometry.chunk_pages().ilog2() as usize + 1;
        let mut space = Self {
            geometry,
            chunks: BTreeSet::new(),
            busy: FxHashMap::default(),
            fixed: FxHashSet::default(),
            by_run: [vec![BTreeSet::new(); classes], vec![BTreeSet::new(); classes]],
            free_pages: 0,
            quarantined_pages: Vec::new(),
            quarantined_chunks: Vec::new(),
            emptied: FxHashSet::default(),
            steps: Vec::new(),
            marks: (0, 0),
            emptied_now: Vec::new(),
            reserved: if geometry.chunks() >= RESERVING_CHUNKS_MIN { RESERVED } else { 0 },
            missed: 0,
            in_vain: None,
        };
        for chunk in (geometry.system_chunks()..geometry.chunks()).map(Chunk) {
            let entry = match space.entry(store, chunk) {
                Err(_) if lenient => continue,
                entry => entry?,
            };
            match entry.usage {
                Use::Free => {
                    space.chunks.insert((entry.wear, chunk));
                }
                Use::Pages => {
                    let bits = space.bits(store, chunk);
                    if entry.purpose() != Some(Purpose::Data) {
                        space.fixed.insert(chunk);
                    }
                    space.add_divided(chunk, bits);
                }
                Use::System | Use::Inodes | Use::Data => {}
            }
        }
        Ok(space)
    }

    /// Reads a chunk's entry.
    ///
    /// # Errors
    /// Returns `Damaged` if it has an unknown use, or does not exist.
    pub fn entry<M: Memory>(&self, store: &Store<M>, chunk: Chunk) -> Result<Entry> {
        if chunk.0 >= self.geometry.chunks() {
            return Err(Error::Damaged(format!("chunk {} does not exist", chunk.0)));
        }
        Entry::decode(&store.bytes(self.geometry.entry_at(chunk)))
            .ok_or_else(|| Error::Damaged(format!("chunk {} has an unknown use", chunk.0)))
    }

    /// Changes a chunk's entry.
    pub fn set_entry<M: Memory>(&self, store: &mut Store<M>, chunk: Chunk, entry: &Entry) {
        store.stage(self.geometry.entry_at(chunk), &entry.encode());
    }

    /// Reads a chunk's page bits; a set bit is an allocated page.
    pub fn bits<M: Memory>(&self, store: &Store<M>, chunk: Chunk) -> Bits {
        let bytes: [u8; BIT_WORDS * 8] = store.bytes(self.geometry.entry_at(chunk) + BITS_AT);
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        std::array::from_fn(|_| words.next().unwrap_or_default())
    }

    pub(crate) fn set_bits<M: Memory>(&self, store: &mut Store<M>, chunk: Chunk, bits: &Bits) {
        let bytes: Vec<u8> = bits.iter().flat_map(|word| word.to_le_bytes()).collect();
        store.stage(self.geometry.entry_at(chunk) + BITS_AT, &bytes);
    }

    /// Returns the number of pages that can be allocated now.
    pub fn free_pages(&self) -> u64 {
        self.free_pages + self.free_chunks() * self.geometry.chunk_pages()
    }

    /// Returns the number of free chunks, without those that are kept free.
    pub fn free_chunks(&self) -> u64 {
        (self.chunks.len() as u64).saturating_sub(self.reserved)
    }

    /// Returns the number of pages that can be allocated after the next commit.
    pub fn free_pages_after_commit(&self) -> u64 {
        let missing = self.reserved.saturating_sub(self.chunks.len() as u64);
        (self.free_pages() + self.quarantined()).saturating_sub(missing * self.geometry.chunk_pages())
    }

    /// Returns the number of chunks that are kept free.
    pub const fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Makes all free chunks usable.
    pub const fn give_up_reserve(&mut self) {
        self.reserved = 0;
    }

    /// Returns the number of pages that the next commit makes reusable.
    pub fn quarantined(&self) -> u64 {
        // The pages of a chunk that was emptied are quarantined with it.
        let is_counted = |page: Page| !self.emptied.contains(&self.geometry.chunk_of(page).0);
        let pages = self.quarantined_pages.iter().filter(|(page, _)| is_counted(*page));
        let pages: u64 = pages.map(|(_, count)| u64::from(*count)).sum();
        pages + self.quarantined_chunks.len() as u64 * self.geometry.chunk_pages()
    }

    /// Takes the free chunk with the least wear.
    ///
    /// # Errors
    /// Returns `NoSpace` if no chunk is free, but for those that are kept free.
    pub fn take_chunk<M: Memory>(
        &mut self,
        store: &mut Store<M>,
        usage: Use,
        owner: u64,
        index: u64,
    ) -> Result<Chunk> {
        if self.free_chunks() == 0 {
            self.missed = self.geometry.chunk_pages();
            return Err(Error::NoSpace);
        }
        let (_, chunk) = *self.chunks.first().ok_or(Error::NoSpace)?;
        self.take_this_chunk(store, chunk, usage, owner, index)?;
        Ok(chunk)
    }

    /// Frees a chunk; it is quarantined until the next commit.
    ///
    /// # Errors
    /// Returns `Damaged` if it is none of a file.
    pub fn free_chunk<M: Memory>(&mut self, store: &mut Store<M>, chunk: Chunk) -> Result<()> {
        let wrong = || Error::Damaged(format!("chunk {} is freed, but not a file's", chunk.0));
        let found = Some(chunk).filter(|chunk| self.geometry.is_for_files(*chunk)).ok_or_else(wrong)?;
        let Entry { usage: Use::Data, wear, .. } = self.entry(store, found)? else { return Err(wrong()) };
        let entry = Entry { usage: Use::Free, wear, owner: 0, index: 0, free_inodes: 0 };
        self.set_entry(store, chunk, &entry);
        self.quarantined_chunks.push((wear, chunk));
        Ok(())
    }

    /// Takes `count` consecutive pages, which are in one chunk.
    ///
    /// # Errors
    /// Returns `NoSpace` if there is no such run.
    pub fn take_pages<M: Memory>(
        &mut self,
        store: &mut Store<M>,
        count: u32,
        purpose: Purpose,
    ) -> Result<Page> {
        debug_assert!((1..=self.geometry.chunk_pages() as u32).contains(&count));
        let other = if purpose == Purpose::Data { Purpose::Metadata } else { Purpose::Data };
        let found = match self.find(count, purpose, TRIED_MAX) {
            None if self.free_chunks() == 0 => {
                self.find(count, purpose, usize::MAX).or_else(|| self.find(count, other, usize::MAX))
            }
            found => found,
        };
        let (chunk, at) = match found {
            Some(found) => found,
            None if self.free_chunks() == 0 => {
                self.missed = count.into();
                return Err(Error::NoSpace);
            }
            None => (self.divide_chunk(store, purpose)?, 0),
        };
        if purpose == Purpose::Metadata && self.fix(chunk) {
            self.steps.push(Step::Fixed(chunk));
        }
        Ok(self.take_pages_of(store, chunk, at, count))
    }

    /// Returns where `count` consecutive pages are free; looks at `max` chunks which may have no such run.
    fn find(&self, count: u32, purpose: Purpose, max: usize) -> Option<(Chunk, u32)> {
        let pages = self.geometry.chunk_pages() as u32;
        // The first chunk of the class below may have a run that is long enough; all of higher classes do.
        let floor = count.ilog2() as usize;
        let classes = &self.by_run[purpose.owner() as usize];
        let chunks = classes[floor..].iter().flat_map(|class| class.iter().take(max)).copied();
        chunks.filter_map(|chunk| Some((chunk, find_run(&self.busy[&chunk], pages, count)?))).next()
    }

    fn take_pages_of<M: Memory>(&mut self, store: &mut Store<M>, chunk: Chunk, at: u32, count: u32) -> Page {
        let mut bits = self.bits(store, chunk);
        set(&mut bits, at, count, true);
        self.set_bits(store, chunk, &bits);
        self.set_busy(chunk, at, count, true);
        let page = Page(self.geometry.first_page(chunk).0 + u64::from(at));
        self.steps.push(Step::Pages(page, count));
        page
    }

    /// Notes that a chunk has pages which stay where they are; returns whether that was not known.
    pub fn fix(&mut self, chunk: Chunk) -> bool {
        self.delist(chunk);
        let is_new = self.fixed.insert(chunk);
        self.enlist(chunk);
        is_new
    }

    /// Takes consecutive pages of a chunk.
    ///
    /// # Errors
    /// Returns `NoSpace` if it has no such run.
    pub fn take_pages_in<M: Memory>(
        &mut self,
        store: &mut Store<M>,
        chunk: Chunk,
        count: u32,
    ) -> Result<Page> {
        let at = self.find_in(chunk, count).ok_or(Error::NoSpace)?;
        Ok(self.take_pages_of(store, chunk, at, count))
    }

    /// Returns whether a chunk that is divided into pages has such a run.
    pub fn fits(&self, chunk: Chunk, count: u32) -> bool {
        self.find_in(chunk, count).is_some()
    }

    fn find_in(&self, chunk: Chunk, count: u32) -> Option<u32> {
        find_run(self.busy.get(&chunk)?, self.geometry.chunk_pages() as u32, count)
    }

    /// Divides the free chunk with the least wear into pages, even if it is one of those that are kept free.
    ///
    /// # Errors
    /// Returns `NoSpace` if no chunk is free.
    pub fn divide_chunk<M: Memory>(&mut self, store: &mut Store<M>, purpose: Purpose) -> Result<Chunk> {
        let (_, chunk) = *self.chunks.first().ok_or(Error::NoSpace)?;
        self.divide_this(store, chunk, purpose)?;
        Ok(chunk)
    }

    /// Returns the free chunks with the least and the most wear.
    pub fn free_by_wear(&self) -> Option<((u32, Chunk), (u32, Chunk))> {
        Some((*self.chunks.first()?, *self.chunks.last()?))
    }

    /// Returns whether a chunk is free and can be allocated.
    pub fn is_free<M: Memory>(&self, store: &Store<M>, chunk: Chunk) -> bool {
        self.entry(store, chunk).is_ok_and(|entry| self.chunks.contains(&(entry.wear, chunk)))
    }

    /// Returns the number of pages of a chunk that are allocated.
    pub fn allocated_pages<M: Memory>(&self, store: &Store<M>, chunk: Chunk) -> u64 {
        used(&self.bits(store, chunk))
    }

    /// Takes a free chunk, even one of those that are kept free.
    ///
    /// # Errors
    /// Returns `NoSpace` if it is not free.
    pub fn take_this_chunk<M: Memory>(
        &mut self,
        store: &mut Store<M>,
        chunk: Chunk,
        usage: Use,
        owner: u64,
        index: u64,
    ) -> Result<()> {
        let wear = self.entry(store, chunk)?.wear;
        if !self.chunks.remove(&(wear, chunk)) {
            return Err(Error::NoSpace);
        }
        self.steps.push(Step::Chunk(chunk, wear));
        let entry = Entry { usage, wear: wear.saturating_add(1), owner, index, free_inodes: 0 };
        self.set_entry(store, chunk, &entry);
        store.note_allocated(chunk);
        Ok(())
    }

    /// Divides a free chunk into pages, even one of those that are kept free.
    ///
    /// # Errors
    /// Returns `NoSpace` if it is not free.
    pub fn divide_this<M: Memory>(
        &mut self,
        store: &mut Store<M>,
        chunk: Chunk,
        purpose: Purpose,
    ) -> Result<()> {
        self.take_this_chunk(store, chunk, Use::Pages, purpose.owner(), 0)?;
        self.set_bits(store, chunk, &[0; BIT_WORDS]);
        self.add_divided(chunk, [0; BIT_WORDS]);
        self.steps.push(Step::Divided(chunk));
        Ok(())
    }

    /// Returns whether a chunk is free, even if it is one of those that are kept free.
    pub fn has_free_chunk(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Returns the number of pages of a chunk that are allocated or quarantined.
    pub fn used_pages(&self, chunk: Chunk) -> u64 {
        self.busy.get(&chunk).map_or(0, used)
    }

    /// Returns whether what the last allocation missed is free now.
    pub fn has_missed(&self) -> bool {
        let is_run = |count: u32| self.find(count, Purpose::Data, usize::MAX).is_some();
        self.free_chunks() > 0
            || self.missed < self.geometry.chunk_pages() && is_run(self.missed.max(1) as u32)
    }

    /// Notes that data has moved together; returns whether that made room for what was missed. If not, it
    /// would not the next time either, until more is free.
    pub fn note_compaction(&mut self) -> bool {
        let is_there = self.has_missed();
        self.in_vain = if is_there { None } else { Some((self.missed, self.free_pages())) };
        is_there
    }

    /// Returns chunks without metadata, those with the fewest used pages first, from which data can move
    /// together so that there is what the last allocation missed; none if that is not to be had.
    pub fn sparse_chunks(&self) -> Vec<Chunk> {
        let whole = self.geometry.chunk_pages();
        if self
            .in_vain
            .is_some_and(|(missed, free)| self.missed >= missed && self.free_pages() < free + whole)
        {
            return Vec::new();
        }
        let movable = self.busy.iter().filter(|(chunk, _)| !self.fixed.contains(chunk));
        let mut movable: Vec<_> = movable.map(|(chunk, bits)| (used(bits), *chunk)).collect();
        movable.sort_unstable();
        let mut total = 0;
        for nth in 0..movable.len().min(SOURCES_MAX) {
            total += movable[nth].0;
            let is_enough_alone = nth == 0 && whole - total >= self.missed;
            // Runs do not fill chunks to the last page.
            let targets = total.div_ceil(whole - whole / 16);
            if is_enough_alone || targets <= nth as u64 {
                return movable[..=nth].iter().map(|(_, chunk)| *chunk).collect();
            }
        }
        Vec::new()
    }

    /// Frees consecutive pages; they are quarantined until the next commit.
    ///
    /// # Errors
    /// Returns `Damaged` if they are not allocated.
    pub fn free_pages_at<M: Memory>(&mut self, store: &mut Store<M>, page: Page, count: u32) -> Result<()> {
        let wrong = || Error::Damaged(format!("page {} is freed, but not allocated", page.0));
        if !self.geometry.is_run(page, count) {
            return Err(wrong());
        }
        let (chunk, at) = self.geometry.chunk_of(page);
        let mut bits = self.bits(store, chunk);
        let is_allocated = (at..at + count as usize).all(|at| bits[at / 64] & 1 << (at % 64) != 0);
        let mut entry = self.entry(store, chunk)?;
        if entry.usage != Use::Pages || !is_allocated {
            return Err(wrong());
        }
        set(&mut bits, at as u32, count, false);
        self.set_bits(store, chunk, &bits);
        self.quarantined_pages.push((page, count));
        if bits == [0; BIT_WORDS] {
            (entry.usage, entry.owner) = (Use::Free, 0);
            self.set_entry(store, chunk, &entry);
            self.remove_divided(chunk);
            self.emptied.insert(chunk);
            self.emptied_now.push(chunk);
            self.quarantined_chunks.push((entry.wear, chunk));
        }
        Ok(())
    }

    /// Begins an operation, which [`abort`](Self::abort) can take back.
    pub fn begin(&mut self) {
        self.steps.clear();
        self.emptied_now.clear();
        self.marks = (self.quarantined_pages.len(), self.quarantined_chunks.len());
    }

    /// Takes back what the operation allocated and freed. The store must have been taken back before.
    pub fn abort<M: Memory>(&mut self, store: &Store<M>) {
        self.quarantined_pages.truncate(self.marks.0);
        self.quarantined_chunks.truncate(self.marks.1);
        for chunk in std::mem::take(&mut self.emptied_now) {
            self.emptied.remove(&chunk);
            let mut bits = self.bits(store, chunk);
            // Pages that the group freed earlier stay quarantined.
            for &(page, count) in &self.quarantined_pages {
                let (of, at) = self.geometry.chunk_of(page);
                if of == chunk {
                    set(&mut bits, at as u32, count, true);
                }
            }
            // Pages that this operation took are given back below; they are still busy.
            for step in &self.steps {
                if let Step::Pages(page, count) = *step
                    && let (of, at) = self.geometry.chunk_of(page)
                    && of == chunk
                {
                    set(&mut bits, at as u32, count, true);
                }
            }
            if self.entry(store, chunk).is_ok_and(|entry| entry.purpose() == Some(Purpose::Metadata)) {
                self.fixed.insert(chunk);
            }
            self.add_divided(chunk, bits);
        }
        for step in std::mem::take(&mut self.steps).into_iter().rev() {
            match step {
                Step::Chunk(chunk, wear) => {
                    self.chunks.insert((wear, chunk));
                }
                Step::Divided(chunk) => self.remove_divided(chunk),
                Step::Fixed(chunk) => {
                    self.delist(chunk);
                    self.fixed.remove(&chunk);
                    self.enlist(chunk);
                }
                Step::Pages(page, count) => {
                    let (chunk, at) = self.geometry.chunk_of(page);
                    self.set_busy(chunk, at as u32, count, false);
                }
            }
        }
    }

    /// Makes quarantined space reusable, after a commit.
    pub fn committed(&mut self) {
        for (page, count) in std::mem::take(&mut self.quarantined_pages) {
            let (chunk, at) = self.geometry.chunk_of(page);
            if !self.emptied.contains(&chunk) {
                self.set_busy(chunk, at as u32, count, false);
            }
        }
        self.emptied.clear();
        self.chunks.extend(self.quarantined_chunks.drain(..));
    }

    fn add_divided(&mut self, chunk: Chunk, mut bits: Bits) {
        // Only damage sets bits of pages that a chunk does not have.
        let pages = self.geometry.chunk_pages() as u32;
        set(&mut bits, pages, BIT_WORDS as u32 * 64 - pages, false);
        self.free_pages += self.geometry.chunk_pages() - used(&bits);
        self.busy.insert(chunk, bits);
        self.enlist(chunk);
    }

    fn remove_divided(&mut self, chunk: Chunk) {
        self.delist(chunk);
        self.fixed.remove(&chunk);
        if let Some(bits) = self.busy.remove(&chunk) {
            self.free_pages -= self.geometry.chunk_pages() - used(&bits);
        }
    }

    fn set_busy(&mut self, chunk: Chunk, at: u32, count: u32, busy: bool) {
        self.delist(chunk);
        if let Some(bits) = self.busy.get_mut(&chunk) {
            set(bits, at, count, busy);
        }
        let count = u64::from(count);
        self.free_pages = if busy { self.free_pages - count } else { self.free_pages + count };
        self.enlist(chunk);
    }

    fn class(&self, chunk: Chunk) -> Option<usize> {
        let longest = longest_run(self.busy.get(&chunk)?, self.geometry.chunk_pages() as u32);
        Some(longest.checked_ilog2()? as usize)
    }

    fn enlist(&mut self, chunk: Chunk) {
        if let Some(class) = self.class(chunk) {
            self.by_run[usize::from(self.fixed.contains(&chunk))][class].insert(chunk);
        }
    }

    fn delist(&mut self, chunk: Chunk) {
        if let Some(class) = self.class(chunk) {
            self.by_run[usize::from(self.fixed.contains(&chunk))][class].remove(&chunk);
        }
    }
}

#[cfg(test)]
mod tests;
