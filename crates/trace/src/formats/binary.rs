//! Record parsers of the binary formats, whose numbers are little-endian.

use super::{Line, LineMeaning, Name, Parsed, US, valid_request};
use crate::fields::FieldError;
use crate::record::VALID_RANGE;
use weir_model::{BLOCK, Bytes, Hint, Nanos, Op, SECTOR, VolumeOffset};

/// Reports an incomplete or invalid record; the start of the next one is then unknown.
fn invalid_record<'l>(bytes: &'l [u8], wanted: &'static str) -> (usize, Parsed<'l>) {
    let found = &bytes[..bytes.len().min(8)];
    (bytes.len(), Err(FieldError { column: 1, wanted, found }))
}

/// Returns the number of 2, 4 or 8 bytes at `at`.
#[inline(always)]
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let bytes = &bytes[at..at + len];
    match *bytes {
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    }
}

fn record<'l>(len: usize, bytes: &'l [u8], line: Line<'l>) -> (usize, Parsed<'l>) {
    (len, valid_request(line, || FieldError { column: 1, wanted: VALID_RANGE, found: &bytes[..len] }))
}

// blktrace: `struct blk_io_trace` of Linux's blktrace_api.h, followed by data.

const BLKTRACE: usize = 48;
/// Maximum length of a record: its data has a 16-bit length.
pub(super) const BLKTRACE_LONGEST: usize = BLKTRACE + u16::MAX as usize;
/// The first four bytes: a magic number, and the version.
const MAGIC: u64 = 0x6561_7407;
const QUEUE: u64 = 1;
const WRITE: u64 = 1 << (16 + 1);
const NOTIFY: u64 = 1 << (16 + 10);
/// The data names the process's control group.
const CGROUP: u64 = 1 << 8;
const META: u64 = 1 << (16 + 12);
const DISCARD: u64 = 1 << (16 + 13);

pub(super) fn is_blktrace(sample: &[u8]) -> bool {
    sample.len() >= BLKTRACE && number(sample, 0, 4) == MAGIC
}

pub(super) fn blktrace(bytes: &[u8]) -> (usize, Parsed<'_>) {
    if bytes.len() < BLKTRACE {
        return invalid_record(bytes, "a whole event");
    }
    if number(bytes, 0, 4) != MAGIC {
        return invalid_record(bytes, "an event of blktrace, version 7, of a little-endian machine");
    }
    let len = BLKTRACE + number(bytes, 46, 2) as usize;
    if bytes.len() < len {
        return invalid_record(bytes, "a whole event");
    }
    let action = number(bytes, 28, 4);
    if action & 0xffff & !CGROUP != QUEUE || action & NOTIFY != 0 {
        return (len, Ok(LineMeaning::NoRequest));
    }
    let op = match action {
        _ if action & DISCARD != 0 => Op::Trim,
        _ if action & WRITE != 0 => Op::Write,
        _ => Op::Read,
    };
    let line = Line {
        at: Nanos(number(bytes, 8, 8)),
        disk: Name::Device(number(bytes, 36, 4) as u32),
        op,
        offset: VolumeOffset(number(bytes, 16, 8).saturating_mul(SECTOR)),
        len: Bytes(number(bytes, 24, 4)),
        hint: if action & META != 0 { Hint::Metadata } else { Hint::None },
    };
    record(len, bytes, line)
}

// CloudPhysics: two versions, distinguished by the position of their version field.

const VSCSI_1: usize = 32;
const VSCSI_2: usize = 40;

pub(super) fn is_vscsi_2(sample: &[u8]) -> bool {
    all_records_match(sample, VSCSI_2, |_, record| number(record, 2, 2) >> 8 == 2)
}

pub(super) fn is_vscsi_1(sample: &[u8]) -> bool {
    all_records_match(sample, VSCSI_1, |_, record| number(record, 14, 2) >> 8 == 1)
}

/// Parses `cmd: u16, version: u16, number: u32, len: u32, nSG: u32, lbn: u64, time: u64, response: u64`.
pub(super) fn vscsi_2(bytes: &[u8]) -> (usize, Parsed<'_>) {
    if bytes.len() < VSCSI_2 {
        return invalid_record(bytes, "a whole record of 40 bytes");
    }
    vscsi(
        VSCSI_2,
        bytes,
        number(bytes, 0, 2),
        [number(bytes, 8, 4), number(bytes, 16, 8), number(bytes, 24, 8)],
    )
}

/// Returns the response time; the record has it in microseconds.
pub(super) fn vscsi_2_response(bytes: &[u8]) -> Option<Nanos> {
    let response = (bytes.len() >= VSCSI_2).then(|| number(bytes, 32, 8))?;
    response.checked_mul(US).map(Nanos)
}

