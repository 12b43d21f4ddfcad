//! Superblocks, roots and page headers.

use super::fields::{crc, page, u32_at, u64_at};
use super::{Defect, DeviceReader, PAGE};

const SUPERBLOCK_MAGIC: &[u8] = b"weirSB01";
const ROOT_MAGIC: &[u8] = b"weirRT01";
const ROOTS_AT: [u64; 2] = [64 << 10, 128 << 10];
pub(super) const JOURNAL_AT: u64 = 192 << 10;
/// "All ones": no page.
pub(super) const NULL_PAGE: u64 = u64::MAX;

/// A superblock: a device's description of itself and its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Pool id.
    pub pool: [u8; 16],
    /// Generation, raised with every change of a superblock of the pool.
    pub generation: u64,
    /// Device size in bytes.
    pub size: u64,
    /// Device number.
    pub device: u8,
    /// Number of devices of the pool.
    pub devices: u8,
    /// Extent size in bytes.
    pub extent: u64,
    /// Whether it holds the pool's metadata.
    pub is_member: bool,
    /// Incarnation, raised whenever it returned after the pool had continued without it.
    pub incarnation: u32,
    /// Number of pages of the journal ring.
    pub journal_pages: u64,
    /// Number of metadata pages.
    pub meta_pages: u64,
    /// Offset of the data area.
    pub data_at: u64,
    /// Number of data extents.
    pub data_extents: u64,
    /// The two members of mirrored metadata; empty if it is not mirrored.
    pub members: Vec<u8>,
    /// Devices without which the pool has continued.
    pub missing: Vec<u8>,
    /// Devices that were absent when a rollback was accepted.
    pub abandoned: Vec<u8>,
}

/// Returns the numbers of the set bits.
fn set_bits(bytes: &[u8]) -> Vec<u8> {
    let is_set = |bit: &u8| bytes[usize::from(bit / 8)] >> (bit % 8) & 1 == 1;
    (0..=u8::MAX).filter(is_set).collect()
}

impl Superblock {
    pub(super) fn read(raw: &mut dyn DeviceReader, device: u8, at: u64) -> Result<Self, Defect> {
        let bytes = page(raw, device, at);
        let defect = |why: String| Defect { device, what: "superblock", at, why };
        if !bytes.starts_with(SUPERBLOCK_MAGIC) {
            return Err(defect("it has no magic".into()));
        }
        if u32_at(&bytes, 8) != crc(&bytes, 8) {
            return Err(defect("its checksum is wrong".into()));
        }
        let found = Self {
            pool: std::array::from_fn(|i| bytes[40 + i]),
            generation: u64_at(&bytes, 56),
            size: u64_at(&bytes, 64),
            device: bytes[72],
            devices: bytes[73],
            extent: 1 << bytes[74].min(63),
            is_member: u32_at(&bytes, 76) & 1 == 1,
            incarnation: u32_at(&bytes, 80),
            journal_pages: u64_at(&bytes, 88),
            meta_pages: u64_at(&bytes, 96),
            data_at: u64_at(&bytes, 104),
            data_extents: u64_at(&bytes, 112),
            members: set_bits(&bytes[248..280]),
            missing: set_bits(&bytes[280..312]),
            abandoned: set_bits(&bytes[312..344]),
        };
        let mirrored = u64_at(&bytes, 16) >> 4 & 1 == 1;
        match found {
            _ if u32_at(&bytes, 12) != 1 => Err(defect("it is of another version".into())),
            _ if found.device != device => Err(defect(format!("it is that of device {}", found.device))),
            _ if mirrored == found.members.is_empty() => {
                Err(defect("its features and its members contradict".into()))
            }
            _ => Ok(found),
        }
    }

    /// Returns the number of blocks per extent.
    pub(super) const fn blocks(&self) -> u64 {
        self.extent / PAGE
    }

    /// Returns the offset of a metadata page.
    pub(super) const fn page_at(&self, number: u64) -> u64 {
        JOURNAL_AT + (self.journal_pages + number) * PAGE
    }
}

/// Number of a page, and its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) number: u64,
    pub(super) sequence: u64,
}

impl Pointer {
    pub(super) const BYTES: usize = 24;

    pub(super) fn at(bytes: &[u8], at: usize) -> Self {
        Self { number: u64_at(bytes, at), sequence: u64_at(bytes, at + 8) }
    }

    pub(super) const fn is_null(self) -> bool {
        self.number == NULL_PAGE
    }
}

