//! A model of a file system and its page cache, as far as they determine the I/O that reaches the disk.
//!
//! It follows ext2: block groups, each with a bitmap, inodes and data; a file's blocks are allocated as close
//! to one another as possible. Blocks that were read or written stay in memory; the least recently used leave
//! first. A write changes memory only. Dirty blocks are written back when they are old or many, or when they
//! are synced: file by file, the one that became dirty first comes first; a file's blocks and the file
//! system's metadata blocks are each in address order, as in Linux at the time of the papers (dirty blocks
//! directly behind them are included, as an elevator does). With a journal, as in ext3, a sync writes the
//! dirty metadata blocks to the journal instead, followed by the commit record once they are there. Data that
//! is removed before it was written back is never written.
//!
//! Requests for bitmaps, inodes, directories, indirect blocks and the journal are marked as metadata.
//! Indirect blocks exist only if the configuration asks for them: files are small in most loads.

mod dirty;
mod pages;

use dirty::DirtyBlocks;
use pages::Pages;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use weir_model::{BLOCK, Bytes, ExtentIndex, ExtentSize, Nanos, Op};

/// An I/O request to the disk, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// [`Op::Read`], [`Op::Write`] or [`Op::Trim`].
    pub op: Op,
    /// The first block.
    pub first: u64,
    /// Number of blocks.
    pub count: u64,
    /// Whether all of them are metadata of the file system.
    pub metadata: bool,
}

/// Identifier of a file, valid while the file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(usize);

/// Blocks per group.
const GROUP: u64 = 8192;
/// Inode blocks per group, after the bitmap.
const INODE_BLOCKS: u64 = 64;
/// Inodes per block.
const INODES: u64 = 32;
/// Directory entries per block.
const ENTRIES: u64 = 128;
/// Blocks of a file that its inode refers to directly.
const DIRECT: u64 = 12;
/// Blocks that an indirect block refers to.
const POINTERS: u64 = 1024;
/// Longest run written back or read ahead, in blocks.
const RUN_MAX: u64 = 32;

/// Number of blocks of a file written back before the next file has its turn.
const BLOCKS_PER_TURN: usize = 1024;

/// Number of least recently used but dirty blocks that are kept in memory before one is written back to free
/// its place.
const SPARED_DIRTY_BLOCKS: usize = 64;

/// Parameters of a file system and its memory.
#[derive(Clone, Copy, Debug)]
pub struct FileSystemConfig {
    /// Size of the file system.
    pub size: Bytes,
    /// Memory for blocks.
    pub memory: Bytes,
    /// Share of the memory that may be dirty before writers must write back themselves.
    pub dirty: f64,
    /// Share of the memory that may be dirty before background write-back begins.
    pub background: f64,
    /// Age at which dirty blocks are written back.
    pub age: Nanos,
    /// Size of the journal; zero disables it.
    pub journal: Bytes,
    /// Whether freed blocks are trimmed.
    pub trim: bool,
    /// Whether files have indirect blocks.
    pub indirect: bool,
}

#[derive(Clone, Debug, Default)]
struct File {
    exists: bool,
    is_directory: bool,
    /// The block that contains its inode, and the one with its directory entry.
    inode: u64,
    entry: u64,
    group: u64,
    blocks: Vec<u64>,
    /// Its indirect blocks, in the order of the blocks that they refer to.
    indirect: Vec<u64>,
    /// End of the last read: a read that continues there reads ahead.
    last_read_end: u64,
}

/// The model; see the module documentation.
#[derive(Debug)]
pub struct FileSystem {
    config: FileSystemConfig,
    groups: u64,
    /// Allocated blocks, one bit each.
    allocated: Vec<u64>,
    files: Vec<File>,
    free: Vec<usize>,
    memory: Pages,
    dirty: DirtyBlocks,
    /// Owner of each block: a file, or the file system itself.
    owners: Vec<Option<u32>>,
    /// Blocks of the current file to write back, in address order.
    turn: VecDeque<u64>,
    /// Next position in the journal, and the metadata blocks changed since the last record.
    head: u64,
    unlogged: BTreeSet<u64>,
    now: Nanos,
}

