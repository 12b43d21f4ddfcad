//! The formats: how each one's lines read.

use crate::fields::{Fault, Fields, Number, Separator};
use weir_model::{BLOCK, Bytes, Nanos, Op, SECTOR, VolumeOffset};

/// A format of traces.
#[derive(Debug)]
pub struct Format {
    /// Its name.
    pub name: &'static str,
    /// What it is, for people.
    pub about: &'static str,
    /// Whether it says when requests were made.
    pub timed: bool,
    /// The heading it begins with, by which it is known.
    pub(crate) heading: Option<&'static [u8]>,
    pub(crate) separator: Separator,
    pub(crate) parse: Parse,
}

/// What a line says: a request, or nothing (the end of one, something that is no request).
pub(crate) type Parsed<'l> = Result<Option<Line<'l>>, Fault<'l>>;
type Parse = for<'l> fn(&mut Fields<'l>) -> Parsed<'l>;

/// A request as its line has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'l> {
    pub(crate) at: Nanos,
    /// What the trace calls the disk.
    pub(crate) disk: &'l [u8],
    pub(crate) op: Op,
    pub(crate) offset: VolumeOffset,
    pub(crate) len: Bytes,
}

/// All formats. Where lines without a heading could be of several, the first is meant.
pub static FORMATS: &[Format] = &[
    Format {
        name: "msr",
        about: "MSR Cambridge CSV: file time (100 ns), host, disk, Read/Write, offset, size, response",
        timed: true,
        heading: None,
        separator: Separator::Comma,
        parse: msr,
    },
    Format {
        name: "vscsi",
        about: "CloudPhysics CSV: version, time (us), SCSI operation (hex), size, first sector",
        timed: true,
        heading: Some(b"version,time,op,size,lbn"),
        separator: Separator::Comma,
        parse: vscsi,
    },
    Format {
        name: "systor",
        about: "SYSTOR '17 CSV: time (s), response, R/W, LUN, offset, size",
        timed: true,
        heading: Some(b"Timestamp,Response,IOType,LUN,Offset,Size"),
        separator: Separator::Comma,
        parse: systor,
    },
    Format {
        name: "hpl",
        about: "HP Labs CSV: time (us), disk, start (256 B), size, R/W, and more",
        timed: true,
        heading: Some(
            b"time_us,disk,start_256b,size_bytes,type,flags_hex,service_start_us,done_us,queue_len",
        ),
        separator: Separator::Comma,
        parse: hpl,
    },
    Format {
        name: "tencent",
        about: "Tencent block storage CSV: time (s), first sector, sectors, 0 read/1 write, volume",
        timed: true,
        heading: None,
        separator: Separator::Comma,
        parse: tencent,
    },
    Format {
        name: "replayed",
        about: "replayed CSV: time (ms), latency (us), 1 read/0 write, size, offset, submitted (ms), done",
        timed: true,
        heading: None,
        separator: Separator::Comma,
        parse: replayed,
    },
    Format {
        name: "mqsim",
        about: "MQSim, SSDsim: time (ns), disk, first sector, sectors, 1 read/0 write",
        timed: true,
        heading: None,
        separator: Separator::Blanks,
        parse: mqsim,
    },
    Format {
        name: "ms-bytes",
        about: "time (ms, with a fraction), disk, offset, size, 1 read/0 write",
        timed: true,
        heading: None,
        separator: Separator::Blanks,
        parse: ms_bytes,
    },
    Format {
        name: "blkev",
        about: "blktrace events: process, D/C, operation, offset, size, time (s), gap, synchronous",
        timed: true,
        heading: None,
        separator: Separator::Blanks,
        parse: blkev,
    },
    Format {
        name: "arc-pages",
        about: "ARC page references: page (taken as 4 KiB), 1, 0, 0; no times",
        timed: false,
        heading: None,
        separator: Separator::Blanks,
        parse: arc_pages,
    },
    Format {
        name: "arc",
        about: "ARC references: first sector, sectors, an ignored number, the request's number; no times",
        timed: false,
        heading: None,
        separator: Separator::Blanks,
        parse: arc,
    },
];

/// The format of that name.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

const NS: u64 = 1;
const TICK: u64 = 100;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// What a trace with one disk calls it.
const ONLY: &[u8] = b"0";

fn msr<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = Nanos(fields.number("a time in ticks of 100 ns", TICK)?.value);
    let host = fields.next("a host's name")?;
    fields.number("a disk's number", 1)?;
    let disk = fields.since(host);
    let op = fields.word("Read or Write", &[(b"Read", Op::Read), (b"Write", Op::Write)])?;
    let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
    request(at, disk, op, offset, len)
}

fn vscsi<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    fields.number("a version", 1)?;
    let at = Nanos(fields.number("a time in microseconds", US)?.value);
    let operation = fields.hex("a SCSI operation in hexadecimal")?;
    let len = fields.number(SIZE, 1)?;
    let offset = fields.number(SECTOR_NUMBER, SECTOR)?;
    let op = match operation {
        0x08 | 0x28 | 0x88 | 0xa8 => Op::Read,
        0x0a | 0x2a | 0x8a | 0xaa => Op::Write,
        0x42 => Op::Trim,
        _ => return Ok(None),
    };
    request(at, ONLY, op, offset, len)
}

