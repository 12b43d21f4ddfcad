//! The trace formats and their detection.

mod binary;
mod columns;
mod detect;
mod text;

use crate::fields::{FieldError, Fields, Number, Separator};
use crate::record::VALID_RANGE;
use columns::Columns;
use std::borrow::Cow;
use weir_model::{Bytes, Hint, Nanos, Op, VolumeOffset};

pub use columns::DescriptionError;
pub(crate) use detect::{Detected, SAMPLE, detect, is_column_heading, is_comment};

/// A trace format.
#[derive(Clone, Debug)]
pub struct Format {
    /// Format name, or the description of its columns.
    pub name: Cow<'static, str>,
    /// Description for people.
    pub about: &'static str,
    /// Whether it has arrival times.
    pub timed: bool,
    pub(crate) encoding: Encoding,
    /// Parses the response time of a line or record, if the format has one.
    pub(crate) response: Option<ParseResponse>,
}

/// Returns the measured response time of a line or record, if it has one.
pub(crate) type ParseResponse = fn(&[u8]) -> Option<Nanos>;

/// Structure of a format.
#[derive(Clone, Debug)]
pub(crate) enum Encoding {
    /// Lines, with an optional heading that identifies the format.
    Lines { heading: Option<&'static [u8]>, separator: Separator, parse: ParseLine },
    /// Lines with described columns.
    Columns(Columns),
    /// Binary records of at most this length.
    Records { longest: usize, is_match: fn(&[u8]) -> bool, parse: ParseRecord },
    /// weir's own format.
    Chunks,
}

/// Meaning of a line or record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LineMeaning<'l> {
    Request(Line<'l>),
    /// A request, and a delay of everything that follows.
    RequestAndDelay(Line<'l>, Nanos),
    /// A delay of everything that follows.
    Delay(Nanos),
    /// Nothing to replay: the completion of a request, or another event.
    NoRequest,
}

pub(crate) type Parsed<'l> = Result<LineMeaning<'l>, FieldError<'l>>;
type ParseLine = for<'l> fn(&mut Fields<'l>) -> Parsed<'l>;
/// Parses a record from the next bytes, which are as long as the longest record or all that remain: returns
/// the record's length and meaning.
pub(crate) type ParseRecord = for<'l> fn(&'l [u8]) -> (usize, Parsed<'l>);

/// A request as given by its line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'l> {
    pub(crate) at: Nanos,
    /// The trace's name of the disk.
    pub(crate) disk: Name<'l>,
    pub(crate) op: Op,
    pub(crate) offset: VolumeOffset,
    pub(crate) len: Bytes,
    pub(crate) hint: Hint,
}

/// A trace's name of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name<'l> {
    Text(&'l [u8]),
    /// The name [`SINGLE_DISK`].
    SingleDisk,
    /// A Linux device number, with 20 bits of minor number.
    Device(u32),
}

impl Format {
    const fn lines(
        name: &'static str,
        about: &'static str,
        heading: Option<&'static [u8]>,
        separator: Separator,
        parse: ParseLine,
    ) -> Self {
        Self {
            name: Cow::Borrowed(name),
            about,
            timed: true,
            encoding: Encoding::Lines { heading, separator, parse },
            response: None,
        }
    }

    const fn chunks(name: &'static str, about: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), about, timed: true, encoding: Encoding::Chunks, response: None }
    }

    const fn records(
        name: &'static str,
        about: &'static str,
        longest: usize,
        known: fn(&[u8]) -> bool,
        parse: ParseRecord,
    ) -> Self {
        Self {
            name: Cow::Borrowed(name),
            about,
            timed: true,
            encoding: Encoding::Records { longest, is_match: known, parse },
            response: None,
        }
    }

    const fn with_response(mut self, response: ParseResponse) -> Self {
        self.response = Some(response);
        self
    }

    /// Reports whether it has response times: see [`Reader::with_responses`](crate::Reader::with_responses).
    pub const fn has_response_times(&self) -> bool {
        match &self.encoding {
            Encoding::Columns(columns) => columns.has_response_times(),
            _ => self.response.is_some(),
        }
    }

    /// Returns the response time of a line or record.
    pub(crate) fn response(&self, line: &[u8]) -> Option<Nanos> {
        match (&self.encoding, self.response) {
            (Encoding::Columns(columns), _) => columns.response(&mut Fields::new(line, columns.separator)),
            (_, Some(response)) => response(line),
            _ => None,
        }
    }

