//! Models of Linux's file systems in memory, and of the part of the kernel above every file system.
//!
//! A file is a list of pages of the page cache, in the kernel's linear mapping of all memory. A read or write
//! looks up each page (its slot in the file's tree, and its descriptor), works for it, and copies. ext2
//! allocates a block for a page that is new. Its blocks on the ramdisk are read and written back beside the
//! load, or, with [`LinuxCosts::request`], with each page that is read or written.

use super::{Address, Cycles, Machine, PageSize, Place, SMALL_PAGE_BYTES};
use rustc_hash::FxHashMap;
use weir_policy::eviction::items::FileKey;

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinuxKind {
    /// The page cache alone.
    Ramfs,
    /// The page cache, with accounting.
    Tmpfs,
    /// The page cache above a block device of memory.
    Ext2,
}

/// Work above every file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VfsCosts {
    /// A system call with an open file.
    pub call: Cycles,
    /// Opening and closing a file that is known.
    pub open: Cycles,
    /// Creating a file and closing it.
    pub create: Cycles,
    /// Removing a file.
    pub remove: Cycles,
}

/// Work of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxCosts {
    /// Reading a page, copying apart.
    pub page_read: Cycles,
    /// Writing a page, copying apart.
    pub page_write: Cycles,
    /// Adding a page to a file, or taking it away.
    pub page_change: Cycles,
    /// Allocating a block for a new page, or freeing it.
    pub block_change: Cycles,
    /// Creating an inode and its name, or removing them.
    pub file_change: Cycles,
    /// Requesting a page of the block device, copying apart; `None` if the page cache has all pages, and is
    /// written back beside the load.
    pub request: Option<Cycles>,
}

// Parts of the linear mapping, far from each other.
const PAGES: u64 = 1 << 40;
const DESCRIPTORS: u64 = 2 << 40;
const TREES: u64 = 3 << 40;
const INODES: u64 = 4 << 40;
const NAMES: u64 = 5 << 40;
const BUCKETS: u64 = 6 << 40;
const DIRECTORIES: u64 = 7 << 40;
const BITMAPS: u64 = 8 << 40;
const BLOCKS: u64 = 9 << 40;
/// Bytes of an inode in memory, what is read of it in a call, and what is changed.
const INODE_BYTES: u64 = 1024;
const INODE_READ: u64 = 256;
const INODE_CHANGED: u64 = 64;
/// Bytes of a name in memory, and what is read of it.
const NAME_BYTES: u64 = 256;
const NAME_READ: u64 = 192;
/// Bytes of a page's descriptor.
const DESCRIPTOR_BYTES: u64 = 64;
/// Bytes of a file's slot for a page, and slots of a node of its tree.
const SLOT_BYTES: u64 = 8;
const NODE_SLOTS: u64 = 64;
/// Pages whose bits are in one bitmap of blocks.
const BITMAP_PAGES: u64 = 32 << 10;
/// Buckets of the table of names.
const BUCKET_COUNT: u64 = 1 << 17;

/// The kernel above a file system: system calls, and names and inodes in memory.
#[derive(Clone, Copy, Debug)]
pub struct Vfs {
    costs: VfsCosts,
    /// Pages of the linear mapping.
    pages: PageSize,
}

impl Vfs {
    /// Creates it; the kernel's linear mapping has pages of this size.
    pub const fn new(costs: VfsCosts, pages: PageSize) -> Self {
        Self { costs, pages }
    }

    const fn place(&self, at: u64) -> Place {
        Place { at: Address(at), pages: self.pages }
    }

    /// Calls the system with an open file.
    pub fn call(&self, machine: &mut Machine, file: FileKey) {
        machine.work(self.costs.call);
        machine.read(self.place(INODES + file.0 * INODE_BYTES), INODE_READ);
    }

    /// Opens and closes a file.
    pub fn open(&self, machine: &mut Machine, file: FileKey) {
        machine.work(self.costs.open);
        self.look_up(machine, file);
    }

    /// Creates a file.
    pub fn create(&self, machine: &mut Machine, file: FileKey) {
        machine.work(self.costs.create);
        self.look_up(machine, file);
        machine.write(self.place(INODES + file.0 * INODE_BYTES), INODE_BYTES);
        machine.write(self.place(NAMES + file.0 * NAME_BYTES), NAME_BYTES);
    }

    /// Removes a file.
    pub fn remove(&self, machine: &mut Machine, file: FileKey) {
        machine.work(self.costs.remove);
        self.look_up(machine, file);
    }

    fn look_up(&self, machine: &mut Machine, file: FileKey) {
        // Names that follow each other are in buckets anywhere.
        let bucket = file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) % BUCKET_COUNT;
        machine.read(self.place(BUCKETS + bucket * 8), 8);
        machine.read(self.place(NAMES + file.0 * NAME_BYTES), NAME_READ);
        machine.read(self.place(INODES + file.0 * INODE_BYTES), INODE_READ);
        machine.write(self.place(INODES + file.0 * INODE_BYTES), INODE_CHANGED);
    }
}

#[derive(Clone, Debug, Default)]
struct File {
    /// Numbers of pages of memory.
    pages: Vec<u64>,
    size: u64,
}

/// A model of one of Linux's file systems.
#[derive(Clone, Debug)]
pub struct LinuxFs {
    kind: LinuxKind,
    costs: LinuxCosts,
    vfs: Vfs,
    directories: u64,
    files: FxHashMap<FileKey, File>,
    free: Vec<u64>,
    next_page: u64,
}

impl LinuxFs {
    /// Creates a file system without files, which come to be in so many directories.
    pub fn new(kind: LinuxKind, costs: LinuxCosts, vfs: Vfs, directories: u64) -> Self {
        let files = FxHashMap::default();
        Self { kind, costs, vfs, directories: directories.max(1), files, free: Vec::new(), next_page: 0 }
    }

