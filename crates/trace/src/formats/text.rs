//! Line parsers of the named text formats.

use super::{LineMeaning, MS, NS, Parsed, S, SINGLE_DISK, TICK, US, hinted_request, request};
use crate::fields::{FieldError, Fields, Number, Separator};
use weir_model::{BLOCK, Hint, Nanos, Op, SECTOR};

pub(super) fn msr<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = Nanos(fields.number("a time in ticks of 100 ns", TICK)?.value);
    let host = fields.next("a host's name")?;
    fields.number("a disk's number", 1)?;
    let disk = fields.text_from(host);
    let op = fields.word("Read or Write", &[(b"Read", Op::Read), (b"Write", Op::Write)])?;
    let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
    request(at, disk, op, offset, len)
}

pub(super) fn vscsi<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    fields.number("a version", 1)?;
    let at = Nanos(fields.number("a time in microseconds", US)?.value);
    let operation = fields.hex("a SCSI operation in hexadecimal")?;
    let len = fields.number(SIZE, 1)?;
    let offset = fields.number(SECTOR_NUMBER, SECTOR)?;
    let Some(op) = super::binary::scsi(operation) else { return Ok(LineMeaning::NoRequest) };
    request(at, SINGLE_DISK, op, offset, len)
}

pub(super) fn systor<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = fields.time("a time in seconds", S)?;
    // The response may be missing.
    fields.skip(1);
    let op = fields.word("R or W", &READ_WRITE)?;
    let disk = fields.next("a LUN")?.text;
    let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
    request(at, disk, op, offset, len)
}

pub(super) fn hpl<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = Nanos(fields.number("a time in microseconds", US)?.value);
    let disk = fields.next("a disk's number")?.text;
    let offset = fields.number("a start in units of 256 bytes", 256)?;
    let len = fields.number(SIZE, 1)?;
    let op = fields.word("R or W", &READ_WRITE)?;
    request(at, disk, op, offset, len)
}

pub(super) fn tencent<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = Nanos(fields.number("a time in seconds", S)?.value);
    let (offset, len) = (sector(fields)?, sectors(fields)?);
    let op = fields.word("0 (read) or 1 (write)", &[(b"0", Op::Read), (b"1", Op::Write)])?;
    let disk = fields.next("a volume's number")?.text;
    fields.end()?;
    request(at, disk, op, offset, len)
}

pub(super) fn replayed<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    fields.time("a time in milliseconds", MS)?;
    fields.number("a latency in microseconds", 1)?;
    let op = fields.word(ONE_IS_READ, &ONE_READ)?;
    let (len, offset) = (fields.number(SIZE, 1)?, fields.number(OFFSET, 1)?);
    let at = fields.time("a time in milliseconds", MS)?;
    fields.number("how many bytes were done", 1)?;
    request(at, SINGLE_DISK, op, offset, len)
}

pub(super) fn mqsim<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = Nanos(fields.number("a time in nanoseconds", NS)?.value);
    let disk = fields.number("a disk's number", 1)?.field.text;
    let (offset, len) = (sector(fields)?, sectors(fields)?);
    let op = fields.word(ONE_IS_READ, &ONE_READ)?;
    fields.end()?;
    request(at, disk, op, offset, len)
}

pub(super) fn ms_bytes<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = fields.time("a time in milliseconds", MS)?;
    let disk = fields.number("a disk's number", 1)?.field.text;
    let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
    let op = fields.word(ONE_IS_READ, &ONE_READ)?;
    fields.end()?;
    request(at, disk, op, offset, len)
}

/// Parses DiskSim's own format: bit 0 of the flags marks a read.
pub(super) fn disksim<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = fields.time("a time in milliseconds", MS)?;
    let disk = fields.number("a device's number", 1)?.field.text;
    let (offset, len) = (sector(fields)?, sectors(fields)?);
    let flags = fields.hex("flags in hexadecimal")?;
    fields.end()?;
    request(at, disk, if flags & 1 == 1 { Op::Read } else { Op::Write }, offset, len)
}

/// Parses DiskSim's validation format: measured service times; each request is issued a given time after the
/// previous one.
pub(super) fn disksim_validate<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let op = fields.word("R or W", &READ_WRITE)?;
    // Hit, Miss, or the kind of write.
    let kind = fields.next("a word like Hit or Miss")?;
    if !kind.text[0].is_ascii_alphabetic() {
        return Err(kind.error("a word like Hit or Miss"));
    }
    let (offset, len) = (sector(fields)?, sectors(fields)?);
    fields.time("a service time in microseconds", US)?;
    let gap = fields.time("a gap in microseconds", US)?;
    fields.end()?;
    Ok(match request(Nanos(0), SINGLE_DISK, op, offset, len)? {
        LineMeaning::Request(line) => LineMeaning::RequestAndDelay(line, gap),
        _ => LineMeaning::Delay(gap),
    })
}

