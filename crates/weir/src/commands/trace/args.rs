//! The arguments of `weir trace`.

use super::span::SpanArgs;
use crate::args::{duration, evictions};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weir_model::Nanos;
use weir_sim::analysis::{Sampling, Settings};
use weir_trace::Format;

/// `weir trace convert ...`
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The trace's file, packed with gzip, zstd, xz, bzip2 or not; - for standard input
    pub input: PathBuf,
    /// The file to write, with gzip if its name ends in .gz; - for standard output
    pub output: PathBuf,
    /// The format it has [default: found out]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named)]
    pub from: Option<Format>,
    /// The format to write
    #[arg(long, value_name = "FORMAT", value_parser = Format::named, default_value = "weir")]
    pub to: Format,
    /// Which part of it.
    #[command(flatten)]
    pub span: SpanArgs,
    /// Refuse a trace with a line that cannot be read, or that breaks off
    #[arg(long)]
    pub strict: bool,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
}

/// `weir trace generate ...`
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The load: words as for `weir sim place`, like zipf theta=1.1 reads=70% over=1GiB rate=500, or the name of one (see
    /// --help): phases, oltp, oltp+backup. Parts that follow one another have / between them, those at the same time &
    /// on one disk, | on disks of their own
    #[arg(value_name = "KIND", required = true)]
    pub load: Vec<String>,
    /// The file to write, with gzip if its name ends in .gz; - for standard output
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The format to write
    #[arg(long, value_name = "FORMAT", value_parser = Format::named, default_value = "weir")]
    pub format: Format,
    /// Decides whatever is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// At most so many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// How long, by the trace's clock [default: as long as the load's parts last, unless --requests is given]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
}

/// `weir trace record ...`
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The volumes; their pool must be served
    #[arg(value_name = "VOLUME", required_unless_present = "device")]
    pub volumes: Vec<String>,
    /// A block device instead, with blktrace
    #[arg(long, value_name = "PATH", conflicts_with = "volumes")]
    pub device: Option<PathBuf>,
    /// The file to write, with gzip if its name ends in .gz; - for standard output
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The format to write
    #[arg(long, value_name = "FORMAT", value_parser = Format::named, default_value = "weir")]
    pub format: Format,
    /// How long [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// At most so many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
}

/// What is analysed, and how.
#[derive(Debug, Args)]
pub struct AnalyzedArgs {
    /// The trace's file, packed with gzip, zstd, xz, bzip2 or not; - for standard input
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Eviction policies whose miss ratios are told, with commas between them: lru's from the blocks that are looked at, others'
    /// from a sample
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "lru,arc,s3fifo", value_parser = evictions())]
    pub policy: Vec<String>,
    /// The blocks that are sampled for that: a share like 5%, however many they are, or at most so many, like 100000blk
    /// [default: 1%, all of up to 8192, and no more than 65536]
    #[arg(long, value_name = "SHARE|BLOCKS")]
    pub sample: Option<Sampling>,
    /// The blocks that are looked at one by one, which take memory; of more blocks about so many to half of them stand for all
    #[arg(long, value_name = "N", default_value_t = Settings::default().blocks, value_parser = clap::value_parser!(u32).range(1024..))]
    pub blocks: u32,
    /// Which part of it.
    #[command(flatten)]
    pub span: SpanArgs,
    /// Look at this disk alone
    #[arg(long, value_name = "NAME")]
    pub disk: Option<String>,
    /// The trace's format [default: found out]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named)]
    pub format: Option<Format>,
    /// Refuse a trace with a line that cannot be read, or that breaks off
    #[arg(long)]
    pub strict: bool,
}

/// `weir trace analyze ...`
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    /// What.
    #[command(flatten)]
    pub of: AnalyzedArgs,
    /// Write a page with pictures, too: one file of HTML
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `weir trace plot ...`
#[derive(Debug, Args)]
pub struct TracePlotArgs {
    /// What.
    #[command(flatten)]
    pub of: AnalyzedArgs,
    /// The picture: SVG, or PNG if the name ends so
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// What is drawn
    #[arg(long, value_name = "WHAT", value_enum, default_value = "mrc")]
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
