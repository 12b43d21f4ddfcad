//! Contents of files: reads, writes and sizes.
//!
//! A file of up to half a chunk is one run of pages, which moves when it has to grow; a larger one has
//! chunks. Holes are chunks that the tree does not list, and whatever lies between the mapped bytes and the
//! size.

use super::FileSystem;
use super::tree::Mapped;
use crate::error::{Error, Result};
use crate::layout::chunk::Purpose;
use crate::layout::inode::{Form, Inode, Kind};
use crate::layout::{Ino, PAGE_BYTES, Page, Time};
use crate::nvm::Memory;
use std::io::ErrorKind;
use std::ops::Range;

/// Bytes that one operation of a write stores at most.
const STEP_BYTES_MAX: u64 = 1 << 20;
/// Bytes that a copy from one place of the region to another holds at a time.
const COPY_BYTES: u64 = 64 << 10;

/// Consecutive bytes of a file in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Address of the first byte; `None` reads as zeros.
    pub(super) at: Option<u64>,
    /// Number of bytes, at least 1.
    pub(super) len: u64,
}

/// How many pages a run that is too short gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wished {
    /// As many as it needs.
    Needed,
    /// The next power of two, if there is space.
    Ahead,
}

impl<M: Memory> FileSystem<M> {
    /// Returns where the bytes from `offset` on are, as far as they are in one piece.
    pub(super) fn segment(&self, inode: &Inode, offset: u64) -> Segment {
        let chunk_bytes = self.geometry().chunk_bytes;
        match inode.form {
            // Whatever may meet a container looks for it first.
            Form::Empty | Form::Container(_) => Segment { at: None, len: u64::MAX - offset },
            Form::Run { first, pages } => {
                let mapped = u64::from(pages) * PAGE_BYTES;
                match offset < mapped {
                    true => Segment { at: Some(first.address() + offset), len: mapped - offset },
                    false => Segment { at: None, len: u64::MAX - offset },
                }
            }
            Form::Tree { .. } => {
                let within = offset % chunk_bytes;
                let at = match self.chunk_at(inode, offset / chunk_bytes) {
                    Some(Mapped { chunk, is_unwritten: false }) => {
                        Some(self.geometry().chunk_at(chunk) + within)
                    }
                    _ => None,
                };
                Segment { at, len: chunk_bytes - within }
            }
        }
    }

    /// Reads bytes of a file to `out`; returns how many, less than asked for at the end of the file.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` for special files, `NotFound`.
    pub fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<usize> {
        let inode = self.readable(ino)?;
        let len = inode.size.saturating_sub(offset).min(out.len() as u64) as usize;
        self.note_heat(ino, &inode, &(offset..offset.saturating_add(len as u64)));
        if let Form::Container(container) = inode.form {
            self.read_container(container, offset, &mut out[..len])?;
            return Ok(len);
        }
        let mut done = 0;
        while done < len {
            let segment = self.segment(&inode, offset + done as u64);
            let now = segment.len.min((len - done) as u64) as usize;
            let part = &mut out[done..done + now];
            match segment.at {
                Some(at) => self.store.load_data(at, part),
                None => part.fill(0),
            }
            done += now;
        }
        Ok(len)
    }

