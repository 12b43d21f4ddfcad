//! `weir pool`: a pool is made, shown, checked, saved.

pub mod check;
mod create;
pub mod dump;
mod metadata;
mod occupied;
mod replace;
mod set;

pub(super) use create::create;

use super::show;
use crate::args::{Accept, Common, policies};
use crate::failure::Failure;
use crate::status::Status;
use crate::{exit, output, pool};
use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;

/// `weir pool ...`
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Make the pool that a pool file describes, of blank devices
    Create {
        /// The pool file (instead of --pool)
        file: Option<PathBuf>,
        /// Take devices that hold data, too; it is lost
        #[arg(long)]
        force: bool,
    },
    /// Show the pool, its devices and their load
    Status {
        /// For a pool that is not all there.
        #[command(flatten)]
        accept: Accept,
        /// Print metrics in the OpenMetrics text format, for a monitor
        #[arg(long, conflicts_with = "json")]
        metrics: bool,
    },
    /// Change how a served pool is run, until its server ends; the pool file decides for the next one
    Set {
        /// The placement policy, as tuned in the pool file; nothing is moved by that
        #[arg(long, value_parser = PossibleValuesParser::new(policies()))]
        policy: String,
    },
    /// Verify everything the pool stores about itself; the pool must not be served
    ///
    /// Exit codes as fsck's: 0 clean, 1 repaired, 4 something is wrong, 8 it could not be checked,
    /// 16 the command line or the pool file is wrong, 32 a signal ended it.
    Check {
        /// Repair what can be repaired without guessing
        #[arg(long)]
        repair: bool,
    },
    /// Have a blank device take the place of one that is gone for good; the pool must not be served
    ///
    /// The pool file says where the new one is: correct its path there first, if it is another one. Volumes
    /// with two copies lose nothing, and get their second copies back while the pool is served. Refused while
    /// some data are on the device that is gone alone: bring it back, or give them up first.
    Replace {
        /// The device's name in the pool file
        device: String,
        /// For a pool that is not all there.
        #[command(flatten)]
        accept: Accept,
        /// Take a device that holds data, too; it is lost
        #[arg(long)]
        force: bool,
    },
    /// Save all metadata of the pool to a file; the pool must not be served
    Dump {
        /// The file; it must not exist
        file: PathBuf,
    },
    /// Put metadata saved by dump back; the pool must not be served
    Restore {
        /// The file
        file: PathBuf,
        /// Even if the pool may have changed since: what was written since may be lost, or mixed up
        /// with other volumes' data
        #[arg(long)]
        accept_rollback: bool,
    },
}

/// Carries out the command; its exit code.
///
/// # Errors
/// If it cannot be done.
pub(crate) fn run(command: PoolCommand, common: &Common) -> Result<u8, Failure> {
    let pool_file = &common.pool;
    match command {
        PoolCommand::Create { file, force } => {
            show_status(common, &create(file.as_ref().unwrap_or(pool_file), force)?);
        }
        PoolCommand::Status { accept, metrics: false } => {
            show_status(common, &pool::status_accepting(pool_file, &accept)?);
        }
        PoolCommand::Status { accept, metrics: true } => {
            let status = pool::status_accepting(pool_file, &accept)?;
            output::print_text(&status.metrics());
        }
        PoolCommand::Set { policy } => show_status(common, &set::policy(pool_file, &policy)?),
        PoolCommand::Check { repair } => {
            let outcome = check::check(pool_file, repair)?;
            show(common, &outcome.document(), |width| outcome.human(width));
            return Ok(outcome.exit_code());
        }
        PoolCommand::Replace { device, accept, force } => {
            show_status(common, &replace::replace(pool_file, &device, &accept, force)?);
        }
        PoolCommand::Dump { file } => {
            let done = dump::dump(pool_file, &file)?;
            show(common, &done.document(), |_| done.human());
        }
        PoolCommand::Restore { file, accept_rollback } => {
            let done = dump::restore(pool_file, &file, accept_rollback)?;
            show(common, &done.document(), |_| done.human());
        }
    }
    Ok(exit::SUCCESS)
}

fn show_status(common: &Common, status: &Status) {
    show(common, status, |width| status.human(width));
    for warning in status.warnings() {
        output::print_stderr(&format!("warning: {warning}"));
    }
}
