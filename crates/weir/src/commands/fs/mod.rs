//! `weir fs` creates, mounts, checks and shows file systems, each in one region.

mod blocked;
mod check;
mod create;
mod explain;
mod failures;
pub mod helper;
mod mount;
mod mounted_tiers;
mod moves;
mod quota;
mod region;
mod rescue;
mod status;
mod tier_changes;
mod tiers;
mod unmount;
mod unprivileged;

pub use check::CheckDocument;
pub use mount::{MountArgs, MountDocument};
pub use moves::MoveDocument;
pub use quota::QuotaArgs;
pub use rescue::RescueDocument;
pub use unmount::UnmountDocument;

use super::show;
use crate::args::{Common, size};
use crate::exit;
use crate::failure::Failure;
use clap::{ArgGroup, Subcommand};
use std::path::Path;
use std::path::PathBuf;
use weir_fs::report::{Command, Status};
use weir_model::Bytes;

const CREATE_EXAMPLES: &str = "Examples:
  weir fs create region --size 4GiB
  weir fs create /mnt/pmem/region --size 100GiB
  weir fs create region --size 4GiB --flash /mnt/ssd/weir --disk /mnt/hdd/weir";

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
  weir fs check region --repair
  weir fs check region --repair --tier /mnt/ssd/weir --tier /mnt/hdd/weir";

const STATUS_EXAMPLES: &str = "Examples:
  weir fs status files
  weir fs status region --json";

const EXPLAIN_EXAMPLES: &str = "Examples:
  weir fs explain files/video.mkv
  weir fs explain files/notes.txt --json";

const EVICT_EXAMPLES: &str = "Examples:
  weir fs evict files/video.mkv";

const PROMOTE_EXAMPLES: &str = "Examples:
  weir fs promote files/index.db";

const PIN_EXAMPLES: &str = "Examples:
  weir fs pin files/index.db";

const UNPIN_EXAMPLES: &str = "Examples:
  weir fs unpin files/index.db";

const ADD_TIER_EXAMPLES: &str = "Examples:
  weir fs add-tier region --disk /mnt/hdd2/weir
  weir fs add-tier files --flash /mnt/ssd/weir";

const MOVE_TIER_EXAMPLES: &str = "Examples:
  weir fs move-tier region /mnt/new/weir";

const REMOVE_TIER_EXAMPLES: &str = "Examples:
  weir fs remove-tier region /mnt/hdd/weir
  weir fs remove-tier files /mnt/hdd/weir --no-wait
  weir fs remove-tier region /mnt/hdd/weir --lost --accept-loss";

const RESCUE_EXAMPLES: &str = "Examples:
  weir fs rescue /mnt/ssd/weir /mnt/hdd/weir --to restored";

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
        /// Evict files to this directory on flash; repeat it for more
        #[arg(long, value_name = "DIR")]
        flash: Vec<PathBuf>,
        /// Evict files to this directory on disks; repeat it for more
        #[arg(long, value_name = "DIR")]
        disk: Vec<PathBuf>,
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
        /// Write a damaged tier table again: name the directory of each tier
        #[arg(long, value_name = "DIR", requires = "repair")]
        tier: Vec<PathBuf>,
    },
    /// Show a file system's space, files and wear
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// Directory that it is mounted at, or its region
        path: PathBuf,
    },
    /// Show where a file's bytes are, and why
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain {
        /// File in a mounted file system
        file: PathBuf,
    },
    /// Move a file from the region to a tier
    #[command(after_help = EVICT_EXAMPLES)]
    Evict {
        /// File in a mounted file system
        file: PathBuf,
    },
    /// Move a file from a tier to the region
    #[command(after_help = PROMOTE_EXAMPLES)]
    Promote {
        /// File in a mounted file system
        file: PathBuf,
    },
    /// Keep a file in the region; it is promoted if it is in a tier
    #[command(after_help = PIN_EXAMPLES)]
    Pin {
        /// File in a mounted file system
        file: PathBuf,
    },
    /// Let a pinned file be evicted again
    #[command(after_help = UNPIN_EXAMPLES)]
    Unpin {
        /// File in a mounted file system
        file: PathBuf,
    },
    /// Add tiers to a file system, mounted or not
    ///
    /// A directory that is being removed is kept.
    #[command(after_help = ADD_TIER_EXAMPLES)]
    #[command(group(ArgGroup::new("directories").required(true).multiple(true)))]
    AddTier {
        /// Region of the file system, or the directory that it is mounted at
        #[arg(value_name = "PATH")]
        region: PathBuf,
        /// Evict files to this directory on flash, too; repeat it for more
        #[arg(long, value_name = "DIR", group = "directories")]
        flash: Vec<PathBuf>,
        /// Evict files to this directory on disks, too; repeat it for more
        #[arg(long, value_name = "DIR", group = "directories")]
        disk: Vec<PathBuf>,
    },
    /// Note that the directories of tiers are at other paths, while the file system is not mounted
    #[command(after_help = MOVE_TIER_EXAMPLES)]
    MoveTier {
        /// Region of the file system
        region: PathBuf,
        /// Directories at their new paths
        #[arg(required = true, value_name = "DIR")]
        directories: Vec<PathBuf>,
    },
    /// Remove a tier from a file system, mounted or not; its files move elsewhere
    ///
    /// They move to the other tiers, or to the region if these are full. After a crash, or where space was
    /// missing, the command goes on where it was; so does the next mount.
    #[command(after_help = REMOVE_TIER_EXAMPLES)]
    RemoveTier {
        /// Region of the file system, or the directory that it is mounted at
        #[arg(value_name = "PATH")]
        region: PathBuf,
        /// Directory of the tier
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Return at once if the file system is mounted; its server moves the files in the background
        #[arg(long, conflicts_with = "lost")]
        no_wait: bool,
        /// Remove a tier whose directory is gone for good, while the file system is not mounted
        #[arg(long)]
        lost: bool,
        /// Accept that the files in the lost tier lose their data; they stay, and reading them fails
        #[arg(long, requires = "lost")]
        accept_loss: bool,
    },
    /// Show what users and groups have and may have, or set their limits
    Quota(QuotaArgs),
    /// Restore files from the directories of tiers alone, after the region was lost
    ///
    /// Names, permissions, owners and times are those that the containers have. Only files that had been
    /// evicted are there. Nothing that exists is replaced.
    #[command(after_help = RESCUE_EXAMPLES)]
    Rescue {
        /// Directories of tiers
        #[arg(required = true, value_name = "DIR")]
        directories: Vec<PathBuf>,
        /// Directory to restore to; it is created if it does not exist
        #[arg(long, value_name = "TARGET")]
        to: PathBuf,
    },
}

