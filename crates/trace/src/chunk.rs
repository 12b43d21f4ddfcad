//! weir's own trace format: compact, in chunks that can be read independently. `docs/reference/traces.md`
//! specifies it.
//!
//! A chunk contains consecutive records, each encoded as differences from its predecessors. The most common
//! properties take the least space: one disk, whole sectors, requests that continue each other or have the
//! same length as the previous one.

use crate::record::{Disk, Record, VALID_RANGE};
use std::collections::BTreeMap;
use std::io::{self, Write};
use weir_model::{Bytes, Hint, Nanos, Op, SECTOR, VolumeOffset};

/// Magic number and version at the start of a trace.
pub(crate) const MAGIC: &[u8; 8] = b"weirtrc1";
/// Maximum length of a chunk's body in bytes, number of records in a chunk, and length of a disk name.
pub(crate) const BODY_MAX: usize = 192 << 10;
const RECORDS_MAX: u64 = 16_384;
const NAME_MAX: usize = 255;
/// Size of the length field before a chunk's body.
pub(crate) const LENGTH_FIELD_SIZE: usize = 4;
/// Maximum size of a record with the name of a new disk.
const RECORD_MAX: usize = 48 + NAME_MAX;

/// Flags of a record's first byte; its lowest two bits are the operation.
const OTHER_DISK: u8 = 1 << 2;
/// The record begins where the previous one of the same disk ended.
const CONTIGUOUS: u8 = 1 << 3;
/// The record has the same length as the previous one.
const SAME_LENGTH: u8 = 1 << 4;
/// Offset and length are counted in sectors.
const SECTORS: u8 = 1 << 5;
/// The data is metadata of a file system.
const METADATA: u8 = 1 << 6;

/// State from which the next record's differences are taken.
#[derive(Clone, Copy, Debug, Default)]
struct DeltaBase {
    at: u64,
    disk: u64,
    end: u64,
    len: u64,
}

/// Encodes records into chunks.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    body: Vec<u8>,
    records: u64,
    /// Disks of this chunk, numbered in order of appearance.
    disks: BTreeMap<Disk, u64>,
    /// Disk of the last record.
    disk: Disk,
    base: DeltaBase,
}

impl Encoder {
    /// Adds a record of the disk of this name. At most [`NAME_MAX`] bytes of the name are kept.
    pub(crate) fn push(&mut self, record: &Record, name: &str) {
        let (offset, len) = (record.offset.0, record.len.0);
        let is_same = self.records > 0 && self.disk == record.disk;
        let known = if is_same { Some(self.base.disk) } else { self.disks.get(&record.disk).copied() };
        let disk = known.unwrap_or(self.disks.len() as u64);
        let is_other = !is_same;
        let continues = !is_other && offset == self.base.end;
        let as_long = len == self.base.len;
        let unit = if offset.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR) { SECTOR } else { 1 };
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let op = match record.op {
            Op::Write => 1,
            Op::Trim => 2,
            _ => 0,
        };
        let flags = flag(is_other, OTHER_DISK) | flag(continues, CONTIGUOUS) | flag(as_long, SAME_LENGTH);
        let flags = flags | flag(record.hint == Hint::Metadata, METADATA);
        self.body.push(op | flags | flag(unit == SECTOR, SECTORS));
        self.put_delta(record.at.0, self.base.at);
        if is_other {
            self.put_varint(disk);
        }
        if known.is_none() {
            let end = (0..=NAME_MAX.min(name.len())).rfind(|end| name.is_char_boundary(*end)).unwrap_or(0);
            self.put_varint(end as u64);
            self.body.extend(&name.as_bytes()[..end]);
            self.disks.insert(record.disk, disk);
        }
        if !continues {
            // The reference may be the end of another disk's record; any value that the decoder shares would
            // do.
            let from = if self.base.end.is_multiple_of(unit) { self.base.end / unit } else { 0 };
            self.put_delta(offset / unit, from);
        }
        if !as_long {
            self.put_varint(len / unit);
        }
        self.disk = record.disk;
        self.base = DeltaBase { at: record.at.0, disk, end: offset + len, len };
        self.records += 1;
    }

    /// Reports whether the chunk should end here.
    pub(crate) fn is_full(&self) -> bool {
        self.records >= RECORDS_MAX || self.body.len() + RECORD_MAX > BODY_MAX
    }

    /// Writes the chunk, if it is not empty, and begins the next; returns its number of records.
    pub(crate) fn finish(&mut self, mut out: impl Write) -> io::Result<u32> {
        let records = self.records as u32;
        if records > 0 {
            out.write_all(&(self.body.len() as u32).to_le_bytes())?;
            out.write_all(&self.body)?;
        }
        *self = Self { body: std::mem::take(&mut self.body), ..Self::default() };
        self.body.clear();
        Ok(records)
    }

    /// Encodes a number, seven bits per byte, lowest first; a byte's highest bit says that another follows.
    fn put_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.body.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.body.push(number as u8);
    }

    /// Encodes the wrapping 64-bit difference, with its sign in the lowest bit.
    fn put_delta(&mut self, number: u64, from: u64) {
        let difference = number.wrapping_sub(from) as i64;
        self.put_varint((difference << 1 ^ difference >> 63) as u64);
    }
}

