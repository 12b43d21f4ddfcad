//! Writes traces.

mod oracle;

use crate::chunk::{Encoder, MAGIC};
use crate::formats::Format;
use crate::record::{Disk, Record};
use oracle::Oracle;
use std::io::{self, Write};
use thiserror::Error;
use weir_model::{Nanos, Op, SECTOR};

/// Why a trace cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The format is read-only.
    #[error("traces are not written as {format}; name one of {known}")]
    NotWritable {
        /// The format's name.
        format: String,
        /// Names of the writable formats.
        known: String,
    },
    /// Writing to the output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes one record. Returns `false`, with nothing written, if the format cannot represent it.
type WriteLine = fn(&mut dyn Write, &RecordContext<'_>) -> io::Result<bool>;

/// The writable text formats: name, heading, writer.
const LINES: [(&str, &str, WriteLine); 9] = [
    ("msr", "", msr),
    ("vscsi", "version,time,op,size,lbn\n", vscsi),
    ("spc", "", spc),
    ("alibaba", "", alibaba),
    ("tencent", "", tencent),
    ("systor", "Timestamp,Response,IOType,LUN,Offset,Size\n", systor),
    ("mqsim", "", mqsim),
    ("fio-2", "fio version 2 iolog\n", fio_2),
    ("fio-3", "fio version 3 iolog\n", fio_3),
];

/// The format whose records refer to later ones.
const ORACLE: &str = "oracle";

/// A record with its context.
struct RecordContext<'r> {
    record: &'r Record,
    /// The source trace's name of the disk.
    disk: &'r str,
    /// True if it is the first of its disk.
    is_first: bool,
    /// Time since the previous record, as far as it was written in microseconds.
    since_previous: Nanos,
}

/// Writes a trace in another format, record by record.
///
/// Times are rounded down to the precision of the format; disks are numbered if the format has no names for
/// them. Memory is constant, except for `oracle`, which is written when the trace ends: it takes 24 bytes per
/// request, and at the end 8 more per request and about 30 per page.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Sink<W>,
    /// Disks seen so far, one bit each.
    seen: Vec<bool>,
    last: Option<Nanos>,
}

enum Sink<W: Write> {
    Lines { write: WriteLine, out: W },
    Chunks { encoder: Encoder, frames: Frames<W> },
    Oracle { requests: Oracle, out: W },
}

impl<W: Write> Writer<W> {
    /// Begins a trace of the format, with its heading.
    ///
    /// # Errors
    /// Fails if the format is read-only, or as `out`.
    pub fn new(format: &Format, mut out: W) -> Result<Self, WriteError> {
        let out = if format.name == "weir" {
            let mut frames = Frames { out, table: Vec::new(), counts: Vec::new() };
            frames.write(MAGIC)?;
            Sink::Chunks { encoder: Encoder::default(), frames }
        } else if format.name == ORACLE {
            Sink::Oracle { requests: Oracle::default(), out }
        } else {
            let Some((_, heading, write)) = LINES.iter().find(|(name, ..)| *name == format.name) else {
                let known = writable().collect::<Vec<_>>().join(", ");
                return Err(WriteError::NotWritable { format: format.name.clone().into_owned(), known });
            };
            out.write_all(heading.as_bytes())?;
            Sink::Lines { write: *write, out }
        };
        Ok(Self { out, seen: Vec::new(), last: None })
    }

    /// Writes a record of the disk of this name. Returns `false`, and leaves the record out, if the format
    /// cannot represent it: a trim, or a range that is not aligned to sectors or pages.
    ///
    /// # Errors
    /// As the output.
    pub fn write(&mut self, record: &Record, disk: &str) -> io::Result<bool> {
        let is_first = !self.is_seen(record.disk);
        match &mut self.out {
            Sink::Chunks { encoder, frames } => {
                encoder.push(record, disk);
                if encoder.is_full() {
                    frames.end_chunk(encoder)?;
                }
            }
            Sink::Oracle { requests, .. } => {
                if !requests.push(record) {
                    return Ok(false);
                }
            }
            Sink::Lines { write, out } => {
                let since = self.last.map_or(Nanos(0), |last| record.at.since(last));
                if !write(out, &RecordContext { record, disk, is_first, since_previous: since })? {
                    return Ok(false);
                }
                let told = Nanos(record.at.0 / 1000 * 1000);
                self.last = Some(self.last.map_or(told, |last| last.max(told)));
            }
        }
        let at = record.disk.0 as usize;
        self.seen.resize(self.seen.len().max(at + 1), false);
        self.seen[at] = true;
        Ok(true)
    }

    fn is_seen(&self, disk: Disk) -> bool {
        self.seen.get(disk.0 as usize).is_some_and(|seen| *seen)
    }

