//! Moves of files between the region and containers: eviction and promotion.

use super::data::Wished;
use super::{FileSystem, Seek, lock};
use crate::error::{Error, Result};
use crate::layout::inode::{Form, Inode};
use crate::layout::tier::{Container, TierNumber};
use crate::layout::{Ino, PAGE_BYTES};
use crate::nvm::Memory;
use crate::tiers::{Container as Target, Heat, TierState};
use std::io;
use std::ops::Range;
use weir_model::Bytes;

/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// Files that an operation which finds no space evicts at most.
const VICTIMS_MAX: usize = 16;
/// Bytes after which such an operation evicts no further file; in a small region, a part of it.
const VICTIM_BYTES_MAX: u64 = 16 << 20;
/// That part: one of so many.
const VICTIM_PART: u64 = 32;
/// The share of the region above which a file goes to a container: one of so many parts.
const SHARE: u64 = 4;
/// Files whose accesses are known at most; more are found again when these have left.
const RESIDENTS_MAX: usize = 1 << 20;

/// A move to a container in progress: that becomes the file's if the file does not change meanwhile.
#[derive(Debug)]
pub struct Eviction {
    /// The file.
    pub ino: Ino,
    /// The container that it leaves; `None` if it leaves the region.
    pub from: Option<Container>,
    /// Its new container.
    pub container: Container,
    /// Its size.
    pub size: u64,
}

impl<M: Memory> FileSystem<M> {
    /// Returns the size above which a file goes to a container: a share of the region, and no more than one
    /// group of changes can free.
    pub fn region_share(&self) -> u64 {
        let freed_at_once = self.store.group_lines_max() as u64 / 2 * self.geometry().chunk_bytes;
        (self.geometry().size / SHARE).min(freed_at_once)
    }

    /// Returns the inode of a file that can leave the region.
    fn evictable(&self, ino: Ino) -> Result<Inode> {
        let inode = self.file(ino)?;
        match inode.form {
            _ if inode.is_pinned => Err(Error::Pinned),
            Form::Container(_) => Err(Error::Invalid),
            _ if self.tiers.table.is_empty() => Err(Error::NoTier),
            _ => Ok(inode),
        }
    }

    /// Returns the tiers that can take files of these sizes: for each the best one, then the others.
    pub fn targets(&self, sizes: &[u64]) -> Vec<Vec<TierNumber>> {
        let numbers = (0..self.tiers.table.len() as u32).map(TierNumber);
        let is_ready = |tier: &TierNumber| {
            self.tiers.is_active(*tier) && self.tiers.port.state(*tier) == TierState::Ready
        };
        let ready: Vec<_> = numbers.filter(is_ready).collect();
        if ready.is_empty() {
            return vec![Vec::new(); sizes.len()];
        }
        let class = |tier: TierNumber| self.tiers.table[tier.0 as usize].class;
        let works: Vec<_> = ready.iter().map(|tier| (class(*tier), self.tiers.port.work(*tier))).collect();
        let sizes: Vec<_> = sizes.iter().map(|size| Bytes(*size)).collect();
        let best = lock(&self.tiers.heat).distribute(&sizes, &works);
        let order = |best: usize| {
            let others = ready.iter().copied().filter(|tier| *tier != ready[best]);
            [ready[best]].into_iter().chain(others).collect()
        };
        best.into_iter().map(order).collect()
    }

    /// Takes up to `max` files that leave the region next, with their sizes.
    pub fn take_victims(&mut self, bytes: u64, max: usize) -> Vec<(Ino, u64)> {
        let (mut victims, mut found) = (Vec::new(), 0);
        while victims.len() < max && found < bytes {
            let Some(ino) = lock(&self.tiers.heat).evict() else { break };
            let Ok(inode) = self.evictable(ino) else { continue };
            if inode.pages > 0 && inode.form != Form::Empty && !self.tiers.moving.contains_key(&ino) {
                found += inode.pages * PAGE_BYTES;
                victims.push((ino, inode.size));
            }
        }
        victims
    }

    /// Takes a file in a container that turned hot, with its size.
    pub fn take_wanted(&mut self) -> Option<(Ino, u64)> {
        loop {
            let ino = lock(&self.tiers.heat).take_wanted()?;
            if let Ok(inode) = self.file(ino)
                && matches!(inode.form, Form::Container(_))
            {
                return Some((ino, inode.size));
            }
        }
    }

    /// Sets the weight of accesses per byte beside recency, in bytes, by which files are evicted. Accesses so
    /// far are forgotten.
    pub fn set_omega(&self, omega: f64) {
        *lock(&self.tiers.heat) = Heat::new(omega);
    }

    /// Returns the weight of accesses per byte beside recency, in bytes, by which files are evicted.
    pub fn omega(&self) -> f64 {
        lock(&self.tiers.heat).omega()
    }

