//! `weir fs` creates, mounts, checks and shows file systems, each in one region.

mod check;
mod create;
mod explain;
mod failures;
pub mod helper;
mod mount;
mod status;
mod unmount;
mod unprivileged;

pub use check::CheckDocument;
pub use mount::{MountArgs, MountDocument};
pub use unmount::UnmountDocument;

use super::show;
use crate::args::{Common, size};
use crate::exit;
use crate::failure::Failure;
use clap::Subcommand;
use std::path::PathBuf;
use weir_model::Bytes;

const CREATE_EXAMPLES: &str = "Examples:
  weir fs create region --size 4GiB
  weir fs create /mnt/pmem/region --size 100GiB";

const UNMOUNT_EXAMPLES: &str = "Examples:
  weir fs unmount files";

const CHECK_CODES: &str = "Exit codes, as fsck's:
  0   the file system is clean
  1   it was damaged and has been repaired
  4   it is damaged
  8   it could not be checked
  16  the command line is wrong
  32  a signal ended the check

Examples:
  weir fs check region
  weir fs check region --repair";

const STATUS_EXAMPLES: &str = "Examples:
  weir fs status files
  weir fs status region --json";

const EXPLAIN_EXAMPLES: &str = "Examples:
  weir fs explain files/video.mkv
  weir fs explain files/notes.txt --json";

/// `weir fs ...`
#[derive(Debug, Subcommand)]
pub enum FsCommand {
    /// Create a file system in a new file, its region
    ///
    /// All space is allocated at once, so that the file system never finds the disk full. On a DAX file
    /// system over persistent memory, stores become durable by cache flushes, elsewhere by fdatasync.
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// File to create
        region: PathBuf,
        /// Set the size of the region: 4GiB or 4G, or decimal, 500GB
        #[arg(long, value_parser = size, allow_hyphen_values = true)]
        size: Bytes,
        /// Overwrite a file that exists; what is in it is lost
        #[arg(long)]
        force: bool,
    },
    /// Mount a file system at an empty directory
    Mount(MountArgs),
    /// Unmount a file system, and wait until its server has ended
    #[command(after_help = UNMOUNT_EXAMPLES)]
    Unmount {
        /// Directory that it is mounted at
        directory: PathBuf,
        /// Detach it although programs use it; its server ends when they no longer do
        #[arg(long)]
        lazy: bool,
    },
    /// Verify all metadata of a file system that is not mounted
    #[command(after_help = CHECK_CODES)]
    Check {
        /// Region of the file system
        region: PathBuf,
        /// Repair what takes no guessing; files without a name go to lost+found
        #[arg(long)]
        repair: bool,
    },
    /// Show a file system's space, files and wear
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// Directory that it is mounted at, or its region
        path: PathBuf,
    },
    /// Show where a file's bytes are in the region, and why
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain {
        /// File in a mounted file system
        file: PathBuf,
    },
}

/// Runs the command and returns its exit code.
///
/// # Errors
/// Fails if the command cannot be carried out.
pub(crate) fn run(command: FsCommand, common: &Common) -> Result<u8, Failure> {
    match command {
        FsCommand::Create { region, size, force } => {
            let status = create::create(&region, size, force)?;
            show(common, &status, |width| status::human(&status, width));
        }
        FsCommand::Mount(args) => mount::run(&args, common)?,
        FsCommand::Unmount { directory, lazy } => {
            let done = unmount::unmount(&directory, lazy)?;
            show(common, &done, |_| done.human());
        }
        FsCommand::Check { region, repair } => {
            let document = check::check(&region, repair)?;
            show(common, &document, |_| document.human());
            return Ok(document.exit_code());
        }
        FsCommand::Status { path } => {
            let status = status::status(&path)?;
            show(common, &status, |width| status::human(&status, width));
        }
        FsCommand::Explain { file } => {
            let explained = explain::explain(&file)?;
            show(common, &explained, |width| explain::human(&explained, width));
        }
    }
    Ok(exit::SUCCESS)
}