/// Runs the command and returns its exit code.
///
/// # Errors
/// Fails if the command cannot be carried out.
pub(crate) fn run(command: FsCommand, common: &Common) -> Result<u8, Failure> {
    match command {
        FsCommand::Create { region, size, flash, disk, force } => {
            show_status(common, &create::create(&region, size, force, &tiers::named(flash, disk))?);
        }
        FsCommand::Mount(args) => mount::run(&args, common)?,
        FsCommand::Unmount { directory, lazy } => {
            let done = unmount::unmount(&directory, lazy)?;
            show(common, &done, |_| done.human());
        }
        FsCommand::Check { region, repair, tier } => {
            let document = check::check(&region, repair, &tier)?;
            show(common, &document, |_| document.human());
            return Ok(document.exit_code());
        }
        FsCommand::Status { path } => {
            show_status(common, &status::status(&path)?);
        }
        FsCommand::Explain { file } => {
            let explained = explain::explain(&file)?;
            show(common, &explained, |width| explain::human(&explained, width));
        }
        FsCommand::Evict { file } => show_move(common, &file, Command::Evict)?,
        FsCommand::Promote { file } => show_move(common, &file, Command::Promote)?,
        FsCommand::Pin { file } => show_move(common, &file, Command::Pin)?,
        FsCommand::Unpin { file } => show_move(common, &file, Command::Unpin)?,
        FsCommand::AddTier { region, flash, disk } => {
            let named = tiers::named(flash, disk);
            let status = match mounted_tiers::find(&region)? {
                Some(mount) => mounted_tiers::add(&mount, &named)?,
                None => tier_changes::add(&region, &named)?,
            };
            show_status(common, &status);
        }
        FsCommand::MoveTier { region, directories } => {
            show_status(common, &tier_changes::set_paths(&region, &directories)?);
        }
        FsCommand::RemoveTier { region, directory, lost: true, accept_loss, .. } => {
            if let Some(mount) = mounted_tiers::find(&region)? {
                return Err(mounted_tiers::unmount_first(&mount));
            }
            show_status(common, &tier_changes::remove_lost(&region, &directory, accept_loss)?);
        }
        FsCommand::RemoveTier { region, directory, no_wait, .. } => {
            let status = match mounted_tiers::find(&region)? {
                Some(mount) => mounted_tiers::remove(&mount, &directory, !no_wait)?,
                None => tier_changes::remove(&region, &directory)?,
            };
            show_status(common, &status);
        }
        FsCommand::Quota(args) => {
            let quota = quota::run(&args)?;
            show(common, &quota, |width| quota::human(&quota, width));
        }
        FsCommand::Rescue { directories, to } => {
            let document = rescue::rescue(&directories, &to)?;
            show(common, &document, |_| document.human());
        }
    }
    Ok(exit::SUCCESS)
}

fn show_status(common: &Common, status: &Status) {
    show(common, status, |width| status::human(status, width));
}

fn show_move(common: &Common, file: &Path, command: Command) -> Result<(), Failure> {
    let document = moves::run(file, command)?;
    show(common, &document, |_| document.human());
    Ok(())
}