impl FileSystem {
    /// Creates an empty file system.
    pub fn new(shape: FileSystemConfig) -> Self {
        let groups = (shape.size.0 / BLOCK).div_ceil(GROUP).max(1);
        let blocks = (groups * GROUP + shape.journal.0 / BLOCK).next_multiple_of(64);
        let mut files = Self {
            config: shape,
            groups,
            allocated: vec![0; (blocks / 64) as usize],
            files: Vec::new(),
            free: Vec::new(),
            memory: Pages::new((shape.memory.0 / BLOCK).max(64) as usize, blocks),
            dirty: DirtyBlocks::new(blocks),
            owners: vec![None; blocks as usize],
            turn: VecDeque::new(),
            head: 0,
            unlogged: BTreeSet::new(),
            now: Nanos(0),
        };
        for group in 0..groups {
            (0..=INODE_BLOCKS).for_each(|block| files.allocate(group * GROUP + block));
        }
        let journal = files.journal();
        journal.for_each(|block| files.allocate(block));
        files
    }

    /// Returns the size of the volume.
    pub fn size(&self) -> Bytes {
        Bytes(self.journal().end * BLOCK)
    }

    /// Returns the time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Sets the time, which never goes backwards.
    pub fn set_time(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// Returns the extents that contain data, as runs in ascending order.
    pub fn extents(&self, extent: ExtentSize) -> Vec<Range<ExtentIndex>> {
        let blocks = u64::from(extent.blocks());
        let mut runs: Vec<Range<ExtentIndex>> = Vec::new();
        for index in 0..extent.count(self.size()) {
            if (index * blocks..(index + 1) * blocks).any(|block| self.is_allocated(block)) {
                match runs.last_mut() {
                    Some(run) if run.end.0 == index => run.end.0 += 1,
                    _ => runs.push(ExtentIndex(index)..ExtentIndex(index + 1)),
                }
            }
        }
        runs
    }

    /// Marks everything as clean: the disk has the same contents as memory.
    pub fn mark_all_clean(&mut self) {
        self.dirty.clear();
        self.turn.clear();
        self.unlogged.clear();
    }

    /// Drops all clean blocks from memory.
    pub fn drop_clean_blocks(&mut self) {
        let clean: Vec<u64> = self.memory.iter().collect();
        for block in clean.iter().filter(|block| !self.dirty.contains(**block)) {
            self.memory.remove(*block);
        }
    }

    /// Creates an empty file, in a directory if one is given; a directory is itself a file.
    pub fn create(&mut self, directory: Option<FileId>, requests: &mut VecDeque<BlockRequest>) -> FileId {
        let id = self.free.pop().unwrap_or(self.files.len());
        if id == self.files.len() {
            self.files.push(File::default());
        }
        let spread = id as u64 * 7 % self.groups;
        let group = directory.map_or(spread, |of| self.files[of.0].group);
        let inode = group * GROUP + 1 + id as u64 / INODES % INODE_BLOCKS;
        let entry = match directory {
            Some(of) => self.entry(of, id as u64, requests),
            None => inode,
        };
        let is_directory = directory.is_none();
        self.files[id] = File { exists: true, is_directory, inode, entry, group, ..File::default() };
        self.mark_metadata_dirty(inode, requests);
        self.mark_metadata_dirty(entry, requests);
        FileId(id)
    }

    /// Creates a file of this size whose contents are on the disk and not in memory.
    pub fn create_on_disk(&mut self, size: Bytes) -> FileId {
        let mut requests = VecDeque::new();
        let file = self.create(None, &mut requests);
        self.files[file.0].is_directory = false;
        for number in 0..size.0.div_ceil(BLOCK) {
            let goal = self.files[file.0].blocks.last().map_or(0, |last| last + 1);
            let Some(block) = self.find(goal) else { break };
            self.allocate(block);
            self.owners[block as usize] = Some(file.0 as u32);
            self.files[file.0].blocks.push(block);
            if self.config.indirect && number >= DIRECT && (number - DIRECT).is_multiple_of(POINTERS) {
                let Some(block) = self.find(block + 1) else { break };
                self.allocate(block);
                self.files[file.0].indirect.push(block);
            }
        }
        self.mark_all_clean();
        file
    }

    /// Returns the block of a directory that contains entry `number`.
    fn entry(&mut self, directory: FileId, number: u64, requests: &mut VecDeque<BlockRequest>) -> u64 {
        self.files[directory.0].is_directory = true;
        let has = self.files[directory.0].blocks.len() as u64;
        let wants = (number / ENTRIES).min(has);
        if wants == has {
            self.grow(directory, has + 1, requests);
        }
        self.files[directory.0].blocks.get(wants as usize).copied().unwrap_or(0)
    }

    /// Returns a file's length in whole blocks.
    pub fn len(&self, file: FileId) -> Bytes {
        Bytes(self.files[file.0].blocks.len() as u64 * BLOCK)
    }

    /// Removes a file.
    pub fn remove(&mut self, file: FileId, requests: &mut VecDeque<BlockRequest>) {
        let File { exists, inode, entry, group, mut blocks, indirect, .. } =
            std::mem::take(&mut self.files[file.0]);
        if !exists {
            return;
        }
        blocks.extend(indirect);
        if self.config.trim {
            blocks.sort_unstable();
            let trims = runs(blocks.iter().copied(), u64::MAX).into_iter();
            requests.extend(trims.map(|run| self.request(Op::Trim, run)));
        }
        for block in &blocks {
            self.allocated[(block / 64) as usize] &= !(1 << (block % 64));
            self.owners[*block as usize] = None;
            self.memory.remove(*block);
            self.dirty.remove(*block);
        }
        if !blocks.is_empty() {
            self.mark_metadata_dirty(group * GROUP, requests);
        }
        self.mark_metadata_dirty(inode, requests);
        self.mark_metadata_dirty(entry, requests);
        self.free.push(file.0);
    }

    /// Reads a file's inode.
    pub fn read_inode(&mut self, file: FileId, requests: &mut VecDeque<BlockRequest>) {
        let inode = self.files[file.0].inode;
        self.fetch(inode..inode + 1, requests);
    }

    /// Changes a file's inode.
    pub fn change_inode(&mut self, file: FileId, requests: &mut VecDeque<BlockRequest>) {
        let inode = self.files[file.0].inode;
        self.mark_metadata_dirty(inode, requests);
    }

    /// Reads a range of a file, up to its end; blocks that are not in memory are read from the disk.
    pub fn read(&mut self, file: FileId, bytes: Range<u64>, requests: &mut VecDeque<BlockRequest>) {
        let File { blocks, last_read_end: read_to, .. } = &mut self.files[file.0];
        let has = blocks.len() as u64;
        let range = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK).min(has);
        // A read that continues the last one reads ahead.
        let ahead =
            if range.start > 0 && *read_to == range.start { range.end.next_multiple_of(RUN_MAX) } else { 0 };
        *read_to = range.end;
        let end = range.end.max(ahead.min(has));
        let wanted: Vec<u64> = blocks.get(range.start as usize..end as usize).unwrap_or_default().to_vec();
        for indirect in self.indirect_blocks(file, range.start..end) {
            self.fetch(indirect..indirect + 1, requests);
        }
        for run in runs(wanted.into_iter(), RUN_MAX) {
            self.fetch(run, requests);
        }
    }

