//! The superblock, which is written once, and the roots, which change with the file system.

use super::fields::{Reader, Writer};
use super::{Geometry, Ino, PAGE_BYTES};
use crate::error::Error;

const MAGIC: [u8; 8] = *b"weir-fs\0";
/// Version of the format that this code reads and writes.
pub const VERSION: u32 = 1;
/// Incompatible feature: the region has a tier table, and files may be in containers.
const TIERS: u64 = 1;
const CHECKED_BYTES: usize = PAGE_BYTES as usize - 8;

/// What never changes about a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Where the parts of the region are.
    pub geometry: Geometry,
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Key of the hash of names.
    pub hash_key: [u8; 16],
    /// Whether the region has a tier table, so that there can be tiers below it.
    pub has_tiers: bool,
}

impl Superblock {
    /// Returns the page that holds it.
    pub fn encode(&self) -> [u8; PAGE_BYTES as usize] {
        let mut page = [0; PAGE_BYTES as usize];
        let mut writer = Writer(&mut page);
        writer.bytes(&MAGIC);
        writer.u32(VERSION);
        writer.u32(0);
        // Feature bits: incompatible, read-only-compatible, compatible.
        for features in [if self.has_tiers { TIERS } else { 0 }, 0, 0] {
            writer.u64(features);
        }
        writer.u64(self.geometry.size);
        writer.u64(self.geometry.chunk_bytes);
        writer.u64(self.geometry.log_bytes);
        writer.bytes(&self.uuid);
        writer.bytes(&self.hash_key);
        let sum = checksum(&page[..CHECKED_BYTES]);
        page[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// Reads it from a page.
    ///
    /// # Errors
    /// `NoFileSystem` if the page holds no superblock, `UnknownFormat` if this version does not know the
    /// format, `Damaged` if the page is damaged.
    pub fn decode(page: &[u8; PAGE_BYTES as usize]) -> Result<Self, Error> {
        let mut reader = Reader(page);
        if reader.bytes() != MAGIC {
            return Err(Error::NoFileSystem);
        }
        let (version, _) = (reader.u32(), reader.u32());
        let features = [reader.u64(), reader.u64(), reader.u64()];
        let geometry = Geometry { size: reader.u64(), chunk_bytes: reader.u64(), log_bytes: reader.u64() };
        let (uuid, hash_key) = (reader.bytes(), reader.bytes());
        if checksum(&page[..CHECKED_BYTES]).to_le_bytes() != page[CHECKED_BYTES..] {
            return Err(Error::Damaged("the superblock's checksum is wrong".to_owned()));
        }
        if version != VERSION || features[0] & !TIERS != 0 || features[1] != 0 {
            let features = features[0] | features[1];
            return Err(Error::UnknownFormat { version, features, known: VERSION });
        }
        if !geometry.is_valid() {
            return Err(Error::Damaged(format!("the superblock has an impossible geometry: {geometry:?}")));
        }
        Ok(Self { geometry, uuid, hash_key, has_tiers: features[0] & TIERS != 0 })
    }
}

/// The heads of lists, and counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// First inode without a name that may still be open.
    pub orphans: Option<Ino>,
    /// First null file: an inode without a name whose run of pages the next new file takes over.
    pub null_files: Option<Ino>,
    /// Number of null files.
    pub null_count: u32,
    /// Pages that null files have.
    pub null_pages: u64,
    /// Number of chunks of inodes.
    pub inode_chunks: u32,
}

impl Roots {
    /// Bytes of the roots.
    pub const BYTES: usize = 32;

    /// Returns the bytes that hold them.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut writer = Writer(&mut bytes);
        writer.u64(self.orphans.map_or(0, |ino| ino.0));
        writer.u64(self.null_files.map_or(0, |ino| ino.0));
        writer.u32(self.null_count);
        writer.u32(self.inode_chunks);
        writer.u64(self.null_pages);
        bytes
    }

    /// Reads them from bytes.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let mut reader = Reader(bytes);
        let ino = |number| (number != 0).then_some(Ino(number));
        Self {
            orphans: ino(reader.u64()),
            null_files: ino(reader.u64()),
            null_count: reader.u32(),
            inode_chunks: reader.u32(),
            null_pages: reader.u64(),
        }
    }
}

/// Returns the checksum that superblocks and the log have: CRC-64/NVME.
pub fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}
