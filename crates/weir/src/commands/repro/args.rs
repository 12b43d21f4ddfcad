//! The arguments of `weir repro`.

use crate::args::duration;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use weir_model::Nanos;

/// `weir repro ...`
#[derive(Debug, Default, Args)]
pub struct ReproArgs {
    /// Which
    #[arg(value_parser = PossibleValuesParser::new(super::names()))]
    pub name: Option<String>,
    /// dbench's load file, client.txt of its version 4 (in Debian's package dbench)
    #[arg(long, value_name = "FILE")]
    pub dbench: Option<PathBuf>,
    /// Only the experiments whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// How long each experiment goes on, in virtual time, its warm-up included
    /// [default: as the load needs, 20 s to 3 hours]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// Decides whatever is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Draw the ratios, published and here: an SVG picture, or a PNG if the name ends so
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}
