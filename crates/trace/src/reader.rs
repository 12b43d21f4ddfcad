//! From bytes to records, line by line.

use crate::fields::Fields;
use crate::formats::{FORMATS, Format};
use crate::lines::{LINE_MAX, Lines, Next};
use crate::record::{Disk, Record};
use crate::{Found, TraceError};
use flate2::bufread::MultiGzDecoder;
use std::io::{BufRead, Cursor, Read};

/// What is looked at to find out the format.
const SAMPLE: usize = 64 << 10;
/// Lines that must all be of a format for a trace to be taken for one.
const SAMPLE_LINES: usize = 50;

/// How the compressions that are not unpacked begin.
const COMPRESSED: [(&[u8], &str); 3] =
    [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2")];
const GZIP: &[u8] = b"\x1f\x8b";
/// The longest of these.
const MAGIC: u64 = 6;

/// Reads a trace: an iterator of [`Record`]s in the order of the file.
///
/// A bad line is an error after which the next line follows; the iterator ends after
/// [`TraceError::Cut`]. Takes constant memory.
///
/// ```
/// let text = "0.000 0 4096 512 1\n1.500 0 8192 512 0\n";
/// let mut reader = weir_trace::Reader::open("mine", text.as_bytes(), None)?;
/// assert_eq!(reader.format().name, "ms-bytes");
/// assert_eq!(reader.nth(1).unwrap()?.at, weir_model::Nanos::micros(1500));
/// # Ok::<(), weir_trace::TraceError>(())
/// ```
pub struct Reader<'a> {
    lines: Lines<'a>,
    parser: Parser,
    ended: bool,
}

/// What makes records of lines.
struct Parser {
    trace: String,
    format: &'static Format,
    /// The last line read, from 1.
    line: u64,
    /// Names of the disks seen.
    disks: Vec<Vec<u8>>,
    /// The disk of the last record.
    last: usize,
    left_out: u64,
}

impl<'a> Reader<'a> {
    /// A reader of `input`, which is called `trace` in messages. Without `format` it is found out.
    ///
    /// # Errors
    /// If the format is not known, or nothing can be read.
    pub fn open(
        trace: impl Into<String>,
        input: impl BufRead + 'a,
        format: Option<&'static Format>,
    ) -> Result<Self, TraceError> {
        let trace = trace.into();
        let mut lines = Lines::new(unpack(&trace, input)?);
        let sample = lines.peek(SAMPLE);
        if sample.trim_ascii().is_empty() {
            return Err(match lines.error() {
                Some(error) => TraceError::Cut { trace, line: 0, why: error.to_string() },
                None => TraceError::Empty { trace },
            });
        }
        let format = match format.or_else(|| detect(sample)) {
            Some(format) => format,
            None => return Err(unknown(trace, sample)),
        };
        let parser = Parser { trace, format, line: 0, disks: Vec::new(), last: 0, left_out: 0 };
        Ok(Self { lines, parser, ended: false })
    }

    /// The format it is read as.
    pub fn format(&self) -> &'static Format {
        self.parser.format
    }

    /// What the trace calls the disks of the records so far.
    pub fn disks(&self) -> impl Iterator<Item = String> {
        self.parser.disks.iter().map(|name| String::from_utf8_lossy(name).into_owned())
    }

    /// Lines so far that are as they should be but hold no request to replay: completions,
    /// operations that carry no data, empty lines.
    pub fn left_out(&self) -> u64 {
        self.parser.left_out
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.parser.line
    }

    pub(crate) fn into_name(self) -> String {
        self.parser.trace
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { lines, parser, ended } = self;
        while !*ended {
            let why = match lines.next() {
                Next::Line(line) => match parser.take(line) {
                    None => continue,
                    found => return found,
                },
                Next::Last(line) => {
                    *ended = true;
                    match parser.take(line) {
                        Some(Err(_)) => {
                            parser.line -= 1;
                            "its last line is not whole".to_owned()
                        }
                        found => return found,
                    }
                }
                Next::TooLong => format!("the next line is longer than {LINE_MAX} bytes"),
                Next::End(Some(error)) => error.to_string(),
                Next::End(None) => {
                    *ended = true;
                    return None;
                }
            };
            *ended = true;
            return Some(Err(TraceError::Cut { trace: parser.trace.clone(), line: parser.line, why }));
        }
        None
    }
}

