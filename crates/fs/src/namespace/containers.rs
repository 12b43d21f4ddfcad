//! Files whose contents are in containers.
//!
//! What keeps each of them whole across a power loss:
//!
//! - A container is durable, its name included, before the commit that refers to it, and so is everything
//!   that was written to containers since the commit before.
//! - A container is removed, or made shorter, only after the commit that no longer needs what is lost.
//! - Bytes beyond a file's size are undefined, also in its container. Whatever grows the file zeroes them.

use super::container_writes::Writing;
use super::passthrough::Passthrough;
use super::tier_changes::Blocked;
use super::{FileSystem, Scan, Seek, lock};
use crate::error::{Error, Result};
use crate::layout::inode::{Form, Inode};
use crate::layout::tier::{self, Container, Role, TIERS_AT, Tier, TierNumber};
use crate::layout::{Ino, PAGE_BYTES, Time};
use crate::nvm::Memory;
use crate::tiers::{Containers, Heat};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Containers of a mounted file system.
#[derive(Debug)]
pub(super) struct Tiers {
    /// The tiers as they were when the file system was opened, or when they were added; their roles are those
    /// of now.
    pub(super) table: Vec<Tier>,
    /// The tier table cannot be read, so `table` has none. Files in tiers cannot be read then.
    pub(super) is_table_damaged: bool,
    pub(super) port: Arc<dyn Containers>,
    /// Written since the last commit.
    dirty: FxHashSet<Container>,
    /// Those that are being written while other operations go on.
    pub(super) writing: Mutex<Writing>,
    /// Not referred to by what is staged: to be removed after the next commit.
    pub(super) obsolete: Vec<Container>,
    /// Those that no file has, by what is durable: to be removed.
    garbage: Vec<Container>,
    /// Whether somebody else removes garbage, without holding up the file system.
    defers_removals: bool,
    /// Length of `obsolete` when the operation in progress began.
    mark: usize,
    /// Created by the operation in progress.
    created: Vec<Container>,
    /// Files that became smaller: after the next commit their containers may, too.
    shortened: FxHashSet<Ino>,
    /// Files that are being copied to a container, and whether they have changed since that began.
    pub(super) moving: FxHashMap<Ino, bool>,
    /// Directories that were renamed: the paths of all files below are others.
    pub(super) renamed: BTreeSet<Ino>,
    /// Files in containers whose headers are old.
    pub(super) stale: BTreeSet<Ino>,
    pub(super) heat: Mutex<Heat>,
    pub(super) passthrough: Passthrough,
    /// What keeps the files of tiers that are leaving there.
    pub(super) blocked: Mutex<BTreeMap<TierNumber, Blocked>>,
}

/// Counts of files, by where their data is or has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierContents {
    /// Files and bytes of each tier.
    pub tiers: Vec<(u64, u64)>,
    /// Files whose data is lost.
    pub lost: u64,
    /// Files that are pinned to the region.
    pub pinned: u64,
    /// Their sizes.
    pub pinned_bytes: u64,
}