/// A root: the starting point of all metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its sequence; of two roots, the higher one counts.
    pub sequence: u64,
    pub(super) journal: u64,
    pub(super) offset: u64,
    pub(super) frame: u64,
    pub(super) chain: u32,
    pub(super) incarnation: u32,
    pub(super) catalogue: Pointer,
    pub(super) pages: (u64, Pointer),
    pub(super) records: (u64, Pointer),
}

impl Root {
    pub(super) fn read(
        raw: &mut dyn DeviceReader,
        superblock: &Superblock,
        slot: usize,
    ) -> Result<Self, Defect> {
        let (device, at) = (superblock.device, ROOTS_AT[slot]);
        let bytes = page(raw, device, at);
        let defect = |why: &str| Defect { device, what: "root", at, why: why.into() };
        if !bytes.starts_with(ROOT_MAGIC) {
            return Err(defect("it has no magic"));
        }
        if u32_at(&bytes, 8) != crc(&bytes, 8) {
            return Err(defect("its checksum is wrong"));
        }
        if bytes[16..32] != superblock.pool {
            return Err(defect("it is of another pool"));
        }
        let sequence = u64_at(&bytes, 32);
        if sequence % 2 != slot as u64 {
            return Err(defect("it belongs in the other slot"));
        }
        Ok(Self {
            sequence,
            journal: u64_at(&bytes, 40),
            offset: u64_at(&bytes, 48),
            frame: u64_at(&bytes, 56),
            chain: u32_at(&bytes, 64),
            incarnation: u32_at(&bytes, 68),
            catalogue: Pointer::at(&bytes, 80),
            pages: (u64_at(&bytes, 104), Pointer::at(&bytes, 112)),
            records: (u64_at(&bytes, 136), Pointer::at(&bytes, 144)),
        })
    }
}

/// Expected identity of a metadata page, apart from its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) kind: u8,
    pub(super) object: u64,
    pub(super) what: &'static str,
}

pub(super) const TABLE: u8 = 1;
pub(super) const MAP: u8 = 2;
pub(super) const RECORDS: u8 = 3;
pub(super) const CATALOGUE: u8 = 4;

/// A verified metadata page.
pub(super) struct Page {
    pub(super) level: u8,
    pub(super) payload: Vec<u8>,
    next: u64,
}

/// Reads a metadata page, which must match its pointer.
pub(super) fn metadata_page(
    raw: &mut dyn DeviceReader,
    superblock: &Superblock,
    pointer: Pointer,
    identity: Identity,
) -> Result<Page, Defect> {
    const HEADER: usize = 64;
    let Pointer { number, sequence } = pointer;
    let at = superblock.page_at(number.min(superblock.meta_pages));
    let defect = |why: String| Defect { device: superblock.device, what: identity.what, at, why };
    if number >= superblock.meta_pages {
        return Err(defect(format!("there is no page {number}")));
    }
    let bytes = page(raw, superblock.device, at);
    if u32_at(&bytes, 0) != crc(&bytes, 0) {
        return Err(defect("its checksum is wrong".into()));
    }
    let says = (bytes[4], u64_at(&bytes, 24), u64_at(&bytes, 32), u64_at(&bytes, 40));
    let wanted = (identity.kind, number, sequence, identity.object);
    if bytes[8..24] != superblock.pool || says != wanted {
        return Err(defect(format!("it says (kind, number, sequence, object) {says:?}, not {wanted:?}")));
    }
    let used = usize::from(bytes[6]) | usize::from(bytes[7]) << 8;
    let payload = bytes.get(HEADER..HEADER + used).ok_or_else(|| defect("its payload is too long".into()))?;
    Ok(Page { level: bytes[5], payload: payload.to_vec(), next: u64_at(&bytes, 48) })
}

/// Reads the bytes of an object that is a chain of pages.
pub(super) fn chain(
    raw: &mut dyn DeviceReader,
    superblock: &Superblock,
    pointer: Pointer,
    identity: Identity,
) -> Result<Vec<u8>, Defect> {
    let (mut bytes, mut next) = (Vec::new(), pointer.number);
    for _ in 0..=superblock.meta_pages {
        if next == NULL_PAGE {
            return Ok(bytes);
        }
        let page = metadata_page(raw, superblock, Pointer { number: next, ..pointer }, identity)?;
        bytes.extend(page.payload);
        next = page.next;
    }
    let at = superblock.page_at(pointer.number.min(superblock.meta_pages));
    Err(Defect { device: superblock.device, what: identity.what, at, why: "its chain never ends".into() })
}