    /// Flushes everything written so far to the output, so that it can be read even if the trace is never
    /// finished. With `oracle`, nothing is written before the end. Cost: system calls, and in weir's own
    /// format a chunk, which compresses worse the fewer records it has; do not call it for each record.
    ///
    /// # Errors
    /// As the output.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Sink::Lines { out, .. } => out.flush(),
            Sink::Oracle { .. } => Ok(()),
            Sink::Chunks { encoder, frames } => {
                frames.end_chunk(encoder)?;
                frames.out.flush()
            }
        }
    }

    /// Finishes the trace.
    ///
    /// # Errors
    /// As the output.
    pub fn finish(self) -> io::Result<W> {
        match self.out {
            Sink::Lines { mut out, .. } => {
                out.flush()?;
                Ok(out)
            }
            Sink::Oracle { requests, mut out } => {
                requests.finish(&mut out)?;
                out.flush()?;
                Ok(out)
            }
            Sink::Chunks { mut encoder, mut frames } => {
                frames.end_chunk(&mut encoder)?;
                frames.finish()
            }
        }
    }
}

impl<W: Write> std::fmt::Debug for Sink<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lines { .. } => "Lines",
            Self::Chunks { .. } => "Chunks",
            Self::Oracle { .. } => "Oracle",
        })
    }
}

/// Returns the names of the writable formats.
pub fn writable() -> impl Iterator<Item = &'static str> {
    std::iter::once("weir").chain(LINES.iter().map(|(name, ..)| *name)).chain([ORACLE])
}

/// Reports whether the format represents disks; otherwise requests to several disks are read back as requests
/// to one.
pub fn represents_disks(format: &Format) -> bool {
    ![ORACLE, "vscsi"].contains(&&*format.name)
}

/// zstd frames that can be decompressed independently, with a table of their positions: zstd's seekable
/// format, version 0.1.0.
struct Frames<W> {
    out: W,
    /// Packed and unpacked lengths of the frames.
    table: Vec<[u32; 2]>,
    /// Record counts of the chunks.
    counts: Vec<u32>,
}

/// zstd's default level.
const LEVEL: i32 = 3;
/// Magic numbers of the skippable frame with the table, and at the end of the table of the seekable format.
pub(crate) const SKIPPABLE_MAGIC: u32 = 0x184d_2a5e;
pub(crate) const SEEKABLE_MAGIC: u32 = 0x8f92_eab1;
/// Magic number of the skippable frame with the record counts of the chunks.
pub(crate) const COUNTS_MAGIC: u32 = 0x184d_2a57;
/// Length of a skippable frame's header: magic number and length of the content.
pub(crate) const SKIPPABLE_HEADER_LEN: usize = 8;

impl<W: Write> Frames<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let packed = compress_frame(bytes)?;
        self.table.push([packed.len() as u32, bytes.len() as u32]);
        self.out.write_all(&packed)
    }

    fn end_chunk(&mut self, encoder: &mut Encoder) -> io::Result<()> {
        let mut bytes = Vec::new();
        let records = encoder.finish(&mut bytes)?;
        if records == 0 {
            return Ok(());
        }
        self.counts.push(records);
        self.write(&bytes)
    }

    /// Writes the record counts of the chunks, in a frame that decompressors skip.
    fn write_counts(&mut self) -> io::Result<()> {
        let counts: Vec<_> = self.counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        let packed = compress_frame(&counts)?;
        self.table.push([(SKIPPABLE_HEADER_LEN + packed.len()) as u32, 0]);
        self.out.write_all(&COUNTS_MAGIC.to_le_bytes())?;
        self.out.write_all(&(packed.len() as u32).to_le_bytes())?;
        self.out.write_all(&packed)
    }

    fn finish(mut self) -> io::Result<W> {
        self.write_counts()?;
        let frames = self.table.len() as u32;
        let mut end = Vec::new();
        end.extend(SKIPPABLE_MAGIC.to_le_bytes());
        end.extend((8 * frames + 9).to_le_bytes());
        end.extend(self.table.iter().flatten().flat_map(|len| len.to_le_bytes()));
        end.extend(frames.to_le_bytes());
        end.push(0);
        end.extend(SEEKABLE_MAGIC.to_le_bytes());
        self.out.write_all(&end)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Compresses bytes to a zstd frame with a checksum.
fn compress_frame(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packer = zstd::Encoder::new(Vec::new(), LEVEL)?;
    packer.include_checksum(true)?;
    packer.write_all(bytes)?;
    packer.finish()
}

/// Returns the first sector and the number of sectors, if the record is aligned.
fn sectors(record: &Record) -> Option<(u64, u64)> {
    let is_whole = record.offset.0.is_multiple_of(SECTOR) && record.len.0.is_multiple_of(SECTOR);
    is_whole.then_some((record.offset.0 / SECTOR, record.len.0 / SECTOR))
}

/// Returns the word for reads or for writes; `None` for a trim.
fn word(op: Op, read: &'static str, write: &'static str) -> Option<&'static str> {
    match op {
        Op::Read => Some(read),
        Op::Write => Some(write),
        _ => None,
    }
}