impl Tiers {
    pub(super) fn new(table: Vec<Tier>, port: Arc<dyn Containers>) -> Self {
        Self {
            table,
            is_table_damaged: false,
            port,
            dirty: FxHashSet::default(),
            writing: Mutex::default(),
            obsolete: Vec::new(),
            garbage: Vec::new(),
            defers_removals: false,
            mark: 0,
            created: Vec::new(),
            shortened: FxHashSet::default(),
            moving: FxHashMap::default(),
            renamed: BTreeSet::new(),
            stale: BTreeSet::new(),
            heat: Mutex::default(),
            passthrough: Passthrough::default(),
            blocked: Mutex::default(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.created.clear();
        self.mark = self.obsolete.len();
    }

    /// Takes back what the operation did: nothing durable refers to the containers that it created.
    pub(super) fn abort(&mut self) {
        self.obsolete.truncate(self.mark);
        for container in std::mem::take(&mut self.created) {
            self.dirty.remove(&container);
            // At once, as the next container gets the same number. One that stays is replaced by that.
            let _ = self.port.remove(container);
        }
    }

    /// Gives up a container that nothing refers to, staged or durable, and whose number is never used again.
    pub(super) fn discard(&mut self, container: Container) {
        self.dirty.remove(&container);
        self.garbage.push(container);
        if !self.defers_removals {
            self.clear_garbage();
        }
    }

    /// Removes garbage; returns whether there was any.
    pub(super) fn clear_garbage(&mut self) -> bool {
        let garbage = std::mem::take(&mut self.garbage);
        for container in &garbage {
            // If it stays, it is garbage, which the next mount removes.
            let _ = self.port.remove(*container);
        }
        !garbage.is_empty()
    }

    /// Notes that a container was written.
    pub(super) fn note_written(&mut self, container: Container) {
        self.dirty.insert(container);
    }

    /// Returns whether files can be in this tier.
    fn has(&self, tier: TierNumber) -> bool {
        self.table.get(tier.0 as usize).is_some_and(|tier| !tier.is_removed())
    }

    /// Returns whether a tier takes files.
    pub(super) fn is_active(&self, tier: TierNumber) -> bool {
        self.table.get(tier.0 as usize).is_some_and(|tier| tier.role == Role::Active)
    }

    /// Notes a change of an inode.
    pub(super) fn note_change(&mut self, ino: Ino, inode: &Inode) {
        self.note_data(ino);
        if matches!(inode.form, Form::Container(_)) {
            self.stale.insert(ino);
        }
    }

    /// Notes that data of a file changes.
    pub(super) fn note_data(&mut self, ino: Ino) {
        if let Some(has_changed) = self.moving.get_mut(&ino) {
            *has_changed = true;
        }
    }

    /// Makes everything written to containers durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        for container in &self.dirty {
            if !self.obsolete.contains(container) {
                self.port.sync(*container).map_err(Error::Container)?;
            }
        }
        self.dirty.clear();
        Ok(())
    }
}

