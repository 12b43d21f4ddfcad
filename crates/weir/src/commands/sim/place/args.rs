//! Defines the arguments of `weir sim place`.

use crate::args::{FlashOptions, OUTPUT, TraceOptions, duration};
use clap::Args;
use std::path::PathBuf;
use weir_model::Nanos;

/// Heading of the options about the load in help.
const LOAD: &str = "Load options";

const EXAMPLES: &str = "Examples:
  weir sim place day.weirtrace
  weir sim place day.weirtrace --policy adaptive,hystor --scale fast=10%
  weir sim place day.weirtrace --endurance --cell qlc --write-budget 50GiB
  weir sim place \"zipf reads=70% over=1GiB rate=400 for=60s\" --plot run.png";

/// `weir sim place ...`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PlaceArgs {
    /// Trace file, or the words of a synthetic load (weir help loads)
    #[arg(value_name = "TRACE")]
    pub load: String,
    /// Compare these placement policies, separated by commas [default: the pool file's]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Keep N requests in flight, whatever the load's arrival times
    #[arg(long, value_name = "N", conflicts_with = "open", value_parser = depth, help_heading = LOAD)]
    pub closed: Option<usize>,
    /// Issue requests at the load's arrival times (the default)
    #[arg(long, help_heading = LOAD)]
    pub open: bool,
    /// Offer FIRST to LAST requests per second in N steps, whatever the load's arrival times
    #[arg(long, value_name = "FIRST..LAST/N", conflicts_with_all = ["open", "closed", "requests"])]
    #[arg(value_parser = ramp, help_heading = LOAD)]
    pub ramp: Option<RampRates>,
    /// Report the rate at which the mean response reaches TIME as the point of saturation of --ramp
    #[arg(long, value_name = "TIME", requires = "ramp", default_value = "50ms")]
    #[arg(value_parser = duration, help_heading = LOAD)]
    pub limit: Nanos,
    /// Scale the load's times (time=2: half as fast), or a device's capacity to a share of the load's data
    /// (DEVICE=10%) (repeatable)
    #[arg(long, value_name = "NAME=SCALE", value_parser = scale, help_heading = LOAD)]
    pub scale: Vec<Scale>,
    /// Stop after TIME of virtual time, of which the first third is warm-up
    /// [default: the whole load, repeated to fill 10min; with --closed and --ramp 10min]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = LOAD)]
    pub duration: Option<Nanos>,
    /// Stop after N requests [default: 3000000 with --closed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = LOAD)]
    pub requests: Option<u64>,
    /// Leave data at its first place, whatever the policies ask for
    #[arg(long)]
    pub no_moves: bool,
    /// Report how long the flash of each SSD lasts; --write-budget does, too
    #[arg(long)]
    pub endurance: bool,
    /// What is assumed of flash.
    #[command(flatten)]
    pub flash: FlashOptions,
    /// Report --json and --plot in N intervals of time
    #[arg(long, value_name = "N", default_value_t = 60, help_heading = OUTPUT)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub windows: u32,
    /// Set the random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How the trace is read.
    #[command(flatten)]
    pub trace_options: TraceOptions,
    /// Plot the run over time to FILE, as PNG if its name ends in .png, else as SVG
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub plot: Option<PathBuf>,
}

/// Name that `--scale` takes besides names of devices.
const TIME: &str = "time";

/// One `--scale`, of the load's time or of a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Factor for the load's times; 2 makes it half as fast.
    Time(f64),
    /// Name of a device, and its capacity as a share of the load's data.
    Device(String, f64),
}

/// Parses `time=2` or `fast=10%`.
///
/// # Errors
/// Returns a message that says what is allowed.
fn scale(text: &str) -> Result<Scale, String> {
    let (name, value) = text.split_once('=').ok_or("write time=2 or DEVICE=10%")?;
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 1e6);
    match value.strip_suffix('%') {
        None if name == TIME => number(value).map(Scale::Time).ok_or("time must be a number above 0".into()),
        Some(percent) if name != TIME => number(percent)
            .map(|percent| Scale::Device(name.to_owned(), percent / 100.0))
            .ok_or(format!("{name} must be a percentage above 0%")),
        _ => Err("write time=2 or DEVICE=10%".into()),
    }
}

/// The rates of `--ramp`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RampRates {
    /// Requests per second of the first step.
    pub first: f64,
    /// Requests per second of the last step.
    pub last: f64,
    /// Number of steps.
    pub steps: u32,
}

/// Parses `100..1000/10`.
///
/// # Errors
/// Returns a message that says what is allowed.
fn ramp(text: &str) -> Result<RampRates, String> {
    const ALLOWED: &str = "write FIRST..LAST/N, such as 100..1000/10: rates above 0, 2 to 1000 steps";
    let parts = text.split_once('/').and_then(|(rates, steps)| Some((rates.split_once("..")?, steps)));
    let ((first, last), steps) = parts.ok_or(ALLOWED)?;
    let rate =
        |text: &str| text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= 1e9).ok_or(ALLOWED);
    let steps = steps.parse().ok().filter(|steps| (2..=1000).contains(steps)).ok_or(ALLOWED)?;
    let ramp = RampRates { first: rate(first)?, last: rate(last)?, steps };
    if ramp.first < ramp.last { Ok(ramp) } else { Err("the first rate must be below the last".into()) }
}

fn depth(text: &str) -> Result<usize, String> {
    let depth = text.parse().ok().filter(|depth| (1..=4096).contains(depth));
    depth.ok_or_else(|| "a number of requests from 1 to 4096".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_of_time_or_of_a_device() {
        assert_eq!(scale("time=0.5"), Ok(Scale::Time(0.5)));
        assert_eq!(scale("fast=10%"), Ok(Scale::Device("fast".into(), 0.1)));
        for bad in ["", "time", "time=0", "time=10%", "fast=10", "fast=-1%", "fast=0%", "time=nan"] {
            assert!(scale(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_ramp_rises_in_steps() {
        assert_eq!(ramp("0.5..1000/20"), Ok(RampRates { first: 0.5, last: 1000.0, steps: 20 }));
        for bad in ["", "1..2", "100/5", "2..1/5", "1..1/5", "0..5/5", "1..5/1", "1..5/1001", "1..nan/5"] {
            assert!(ramp(bad).is_err(), "{bad}");
        }
    }
}
