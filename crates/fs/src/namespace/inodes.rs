//! Inodes: allocation, attributes, and the list of those without a name.

use super::{FileSystem, lock};
use crate::error::{Error, Result};
use crate::layout::chunk::Use;
use crate::layout::inode::{Form, INODE_BYTES, Inode};
use crate::layout::{BITMAP_SLOTS, Chunk, Ino, Page, Time};
use crate::nvm::Memory;
use std::collections::BTreeSet;

/// Bytes of the bitmap at the start of a chunk of inodes.
const BITMAP_BYTES: usize = (BITMAP_SLOTS * INODE_BYTES) as usize;
/// Chunks of a file that one operation frees; a larger file is freed by several.
const FREED_CHUNKS_MAX: u32 = 32;

/// The chunks of inodes.
#[derive(Debug, Default)]
pub(crate) struct InodeIndex {
    /// For each index, the chunk and its number of free inodes.
    chunks: Vec<(Chunk, u32)>,
    with_free: BTreeSet<usize>,
    /// Inodes that exist.
    count: u64,
    /// Changes by the operation in progress: an index and what its number of free inodes was; `None` if the
    /// chunk is new.
    steps: Vec<(usize, Option<u32>)>,
}

impl InodeIndex {
    pub(super) fn begin(&mut self) {
        self.steps.clear();
    }

    pub(super) fn abort(&mut self) {
        while let Some((index, before)) = self.steps.pop() {
            match before {
                Some(free) => self.set_free(index, free),
                None => {
                    self.chunks.truncate(index);
                    self.with_free.remove(&index);
                }
            }
        }
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) const fn chunk_count(&self) -> u64 {
        self.chunks.len() as u64
    }

    pub(super) fn free(&self) -> u64 {
        self.with_free.iter().map(|&index| u64::from(self.chunks[index].1)).sum()
    }

    fn push(&mut self, chunk: Chunk, free: u32) {
        if free > 0 {
            self.with_free.insert(self.chunks.len());
        }
        self.chunks.push((chunk, free));
    }

    fn set_free(&mut self, index: usize, free: u32) {
        self.count = self.count + u64::from(self.chunks[index].1) - u64::from(free);
        self.chunks[index].1 = free;
        if free > 0 {
            self.with_free.insert(index)
        } else {
            self.with_free.remove(&index)
        };
    }
}

/// A new time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the operation.
    Now,
    /// This time.
    At(Time),
}

/// Changes of an inode's attributes; `None` leaves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permissions, with the set-id and sticky bits.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of the last read.
    pub accessed: Option<SetTime>,
    /// Time of the last change of contents.
    pub modified: Option<SetTime>,
}

impl<M: Memory> FileSystem<M> {
    /// Reads the inode map. If it is `lenient`, inodes of chunks that cannot be are missing, and a chunk
    /// without a sound entry has no free inode.
    pub(super) fn load_inode_index(&self, lenient: bool) -> Result<InodeIndex> {
        let mut index = InodeIndex::default();
        let slots = (self.geometry().chunk_inodes() - BITMAP_SLOTS) as u32;
        let count = self.roots().inode_chunks;
        if count > self.geometry().chunks() && !lenient {
            return Err(Error::Damaged(format!("the inode map has {count} chunks")));
        }
        for number in 0..count.min(self.geometry().chunks()) {
            let chunk = self.inode_map(number);
            let is_possible = self.geometry().is_for_files(chunk);
            if !is_possible && !lenient {
                return Err(Error::Damaged(format!("the inode map names chunk {}", chunk.0)));
            }
            let free = match self.space.entry(&self.store, chunk) {
                _ if !is_possible => 0,
                Err(_) if lenient => 0,
                entry => entry?.free_inodes.min(slots),
            };
            index.count += u64::from(slots.saturating_sub(free));
            index.push(chunk, free);
        }
        Ok(index)
    }

    /// Returns the chunk that the inode map names for an index.
    pub(crate) fn inode_map(&self, index: u32) -> Chunk {
        Chunk(self.store.load_u32(self.geometry().inode_map_at() + u64::from(index) * 4))
    }

    /// Returns the chunks of inodes, by index.
    pub(crate) fn inode_chunks(&self) -> impl Iterator<Item = Chunk> {
        self.inodes.chunks.iter().map(|(chunk, _)| *chunk)
    }

    /// Returns the bitmap of a chunk of inodes.
    pub(crate) fn inode_bitmap(&self, chunk: Chunk) -> [u8; BITMAP_BYTES] {
        self.store.bytes(self.geometry().chunk_at(chunk))
    }