    /// Notes a file that was in the region when the file system was mounted.
    pub fn note_resident(&self, ino: Ino, inode: &Inode) {
        let mut heat = lock(&self.tiers.heat);
        if matches!(inode.form, Form::Run { .. } | Form::Tree { .. }) && heat.residents() < RESIDENTS_MAX {
            heat.found(ino, inode);
        }
    }

    /// Begins to evict a file: chooses a container, which the caller creates, and to which it copies the
    /// parts of the file.
    ///
    /// # Errors
    /// `Pinned`, `NoTier`, `Changing` if it is being evicted already; `Invalid` if it is in a container.
    pub fn begin_eviction(&mut self, ino: Ino, tier: TierNumber) -> Result<Eviction> {
        let size = self.evictable(ino)?.size;
        self.begin_move(ino, None, tier, size)
    }

    /// Begins to move a file from its container to one of another tier, which the caller creates and copies.
    ///
    /// # Errors
    /// `NoTier`, `Changing` if it is being moved already; `InUse` as [`promote`](Self::promote); `Invalid` if
    /// it is in the region.
    pub fn begin_relocation(&mut self, ino: Ino, tier: TierNumber) -> Result<Eviction> {
        let inode = self.file(ino)?;
        let from = self.relocatable(ino, &inode)?;
        self.begin_move(ino, Some(from), tier, inode.size)
    }

    fn begin_move(
        &mut self,
        ino: Ino,
        from: Option<Container>,
        tier: TierNumber,
        size: u64,
    ) -> Result<Eviction> {
        if self.tiers.moving.contains_key(&ino) {
            return Err(Error::Changing);
        }
        let container = self.stage(|fs| fs.number_container(tier))?;
        self.tiers.moving.insert(ino, false);
        Ok(Eviction { ino, from, container, size })
    }

    /// Returns the container of a file that can leave it now.
    fn relocatable(&self, ino: Ino, inode: &Inode) -> Result<Container> {
        let Form::Container(container) = inode.form else { return Err(Error::Invalid) };
        self.reject_in_use(ino, inode, container)?;
        // Until the flag goes, soon after the last use, the container's size and times count.
        if inode.is_passthrough { Err(Error::InUse) } else { Ok(container) }
    }

    /// Returns whether a file has changed since a move of it began.
    pub fn has_changed(&self, eviction: &Eviction) -> bool {
        self.tiers.moving.get(&eviction.ino) != Some(&false)
    }

    /// Returns the next part of a file with data at or after `offset`, of at most 1 MiB, and its offset.
    ///
    /// # Errors
    /// `Changing` if the file has changed since the eviction began.
    pub fn eviction_part(&self, eviction: &Eviction, offset: u64) -> Result<Option<(u64, Vec<u8>)>> {
        if self.has_changed(eviction) {
            return Err(Error::Changing);
        }
        let inode = self.file(eviction.ino)?;
        Ok(self.next_part(&inode, offset))
    }

    fn next_part(&self, inode: &Inode, mut offset: u64) -> Option<(u64, Vec<u8>)> {
        while offset < inode.size {
            let segment = self.segment(inode, offset);
            let len = segment.len.min(inode.size - offset);
            let Some(at) = segment.at else {
                offset = match inode.form {
                    Form::Tree { .. } => self.next_data(inode, offset + len),
                    _ => offset + len,
                };
                continue;
            };
            let mut bytes = vec![0; len.min(COPY_BYTES) as usize];
            self.store.load_data(at, &mut bytes);
            return Some((offset, bytes));
        }
        None
    }

    /// Gives a file the container to which it was copied, which is durable; the space that it had becomes
    /// free. If the file has changed, the container is removed.
    ///
    /// # Errors
    /// `Changing`; `InUse` as [`promote`](Self::promote); those of an operation that changes metadata.
    pub fn finish_eviction(&mut self, eviction: &Eviction) -> Result<()> {
        // The tier may have begun to leave meanwhile.
        let is_same = self.tiers.moving.remove(&eviction.ino) == Some(false)
            && self.tiers.is_active(eviction.container.tier);
        self.tiers.note_written(eviction.container);
        let done = match is_same {
            // Not committed here: a commit that fails leaves open whether the container is needed.
            true => self.stage(|fs| {
                let mut inode = fs.file(eviction.ino)?;
                match eviction.from {
                    None => fs.give_container(eviction.ino, &mut inode, eviction.container),
                    Some(from) if fs.relocatable(eviction.ino, &inode)? == from => {
                        fs.replace_container(eviction.ino, &mut inode, from, eviction.container);
                        Ok(())
                    }
                    Some(_) => Err(Error::Changing),
                }
            }),
            false => Err(Error::Changing),
        };
        if done.is_err() {
            self.tiers.discard(eviction.container);
        }
        done
    }

