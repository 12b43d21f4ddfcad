//! `weir trace` converts, generates, records, analyses and plots traces, and lists their formats.

mod analyze;
mod args;
mod convert;
mod formats;
mod generate;
mod output;
mod record;
mod span;

pub(crate) use analyze::Plotted;
pub(crate) use convert::Converted;
pub(crate) use formats::FormatList;
pub(super) use formats::text as formats_text;
pub(crate) use generate::Generated;
pub(super) use generate::named_loads_text;
pub(crate) use record::Recorded;

use super::show;
use crate::args::Common;
use crate::failure::Failure;
use crate::output as out;
use crate::traces::STANDARD_STREAM;
use clap::Subcommand;
use serde::Serialize;
use std::path::Path;

/// Name of weir's own format.
const WEIR_FORMAT: &str = "weir";

/// `weir trace ...`
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Convert a trace to another format
    Convert(Box<args::ConvertArgs>),
    /// Generate a synthetic trace; equal words and seed give equal bytes
    Generate(Box<args::GenerateArgs>),
    /// Record the requests to served volumes, or to a block device
    Record(Box<args::RecordArgs>),
    /// Analyze a trace: sizes, footprint, hot spots, bursts, reuse, cache misses
    Analyze(Box<args::AnalyzeArgs>),
    /// Plot a trace's miss ratios, hot spots or footprint
    Plot(Box<args::TracePlotArgs>),
    /// List the trace formats
    Formats,
}

/// Runs the command.
///
/// # Errors
/// Fails if a trace cannot be read or written.
pub(crate) fn run(command: TraceCommand, common: &Common) -> Result<(), Failure> {
    match command {
        TraceCommand::Convert(args) => {
            let converted = convert::convert(&args)?;
            show_trace_result(common, &args.output, &converted, || converted.human());
        }
        TraceCommand::Generate(args) => {
            let generated = generate::generate(&args)?;
            show_trace_result(common, &args.out, &generated, || generated.human());
        }
        TraceCommand::Record(args) => {
            let recorded = record::record(&common.pool, &args)?;
            show_trace_result(common, &args.out, &recorded, || recorded.human());
        }
        TraceCommand::Analyze(args) => {
            let analyzed = analyze::analyze(&args)?;
            show(common, &analyzed, |width| analyze::human(&analyzed, width));
        }
        TraceCommand::Plot(args) => {
            let drawn = analyze::plot(&args)?;
            show(common, &drawn, |_| drawn.human());
        }
        TraceCommand::Formats => {
            let document = formats::FormatList { formats: formats::formats() };
            show(common, &document, |width| formats::list(&document.formats, width));
        }
    }
    Ok(())
}

/// Prints the result of writing a trace: on standard error if the trace went to standard output.
fn show_trace_result(
    common: &Common,
    path: &Path,
    document: &impl Serialize,
    human: impl FnOnce() -> String,
) {
    if path.as_os_str() == STANDARD_STREAM {
        out::print_stderr(&human());
    } else {
        show(common, document, |_| human());
    }
}
