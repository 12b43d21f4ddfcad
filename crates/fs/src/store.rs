//! Atomic groups of changes to a region: a redo log over persistent memory.
//!
//! Changes of metadata are *staged*, that is kept by cache line in ordinary memory, until [`Store::commit`]
//! makes all of them durable together. Data is stored *directly*, and only in places that no durable
//! metadata refers to, or whose contents may be either old or new after a power loss. A commit
//!
//! 1. fences: data stored directly, and the lines that the previous commit wrote in place, are durable;
//! 2. writes the staged lines to the log, with a checksum over all of it, flushes and fences: from here on
//!    the group survives;
//! 3. writes the lines in place and flushes them; the next commit's first fence completes that, before the
//!    log is overwritten.
//!
//! Opening a region applies the log if its checksum is right. A log that is torn belongs to a group that
//! was not committed; the group before it is then durable in place, by step 1.

use crate::error::{Error, Result};
use crate::layout::superblock::checksum;
use crate::layout::{Chunk, Geometry};
use crate::nvm::{LINE_BYTES, Memory};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// Chunks whose wear is noted at a time.
const WORN_MAX: usize = 32;
const MAGIC: [u8; 8] = *b"weirlog\0";
const LINE: usize = LINE_BYTES as usize;

type Line = [u8; LINE];

/// A region with staged changes.
#[derive(Debug)]
pub struct Store<M> {
    memory: M,
    log_at: u64,
    log_bytes: u64,
    sequence: u64,
    staged: FxHashMap<u64, Line>,
    /// What the operation in progress replaced in `staged`.
    undo: Vec<(u64, Option<Line>)>,
    /// Whether a commit has something to do although nothing is staged.
    has_unfenced: bool,
    failed: bool,
    /// Commits so far.
    commits: u64,
    /// Bytes of a chunk.
    chunk_bytes: u64,
    /// Bytes of data that were stored in each chunk since its wear was counted last; negative as long as its
    /// allocation has counted more.
    written: FxHashMap<Chunk, i64>,
    /// Chunks in which as much data was stored as they have bytes, once for each time.
    worn: Vec<Chunk>,
    /// How often the wear of a chunk rose.
    wear_events: u64,
}

impl<M: Memory> Store<M> {
    /// Opens a region whose log is at `log_at`. With `read_only` nothing is stored: the log's lines stay
    /// staged.
    ///
    /// # Errors
    /// Returns an error if the region cannot be flushed, or if the log is damaged although its checksum is
    /// right.
    pub fn open(memory: M, log_at: u64, log_bytes: u64, read_only: bool) -> Result<Self> {
        let mut store = Self {
            memory,
            log_at,
            log_bytes,
            sequence: 0,
            staged: FxHashMap::default(),
            undo: Vec::new(),
            has_unfenced: false,
            failed: false,
            commits: 0,
            chunk_bytes: Geometry::CHUNK_BYTES,
            written: FxHashMap::default(),
            worn: Vec::new(),
            wear_events: 0,
        };
        if let Some((sequence, lines)) = read_log(&store.memory, log_at, log_bytes)? {
            store.sequence = sequence;
            store.staged = lines;
            if !read_only {
                store.write_in_place();
                store.memory.fence()?;
                store.has_unfenced = false;
            }
        }
        Ok(store)
    }

    /// Returns the size of the region in bytes.
    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Returns the memory.
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the memory, for tests to control; what is staged does not show there.
    pub const fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Returns the memory, without what is staged.
    pub fn into_memory(self) -> M {
        self.memory
    }

    /// Returns the number of commits since the region was opened.
    pub const fn commits(&self) -> u64 {
        self.commits
    }

    /// Returns whether a flush has failed: nothing can be committed any more.
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Makes every later commit fail, after a failure of what has to be durable before.
    pub(crate) const fn fail(&mut self) {
        self.failed = true;
    }

    /// Returns whether a commit has something to do.
    pub fn has_changes(&self) -> bool {
        !self.staged.is_empty() || self.has_unfenced
    }

    /// Returns the largest number of lines that one group can have.
    pub const fn group_lines_max(&self) -> usize {
        group_lines_max(self.log_bytes)
    }

    /// Returns the number of staged lines.
    pub fn staged_lines(&self) -> usize {
        self.staged.len()
    }

    /// Copies metadata at `at` to `out`, staged changes included.
    pub fn load(&self, at: u64, out: &mut [u8]) {
        self.memory.load(at, out);
        if self.staged.is_empty() || out.is_empty() {
            return;
        }
        let end = at + out.len() as u64;
        for line in at / LINE_BYTES..end.div_ceil(LINE_BYTES) {
            let Some(staged) = self.staged.get(&line) else { continue };
            let start = line * LINE_BYTES;
            let (from, to) = (start.max(at), (start + LINE_BYTES).min(end));
            out[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&staged[(from - start) as usize..(to - start) as usize]);
        }
    }

