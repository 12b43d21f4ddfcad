//! The failures of opening a region, and their ways out.

use super::tiers::way_out;
use crate::failure::{Failure, REPORT_DEFECT};
use crate::pool::lock_holder;
use std::io::{self, ErrorKind as Os};
use std::path::Path;
use weir_fs::error::Error;
use weir_fs::fuse::{MountPoint, mounts};
use weir_fs::nvm::OpenError;
use weir_model::ErrorKind;

/// Returns the failure for a region that cannot be opened or created.
pub(super) fn open_failure(error: &OpenError) -> Failure {
    match error {
        OpenError::InUse(path) => in_use(path),
        OpenError::NotARegion(_) => {
            Failure::usage(error.to_string(), "name the file that weir fs create made")
        }
        OpenError::NotAFile(_) => Failure::usage(
            error.to_string(),
            "name a file; for persistent memory, one on a file system mounted with -o dax",
        ),
        OpenError::Os { what: "open", path, error } if error.kind() == Os::NotFound => Failure::usage(
            format!("there is no region {}", path.display()),
            format!("check the path, or create it: weir fs create {} --size SIZE", path.display()),
        ),
        OpenError::Os { what: "allocate", path, error } if error.kind() == Os::Unsupported => {
            let help = "its file system cannot allocate space ahead of writes; use ext4, XFS, Btrfs or tmpfs";
            Failure { help: help.to_owned(), ..Failure::os("allocate", path, error) }
        }
        OpenError::Os { what, path, error } => Failure::os(what, path, error),
    }
}

/// Returns the failure for a region whose file system cannot be read.
pub(super) fn content_failure(region: &Path, error: &Error) -> Failure {
    let path = region.display();
    let message = format!("region {path}: {error}");
    let (message, _) = message.split_once("; ").unwrap_or((&message, ""));
    match error {
        Error::NoFileSystem => {
            Failure::usage(message, "check the path; weir fs create makes a file system in a new file")
        }
        Error::UnknownFormat { version, known, .. } if version < known => Failure::refused(
            message,
            "copy its files to a new file system with the version of weir that made it",
        ),
        Error::UnknownFormat { .. } => {
            Failure::refused(message, "use the version of weir that made it, or a newer one")
        }
        Error::Truncated { size, .. } => Failure::new(
            ErrorKind::Corrupt,
            message,
            format!(
                "restore it from a backup; to read what is left, grow a copy of it (truncate -s {size}) and \
                 mount that with --read-only: what was cut off reads as zeros"
            ),
        ),
        Error::Damaged(_) => Failure::new(
            ErrorKind::Corrupt,
            message,
            "try weir fs check --repair on a copy of it, restore a backup, or copy what can be read from \
             weir fs mount --read-only; if no other program ever wrote or truncated it, please report it",
        ),
        Error::TierTable => Failure::new(
            ErrorKind::Corrupt,
            message,
            format!(
                "weir fs check {path} --repair --tier DIR writes it again; pass --tier for the directory of \
                 each tier, which has a file weir.tier; until then, files in the region can be read from \
                 weir fs mount --read-only"
            ),
        ),
        Error::Tier { path, reason, .. } => Failure::refused(message, way_out(path, reason)),
        Error::Io(_) | Error::Failed => {
            Failure::environment(message, "see the kernel's log (dmesg): the device below may fail")
        }
        _ => Failure::environment(message, REPORT_DEFECT),
    }
}

/// Returns the failure for a region that another process has open.
fn in_use(region: &Path) -> Failure {
    if let Some(mount) = mount_of(region) {
        let (region, directory) = (region.display(), mount.directory.display());
        return Failure::refused(
            format!("region {region} is mounted at {directory}"),
            format!("unmount it first: weir fs unmount {directory}"),
        );
    }
    let who = lock_holder(region).unwrap_or_else(|| "another process".to_owned());
    Failure::refused(
        format!("region {} is in use by {who}", region.display()),
        "wait until that process has ended, or stop it",
    )
}

/// Returns where a region is mounted.
pub(super) fn mount_of(region: &Path) -> Option<MountPoint> {
    let region = region.canonicalize().ok()?;
    mounts().ok()?.into_iter().rfind(|mount| mount.region == region)
}

/// Returns the failure for a user who may not change this of a mounted file system.
pub(super) fn not_administrator(mount: &Path, what: &'static str) -> Failure {
    let message = format!(
        "only root and the user who mounted the file system at {} may change its {what}",
        mount.display()
    );
    Failure::refused(message, "run the command as that user")
}

/// Returns the failure for a directory whose server was killed.
pub(super) fn dead_mount(directory: &Path) -> Failure {
    let directory = directory.display();
    Failure::refused(
        format!("the server of the file system at {directory} has ended without unmounting it"),
        format!("weir fs unmount {directory}, then mount it again"),
    )
}

/// Returns whether the server of a mount has ended without unmounting it.
pub(super) fn is_dead(error: &io::Error) -> bool {
    [rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
