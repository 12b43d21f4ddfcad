//! `weir trace analyze` and `weir trace plot`: what a trace is like, as a page, a document, or pictures.

mod page;
mod tables;

use crate::args::{AnalyzeArgs, AnalyzedArgs, Picture, TracePlotArgs};
use crate::failure::Failure;
use crate::traces::{open_span, told};
use crate::{picture, progress};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use weir_model::{BLOCK, ErrorKind};
use weir_sim::analysis::{Analysis, Analyzer, Sampling, Settings};
use weir_sim::cache::EvictionPolicy;
use weir_sim::plot::TracePicture;
use weir_trace::Tally;

/// What a trace came to.
#[derive(Debug, Serialize)]
pub struct Analyzed {
    trace: String,
    format: String,
    /// Whether it says when requests were made.
    timed: bool,
    /// The disks that were looked at.
    disks: Vec<String>,
    notes: Vec<String>,
    block_bytes: u64,
    #[serde(flatten)]
    analysis: Analysis,
}

/// Analyses a trace, and writes a page of it if that is wanted.
///
/// # Errors
/// If the trace cannot be used, or the page not be written.
pub fn analyze(args: &AnalyzeArgs) -> Result<Analyzed, Failure> {
    args.html.iter().try_for_each(|path| not_the_trace(&args.of.trace, path))?;
    let analyzed = read(&args.of, true)?;
    if let Some(path) = &args.html {
        let page = page::html(&analyzed)?;
        std::fs::write(path, page).map_err(|error| Failure::os("write", path, &error))?;
    }
    Ok(analyzed)
}

/// Draws a picture of a trace.
///
/// # Errors
/// If the trace cannot be used, or the picture not be written.
pub fn plot(args: &TracePlotArgs) -> Result<Value, Failure> {
    not_the_trace(&args.of.trace, &args.out)?;
    let analyzed = read(&args.of, args.what == Picture::Mrc)?;
    let (drawn, what) = match args.what {
        Picture::Mrc => (analyzed.miss_ratios(), "miss ratios by cache size"),
        Picture::Heat => (analyzed.hot_spots(), "accesses by time and place"),
        Picture::Footprint => (analyzed.footprint(), "footprint over time"),
    };
    let name = args.of.trace.file_name().unwrap_or(args.of.trace.as_os_str()).display();
    picture::write_trace(&args.out, &format!("{name}: {what}"), &drawn)?;
    Ok(json!({ "trace": analyzed.trace, "picture": args.out, "what": what, "notes": analyzed.notes }))
}

/// What is written is not written over what is read.
fn not_the_trace(trace: &Path, out: &Path) -> Result<(), Failure> {
    match (trace.canonicalize(), out.canonicalize()) {
        (Ok(trace), Ok(same)) if trace == same => Err(Failure::refused(
            format!("{} is the trace itself", out.display()),
            "name another file to write",
        )),
        _ => Ok(()),
    }
}

/// Analyses a trace; the curves of policies other than `lru` are there if they are wanted.
fn read(args: &AnalyzedArgs, curves: bool) -> Result<Analyzed, Failure> {
    let help = "name a file, or - for standard input";
    let mut reader = open_span(&args.trace, args.format.as_ref(), &args.span, help)?;
    if let Some(disk) = &args.disk {
        reader = reader.only(disk);
    }
    let timed = reader.format().timed;
    let sampling = args.sample.map_or_else(Sampling::default, Sampling::fixed);
    let mut analyzer = Analyzer::new(Settings { timed, sampling });
    let tally = progress::during("reading the trace", || {
        Tally::read(&mut reader, args.strict, |record| analyzer.take(&record))
    });
    let disks: Vec<_> = reader.disks().collect();
    let tally = match (tally, &args.disk) {
        (Ok(tally), _) => tally,
        (Err(_), Some(disk)) if !disks.is_empty() && !disks.contains(disk) => {
            let message = format!("{} has no disk {disk:?}", args.trace.display());
            return Err(Failure::usage(message, format!("name one of {}", disks.join(", "))));
        }
        (Err(error), _) => return Err(told(&error)),
    };
    let (mut analysis, sample) = analyzer.finish().map_err(|error| {
        Failure::told(ErrorKind::Usage, &format!("{} cannot be analysed: {error}", args.trace.display()))
    })?;
    let requests = (analysis.reads.requests + analysis.writes.requests) as usize;
    let mut notes = crate::sim::notes(&tally, requests);
    progress::during("playing the sample to caches", || {
        let policies = args.policy.iter().filter(|name| curves && *name != "lru");
        for policy in policies.filter_map(|name| EvictionPolicy::by_name(name)) {
            match analysis.curve(&sample, policy) {
                Ok(curve) => analysis.curves.push(curve),
                Err(error) => notes.push(format!(
                    "the curve of {} is left out: of the sample, {error}, or a smaller --sample",
                    policy.name
                )),
            }
        }
    });
    Ok(Analyzed {
        trace: args.trace.display().to_string(),
        format: reader.format().name.clone().into_owned(),
        timed,
        disks: args.disk.clone().map_or(disks, |disk| vec![disk]),
        notes,
        block_bytes: BLOCK,
        analysis,
    })
}

impl Analyzed {
    /// One page for the terminal.
    pub fn human(&self) -> String {
        let mut text = format!("{}\n", self.heading());
        for part in tables::all(self) {
            text += &format!("\n{}\n{}", part.title, part.text());
        }
        for note in &self.notes {
            text += &format!("\nnote: {note}\n");
        }
        text
    }

    fn heading(&self) -> String {
        let disks =
            if self.disks.len() == 1 { "1 disk".into() } else { format!("{} disks", self.disks.len()) };
        format!("{} ({}, {disks})", self.trace, self.format)
    }

    /// What the trace calls a disk.
    fn disk(&self, number: u32) -> &str {
        let only = (self.disks.len() == 1).then_some(0);
        self.disks.get(only.unwrap_or(number as usize)).map_or("", |name| name)
    }

    fn miss_ratios(&self) -> TracePicture<'_> {
        TracePicture::MissRatios(&self.analysis.curves, self.analysis.blocks)
    }

    fn hot_spots(&self) -> TracePicture<'_> {
        TracePicture::HotSpots(&self.analysis.timeline, self.timed)
    }

    fn footprint(&self) -> TracePicture<'_> {
        TracePicture::Footprint(&self.analysis.timeline, self.timed)
    }
}