    /// Returns `N` bytes of metadata at `at`.
    pub fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.load(at, &mut bytes);
        bytes
    }

    /// Returns the number at `at` in metadata.
    pub fn load_u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    /// Returns the number at `at` in metadata.
    pub fn load_u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    /// Stages a change of metadata.
    pub fn stage(&mut self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        for line in at / LINE_BYTES..end.div_ceil(LINE_BYTES) {
            let start = line * LINE_BYTES;
            let (from, to) = (start.max(at), (start + LINE_BYTES).min(end));
            let new = &bytes[(from - at) as usize..(to - at) as usize];
            let place = (from - start) as usize..(to - start) as usize;
            match self.staged.entry(line) {
                Entry::Occupied(mut staged) => {
                    if staged.get()[place.clone()] != *new {
                        self.undo.push((line, Some(*staged.get())));
                        staged.get_mut()[place].copy_from_slice(new);
                    }
                }
                Entry::Vacant(vacant) => {
                    let mut contents = [0; LINE];
                    self.memory.load(start, &mut contents);
                    if contents[place.clone()] != *new {
                        contents[place].copy_from_slice(new);
                        vacant.insert(contents);
                        self.undo.push((line, None));
                    }
                }
            }
        }
    }

    /// Rejects data where metadata is staged: the commit would write over it.
    fn reject_staged(&self, at: u64, len: u64) -> Result<()> {
        let mut lines = at / LINE_BYTES..(at + len).div_ceil(LINE_BYTES);
        let is_staged = match self.staged.len() as u64 > lines.end - lines.start {
            true => lines.any(|line| self.staged.contains_key(&line)),
            false => self.staged.keys().any(|line| lines.contains(line)),
        };
        match is_staged {
            true => Err(Error::Damaged(format!("byte {at} belongs to a file and to metadata"))),
            false => Ok(()),
        }
    }

    /// Copies data at `at` to `out`, past what is staged.
    pub fn load_data(&self, at: u64, out: &mut [u8]) {
        self.memory.load(at, out);
    }

    /// Stores data directly. The next commit makes it durable before its own changes.
    ///
    /// # Errors
    /// `Damaged`, with nothing stored, if metadata is staged there.
    pub fn store_data(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.reject_staged(at, bytes.len() as u64)?;
        self.memory.store(at, bytes);
        self.memory.flush(at, bytes.len() as u64);
        self.note_written(at, bytes.len() as u64);
        self.has_unfenced = true;
        Ok(())
    }

    /// Zeroes data directly, as [`store_data`](Self::store_data) does.
    ///
    /// # Errors
    /// As for [`store_data`](Self::store_data).
    pub fn zero_data(&mut self, at: u64, len: u64) -> Result<()> {
        self.reject_staged(at, len)?;
        self.memory.zero(at, len);
        self.memory.flush(at, len);
        self.note_written(at, len);
        self.has_unfenced = true;
        Ok(())
    }

    /// Sets the size of the chunks whose wear is counted.
    pub const fn set_chunk_bytes(&mut self, bytes: u64) {
        self.chunk_bytes = bytes;
    }

    fn note_written(&mut self, mut at: u64, len: u64) {
        let end = at + len;
        while at < end {
            let index = at / self.chunk_bytes;
            let stop = end.min((index + 1) * self.chunk_bytes);
            let chunk = Chunk(index as u32);
            let written = self.written.entry(chunk).or_default();
            *written += (stop - at) as i64;
            if *written >= self.chunk_bytes as i64 {
                *written -= self.chunk_bytes as i64;
                self.worn.push(chunk);
                self.wear_events += 1;
            }
            at = stop;
        }
    }

    /// Notes that a chunk was allocated, which counts as wear like a chunk of data.
    pub fn note_allocated(&mut self, chunk: Chunk) {
        self.written.insert(chunk, -(self.chunk_bytes as i64));
        self.worn.retain(|worn| *worn != chunk);
        self.wear_events += 1;
    }

    /// Returns how often the wear of a chunk rose since the region was opened.
    pub const fn wear_events(&self) -> u64 {
        self.wear_events
    }

    /// Takes chunks in which as much data was stored as they have bytes, once for each time, and at most as
    /// many as one group can note.
    pub fn take_worn(&mut self) -> Vec<Chunk> {
        let count = self.worn.len().min(WORN_MAX);
        self.worn.drain(..count).collect()
    }

    /// Begins an operation, which [`abort`](Self::abort) can take back.
    pub fn begin(&mut self) {
        self.undo.clear();
    }

    /// Takes back what has been staged since [`begin`](Self::begin).
    pub fn abort(&mut self) {
        for (line, before) in self.undo.drain(..).rev() {
            match before {
                Some(contents) => self.staged.insert(line, contents),
                None => self.staged.remove(&line),
            };
        }
    }

    /// Makes everything staged durable, all or nothing, and all data stored before.
    ///
    /// # Errors
    /// Returns the error of a flush; whether the group survives is then unknown, and every later commit
    /// fails.
    ///
    /// # Panics
    /// Panics if more lines are staged than [`group_lines_max`](Self::group_lines_max).
    pub fn commit(&mut self) -> Result<()> {
        if self.failed {
            return Err(Error::Failed);
        }
        if self.staged.is_empty() && !self.has_unfenced {
            return Ok(());
        }
        self.try_commit().inspect_err(|_| self.failed = true)
    }

    fn try_commit(&mut self) -> Result<()> {
        if self.has_unfenced {
            self.memory.fence()?;
            self.has_unfenced = false;
        }
        if self.staged.is_empty() {
            return Ok(());
        }
        let image = self.log_image();
        self.memory.store(self.log_at, &image);
        self.memory.flush(self.log_at, image.len() as u64);
        self.memory.fence()?;
        self.commits += 1;
        self.write_in_place();
        Ok(())
    }

    /// Returns the log of the staged lines: magic, checksum of what follows, sequence, number of lines,
    /// padding to a line; then their numbers, padded to a line; then their contents.
    fn log_image(&mut self) -> Vec<u8> {
        assert!(self.staged.len() <= self.group_lines_max(), "{} lines are too many", self.staged.len());
        self.sequence += 1;
        let mut lines: Vec<_> = self.staged.keys().copied().collect();
        lines.sort_unstable();
        let mut image = Vec::with_capacity(LINE + lines.len() * (LINE + 8) + LINE);
        image.extend(MAGIC);
        image.extend([0; 8]);
        image.extend(self.sequence.to_le_bytes());
        image.extend((lines.len() as u64).to_le_bytes());
        image.resize(LINE, 0);
        lines.iter().for_each(|line| image.extend(line.to_le_bytes()));
        image.resize(image.len().next_multiple_of(LINE), 0);
        lines.iter().for_each(|line| image.extend(self.staged[line]));
        let sum = checksum(&image[16..]);
        image[8..16].copy_from_slice(&sum.to_le_bytes());
        image
    }

    fn write_in_place(&mut self) {
        let mut lines: Vec<_> = self.staged.drain().collect();
        lines.sort_unstable_by_key(|(line, _)| *line);
        for (line, contents) in lines {
            self.memory.store(line * LINE_BYTES, &contents);
            self.memory.flush(line * LINE_BYTES, LINE_BYTES);
        }
        self.undo.clear();
        self.has_unfenced = true;
    }
}