/// The undecoded rest of a chunk's body.
struct Body<'c>(&'c [u8]);

const INCOMPLETE_CHUNK: &str = "a whole chunk";

impl<'c> Body<'c> {
    fn read_byte(&mut self) -> Result<u8, &'static str> {
        let (byte, rest) = self.0.split_first().ok_or(INCOMPLETE_CHUNK)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn read_varint(&mut self) -> Result<u64, &'static str> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = u64::from(self.read_byte()?);
            number |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of at most 64 bits")
    }

    fn read_delta(&mut self, from: u64) -> Result<u64, &'static str> {
        let number = self.read_varint()?;
        Ok(from.wrapping_add(number >> 1 ^ (number & 1).wrapping_neg()))
    }

    fn read_name(&mut self) -> Result<&'c [u8], &'static str> {
        let len = self.read_varint()? as usize;
        let (name, rest) = self.0.split_at_checked(len).ok_or(INCOMPLETE_CHUNK)?;
        self.0 = rest;
        Ok(name)
    }
}

/// Appends the records of a chunk's body to `records`; `disk` maps the names of its disks to their numbers.
///
/// # Errors
/// Returns what was expected.
pub(crate) fn decode(
    body: &[u8],
    records: &mut Vec<Record>,
    mut disk: impl FnMut(&[u8]) -> Disk,
) -> Result<(), &'static str> {
    let (mut body, mut last, mut disks) = (Body(body), DeltaBase::default(), Vec::new());
    while !body.0.is_empty() {
        let flags = body.read_byte()?;
        let unit = if flags & SECTORS != 0 { SECTOR } else { 1 };
        let op =
            *[Op::Read, Op::Write, Op::Trim].get(usize::from(flags & 3)).ok_or("an operation from 0 to 2")?;
        last.at = body.read_delta(last.at)?;
        if flags & OTHER_DISK != 0 {
            last.disk = body.read_varint()?;
            if last.disk == disks.len() as u64 {
                disks.push(disk(body.read_name()?));
            }
        }
        let disk = *disks.get(last.disk as usize).ok_or("a disk that was named")?;
        let mut offset = last.end;
        if flags & CONTIGUOUS == 0 {
            let from = if last.end.is_multiple_of(unit) { last.end / unit } else { 0 };
            offset = body.read_delta(from)?.checked_mul(unit).ok_or(VALID_RANGE)?;
        }
        if flags & SAME_LENGTH == 0 {
            last.len = body.read_varint()?.checked_mul(unit).ok_or(VALID_RANGE)?;
        }
        let end = offset.checked_add(last.len).filter(|end| *end <= i64::MAX as u64);
        last.end = end.ok_or(VALID_RANGE)?;
        if last.len == 0 {
            return Err("a length");
        }
        let (offset, len) = (VolumeOffset(offset), Bytes(last.len));
        let hint = if flags & METADATA != 0 { Hint::Metadata } else { Hint::None };
        records.push(Record { at: Nanos(last.at), disk, op, offset, len, hint });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> impl Strategy<Value = Vec<Record>> {
        let at = prop_oneof![0..1_000_000u64, any::<u64>()];
        let offset = prop_oneof![(0..64u64).prop_map(|n| n * 4096), 0..1u64 << 62];
        let len = prop_oneof![Just(4096u64), 1..1u64 << 40];
        let op = prop_oneof![Just(Op::Read), Just(Op::Write), Just(Op::Trim)];
        let hint = prop_oneof![Just(Hint::None), Just(Hint::Metadata)];
        let record =
            (at, 0..5u32, op, offset, len, hint).prop_map(|(at, disk, op, offset, len, hint)| Record {
                at: Nanos(at),
                disk: Disk(disk),
                op,
                offset: VolumeOffset(offset),
                len: Bytes(len),
                hint,
            });
        prop::collection::vec(record, 0..200)
    }

    proptest! {
        #[test]
        fn records_round_trip(mut records in records(), runs: Vec<u8>) {
            // Makes some records continue their predecessor.
            let runs = runs.iter().take(records.len()).enumerate().skip(1);
            for (at, run) in runs {
                if run % 2 == 0 {
                    let before = records[at - 1];
                    records[at].offset = before.offset + before.len;
                    records[at].disk = before.disk;
                }
            }
            records.retain(|r| r.offset.0 + r.len.0 <= i64::MAX as u64);
            let mut encoder = Encoder::default();
            let name = |disk: Disk| format!("disk {}", disk.0);
            records.iter().for_each(|record| encoder.push(record, &name(record.disk)));
            let mut bytes = Vec::new();
            encoder.finish(&mut bytes).unwrap();
            let (mut found, mut names) = (Vec::new(), Vec::new());
            let body = bytes.get(LENGTH_FIELD_SIZE..).unwrap_or_default();
            decode(body, &mut found, |name| {
                names.push(String::from_utf8_lossy(name).into_owned());
                Disk(names.len() as u32 - 1)
            }).unwrap();
            prop_assert_eq!(found.len(), records.len());
            for (found, record) in found.iter().zip(&records) {
                prop_assert_eq!(&names[found.disk.0 as usize], &name(record.disk));
                prop_assert_eq!(Record { disk: record.disk, ..*found }, *record);
            }
        }

        #[test]
        fn arbitrary_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut found = Vec::new();
            let _ = decode(&bytes, &mut found, |_| Disk(0));
            prop_assert!(found.iter().all(|r| r.len.0 > 0 && r.offset.0 + r.len.0 <= i64::MAX as u64));
        }
    }

    #[test]
    fn chunks_never_exceed_the_maximum() {
        let mut encoder = Encoder::default();
        for disk in 0.. {
            let record = Record {
                at: Nanos(u64::MAX / 2 * u64::from(disk % 2)),
                disk: Disk(disk),
                op: Op::Read,
                offset: VolumeOffset((1 << 62) * u64::from(disk % 2) + 1),
                len: Bytes(1 << 61),
                hint: Hint::None,
            };
            encoder.push(&record, &"é".repeat(300));
            if encoder.is_full() {
                break;
            }
        }
        let mut bytes = Vec::new();
        encoder.finish(&mut bytes).unwrap();
        assert!((BODY_MAX / 2..=BODY_MAX + LENGTH_FIELD_SIZE).contains(&bytes.len()), "{}", bytes.len());
    }
}
