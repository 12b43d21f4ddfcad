//! Defines the arguments of `weir trace`.

use super::span::SpanArgs;
use crate::args::{TRACE, duration, evictions};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weir_model::Nanos;
use weir_sim::analysis::{Sampling, Settings};
use weir_trace::Format;

/// Heading of the options about miss-ratio curves in help.
const CURVES: &str = "Miss-ratio curves";

const CONVERT_EXAMPLES: &str = "Examples:
  weir trace convert recorded.blktrace.gz recorded.weirtrace
  weir trace convert day.weirtrace - --to fio-3 --end 10min
  weir trace convert log.csv - --from csv:time_us,disk,op,offset,size";

const GENERATE_EXAMPLES: &str = "Examples:
  weir trace generate oltp --out oltp.weirtrace --duration 10min
  weir trace generate zipf reads=70% --out z.csv.gz --format msr --requests 5000";

const RECORD_EXAMPLES: &str = "Examples:
  weir trace record disk --out day.weirtrace --duration 24h
  weir trace record --device /dev/sda --out sda.weirtrace";

const ANALYZE_EXAMPLES: &str = "Examples:
  weir trace analyze day.weirtrace
  weir trace analyze day.weirtrace --policy lru,arc,lirs --html day.html";

const PLOT_EXAMPLES: &str = "Examples:
  weir trace plot day.weirtrace --out mrc.svg
  weir trace plot day.weirtrace --what heat --out heat.png";

/// `weir trace convert ...`
#[derive(Debug, Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub struct ConvertArgs {
    /// Trace file, plain or packed with gzip, zstd, xz or bzip2; - for standard input
    pub input: PathBuf,
    /// File to write, packed with gzip if its name ends in .gz; - for standard output
    pub output: PathBuf,
    /// Read the trace as FORMAT (weir help traces) [default: detected]
    // Other commands that read traces call it --format.
    #[arg(long, alias = "format", value_name = "FORMAT", value_parser = Format::named)]
    pub from: Option<Format>,
    /// Write the trace as FORMAT (weir help traces)
    #[arg(long, value_name = "FORMAT", value_parser = Format::named, default_value = "weir")]
    pub to: Format,
    /// The part of the trace.
    #[command(flatten)]
    pub span: SpanArgs,
    /// Fail if a line of the trace cannot be read, or if the trace is truncated
    #[arg(long)]
    pub strict: bool,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

/// `weir trace generate ...`
#[derive(Debug, Args)]
#[command(after_help = GENERATE_EXAMPLES)]
pub struct GenerateArgs {
    /// Words of a synthetic load (weir help loads)
    #[arg(value_name = "LOAD", required = true)]
    pub load: Vec<String>,
    /// Write the trace to FILE, packed with gzip if its name ends in .gz; - for standard output
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write the trace as FORMAT (weir help traces)
    #[arg(long, value_name = "FORMAT", value_parser = Format::named, default_value = "weir")]
    pub format: Format,
    /// Set the random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Stop after N requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Stop after TIME by the trace's clock [default: when the load ends, or after --requests]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

/// `weir trace record ...`
#[derive(Debug, Args)]
#[command(after_help = RECORD_EXAMPLES)]
pub struct RecordArgs {
    /// Volumes of a served pool to record
    #[arg(value_name = "VOLUME", required_unless_present = "device")]
    pub volumes: Vec<String>,
    /// Record a block device, with blktrace, instead of volumes
    #[arg(long, value_name = "PATH", conflicts_with = "volumes")]
    pub device: Option<PathBuf>,
    /// Write the trace to FILE, packed with gzip if its name ends in .gz; - for standard output
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write the trace as FORMAT (weir help traces)
    #[arg(long, value_name = "FORMAT", value_parser = Format::named, default_value = "weir")]
    pub format: Format,
    /// Stop after TIME [default: on Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// Stop after N requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

/// What is analysed, and how.
#[derive(Debug, Args)]
pub struct AnalyzedArgs {
    /// Trace file, plain or packed with gzip, zstd, xz or bzip2; - for standard input
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Compute miss-ratio curves of these eviction policies, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "lru,arc,s3fifo", help_heading = CURVES)]
    #[arg(value_parser = evictions())]
    pub policy: Vec<String>,
    /// Sample a share of the blocks (5%), or at most N of them (100000blk), for policies other than lru
    /// [default: 1%, but all of up to 8192, and at most 65536]
    #[arg(long, value_name = "SHARE|BLOCKS", help_heading = CURVES)]
    pub sample: Option<Sampling>,
    /// Keep at most N blocks in memory; of more blocks, N/2 to N are sampled to stand for all
    #[arg(long, value_name = "N", default_value_t = Settings::default().blocks, help_heading = CURVES)]
    #[arg(value_parser = clap::value_parser!(u32).range(1024..))]
    pub blocks: u32,
    /// The part of the trace.
    #[command(flatten)]
    pub span: SpanArgs,
    /// Read the requests to one disk of the trace only
    #[arg(long, value_name = "NAME", help_heading = TRACE)]
    pub disk: Option<String>,
    /// Read the trace as FORMAT (weir help traces) [default: detected]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named, help_heading = TRACE)]
    pub format: Option<Format>,
    /// Fail if a line of the trace cannot be read, or if the trace is truncated
    #[arg(long, help_heading = TRACE)]
    pub strict: bool,
}

/// `weir trace analyze ...`
#[derive(Debug, Args)]
#[command(after_help = ANALYZE_EXAMPLES)]
pub struct AnalyzeArgs {
    /// What.
    #[command(flatten)]
    pub of: AnalyzedArgs,
    /// Also write the report, with plots, to FILE, one page of HTML
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `weir trace plot ...`
#[derive(Debug, Args)]
#[command(after_help = PLOT_EXAMPLES)]
pub struct TracePlotArgs {
    /// What.
    #[command(flatten)]
    pub of: AnalyzedArgs,
    /// Write the plot to FILE, as PNG if its name ends in .png, else as SVG
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Plot this property
    #[arg(long, value_name = "PROPERTY", value_enum, default_value = "mrc")]
    pub what: Picture,
}

/// What of a trace is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Picture {
    /// Miss ratios by cache size
    Mrc,
    /// Accesses by time and place: hot spots
    Heat,
    /// Distinct blocks accessed over time
    Footprint,
}
