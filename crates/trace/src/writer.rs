//! Writes traces.

mod oracle;

use crate::chunk::{Encoder, MAGIC};
use crate::formats::Format;
use crate::record::{Disk, Record};
use oracle::Oracle;
use std::io::{self, Write};
use thiserror::Error;
use weir_model::{Nanos, Op, SECTOR};

/// Why no trace can be begun.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The format is only read.
    #[error("traces are not written as {format}; name one of {known}")]
    NotWritable {
        /// Its name.
        format: String,
        /// Those that are written.
        known: String,
    },
    /// The output took no bytes.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes one record. `false`, and nothing written, if the format has no way to say it.
type WriteLine = fn(&mut dyn Write, &Told<'_>) -> io::Result<bool>;

/// The formats of text that are written: name, heading, how.
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

/// The format whose records say what comes after them.
const ORACLE: &str = "oracle";

/// A record, and what is told with it.
struct Told<'r> {
    record: &'r Record,
    /// What the trace it is from calls the disk.
    disk: &'r str,
    /// It is the first of its disk.
    is_first: bool,
    /// Since the record before it, as far as that was told in microseconds.
    since: Nanos,
}

/// Writes a trace in another format, record by record.
///
/// Times are kept as exactly as the format can say them, rounded down; disks are numbered where it has no names for
/// them. Takes constant memory, but 24 bytes for each request of `oracle`, which is written when the trace ends: that takes
/// 8 more for each request, and some 30 for each page.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Out<W>,
    /// Disks that have come, a bit each.
    seen: Vec<bool>,
    last: Option<Nanos>,
}

enum Out<W: Write> {
    Lines { write: WriteLine, out: W },
    Chunks { encoder: Encoder, frames: Frames<W> },
    Oracle { requests: Oracle, out: W },
}

impl<W: Write> Writer<W> {
    /// A trace of the format, which begins with what such a trace begins with.
    ///
    /// # Errors
    /// If the format is only read, or as `out`.
    pub fn new(format: &Format, mut out: W) -> Result<Self, WriteError> {
        let out = if format.name == "weir" {
            let mut frames = Frames { out, table: Vec::new(), counts: Vec::new() };
            frames.write(MAGIC)?;
            Out::Chunks { encoder: Encoder::default(), frames }
        } else if format.name == ORACLE {
            Out::Oracle { requests: Oracle::default(), out }
        } else {
            let Some((_, heading, write)) = LINES.iter().find(|(name, ..)| *name == format.name) else {
                let known = writable().collect::<Vec<_>>().join(", ");
                return Err(WriteError::NotWritable { format: format.name.clone().into_owned(), known });
            };
            out.write_all(heading.as_bytes())?;
            Out::Lines { write: *write, out }
        };
        Ok(Self { out, seen: Vec::new(), last: None })
    }

    /// Writes a record, of the disk the trace it comes from calls so. `false` if the format has no way to say it: a
    /// trim, or what does not begin or end with a sector, or begin with a page; then it is left out.
    ///
    /// # Errors
    /// As the output.
    pub fn write(&mut self, record: &Record, disk: &str) -> io::Result<bool> {
        let is_first = !self.is_seen(record.disk);
        match &mut self.out {
            Out::Chunks { encoder, frames } => {
                encoder.push(record, disk);
                if encoder.is_full() {
                    frames.end_chunk(encoder)?;
                }
            }
            Out::Oracle { requests, .. } => {
                if !requests.push(record) {
                    return Ok(false);
                }
            }
            Out::Lines { write, out } => {
                let since = self.last.map_or(Nanos(0), |last| record.at.since(last));
                if !write(out, &Told { record, disk, is_first, since })? {
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

    /// Has all that was written so far reach the output, and flushes that: it can be read though the trace is never
    /// ended. Of `oracle` nothing is there before the end. Costs the system's calls, and a chunk of weir's own format,
    /// which packs less the fewer records are in it: not for each record.
    ///
    /// # Errors
    /// As the output.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Lines { out, .. } => out.flush(),
            Out::Oracle { .. } => Ok(()),
            Out::Chunks { encoder, frames } => {
                frames.end_chunk(encoder)?;
                frames.out.flush()
            }
        }
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// As the output.
    pub fn finish(self) -> io::Result<W> {
        match self.out {
            Out::Lines { mut out, .. } => {
                out.flush()?;
                Ok(out)
            }
            Out::Oracle { requests, mut out } => {
                requests.finish(&mut out)?;
                out.flush()?;
                Ok(out)
            }
            Out::Chunks { mut encoder, mut frames } => {
                frames.end_chunk(&mut encoder)?;
                frames.finish()
            }
        }
    }
}

impl<W: Write> std::fmt::Debug for Out<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lines { .. } => "Lines",
            Self::Chunks { .. } => "Chunks",
            Self::Oracle { .. } => "Oracle",
        })
    }
}

