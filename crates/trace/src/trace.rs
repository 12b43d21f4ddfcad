//! A whole trace in memory.

use crate::{Format, Reader, Record, TraceError};
use weir_model::{Bytes, Nanos, SECTOR};

/// All records of a trace in time order; the first is at time zero.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Trace name.
    pub name: String,
    /// The format it was read as.
    pub format: Format,
    /// The records, at least one.
    pub records: Vec<Record>,
    /// Names of its disks; a record's [`Disk`](crate::Disk) is an index.
    pub disks: Vec<String>,
    /// Counts of irregularities.
    pub tally: Tally,
}

/// Counts of irregularities met while reading a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of valid lines without a request to replay.
    pub skipped: u64,
    /// Number of malformed lines.
    pub malformed: u64,
    /// The first malformed line.
    pub first_malformed: Option<TraceError>,
    /// Where the trace breaks off, if it does.
    pub truncation: Option<TraceError>,
    /// Number of records with an earlier time than their predecessor.
    pub out_of_order: u64,
    /// Why the detected format may be wrong: see [`Reader::note`].
    pub doubt: Option<String>,
    /// Records whose sizes are not multiples of 512 bytes.
    pub odd_sizes: OddSizes,
    /// Number of records.
    valid: u64,
    /// Time of the last record.
    last: Nanos,
}

/// Requests whose sizes are not multiples of 512 bytes, which no disk accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OddSizes {
    /// Number of such requests.
    pub count: u64,
    /// Size of the first.
    pub first: Bytes,
}

impl OddSizes {
    /// Counts the record, if its size is odd.
    #[inline]
    pub fn count(&mut self, record: &Record) {
        if !record.len.0.is_multiple_of(SECTOR) {
            if self.count == 0 {
                self.first = record.len;
            }
            self.count += 1;
        }
    }

    /// Returns a note about them, out of `requests` requests.
    pub fn note(&self, requests: u64) -> Option<String> {
        (self.count > 0).then(|| {
            format!(
                "{} of {requests} requests have a size that is no multiple of 512 bytes, the first of {} bytes; if the trace counts in \
                 sectors, name a format that does: --format",
                self.count, self.first.0
            )
        })
    }
}

impl Trace {
    /// Reads a whole trace. Malformed lines are skipped and counted, and so is a truncated end; with
    /// `strict`, reading stops at the first of either.
    ///
    /// # Errors
    /// Fails if there is no record, or if more lines are malformed than valid; with `strict`, on any
    /// irregularity.
    pub fn load(mut reader: Reader<'_>, strict: bool) -> Result<Self, TraceError> {
        let mut records: Vec<Record> = Vec::new();
        let tally = Tally::read(&mut reader, strict, |record| records.push(record))?;
        let format = reader.format().clone();
        let disks = reader.disks().collect();
        let name = reader.into_name();
        records.sort_by_key(|record| record.at);
        let first = records[0].at;
        for record in &mut records {
            record.at = record.at - first;
        }
        Ok(Self { name, format, records, disks, tally })
    }

    /// Returns the time from the first request to the last.
    pub fn duration(&self) -> Nanos {
        self.records.last().map_or(Nanos(0), |last| last.at)
    }
}

impl Tally {
    /// Passes every record of a trace, in file order, to `take`. Malformed lines are skipped and counted, and
    /// so is a truncated end; with `strict`, reading stops at the first of either.
    ///
    /// # Errors
    /// As [`Trace::load`].
    pub fn read(
        reader: &mut Reader<'_>,
        strict: bool,
        mut take: impl FnMut(Record),
    ) -> Result<Self, TraceError> {
        let (mut tally, mut batch) = (Self::default(), Vec::new());
        while let Some(next) = reader.next_batch(&mut batch) {
            match next {
                Ok(()) => batch.drain(..).for_each(|record| {
                    tally.count(&record);
                    take(record);
                }),
                Err(error) => tally.record_error(error, strict)?,
            }
        }
        tally.end(reader)?;
        Ok(tally)
    }

    /// Returns the next record; `None` at the end, when the tally is complete.
    ///
    /// # Errors
    /// As [`Self::read`]; after an error there are no more records.
    #[inline]
    pub fn next(&mut self, reader: &mut Reader<'_>, strict: bool) -> Result<Option<Record>, TraceError> {
        for next in &mut *reader {
            match next {
                Ok(record) => {
                    self.count(&record);
                    return Ok(Some(record));
                }
                Err(error) => self.record_error(error, strict)?,
            }
        }
        self.end(reader)?;
        Ok(None)
    }

    #[inline]
    fn count(&mut self, record: &Record) {
        self.odd_sizes.count(record);
        self.out_of_order += u64::from(self.valid > 0 && record.at < self.last);
        (self.valid, self.last) = (self.valid + 1, record.at);
    }

    /// Counts an irregularity.
    fn record_error(&mut self, error: TraceError, strict: bool) -> Result<(), TraceError> {
        match error {
            error if strict => return Err(error),
            cut @ TraceError::Truncated { .. } => self.truncation = Some(cut),
            error => {
                self.malformed += 1;
                self.first_malformed.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// Completes the tally at the end of a trace.
    fn end(&mut self, reader: &Reader<'_>) -> Result<(), TraceError> {
        self.skipped = reader.skipped();
        self.doubt = reader.note().map(Into::into);
        let trace = || reader.name().to_owned();
        match &self.first_malformed {
            // Malformed lines are counted over the whole trace, even if only a part of it is wanted.
            Some(TraceError::Line { line, .. })
                if self.is_mostly_malformed(reader) && self.truncation.is_some() =>
            {
                // Damaged compressed data may unpack to arbitrary lines before it breaks off.
                let before = *line - 1;
                Err(match self.truncation.clone() {
                    Some(TraceError::Truncated { trace, unit, why, .. }) => {
                        TraceError::Truncated { trace, line: before, unit, why }
                    }
                    other => other.unwrap_or_else(|| reader.no_requests_error()),
                })
            }
            Some(first) if self.is_mostly_malformed(reader) => {
                let (bad, lines, first) = (self.malformed, reader.lines(), Box::new(first.clone()));
                Err(TraceError::MostlyMalformed { trace: trace(), bad, lines, first })
            }
            _ if self.valid == 0 => {
                Err(self.truncation.clone().unwrap_or_else(|| reader.no_requests_error()))
            }
            _ => Ok(()),
        }
    }

    fn is_mostly_malformed(&self, reader: &Reader<'_>) -> bool {
        self.malformed > self.valid + reader.unselected()
    }

    /// Returns notes about data that could not be used as it is, for a trace of which `requests` requests
    /// were used.
    pub fn notes(&self, requests: usize) -> Vec<String> {
        let mut notes: Vec<_> = self.doubt.iter().cloned().chain(self.odd_sizes.note(self.valid)).collect();
        if let Some(first) = &self.first_malformed {
            notes.push(format!("{} lines were left out; the first: {first}", self.malformed));
        }
        if let Some(cut) = &self.truncation {
            notes.push(format!("{requests} requests were read: {cut}"));
        }
        notes
    }
}
