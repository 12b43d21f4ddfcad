//! Defines the arguments of `weir repro`.

use crate::args::duration;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use weir_model::Nanos;

const EXAMPLES: &str = "Examples:
  weir repro
  weir repro hystor --plot hystor.png
  weir repro log-on-log --causes
  weir repro all --full --results results.jsonl";

fn jobs(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|jobs| (1..=1024).contains(jobs))
        .ok_or_else(|| "a number from 1 to 1024".to_owned())
}

/// `weir repro ...`
#[derive(Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReproArgs {
    /// Publication to reproduce, or all [default: list them]
    #[arg(value_parser = PossibleValuesParser::new(super::names()))]
    pub name: Option<String>,
    /// Run the loads of dbench from its load file FILE: client.txt of version 4 (Debian: dbench)
    /// [default: a load of weir's own making]
    #[arg(long, value_name = "FILE")]
    pub dbench: Option<PathBuf>,
    /// Replay the recordings of F2FS in DIR, which bench/record-f2fs makes [default: list the rows that need
    /// them as missing]
    #[arg(long, value_name = "DIR")]
    pub recordings: Option<PathBuf>,
    /// Run only the experiments of the figure, table or section TEXT, such as "figure 5", or if there is
    /// none, those whose own names contain TEXT; with --causes or --sweep, only rows and causes or sweeps
    /// that contain it
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Run each experiment as long as the publication's, with five seeds; the medians count
    #[arg(long)]
    pub full: bool,
    /// Do not vary fitted parameters
    #[arg(long)]
    pub no_variants: bool,
    /// Vary fitted parameters in long experiments, too, as with --full
    #[arg(long, conflicts_with_all = ["no_variants", "causes", "sweep"])]
    pub all_variants: bool,
    /// Run the experiments on the causes of differences instead: the rows that differ, with and without a
    /// change of one thing
    #[arg(long, conflicts_with_all = ["plot", "full"])]
    pub causes: bool,
    /// Sweep what is not published instead: rows with each of several values, and the range that agrees
    #[arg(long, conflicts_with_all = ["plot", "full", "causes"])]
    pub sweep: bool,
    /// Run N experiments at the same time [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Keep the result of each experiment in FILE, and take over those that it has from the same build
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Run each experiment for TIME of virtual time, warm-up included
    /// [default: by load, 20s to 10min; with --full to 3h]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// Set the random seed, the first of five with --full
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Plot published and measured ratios to FILE, as PNG if its name ends in .png, else as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}
