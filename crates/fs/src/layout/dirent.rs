//! Pages of directories: records one after the other, which fill the page.

use super::fields::{Reader, Writer};
use super::inode::Kind;
use super::{Ino, PAGE_BYTES, Page};

/// Bytes of a page's header: the number of the next page of its bucket, or 0.
pub const HEADER_BYTES: usize = 8;
/// Offset of the type in a record.
pub const KIND_AT: usize = 19;
/// Bytes of a record before its name.
pub const RECORD_BYTES: usize = 24;

/// The bytes of a page.
pub type Bytes = [u8; PAGE_BYTES as usize];

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Hash of the name, which is also its position in the directory: 63 bits, at least
    /// [`FIRST_POSITION`].
    pub hash: u64,
    /// The inode.
    pub ino: Ino,
    /// Its type.
    pub kind: Kind,
    /// The name.
    pub name: Vec<u8>,
}

/// Positions below it are those of `.` and `..`.
pub const FIRST_POSITION: u64 = 16;

impl Entry {
    /// Returns the bytes that a record of this entry needs.
    pub fn record_bytes(&self) -> usize {
        record_bytes(self.name.len())
    }
}

/// Returns the bytes of a record with a name of `len` bytes.
pub const fn record_bytes(len: usize) -> usize {
    (RECORD_BYTES + len).next_multiple_of(8)
}

/// A record of a page: an entry, or free space.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Offset in the page.
    pub at: usize,
    /// Bytes from this record to the next.
    pub len: usize,
    /// Inode; 0: free space.
    pub ino: Ino,
    /// Hash of the name.
    pub hash: u64,
    /// Type byte.
    pub code: u8,
    /// The name.
    pub name: &'a [u8],
}

impl Record<'_> {
    /// Returns the bytes that the record itself needs; the rest up to the next is free.
    pub const fn used(&self) -> usize {
        if self.ino.0 == 0 { 0 } else { record_bytes(self.name.len()) }
    }
}

/// Returns a page without entries.
pub fn empty_page() -> Bytes {
    let mut page = [0; PAGE_BYTES as usize];
    write_record(&mut page[HEADER_BYTES..], PAGE_BYTES as usize - HEADER_BYTES, None);
    page
}

/// Returns the next page of the same bucket.
pub fn next_page(page: &Bytes) -> Option<Page> {
    let number = Reader(page).u64();
    (number != 0).then_some(Page(number))
}

/// Returns the records of a page; `None` if they do not fill it.
pub fn records(page: &Bytes) -> Option<Vec<Record<'_>>> {
    let (records, is_whole) = sound_records(page);
    is_whole.then_some(records)
}

/// Returns the records of a page up to the first that is damaged, and whether there is none.
pub fn sound_records(page: &Bytes) -> (Vec<Record<'_>>, bool) {
    let mut records = Vec::new();
    let mut at = HEADER_BYTES;
    while at < page.len() {
        let Some(record) = record(page, at) else { return (records, false) };
        at += record.len;
        records.push(record);
    }
    (records, true)
}

fn record(page: &Bytes, at: usize) -> Option<Record<'_>> {
    let mut reader = Reader(page.get(at..at + RECORD_BYTES)?);
    let (hash, ino, len) = (reader.u64(), Ino(reader.u64()), usize::from(reader.u16()));
    let (name_len, code) = (usize::from(reader.u8()), reader.u8());
    let name = page.get(at + RECORD_BYTES..at + RECORD_BYTES + name_len)?;
    let is_long_enough = len >= if ino.0 == 0 { RECORD_BYTES } else { record_bytes(name_len) };
    let is_sound = is_long_enough && len.is_multiple_of(8) && at + len <= page.len();
    is_sound.then_some(Record { at, len, ino, hash, code, name })
}

/// Writes a record with `len` bytes up to the next one to `to`; without an entry, free space.
pub fn write_record(to: &mut [u8], len: usize, entry: Option<&Entry>) {
    let mut writer = Writer(to);
    writer.u64(entry.map_or(0, |entry| entry.hash));
    writer.u64(entry.map_or(0, |entry| entry.ino.0));
    writer.u16(len as u16);
    writer.u8(entry.map_or(0, |entry| entry.name.len() as u8));
    writer.u8(entry.map_or(0, |entry| entry.kind.code()));
    writer.u32(0);
    if let Some(entry) = entry {
        writer.bytes(&entry.name);
    }
}

/// Adds an entry to a page; `false` if it does not fit.
pub fn add(page: &mut Bytes, entry: &Entry) -> bool {
    let needed = entry.record_bytes();
    let Some(records) = records(page) else { return false };
    let Some((at, used, len)) = records
        .iter()
        .find(|record| record.len - record.used() >= needed)
        .map(|record| (record.at, record.used(), record.len))
    else {
        return false;
    };
    if used > 0 {
        page[at + 16..at + 18].copy_from_slice(&(used as u16).to_le_bytes());
    }
    write_record(&mut page[at + used..], len - used, Some(entry));
    true
}

/// Removes the record at `at`: its space joins that of the record before it, or becomes free space.
pub fn remove(page: &mut Bytes, at: usize) {
    let Some(records) = records(page) else { return };
    let Some(index) = records.iter().position(|record| record.at == at) else { return };
    let len = records[index].len;
    match index.checked_sub(1).map(|before| (records[before].at, records[before].len)) {
        Some((before, before_len)) => {
            page[before + 16..before + 18].copy_from_slice(&((before_len + len) as u16).to_le_bytes());
        }
        None => write_record(&mut page[at..], len, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, len: usize) -> Entry {
        Entry { hash: number, ino: Ino(number), kind: Kind::File, name: vec![b'n'; len] }
    }

    fn inos(page: &Bytes) -> Vec<u64> {
        let records = records(page).expect("a page of records");
        records.iter().map(|record| record.ino.0).filter(|&ino| ino != 0).collect()
    }

    #[test]
    fn a_page_holds_what_fits_and_gives_back_what_is_removed() {
        let mut page = empty_page();
        let fitting = (1..).take_while(|&number| add(&mut page, &entry(number, 200))).count() as u64;
        assert_eq!(fitting, (4096 - 8) / 224);
        for number in [1, 3, 2, fitting] {
            let at = records(&page).expect("records").iter().find(|it| it.ino.0 == number).expect("it").at;
            remove(&mut page, at);
            assert!(!inos(&page).contains(&number));
        }
        assert_eq!(inos(&page).len() as u64, fitting - 4);
        assert!(add(&mut page, &entry(100, 255)), "three removed neighbours have room for a longer name");
        assert!(inos(&page).contains(&100));
        assert!(records(&page).expect("records").iter().any(|it| it.name.len() == 255));
    }

    #[test]
    fn damaged_pages_are_noticed() {
        let mut page = empty_page();
        add(&mut page, &entry(1, 10));
        assert!(records(&page).is_some());
        page[HEADER_BYTES + 16] = 9;
        assert!(records(&page).is_none());
    }
}
