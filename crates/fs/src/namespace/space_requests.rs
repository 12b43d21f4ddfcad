//! Requests about a file's space: allocation, holes, and copies between files.

use super::FileSystem;
use super::data::Wished;
use crate::error::{Error, Result};
use crate::layout::inode::{Form, Inode};
use crate::layout::{Ino, Time};
use crate::nvm::Memory;
use crate::tiers::Seek;
use std::ops::Range;

/// Bytes that one step of a copy between files holds.
const COPY_BYTES: u64 = 1 << 20;
/// Chunks that one operation allocates at most.
const ALLOCATED_CHUNKS_MAX: u64 = 32;

/// What to do with a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Allocates space for it; with `keep_size` the file does not grow.
    Space {
        /// Whether the size stays.
        keep_size: bool,
    },
    /// Makes it read as zeros, with space allocated.
    Zero {
        /// Whether the size stays.
        keep_size: bool,
    },
    /// Makes it read as zeros and frees whole chunks of it. The size stays.
    PunchHole,
}

impl<M: Memory> FileSystem<M> {
    /// Changes the space of a range of a file (`fallocate`).
    ///
    /// # Errors
    /// `NoSpace`, after which some of the range may be allocated; `OverQuota`; `NotSupported` for space
    /// beyond the size, if it stays and the owners have limits; `TooLarge`, `Invalid`, `NotFound`.
    pub fn allocate(&mut self, ino: Ino, range: Range<u64>, how: Allocate, now: Time) -> Result<()> {
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        if range.end > self.geometry().file_bytes_max() {
            return Err(Error::TooLarge);
        }
        let inode = self.file(ino)?;
        match how {
            Allocate::PunchHole => {}
            Allocate::Space { keep_size: true } | Allocate::Zero { keep_size: true } => {
                self.reject_uncounted(&inode, range.end)?;
            }
            Allocate::Space { .. } | Allocate::Zero { .. } => self.reject_growth(ino, &inode, range.end)?,
        }
        if how != Allocate::PunchHole {
            self.slack.keep(ino);
        }
        match how {
            Allocate::PunchHole => self.punch_hole(ino, range, now),
            Allocate::Space { keep_size } => {
                self.reserve_or_leave(ino, range.clone())?;
                self.finish_allocation(ino, &range, keep_size, now)
            }
            Allocate::Zero { keep_size } => {
                self.punch_hole(ino, range.clone(), now)?;
                self.reserve_or_leave(ino, range.clone())?;
                self.finish_allocation(ino, &range, keep_size, now)
            }
        }
    }

    /// Sets the size and the times after an allocation.
    fn finish_allocation(&mut self, ino: Ino, range: &Range<u64>, keep_size: bool, now: Time) -> Result<()> {
        self.transact(|fs| {
            let mut inode = fs.file(ino)?;
            if !keep_size && range.end > inode.size {
                match inode.form {
                    Form::Container(container) => {
                        fs.resize_container(ino, &mut inode, container, range.end)?;
                    }
                    _ => fs.zero_mapped(&inode, inode.size..range.end)?,
                }
                inode.size = range.end;
                inode.modified = now;
            }
            inode.changed = now;
            fs.set_inode(ino, &inode);
            Ok(())
        })
    }

    /// Allocates space for a range; a file for which the region has none goes to a container.
    fn reserve_or_leave(&mut self, ino: Ino, range: Range<u64>) -> Result<()> {
        self.leave_if_outgrown(ino, range.end)?;
        match self.reserve(ino, range.clone()) {
            Err(Error::NoSpace) => {
                self.leave(ino)?;
                self.reserve(ino, range)
            }
            done => done,
        }
    }

    /// Allocates space for a range without changing what is visible.
    fn reserve(&mut self, ino: Ino, range: Range<u64>) -> Result<()> {
        let chunk_bytes = self.geometry().chunk_bytes;
        let (mut index, end) = (range.start / chunk_bytes, range.end.div_ceil(chunk_bytes));
        while index < end {
            let stop = end.min(index + ALLOCATED_CHUNKS_MAX);
            self.transact(|fs| {
                let mut inode = fs.file(ino)?;
                if let Form::Container(container) = inode.form {
                    let part = (index * chunk_bytes).max(range.start)..(stop * chunk_bytes).min(range.end);
                    fs.reject_short(&inode, container)?;
                    return fs.allocate_container(container, part);
                }
                if fs.reserve_run(&mut inode, range.end)? {
                    fs.set_inode(ino, &inode);
                    return Ok(());
                }
                if let Form::Run { first, pages } = inode.form {
                    fs.run_to_chunk(ino, &mut inode, first, pages)?;
                }
                for index in index..stop {
                    if fs.chunk_at(&inode, index).is_none() {
                        fs.allocate_chunk(ino, &mut inode, index, true)?;
                    }
                }
                fs.set_inode(ino, &inode);
                Ok(())
            })?;
            index = stop;
        }
        Ok(())
    }