    /// Returns the bits of slots that do not exist and that are not set, as they have to be.
    pub(crate) fn wrong_bitmap_bits(&self, chunk: Chunk) -> impl Iterator<Item = u64> {
        let bitmap = self.inode_bitmap(chunk);
        let slots = (0..BITMAP_SLOTS).chain(self.geometry().chunk_inodes()..BITMAP_BYTES as u64 * 8);
        slots.filter(move |slot| bitmap[*slot as usize / 8] & 1 << (slot % 8) == 0)
    }

    pub(crate) fn inode_at(&self, ino: Ino) -> Result<u64> {
        if ino.0 == 0 || ino.0 >= 1 << 60 {
            return Err(Error::NotFound);
        }
        let (index, slot) = self.geometry().slot_of(ino);
        let (chunk, _) = self.inodes.chunks.get(index as usize).ok_or(Error::NotFound)?;
        if slot < BITMAP_SLOTS {
            return Err(Error::NotFound);
        }
        if !self.geometry().is_for_files(*chunk) {
            return Err(Error::Damaged(format!("the inode map names chunk {} for inode {}", chunk.0, ino.0)));
        }
        Ok(self.geometry().chunk_at(*chunk) + slot * INODE_BYTES)
    }

    /// Returns an inode, even if it is free, a null file, or not complete yet. Its space exists.
    pub(crate) fn raw_inode(&self, ino: Ino) -> Result<Inode> {
        let inode = Inode::decode(&self.store.bytes(self.inode_at(ino)?))
            .ok_or_else(|| Error::Damaged(format!("inode {} has an unknown form", ino.0)))?;
        match inode.space_problem(&self.geometry()) {
            Some(problem) => Err(Error::Damaged(format!("inode {} has {problem}", ino.0))),
            None => self.check_tier(ino, &inode).map(|()| inode),
        }
    }

    /// Returns an inode, even if it is free or a null file. All of its fields are possible.
    pub(crate) fn sound_inode(&self, ino: Ino) -> Result<Inode> {
        let inode = self.raw_inode(ino)?;
        match inode.problem(&self.geometry()) {
            Some(problem) => Err(Error::Damaged(format!("inode {} has {problem}", ino.0))),
            None => Ok(inode),
        }
    }

    /// Returns whether files can have these pages: they are in one chunk, which is none of the system's.
    pub(crate) fn is_possible(&self, first: Page, pages: u32) -> bool {
        self.geometry().is_run(first, pages)
    }

