//! Defines the arguments of `weir advise`.

use super::device_list::{PRICE_MAX, PRICE_MIN};
use crate::args::{FlashOptions, OUTPUT, TRACE, TraceOptions, duration, policies, size};
use crate::pool_file;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use weir_model::{Bytes, Nanos};

/// Heading of the requirements among the options in help.
const GOALS: &str = "Requirements";

const EXAMPLES: &str = "Examples:
  weir advise day.weirtrace
  weir advise day.weirtrace --budget 500 --max-p99 20ms --write-pool new.toml
  weir advise --print-devices";

/// `weir advise ...`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// Trace file, plain or packed with gzip, zstd, xz or bzip2; - for standard input
    #[arg(value_name = "TRACE", required_unless_present = "print_devices", conflicts_with = "print_devices")]
    pub trace: Option<PathBuf>,
    /// Choose from the devices listed in FILE [default: a list that comes with weir]
    #[arg(long, value_name = "FILE")]
    pub devices: Option<PathBuf>,
    /// Print the list that comes with weir, as a start for your own
    #[arg(long)]
    pub print_devices: bool,
    /// Make room for SIZE of data in all [default: --active]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = GOALS)]
    pub capacity: Option<Bytes>,
    /// Let the trace's footprint stand for SIZE of data in use [default: the footprint]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = GOALS)]
    pub active: Option<Bytes>,
    /// Limit the price of all devices, in the list's currency
    #[arg(long, value_name = "PRICE", value_parser = price, help_heading = GOALS)]
    pub budget: Option<f64>,
    /// Limit the mean response time
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = GOALS)]
    pub max_mean: Option<Nanos>,
    /// Limit the response time of 99 of 100 requests
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = GOALS)]
    pub max_p99: Option<Nanos>,
    /// Require flash to last YEARS, 0 for any
    #[arg(long, value_name = "YEARS", default_value = "5", value_parser = years, help_heading = GOALS)]
    pub min_life: f64,
    /// What is assumed of flash.
    #[command(flatten)]
    pub flash: FlashOptions,
    /// Scale the trace to N requests a second on average [default: the trace's times]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = TRACE)]
    pub rate: Option<f64>,
    /// Use the first N requests of the trace, and end each run after N
    #[arg(long, value_name = "N", default_value_t = 1_000_000, help_heading = TRACE)]
    #[arg(value_parser = clap::value_parser!(u64).range(2..))]
    pub requests: u64,
    /// Place data by this policy (weir help policies)
    #[arg(long, value_name = "NAME", default_value = pool_file::POLICY_DEFAULT)]
    #[arg(value_parser = PossibleValuesParser::new(policies()))]
    pub policy: String,
    /// Predict from the first half of the trace, and compare with a simulation of the second
    #[arg(long)]
    pub held_out: bool,
    /// Plot the frontier to FILE, as PNG if its name ends in .png, else as SVG
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub plot: Option<PathBuf>,
    /// Write a pool file of the recommended devices to FILE
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub write_pool: Option<PathBuf>,
    /// Overwrite an existing pool file
    #[arg(long, requires = "write_pool", help_heading = OUTPUT)]
    pub force: bool,
    /// Set the random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How the trace is read.
    #[command(flatten)]
    pub trace_options: TraceOptions,
}

/// Parses a number above zero.
///
/// # Errors
/// Returns a message that says what is allowed.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && *number <= 1e9);
    number.ok_or_else(|| "write a number above 0".into())
}

/// Parses an amount of money.
///
/// # Errors
/// Returns a message that says what is allowed.
fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| (PRICE_MIN..=PRICE_MAX).contains(price));
    price.ok_or_else(|| "write an amount from 0.01 up".into())
}

/// Parses a number of years, such as `5`; `0` for any.
///
/// # Errors
/// Returns a message that says what is allowed.
fn years(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.0..=1000.0).contains(number));
    number.ok_or_else(|| "write a number of years, 0 for any".into())
}
