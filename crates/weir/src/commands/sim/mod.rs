//! `weir sim` simulates pools, caches, flash, stacked logs and file systems under a load, in virtual time.

pub mod cache;
pub mod flash;
pub mod fs;
mod loads;
pub mod logs;
pub mod place;

use super::show;
use crate::args::Common;
use crate::failure::Failure;
use clap::Subcommand;

/// `weir sim ...`
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Replay a load on a simulated pool, under one placement policy or several
    Place(Box<place::PlaceArgs>),
    /// Replay traces on simulated caches, by eviction policy and size
    Cache(Box<cache::CacheArgs>),
    /// Simulate a flash device under a load: write amplification, lifetime and response times
    Flash(Box<flash::FlashArgs>),
    /// Simulate a log on a log, such as a log-structured file system on flash: write amplification
    Logs(Box<logs::LogsArgs>),
    /// Simulate a file system over NVM and two kinds of drives: throughput, hits and evictions by policy
    Fs(Box<fs::FsArgs>),
}

/// Runs the simulation and prints its results.
///
/// # Errors
/// Fails if the simulation cannot run as asked.
pub(crate) fn run(command: &SimCommand, common: &Common) -> Result<(), Failure> {
    match command {
        SimCommand::Place(args) => {
            let comparison = place::run(&common.pool, args)?;
            show(common, &comparison.document(), |width| comparison.human(width));
        }
        SimCommand::Cache(args) => {
            let comparison = cache::run(args)?;
            show(common, &comparison.document(), |width| comparison.human(width));
        }
        SimCommand::Flash(args) => {
            let comparison = flash::run(args)?;
            show(common, &comparison.document(), |width| comparison.human(width));
        }
        SimCommand::Logs(args) => {
            let comparison = logs::run(args)?;
            show(common, &comparison.document(), |width| comparison.human(width));
        }
        SimCommand::Fs(args) => {
            let comparison = fs::run(args)?;
            show(common, &comparison.document(), |width| comparison.human(width));
        }
    }
    Ok(())
}