// Response times of lines that have been parsed already.

/// Returns the field after `before` others, as a time.
fn response_at(line: &[u8], separator: Separator, before: usize, unit: u64) -> Option<Nanos> {
    let mut fields = Fields::new(line, separator);
    fields.skip(before);
    fields.time("a response time", unit).ok()
}

/// Parses MSR's response time; 0 means that it is unknown.
pub(super) fn msr_response(line: &[u8]) -> Option<Nanos> {
    response_at(line, Separator::Comma, 6, TICK).filter(|response| response.0 > 0)
}

pub(super) fn systor_response(line: &[u8]) -> Option<Nanos> {
    response_at(line, Separator::Comma, 1, S)
}

pub(super) fn hpl_response(line: &[u8]) -> Option<Nanos> {
    response_at(line, Separator::Comma, 7, US)
}

pub(super) fn replayed_response(line: &[u8]) -> Option<Nanos> {
    response_at(line, Separator::Comma, 1, US)
}

pub(super) fn fio_latency_response(line: &[u8]) -> Option<Nanos> {
    response_at(line, Separator::Comma, 1, NS)
}

pub(super) fn disksim_validate_response(line: &[u8]) -> Option<Nanos> {
    response_at(line, Separator::Blanks, 4, US)
}

pub(super) fn blkev<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    fields.number("a process's number", 1)?;
    let sent = fields.word("D (sent) or C (completed)", &[(b"D", true), (b"C", false)])?;
    let words: [(&[u8], Op); 3] = [(b"read", Op::Read), (b"write", Op::Write), (b"discard", Op::Trim)];
    let op = fields.word("read, write or discard", &words)?;
    let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
    let at = fields.time("a time in seconds", S)?;
    if sent { request(at, SINGLE_DISK, op, offset, len) } else { Ok(LineMeaning::NoRequest) }
}

pub(super) fn arc_pages<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let offset = fields.number("a page's number", BLOCK)?;
    let len = fields.number("1", BLOCK)?;
    if len.value != BLOCK {
        return Err(len.field.error("1"));
    }
    for _ in 0..2 {
        fields.word("0", &[(b"0", ())])?;
    }
    fields.end()?;
    request(Nanos(0), SINGLE_DISK, Op::Read, offset, len)
}

pub(super) fn arc<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let (offset, len) = (sector(fields)?, sectors(fields)?);
    fields.number("0", 1)?;
    fields.number("a request's number", 1)?;
    fields.end()?;
    request(Nanos(0), SINGLE_DISK, Op::Read, offset, len)
}

/// Parses UMass's format: `ASU,LBA,size,opcode,timestamp`; further fields are ignored.
pub(super) fn spc<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let disk = fields.number("an application's storage unit", 1)?.field.text;
    let (offset, len) = (sector(fields)?, fields.number(SIZE, 1)?);
    let op = fields.word("R or W", &READ_WRITE)?;
    let at = fields.time("a time in seconds", S)?;
    request(at, disk, op, offset, len)
}

pub(super) fn alibaba<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let disk = fields.number("a device's number", 1)?.field.text;
    let op = fields.word("R or W", &READ_WRITE)?;
    let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
    let at = Nanos(fields.number("a time in microseconds", US)?.value);
    fields.end()?;
    request(at, disk, op, offset, len)
}

/// Parses the requests of programs: events `Q`.
pub(super) fn blkparse<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    blkparse_events(fields, b"Q")
}

/// Parses the commands to the disk: events `D`.
pub(super) fn blkparse_issued<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    blkparse_events(fields, b"D")
}

