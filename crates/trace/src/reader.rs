//! Reads records from a trace, one after the other.

use crate::chunk::{self, BODY_MAX, LENGTH_FIELD_SIZE, MAGIC};
use crate::decompress::decompress;
use crate::fields::{FieldError, Fields};
use crate::formats::{
    Detected, Encoding, Format, Line, LineMeaning, Name, ParseRecord, SAMPLE, SINGLE_DISK, detect,
    format_names, is_column_heading, is_comment,
};
use crate::input::{Input, LINE_MAX, Next};
use crate::record::{Disk, Record, Span};
use crate::{Excerpt, TraceError};
use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;
use std::ops::Range;
use weir_model::Nanos;

/// Reads a trace: an iterator of [`Record`]s in file order.
///
/// A malformed line is an error, after which iteration continues with the next line; the iterator ends after
/// [`TraceError::Truncated`]. Memory is constant. If the format was given, a line or binary record is
/// returned as soon as it has arrived.
///
/// ```
/// let text = "0.000 0 4096 512 1\n1.500 0 8192 512 0\n";
/// let mut reader = weir_trace::Reader::open("mine", text.as_bytes(), None)?;
/// assert_eq!(reader.format().name, "ms-bytes");
/// assert_eq!(reader.nth(1).unwrap()?.at, weir_model::Nanos::micros(1500));
/// # Ok::<(), weir_trace::TraceError>(())
/// ```
pub struct Reader<'a> {
    input: Input<'a>,
    parser: Parser,
    /// In weir's own format: the records of a chunk in reverse order.
    chunk: Vec<Record>,
    ended: bool,
    /// The selected disk, if there is one, and for each disk seen whether it is the selected one.
    selected_disk: Option<(String, Vec<bool>)>,
    /// The selected time span, if there is one, and the time of the trace's first record once it is known.
    selected_span: Option<(Span, Option<Nanos>)>,
    /// The selected record numbers, if any, and the number of the next record.
    selected_numbers: Option<(Range<u64>, u64)>,
    /// Number of records outside the selection so far.
    unselected: u64,
    /// Number of chunks of weir's own format so far.
    chunks: u64,
    /// Why the detected format may be wrong.
    note: Option<String>,
}

/// Maximum number of records read at once.
const BATCH: usize = 1024;

/// Turns lines, or the records of other formats, into records.
struct Parser {
    trace: String,
    format: Format,
    /// Number of the last line read, from 1.
    line: u64,
    /// Names of the disks seen, and the index of each textual name.
    disks: Vec<DiskName>,
    numbers: BTreeMap<Box<[u8]>, usize>,
    /// Disk of the last record.
    last_disk: usize,
    /// Sum of the trace's delays so far.
    total_delay: Nanos,
    skipped: u64,
    /// Whether response times are read, and that of the last record.
    responses: bool,
    response: Option<Nanos>,
}

/// A trace's name of a disk.
#[derive(Debug)]
enum DiskName {
    Text(Vec<u8>),
    Device(u32),
}

impl DiskName {
    fn matches(&self, name: Name<'_>) -> bool {
        match (self, name) {
            (Self::Text(own), Name::Text(name)) => own == name,
            (Self::Text(own), Name::SingleDisk) => own == SINGLE_DISK,
            (Self::Device(own), Name::Device(name)) => *own == name,
            _ => false,
        }
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(name) => f.write_str(&String::from_utf8_lossy(name)),
            Self::Device(number) => write!(f, "{},{}", number >> 20, number & 0xf_ffff),
        }
    }
}

impl<'a> Reader<'a> {
    /// Opens a trace; `trace` is its name in messages. Without `format` the format is detected.
    ///
    /// # Errors
    /// Fails if the format is unknown, or nothing can be read.
    pub fn open(
        trace: impl Into<String>,
        input: impl BufRead + Send + 'a,
        format: Option<&Format>,
    ) -> Result<Self, TraceError> {
        let trace = trace.into();
        let mut input = Input::new(decompress(&trace, input)?);
        let sample = input.peek(if format.is_some() { 1 } else { SAMPLE });
        if sample.is_empty() || (format.is_none() && sample.trim_ascii().is_empty()) {
            return Err(match input.error() {
                Some(error) => TraceError::Truncated { trace, line: 0, unit: "line", why: error.to_string() },
                None => TraceError::Empty { trace },
            });
        }
        let detected = match format {
            Some(format) => Some(Detected { format: format.clone(), note: None }),
            None => detect(sample),
        };
        let Some(Detected { format, note }) = detected else {
            let first = sample.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let found = Excerpt::new(first);
            return Err(match input.error() {
                Some(error) => TraceError::Truncated { trace, line: 0, unit: "line", why: error.to_string() },
                None => TraceError::UnknownFormat { trace, found, known: format_names() },
            });
        };
        let parser = Parser {
            trace,
            format,
            line: 0,
            disks: Vec::new(),
            numbers: BTreeMap::new(),
            last_disk: 0,
            total_delay: Nanos(0),
            skipped: 0,
            responses: false,
            response: None,
        };
        Ok(Self {
            input,
            parser,
            chunk: Vec::new(),
            ended: false,
            selected_disk: None,
            selected_span: None,
            selected_numbers: None,
            unselected: 0,
            chunks: 0,
            note,
        })
    }