    /// Gives up an eviction.
    pub fn cancel_eviction(&mut self, eviction: &Eviction) {
        self.tiers.moving.remove(&eviction.ino);
        self.tiers.discard(eviction.container);
    }

    /// Frees the data of a file in the region, and makes its data that of a container.
    fn give_container(&mut self, ino: Ino, inode: &mut Inode, container: Target) -> Result<()> {
        match inode.form {
            Form::Run { first, pages } => {
                self.space.free_pages_at(&mut self.store, first, pages)?;
                inode.forget_pages(pages.into())?;
            }
            Form::Tree { .. } => {
                self.free_chunks(inode, 0..u64::MAX, u32::MAX)?;
            }
            Form::Empty => {}
            Form::Container(_) => return Err(Error::Changing),
        }
        inode.form = Form::Container(container);
        self.set_inode(ino, inode);
        lock(&self.tiers.heat).removed(ino);
        Ok(())
    }

    /// Moves a file to a container at once, by one operation.
    ///
    /// # Errors `Pinned`, `NoTier` if no tier can take it, `Invalid` if it is in a container; `IsDirectory`,
    /// `NotFound`.
    pub fn evict_now(&mut self, ino: Ino) -> Result<()> {
        let size = self.evictable(ino)?.size;
        for tier in self.targets(&[size]).remove(0) {
            match self.stage(|fs| fs.evict_to(ino, tier)) {
                // The next tier may have space.
                Err(Error::Container(_)) => {}
                done => return done,
            }
        }
        Err(Error::NoTier)
    }

    fn evict_to(&mut self, ino: Ino, tier: TierNumber) -> Result<()> {
        let mut inode = self.file(ino)?;
        let container = self.new_container(tier)?;
        let mut offset = 0;
        while let Some((at, bytes)) = self.next_part(&inode, offset) {
            self.tiers.port.write(container, at, &bytes).map_err(Error::Container)?;
            offset = at + bytes.len() as u64;
        }
        self.tiers.port.set_len(container, inode.size).map_err(Error::Container)?;
        // A header that cannot be written now is written in the background.
        let _ = self.header(ino).map(|header| self.tiers.port.set_header(container, &header));
        self.give_container(ino, &mut inode, container)
    }

    /// Moves a file whose tier is full to another one at once, by one operation.
    ///
    /// # Errors
    /// `NoTier` if no other tier can take it; `InUse` as [`promote`](Self::promote).
    pub(super) fn relocate(&mut self, ino: Ino) -> Result<()> {
        let inode = self.file(ino)?;
        let Form::Container(from) = inode.form else { return Err(Error::NoTier) };
        self.reject_in_use(ino, &inode, from)?;
        for tier in self.targets(&[inode.size]).remove(0) {
            if tier == from.tier {
                continue;
            }
            match self.stage(|fs| fs.copy_to_tier(ino, from, tier)) {
                Err(Error::Container(_)) => {}
                done => return done,
            }
        }
        Err(Error::NoTier)
    }

    /// Rejects a container that lacks bytes of its file: elsewhere, or once it is longer, they would read as
    /// zeros.
    pub(super) fn reject_short(&self, inode: &Inode, container: Container) -> Result<()> {
        let len = self.tiers.port.len(container).map_err(Error::Container)?;
        if len < inode.size { Err(Error::Container(io::ErrorKind::UnexpectedEof.into())) } else { Ok(()) }
    }

    fn copy_to_tier(&mut self, ino: Ino, from: Container, tier: TierNumber) -> Result<()> {
        let mut inode = self.file(ino)?;
        self.reject_short(&inode, from)?;
        let container = self.new_container(tier)?;
        let mut offset = 0;
        while offset < inode.size {
            let start = match self.seek_container(&inode, from, offset, Seek::Data) {
                Err(Error::NoSuchOffset) => break,
                start => start?,
            };
            let mut bytes = vec![0; (inode.size - start).min(COPY_BYTES) as usize];
            self.read_container(from, start, &mut bytes)?;
            self.tiers.port.write(container, start, &bytes).map_err(Error::Container)?;
            offset = start + bytes.len() as u64;
        }
        self.tiers.port.set_len(container, inode.size).map_err(Error::Container)?;
        self.copy_header(ino, from, container);
        self.replace_container(ino, &mut inode, from, container);
        Ok(())
    }

    /// Makes a file's data that of another container; the old one goes after the next commit.
    fn replace_container(&mut self, ino: Ino, inode: &mut Inode, from: Container, to: Container) {
        self.tiers.obsolete.push(from);
        inode.form = Form::Container(to);
        inode.is_passthrough = false;
        self.set_inode(ino, inode);
    }