    const fn without_times(mut self) -> Self {
        self.timed = false;
        self
    }

    /// Returns the format of that name, or the format that the name describes: `csv:` or `blanks:` followed
    /// by column names between commas. Columns are `time_s`, `time_ms`, `time_us`, `time_ns`, `time_100ns`,
    /// `response_s` (and so on; the response time), `op` (a word such as `R`, `write` or `trim`), `read` (1
    /// for a read, otherwise 0), `write` (the reverse), `offset`, `sector` or `block` (512 and 4096 bytes),
    /// `size`, `sectors` or `blocks`, `disk`, and `-` for a column to ignore. A column with the position is
    /// required; without a size each request is one block, without an operation it is a read.
    ///
    /// # Errors
    /// Fails if there is no such format, or the description is invalid.
    pub fn named(name: &str) -> Result<Self, DescriptionError> {
        match name.split_once(':') {
            Some((kind, columns)) => Columns::format(name, kind, columns),
            None => format(name)
                .cloned()
                .ok_or_else(|| DescriptionError::UnknownFormat { name: name.into(), known: format_names() }),
        }
    }
}

/// All named formats. If the first lines fit several, the earlier format is preferred.
pub static FORMATS: &[Format] = &[
    Format::chunks("weir", "weir's own: compact, packed with zstd"),
    Format::lines(
        "msr",
        "MSR Cambridge CSV: file time (100 ns), host, disk, Read/Write, offset, size, response",
        None,
        Separator::Comma,
        text::msr,
    )
    .with_response(text::msr_response),
    Format::lines(
        "vscsi",
        "CloudPhysics CSV: version, time (us), SCSI operation (hex), size, first sector",
        Some(b"version,time,op,size,lbn"),
        Separator::Comma,
        text::vscsi,
    ),
    Format::lines(
        "systor",
        "SYSTOR '17 CSV: time (s), response, R/W, LUN, offset, size",
        Some(b"Timestamp,Response,IOType,LUN,Offset,Size"),
        Separator::Comma,
        text::systor,
    )
    .with_response(text::systor_response),
    Format::lines(
        "hpl",
        "HP Labs CSV: time (us), disk, start (256 B), size, R/W, and more",
        Some(b"time_us,disk,start_256b,size_bytes,type,flags_hex,service_start_us,done_us,queue_len"),
        Separator::Comma,
        text::hpl,
    )
    .with_response(text::hpl_response),
    Format::lines(
        "tencent",
        "Tencent block storage CSV: time (s), first sector, sectors, 0 read/1 write, volume",
        None,
        Separator::Comma,
        text::tencent,
    ),
    Format::lines(
        "fio-latency",
        "fio log of latencies with log_offset=1: time (ms), latency (ns), 0/1/2, size, offset",
        None,
        Separator::Comma,
        text::fio_latency,
    )
    .with_response(text::fio_latency_response),
    Format::lines(
        "replayed",
        "replayed CSV: time (ms), latency (us), 1 read/0 write, size, offset, submitted (ms), done",
        None,
        Separator::Comma,
        text::replayed,
    )
    .with_response(text::replayed_response),
    Format::lines(
        "mqsim",
        "MQSim, SSDsim: time (ns), disk, first sector, sectors, 1 read/0 write",
        None,
        Separator::Blanks,
        text::mqsim,
    ),
    Format::lines(
        "ms-bytes",
        "time (ms, with a fraction), disk, offset, size, 1 read/0 write",
        None,
        Separator::Blanks,
        text::ms_bytes,
    ),
    Format::lines(
        "disksim",
        "DiskSim's ASCII: time (ms), device, first sector, sectors, flags in hex (lowest bit 1: read)",
        None,
        Separator::Blanks,
        text::disksim,
    ),
    Format::lines(
        "disksim-validate",
        "DiskSim's measured drives: R/W, Hit/Miss, first sector, sectors, service time (us), gap (us)",
        None,
        Separator::Blanks,
        text::disksim_validate,
    )
    .with_response(text::disksim_validate_response),
    Format::lines(
        "blkev",
        "blktrace events: process, D/C, operation, offset, size, time (s), gap, synchronous",
        None,
        Separator::Blanks,
        text::blkev,
    ),
    Format::lines(
        "arc-pages",
        "ARC page references: page (taken as 4 KiB), 1, 0, 0; no times",
        None,
        Separator::Blanks,
        text::arc_pages,
    )
    .without_times(),
    Format::lines(
        "arc",
        "ARC references: first sector, sectors, an ignored number, the request's number; no times",
        None,
        Separator::Blanks,
        text::arc,
    )
    .without_times(),
    Format::lines(
        "spc",
        "UMass, SPC: storage unit, first sector, size, R/W, time (s)",
        None,
        Separator::Comma,
        text::spc,
    ),
    Format::lines(
        "alibaba",
        "Alibaba block storage CSV: device, R/W, offset, size, time (us)",
        None,
        Separator::Comma,
        text::alibaba,
    ),
    Format::lines(
        "blkparse",
        "blkparse's text: what was asked for (Q)",
        None,
        Separator::Blanks,
        text::blkparse,
    ),
    Format::lines(
        "blkparse-issued",
        "blkparse's text: what the disk got (D)",
        None,
        Separator::Blanks,
        text::blkparse_issued,
    ),
    Format::lines(
        "fio-2",
        "fio iolog, version 2: file, action, offset, size; waits instead of times",
        Some(b"fio version 2 iolog"),
        Separator::Blanks,
        text::fio_2,
    ),
    Format::lines(
        "fio-3",
        "fio iolog, version 3: time (us), file, action, offset, size",
        Some(b"fio version 3 iolog"),
        Separator::Blanks,
        text::fio_3,
    ),
    Format::records(
        "blktrace",
        "blktrace's own: what was asked for (Q)",
        binary::BLKTRACE_LONGEST,
        binary::is_blktrace,
        binary::blktrace,
    ),
    Format::records("vscsi-2", "CloudPhysics, binary, version 2", 40, binary::is_vscsi_2, binary::vscsi_2)
        .with_response(binary::vscsi_2_response),
    Format::records("vscsi-1", "CloudPhysics, binary, version 1", 32, binary::is_vscsi_1, binary::vscsi_1),
    Format::records(
        "oracle",
        "libCacheSim's oracleGeneral: time (s), object, size, next; object N is taken as page N",
        24,
        binary::is_oracle,
        binary::oracle,
    ),
    Format::records(
        PAGES_32,
        "numbers of pages (4 KiB) of 32 bits, the lowest byte first; no times",
        4,
        binary::is_pages_32,
        binary::pages_32,
    )
    .without_times(),
];