    /// Writes a range of a file, extending it if needed.
    pub fn write(&mut self, file: FileId, bytes: Range<u64>, requests: &mut VecDeque<BlockRequest>) {
        let had = self.files[file.0].blocks.len() as u64;
        let range = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        self.grow(file, range.end, requests);
        for number in range.clone() {
            let Some(&block) = self.files[file.0].blocks.get(number as usize) else { break };
            let part = number * BLOCK < bytes.start || (number + 1) * BLOCK > bytes.end;
            if part && number < had {
                self.fetch(block..block + 1, requests);
            }
            self.mark_dirty(block, requests);
        }
        let inode = self.files[file.0].inode;
        self.mark_metadata_dirty(inode, requests);
        if self.dirty.len() > self.share_of_memory(self.config.dirty) {
            // A writer above the limit must write back itself.
            for _ in 0..8 {
                requests.extend(self.sweep());
            }
        }
    }

    /// Syncs a file.
    pub fn sync(&mut self, file: FileId, requests: &mut VecDeque<BlockRequest>) {
        let changed: Vec<u64> =
            self.files[file.0].blocks.iter().filter(|block| self.dirty.contains(**block)).copied().collect();
        self.write_out(changed, requests);
        if self.journal().is_empty() {
            let inode = self.files[file.0].inode;
            self.write_out(if self.dirty.contains(inode) { vec![inode] } else { Vec::new() }, requests);
        } else {
            self.log(requests);
        }
    }

