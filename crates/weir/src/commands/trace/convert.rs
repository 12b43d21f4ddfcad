//! `weir trace convert` converts a trace to another format.

use super::args::ConvertArgs;
use super::output::{Output, TraceWriter, WriteOutcome, merged_disks_note};
use super::span::open_span;
use crate::failure::Failure;
use crate::progress;
use crate::traces::trace_failure;
use schemars::JsonSchema;
use serde::Serialize;
use weir_trace::{Disk, Format, OddSizes, Reader, TraceError};

/// The document of `weir trace convert`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir trace convert")]
pub(crate) struct Converted {
    /// Format of the input.
    from: String,
    /// Format of the output.
    to: String,
    /// Requests written.
    requests: u64,
    /// Names of the disks with a request in the input, in the order of appearance.
    disks: Vec<String>,
    /// Lines or records that hold no request to replay.
    skipped_records: u64,
    /// Requests left out because the output format cannot represent them.
    unrepresentable_requests: u64,
    /// Lines that could not be read.
    malformed_lines: u64,
    /// What was left out or changed, a sentence each.
    notes: Vec<String>,
}

impl Converted {
    /// Returns the text that is printed without `--json`.
    pub(super) fn human(&self) -> String {
        let mut text = format!(
            "{} requests of {} disk{}, from {} to {}\n",
            self.requests,
            self.disks.len(),
            if self.disks.len() == 1 { "" } else { "s" },
            self.from,
            self.to
        );
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        text
    }
}

/// Converts a trace to another format.
///
/// # Errors
/// Fails if the trace cannot be read, if most of it is malformed, or if the output cannot be written. There
/// is no output file then.
pub(super) fn convert(args: &ConvertArgs) -> Result<Converted, Failure> {
    let help = "name a file, or - for standard input";
    let reader = open_span(&args.input, args.from.as_ref(), &args.span, help)?;
    let output = Output::create(&args.output, args.force)?.remove_on_interrupt()?;
    output.write(&args.to, |traced| {
        progress::during("converting the trace", || copy(reader, &args.to, traced, args.strict))
    })
}

fn copy(
    mut reader: Reader<'_>,
    to: &Format,
    traced: &mut TraceWriter<'_>,
    strict: bool,
) -> Result<Converted, Failure> {
    let (mut requests, mut unsaid, mut bad) = (0, 0, 0);
    let mut notes: Vec<_> = reader.note().map(str::to_owned).into_iter().collect();
    let mut odd_sizes = OddSizes::default();
    // Disks by number, each with whether a request to it was read: some may have requests only outside the
    // span.
    let (mut disks, mut first_bad) = (Vec::<(String, bool)>::new(), None);
    while let Some(next) = reader.next() {
        match next {
            Ok(record) => {
                odd_sizes.count(&record);
                let at = record.disk.0 as usize;
                let named = disks.len() as u32..=record.disk.0;
                disks.extend(named.map(|disk| (reader.disk(Disk(disk)).unwrap_or_default(), false)));
                let (name, is_asked) = &mut disks[at];
                *is_asked = true;
                match traced.write(&record, name)? {
                    WriteOutcome::Written => requests += 1,
                    WriteOutcome::Unrepresentable => unsaid += 1,
                    WriteOutcome::OutputClosed => break,
                }
            }
            Err(error) if strict => return Err(trace_failure(&error)),
            Err(cut @ TraceError::Truncated { .. }) if requests + unsaid > 0 => {
                notes.push(format!("{} requests were read: {cut}", requests + unsaid));
            }
            Err(cut @ TraceError::Truncated { .. }) => return Err(trace_failure(&cut)),
            Err(error) => {
                bad += 1;
                first_bad.get_or_insert(error);
            }
        }
    }
    if let Some(first) = first_bad {
        if bad > requests + unsaid + reader.unselected() {
            let (trace, lines) = (reader.name().to_owned(), reader.lines());
            return Err(trace_failure(&TraceError::MostlyMalformed {
                trace,
                bad,
                lines,
                first: Box::new(first),
            }));
        }
        notes.push(format!("{bad} lines were left out; the first: {first}"));
    }
    notes.extend(odd_sizes.note(requests + unsaid));
    if unsaid > 0 {
        notes.push(format!("{unsaid} requests were left out that {} has no way to say", to.name));
    }
    let disks: Vec<_> = disks.into_iter().filter_map(|(name, is_asked)| is_asked.then_some(name)).collect();
    notes.extend(merged_disks_note(to, disks.len()));
    if requests == 0 && unsaid == 0 {
        return Err(trace_failure(&reader.no_requests_error()));
    }
    Ok(Converted {
        from: reader.format().name.clone().into_owned(),
        to: to.name.clone().into_owned(),
        requests,
        disks,
        skipped_records: reader.skipped(),
        unrepresentable_requests: unsaid,
        malformed_lines: bad,
        notes,
    })
}