impl Parser {
    /// One line; `None` if it holds no request.
    fn take(&mut self, line: &[u8]) -> Option<Result<Record, TraceError>> {
        let Self { trace, format, disks, last, left_out, line: number } = self;
        *number += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() || (*number == 1 && is_heading(format, line)) {
            return None;
        }
        match (format.parse)(&mut Fields::new(line, format.separator)) {
            Ok(Some(parsed)) => {
                if disks.get(*last).is_none_or(|name| name != parsed.disk) {
                    *last = disk(disks, parsed.disk);
                }
                let crate::formats::Line { at, op, offset, len, .. } = parsed;
                Some(Ok(Record { at, disk: Disk(*last as u32), op, offset, len }))
            }
            Ok(None) => {
                *left_out += 1;
                None
            }
            Err(fault) => Some(Err(TraceError::Line {
                trace: trace.clone(),
                line: *number,
                column: fault.column,
                wanted: fault.wanted,
                found: Found::new(fault.found),
                format: format.name,
            })),
        }
    }
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Parser { trace, format, line, .. } = &self.parser;
        f.debug_struct("Reader")
            .field("trace", trace)
            .field("format", &format.name)
            .field("line", line)
            .finish_non_exhaustive()
    }
}

/// The index of a disk's name, which is noted if it is new.
fn disk(disks: &mut Vec<Vec<u8>>, name: &[u8]) -> usize {
    disks.iter().position(|known| known == name).unwrap_or_else(|| {
        disks.push(name.to_vec());
        disks.len() - 1
    })
}

fn unpack<'a>(trace: &str, mut input: impl BufRead + 'a) -> Result<Box<dyn Read + 'a>, TraceError> {
    let mut first = Vec::new();
    if let Err(error) = input.by_ref().take(MAGIC).read_to_end(&mut first) {
        return Err(TraceError::Cut { trace: trace.into(), line: 0, why: error.to_string() });
    }
    if let Some((_, with)) = COMPRESSED.iter().find(|(magic, _)| first.starts_with(magic)) {
        return Err(TraceError::Compressed { trace: trace.into(), with });
    }
    let is_gzip = first.starts_with(GZIP);
    let all = Cursor::new(first).chain(input);
    Ok(if is_gzip { Box::new(MultiGzDecoder::new(all)) } else { Box::new(all) })
}

/// The format whose heading the sample has, or, of those without one, of which all its first whole
/// lines are.
fn detect(sample: &[u8]) -> Option<&'static Format> {
    let whole = match memchr::memrchr(b'\n', sample) {
        Some(last) => &sample[..last],
        None => sample,
    };
    let first = whole.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if let Some(format) = FORMATS.iter().find(|format| is_heading(format, first)) {
        return Some(format);
    }
    let lines = || whole.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let fits = |format: &&Format| {
        lines().take(SAMPLE_LINES).all(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            (format.parse)(&mut Fields::new(line, format.separator)).is_ok()
        })
    };
    FORMATS.iter().filter(|format| format.heading.is_none()).find(fits)
}

fn is_heading(format: &Format, line: &[u8]) -> bool {
    format.heading.is_some_and(|heading| line.trim_ascii().eq_ignore_ascii_case(heading))
}

fn unknown(trace: String, sample: &[u8]) -> TraceError {
    let first = sample.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let known: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
    TraceError::UnknownFormat { trace, found: Found::new(first), known: known.join(", ") }
}

#[cfg(test)]
mod tests;