    /// Enables [response times](Self::response), if the format has them: each line is then parsed twice.
    #[must_use]
    pub fn with_responses(mut self) -> Self {
        self.parser.responses = self.parser.format.has_response_times();
        self
    }

    /// Returns the response time of the last record's request on the traced machine; `None` if the trace does
    /// not have it, or it was not [enabled](Self::with_responses).
    pub fn response(&self) -> Option<Nanos> {
        self.parser.response
    }

    /// Returns why the detected format may be wrong: other formats fit as well, or its requests are
    /// implausible. `None` if the format was given, or there is no doubt.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Selects the records of the disk of this name.
    #[must_use]
    pub fn select_disk(self, disk: impl Into<String>) -> Self {
        Self { selected_disk: Some((disk.into(), Vec::new())), ..self }
    }

    /// Selects the records within a time span, counted from `first`: the time of the trace's first record, if
    /// this is only a [part](crate::seek()) of it.
    #[must_use]
    pub fn select_span(self, span: Span, first: Option<Nanos>) -> Self {
        Self { selected_span: Some((span, first)), ..self }
    }

    /// Selects records by number, counted from 0 in file order over all disks and times; the first `before`
    /// records are not in the input, if it is only the [rest](crate::seek_number) of a trace. Iteration ends
    /// after the last selected one.
    #[must_use]
    pub fn select_numbers(self, numbers: Range<u64>, before: u64) -> Self {
        Self { selected_numbers: Some((numbers, before)), ..self }
    }

    fn is_selected(&mut self, record: &Record) -> bool {
        if let Some((numbers, next)) = &mut self.selected_numbers {
            let number = *next;
            *next += 1;
            if !numbers.contains(&number) {
                return false;
            }
        }
        if let Some((span, first)) = &mut self.selected_span
            && !span.contains(record.at.since(*first.get_or_insert(record.at)))
        {
            return false;
        }
        let disk = record.disk;
        let Some((name, known)) = &mut self.selected_disk else { return true };
        let names = self.parser.disks.iter().skip(known.len()).map(|other| other.to_string() == *name);
        known.extend(names);
        known.get(disk.0 as usize).is_some_and(|is_it| *is_it)
    }

    /// Returns the next record of any disk.
    fn next_unfiltered(&mut self) -> Option<Result<Record, TraceError>> {
        if self.ended {
            return None;
        }
        match self.parser.format.encoding {
            Encoding::Records { longest, parse, .. } => self.next_binary_record(longest, parse),
            Encoding::Lines { .. } | Encoding::Columns(_) => self.next_line(),
            Encoding::Chunks => self.next_chunk_record(),
        }
    }

    /// Returns the format it is read as.
    pub fn format(&self) -> &Format {
        &self.parser.format
    }

    /// Returns the trace's names of the disks of the records so far.
    pub fn disks(&self) -> impl Iterator<Item = String> {
        self.parser.disks.iter().map(ToString::to_string)
    }

    /// Returns the trace's name of a disk of the records so far.
    pub fn disk(&self, disk: Disk) -> Option<String> {
        self.parser.disks.get(disk.0 as usize).map(ToString::to_string)
    }

    /// Returns the number of valid lines so far without a request to replay: completions, operations without
    /// data, empty lines.
    pub fn skipped(&self) -> u64 {
        self.parser.skipped
    }

    /// Returns the number of lines, or binary records, read so far.
    pub fn lines(&self) -> u64 {
        self.parser.line
    }

    /// Returns the number of valid records so far outside the selected disk or span.
    pub fn unselected(&self) -> u64 {
        self.unselected
    }

    /// Returns the error for a trace without records.
    pub fn no_requests_error(&self) -> TraceError {
        let trace = self.name().to_owned();
        match (&self.selected_span, &self.selected_numbers) {
            (_, Some(_)) => TraceError::EmptySelection { trace },
            (Some(_), _) if self.unselected > 0 => TraceError::EmptySelection { trace },
            _ => TraceError::Empty { trace },
        }
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        &self.parser.trace
    }

    pub(crate) fn into_name(self) -> String {
        self.parser.trace
    }