/// Parses `8,0 1 17 0.000123456 4321 Q WSM 2048 + 8 [fio]`, where `M` marks metadata; a summary in words
/// follows the events.
fn blkparse_events<'l>(fields: &mut Fields<'l>, wanted: &[u8]) -> Parsed<'l> {
    let device = fields.next(DEVICE)?;
    if device.text[0].is_ascii_alphabetic() {
        return Ok(LineMeaning::NoRequest);
    }
    let is_device = |text: &[u8]| {
        let mut parts = text.split(|byte| *byte == b',');
        let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        parts.by_ref().take(2).filter(|part| is_number(part)).count() == 2 && parts.next().is_none()
    };
    if !is_device(device.text) {
        return Err(device.error(DEVICE));
    }
    fields.number("a processor's number", 1)?;
    fields.number("an event's number", 1)?;
    let at = fields.time("a time in seconds", S)?;
    fields.number("a process's number", 1)?;
    if fields.next("an action")?.text != wanted {
        return Ok(LineMeaning::NoRequest);
    }
    let kind = fields.next("what is done, like R or WS")?.text;
    let op = match kind {
        _ if kind.contains(&b'D') => Op::Trim,
        _ if kind.contains(&b'R') => Op::Read,
        _ if kind.contains(&b'W') => Op::Write,
        _ => return Ok(LineMeaning::NoRequest),
    };
    // A flush has no sectors.
    let offset = match sector(fields) {
        Err(fault) if fault.found.is_empty() || fault.found.starts_with(b"[") => {
            return Ok(LineMeaning::NoRequest);
        }
        offset => offset?,
    };
    // Passthrough commands have their bytes in parentheses instead.
    if fields.next("+").is_ok_and(|field| field.text != b"+") {
        return Ok(LineMeaning::NoRequest);
    }
    let len = sectors(fields)?;
    let hint = if kind.contains(&b'M') { Hint::Metadata } else { Hint::None };
    hinted_request(at, device.text, op, (offset, len), hint)
}

/// Parses fio's version 2: it has delays instead of times.
pub(super) fn fio_2<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let file = fields.next("a file's name")?.text;
    fio_action(fields, Nanos(0), file)
}

/// Parses fio's version 3: it begins with a time.
pub(super) fn fio_3<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let at = Nanos(fields.number("a time in microseconds", US)?.value);
    let file = fields.next("a file's name")?.text;
    fio_action(fields, at, file)
}

fn fio_action<'l>(fields: &mut Fields<'l>, at: Nanos, file: &'l [u8]) -> Parsed<'l> {
    #[derive(Clone, Copy)]
    enum Action {
        Op(Op),
        Wait,
        Nothing,
    }
    let words: [(&[u8], Action); 9] = [
        (b"read", Action::Op(Op::Read)),
        (b"write", Action::Op(Op::Write)),
        (b"trim", Action::Op(Op::Trim)),
        (b"wait", Action::Wait),
        (b"sync", Action::Nothing),
        (b"datasync", Action::Nothing),
        (b"add", Action::Nothing),
        (b"open", Action::Nothing),
        (b"close", Action::Nothing),
    ];
    match fields.word("read, write, trim, wait, sync, datasync, add, open or close", &words)? {
        Action::Nothing => Ok(LineMeaning::NoRequest),
        Action::Wait => Ok(LineMeaning::Delay(Nanos(fields.number("a time in microseconds", US)?.value))),
        Action::Op(op) => {
            let (offset, len) = (fields.number(OFFSET, 1)?, fields.number(SIZE, 1)?);
            request(at, file, op, offset, len)
        }
    }
}

/// Parses fio's latency log with offsets and priorities: a request arrived its latency before the line's
/// time.
pub(super) fn fio_latency<'l>(fields: &mut Fields<'l>) -> Parsed<'l> {
    let done = fields.number("a time in milliseconds", MS)?.value;
    let latency = fields.number("a latency in nanoseconds", NS)?.value;
    let words: [(&[u8], Op); 3] = [(b"0", Op::Read), (b"1", Op::Write), (b"2", Op::Trim)];
    let op = fields.word("0 (read), 1 (write) or 2 (trim)", &words)?;
    let (len, offset) = (fields.number(SIZE, 1)?, fields.number(OFFSET, 1)?);
    if len.value < SECTOR {
        return Err(len.field.error("a size of at least 512 bytes"));
    }
    fields.next("a priority")?;
    request(Nanos(done.saturating_sub(latency)), SINGLE_DISK, op, offset, len)
}

const DEVICE: &str = "a device like 8,0";
const OFFSET: &str = "an offset in bytes";
const SIZE: &str = "a size in bytes";
const SECTOR_NUMBER: &str = "a sector's number";
const ONE_IS_READ: &str = "1 (read) or 0 (write)";
const READ_WRITE: [(&[u8], Op); 2] = [(b"R", Op::Read), (b"W", Op::Write)];
const ONE_READ: [(&[u8], Op); 2] = [(b"1", Op::Read), (b"0", Op::Write)];

fn sector<'l>(fields: &mut Fields<'l>) -> Result<Number<'l>, FieldError<'l>> {
    fields.number(SECTOR_NUMBER, SECTOR)
}

fn sectors<'l>(fields: &mut Fields<'l>) -> Result<Number<'l>, FieldError<'l>> {
    fields.number("a number of sectors", SECTOR)
}