fn msr(out: &mut dyn Write, context: &RecordContext<'_>) -> io::Result<bool> {
    let record = context.record;
    let Some(op) = word(record.op, "Read", "Write") else { return Ok(false) };
    // Host and number, or substitutes for them.
    let parts = context
        .disk
        .rsplit_once(',')
        .filter(|(host, disk)| !host.is_empty() && !host.contains(',') && disk.parse::<u32>().is_ok());
    let number = record.disk.0.to_string();
    let (host, disk) = parts.unwrap_or(("weir", &number));
    writeln!(out, "{},{host},{disk},{op},{},{},0", record.at.0 / 100, record.offset.0, record.len.0)?;
    Ok(true)
}

fn vscsi(out: &mut dyn Write, context: &RecordContext<'_>) -> io::Result<bool> {
    let record = context.record;
    let (Some((sector, _)), Ok(len)) = (sectors(record), u32::try_from(record.len.0)) else {
        return Ok(false);
    };
    let op = match record.op {
        Op::Read => "28",
        Op::Write => "2a",
        _ => "42",
    };
    writeln!(out, "1,{},{op},{len},{sector}", record.at.0 / 1000)?;
    Ok(true)
}

fn spc(out: &mut dyn Write, context: &RecordContext<'_>) -> io::Result<bool> {
    let record = context.record;
    let (Some((sector, _)), Some(op)) = (sectors(record), word(record.op, "R", "W")) else {
        return Ok(false);
    };
    let (seconds, rest) = (record.at.0 / 1_000_000_000, record.at.0 % 1_000_000_000);
    writeln!(out, "{},{sector},{},{op},{seconds}.{rest:09}", record.disk.0, record.len.0)?;
    Ok(true)
}

fn alibaba(out: &mut dyn Write, context: &RecordContext<'_>) -> io::Result<bool> {
    let record = context.record;
    let Some(op) = word(record.op, "R", "W") else { return Ok(false) };
    let number = disk_number(context);
    writeln!(out, "{number},{op},{},{},{}", record.offset.0, record.len.0, record.at.0 / 1000)?;
    Ok(true)
}

/// Returns the disk's name, if it is a number; otherwise a number that no device has.
fn disk_number(context: &RecordContext<'_>) -> u32 {
    let known = context.disk.parse::<u32>().ok().filter(|number| number.to_string() == context.disk);
    known.unwrap_or(u32::MAX - context.record.disk.0)
}

/// Writes Tencent's format: times are whole seconds.
fn tencent(out: &mut dyn Write, context: &RecordContext<'_>) -> io::Result<bool> {
    let record = context.record;
    let (Some((sector, len)), Some(op)) = (sectors(record), word(record.op, "0", "1")) else {
        return Ok(false);
    };
    writeln!(out, "{},{sector},{len},{op},{}", record.at.0 / 1_000_000_000, disk_number(context))?;
    Ok(true)
}

/// Writes SYSTOR's format without response times.
fn systor(out: &mut dyn Write, context: &RecordContext<'_>) -> io::Result<bool> {
    let record = context.record;
    let Some(op) = word(record.op, "R", "W") else { return Ok(false) };
    let (seconds, rest) = (record.at.0 / 1_000_000_000, record.at.0 % 1_000_000_000);
    let (lun, offset, len) = (disk_number(context), record.offset.0, record.len.0);
    writeln!(out, "{seconds}.{rest:09},,{op},{lun},{offset},{len}")?;
    Ok(true)
}

fn mqsim(out: &mut dyn Write, context: &RecordContext<'_>) -> io::Result<bool> {
    let record = context.record;
    let (Some((sector, len)), Some(op)) = (sectors(record), word(record.op, "1", "0")) else {
        return Ok(false);
    };
    writeln!(out, "{} {} {sector} {len} {op}", record.at.0, record.disk.0)?;
    Ok(true)
}

/// Writes fio's version 2: delays are whole microseconds.
fn fio_2(out: &mut dyn Write, context: &RecordContext<'_>) -> io::Result<bool> {
    let wait = context.since_previous.0 / 1000;
    if wait > 0 {
        writeln!(out, "{} wait {wait} 0", file_name(context))?;
    }
    fio(out, context, "")
}

fn fio_3(out: &mut dyn Write, context: &RecordContext<'_>) -> io::Result<bool> {
    fio(out, context, &format!("{} ", context.record.at.0 / 1000))
}

/// Returns a name of the disk without blanks.
fn file_name(context: &RecordContext<'_>) -> String {
    if context.disk.is_empty() {
        return format!("disk{}", context.record.disk.0);
    }
    context.disk.replace(|c: char| c.is_whitespace() || c.is_control(), "_")
}

fn fio(out: &mut dyn Write, context: &RecordContext<'_>, time: &str) -> io::Result<bool> {
    let (record, file) = (context.record, file_name(context));
    if context.is_first {
        writeln!(out, "{time}{file} add\n{time}{file} open")?;
    }
    let action = word(record.op, "read", "write").unwrap_or("trim");
    writeln!(out, "{time}{file} {action} {} {}", record.offset.0, record.len.0)?;
    Ok(true)
}

#[cfg(test)]
mod tests;