    /// Allocates space for a small file; `false` if it needs chunks. A run has no unwritten pages: new ones
    /// are zeroed.
    fn reserve_run(&mut self, inode: &mut Inode, end: u64) -> Result<bool> {
        if matches!(inode.form, Form::Tree { .. }) || end > self.geometry().run_bytes_max() {
            return Ok(false);
        }
        self.grow_run(inode, end..end, Wished::Needed)?;
        Ok(true)
    }

    /// Frees the whole chunks of a range and zeroes the rest of it.
    fn punch_hole(&mut self, ino: Ino, range: Range<u64>, now: Time) -> Result<()> {
        let chunk_bytes = self.geometry().chunk_bytes;
        let whole = range.start.div_ceil(chunk_bytes)..range.end / chunk_bytes;
        let mut is_done = false;
        let mut is_first = true;
        while !is_done {
            is_done = self.transact(|fs| {
                let mut inode = fs.file(ino)?;
                fs.tiers.note_data(ino);
                if let Form::Container(container) = inode.form {
                    fs.punch_container(&inode, container, &range)?;
                    (inode.modified, inode.changed) = (now, now);
                    fs.set_container_times(&inode)?;
                    fs.set_inode(ino, &inode);
                    return Ok(true);
                }
                if is_first {
                    let end = range.end.min(inode.size);
                    let edge = |fs: &mut Self, inode: &Inode, part: Range<u64>| {
                        if part.is_empty() { Ok(()) } else { fs.zero_mapped(inode, part) }
                    };
                    if whole.is_empty() || !matches!(inode.form, Form::Tree { .. }) {
                        edge(fs, &inode, range.start..end)?;
                    } else {
                        edge(fs, &inode, range.start..end.min(whole.start * chunk_bytes))?;
                        edge(fs, &inode, range.start.max(whole.end * chunk_bytes)..end)?;
                    }
                    (inode.modified, inode.changed) = (now, now);
                }
                let done = whole.is_empty() || fs.free_chunks(&mut inode, whole.clone(), 32)?;
                fs.set_inode(ino, &inode);
                Ok(done)
            })?;
            is_first = false;
        }
        Ok(())
    }

    /// Returns the offset of the first data or hole at or after `offset` (`SEEK_DATA`, `SEEK_HOLE`).
    ///
    /// # Errors
    /// `NoSuchOffset` if `offset` is at or beyond the end, or if there is no data behind it.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let inode = self.file(ino)?;
        if offset >= inode.size {
            return Err(Error::NoSuchOffset);
        }
        if let Form::Container(container) = inode.form {
            return self.seek_container(&inode, container, offset, what);
        }
        let mut offset = offset;
        while offset < inode.size {
            let segment = self.segment(&inode, offset);
            if segment.at.is_some() == (what == Seek::Data) {
                return Ok(offset);
            }
            let next = offset.saturating_add(segment.len);
            offset = match what {
                Seek::Data if matches!(inode.form, Form::Tree { .. }) => self.next_data(&inode, next),
                _ => next,
            };
        }
        if what == Seek::Hole { Ok(inode.size) } else { Err(Error::NoSuchOffset) }
    }

    /// Skips what the tree does not list; returns an offset at or after `offset`.
    pub(super) fn next_data(&self, inode: &Inode, offset: u64) -> u64 {
        let chunk_bytes = self.geometry().chunk_bytes;
        match self.next_chunk(inode, offset / chunk_bytes) {
            Some((index, _)) => offset.max(index * chunk_bytes),
            None => u64::MAX,
        }
    }

    /// Copies bytes from one file to another, or within one; returns how many, less than asked for at the
    /// end of the source.
    ///
    /// # Errors
    /// `Invalid` if the ranges overlap; those of [`read`](Self::read) and [`write`](Self::write).
    pub fn copy_range(
        &mut self,
        (source, source_at): (Ino, u64),
        (target, target_at): (Ino, u64),
        len: u64,
        now: Time,
    ) -> Result<u64> {
        // What the copy itself adds to the file is not copied again.
        let len = len.min(self.file(source)?.size.saturating_sub(source_at));
        if source == target && source_at.abs_diff(target_at) < len {
            return Err(Error::Invalid);
        }
        let mut buffer = vec![0; len.min(COPY_BYTES) as usize];
        let mut done = 0;
        while done < len {
            let part = &mut buffer[..(len - done).min(COPY_BYTES) as usize];
            let read = self.read(source, source_at + done, part)?;
            if read == 0 {
                break;
            }
            let written = match self.write(target, target_at + done, &part[..read], now) {
                Ok(written) => written,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            done += written as u64;
            if written < read {
                break;
            }
        }
        Ok(done)
    }
}