    /// Returns the next record of a line format.
    fn next_line(&mut self) -> Option<Result<Record, TraceError>> {
        let Self { input, parser, ended, .. } = self;
        let why = loop {
            match input.next_line() {
                Next::Line(line) => match parser.parse_line(line) {
                    None => {}
                    found => return found,
                },
                Next::Last(line) => {
                    *ended = true;
                    match parser.parse_line(line) {
                        Some(Err(_)) => {
                            parser.line -= 1;
                            break "its last line is not whole".to_owned();
                        }
                        found => return found,
                    }
                }
                Next::TooLong => break format!("the next line is longer than {LINE_MAX} bytes"),
                Next::End(Some(error)) => break error.to_string(),
                Next::End(None) => {
                    *ended = true;
                    return None;
                }
            }
        };
        *ended = true;
        Some(Err(parser.truncation_error(why)))
    }

    /// Appends the next records: at least one, and more if binary records are already available. Returns
    /// `None` at the end. Records and errors are those of the iterator.
    pub fn next_batch(&mut self, records: &mut Vec<Record>) -> Option<Result<(), TraceError>> {
        let is_all =
            self.selected_disk.is_none() && self.selected_span.is_none() && self.selected_numbers.is_none();
        if is_all
            && !self.ended
            && !self.parser.responses
            && let Encoding::Records { longest, parse, .. } = self.parser.format.encoding
            && self.append_binary_batch(longest, parse, records)
        {
            return Some(Ok(()));
        }
        self.next().map(|next| next.map(|record| records.push(record)))
    }

    /// Appends the completely available binary records; returns whether there was one.
    fn append_binary_batch(&mut self, longest: usize, parse: ParseRecord, records: &mut Vec<Record>) -> bool {
        let Self { input, parser, .. } = self;
        let (bytes, before) = (input.available(usize::MAX), records.len());
        let mut at = 0;
        while at + longest <= bytes.len() && records.len() - before < BATCH {
            let (len, Ok(said)) = parse(&bytes[at..at + longest]) else { break };
            parser.line += 1;
            at += len;
            records.extend(parser.record(said));
        }
        input.skip(at);
        records.len() > before
    }

    /// Returns the next record of a binary format. Reading ends at an invalid record, because the start of
    /// the next one is unknown.
    fn next_binary_record(
        &mut self,
        longest: usize,
        parse: ParseRecord,
    ) -> Option<Result<Record, TraceError>> {
        let Self { input, parser, ended, .. } = self;
        loop {
            // Only available bytes are used, so a live recording gets a record as soon as it arrives.
            let bytes = input.available(longest);
            if bytes.is_empty() {
                *ended = true;
                let why = input.error()?.to_string();
                return Some(Err(parser.truncation_error(why)));
            }
            let (len, parsed) = parse(bytes);
            match parsed {
                Ok(said) => {
                    parser.line += 1;
                    if parser.responses {
                        parser.response = parser.format.response(&bytes[..len]);
                    }
                    let record = parser.record(said);
                    input.skip(len);
                    if record.is_some() {
                        return record.map(Ok);
                    }
                }
                Err(FieldError { wanted, found, .. }) => {
                    let (is_short, found) = (bytes.len() < longest, Excerpt::bytes(found));
                    if is_short && input.read_more() {
                        continue;
                    }
                    *ended = true;
                    let why = format!("at byte {}, {wanted} expected, {found} found", input.consumed());
                    return Some(
                        Err(parser.truncation_error(input.error().map_or(why, ToString::to_string))),
                    );
                }
            }
        }
    }
}

impl Reader<'_> {
    /// Returns the next record of weir's own format.
    fn next_chunk_record(&mut self) -> Option<Result<Record, TraceError>> {
        if self.chunk.is_empty() {
            match self.next_chunk() {
                Ok(()) => self.chunk.reverse(),
                Err(why) => {
                    self.ended = true;
                    let (chunk, at) = (self.chunks + 1, self.input.consumed());
                    let why = why.map(|why| {
                        format!("in chunk {chunk}, which begins at byte {at} of what is unpacked: {why}")
                    });
                    return why.map(|why| Err(self.parser.truncation_error(why)));
                }
            }
        }
        self.parser.line += 1;
        self.chunk.pop().map(Ok)
    }

    /// Reads the next chunk.
    ///
    /// # Errors
    /// Returns why the trace ends here; `None` at its regular end.
    fn next_chunk(&mut self) -> Result<(), Option<String>> {
        let Self { input, parser, chunk, .. } = self;
        if parser.line == 0 {
            if !input.peek(MAGIC.len()).starts_with(MAGIC) {
                return Err(Some("a trace of weir's own format, version 1, expected".into()));
            }
            input.skip(MAGIC.len());
        }
        let Some(head) = input.peek(LENGTH_FIELD_SIZE).first_chunk::<LENGTH_FIELD_SIZE>().copied() else {
            let is_end = input.peek(1).is_empty();
            return Err(input
                .error()
                .map_or((!is_end).then(|| "its last chunk is not whole".into()), |error| {
                    Some(error.to_string())
                }));
        };
        let len = u32::from_le_bytes(head) as usize;
        if len == 0 || len > BODY_MAX {
            return Err(Some(format!("a chunk of 1 to {BODY_MAX} bytes expected, one of {len} found")));
        }
        if input.peek(LENGTH_FIELD_SIZE + len).len() < LENGTH_FIELD_SIZE + len {
            let why = input.error().map_or("its last chunk is not whole".into(), ToString::to_string);
            return Err(Some(why));
        }
        let body = &input.peek(LENGTH_FIELD_SIZE + len)[LENGTH_FIELD_SIZE..];
        let known = |name: &[u8]| Disk(parser.disk(Name::Text(name)) as u32);
        chunk::decode(body, chunk, known).map_err(|wanted| Some(format!("{wanted} expected")))?;
        input.skip(LENGTH_FIELD_SIZE + len);
        self.chunks += 1;
        Ok(())
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.selected_numbers.as_ref().is_some_and(|(numbers, next)| *next >= numbers.end) {
                return None;
            }
            let next = self.next_unfiltered();
            match next {
                Some(Ok(record)) if !self.is_selected(&record) => self.unselected += 1,
                other => return other,
            }
        }
    }
}