/// The names of the formats that are written.
pub fn writable() -> impl Iterator<Item = &'static str> {
    std::iter::once("weir").chain(LINES.iter().map(|(name, ..)| *name)).chain([ORACLE])
}

/// Whether the format says to which disk a request is: else requests to several are requests to one when they are read again.
pub fn tells_disks(format: &Format) -> bool {
    ![ORACLE, "vscsi"].contains(&&*format.name)
}

/// Frames of zstd, each of which can be unpacked alone, and where each is: zstd's seekable format, version 0.1.0.
struct Frames<W> {
    out: W,
    /// Lengths of the frames, packed and not.
    table: Vec<[u32; 2]>,
    /// Records of the chunks.
    counts: Vec<u32>,
}

/// The level of zstd: its usual one.
const LEVEL: i32 = 3;
/// What a frame begins with that is skipped, and what the table of the seekable format ends with.
pub(crate) const SKIPPABLE: u32 = 0x184d_2a5e;
pub(crate) const SEEKABLE: u32 = 0x8f92_eab1;
/// What a frame begins with that is skipped, and has the numbers of the chunks' records.
pub(crate) const COUNTS: u32 = 0x184d_2a57;
/// What follows that: the length of the frame's content.
pub(crate) const SKIPPABLE_HEAD: usize = 8;

impl<W: Write> Frames<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let packed = packed(bytes)?;
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

    /// How many records each chunk has, in a frame that whoever unpacks the trace skips.
    fn write_counts(&mut self) -> io::Result<()> {
        let counts: Vec<_> = self.counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        let packed = packed(&counts)?;
        self.table.push([(SKIPPABLE_HEAD + packed.len()) as u32, 0]);
        self.out.write_all(&COUNTS.to_le_bytes())?;
        self.out.write_all(&(packed.len() as u32).to_le_bytes())?;
        self.out.write_all(&packed)
    }

    fn finish(mut self) -> io::Result<W> {
        self.write_counts()?;
        let frames = self.table.len() as u32;
        let mut end = Vec::new();
        end.extend(SKIPPABLE.to_le_bytes());
        end.extend((8 * frames + 9).to_le_bytes());
        end.extend(self.table.iter().flatten().flat_map(|len| len.to_le_bytes()));
        end.extend(frames.to_le_bytes());
        end.push(0);
        end.extend(SEEKABLE.to_le_bytes());
        self.out.write_all(&end)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// As a frame of zstd, with its checksum.
fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packer = zstd::Encoder::new(Vec::new(), LEVEL)?;
    packer.include_checksum(true)?;
    packer.write_all(bytes)?;
    packer.finish()
}

/// First sector and number of sectors, if it is whole ones.
fn sectors(record: &Record) -> Option<(u64, u64)> {
    let is_whole = record.offset.0.is_multiple_of(SECTOR) && record.len.0.is_multiple_of(SECTOR);
    is_whole.then_some((record.offset.0 / SECTOR, record.len.0 / SECTOR))
}

/// A word for reads and one for writes; `None` for a trim.
fn word(op: Op, read: &'static str, write: &'static str) -> Option<&'static str> {
    match op {
        Op::Read => Some(read),
        Op::Write => Some(write),
        _ => None,
    }
}

fn msr(out: &mut dyn Write, told: &Told<'_>) -> io::Result<bool> {
    let record = told.record;
    let Some(op) = word(record.op, "Read", "Write") else { return Ok(false) };
    // A host and a number, or what can stand for them.
    let parts = told
        .disk
        .rsplit_once(',')
        .filter(|(host, disk)| !host.is_empty() && !host.contains(',') && disk.parse::<u32>().is_ok());
    let number = record.disk.0.to_string();
    let (host, disk) = parts.unwrap_or(("weir", &number));
    writeln!(out, "{},{host},{disk},{op},{},{},0", record.at.0 / 100, record.offset.0, record.len.0)?;
    Ok(true)
}

