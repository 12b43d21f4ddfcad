//! Compares the space that files have with the chunk table.

use super::Report;
use crate::layout::chunk::{BIT_WORDS, Entry, Purpose, Use};
use crate::layout::{Chunk, Geometry, Ino, Page};
use crate::namespace::FileSystem;
use crate::nvm::Memory;
use rustc_hash::FxHashMap;

/// The space that files were found to have.
pub(crate) struct Claims {
    geometry: Geometry,
    /// A bit for each page of the region.
    pages: Vec<u64>,
    /// Chunks of files, with their index there.
    chunks: FxHashMap<Chunk, (Ino, u64)>,
    /// Chunks of inodes, with their index and number of free ones.
    inodes: FxHashMap<Chunk, (u64, u64)>,
    count: u64,
}

impl Claims {
    pub(super) fn new<M: Memory>(fs: &FileSystem<M>) -> Self {
        let geometry = fs.superblock().geometry;
        let pages = u64::from(geometry.chunks()) * geometry.chunk_pages();
        Self {
            geometry,
            pages: vec![0; pages.div_ceil(64) as usize],
            chunks: FxHashMap::default(),
            inodes: FxHashMap::default(),
            count: 0,
        }
    }

    /// Returns the number of pages found, those in chunks of files included.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Notes a page of a file; `false` if it does not exist or was noted before.
    pub(super) fn page(&mut self, page: Page) -> bool {
        self.count += 1;
        let Some(word) = self.pages.get_mut((page.0 / 64) as usize) else { return false };
        let bit = 1 << (page.0 % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Notes a chunk of a file; `false` if it was noted before.
    pub(super) fn chunk(&mut self, chunk: Chunk, ino: Ino, index: u64) -> bool {
        self.count += self.geometry.chunk_pages();
        self.chunks.insert(chunk, (ino, index)).is_none()
    }

    /// Notes a chunk of inodes.
    pub(super) fn inodes(&mut self, chunk: Chunk, index: u64, free: u64) {
        self.inodes.insert(chunk, (index, free));
    }

    /// Returns what the chunk table should have for a chunk that has this entry: its entry and its page bits.
    pub(crate) fn exact(&self, chunk: Chunk, entry: &Entry) -> (Entry, [u64; BIT_WORDS]) {
        let pages = self.page_words(chunk);
        (self.expected(chunk, entry, pages != [0; BIT_WORDS]), pages)
    }

    fn page_words(&self, chunk: Chunk) -> [u64; 8] {
        let first = self.geometry.first_page(chunk).0;
        let mut words = [0; 8];
        for page in 0..self.geometry.chunk_pages() {
            let (word, bit) = ((first + page) / 64, (first + page) % 64);
            words[page as usize / 64] |= (self.pages[word as usize] >> bit & 1) << (page % 64);
        }
        words
    }

    /// Compares everything noted with the chunk table.
    pub(super) fn compare<M: Memory>(&self, fs: &FileSystem<M>, report: &mut Report) {
        let known = |chunk: &Chunk| chunk.0 < self.geometry.chunks();
        for chunk in self.chunks.keys().chain(self.inodes.keys()).filter(|chunk| !known(chunk)) {
            report.add(format!("chunk {} does not exist, but is used", chunk.0));
        }
        for chunk in (0..self.geometry.chunks()).map(Chunk) {
            let entry = fs.space().entry(fs.store(), chunk);
            let Some(entry) = report.unless_ok("chunk table", entry) else { continue };
            let pages = self.page_words(chunk);
            let bits = fs.space().bits(fs.store(), chunk);
            let expected = self.expected(chunk, &entry, pages != [0; 8]);
            if entry.usage == Use::Pages && bits != pages {
                report.add(format!("chunk {}: its page bits are not those of the files", chunk.0));
            }
            if entry != expected {
                report.add(format!("chunk {}: the table says {entry:?}, but it is {expected:?}", chunk.0));
            }
        }
    }

    /// Returns what the entry of a chunk should be.
    fn expected(&self, chunk: Chunk, entry: &Entry, has_pages: bool) -> Entry {
        let free = Entry { usage: Use::Free, wear: entry.wear, owner: 0, index: 0, free_inodes: 0 };
        match (self.chunks.get(&chunk), self.inodes.get(&chunk)) {
            _ if chunk.0 < self.geometry.system_chunks() => Entry { usage: Use::System, ..free },
            (Some((ino, index)), None) if !has_pages => {
                Entry { usage: Use::Data, owner: ino.0, index: *index, ..free }
            }
            (None, Some((index, inodes))) if !has_pages => {
                Entry { usage: Use::Inodes, owner: *index, free_inodes: *inodes as u32, ..free }
            }
            (None, None) if has_pages => {
                Entry { usage: Use::Pages, owner: entry.purpose().map_or(0, Purpose::owner), ..free }
            }
            _ => free,
        }
    }
}
