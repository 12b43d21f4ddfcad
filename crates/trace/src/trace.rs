//! A whole trace in memory.

use crate::{Format, Reader, Record, TraceError};
use weir_model::Nanos;

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
        let mut tally = Self::default();
        let (mut good, mut last) = (0, Nanos(0));
        for next in &mut *reader {
            match next {
                Ok(record) => {
                    tally.out_of_order += u64::from(good > 0 && record.at < last);
                    (good, last) = (good + 1, record.at);
                    take(record);
                }
                Err(error) if strict => return Err(error),
                Err(cut @ TraceError::Cut { .. }) => tally.cut = Some(cut),
                Err(error) => {
                    tally.bad += 1;
                    tally.first_bad.get_or_insert(error);
                }
            }
        }
        tally.left_out = reader.left_out();
        let trace = || reader.name().to_owned();
        match &tally.first_bad {
            Some(first) if tally.bad > good => {
                let first = Box::new(first.clone());
                Err(TraceError::MostlyBad { trace: trace(), bad: tally.bad, lines: reader.lines(), first })
            }
            _ if good == 0 => Err(tally.cut.unwrap_or_else(|| TraceError::Empty { trace: trace() })),
            _ => Ok(tally),
        }
    }
}
