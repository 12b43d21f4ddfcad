//! Defines the arguments of `weir sim flash`.

use crate::args::{TraceOptions, duration, size, spare_factor};
use clap::Args;
use clap::builder::PossibleValuesParser;
use weir_model::{Bytes, Nanos};
use weir_policy::reclaim;
use weir_sim::cache::share;
use weir_sim::flash::{Cell, EraseUnit, Precondition, Separation};

/// Heading of the options about the device in help.
const DEVICE: &str = "Device options";
/// Heading of the options about the log in help.
const LOG: &str = "Cleaning options";
/// Heading of the options about the course of the simulation in help.
const RUN: &str = "Simulation options";

const EXAMPLES: &str = "Examples:
  weir sim flash \"uniform reads=0% over=1GiB\" --spare 20%
  weir sim flash day.weirtrace --policy greedy,oldest --cell qlc
  weir sim flash \"hotcold hits=90% reads=50%\" --closed 16 --separate copies";

/// `weir sim flash ...`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FlashArgs {
    /// Trace file, or the words of a synthetic load (weir help loads)
    #[arg(value_name = "TRACE")]
    pub load: String,
    /// Set what the user can write [default: the data of the load]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = DEVICE)]
    pub capacity: Option<Bytes>,
    /// Set the spare factor, the over-provisioned share of the flash in use: (T - U) / T [default: 7%]
    #[arg(long, value_name = "SHARE", value_parser = spare_factor, help_heading = DEVICE)]
    pub spare: Option<f64>,
    /// Set over-provisioning as a share of the capacity: (T - U) / U
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = DEVICE, conflicts_with = "spare")]
    pub over_provisioning: Option<f64>,
    /// Set the size of a page
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4KiB", help_heading = DEVICE)]
    pub page: Bytes,
    /// Set the number of pages in a block
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = DEVICE)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=65_536))]
    pub block: u32,
    /// Set the number of planes in a die
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = parallel(), help_heading = DEVICE)]
    pub planes: u32,
    /// Set the number of dies at a channel
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parallel(), help_heading = DEVICE)]
    pub dies: u32,
    /// Set the number of channels
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parallel(), help_heading = DEVICE)]
    pub channels: u32,
    /// Collect and erase blocks one by one, by die, or as superblocks of all dies
    #[arg(long, value_name = "UNIT", default_value = "block", help_heading = DEVICE)]
    #[arg(value_parser = names(EraseUnit::ALL.map(|(name, _)| name)))]
    pub erase_unit: String,
    /// Set the time to read a page
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60us", help_heading = DEVICE)]
    pub read_time: Nanos,
    /// Set the time to program a page
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "500us", help_heading = DEVICE)]
    pub program_time: Nanos,
    /// Set the time to erase a block
    #[arg(long, value_name = "TIME", default_value = "3500us", help_heading = DEVICE)]
    #[arg(value_parser = duration)]
    pub erase_time: Nanos,
    /// Take the usual rating of these cells for the lifetime
    #[arg(long, value_name = "CELL", default_value = "tlc", help_heading = DEVICE)]
    #[arg(value_parser = names(Cell::ALL.map(|cell| cell.name)))]
    pub cell: String,
    /// Set how often a cell can be erased [default: the usual rating of --cell]
    #[arg(long, value_name = "N", help_heading = DEVICE)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub cycles: Option<u32>,
    /// Compare these victim policies, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "greedy", help_heading = LOG)]
    #[arg(value_parser = PossibleValuesParser::new(reclaim::ALL.iter().map(|policy| policy.name)))]
    pub policy: Vec<String>,
    /// Give copied pages append points of their own: none, one for all, or one for each generation
    #[arg(long, value_name = "WHAT", default_value = "none", help_heading = LOG)]
    #[arg(value_parser = names(Separation::ALL.map(|(name, _)| name)))]
    pub separate: String,
    /// Keep N erase units free: cleaning starts when fewer would remain
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = LOG)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub reserve: u32,
    /// Take the least worn free erase unit first
    #[arg(long, help_heading = LOG)]
    pub level_wear: bool,
    /// Move the data of an erase unit with N erases fewer than the most worn one
    #[arg(long, value_name = "N", help_heading = LOG)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub wear_gap: Option<u32>,
    /// Fill the device by writing it once, near the steady state by the closed form, or not at all
    #[arg(long, value_name = "HOW", default_value = "fill", help_heading = RUN)]
    #[arg(value_parser = names(Precondition::ALL.map(|(name, _)| name)))]
    pub precondition: String,
    /// Warm up for at most N overwrites of the capacity; less if write amplification is steady
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = overwrites, help_heading = RUN)]
    pub warm_up: f64,
    /// Measure N overwrites of the capacity
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = overwrites, help_heading = RUN)]
    pub overwrites: f64,
    /// Keep N requests in flight, whatever the load's arrival times
    #[arg(long, value_name = "N", help_heading = RUN)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub closed: Option<u32>,
    /// Compute the lifetime for SIZE written per day [default: as the load writes]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = RUN)]
    pub written_per_day: Option<Bytes>,
    /// Set the random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How the trace is read.
    #[command(flatten)]
    pub trace_options: TraceOptions,
}

fn names<const N: usize>(names: [&'static str; N]) -> PossibleValuesParser {
    PossibleValuesParser::new(names)
}

fn parallel() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1024)
}

fn overwrites(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.01..=1000.0).contains(number));
    number.ok_or_else(|| "write a number of overwrites from 0.01 to 1000".into())
}
