//! The format of a region: see docs/reference/fs-format.md.
//!
//! Everything is addressed relative to the region's start, in little-endian numbers.

pub mod chunk;
pub mod dirent;
mod fields;
pub mod inode;
pub mod quota;
pub mod superblock;
pub mod tier;

/// Bytes of a page, the unit of small files, directories and tables.
pub const PAGE_BYTES: u64 = 4096;
/// Longest name of a directory entry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Largest number of links of an inode.
pub const LINKS_MAX: u32 = 1 << 30;
/// Inode slots at the start of each chunk of inodes that hold its bitmap instead.
pub const BITMAP_SLOTS: u64 = 4;

/// A page of the region, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

impl Page {
    /// Returns the address of its first byte.
    pub const fn address(self) -> u64 {
        self.0 * PAGE_BYTES
    }
}

/// A chunk of the region, by its number; chunk 0 holds the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chunk(pub u32);

/// The number of an inode, as programs see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Self = Self(1);
}

/// A point in time, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after them, below 10^9.
    pub nanos: u32,
}

/// Where the parts of a region are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the region in bytes, a multiple of the chunk's.
    pub size: u64,
    /// Bytes of a chunk, a power of two from 64 KiB to 2 MiB.
    pub chunk_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
}

impl Geometry {
    /// Default size of a chunk: a huge page of x86-64.
    pub const CHUNK_BYTES: u64 = 2 << 20;
    /// Smallest size of a chunk.
    pub const CHUNK_BYTES_MIN: u64 = 64 << 10;
    /// Smallest log: what one operation may change must fit into half of it.
    pub const LOG_BYTES_MIN: u64 = 128 << 10;
    const LOG_BYTES_MAX: u64 = 8 << 20;
    /// Address of the second copy of the superblock.
    pub const COPY_AT: u64 = PAGE_BYTES;
    /// Address of the roots: the heads of lists.
    pub const ROOTS_AT: u64 = 2 * PAGE_BYTES;
    /// Address of the log.
    pub const LOG_AT: u64 = 4 * PAGE_BYTES;

    /// Returns the geometry of a region of at most `size` bytes with chunks of `chunk_bytes`; `None` if the
    /// region is too small for a few chunks of data.
    pub fn new(size: u64, chunk_bytes: u64) -> Option<Self> {
        let log_bytes = (size / 64).clamp(Self::LOG_BYTES_MIN, Self::LOG_BYTES_MAX) / PAGE_BYTES * PAGE_BYTES;
        let geometry = Self { size: size / chunk_bytes * chunk_bytes, chunk_bytes, log_bytes };
        geometry.is_valid().then_some(geometry)
    }

    /// Returns the size of the smallest region with chunks of `chunk_bytes`.
    pub fn size_min(chunk_bytes: u64) -> u64 {
        let sizes = (1..).map(|chunks| chunks * chunk_bytes);
        sizes.take(1 << 10).find(|size| Self::new(*size, chunk_bytes).is_some()).unwrap_or(u64::MAX)
    }

    /// Returns whether the numbers are possible ones.
    pub fn is_valid(&self) -> bool {
        self.chunk_bytes.is_power_of_two()
            && (Self::CHUNK_BYTES_MIN..=Self::CHUNK_BYTES).contains(&self.chunk_bytes)
            && self.size.is_multiple_of(self.chunk_bytes)
            // Trees name pages by numbers of 32 bits.
            && self.size / PAGE_BYTES <= u64::from(u32::MAX)
            && self.log_bytes >= Self::LOG_BYTES_MIN
            && self.log_bytes.is_multiple_of(PAGE_BYTES)
            && self.log_bytes < self.size
            && self.system_chunks() + 4 <= self.chunks()
    }

    /// Returns the number of chunks.
    pub const fn chunks(&self) -> u32 {
        (self.size / self.chunk_bytes) as u32
    }

    /// Returns the address of the chunk table.
    pub const fn table_at(&self) -> u64 {
        Self::LOG_AT + self.log_bytes
    }

    /// Returns the address of a chunk's entry in the chunk table.
    pub const fn entry_at(&self, chunk: Chunk) -> u64 {
        self.table_at() + chunk.0 as u64 * chunk::ENTRY_BYTES
    }

    /// Returns the address of the inode map: for each chunk of inodes, by index, its chunk.
    pub const fn inode_map_at(&self) -> u64 {
        self.table_at() + (self.chunks() as u64 * chunk::ENTRY_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the number of chunks that superblock, log and tables take.
    pub const fn system_chunks(&self) -> u32 {
        (self.inode_map_at() + self.chunks() as u64 * 4).div_ceil(self.chunk_bytes) as u32
    }

    /// Returns the number of pages of a chunk, at most 512.
    pub const fn chunk_pages(&self) -> u64 {
        self.chunk_bytes / PAGE_BYTES
    }

    /// Returns the number of inode slots of a chunk of inodes, bitmap included.
    pub const fn chunk_inodes(&self) -> u64 {
        self.chunk_bytes / inode::INODE_BYTES
    }

    /// Returns the size in bytes up to which a file is one run of pages.
    pub const fn run_bytes_max(&self) -> u64 {
        self.chunk_bytes / 2
    }

    /// Returns the address of a chunk's first byte.
    pub const fn chunk_at(&self, chunk: Chunk) -> u64 {
        chunk.0 as u64 * self.chunk_bytes
    }

    /// Returns the first page of a chunk.
    pub const fn first_page(&self, chunk: Chunk) -> Page {
        Page(chunk.0 as u64 * self.chunk_pages())
    }

    /// Returns the chunk that a page is in, and the page's index there.
    pub const fn chunk_of(&self, page: Page) -> (Chunk, usize) {
        (Chunk((page.0 / self.chunk_pages()) as u32), (page.0 % self.chunk_pages()) as usize)
    }

    /// Returns whether files can have this chunk: it exists, and is none of the system's.
    pub const fn is_for_files(&self, chunk: Chunk) -> bool {
        chunk.0 >= self.system_chunks() && chunk.0 < self.chunks()
    }

    /// Returns whether files can have these pages: they are in one chunk for files.
    pub const fn is_run(&self, first: Page, pages: u32) -> bool {
        // The first page of a region has a number below 2^32, so that nothing here overflows.
        if first.0 >= self.size / PAGE_BYTES || pages == 0 {
            return false;
        }
        let (chunk, at) = self.chunk_of(first);
        self.is_for_files(chunk) && at as u64 + pages as u64 <= self.chunk_pages()
    }

    /// Returns the largest size of a file, in bytes.
    pub const fn file_bytes_max(&self) -> u64 {
        self.chunk_bytes << (3 * inode::TREE_BITS)
    }

    /// Returns the index of an inode's chunk of inodes, and its slot there.
    pub const fn slot_of(&self, ino: Ino) -> (u64, u64) {
        let slot = ino.0 + BITMAP_SLOTS - 1;
        (slot / self.chunk_inodes(), slot % self.chunk_inodes())
    }

    /// Returns the inode of a slot of the chunk of inodes with this index; bitmap slots have none.
    pub const fn ino_of(&self, index: u64, slot: u64) -> Ino {
        Ino(index * self.chunk_inodes() + slot + 1 - BITMAP_SLOTS)
    }
}
