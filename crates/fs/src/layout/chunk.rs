//! Entries of the chunk table, the region's mapping table.

use super::fields::{Reader, Writer};

/// Bytes of an entry: a cache line of fields and one of page bits.
pub const ENTRY_BYTES: u64 = 128;
/// Offset of the page bits in an entry.
pub const BITS_AT: u64 = 64;
/// Words of page bits.
pub const BIT_WORDS: usize = 8;

/// Use of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Free.
    Free,
    /// Superblock, log and tables.
    System,
    /// Inodes; the owner is the index in the inode map.
    Inodes,
    /// Pages, allocated one by one by the entry's bits; the owner says [for what](Purpose).
    Pages,
    /// Data of one large file or directory; the owner is its inode.
    Data,
}

/// What the pages of a chunk are for. If space is short, they may serve either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Data of files, which can move.
    Data,
    /// Pages of directories, trees and attributes, which stay where they are.
    Metadata,
}

impl Purpose {
    /// Returns the owner in an entry of such a chunk.
    pub const fn owner(self) -> u64 {
        match self {
            Self::Data => 0,
            Self::Metadata => 1,
        }
    }
}

/// The fields of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the chunk is used for.
    pub usage: Use,
    /// How often as many bytes as the chunk has were written to it as data, and at least how often it was
    /// allocated.
    pub wear: u32,
    /// Inode, index in the inode map, or purpose; 0 for other uses.
    pub owner: u64,
    /// Data: index of the chunk in its file.
    pub index: u64,
    /// Inodes: number of free ones.
    pub free_inodes: u32,
}

impl Entry {
    /// Bytes of the fields.
    pub const BYTES: usize = 64;

    /// Returns what the pages of the chunk are for, if it has pages.
    pub const fn purpose(&self) -> Option<Purpose> {
        match self {
            Self { usage: Use::Pages, owner: 0, .. } => Some(Purpose::Data),
            Self { usage: Use::Pages, owner: 1, .. } => Some(Purpose::Metadata),
            _ => None,
        }
    }

    /// Returns the bytes that hold the fields.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut writer = Writer(&mut bytes);
        writer.u32(match self.usage {
            Use::Free => 0,
            Use::System => 1,
            Use::Inodes => 2,
            Use::Pages => 3,
            Use::Data => 4,
        });
        writer.u32(self.wear);
        writer.u64(self.owner);
        writer.u64(self.index);
        writer.u32(self.free_inodes);
        bytes
    }

    /// Reads the fields; `None` if the use is none that this version knows.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let usage = match reader.u32() {
            0 => Use::Free,
            1 => Use::System,
            2 => Use::Inodes,
            3 => Use::Pages,
            4 => Use::Data,
            _ => return None,
        };
        let (wear, owner, index) = (reader.u32(), reader.u64(), reader.u64());
        Some(Self { usage, wear, owner, index, free_inodes: reader.u32() })
    }
}