fn systor<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = fields.time("a time in seconds", S)?;
    // The response may be missing.
    fields.skip(1);
    let op = fields.word("R or W", &READ_WRITE)?;
    let disk = fields.next("a LUN")?.text;
    let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
    request(at, disk, op, offset, len)
}

fn hpl<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = Nanos(fields.number("a time in microseconds", US)?.value);
    let disk = fields.next("a disk's number")?.text;
    let offset = fields.number("a start in units of 256 bytes", 256)?;
    let len = fields.number(SIZE, 1)?;
    let op = fields.word("R or W", &READ_WRITE)?;
    request(at, disk, op, offset, len)
}

fn tencent<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = Nanos(fields.number("a time in seconds", S)?.value);
    let (offset, len) = (sector(fields)?, sectors(fields)?);
    let op = fields.word("0 (read) or 1 (write)", &[(b"0", Op::Read), (b"1", Op::Write)])?;
    let disk = fields.next("a volume's number")?.text;
    fields.end()?;
    request(at, disk, op, offset, len)
}

fn replayed<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    fields.time("a time in milliseconds", MS)?;
    fields.number("a latency in microseconds", 1)?;
    let op = fields.word(ONE_IS_READ, &ONE_READ)?;
    let (len, offset) = (fields.number(SIZE, 1)?, fields.number(OFFSET, 1)?);
    let at = fields.time("a time in milliseconds", MS)?;
    request(at, ONLY, op, offset, len)
}

fn mqsim<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = Nanos(fields.number("a time in nanoseconds", NS)?.value);
    let disk = fields.number("a disk's number", 1)?.field.text;
    let (offset, len) = (sector(fields)?, sectors(fields)?);
    let op = fields.word(ONE_IS_READ, &ONE_READ)?;
    fields.end()?;
    request(at, disk, op, offset, len)
}

fn ms_bytes<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = fields.time("a time in milliseconds", MS)?;
    let disk = fields.number("a disk's number", 1)?.field.text;
    let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
    let op = fields.word(ONE_IS_READ, &ONE_READ)?;
    fields.end()?;
    request(at, disk, op, offset, len)
}

fn blkev<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    fields.number("a process's number", 1)?;
    let sent = fields.word("D (sent) or C (completed)", &[(b"D", true), (b"C", false)])?;
    let words: [(&[u8], Op); 3] = [(b"read", Op::Read), (b"write", Op::Write), (b"discard", Op::Trim)];
    let op = fields.word("read, write or discard", &words)?;
    let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
    let at = fields.time("a time in seconds", S)?;
    if sent { request(at, ONLY, op, offset, len) } else { Ok(None) }
}

fn arc_pages<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let offset = fields.number("a page's number", BLOCK)?;
    let len = fields.number("1", BLOCK)?;
    if len.value != BLOCK {
        return Err(len.field.fault("1"));
    }
    for _ in 0..2 {
        fields.word("0", &[(b"0", ())])?;
    }
    fields.end()?;
    request(Nanos(0), ONLY, Op::Read, offset, len)
}

fn arc<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let (offset, len) = (sector(fields)?, sectors(fields)?);
    fields.number("0", 1)?;
    fields.number("a request's number", 1)?;
    fields.end()?;
    request(Nanos(0), ONLY, Op::Read, offset, len)
}

const OFFSET: &str = "an offset in bytes";
const SIZE: &str = "a size in bytes";
const SECTOR_NUMBER: &str = "a sector's number";
const ONE_IS_READ: &str = "1 (read) or 0 (write)";
const READ_WRITE: [(&[u8], Op); 2] = [(b"R", Op::Read), (b"W", Op::Write)];
const ONE_READ: [(&[u8], Op); 2] = [(b"1", Op::Read), (b"0", Op::Write)];

fn sector<'l>(fields: &mut Fields<'l>) -> Result<Number<'l>, Fault<'l>> {
    fields.number(SECTOR_NUMBER, SECTOR)
}

fn sectors<'l>(fields: &mut Fields<'l>) -> Result<Number<'l>, Fault<'l>> {
    fields.number("a number of sectors", SECTOR)
}

fn request<'l>(at: Nanos, disk: &'l [u8], op: Op, offset: Number<'l>, len: Number<'l>) -> Parsed<'l> {
    // Volumes are addressed by 63 bits: a sum of offsets and lengths is then never too large.
    if offset.value.checked_add(len.value).is_none_or(|end| end > i64::MAX as u64) {
        return Err(offset.field.fault("a range that ends below 8 EiB"));
    }
    if len.value == 0 {
        return Ok(None);
    }
    Ok(Some(Line { at, disk, op, offset: VolumeOffset(offset.value), len: Bytes(len.value) }))
}
