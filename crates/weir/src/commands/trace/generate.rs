//! `weir trace generate` generates a synthetic trace. The same words and seed give the same trace.

use super::args::GenerateArgs;
use super::output::{Output, WriteOutcome, merged_disks_note};
use crate::failure::Failure;
use crate::output::{Table, Width};
use crate::{pool_file, progress};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::{ErrorKind, ExtentSize, Nanos};
use weir_sim::load::{NAMED_LOADS, parse, records};

/// The document of `weir trace generate`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir trace generate")]
pub(crate) struct Generated {
    /// The load, as on the command line.
    load: String,
    /// The random seed.
    seed: u64,
    /// Format of the trace.
    format: String,
    /// Requests written.
    requests: u64,
    /// Number of disks of the load.
    disk_count: usize,
    /// Seconds from the start of the load to the last request.
    seconds: f64,
    /// Requests left out because the format cannot represent them.
    unrepresentable_requests: u64,
    /// What was left out or changed, a sentence each.
    notes: Vec<String>,
}

impl Generated {
    /// Returns the text that is printed without `--json`.
    pub(super) fn human(&self) -> String {
        let Self { load, seed, format, requests, seconds, notes, .. } = self;
        let disks = match self.disk_count {
            1 => "1 disk".to_owned(),
            count => format!("{count} disks"),
        };
        let mut text = format!("{requests} requests to {disks} in {seconds:.3} s, as {format}\n");
        text += &format!("load: {load}\nseed: {seed}\n");
        let unsaid = self.unrepresentable_requests;
        if unsaid > 0 {
            text += &format!("note: {unsaid} requests were left out that {format} has no way to say\n");
        }
        for note in notes {
            text += &format!("note: {note}\n");
        }
        text
    }
}

/// Writes the requests of a load as a trace, until the load ends or the limits of `args` are reached.
///
/// # Errors
/// Fails if the words are invalid, or if the trace cannot be written. There is no output file then.
pub(super) fn generate(args: &GenerateArgs) -> Result<Generated, Failure> {
    let words = args.load.join(" ");
    let wrong = |error: weir_sim::SimError| Failure::from_message(ErrorKind::Usage, &error.to_string());
    let mut load = parse(&words, args.seed, pool_file::size, pool_file::duration).map_err(wrong)?;
    let disks = load.volumes(ExtentSize::DEFAULT).len();
    let names: Vec<_> = (0..disks).map(|disk| disk.to_string()).collect();
    // With a number of requests the trace may last as long as they need.
    let unbounded = if args.requests.is_some() { Nanos::MAX } else { load.duration() };
    let (until, most) = (args.duration.unwrap_or(unbounded), args.requests.unwrap_or(u64::MAX));
    let (mut requests, mut unsaid, mut last) = (0, 0, Nanos(0));
    let output = Output::create(&args.out, args.force)?.remove_on_interrupt()?;
    output.write(&args.format, |traced| {
        progress::during("generating the trace", || {
            let mut records = records(&mut *load, until);
            // Requests that the format cannot represent count too; otherwise the loop might never end.
            while requests + unsaid < most
                && let Some(record) = records.next()
            {
                match traced.write(&record, &names[record.disk.0 as usize])? {
                    WriteOutcome::Written => (requests, last) = (requests + 1, record.at),
                    WriteOutcome::Unrepresentable => unsaid += 1,
                    WriteOutcome::OutputClosed => break,
                }
            }
            Ok(())
        })
    })?;
    let (format, seconds) = (args.format.name.clone().into_owned(), last.as_secs_f64());
    let notes = merged_disks_note(&args.format, disks).into_iter().collect();
    Ok(Generated {
        load: words,
        seed: args.seed,
        format,
        requests,
        disk_count: disks,
        seconds,
        unrepresentable_requests: unsaid,
        notes,
    })
}

/// Returns the named loads and their words, for help.
pub(in crate::commands) fn named_loads_text(width: Width) -> String {
    let rows = NAMED_LOADS.iter().map(|load| [load.name.to_owned(), load.about.to_owned()]);
    let table = Table::new(["NAME", "WHAT IT IS LIKE"], rows).prose("WHAT IT IS LIKE");
    let words = NAMED_LOADS.iter().map(|load| format!("\n{}:\n  {}\n", load.name, load.words));
    table.text(width) + &words.collect::<String>()
}
