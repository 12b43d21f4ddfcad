//! The file system over a region: inodes, names, data.
//!
//! Every change of names, sizes and mappings is one operation (`FileSystem::transact`): it is staged as a
//! whole, or, if it fails, not at all. Operations join a group, which [`FileSystem::sync`] commits; so what
//! survives a power loss is always the state after some operation, and every operation before a `sync` that
//! returned is part of it. Bytes of files are stored in place: after a power loss each byte written since the
//! last `sync` has its old value or a newer one.

mod attributes;
mod compaction;
mod container_writes;
mod containers;
mod data;
pub(crate) mod directory;
mod explain;
mod headers;
mod inodes;
mod moves;
pub(crate) mod names;
mod null_files;
mod passthrough;
mod quotas;
mod rename;
mod slack;
mod space_requests;
mod sweep;
pub(crate) mod tier_changes;
pub(crate) mod tree;
mod unnamed;
mod views;
mod wear;

pub use crate::tiers::Seek;
pub use attributes::{ACCESS_LIST, SetAttribute};
pub(crate) use attributes::{decode as decode_attributes, encode as encode_attributes};
pub use container_writes::ContainerWrite;
pub use containers::TierContents;
pub use explain::{Located, Location};
pub use inodes::{Change, SetTime};
pub use moves::Eviction;
pub use names::New;
pub use quotas::{Counting, OwnerUsage, OwnerUsages};
pub use rename::RenameHow;
pub use space_requests::Allocate;
pub use sweep::Scan;
pub use tier_changes::{BlockReason, Blocked};
pub use views::View;
pub use wear::{Levelling, WEAR_GAP};

use crate::error::{Error, Result};
use crate::layout::chunk::{Entry, Use};
use crate::layout::inode::{Inode, Kind};
use crate::layout::superblock::{Roots, Superblock};
use crate::layout::tier::Tier;
use crate::layout::{Chunk, Geometry, Ino, PAGE_BYTES, Page, Time};
use crate::nvm::Memory;
use crate::space::Space;
use crate::store::Store;
use crate::tiers::{Containers, NoContainers};
use containers::Tiers;
pub(crate) use inodes::InodeIndex;
use quotas::Quotas;
use rustc_hash::{FxHashMap, FxHashSet};
use slack::Slack;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often an operation that finds no space evicts files and tries again.
const RELIEFS_MAX: u32 = 8;

/// When changes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Each operation on names and inodes is durable when it returns; data after a `sync`. For memory where a
    /// commit costs a microsecond.
    EachOperation,
    /// Everything is durable after a `sync`. For regions in files, where a commit costs two flushes.
    Sync,
}

/// A mounted file system.
///
/// Methods with `&self` only read and may run in parallel.
#[derive(Debug)]
pub struct FileSystem<M> {
    store: Store<M>,
    superblock: Superblock,
    space: Space,
    inodes: InodeIndex,
    tiers: Tiers,
    quotas: Quotas,
    /// Whether removed files become null files.
    keeps_null_files: bool,
    /// Null files made since the last commit: until then their pages belong to the removed files.
    fresh_null_files: FxHashSet<Ino>,
    /// Files that were created without a name and may get their first one.
    linkable: FxHashSet<Ino>,
    slack: Slack,
    /// Chunks with data that is written over.
    written_over: FxHashSet<Chunk>,
    durability: Durability,
    read_only: bool,
    /// References that keep inodes without a name.
    references: Mutex<FxHashMap<Ino, u64>>,
    /// Access times that are not staged yet.
    accessed: Mutex<FxHashMap<Ino, Time>>,
}

/// Sizes and counts of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages for files and their metadata.
    pub pages: u64,
    /// Pages that are free, or become free with the next commit.
    pub free_pages: u64,
    /// Inodes that exist.
    pub inodes: u64,
    /// Inodes that could still be created, if they took all free space.
    pub free_inodes: u64,
}

impl<M: Memory> FileSystem<M> {
    /// Writes an empty file system to the memory, with a root directory of this owner, and returns the
    /// memory.
    ///
    /// # Errors
    /// Returns an error if the memory is smaller than the geometry, or cannot be flushed.
    pub fn create(memory: M, superblock: &Superblock, owner: (u32, u32), now: Time) -> Result<M> {
        Self::create_with_tiers(memory, superblock, &[], owner, now)
    }

