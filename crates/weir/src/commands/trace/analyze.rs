//! `weir trace analyze` and `weir trace plot` show the properties of a trace as text, a web page, a document
//! or plots.

mod page;
mod tables;

use super::args::{AnalyzeArgs, AnalyzedArgs, Picture, TracePlotArgs};
use super::span::open_span;
use crate::failure::Failure;
use crate::files::{self, OutputKind};
use crate::output::Width;
use crate::traces::refuse_input_as_output;
use crate::{picture, progress};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use weir_model::ErrorKind;
use weir_sim::analysis::TraceAnalysis;
use weir_sim::cache::EvictionPolicy;

/// Analyses a trace, and writes the report as a web page if `--html` is given.
///
/// # Errors
/// Fails if the trace cannot be used, or if the page cannot be written.
pub(super) fn analyze(args: &AnalyzeArgs) -> Result<TraceAnalysis, Failure> {
    args.html.iter().try_for_each(|path| refuse_input_as_output(&args.of.trace, path))?;
    args.html.iter().try_for_each(|path| files::refuse_foreign_content(path, OutputKind::Page))?;
    let analyzed = read(&args.of, true)?;
    if let Some(path) = &args.html {
        let page = page::html(&analyzed);
        files::replace(path, OutputKind::Page, page.as_bytes())?;
    }
    Ok(analyzed)
}

/// Plots a property of a trace.
///
/// # Errors
/// Fails if the trace cannot be used, or if the plot cannot be written.
pub(super) fn plot(args: &TracePlotArgs) -> Result<Plotted, Failure> {
    refuse_input_as_output(&args.of.trace, &args.out)?;
    files::refuse_foreign_content(&args.out, OutputKind::Picture)?;
    let analyzed = read(&args.of, args.what == Picture::Mrc)?;
    let (drawn, what) = match args.what {
        Picture::Mrc => (analyzed.miss_ratios(), "miss ratios by cache size"),
        Picture::Heat => (analyzed.hot_spots(), "accesses by time and place"),
        Picture::Footprint => (analyzed.footprint(), "footprint over time"),
    };
    let name = args.of.trace.file_name().unwrap_or(args.of.trace.as_os_str()).display();
    picture::write(&args.out, &drawn.svg(&format!("{name}: {what}")))?;
    Ok(Plotted { trace: analyzed.trace, picture: args.out.clone(), title: what, notes: analyzed.notes })
}

/// The document of `weir trace plot`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir trace plot")]
pub(crate) struct Plotted {
    /// Path of the trace.
    trace: String,
    /// Path of the picture.
    picture: PathBuf,
    /// What the picture shows.
    title: &'static str,
    /// What of the trace could not be read or used as it is.
    notes: Vec<String>,
}

impl Plotted {
    /// Returns the text that is printed without `--json`.
    pub(super) fn human(&self) -> String {
        let notes = self.notes.iter().map(|note| format!("\nnote: {note}\n")).collect::<String>();
        format!("{} is drawn\n{notes}", self.picture.display())
    }
}

/// Analyses a trace. `curves` asks for the miss-ratio curves of policies other than `lru`.
fn read(args: &AnalyzedArgs, curves: bool) -> Result<TraceAnalysis, Failure> {
    let help = "name a file, or - for standard input";
    let reader = open_span(&args.trace, args.format.as_ref(), &args.span, help)?;
    let sampling = args.sample.unwrap_or_default();
    let (mut analyzed, sample) = progress::during("reading the trace", || {
        TraceAnalysis::read(reader, args.disk.as_deref(), args.strict, args.blocks, sampling)
    })
    .map_err(|error| Failure::from_message(ErrorKind::Usage, &error.to_string()))?;
    progress::during("playing the sample to caches", || {
        let policies = args.policy.iter().filter(|_| curves);
        for policy in policies.filter_map(|name| EvictionPolicy::by_name(name)) {
            analyzed.add_curve(&sample, policy);
        }
    });
    Ok(analyzed)
}

/// Returns the text that is printed without `--json`.
pub(super) fn human(analyzed: &TraceAnalysis, width: Width) -> String {
    let mut text = format!("{}\n", heading(analyzed));
    for part in tables::all(analyzed) {
        text += &format!("\n{}\n{}", part.title, part.text(width));
    }
    for note in &analyzed.notes {
        text += &format!("\nnote: {note}\n");
    }
    text
}

fn heading(analyzed: &TraceAnalysis) -> String {
    let TraceAnalysis { trace, format, disks, .. } = analyzed;
    let disks = if disks.len() == 1 { "1 disk".into() } else { format!("{} disks", disks.len()) };
    format!("{trace} ({format}, {disks})")
}

#[cfg(test)]
mod tests;