    fn write_out(&mut self, mut blocks: Vec<u64>, requests: &mut VecDeque<BlockRequest>) {
        blocks.sort_unstable();
        for run in runs(blocks.into_iter(), RUN_MAX) {
            for block in run.clone() {
                self.dirty.remove(block);
            }
            let request = self.request(Op::Write, run);
            requests.push_back(request);
        }
    }

    /// Returns a request for these blocks.
    fn request(&self, op: Op, blocks: Range<u64>) -> BlockRequest {
        let is_metadata = |block: u64| match self.owner(block) {
            Some(file) => self.files.get(file as usize).is_some_and(|file| file.is_directory),
            None => true,
        };
        let metadata = op != Op::Trim && blocks.clone().all(is_metadata);
        BlockRequest { op, first: blocks.start, count: blocks.end - blocks.start, metadata }
    }

    /// Writes the changed metadata blocks to the journal.
    fn log(&mut self, requests: &mut VecDeque<BlockRequest>) {
        let journal = self.journal();
        let len = journal.end - journal.start;
        let descriptor_and_blocks = std::mem::take(&mut self.unlogged).len() as u64 + 1;
        for mut left in [descriptor_and_blocks.min(len), 1] {
            while left > 0 {
                let count = left.min(len - self.head);
                let first = journal.start + self.head;
                requests.push_back(self.request(Op::Write, first..first + count));
                self.head = (self.head + count) % len;
                left -= count;
            }
        }
    }

    /// Returns the next write-back, if any block is old enough or too many are dirty.
    pub fn write_back(&mut self) -> Option<BlockRequest> {
        let old = self.dirty.oldest().is_some_and(|(since, _)| since + self.config.age <= self.now);
        (old || self.dirty.len() > self.share_of_memory(self.config.background))
            .then(|| self.sweep())
            .flatten()
    }

    /// Returns the next run of dirty blocks: of the current file, or of the one that became dirty first.
    fn sweep(&mut self) -> Option<BlockRequest> {
        loop {
            while let Some(first) = self.turn.pop_front() {
                let mut end = first;
                while end < first + RUN_MAX && self.dirty.remove(end) {
                    end += 1;
                }
                if end > first {
                    return Some(self.request(Op::Write, first..end));
                }
            }
            let (_, block) = self.dirty.oldest()?;
            self.turn = self.dirty_blocks_beside(block);
        }
    }

    /// Returns the dirty blocks of a block's file, or the dirty metadata blocks, in address order.
    fn dirty_blocks_beside(&self, block: u64) -> VecDeque<u64> {
        match self.owner(block) {
            Some(file) => {
                let blocks = self.files[file as usize].blocks.iter().copied();
                let mut blocks: Vec<u64> = blocks.filter(|block| self.dirty.contains(*block)).collect();
                blocks.sort_unstable();
                blocks.into_iter().take(BLOCKS_PER_TURN).collect()
            }
            None => self.dirty.unowned().take(BLOCKS_PER_TURN).collect(),
        }
    }

    /// Extends a file to at least this many blocks.
    fn grow(&mut self, file: FileId, blocks: u64, requests: &mut VecDeque<BlockRequest>) {
        let group = self.files[file.0].group;
        while (self.files[file.0].blocks.len() as u64) < blocks {
            let goal = self.files[file.0].blocks.last().map_or(group * GROUP, |last| last + 1);
            let Some(block) = self.find(goal) else { return };
            self.allocate(block);
            self.files[file.0].blocks.push(block);
            self.owners[block as usize] = Some(file.0 as u32);
            self.mark_metadata_dirty(block / GROUP * GROUP, requests);
            self.mark_dirty(block, requests);
            if self.config.indirect {
                self.refer(file, requests);
            }
        }
    }