    /// Writes bytes to a file; returns how many, less than asked for if the space ends on the way.
    ///
    /// # Errors
    /// `NoSpace`, `OverQuota` or `TooLarge` if nothing could be written; `IsDirectory`, `Invalid`,
    /// `NotFound`.
    pub fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8], now: Time) -> Result<usize> {
        let max = self.geometry().file_bytes_max();
        if offset >= max && !bytes.is_empty() {
            return Err(Error::TooLarge);
        }
        let len = (bytes.len() as u64).min(max - offset) as usize;
        let step = STEP_BYTES_MAX.min(self.geometry().chunk_bytes);
        // A refused write changes nothing, not even where the file is.
        let inode = self.file(ino)?;
        self.reject_growth(ino, &inode, offset + step.min(len as u64))?;
        if self.outgrows(&inode, offset + len as u64) {
            self.leave(ino)?;
        }
        let (mut done, mut has_left) = (0, self.tiers.table.is_empty());
        let mut has_moved = has_left;
        while done < len {
            let part = &bytes[done..len.min(done + step as usize)];
            match self.stage(|fs| fs.write_step(ino, offset + done as u64, part, now)) {
                Ok(has_slack) => {
                    done += part.len();
                    if has_slack {
                        self.slack.note(ino);
                    }
                }
                Err(Error::NoSpace) if !has_left => {
                    // If it cannot leave, the next attempt fails, too.
                    let _ = self.leave(ino);
                    has_left = true;
                }
                Err(Error::Container(error))
                    if error.kind() == ErrorKind::StorageFull && self.tiers.clear_garbage() => {}
                Err(Error::Container(error))
                    if !has_moved
                        && error.kind() == ErrorKind::StorageFull
                        && (self.relocate(ino).is_ok() || self.promote(ino).is_ok()) =>
                {
                    has_moved = true;
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Returns whether the file got pages ahead of need.
    fn write_step(&mut self, ino: Ino, offset: u64, bytes: &[u8], now: Time) -> Result<bool> {
        let mut inode = self.file(ino)?;
        let end = offset + bytes.len() as u64;
        self.reject_growth(ino, &inode, end)?;
        if let Form::Container(container) = inode.form {
            self.write_container(&mut inode, container, offset, bytes)?;
            (inode.modified, inode.changed) = (now, now);
            self.set_inode(ino, &inode);
            self.note_heat(ino, &inode, &(offset..end));
            return Ok(false);
        }
        self.tiers.note_data(ino);
        let has_slack = self.map_for_write(ino, &mut inode, offset..end)?;
        let mut done = 0;
        while done < bytes.len() {
            let segment = self.segment(&inode, offset + done as u64);
            let at =
                segment.at.ok_or_else(|| Error::Damaged("a range that was mapped has holes".to_owned()))?;
            let len = segment.len.min((bytes.len() - done) as u64) as usize;
            self.store.store_data(at, &bytes[done..done + len])?;
            done += len;
        }
        inode.size = inode.size.max(end);
        (inode.modified, inode.changed) = (now, now);
        self.set_inode(ino, &inode);
        self.note_heat(ino, &inode, &(offset..end));
        Ok(has_slack)
    }

    /// Returns the inode of a regular file.
    pub(super) fn file(&self, ino: Ino) -> Result<Inode> {
        let inode = self.inode(ino)?;
        match inode.kind() {
            Some(Kind::File) => Ok(inode),
            Some(Kind::Directory) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Maps a range that is about to be written. What becomes visible beside it reads as zeros. Returns
    /// whether the file got pages ahead of need.
    pub(super) fn map_for_write(&mut self, ino: Ino, inode: &mut Inode, range: Range<u64>) -> Result<bool> {
        let needs_chunks =
            matches!(inode.form, Form::Tree { .. }) || range.end > self.geometry().run_bytes_max();
        if let Form::Run { first, pages } = inode.form
            && needs_chunks
        {
            self.run_to_chunk(ino, inode, first, pages)?;
        }
        if range.start > inode.size {
            self.zero_mapped(inode, inode.size..range.start)?;
        }
        if !needs_chunks {
            // A file that grows again is likely to go on growing.
            let wished = match inode.form {
                Form::Run { .. } => Wished::Ahead,
                _ => Wished::Needed,
            };
            return self.grow_run(inode, range, wished);
        }
        let chunk_bytes = self.geometry().chunk_bytes;
        for index in range.start / chunk_bytes..range.end.div_ceil(chunk_bytes) {
            let chunk = index * chunk_bytes..(index + 1) * chunk_bytes;
            let written = range.start.max(chunk.start)..range.end.min(chunk.end);
            self.map_chunk_for_write(ino, inode, index, chunk, written)?;
        }
        Ok(false)
    }

    pub(super) fn map_chunk_for_write(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        index: u64,
        chunk: Range<u64>,
        written: Range<u64>,
    ) -> Result<()> {
        let mapped = match self.chunk_at(inode, index) {
            Some(Mapped { is_unwritten: false, .. }) => return Ok(()),
            Some(unwritten) => {
                let mapped = Mapped { is_unwritten: false, ..unwritten };
                self.set_chunk(inode, index, mapped)?;
                mapped
            }
            None => self.allocate_chunk(ino, inode, index, false)?,
        };
        let at = self.geometry().chunk_at(mapped.chunk);
        self.store.zero_data(at, written.start - chunk.start)?;
        let visible_end = inode.size.clamp(written.end, chunk.end);
        self.store.zero_data(at + written.end - chunk.start, visible_end - written.end)?;
        Ok(())
    }

    /// Makes a run long enough for the range; a run that is too short moves to a longer one. Returns whether
    /// it has pages ahead of need then.
    pub(super) fn grow_run(&mut self, inode: &mut Inode, range: Range<u64>, wished: Wished) -> Result<bool> {
        let old = match inode.form {
            Form::Run { first, pages } => Some((first, pages)),
            _ => None,
        };
        let old_bytes = old.map_or(0, |(_, pages)| u64::from(pages) * PAGE_BYTES);
        if range.end <= old_bytes {
            return Ok(false);
        }
        let needed = range.end.div_ceil(PAGE_BYTES) as u32;
        let max = (self.geometry().run_bytes_max() / PAGE_BYTES) as u32;
        let wished = match wished {
            Wished::Needed => needed,
            Wished::Ahead => needed.next_power_of_two().min(max),
        };
        let (first, pages) = match self.space.take_pages(&mut self.store, wished, Purpose::Data) {
            Ok(first) => (first, wished),
            Err(Error::NoSpace) => (self.space.take_pages(&mut self.store, needed, Purpose::Data)?, needed),
            Err(error) => return Err(error),
        };
        let kept = inode.size.min(old_bytes);
        if let Some((old_first, old_pages)) = old {
            self.copy_data(old_first.address(), first.address(), kept)?;
            self.space.free_pages_at(&mut self.store, old_first, old_pages)?;
        }
        self.store.zero_data(first.address() + kept, range.start.max(kept) - kept)?;
        // Bytes that are visible already, behind the range.
        let end = inode.size.clamp(range.end, u64::from(pages) * PAGE_BYTES);
        self.store.zero_data(first.address() + range.end, end - range.end)?;
        inode.pages += u64::from(pages);
        inode.forget_pages(old.map_or(0, |(_, pages)| pages.into()))?;
        inode.form = Form::Run { first, pages };
        Ok(pages > needed)
    }

    /// Turns a run into a file with one chunk.
    pub(super) fn run_to_chunk(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        first: Page,
        pages: u32,
    ) -> Result<()> {
        let chunk_bytes = self.geometry().chunk_bytes;
        let kept = inode.size.min(u64::from(pages) * PAGE_BYTES);
        inode.form = Form::Empty;
        if kept == 0 && self.slack.has(ino) {
            // It has taken over a null file: nothing was written there, nor was the space asked for.
            self.space.free_pages_at(&mut self.store, first, pages)?;
            return inode.forget_pages(pages.into());
        }
        let mapped = self.allocate_chunk(ino, inode, 0, false)?;
        let at = self.geometry().chunk_at(mapped.chunk);
        self.copy_data(first.address(), at, kept)?;
        self.store.zero_data(at + kept, inode.size.clamp(kept, chunk_bytes) - kept)?;
        self.space.free_pages_at(&mut self.store, first, pages)?;
        inode.forget_pages(pages.into())
    }

    pub(crate) fn copy_data(&mut self, from: u64, to: u64, len: u64) -> Result<()> {
        let mut buffer = vec![0; len.min(COPY_BYTES) as usize];
        for offset in (0..len).step_by(COPY_BYTES as usize) {
            let part = &mut buffer[..(len - offset).min(COPY_BYTES) as usize];
            self.store.load_data(from + offset, part);
            self.store.store_data(to + offset, part)?;
        }
        Ok(())
    }

    /// Zeroes the mapped bytes of the range.
    pub(super) fn zero_mapped(&mut self, inode: &Inode, range: Range<u64>) -> Result<()> {
        let mut offset = range.start;
        while offset < range.end {
            if matches!(inode.form, Form::Tree { .. }) {
                // Skips the holes of a sparse file.
                let chunk_bytes = self.geometry().chunk_bytes;
                let Some((next, _)) = self.next_chunk(inode, offset / chunk_bytes) else { break };
                offset = offset.max(next * chunk_bytes);
                if offset >= range.end {
                    break;
                }
            }
            let segment = self.segment(inode, offset);
            let len = segment.len.min(range.end - offset);
            if let Some(at) = segment.at {
                self.store.zero_data(at, len)?;
            }
            offset += len;
        }
        Ok(())
    }

    /// Sets the size of a file. Bytes beyond the old size read as zeros; space beyond the new one is freed.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid`, `TooLarge`, `OverQuota`, `NotFound`.
    pub fn truncate(&mut self, ino: Ino, size: u64, now: Time) -> Result<()> {
        if size > self.geometry().file_bytes_max() {
            return Err(Error::TooLarge);
        }
        self.reject_growth(ino, &self.file(ino)?, size)?;
        self.flag_if_open(ino)?;
        let chunk_bytes = self.geometry().chunk_bytes;
        let is_done = self.transact(|fs| {
            let mut inode = fs.file(ino)?;
            fs.tiers.note_data(ino);
            if let Form::Container(container) = inode.form {
                fs.resize_container(ino, &mut inode, container, size)?;
            } else if size > inode.size {
                fs.zero_mapped(&inode, inode.size..size)?;
            } else {
                fs.shorten_run(&mut inode, size)?;
            }
            inode.size = size;
            (inode.modified, inode.changed) = (now, now);
            fs.set_inode(ino, &inode);
            fs.free_some_chunks(ino, size.div_ceil(chunk_bytes))
        })?;
        // Chunks beyond the size are the file's until they are freed; a power loss may leave some.
        let mut is_done = is_done;
        while !is_done {
            is_done = self.transact(|fs| fs.free_some_chunks(ino, size.div_ceil(chunk_bytes)))?;
        }
        match self.release_chunk(ino) {
            Err(Error::NoSpace) => Ok(()),
            done => done,
        }
    }

    /// Gives a file that has become small pages instead of its chunk, if its owners have a limit of bytes:
    /// the size does not count the rest of the chunk.
    fn release_chunk(&mut self, ino: Ino) -> Result<()> {
        let inode = self.file(ino)?;
        let is_small = inode.size <= self.geometry().run_bytes_max();
        if !is_small || !matches!(inode.form, Form::Tree { .. }) || !self.has_byte_limit(&inode) {
            return Ok(());
        }
        self.transact(|fs| {
            let mut inode = fs.file(ino)?;
            if !matches!(inode.form, Form::Tree { .. }) {
                return Ok(()); // It was evicted, as there was no space.
            }
            let size = inode.size;
            let pages = size.div_ceil(PAGE_BYTES) as u32;
            let run = match fs.chunk_at(&inode, 0) {
                Some(Mapped { chunk, is_unwritten: false }) => {
                    let first = fs.space.take_pages(&mut fs.store, pages, Purpose::Data)?;
                    fs.copy_data(fs.geometry().chunk_at(chunk), first.address(), size)?;
                    Some(first)
                }
                _ => None,
            };
            fs.free_chunks(&mut inode, 0..u64::MAX, 1)?;
            if !matches!(inode.form, Form::Empty) {
                return Err(Error::Damaged("a small file has several chunks".to_owned()));
            }
            if let Some(first) = run {
                inode.form = Form::Run { first, pages };
                inode.pages += u64::from(pages);
            }
            fs.set_inode(ino, &inode);
            Ok(())
        })
    }

    pub(super) fn shorten_run(&mut self, inode: &mut Inode, size: u64) -> Result<()> {
        let Form::Run { first, pages } = inode.form else { return Ok(()) };
        let needed = size.div_ceil(PAGE_BYTES) as u32;
        if needed >= pages {
            return Ok(());
        }
        self.space.free_pages_at(&mut self.store, Page(first.0 + u64::from(needed)), pages - needed)?;
        inode.forget_pages(u64::from(pages - needed))?;
        inode.form = if needed == 0 { Form::Empty } else { Form::Run { first, pages: needed } };
        Ok(())
    }
}