    /// Writes an empty file system with these tiers below the region, whose directories must be ready.
    ///
    /// # Errors
    /// As [`create`](Self::create); `Invalid` if the paths of the tiers do not fit.
    pub fn create_with_tiers(
        mut memory: M,
        superblock: &Superblock,
        tiers: &[Tier],
        owner: (u32, u32),
        now: Time,
    ) -> Result<M> {
        let superblock = &Superblock { has_tiers: true, ..*superblock };
        let geometry = superblock.geometry;
        if geometry.size > memory.size() || !geometry.is_valid() {
            return Err(Error::Invalid);
        }
        let system_end = u64::from(geometry.system_chunks()) * geometry.chunk_bytes;
        memory.zero(0, system_end);
        memory.flush(0, system_end);
        memory.fence()?;
        let store = Store::open(memory, Geometry::LOG_AT, geometry.log_bytes, false)?;
        let space = Space::load(&store, geometry, false)?;
        let mut fs = Self::assemble(store, *superblock, space, InodeIndex::default(), false);
        fs.transact(|fs| {
            for chunk in (0..geometry.system_chunks()).map(Chunk) {
                let entry = Entry { usage: Use::System, wear: 0, owner: 0, index: 0, free_inodes: 0 };
                fs.space.set_entry(&mut fs.store, chunk, &entry);
            }
            let root =
                fs.new_inode(Inode::new(Kind::Directory.mode_bits() | 0o755, owner.0, owner.1, now, 0))?;
            debug_assert_eq!(root, Ino::ROOT);
            fs.set_tiers(tiers)?;
            fs.new_directory(root, Ino::ROOT)
        })?;
        fs.commit()?;
        // The superblock comes last: without it there is no file system.
        let page = superblock.encode();
        for at in [Geometry::COPY_AT, 0] {
            fs.store.memory_mut().store(at, &page);
            fs.store.memory_mut().flush(at, PAGE_BYTES);
            fs.store.memory_mut().fence()?;
        }
        Ok(fs.into_memory())
    }

    /// Mounts the file system in `memory`; what a power loss left unfinished is finished or undone.
    ///
    /// # Errors
    /// `NoFileSystem`, `UnknownFormat`, `Truncated` or `Damaged`, by what is wrong with the region; `Io` if
    /// it cannot be flushed.
    pub fn open(memory: M, durability: Durability) -> Result<Self> {
        Self::open_with(memory, durability, |_, _| Ok(Arc::new(NoContainers)))
    }

    /// As [`open`](Self::open), with the tiers below the region, which `tiers` opens.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of `tiers`.
    pub fn open_with(
        memory: M,
        durability: Durability,
        tiers: impl FnOnce(&Superblock, &[Tier]) -> Result<Arc<dyn Containers>>,
    ) -> Result<Self> {
        let mut fs = Self::load(memory, durability, false)?;
        fs.tiers.port = tiers(&fs.superblock, &fs.tiers.table)?;
        fs.reclaim_orphans()?;
        fs.commit()?;
        Ok(fs)
    }