    /// Changes the indirect block that refers to a file's last block, and allocates it if it does not exist.
    fn refer(&mut self, file: FileId, requests: &mut VecDeque<BlockRequest>) {
        let File { blocks, indirect, .. } = &self.files[file.0];
        let last = blocks.len() as u64 - 1;
        let Some(number) = last.checked_sub(DIRECT).map(|after| after / POINTERS) else { return };
        if indirect.len() as u64 == number {
            let Some(block) = blocks.last().and_then(|last| self.find(last + 1)) else { return };
            self.allocate(block);
            self.files[file.0].indirect.push(block);
        }
        if let Some(&block) = self.files[file.0].indirect.get(number as usize) {
            self.mark_metadata_dirty(block, requests);
        }
    }

    /// Returns the indirect blocks that refer to these blocks of a file. Blocks that refer to indirect blocks
    /// are few and stay in memory; they are not modelled.
    fn indirect_blocks(&self, file: FileId, numbers: Range<u64>) -> Vec<u64> {
        let indirect = &self.files[file.0].indirect;
        if indirect.is_empty() || numbers.end <= DIRECT {
            return Vec::new();
        }
        let first = numbers.start.saturating_sub(DIRECT) / POINTERS;
        let last = (numbers.end - 1 - DIRECT) / POINTERS;
        (first..=last).filter_map(|number| indirect.get(number as usize).copied()).collect()
    }

    /// Finds the first free block from `goal` on, wrapping around at the end.
    fn find(&self, goal: u64) -> Option<u64> {
        let words = self.allocated.len() as u64;
        let goal = goal % (words * 64);
        let (at, bit) = (goal / 64, goal % 64);
        for step in 0..=words {
            let word = (at + step) % words;
            let mut free = !self.allocated[word as usize];
            if step == 0 {
                free &= u64::MAX << bit;
            }
            if free != 0 {
                return Some(word * 64 + u64::from(free.trailing_zeros()));
            }
        }
        None
    }

    /// Marks a block dirty in memory; its age counts from the first change.
    fn mark_dirty(&mut self, block: u64, requests: &mut VecDeque<BlockRequest>) {
        self.cache_block(block, requests);
        self.dirty.insert(block, self.now, self.owner(block).is_some());
    }

    fn owner(&self, block: u64) -> Option<u32> {
        self.owners.get(block as usize).copied().flatten()
    }

    /// Marks a metadata block dirty.
    fn mark_metadata_dirty(&mut self, block: u64, requests: &mut VecDeque<BlockRequest>) {
        self.mark_dirty(block, requests);
        if !self.journal().is_empty() {
            self.unlogged.insert(block);
        }
    }

    /// Reads adjacent blocks, as far as they are not in memory.
    fn fetch(&mut self, range: Range<u64>, requests: &mut VecDeque<BlockRequest>) {
        let absent = range.clone().filter(|block| !self.memory.contains(*block));
        for run in runs(absent.collect::<Vec<_>>().into_iter(), RUN_MAX) {
            let request = self.request(Op::Read, run);
            requests.push_back(request);
        }
        range.for_each(|block| self.cache_block(block, requests));
    }

    fn cache_block(&mut self, block: u64, requests: &mut VecDeque<BlockRequest>) {
        if self.memory.touch(block) {
            return;
        }
        let mut gone = self.memory.insert(block);
        // Clean blocks leave first; after enough attempts a dirty one has to.
        for _ in 0..SPARED_DIRTY_BLOCKS {
            let Some(changed) = gone.filter(|gone| self.dirty.contains(*gone)) else { return };
            gone = self.memory.insert(changed);
        }
        if let Some(gone) = gone.filter(|gone| self.dirty.remove(*gone)) {
            let request = self.request(Op::Write, gone..gone + 1);
            requests.push_back(request);
        }
    }

    fn share_of_memory(&self, share: f64) -> usize {
        (share * self.memory.capacity() as f64) as usize
    }

    /// Returns the blocks of the journal, after the last group.
    fn journal(&self) -> Range<u64> {
        let first = self.groups * GROUP;
        first..first + self.config.journal.0 / BLOCK
    }

    fn allocate(&mut self, block: u64) {
        self.allocated[(block / 64) as usize] |= 1 << (block % 64);
    }

    fn is_allocated(&self, block: u64) -> bool {
        self.allocated[(block / 64) as usize] & 1 << (block % 64) != 0
    }
}

/// Groups ascending numbers into ranges of at most `most`.
fn runs(numbers: impl Iterator<Item = u64>, most: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number && run.end - run.start < most => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