impl Parser {
    /// Parses one line; returns `None` if it has no request.
    fn parse_line(&mut self, line: &[u8]) -> Option<Result<Record, TraceError>> {
        self.line += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) || (self.line == 1 && self.format.is_heading(line)) {
            return None;
        }
        let parsed = match &self.format.encoding {
            Encoding::Lines { separator, parse, .. } => parse(&mut Fields::new(line, *separator)),
            Encoding::Columns(columns) => columns.parse(&mut Fields::new(line, columns.separator)),
            Encoding::Records { .. } | Encoding::Chunks => return None,
        };
        match parsed {
            Ok(said) => {
                if self.responses {
                    self.response = self.format.response(line);
                }
                self.record(said).map(Ok)
            }
            Err(_) if is_comment(line) => {
                self.skipped += 1;
                None
            }
            // A line of column names is not a malformed line.
            Err(_) if self.line == 1 && matches!(self.format.encoding, Encoding::Columns(_)) => None,
            Err(_) if self.disks.is_empty() && is_column_heading(line) => None,
            Err(fault) => Some(Err(TraceError::Line {
                trace: self.trace.clone(),
                line: self.line,
                column: fault.column,
                wanted: fault.wanted,
                found: Excerpt::new(fault.found),
                format: self.format.name.clone().into_owned(),
            })),
        }
    }

    #[inline]
    fn record(&mut self, meaning: LineMeaning<'_>) -> Option<Record> {
        match meaning {
            LineMeaning::Request(line) => return Some(self.request(line)),
            LineMeaning::RequestAndDelay(line, gap) => {
                let record = self.request(line);
                self.total_delay = Nanos(self.total_delay.0.saturating_add(gap.0));
                return Some(record);
            }
            LineMeaning::Delay(time) => self.total_delay = Nanos(self.total_delay.0.saturating_add(time.0)),
            LineMeaning::NoRequest => self.skipped += 1,
        }
        None
    }

    #[inline]
    fn request(&mut self, line: Line<'_>) -> Record {
        let Line { at, disk: name, op, offset, len, hint } = line;
        if self.disks.get(self.last_disk).is_none_or(|last| !last.matches(name)) {
            self.last_disk = self.disk(name);
        }
        let at = Nanos(at.0.saturating_add(self.total_delay.0));
        Record { at, disk: Disk(self.last_disk as u32), op, offset, len, hint }
    }

    /// Returns the index of a disk, adding it if it is new.
    fn disk(&mut self, name: Name<'_>) -> usize {
        let new = self.disks.len();
        match name {
            Name::SingleDisk => return self.disk(Name::Text(SINGLE_DISK)),
            Name::Text(text) => {
                if let Some(number) = self.numbers.get(text) {
                    return *number;
                }
                self.numbers.insert(text.into(), new);
                self.disks.push(DiskName::Text(text.to_vec()));
            }
            Name::Device(number) => {
                if let Some(known) = self.disks.iter().position(|known| known.matches(name)) {
                    return known;
                }
                self.disks.push(DiskName::Device(number));
            }
        }
        new
    }

    fn truncation_error(&self, why: String) -> TraceError {
        let unit = match self.format.encoding {
            Encoding::Lines { .. } | Encoding::Columns(_) => "line",
            Encoding::Records { .. } | Encoding::Chunks => "record",
        };
        TraceError::Truncated { trace: self.trace.clone(), line: self.line, unit, why }
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parser { trace, format, line, .. } = &self.parser;
        f.debug_struct("Reader")
            .field("trace", trace)
            .field("format", &format.name)
            .field("line", line)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