impl<M: Memory> FileSystem<M> {
    /// Returns the tiers below the region, by number, those included that were removed. `next` of each is
    /// what it was when the file system was opened.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers.table
    }

    /// Returns the containers of the tiers.
    pub fn containers(&self) -> Arc<dyn Containers> {
        Arc::clone(&self.tiers.port)
    }

    /// Returns containers that the next commit should find durable, so that it need not wait long.
    pub fn dirty_containers(&self) -> Vec<Container> {
        self.tiers.dirty.iter().copied().collect()
    }

    /// From now on, garbage is removed by whoever [takes](Self::take_garbage) it, and not by operations,
    /// which would hold up others.
    pub const fn defer_removals(&mut self) {
        self.tiers.defers_removals = true;
    }

    /// Takes the containers that no file has any more. The next mount removes those that stay.
    pub fn take_garbage(&mut self) -> Vec<Container> {
        std::mem::take(&mut self.tiers.garbage)
    }

    /// Returns whether there are containers that no file has any more.
    pub const fn has_garbage(&self) -> bool {
        !self.tiers.garbage.is_empty()
    }

    /// Removes the containers that no file has any more.
    pub fn clear_garbage(&mut self) {
        self.tiers.clear_garbage();
    }

    /// Reads the tier table as it is now.
    pub(crate) fn load_tiers(&self) -> Result<Vec<Tier>> {
        if !self.superblock.has_tiers {
            return Ok(Vec::new());
        }
        tier::decode(&self.store.bytes(TIERS_AT)).ok_or(Error::TierTable)
    }

    /// Reads the tier table when the file system is opened. If it is damaged, nothing is known about tiers.
    pub(super) fn open_tiers(&mut self) {
        let table = self.load_tiers();
        self.tiers.is_table_damaged = table.is_err();
        self.tiers.table = table.unwrap_or_default();
    }

    /// Returns whether the tier table is damaged.
    pub const fn has_damaged_tier_table(&self) -> bool {
        self.tiers.is_table_damaged
    }

    /// Stages a new tier table in place of a damaged one.
    pub(crate) fn restore_tiers(&mut self, table: Vec<Tier>) -> Result<()> {
        self.set_tiers(&table)?;
        (self.tiers.table, self.tiers.is_table_damaged) = (table, false);
        Ok(())
    }

    pub(super) fn set_tiers(&mut self, tiers: &[Tier]) -> Result<()> {
        let page = tier::encode(tiers).ok_or(Error::Invalid)?;
        self.store.stage(TIERS_AT, &page);
        Ok(())
    }

    /// Rejects a container of a tier that does not exist.
    pub(super) fn check_tier(&self, ino: Ino, inode: &Inode) -> Result<()> {
        match inode.form {
            Form::Container(container) if container == Container::lost(ino) => Ok(()),
            Form::Container(Container { tier, .. })
                if !self.tiers.is_table_damaged && !self.tiers.has(tier) =>
            {
                Err(Error::Damaged(format!("inode {} is in tier {}, which does not exist", ino.0, tier.0)))
            }
            _ => Ok(()),
        }
    }

    /// Makes containers durable, before a commit.
    pub(super) fn sync_containers(&mut self) -> Result<()> {
        if self.store.has_failed() {
            return Err(Error::Failed);
        }
        // As for the region: what was acknowledged may be lost, and a repeated sync cannot tell.
        self.tiers.sync().inspect_err(|_| self.store.fail())
    }

    /// Removes and shortens containers, after a commit.
    pub(super) fn settle_containers(&mut self) {
        for container in std::mem::take(&mut self.tiers.obsolete) {
            self.tiers.discard(container);
        }
        for ino in std::mem::take(&mut self.tiers.shortened) {
            let Ok(Inode { form: Form::Container(container), size, is_passthrough: false, .. }) =
                self.raw_inode(ino)
            else {
                continue;
            };
            // Bytes beyond the size do no harm.
            if self.tiers.port.len(container).is_ok_and(|len| len > size) {
                self.tiers.disturb(container);
                let _ = self.tiers.port.set_len(container, size);
            }
        }
    }

    /// Chooses the number of a container, which is to be created.
    pub(super) fn number_container(&mut self, tier: TierNumber) -> Result<Container> {
        let mut tiers = self.load_tiers()?;
        let entry = tiers.get_mut(tier.0 as usize).filter(|tier| tier.role == Role::Active);
        let entry = entry.ok_or(Error::NoTier)?;
        let container = Container { tier, number: entry.next };
        entry.next += 1;
        self.set_tiers(&tiers)?;
        Ok(container)
    }

    /// Creates a container in a tier.
    pub(super) fn new_container(&mut self, tier: TierNumber) -> Result<Container> {
        let container = self.number_container(tier)?;
        self.tiers.port.create(container).map_err(Error::Container)?;
        self.tiers.created.push(container);
        self.tiers.dirty.insert(container);
        Ok(container)
    }

    /// Notes an access to a file's contents.
    pub(super) fn note_heat(&self, ino: Ino, inode: &Inode, range: &Range<u64>) {
        if !self.tiers.table.is_empty() && !self.read_only {
            lock(&self.tiers.heat).accessed(ino, inode, range);
        }
    }

    /// Returns the container that a read at `offset` is about, and how many bytes the file has there, at most
    /// `len`; `None` if the file is in the region. The container may be gone, or shorter, by the time it is
    /// read: [`read`](Self::read) tells then.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn container_to_read(&self, ino: Ino, offset: u64, len: usize) -> Result<Option<(Container, usize)>> {
        let inode = self.inode(ino)?;
        let Form::Container(container) = inode.form else { return Ok(None) };
        let len = inode.size.saturating_sub(offset).min(len as u64);
        self.note_heat(ino, &inode, &(offset..offset.saturating_add(len)));
        Ok(Some((container, len as usize)))
    }

    pub(super) fn read_container(&self, container: Container, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.tiers.port.read(container, offset, out) {
            Ok(read) if read == out.len() => Ok(()),
            Ok(_) => Err(Error::Container(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(Error::Container(error)),
        }
    }

    /// Changes a container. A change that fails was not acknowledged, so no commit has to wait for it.
    pub(super) fn change_container(
        &mut self,
        container: Container,
        change: impl FnOnce(&dyn Containers) -> io::Result<()>,
    ) -> Result<()> {
        self.tiers.disturb(container);
        change(&*self.tiers.port).map_err(Error::Container)?;
        self.tiers.dirty.insert(container);
        Ok(())
    }

    /// Makes the bytes of a range beyond the file's size zeros, as far as the container has them.
    fn zero_beyond(&mut self, container: Container, range: Range<u64>) -> Result<()> {
        self.change_container(container, |port| {
            let end = port.len(container)?.min(range.end);
            if range.start < end { port.punch(container, range.start..end) } else { Ok(()) }
        })
    }

    /// Writes bytes of a file in place.
    pub(super) fn write_container(
        &mut self,
        inode: &mut Inode,
        container: Container,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        self.reject_short(inode, container)?;
        if offset > inode.size {
            self.zero_beyond(container, inode.size..offset)?;
        }
        self.change_container(container, |port| port.write(container, offset, bytes))?;
        inode.size = inode.size.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Sets the size of a file. The container becomes shorter after the next commit only, unless its length
    /// is the size.
    pub(super) fn resize_container(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        container: Container,
        size: u64,
    ) -> Result<()> {
        self.tiers.disturb(container);
        let is_in_place =
            inode.is_passthrough && (size > 0 || self.reject_in_use(ino, inode, container).is_err());
        if is_in_place {
            self.change_container(container, |port| port.set_len(container, size))?;
        } else if size == 0 {
            self.tiers.obsolete.push(container);
            inode.form = Form::Empty;
        } else if size < inode.size {
            self.tiers.shortened.insert(ino);
        } else {
            self.reject_short(inode, container)?;
            self.grow_container(container, inode.size..size)?;
        }
        inode.size = size;
        Ok(())
    }

    fn grow_container(&mut self, container: Container, range: Range<u64>) -> Result<()> {
        self.zero_beyond(container, range.clone())?;
        self.change_container(container, |port| match port.len(container)? < range.end {
            true => port.set_len(container, range.end),
            false => Ok(()),
        })
    }

    pub(super) fn allocate_container(&mut self, container: Container, range: Range<u64>) -> Result<()> {
        self.change_container(container, |port| port.allocate(container, range))
    }

    /// Makes a range of a file zeros, up to its end.
    pub(super) fn punch_container(
        &mut self,
        inode: &Inode,
        container: Container,
        range: &Range<u64>,
    ) -> Result<()> {
        let end = range.end.min(inode.size);
        if range.start >= end {
            return Ok(());
        }
        self.change_container(container, |port| port.punch(container, range.start..end))
    }

    /// Returns the first data or hole at or after `offset`, which is before the end.
    pub(super) fn seek_container(
        &self,
        inode: &Inode,
        container: Container,
        offset: u64,
        what: Seek,
    ) -> Result<u64> {
        let found = self.tiers.port.seek(container, offset, what).map_err(Error::Container)?;
        match (found.filter(|found| *found < inode.size), what) {
            (Some(found), _) => Ok(found),
            (None, Seek::Hole) => Ok(inode.size),
            (None, Seek::Data) => Err(Error::NoSuchOffset),
        }
    }

    /// Notes that a container could not be made durable, before a commit needed that.
    pub fn note_failed_sync(&mut self, container: Container) {
        // One that was removed meanwhile is not there, and nobody needs it.
        if self.tiers.dirty.contains(&container) {
            self.store.fail();
        }
    }

    /// Counts the files of each tier, lost and pinned ones. Reads all inodes.
    pub fn tier_contents(&self) -> TierContents {
        let mut contents =
            TierContents { tiers: vec![(0, 0); self.tiers.table.len()], ..TierContents::default() };
        let mut scan = Scan::default();
        while self.scan_with(&mut scan, |_, inode| {
            if inode.is_pinned {
                contents.pinned += 1;
                contents.pinned_bytes += inode.size;
            }
            let Form::Container(container) = inode.form else { return };
            if container.is_lost() {
                contents.lost += 1;
            } else if let Some((files, bytes)) = contents.tiers.get_mut(container.tier.0 as usize) {
                (*files, *bytes) = (*files + 1, *bytes + inode.size);
            }
        }) {}
        contents
    }

    /// Pins a file to the region, or ends that. A pinned file is not evicted; one in a container stays there.
    ///
    /// # Errors
    /// `IsDirectory` or `Invalid` for other files; `NotFound`.
    pub fn pin(&mut self, ino: Ino, is_pinned: bool, now: Time) -> Result<()> {
        self.transact(|fs| {
            let mut inode = fs.file(ino)?;
            inode.is_pinned = is_pinned;
            inode.changed = now;
            fs.set_inode(ino, &inode);
            Ok(())
        })
    }

    /// Returns the bytes of the region that eviction counts as used, and all of them.
    pub fn fill(&self) -> (u64, u64) {
        let usage = self.usage();
        ((usage.pages - usage.free_pages) * PAGE_BYTES, usage.pages * PAGE_BYTES)
    }
}
