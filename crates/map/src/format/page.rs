//! Metadata pages: sealing with identity and checksum, and verifying both.

use crate::format::checksum::crc32c_without;
use crate::{PAGE, PoolId};
use weir_model::{Mutant, Planted};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The payload of a page, in bytes.
pub const PAYLOAD: usize = PAGE - size_of::<Header>();

/// The number of a metadata page: its position after the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNumber(pub u64);

impl PageNumber {
    /// No page.
    pub const NONE: Self = Self(u64::MAX);
}

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Part of a table.
    Table = 1,
    /// A map page.
    Map = 2,
    /// Records.
    Records = 3,
    /// Volumes and intents.
    Catalogue = 4,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Header {
    crc: U32,
    kind: u8,
    level: u8,
    used: U16,
    pool: [u8; 16],
    number: U64,
    sequence: U64,
    object: U64,
    next: U64,
    zero: U64,
}

const _: () = assert!(size_of::<Header>() == 64 && PAYLOAD == 4032);

/// The identity of a page: stored in it, and expected by the pointer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The kind of the page.
    pub kind: PageKind,
    /// The level in its tree.
    pub level: u8,
    /// The sequence of the root it was written for.
    pub sequence: u64,
    /// The page id, the group number, or the index in the table's level.
    pub object: u64,
}

/// Fills in the header of a page whose payload (the first `used` bytes after the header) is in place.
pub(crate) fn seal(
    page: &mut [u8],
    pool: PoolId,
    id: Identity,
    number: PageNumber,
    next: PageNumber,
    used: usize,
) {
    page[size_of::<Header>() + used..].fill(0);
    let header = Header {
        crc: 0.into(),
        kind: id.kind as u8,
        level: id.level,
        used: (used as u16).into(),
        pool: pool.0,
        number: number.0.into(),
        sequence: id.sequence.into(),
        object: id.object.into(),
        next: next.0.into(),
        zero: 0.into(),
    };
    page[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    let crc = crc32c_without(page, 0);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the payload area of a page.
pub(crate) fn payload_mut(page: &mut [u8]) -> &mut [u8] {
    &mut page[size_of::<Header>()..]
}

/// Verifies a page against its pointer. Returns the payload and the next page of its chain.
///
/// # Errors
/// Returns a description of the mismatch.
pub(crate) fn open(
    page: &[u8],
    pool: PoolId,
    id: Identity,
    number: PageNumber,
    planted: Planted,
) -> Result<(&[u8], PageNumber), String> {
    let (header, payload) =
        Header::ref_from_prefix(page).map_err(|_| "shorter than a page header".to_owned())?;
    if header.crc.get() != crc32c_without(page, 0) && !planted.is(Mutant::PageChecksumIgnored) {
        return Err("wrong checksum".into());
    }
    let differs = |what: &str, found: u64, expected: u64| {
        if found == expected { Ok(()) } else { Err(format!("{what} is {found}, expected {expected}")) }
    };
    if header.pool != pool.0 {
        return Err("it belongs to another pool".into());
    }
    differs("kind", header.kind.into(), id.kind as u64)?;
    differs("level", header.level.into(), id.level.into())?;
    differs("page number", header.number.get(), number.0)?;
    differs("sequence", header.sequence.get(), id.sequence)?;
    differs("object", header.object.get(), id.object)?;
    let used = usize::from(header.used.get());
    let payload = payload.get(..used).ok_or_else(|| format!("{used} bytes used do not fit a page"))?;
    Ok((payload, PageNumber(header.next.get())))
}

/// Returns the sequence of a page that is good in itself, whatever its kind; `None` if it is not.
pub(crate) fn sequence(page: &[u8], pool: PoolId, number: PageNumber) -> Option<u64> {
    let (header, _) = Header::ref_from_prefix(page).ok()?;
    let good = header.pool == pool.0
        && header.number.get() == number.0
        && header.crc.get() == crc32c_without(page, 0);
    good.then(|| header.sequence.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mismatched_page_is_rejected() {
        let open = |page: &[u8], pool, id, number| {
            super::open(page, pool, id, number, Planted::for_tests())
                .map(|(payload, next)| (payload.len(), next))
        };
        let pool = PoolId([1; 16]);
        let id = Identity { kind: PageKind::Map, level: 0, sequence: 9, object: 4 };
        let mut page = vec![0xaa; PAGE];
        seal(&mut page, pool, id, PageNumber(12), PageNumber::NONE, 100);
        assert_eq!(open(&page, pool, id, PageNumber(12)), Ok((100, PageNumber::NONE)));

        let misdirected = open(&page, pool, id, PageNumber(13)).unwrap_err();
        assert_eq!(misdirected, "page number is 12, expected 13");
        let stale = open(&page, pool, Identity { sequence: 10, ..id }, PageNumber(12)).unwrap_err();
        assert_eq!(stale, "sequence is 9, expected 10");
        assert!(open(&page, PoolId([2; 16]), id, PageNumber(12)).is_err());
        page[4000] ^= 0x10;
        assert_eq!(open(&page, pool, id, PageNumber(12)).unwrap_err(), "wrong checksum");
    }
}