    /// Returns a file's size.
    pub fn size(&self, file: FileKey) -> u64 {
        self.files.get(&file).map_or(0, |file| file.size)
    }

    /// Returns the number of pages of memory that files ever took.
    pub const fn memory_pages(&self) -> u64 {
        self.next_page
    }

    /// Creates an empty file.
    pub fn create(&mut self, machine: &mut Machine, file: FileKey) {
        self.vfs.create(machine, file);
        self.change_directory(machine, file);
        self.files.insert(file, File::default());
    }

    /// Removes a file.
    pub fn remove(&mut self, machine: &mut Machine, file: FileKey) {
        self.vfs.remove(machine, file);
        self.change_directory(machine, file);
        for page in self.files.remove(&file).unwrap_or_default().pages {
            self.change_page(machine, page);
            self.free.push(page);
        }
    }

    /// Reads bytes of a file, as far as it has them, to `to`.
    pub fn read(&self, machine: &mut Machine, file: FileKey, offset: u64, len: u64, to: Place) {
        self.vfs.call(machine, file);
        let Some(known) = self.files.get(&file) else { return };
        let end = (offset + len).min(known.size);
        for (at, len) in pieces(offset, end) {
            machine.work(self.costs.page_read);
            let page = self.find(machine, file, known, at);
            self.request(machine, page, false);
            machine.copy(page, to.plus(at - offset), len);
        }
        // The access time.
        machine.write(self.vfs.place(INODES + file.0 * INODE_BYTES), INODE_CHANGED);
    }

    /// Writes bytes of a file from `from`.
    pub fn write(&mut self, machine: &mut Machine, file: FileKey, offset: u64, len: u64, from: Place) {
        self.vfs.call(machine, file);
        let end = offset + len;
        let mut known = self.files.remove(&file).unwrap_or_default();
        while (known.pages.len() as u64) < end.div_ceil(SMALL_PAGE_BYTES) {
            let page = self.free.pop().unwrap_or_else(|| {
                self.next_page += 1;
                self.next_page - 1
            });
            self.change_page(machine, page);
            known.pages.push(page);
        }
        for (at, len) in pieces(offset, end) {
            machine.work(self.costs.page_write);
            let page = self.find(machine, file, &known, at);
            machine.copy(from.plus(at - offset), page, len);
            self.request(machine, page, true);
        }
        known.size = known.size.max(end);
        machine.write(self.vfs.place(INODES + file.0 * INODE_BYTES), INODE_CHANGED);
        self.files.insert(file, known);
    }

    /// Looks a page of a file up; returns the place of the byte at `at`.
    fn find(&self, machine: &mut Machine, key: FileKey, file: &File, at: u64) -> Place {
        let index = at / SMALL_PAGE_BYTES;
        // The nodes of a file's tree lie by its first page: a place of their own.
        let first = file.pages.first().copied().unwrap_or(key.0);
        let node = TREES + (first + index / NODE_SLOTS) * NODE_SLOTS * SLOT_BYTES;
        machine.read(self.vfs.place(node + index % NODE_SLOTS * SLOT_BYTES), SLOT_BYTES);
        let page = file.pages.get(index as usize).copied().unwrap_or(0);
        machine.write(self.vfs.place(DESCRIPTORS + page * DESCRIPTOR_BYTES), DESCRIPTOR_BYTES);
        self.vfs.place(PAGES + page * SMALL_PAGE_BYTES + at % SMALL_PAGE_BYTES)
    }

    /// Copies the page of a byte from the block device, or to it.
    fn request(&self, machine: &mut Machine, byte: Place, is_write: bool) {
        let Some(request) = self.costs.request.filter(|_| self.kind == LinuxKind::Ext2) else { return };
        machine.work(request);
        let page = byte.at.0 / SMALL_PAGE_BYTES * SMALL_PAGE_BYTES;
        let (cached, block) = (self.vfs.place(page), self.vfs.place(page - PAGES + BLOCKS));
        let (from, to) = if is_write { (cached, block) } else { (block, cached) };
        machine.copy(from, to, SMALL_PAGE_BYTES);
    }

    /// Adds a page to a file, or takes it away.
    fn change_page(&self, machine: &mut Machine, page: u64) {
        machine.work(self.costs.page_change);
        machine.write(self.vfs.place(DESCRIPTORS + page * DESCRIPTOR_BYTES), DESCRIPTOR_BYTES);
        if self.kind == LinuxKind::Ext2 {
            machine.work(self.costs.block_change);
            let (bitmap, bit) = (page / BITMAP_PAGES, page % BITMAP_PAGES);
            machine.write(self.vfs.place(BITMAPS + bitmap * SMALL_PAGE_BYTES + bit / 8), 1);
        }
    }

    /// Adds a name to its directory, or takes it away. ext2 searches the directory's block.
    fn change_directory(&self, machine: &mut Machine, file: FileKey) {
        machine.work(self.costs.file_change);
        if self.kind == LinuxKind::Ext2 {
            let block = DIRECTORIES + file.0 % self.directories * SMALL_PAGE_BYTES;
            machine.read(self.vfs.place(block), SMALL_PAGE_BYTES / 2);
            machine.write(self.vfs.place(block + SMALL_PAGE_BYTES / 2), NAME_BYTES / 4);
        }
    }
}

/// Returns the parts of a range by page: their starts and lengths.
fn pieces(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let from = at;
        at = ((from / SMALL_PAGE_BYTES + 1) * SMALL_PAGE_BYTES).min(end);
        (from < end).then_some((from, at.saturating_sub(from)))
    })
}