    /// Gives a container the header of its file, with the path that the old container has if no other is
    /// known.
    fn copy_header(&self, ino: Ino, from: Container, to: Container) {
        let Ok(mut header) = self.header(ino) else { return };
        if header.path.is_empty()
            && let Ok(Some(old)) = self.tiers.port.header(from)
        {
            header.path = old.path;
        }
        // A header that cannot be written now is written in the background.
        let _ = self.tiers.port.set_header(to, &header);
    }

    /// Returns whether a file has to leave the region to grow to `end`.
    pub(super) fn outgrows(&self, inode: &Inode, end: u64) -> bool {
        !self.tiers.table.is_empty()
            && !inode.is_pinned
            && !matches!(inode.form, Form::Container(_))
            && end > self.region_share()
    }

    /// Moves a file that outgrows its share of the region to a container, if a tier can take it.
    pub(super) fn leave_if_outgrown(&mut self, ino: Ino, end: u64) -> Result<()> {
        if self.outgrows(&self.file(ino)?, end) {
            return self.leave(ino);
        }
        Ok(())
    }

    /// Moves a file to a container, if a tier can take it.
    pub(super) fn leave(&mut self, ino: Ino) -> Result<()> {
        match self.evict_now(ino) {
            Err(Error::NoTier | Error::Pinned | Error::TooLarge) => Ok(()),
            done => done,
        }
    }

    /// Evicts some files, as an operation found no space; returns whether there is some after a commit.
    pub(super) fn evict_some(&mut self) -> Result<bool> {
        if self.tiers.table.is_empty() {
            return Ok(false);
        }
        let bytes = (self.geometry().size / VICTIM_PART).min(VICTIM_BYTES_MAX);
        let mut is_done = false;
        for (ino, _) in self.take_victims(bytes, VICTIMS_MAX) {
            match self.evict_now(ino) {
                Ok(()) => is_done = true,
                Err(Error::NoTier) => break,
                Err(Error::Failed) => return Err(Error::Failed),
                Err(_) => {}
            }
        }
        Ok(is_done)
    }

    /// Moves a file's data from its container to the region, by one operation. Nothing happens to other
    /// files.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge` if it exceeds its share of the region; `Container` if it cannot be read; `InUse`
    /// if programs have the container open through the kernel, or mapped.
    pub fn promote(&mut self, ino: Ino) -> Result<()> {
        self.transact(|fs| {
            let mut inode = fs.file(ino)?;
            let Form::Container(container) = inode.form else { return Ok(()) };
            fs.reject_in_use(ino, &inode, container)?;
            if inode.size > fs.region_share() {
                return Err(Error::TooLarge);
            }
            inode.form = Form::Empty;
            fs.copy_to_region(ino, &mut inode, container)?;
            fs.tiers.obsolete.push(container);
            fs.set_inode(ino, &inode);
            let mut heat = lock(&fs.tiers.heat);
            heat.removed(ino);
            heat.found(ino, &inode);
            Ok(())
        })
    }

    fn copy_to_region(&mut self, ino: Ino, inode: &mut Inode, container: Container) -> Result<()> {
        self.reject_short(inode, container)?;
        let (size, chunk_bytes) = (inode.size, self.geometry().chunk_bytes);
        if size <= self.geometry().run_bytes_max() {
            self.grow_run(inode, size..size, Wished::Needed)?;
            return self.copy_part(inode, container, 0..size);
        }
        let mut offset = 0;
        while offset < size {
            let start = match self.seek_container(inode, container, offset, Seek::Data) {
                Err(Error::NoSuchOffset) => break,
                start => start?,
            };
            let index = start / chunk_bytes;
            let chunk = index * chunk_bytes..(index + 1) * chunk_bytes;
            let part = chunk.start..chunk.end.min(size);
            self.map_chunk_for_write(ino, inode, index, chunk, part.clone())?;
            self.copy_part(inode, container, part.clone())?;
            offset = part.end;
        }
        Ok(())
    }

    /// Copies a range of a container to the space that the file has for it.
    fn copy_part(&mut self, inode: &Inode, container: Container, range: Range<u64>) -> Result<()> {
        let mut bytes = vec![0; (range.end - range.start).min(COPY_BYTES) as usize];
        let mut offset = range.start;
        while offset < range.end {
            let segment = self.segment(inode, offset);
            let at =
                segment.at.ok_or_else(|| Error::Damaged("a range that was mapped has holes".to_owned()))?;
            let len = segment.len.min(range.end - offset).min(COPY_BYTES) as usize;
            self.read_container(container, offset, &mut bytes[..len])?;
            self.store.store_data(at, &bytes[..len])?;
            offset += len as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