const fn group_lines_max(log_bytes: u64) -> usize {
    ((log_bytes - LINE_BYTES - LINE_BYTES) / (LINE_BYTES + 8)) as usize
}

/// Reads the log; `None` if it is torn or was never written.
///
/// # Errors
/// Returns `Damaged` if it is complete, but changes what no group does.
pub(crate) fn read_log<M: Memory>(
    memory: &M,
    log_at: u64,
    log_bytes: u64,
) -> Result<Option<(u64, FxHashMap<u64, Line>)>> {
    let number = |at| {
        let mut bytes = [0; 8];
        memory.load(log_at + at, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    let (sum, sequence, count) = (number(8), number(16), number(24));
    if number(0).to_le_bytes() != MAGIC || count > group_lines_max(log_bytes) as u64 {
        return Ok(None);
    }
    let count = count as usize;
    let numbers_end = (LINE + count * 8).next_multiple_of(LINE);
    let mut image = vec![0; numbers_end + count * LINE];
    memory.load(log_at, &mut image);
    if checksum(&image[16..]) != sum {
        return Ok(None);
    }
    let (numbers, contents) = image.split_at(numbers_end);
    let numbers = numbers[LINE..].as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let lines: FxHashMap<_, _> = numbers.zip(contents.as_chunks::<LINE>().0.iter().copied()).collect();
    let log = log_at / LINE_BYTES..(log_at + log_bytes) / LINE_BYTES;
    if let Some(line) = lines.keys().find(|line| **line >= memory.size() / LINE_BYTES || log.contains(line)) {
        return Err(Error::Damaged(format!("the log has line {line}, which no operation changes")));
    }
    Ok(Some((sequence, lines)))
}

/// Makes the log one that was never written.
pub(crate) fn discard_log<M: Memory>(memory: &mut M, log_at: u64) -> Result<()> {
    memory.zero(log_at, LINE_BYTES);
    memory.flush(log_at, LINE_BYTES);
    Ok(memory.fence()?)
}

#[cfg(test)]
mod tests;
