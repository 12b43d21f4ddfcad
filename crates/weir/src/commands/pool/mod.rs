//! `weir pool` creates, shows, checks, repairs and saves a pool.

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

const CREATE_EXAMPLES: &str = "Examples:
  weir pool create pool.toml
  weir --pool pool.toml pool create --force";

const STATUS_EXAMPLES: &str = "Examples:
  weir pool status
  weir pool status --json
  weir pool status --without slow";

const CHECK_CODES: &str = "Exit codes, as fsck's:
  0   the pool is clean
  1   damage was found, and is repaired
  4   damage is left
  8   the pool could not be checked, or not all of it
  16  the command line or the pool file is wrong
  32  a signal ended the check

Examples:
  weir pool check
  weir pool check --repair";

/// `weir pool ...`
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Create the pool that the pool file describes, on blank devices
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// Pool file, instead of --pool
        file: Option<PathBuf>,
        /// Overwrite devices that hold data; the data is lost
        #[arg(long)]
        force: bool,
    },
    /// Show the pool, its devices and its volumes
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// For a pool with absent devices.
        #[command(flatten)]
        accept: Accept,
        /// Print metrics in the OpenMetrics text format
        #[arg(long, conflicts_with = "json")]
        metrics: bool,
    },
    /// Change a served pool's settings until its server ends
    Set {
        /// Place data by this policy, as tuned in the pool file (weir help policies)
        #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(policies()))]
        policy: String,
    },
    /// Verify all metadata of a pool that is not served
    #[command(after_help = CHECK_CODES)]
    Check {
        /// Repair damage where the repair needs no guessing
        #[arg(long)]
        repair: bool,
    },
    /// Replace a lost device with a blank one, in a pool that is not served
    ///
    /// The pool file names the new device: correct its path there first. Volumes with two copies lose nothing;
    /// the server makes their second copies anew. The command is refused while the lost device alone holds
    /// data: bring it back, or give that data up first.
    Replace {
        /// Name of the device in the pool file
        device: String,
        /// For a pool with absent devices.
        #[command(flatten)]
        accept: Accept,
        /// Overwrite a device that holds data; the data is lost
        #[arg(long)]
        force: bool,
    },
    /// Save all metadata of a pool that is not served to a file
    Dump {
        /// File to write; it must not exist
        file: PathBuf,
    },
    /// Restore metadata saved by `weir pool dump`, to a pool that is not served
    Restore {
        /// File that `weir pool dump` wrote
        file: PathBuf,
        /// Restore although the pool may have changed since; data written since may be lost, or mixed up with
        /// other volumes' data
        #[arg(long)]
        accept_rollback: bool,
    },
}

/// Runs the command and returns its exit code.
///
/// # Errors
/// Fails if the command cannot be carried out.
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