/// Parses `number: u32, len: u32, nSG: u32, cmd: u16, version: u16, lbn: u64, time: u64`.
pub(super) fn vscsi_1(bytes: &[u8]) -> (usize, Parsed<'_>) {
    if bytes.len() < VSCSI_1 {
        return invalid_record(bytes, "a whole record of 32 bytes");
    }
    vscsi(
        VSCSI_1,
        bytes,
        number(bytes, 12, 2),
        [number(bytes, 4, 4), number(bytes, 16, 8), number(bytes, 24, 8)],
    )
}

fn vscsi(size: usize, bytes: &[u8], command: u64, [len, sector, time]: [u64; 3]) -> (usize, Parsed<'_>) {
    let Some(op) = scsi(command) else { return (size, Ok(LineMeaning::NoRequest)) };
    let line = Line {
        at: Nanos(time.saturating_mul(US)),
        disk: Name::SingleDisk,
        op,
        offset: VolumeOffset(sector.saturating_mul(SECTOR)),
        len: Bytes(len),
        hint: Hint::None,
    };
    record(size, bytes, line)
}

/// Maps a SCSI operation code: READ, WRITE and UNMAP of all lengths.
pub(super) const fn scsi(operation: u64) -> Option<Op> {
    match operation {
        0x08 | 0x28 | 0x88 | 0xa8 => Some(Op::Read),
        0x0a | 0x2a | 0x8a | 0xaa => Some(Op::Write),
        0x42 => Some(Op::Trim),
        _ => None,
    }
}

// libCacheSim: `time: u32 (s), object: u64, size: u32, next: i64`, which is -1 if there is none.

const ORACLE: usize = 24;
/// Object numbers that are hashes are reduced to a page number by this mask.
const PAGE_MASK: u64 = (1 << 49) - 1;

pub(super) fn is_oracle(sample: &[u8]) -> bool {
    let mut last = 0;
    all_records_match(sample, ORACLE, |at, record| {
        let (time, size, next) = (number(record, 0, 4), number(record, 12, 4), number(record, 16, 8) as i64);
        let is_one = time >= last && size > 0 && (next == -1 || next > at as i64);
        last = time;
        is_one
    })
}

pub(super) fn oracle(bytes: &[u8]) -> (usize, Parsed<'_>) {
    if bytes.len() < ORACLE {
        return invalid_record(bytes, "a whole record of 24 bytes");
    }
    let line = Line {
        at: Nanos(number(bytes, 0, 4) * super::S),
        disk: Name::SingleDisk,
        op: Op::Read,
        offset: VolumeOffset((number(bytes, 4, 8) & PAGE_MASK) * BLOCK),
        len: Bytes(number(bytes, 12, 4)),
        hint: Hint::None,
    };
    record(ORACLE, bytes, line)
}

// Formats that consist of page numbers only.

const PAGE_32: usize = 4;
/// Maximum plausible page number: text read as numbers gives larger ones, and so does random data.
const PLAUSIBLE_PAGE_MAX: u64 = 1 << 30;

/// Detects bare page numbers, which have no marker: no number is implausibly large, not all are equal, and
/// they are not 64-bit numbers, of which every other half would be zero.
pub(super) fn is_pages_32(sample: &[u8]) -> bool {
    let pages = || sample.chunks_exact(PAGE_32).map(|page| number(page, 0, PAGE_32));
    let is_whole = sample.len() >= super::SAMPLE || sample.len().is_multiple_of(PAGE_32);
    let zeros = |odd: usize| {
        let half = pages().skip(odd).step_by(2);
        half.len() > 4 && half.clone().filter(|page| *page == 0).count() * 10 > half.len() * 9
    };
    is_whole && pages().len() >= 2 && pages().all(|page| page < PLAUSIBLE_PAGE_MAX) && !zeros(0) && !zeros(1)
}

pub(super) fn pages_32(bytes: &[u8]) -> (usize, Parsed<'_>) {
    if bytes.len() < PAGE_32 {
        return invalid_record(bytes, "a whole number of 4 bytes");
    }
    let line = Line {
        at: Nanos(0),
        disk: Name::SingleDisk,
        op: Op::Read,
        offset: VolumeOffset(number(bytes, 0, PAGE_32) * BLOCK),
        len: Bytes(BLOCK),
        hint: Hint::None,
    };
    record(PAGE_32, bytes, line)
}

/// Reports whether all whole records of a sample, at least two or the only one, are valid.
fn all_records_match(sample: &[u8], size: usize, mut is_one: impl FnMut(usize, &[u8]) -> bool) -> bool {
    let records = sample.chunks_exact(size);
    let enough = records.len() > 1 || (records.len() == 1 && records.remainder().is_empty());
    enough && records.enumerate().all(|(at, record)| is_one(at, record))
}
