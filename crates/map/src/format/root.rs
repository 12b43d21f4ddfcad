//! The root: the page from which all durable metadata is reached. See `docs/reference/format.md`.

use crate::format::checksum::crc32c_without;
use crate::format::page::PageNumber;
use crate::format::table::Pointer;
use crate::{PAGE, PoolId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"weirRT01";
const CRC_AT: usize = 8;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    zero: U32,
    pool: [u8; 16],
    sequence: U64,
    journal: U64,
    position: U64,
    frame: U64,
    chain: U32,
    incarnation: U32,
    next_volume: U64,
    catalogue: [u8; Pointer::BYTES],
    pages: U64,
    pages_top: [u8; Pointer::BYTES],
    groups: U64,
    groups_top: [u8; Pointer::BYTES],
    rest: [u8; PAGE - 168],
}

const _: () = assert!(size_of::<Raw>() == PAGE);

/// A position in the journal: the offset of the next frame and the frame that it must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPosition {
    /// The journal's id.
    pub journal: u64,
    /// The byte offset in the ring.
    pub offset: u64,
    /// The sequence of the frame there.
    pub sequence: u64,
    /// The CRC of the frame before it; 0 if it is the first of its journal.
    pub chain: u32,
    /// The incarnation of all frames of the journal: the lower half of the pool's generation when it began.
    pub incarnation: u32,
}

/// A decoded root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The sequence; each checkpoint increments it.
    pub sequence: u64,
    /// The position of the first frame that the root does not contain.
    pub journal: JournalPosition,
    /// The id of the next volume.
    pub next_volume: u64,
    /// Volumes and intents.
    pub catalogue: Pointer,
    /// The number of ids in the page table, and the pointer to its top.
    pub pages: (u64, Pointer),
    /// The number of groups in the record table, and the pointer to its top.
    pub groups: (u64, Pointer),
}

impl Root {
    /// Returns the slot of this root.
    pub const fn slot(&self) -> usize {
        (self.sequence % 2) as usize
    }

    /// Returns the page to store.
    pub fn encode(&self, pool: PoolId) -> Box<[u8; PAGE]> {
        let mut raw = Raw {
            magic: MAGIC,
            crc: 0.into(),
            zero: 0.into(),
            pool: pool.0,
            sequence: self.sequence.into(),
            journal: self.journal.journal.into(),
            position: self.journal.offset.into(),
            frame: self.journal.sequence.into(),
            chain: self.journal.chain.into(),
            incarnation: self.journal.incarnation.into(),
            next_volume: self.next_volume.into(),
            catalogue: self.catalogue.encode(),
            pages: self.pages.0.into(),
            pages_top: self.pages.1.encode(),
            groups: self.groups.0.into(),
            groups_top: self.groups.1.encode(),
            rest: [0; PAGE - 168],
        };
        raw.crc = crc32c_without(raw.as_bytes(), CRC_AT).into();
        let mut page = Box::new([0; PAGE]);
        page.copy_from_slice(raw.as_bytes());
        page
    }

    /// Decodes a page; `None` for anything but a root of this pool.
    pub fn decode(page: &[u8], pool: PoolId) -> Option<Self> {
        let (raw, _) = Raw::read_from_prefix(page).ok()?;
        let good = raw.magic == MAGIC
            && raw.pool == pool.0
            && raw.crc.get() == crc32c_without(raw.as_bytes(), CRC_AT);
        good.then(|| Self {
            sequence: raw.sequence.get(),
            journal: JournalPosition {
                journal: raw.journal.get(),
                offset: raw.position.get(),
                sequence: raw.frame.get(),
                chain: raw.chain.get(),
                incarnation: raw.incarnation.get(),
            },
            next_volume: raw.next_volume.get(),
            catalogue: Pointer::decode(&raw.catalogue),
            pages: (raw.pages.get(), Pointer::decode(&raw.pages_top)),
            groups: (raw.groups.get(), Pointer::decode(&raw.groups_top)),
        })
    }

    /// Returns the root of an empty pool.
    pub fn empty(sequence: u64, journal: u64) -> Self {
        Self {
            sequence,
            journal: JournalPosition { journal, offset: 0, sequence: 1, chain: 0, incarnation: 0 },
            next_volume: 0,
            catalogue: Pointer::NONE,
            pages: (0, Pointer::NONE),
            groups: (0, Pointer::NONE),
        }
    }
}

const _: () = assert!(PageNumber::NONE.0 == u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_round_trips_and_rejects_damage() {
        let pool = PoolId([3; 16]);
        let mut root = Root::empty(41, 7);
        root.pages = (1000, Pointer { number: PageNumber(5), sequence: 40, count: 1 });
        let page = root.encode(pool);
        assert_eq!(Root::decode(&page[..], pool), Some(root));
        assert_eq!(Root::decode(&page[..], PoolId([4; 16])), None);
        for at in [0, 20, 100, 4000] {
            let mut bad = page.clone();
            bad[at] ^= 4;
            assert_eq!(Root::decode(&bad[..], pool), None, "byte {at}");
        }
    }
}
