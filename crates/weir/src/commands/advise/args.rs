//! The arguments of `weir advise`.

use super::list::{PRICE_MAX, PRICE_MIN};
use crate::args::{duration, policies, size};
use crate::pool_file;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use weir_model::{Bytes, Nanos};
use weir_trace::Format;

/// `weir advise ...`
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// The trace's file, packed with gzip, zstd, xz, bzip2 or not; - for standard input
    #[arg(value_name = "TRACE", required_unless_present = "print_devices", conflicts_with = "print_devices")]
    pub trace: Option<PathBuf>,
    /// The list of devices on sale [default: one that comes with weir]
    #[arg(long, value_name = "FILE")]
    pub devices: Option<PathBuf>,
    /// Print the list that comes with weir, to be edited
    #[arg(long)]
    pub print_devices: bool,
    /// How much data there is to be room for [default: what is in use]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub capacity: Option<Bytes>,
    /// How much of it is in use: what the trace touches stands for so much [default: for itself]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub active: Option<Bytes>,
    /// The most it may cost, in the list's currency
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub budget: Option<f64>,
    /// The longest mean response
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_mean: Option<Nanos>,
    /// The longest response of 99 of 100 requests
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_p99: Option<Nanos>,
    /// How many years its flash is to last at least
    #[arg(long, value_name = "YEARS", default_value = "5", value_parser = years)]
    pub min_life: f64,
    /// So many requests come a second on average, whatever the trace's times
    #[arg(long, value_name = "N", value_parser = positive)]
    pub rate: Option<f64>,
    /// Use only so many requests of the trace, and end a run after as many
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(2..))]
    pub requests: u64,
    /// The placement policy
    #[arg(long, value_name = "NAME", default_value = pool_file::POLICY_DEFAULT, value_parser = PossibleValuesParser::new(policies()))]
    pub policy: String,
    /// Predict from the first half of the trace and simulate the second: how far predictions are off
    #[arg(long)]
    pub held_out: bool,
    /// Draw the frontier: an SVG picture, or a PNG if the name ends so
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Write a pool file of what to buy
    #[arg(long, value_name = "FILE")]
    pub write_pool: Option<PathBuf>,
    /// Write over a pool file that is there
    #[arg(long, requires = "write_pool")]
    pub force: bool,
    /// Decides whatever is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The trace's format [default: found out]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named)]
    pub format: Option<Format>,
    /// Refuse a trace with a line that cannot be read, or that breaks off
    #[arg(long)]
    pub strict: bool,
}

/// Reads a number above zero.
///
/// # Errors
/// What is allowed.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && *number <= 1e9);
    number.ok_or_else(|| "write a number above 0".into())
}

/// Reads an amount of money.
///
/// # Errors
/// What is allowed.
fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| (PRICE_MIN..=PRICE_MAX).contains(price));
    price.ok_or_else(|| "write an amount from 0.01 up".into())
}

/// Reads a number of years: `5`, `0` for any.
///
/// # Errors
/// What is allowed.
fn years(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.0..=1000.0).contains(number));
    number.ok_or_else(|| "write a number of years, 0 for any".into())
}
