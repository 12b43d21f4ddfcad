//! A whole trace in memory.

use crate::{Format, Reader, Record, TraceError};
use weir_model::{Bytes, Nanos, SECTOR};

/// All records of a trace, in order of time; the first at time zero.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its name.
    pub name: String,
    /// The format it was read as.
    pub format: Format,
    /// At least one.
    pub records: Vec<Record>,
    /// What it calls its disks; a record's [`Disk`](crate::Disk) is an index into it.
    pub disks: Vec<String>,
    /// What was not as it should be.
    pub tally: Tally,
}

/// What was met on reading a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines that were as they should be and hold no request to replay.
    pub left_out: u64,
    /// Lines that are not as the format says.
    pub bad: u64,
    /// The first of them.
    pub first_bad: Option<TraceError>,
    /// Where it breaks off, if it does.
    pub cut: Option<TraceError>,
    /// Records that were earlier than the one above them.
    pub out_of_order: u64,
    /// Why the format that was found out may be wrong: [`Reader::note`].
    pub doubt: Option<String>,
    /// Records whose sizes are no multiple of 512 bytes.
    pub odd_sizes: OddSizes,
    /// Records.
    good: u64,
    /// The time of the last one.
    last: Nanos,
}

/// Requests whose sizes are no multiple of 512 bytes, which no disk is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OddSizes {
    /// How many there are.
    pub count: u64,
    /// The size of the first.
    pub first: Bytes,
}

impl OddSizes {
    /// Counts a record, if it is one.
    #[inline]
    pub fn count(&mut self, record: &Record) {
        if !record.len.0.is_multiple_of(SECTOR) {
            if self.count == 0 {
                self.first = record.len;
            }
            self.count += 1;
        }
    }

    /// What is to be said of them, of so many requests in all.
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
    /// Reads all of it. Bad lines are left out and counted, and so is what follows a cut; `strict`
    /// stops at the first of either.
    ///
    /// # Errors
    /// If there is no record, or more lines are bad than good; with `strict`, whatever is not as it
    /// should be.
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

    /// From the first request to the last.
    pub fn duration(&self) -> Nanos {
        self.records.last().map_or(Nanos(0), |last| last.at)
    }
}

impl Tally {
    /// Gives every record of a trace, in the order of the file, to `take`. Bad lines are left out and counted, and so is
    /// what follows a cut; `strict` stops at the first of either.
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
                Err(error) => tally.meet(error, strict)?,
            }
        }
        tally.end(reader)?;
        Ok(tally)
    }

    /// The next record; `None` at the end, when the tally is complete.
    ///
    /// # Errors
    /// As [`Self::read`], after which there is nothing more to come.
    #[inline]
    pub fn next(&mut self, reader: &mut Reader<'_>, strict: bool) -> Result<Option<Record>, TraceError> {
        for next in &mut *reader {
            match next {
                Ok(record) => {
                    self.count(&record);
                    return Ok(Some(record));
                }
                Err(error) => self.meet(error, strict)?,
            }
        }
        self.end(reader)?;
        Ok(None)
    }

    #[inline]
    fn count(&mut self, record: &Record) {
        self.odd_sizes.count(record);
        self.out_of_order += u64::from(self.good > 0 && record.at < self.last);
        (self.good, self.last) = (self.good + 1, record.at);
    }

    /// Counts what is not as it should be.
    fn meet(&mut self, error: TraceError, strict: bool) -> Result<(), TraceError> {
        match error {
            error if strict => return Err(error),
            cut @ TraceError::Cut { .. } => self.cut = Some(cut),
            error => {
                self.bad += 1;
                self.first_bad.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// Completes the tally of a trace that has been read.
    fn end(&mut self, reader: &Reader<'_>) -> Result<(), TraceError> {
        self.left_out = reader.left_out();
        self.doubt = reader.note().map(Into::into);
        let trace = || reader.name().to_owned();
        match &self.first_bad {
            // Bad lines are of all the trace, though only a part of it may be wanted.
            Some(TraceError::Line { line, .. }) if self.is_mostly_bad(reader) && self.cut.is_some() => {
                // What is damaged before it breaks off unpacks to anything.
                let before = *line - 1;
                Err(match self.cut.clone() {
                    Some(TraceError::Cut { trace, unit, why, .. }) => {
                        TraceError::Cut { trace, line: before, unit, why }
                    }
                    other => other.unwrap_or_else(|| reader.nothing()),
                })
            }
            Some(first) if self.is_mostly_bad(reader) => {
                let (bad, lines, first) = (self.bad, reader.lines(), Box::new(first.clone()));
                Err(TraceError::MostlyBad { trace: trace(), bad, lines, first })
            }
            _ if self.good == 0 => Err(self.cut.clone().unwrap_or_else(|| reader.nothing())),
            _ => Ok(()),
        }
    }

    fn is_mostly_bad(&self, reader: &Reader<'_>) -> bool {
        self.bad > self.good + reader.unwanted()
    }

    /// What could not be used as it is, for people, of a trace of which so many requests were used.
    pub fn notes(&self, requests: usize) -> Vec<String> {
        let mut notes: Vec<_> = self.doubt.iter().cloned().chain(self.odd_sizes.note(self.good)).collect();
        if let Some(first) = &self.first_bad {
            notes.push(format!("{} lines were left out; the first: {first}", self.bad));
        }
        if let Some(cut) = &self.cut {
            notes.push(format!("{requests} requests were read: {cut}"));
        }
        notes
    }
}