    /// Opens the file system in `memory` without storing anything there. Damage of the tables, which say what
    /// is free, does not matter then; without the tier table, files in tiers cannot be read.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_read_only(memory: M) -> Result<Self> {
        Self::load(memory, Durability::Sync, true)
    }

    /// As [`open_read_only`](Self::open_read_only), with the tiers below the region, which `tiers` opens.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of `tiers`.
    pub fn open_read_only_with(
        memory: M,
        tiers: impl FnOnce(&Superblock, &[Tier]) -> Result<Arc<dyn Containers>>,
    ) -> Result<Self> {
        let mut fs = Self::load(memory, Durability::Sync, true)?;
        fs.tiers.port = tiers(&fs.superblock, &fs.tiers.table)?;
        Ok(fs)
    }

    fn load(memory: M, durability: Durability, read_only: bool) -> Result<Self> {
        let superblock = read_superblock(&memory)?;
        let geometry = superblock.geometry;
        let store = Store::open(memory, Geometry::LOG_AT, geometry.log_bytes, read_only)?;
        let space = Space::load(&store, geometry, read_only)?;
        let mut fs = Self::assemble(store, superblock, space, InodeIndex::default(), read_only);
        fs.open_tiers();
        if fs.has_damaged_tier_table() && !read_only {
            return Err(Error::TierTable);
        }
        fs.inodes = fs.load_inode_index(read_only)?;
        fs.durability = durability;
        match fs.open_quotas() {
            // Without limits nothing changes in a file system that is only read.
            Err(Error::Damaged(_)) if read_only => {}
            opened => opened?,
        }
        Ok(fs)
    }

    /// Opens a file system whose tables may be damaged, to repair it. Its log is applied.
    pub(crate) fn open_damaged(memory: M, superblock: Superblock) -> Result<Self> {
        let geometry = superblock.geometry;
        let store = Store::open(memory, Geometry::LOG_AT, geometry.log_bytes, false)?;
        let space = Space::load(&store, geometry, true)?;
        let mut fs = Self::assemble(store, superblock, space, InodeIndex::default(), false);
        fs.space.give_up_reserve();
        fs.open_tiers();
        fs.inodes = fs.load_inode_index(true)?;
        Ok(fs)
    }

    /// Reads the tables again after a repair has changed them.
    pub(crate) fn reload_tables(&mut self) -> Result<()> {
        self.space = Space::load(&self.store, self.geometry(), true)?;
        self.space.give_up_reserve();
        self.inodes = self.load_inode_index(true)?;
        Ok(())
    }

    /// Returns the store and the free space, which a repair changes together.
    pub(crate) const fn parts(&mut self) -> (&mut Store<M>, &mut Space) {
        (&mut self.store, &mut self.space)
    }

    /// Commits what is staged if it fills half of the log.
    pub(crate) fn commit_if_large(&mut self) -> Result<()> {
        match self.store.staged_lines() > self.store.group_lines_max() / 2 {
            true => self.commit(),
            false => Ok(()),
        }
    }

    fn assemble(
        mut store: Store<M>,
        superblock: Superblock,
        space: Space,
        inodes: InodeIndex,
        read_only: bool,
    ) -> Self {
        store.set_chunk_bytes(superblock.geometry.chunk_bytes);
        Self {
            store,
            superblock,
            space,
            inodes,
            tiers: Tiers::new(Vec::new(), Arc::new(NoContainers)),
            quotas: Quotas::default(),
            keeps_null_files: true,
            fresh_null_files: FxHashSet::default(),
            linkable: FxHashSet::default(),
            slack: Slack::default(),
            written_over: FxHashSet::default(),
            durability: Durability::Sync,
            read_only,
            references: Mutex::default(),
            accessed: Mutex::default(),
        }
    }

    /// Returns what never changes about the file system.
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns when changes become durable.
    pub const fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns whether nothing can be changed.
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the store, for checks and tests.
    pub const fn store(&self) -> &Store<M> {
        &self.store
    }

    /// Returns the store, for tests to control its memory.
    pub const fn store_mut(&mut self) -> &mut Store<M> {
        &mut self.store
    }

    /// Ends the use of the file system and returns its memory, without a `sync`.
    pub fn into_memory(self) -> M {
        self.store.into_memory()
    }

    /// Returns the free space, for checks.
    pub const fn space(&self) -> &Space {
        &self.space
    }

    const fn geometry(&self) -> Geometry {
        self.superblock.geometry
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots::decode(&self.store.bytes(Geometry::ROOTS_AT))
    }

    pub(crate) fn set_roots(&mut self, roots: &Roots) {
        self.store.stage(Geometry::ROOTS_AT, &roots.encode());
    }

    /// Runs an operation: all of its changes are staged, or none if it fails. If it found no space, it runs
    /// again once null files and slack are freed and a commit made their space reusable, and then a few times
    /// after compaction or evictions.
    pub(crate) fn transact<T>(&mut self, operation: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let done = self.stage(operation)?;
        if self.durability == Durability::EachOperation {
            self.commit()?;
        }
        Ok(done)
    }

    /// Runs an operation that is not made durable even with [`Durability::EachOperation`].
    fn stage<T>(&mut self, mut operation: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if self.store.has_failed() {
            return Err(Error::Failed);
        }
        self.count_wear();
        if self.store.staged_lines() > self.store.group_lines_max() / 2 {
            self.commit()?;
        }
        let mut reliefs = 0;
        loop {
            self.store.begin();
            self.space.begin();
            self.inodes.begin();
            self.tiers.begin();
            self.quotas.begin();
            let error = match operation(self) {
                Ok(_) if self.store.staged_lines() > self.store.group_lines_max() => Error::TooLarge,
                Ok(done) => match self.quotas.finish() {
                    Ok(()) => return Ok(done),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            self.store.abort();
            self.space.abort(&self.store);
            self.inodes.abort();
            self.tiers.abort();
            let can_free =
                self.space.quarantined() > 0 || self.roots().null_count > 0 || !self.slack.is_empty();
            if !matches!(error, Error::NoSpace) || reliefs == RELIEFS_MAX {
                return Err(error);
            }
            if reliefs == 0 && can_free {
                self.free_null_files()?;
                self.trim_all()?;
            } else if !self.compact()? && !self.evict_some()? {
                return Err(error);
            }
            reliefs += 1;
            self.commit()?;
        }
    }

    /// Makes every operation, and all data written, durable.
    ///
    /// # Errors
    /// Returns the error of the flush. Afterwards nothing can be changed: what had not been durable may be
    /// lost.
    pub fn sync(&mut self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let accessed = std::mem::take(&mut *lock(&self.accessed));
        for (ino, time) in accessed {
            self.stage(|fs| {
                let mut inode = fs.inode(ino)?;
                inode.accessed = time;
                fs.set_inode(ino, &inode);
                Ok(())
            })
            // An inode that was freed since its last read has no access time to keep.
            .or_else(|error| if matches!(error, Error::NotFound) { Ok(()) } else { Err(error) })?;
        }
        self.commit()
    }

    /// Returns whether a `sync` has something to make durable.
    pub fn is_dirty(&self) -> bool {
        self.store.has_changes() || !lock(&self.accessed).is_empty()
    }

    pub(crate) fn commit(&mut self) -> Result<()> {
        self.sync_containers()?;
        self.store.commit()?;
        self.space.committed();
        self.fresh_null_files.clear();
        self.settle_containers();
        self.tiers.passthrough.committed();
        Ok(())
    }

    /// Returns sizes and counts.
    pub fn usage(&self) -> Usage {
        let geometry = self.geometry();
        let chunks = u64::from(geometry.chunks() - geometry.system_chunks()) - self.space.reserved();
        let roots = self.roots();
        let free_pages = self.space.free_pages_after_commit();
        let free_pages = free_pages.saturating_add(roots.null_pages).min(chunks * geometry.chunk_pages());
        let slots = geometry.chunk_inodes() - crate::layout::BITMAP_SLOTS;
        Usage {
            page_bytes: PAGE_BYTES,
            pages: chunks * geometry.chunk_pages(),
            free_pages,
            inodes: self.inodes.count().saturating_sub(roots.null_count.into()),
            free_inodes: self.inodes.free() + free_pages / geometry.chunk_pages() * slots,
        }
    }

    /// Returns the least and the largest wear of a chunk: how often it was allocated. Reads the chunk table.
    pub fn wear(&self) -> (u32, u32) {
        let geometry = self.geometry();
        let chunks = (geometry.system_chunks()..geometry.chunks()).map(Chunk);
        let wear = chunks.filter_map(|chunk| Some(self.space.entry(&self.store, chunk).ok()?.wear));
        wear.fold((u32::MAX, 0), |(min, max), wear| (min.min(wear), max.max(wear)))
    }

    /// Adds a reference to an inode, which then stays even without a name.
    pub fn refer(&self, ino: Ino) {
        *lock(&self.references).entry(ino).or_default() += 1;
    }

    /// Removes `count` references, and frees the inode if it has neither references nor a name.
    ///
    /// # Errors
    /// Returns an error if the inode cannot be freed; the next mount will free it.
    pub fn forget(&mut self, ino: Ino, count: u64) -> Result<()> {
        if self.drop_references(ino, count) { self.reclaim_if_orphan(ino) } else { Ok(()) }
    }

    /// Removes references; returns whether none is left, so that [`forget`](Self::forget) with a count of 0
    /// should look whether the inode can be freed.
    pub fn drop_references(&self, ino: Ino, count: u64) -> bool {
        let mut references = lock(&self.references);
        let Some(left) = references.get_mut(&ino) else { return true };
        *left = left.saturating_sub(count);
        let none = *left == 0;
        if none {
            references.remove(&ino);
            // The kernel forgets millions of files at once when it needs memory.
            let capacity = references.capacity();
            if references.len() < capacity / 8 {
                references.shrink_to(capacity / 2);
            }
        }
        none
    }

    /// Removes all references, as the end of a mount does.
    ///
    /// # Errors
    /// Returns an error if inodes without a name cannot be freed; the next mount will free them.
    pub fn forget_all(&mut self) -> Result<()> {
        lock(&self.references).clear();
        self.reclaim_orphans()
    }

    fn is_referenced(&self, ino: Ino) -> bool {
        lock(&self.references).contains_key(&ino)
    }

    fn page_bytes_at(&self, page: Page) -> [u8; PAGE_BYTES as usize] {
        self.store.bytes(page.address())
    }
}

/// Reads the superblock, or its copy if it is damaged.
pub(crate) fn read_superblock<M: Memory>(memory: &M) -> Result<Superblock> {
    let read = |at: u64| {
        let mut page = [0; PAGE_BYTES as usize];
        if memory.size() < at + PAGE_BYTES {
            return Err(Error::NoFileSystem);
        }
        memory.load(at, &mut page);
        Superblock::decode(&page)
    };
    let superblock = read(0).or_else(|error| read(Geometry::COPY_AT).map_err(|_| error))?;
    let (size, found) = (superblock.geometry.size, memory.size());
    if size > found {
        return Err(Error::Truncated { found, size });
    }
    Ok(superblock)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
