//! Defines the arguments of `weir sim logs`.

use crate::args::{OUTPUT, TraceOptions, duration, size};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use weir_model::{Bytes, Nanos};
use weir_policy::reclaim;
use weir_sim::cache::share;
use weir_sim::logs::StackPrecondition;

/// Heading of the options about the layers in help.
const LAYERS: &str = "Layer options";
/// Heading of the options about cleaning in help.
const CLEANING: &str = "Cleaning options";
/// Heading of the options about metadata in help.
const METADATA: &str = "Metadata options";
/// Heading of the options about the defragger in help.
const DEFRAGGER: &str = "Defragger options";
/// Heading of the options about the course of the simulation in help.
const RUN: &str = "Simulation options";

const EXAMPLES: &str = "Examples:
  weir sim logs \"uniform reads=0% over=1GiB\" --lower-segment 2MiB,8MiB,32MiB
  weir sim logs day.weirtrace --divide 10%,90% --trim --checkpoint 1000
  weir sim logs day.weirtrace --upper-segment 2MiB,16MiB --plot surface.svg";

/// `weir sim logs ...`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LogsArgs {
    /// Trace file, or the words of a synthetic load (weir help loads)
    #[arg(value_name = "TRACE")]
    pub load: String,
    /// Set the size of the upper layer [default: 1.5 times the data of the load]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = LAYERS)]
    pub upper_size: Option<Bytes>,
    /// Set the size of the lower layer, and that of the upper one by --ratio
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = LAYERS)]
    #[arg(conflicts_with = "upper_size")]
    pub lower_size: Option<Bytes>,
    /// Set the size of a layer to that of the next one, less its reserve; several, separated by commas
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_value = "80%", help_heading = LAYERS)]
    #[arg(value_parser = share)]
    pub ratio: Vec<f64>,
    /// Divide the addresses evenly among N upper logs
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = LAYERS, value_parser = logs())]
    pub upper_logs: u32,
    /// Divide the addresses among upper logs in these shares, separated by commas
    #[arg(long, value_name = "SHARE", value_delimiter = ',', help_heading = LAYERS)]
    #[arg(value_parser = share, conflicts_with = "upper_logs")]
    pub divide: Vec<f64>,
    /// Divide the addresses evenly among N lower logs
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = LAYERS, value_parser = logs())]
    pub lower_logs: u32,
    /// Set the segment size of the upper logs; several, separated by commas
    /// [default: 2MiB, or 1/16 of a log if that is less]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = size, help_heading = LAYERS)]
    pub upper_segment: Vec<Bytes>,
    /// Set the segment size of the lower logs; several, separated by commas
    /// [default: 8MiB, or 1/16 of a log if that is less]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = size, help_heading = LAYERS)]
    pub lower_segment: Vec<Bytes>,
    /// Add a layer of one log below the others, with segments of SIZE (repeatable)
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = LAYERS)]
    pub layer: Vec<Bytes>,
    /// Set the size of a page of all logs
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4KiB", help_heading = LAYERS)]
    pub page: Bytes,
    /// Select victims by this policy
    #[arg(long, value_name = "NAME", default_value = "greedy", help_heading = CLEANING)]
    #[arg(value_parser = policies())]
    pub policy: String,
    /// Select victims of the lower layers by this policy [default: as --policy]
    #[arg(long, value_name = "NAME", value_parser = policies(), help_heading = CLEANING)]
    pub lower_policy: Option<String>,
    /// Keep this share of each log's segments free
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = reserve, help_heading = CLEANING)]
    pub reserve: f64,
    /// Trim the addresses of erased segments in the layer below
    #[arg(long, help_heading = CLEANING)]
    pub trim: bool,
    /// End each segment of the upper logs with N summary pages
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = METADATA)]
    pub summary: u32,
    /// Add a journal page to an upper log after every N pages that it wrote; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = METADATA)]
    pub journal: u32,
    /// Write a checkpoint page of every upper log after every N pages of the load; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = METADATA)]
    pub checkpoint: u64,
    /// Put upper segments out of alignment by N pages at the start of each lower log
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = METADATA)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub shift: u32,
    /// Defragment upper segments once when no request has arrived for TIME
    #[arg(long, value_name = "TIME", value_parser = duration, group = "defrag", help_heading = DEFRAGGER)]
    pub defrag_idle: Option<Nanos>,
    /// Defragment upper segments after every N overwrites of the data
    #[arg(long, value_name = "N", value_parser = overwrites, group = "defrag", help_heading = DEFRAGGER)]
    pub defrag_every: Option<f64>,
    /// Defragment this share of the upper segments at a time, those written longest ago first
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share, help_heading = DEFRAGGER)]
    #[arg(requires = "defrag")]
    pub defrag_share: f64,
    /// Group segments that are defragmented into N classes by how often they were erased
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = DEFRAGGER, requires = "defrag")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub defrag_classes: u32,
    /// Leave the logs empty before the load, write its data once, or age them by random writes, too
    #[arg(long, value_name = "HOW", default_value = "empty", help_heading = RUN)]
    #[arg(value_parser = PossibleValuesParser::new(StackPrecondition::ALL.map(|(name, _)| name)))]
    pub precondition: String,
    /// Warm up for at most N overwrites of the data; less if write amplification is steady
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = warm_up, help_heading = RUN)]
    pub warm_up: f64,
    /// Measure N overwrites of the data
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = overwrites, help_heading = RUN)]
    pub overwrites: f64,
    /// Set the random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Plot write amplification by segment to FILE, as PNG if its name ends in .png, else as SVG
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub plot: Option<PathBuf>,
    /// How the trace is read.
    #[command(flatten)]
    pub trace_options: TraceOptions,
}

fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(reclaim::ALL.iter().map(|policy| policy.name))
}

fn logs() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=64)
}

/// Parses a share of the segments that leaves some to write.
fn reserve(text: &str) -> Result<f64, String> {
    let reserve = share(text).ok().filter(|reserve| *reserve <= 0.9);
    reserve.ok_or_else(|| "write a percentage above 0%, at most 90%".into())
}

fn overwrites(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.01..=1000.0).contains(number));
    number.ok_or_else(|| "write a number of overwrites from 0.01 to 1000".into())
}

fn warm_up(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1000.0).contains(number));
    number.ok_or_else(|| "write a number of overwrites from 0 to 1000".into())
}