/// Name of the format of bare page numbers.
pub(crate) const PAGES_32: &str = "u32-pages";

/// Returns the format of that name.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// Returns the names of all formats, separated by commas.
pub(crate) fn format_names() -> String {
    FORMATS.iter().map(|format| &format.name[..]).collect::<Vec<_>>().join(", ")
}

impl Format {
    /// Reports whether the line is the format's heading.
    pub(crate) fn is_heading(&self, line: &[u8]) -> bool {
        match &self.encoding {
            Encoding::Lines { heading: Some(heading), .. } => line.trim_ascii().eq_ignore_ascii_case(heading),
            _ => false,
        }
    }
}

const NS: u64 = 1;
const TICK: u64 = 100;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Name of the disk of a trace with one disk.
pub(crate) const SINGLE_DISK: &[u8] = b"0";

fn request<'l>(at: Nanos, disk: &'l [u8], op: Op, offset: Number<'l>, len: Number<'l>) -> Parsed<'l> {
    hinted_request(at, disk, op, (offset, len), Hint::None)
}

/// Returns the request of a line that says what its data is.
fn hinted_request<'l>(
    at: Nanos,
    disk: &'l [u8],
    op: Op,
    (offset, len): (Number<'l>, Number<'l>),
    hint: Hint,
) -> Parsed<'l> {
    let (disk, offset_value, len) = (Name::Text(disk), VolumeOffset(offset.value), Bytes(len.value));
    let line = Line { at, disk, op, offset: offset_value, len, hint };
    valid_request(line, || offset.field.error(VALID_RANGE))
}

/// Returns the request of a line, if its range is valid.
fn valid_request<'l>(line: Line<'l>, fault: impl FnOnce() -> FieldError<'l>) -> Parsed<'l> {
    // Volume addresses have 63 bits, so the sum of an offset and a length never overflows.
    if line.offset.0.checked_add(line.len.0).is_none_or(|end| end > i64::MAX as u64) {
        return Err(fault());
    }
    Ok(if line.len.0 == 0 { LineMeaning::NoRequest } else { LineMeaning::Request(line) })
}