    /// Returns an inode.
    ///
    /// # Errors
    /// Returns `NotFound` if it does not exist.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        let mut inode = self.sound_inode(ino)?;
        if inode.mode == 0 {
            return Err(Error::NotFound);
        }
        if inode.is_passthrough {
            self.follow_container(&mut inode);
        } else if let Some(time) = lock(&self.accessed).get(&ino) {
            inode.accessed = *time;
        }
        Ok(inode)
    }

    pub(crate) fn set_inode(&mut self, ino: Ino, inode: &Inode) {
        if let Ok(at) = self.inode_at(ino) {
            self.note_charge(ino, at, inode);
            self.store.stage(at, &inode.encode());
            self.tiers.note_change(ino, inode);
        }
    }

    /// Allocates an inode; its generation follows that of the last file that used it.
    pub(super) fn new_inode(&mut self, mut inode: Inode) -> Result<Ino> {
        let index = match self.inodes.with_free.first() {
            Some(&index) => index,
            None => self.add_inode_chunk()?,
        };
        let (chunk, free) = self.inodes.chunks[index];
        let bitmap = self.inode_bitmap(chunk);
        let word = bitmap.as_chunks::<8>().0.iter().position(|word| u64::from_le_bytes(*word) != u64::MAX);
        let damaged = || Error::Damaged(format!("chunk {} has no free inode", chunk.0));
        let word = word.ok_or_else(damaged)?;
        let bits = u64::from_le_bytes(bitmap.as_chunks::<8>().0[word]);
        let slot = word as u64 * 64 + u64::from(bits.trailing_ones());
        // The bits of slots that do not exist are set.
        if !(BITMAP_SLOTS..self.geometry().chunk_inodes()).contains(&slot) {
            return Err(damaged());
        }
        let ino = self.geometry().ino_of(index as u64, slot);
        let at = self.geometry().chunk_at(chunk) + word as u64 * 8;
        self.store.stage(at, &(bits | 1 << (slot % 64)).to_le_bytes());
        self.set_free_inodes(index, free - 1)?;
        let (last, _) = Inode::decode_lenient(&self.store.bytes(self.inode_at(ino)?));
        inode.generation = last.generation.wrapping_add(1);
        self.set_inode(ino, &inode);
        Ok(ino)
    }

    fn add_inode_chunk(&mut self) -> Result<usize> {
        let geometry = self.geometry();
        let index = self.inodes.chunks.len();
        let chunk = self.space.take_chunk(&mut self.store, Use::Inodes, index as u64, 0)?;
        let at = geometry.chunk_at(chunk);
        self.store.zero_data(at + BITMAP_BYTES as u64, geometry.chunk_bytes - BITMAP_BYTES as u64)?;
        // Slots that are no inodes have their bits set: those of the bitmap, and those beyond the chunk's
        // end.
        let mut bitmap = [0; BITMAP_BYTES];
        for slot in (0..BITMAP_SLOTS).chain(geometry.chunk_inodes()..BITMAP_BYTES as u64 * 8) {
            bitmap[slot as usize / 8] |= 1 << (slot % 8);
        }
        self.store.store_data(at, &bitmap)?;
        self.store.stage(geometry.inode_map_at() + index as u64 * 4, &chunk.0.to_le_bytes());
        let mut roots = self.roots();
        roots.inode_chunks = index as u32 + 1;
        self.set_roots(&roots);
        let free = (geometry.chunk_inodes() - BITMAP_SLOTS) as u32;
        self.inodes.push(chunk, free);
        self.inodes.steps.push((index, None));
        Ok(index)
    }

    fn set_free_inodes(&mut self, index: usize, free: u32) -> Result<()> {
        let (chunk, before) = self.inodes.chunks[index];
        self.inodes.steps.push((index, Some(before)));
        self.inodes.set_free(index, free);
        let mut entry = self.space.entry(&self.store, chunk)?;
        entry.free_inodes = free;
        self.space.set_entry(&mut self.store, chunk, &entry);
        Ok(())
    }

    /// Frees an inode that has no data any more.
    pub(super) fn free_inode(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let (index, slot) = self.geometry().slot_of(ino);
        let (chunk, free) = *self.inodes.chunks.get(index as usize).ok_or(Error::NotFound)?;
        if inode.pages != 0 || u64::from(free) >= self.geometry().chunk_inodes() - BITMAP_SLOTS {
            return Err(Error::Damaged(format!("inode {} is to be freed, but cannot be in use", ino.0)));
        }
        let at = self.geometry().chunk_at(chunk) + slot / 64 * 8;
        let bits = self.store.load_u64(at) & !(1 << (slot % 64));
        self.store.stage(at, &bits.to_le_bytes());
        self.set_inode(ino, &Inode { links: 0, ..Inode::new(0, 0, 0, Time::default(), inode.generation) });
        self.set_free_inodes(index as usize, free + 1)
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// `IsDirectory` or `Invalid` for a size of what has none; `TooLarge`; `NotFound`; `OverQuota` if the
    /// owners, the new ones if they change, would come to have more than their limits.
    pub fn set_attributes(&mut self, ino: Ino, change: &Change, now: Time) -> Result<Inode> {
        if let Some(size) = change.size {
            self.truncate(ino, size, now)?;
        }
        self.transact(|fs| {
            let mut inode = fs.inode(ino)?;
            if let Some(permissions) = change.permissions {
                inode.mode = inode.mode & libc::S_IFMT | permissions & 0o7777;
            }
            inode.uid = change.uid.unwrap_or(inode.uid);
            inode.gid = change.gid.unwrap_or(inode.gid);
            let time = |set, before| match set {
                None => before,
                Some(SetTime::Now) => now,
                Some(SetTime::At(time)) => time,
            };
            inode.accessed = time(change.accessed, inode.accessed);
            inode.modified = time(change.modified, inode.modified);
            inode.changed = now;
            if change.accessed.is_some() || change.modified.is_some() {
                fs.set_container_times(&inode)?;
            }
            fs.set_inode(ino, &inode);
            if change.accessed.is_some() {
                lock(&fs.accessed).remove(&ino);
            }
            Ok(inode)
        })
    }

    /// Notes a read, by the rules of `relatime`: the access time changes if it is older than the last
    /// change or than a day. It becomes durable with the next `sync`.
    pub fn note_access(&self, ino: Ino, now: Time) {
        const DAY_SECONDS: i64 = 86_400;
        let Ok(inode) = self.inode(ino) else { return };
        let is_old = inode.accessed.seconds.saturating_add(DAY_SECONDS) <= now.seconds;
        if !self.read_only && (inode.accessed <= inode.modified.max(inode.changed) || is_old) {
            lock(&self.accessed).insert(ino, now);
        }
    }

    /// Puts an inode without a name on the list of orphans, so that it is freed even after a power loss.
    pub(super) fn make_orphan(&mut self, ino: Ino, inode: &mut Inode) -> Result<()> {
        let mut roots = self.roots();
        inode.links = 0;
        inode.next = roots.orphans;
        inode.previous = None;
        if let Some(next) = roots.orphans {
            let mut other = self.raw_inode(next)?;
            other.previous = Some(ino);
            self.set_inode(next, &other);
        }
        roots.orphans = Some(ino);
        self.set_roots(&roots);
        Ok(())
    }

    /// Takes an inode off the list of orphans.
    pub(super) fn remove_orphan(&mut self, inode: &mut Inode) -> Result<()> {
        match inode.previous {
            Some(previous) => {
                let mut other = self.raw_inode(previous)?;
                other.next = inode.next;
                self.set_inode(previous, &other);
            }
            None => {
                let mut roots = self.roots();
                roots.orphans = inode.next;
                self.set_roots(&roots);
            }
        }
        if let Some(next) = inode.next {
            let mut other = self.raw_inode(next)?;
            other.previous = inode.previous;
            self.set_inode(next, &other);
        }
        (inode.next, inode.previous) = (None, None);
        Ok(())
    }

    /// Frees the inode if it has neither a name nor a reference.
    pub(super) fn reclaim_if_orphan(&mut self, ino: Ino) -> Result<()> {
        match self.inode(ino) {
            Ok(inode) if inode.links == 0 && !self.is_referenced(ino) => self.reclaim(ino),
            Ok(_) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Frees all inodes that have neither a name nor a reference.
    pub(super) fn reclaim_orphans(&mut self) -> Result<()> {
        let mut next = self.roots().orphans;
        while let Some(ino) = next {
            next = self.raw_inode(ino)?.next;
            if !self.is_referenced(ino) {
                self.reclaim(ino)?;
            }
        }
        Ok(())
    }

    /// Frees an orphan: first its chunks, in as many operations as it takes, then the rest.
    fn reclaim(&mut self, ino: Ino) -> Result<()> {
        while !self.transact(|fs| fs.free_some_chunks(ino, 0))? {}
        self.transact(|fs| {
            let mut inode = fs.inode(ino)?;
            if inode.links != 0 {
                return Err(Error::Damaged(format!("inode {} is an orphan, but has names", ino.0)));
            }
            fs.remove_orphan(&mut inode)?;
            if fs.make_null_file(ino, &mut inode)? {
                return Ok(());
            }
            fs.free_all(&mut inode)?;
            fs.free_inode(ino, &inode)
        })?;
        self.linkable.remove(&ino);
        lock(&self.accessed).remove(&ino);
        lock(&self.tiers.heat).removed(ino);
        Ok(())
    }

    /// Frees some of a file's chunks from index `first` on; returns whether none is left there.
    pub(super) fn free_some_chunks(&mut self, ino: Ino, first: u64) -> Result<bool> {
        let mut inode = self.inode(ino)?;
        if inode.is_directory() || !matches!(inode.form, Form::Tree { .. }) {
            return Ok(true);
        }
        let done = self.free_chunks(&mut inode, first..u64::MAX, FREED_CHUNKS_MAX)?;
        self.set_inode(ino, &inode);
        Ok(done)
    }

    /// Frees all data and attributes of an inode, which has at most a few chunks.
    pub(super) fn free_all(&mut self, inode: &mut Inode) -> Result<()> {
        if inode.is_directory() {
            self.free_overflow_pages(inode)?;
        }
        match inode.form {
            Form::Empty => {}
            Form::Container(container) => self.tiers.obsolete.push(container),
            Form::Run { first, pages } => {
                self.space.free_pages_at(&mut self.store, first, pages)?;
                inode.forget_pages(pages.into())?;
            }
            Form::Tree { .. } => {
                self.free_chunks(inode, 0..u64::MAX, u32::MAX)?;
            }
        }
        inode.form = Form::Empty;
        self.store_attributes(inode, &[])
    }
}

#[cfg(test)]
mod tests;