fn vscsi(out: &mut dyn Write, told: &Told<'_>) -> io::Result<bool> {
    let record = told.record;
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

fn spc(out: &mut dyn Write, told: &Told<'_>) -> io::Result<bool> {
    let record = told.record;
    let (Some((sector, _)), Some(op)) = (sectors(record), word(record.op, "R", "W")) else {
        return Ok(false);
    };
    let (seconds, rest) = (record.at.0 / 1_000_000_000, record.at.0 % 1_000_000_000);
    writeln!(out, "{},{sector},{},{op},{seconds}.{rest:09}", record.disk.0, record.len.0)?;
    Ok(true)
}

fn alibaba(out: &mut dyn Write, told: &Told<'_>) -> io::Result<bool> {
    let record = told.record;
    let Some(op) = word(record.op, "R", "W") else { return Ok(false) };
    let number = number(told);
    writeln!(out, "{number},{op},{},{},{}", record.offset.0, record.len.0, record.at.0 / 1000)?;
    Ok(true)
}

/// The disk's name, if it is a number; else a number no device has.
fn number(told: &Told<'_>) -> u32 {
    let known = told.disk.parse::<u32>().ok().filter(|number| number.to_string() == told.disk);
    known.unwrap_or(u32::MAX - told.record.disk.0)
}

/// Its times are whole seconds.
fn tencent(out: &mut dyn Write, told: &Told<'_>) -> io::Result<bool> {
    let record = told.record;
    let (Some((sector, len)), Some(op)) = (sectors(record), word(record.op, "0", "1")) else {
        return Ok(false);
    };
    writeln!(out, "{},{sector},{len},{op},{}", record.at.0 / 1_000_000_000, number(told))?;
    Ok(true)
}

/// Without a response's time.
fn systor(out: &mut dyn Write, told: &Told<'_>) -> io::Result<bool> {
    let record = told.record;
    let Some(op) = word(record.op, "R", "W") else { return Ok(false) };
    let (seconds, rest) = (record.at.0 / 1_000_000_000, record.at.0 % 1_000_000_000);
    let (lun, offset, len) = (number(told), record.offset.0, record.len.0);
    writeln!(out, "{seconds}.{rest:09},,{op},{lun},{offset},{len}")?;
    Ok(true)
}

fn mqsim(out: &mut dyn Write, told: &Told<'_>) -> io::Result<bool> {
    let record = told.record;
    let (Some((sector, len)), Some(op)) = (sectors(record), word(record.op, "1", "0")) else {
        return Ok(false);
    };
    writeln!(out, "{} {} {sector} {len} {op}", record.at.0, record.disk.0)?;
    Ok(true)
}

/// Its waits are in whole microseconds.
fn fio_2(out: &mut dyn Write, told: &Told<'_>) -> io::Result<bool> {
    let wait = told.since.0 / 1000;
    if wait > 0 {
        writeln!(out, "{} wait {wait} 0", file(told))?;
    }
    fio(out, told, "")
}

fn fio_3(out: &mut dyn Write, told: &Told<'_>) -> io::Result<bool> {
    fio(out, told, &format!("{} ", told.record.at.0 / 1000))
}

/// What stands for the disk: a name without blanks.
fn file(told: &Told<'_>) -> String {
    if told.disk.is_empty() {
        return format!("disk{}", told.record.disk.0);
    }
    told.disk.replace(|c: char| c.is_whitespace() || c.is_control(), "_")
}

fn fio(out: &mut dyn Write, told: &Told<'_>, time: &str) -> io::Result<bool> {
    let (record, file) = (told.record, file(told));
    if told.is_first {
        writeln!(out, "{time}{file} add\n{time}{file} open")?;
    }
    let action = word(record.op, "read", "write").unwrap_or("trim");
    writeln!(out, "{time}{file} {action} {} {}", record.offset.0, record.len.0)?;
    Ok(true)
}

#[cfg(test)]
mod tests;
