//! The arguments of `weir sim place`.

use crate::args::duration;
use clap::Args;
use std::path::PathBuf;
use weir_model::Nanos;
use weir_trace::Format;

/// `weir sim place ...`
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// A trace's file, or words that make up a load: "zipf theta=1.1 reads=70% size=4KiB over=1GiB"
    #[arg(value_name = "TRACE")]
    pub load: String,
    /// The policies to compare, with commas between them [default: the pool file's]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Keep this many requests under way, whatever the load's own times
    #[arg(long, value_name = "N", conflicts_with = "open", value_parser = depth)]
    pub closed: Option<usize>,
    /// Make requests when the load says so (the default)
    #[arg(long)]
    pub open: bool,
    /// time=2 makes the load twice as slow; DEVICE=10% gives a device room for that share of the load's
    /// data instead of its size; may be repeated
    #[arg(long, value_name = "NAME=SCALE", value_parser = scale)]
    pub scale: Vec<Scale>,
    /// How long, in virtual time; the first third warms up
    /// [default: the whole load, at least 10min]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// Stop after so many requests [default: 3000000 with --closed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Leave everything at its first place, whatever the policies ask for
    #[arg(long)]
    pub no_moves: bool,
    /// Stretches of time told apart in --json and --plot
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub windows: u32,
    /// Decides whatever is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The trace's format [default: found out]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named)]
    pub format: Option<Format>,
    /// Refuse a trace with a line that cannot be read, or that breaks off
    #[arg(long)]
    pub strict: bool,
    /// Draw what happened over time: an SVG picture, or a PNG if the name ends so
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// What `--scale` names besides devices.
const TIME: &str = "time";

/// One `--scale`: of the load's time, or of a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// So many times as slow.
    Time(f64),
    /// A device's room as a share of the load's data.
    Device(String, f64),
}

/// Reads `time=2`, `fast=10%`.
///
/// # Errors
/// What is allowed.
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
}
