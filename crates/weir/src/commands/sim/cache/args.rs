//! The arguments of `weir sim cache`.

use crate::args::evictions;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use weir_sim::cache::{self, AdmissionPolicy, BlockSize, WriteMode};
use weir_trace::Format;

/// `weir sim cache ...`
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// The file of a trace, or of several
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// Which block leaves a full cache: policies to compare, with commas between them
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "lru", value_parser = evictions())]
    pub policy: Vec<String>,
    /// How large the caches are: 10% of the blocks the trace touches, 1GiB, 26921blk; several with commas
    /// between them
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "10%", value_parser = cache::size)]
    pub size: Vec<cache::Size>,
    /// How large a block is: a power of two
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = cache::block_size)]
    pub block_size: BlockSize,
    /// Which missed blocks come in: policies to compare, with commas between them
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all", value_parser = admissions())]
    pub admission: Vec<String>,
    /// Where writes go: through the cache to the disk, around the cache, or to the cache and back to the disk later
    #[arg(long, value_name = "MODE", default_value = "through",
          value_parser = PossibleValuesParser::new(WriteMode::NAMES))]
    pub write_mode: String,
    /// With --write-mode back: how much of the cache may be dirty [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = cache::share)]
    pub dirty: Option<f64>,
    /// Keep each result in this file as soon as it is there; what is in it already is not simulated again
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Caches simulated at the same time [default: one a core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// The trace's format [default: found out]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named)]
    pub format: Option<Format>,
    /// Refuse a trace with a line that cannot be read, or that breaks off
    #[arg(long)]
    pub strict: bool,
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=1024).contains(threads));
    threads.ok_or_else(|| "a number of threads from 1 to 1024".into())
}

fn admissions() -> PossibleValuesParser {
    PossibleValuesParser::new(AdmissionPolicy::ALL.iter().map(|policy| policy.name))
}
