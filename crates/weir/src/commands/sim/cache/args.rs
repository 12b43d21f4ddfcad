//! Defines the arguments of `weir sim cache`.

use crate::args::evictions;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use weir_sim::cache::{self, AdmissionPolicy, BlockSize, WriteMode};
use weir_trace::Format;

/// Heading of the options about caches in help.
const CACHE: &str = "Cache options";

const EXAMPLES: &str = "Examples:
  weir sim cache day.weirtrace --policy lru,arc,s3fifo --size 1%,5%,10%,20%
  weir sim cache traces/one.csv.gz --size 1GiB --write-mode back --dirty 30%";

/// `weir sim cache ...`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CacheArgs {
    /// Trace files; - for standard input
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// Compare these eviction policies, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "lru", help_heading = CACHE)]
    #[arg(value_parser = evictions())]
    pub policy: Vec<String>,
    /// Simulate caches of these sizes, separated by commas: 10% of the blocks in the trace, 1GiB, 26921blk
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "10%", help_heading = CACHE)]
    #[arg(value_parser = cache::size)]
    pub size: Vec<cache::Size>,
    /// Set the size of a block, a power of two
    #[arg(long, value_name = "SIZE", default_value = "4KiB", help_heading = CACHE)]
    #[arg(value_parser = cache::block_size)]
    pub block_size: BlockSize,
    /// Compare these admission policies, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all", help_heading = CACHE)]
    #[arg(value_parser = admissions())]
    pub admission: Vec<String>,
    /// Write through the cache to the disk, around the cache, or to the cache and back to the disk later
    #[arg(long, value_name = "MODE", default_value = "through", help_heading = CACHE)]
    #[arg(value_parser = PossibleValuesParser::new(WriteMode::NAMES))]
    pub write_mode: String,
    /// Limit the dirty share of a cache with --write-mode back [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = cache::share, help_heading = CACHE)]
    pub dirty: Option<f64>,
    /// Append each result to FILE as it is found, and skip caches whose results FILE already has
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Simulate N caches at the same time [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Read the traces as FORMAT (weir help traces) [default: detected]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named)]
    pub format: Option<Format>,
    /// Fail if a line of a trace cannot be read, or if a trace is truncated
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
