//! Defines the arguments of `weir sim cache`.

use super::flash_args::FlashCacheArgs;
use crate::args::{duration, evictions};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use weir_model::{Bytes, Nanos};
use weir_sim::cache::{
    self, AdmissionPolicy, AdmissionSettings, BlockSize, SequenceSettings, TouchSettings, WriteMode,
};
use weir_trace::Format;

/// Heading of the options about caches in help.
const CACHE: &str = "Cache options";
/// Heading of the options about admission in help.
const ADMISSION: &str = "Admission options";

const EXAMPLES: &str = "Examples:
  weir sim cache day.weirtrace --policy lru,arc,s3fifo --size 1%,5%,10%,20%
  weir sim cache traces/one.csv.gz --size 1GiB --write-mode back --dirty 30%
  weir sim cache day.weirtrace --admission sequential --sequence-max 1MiB
  weir sim cache day.weirtrace --size 20% --flash --evict cache,gc --cell qlc";

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
    /// The settings of admission policies.
    #[command(flatten)]
    pub admission_settings: AdmissionArgs,
    /// The flash.
    #[command(flatten)]
    pub on_flash: FlashCacheArgs,
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

/// The settings of admission policies.
#[derive(Debug, Args)]
pub struct AdmissionArgs {
    /// Let a request continue one of the last N (sequential)
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = ADMISSION)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub sequence_window: u16,
    /// Let gaps of a sequential run be up to SIZE (sequential)
    #[arg(long, value_name = "SIZE", default_value = "2KiB", value_parser = bytes, help_heading = ADMISSION)]
    pub sequence_gap: Bytes,
    /// Admit sequential runs up to SIZE (sequential)
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = bytes, help_heading = ADMISSION)]
    pub sequence_max: Bytes,
    /// Count touches of segments of SIZE (touch_count)
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = bytes, help_heading = ADMISSION)]
    pub touch_segment: Bytes,
    /// Admit what was touched N times before (touch_count)
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = ADMISSION)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub touches: u32,
    /// Count touches in N bits a segment and map (touch_count)
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = ADMISSION)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=8))]
    pub touch_bits: u8,
    /// Add up the counts of N maps; the oldest one gives way to a new one (touch_count)
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = ADMISSION)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub touch_maps: u16,
    /// Begin a new map after SIZE of requests (touch_count) [default: never]
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = ADMISSION)]
    pub touch_rotate_bytes: Option<Bytes>,
    /// Begin a new map after TIME (touch_count) [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = ADMISSION)]
    pub touch_rotate_time: Option<Nanos>,
}

impl AdmissionArgs {
    pub(super) fn settings(&self) -> AdmissionSettings {
        AdmissionSettings {
            sequences: SequenceSettings {
                window: self.sequence_window.into(),
                gap: self.sequence_gap,
                run_max: self.sequence_max,
            },
            touches: TouchSettings {
                segment: self.touch_segment,
                threshold: self.touches,
                bits: self.touch_bits,
                rotate_after: self.touch_rotate_bytes,
                rotate_every: self.touch_rotate_time,
                maps: self.touch_maps.into(),
            },
        }
    }
}

/// Parses a size of any number of bytes.
fn bytes(text: &str) -> Result<Bytes, String> {
    weir_sim::units::size(text).map_err(|_| "write a size with its unit: 2KiB, 4MiB".into())
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=1024).contains(threads));
    threads.ok_or_else(|| "a number of threads from 1 to 1024".into())
}

fn admissions() -> PossibleValuesParser {
    PossibleValuesParser::new(AdmissionPolicy::ALL.iter().map(|policy| policy.name))
}
