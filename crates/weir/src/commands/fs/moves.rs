//! `weir fs evict`, `promote`, `pin` and `unpin` ask the server of a mount to move a file.

use super::explain::explain;
use super::failures::{dead_mount, is_dead};
use crate::failure::Failure;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;
use std::io;
use std::path::Path;
use weir_fs::report::Command;

/// The document of `weir fs evict`, `promote`, `pin` and `unpin`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir fs evict, promote, pin, unpin")]
pub struct MoveDocument {
    /// Path of the file.
    file: String,
    /// The file is in a container of this number in this tier; `null` if it is in the region.
    container: Option<weir_fs::report::ContainerPart>,
    /// It stays in the region.
    pinned: bool,
}

/// Runs the command on a file of a mounted file system.
///
/// # Errors
/// Fails if there is no such file, if it is in no mount of weir, or if the server refuses.
pub(super) fn run(file: &Path, command: Command) -> Result<MoveDocument, Failure> {
    // A file elsewhere could keep an attribute of this name.
    explain(file)?;
    rustix::fs::setxattr(file, command.attribute(), b"", XattrFlags::empty())
        .map_err(|errno| failure(file, command, errno))?;
    let explained = explain(file)?;
    Ok(MoveDocument {
        file: file.display().to_string(),
        container: explained.container,
        pinned: explained.pinned,
    })
}

fn failure(file: &Path, command: Command, errno: Errno) -> Failure {
    let (path, verb) = (file.display(), command.verb());
    let message = |why: &str| format!("cannot {verb} {path}: {why}");
    match errno {
        Errno::PERM if command == Command::Evict => Failure::refused(
            message("it is pinned to the region"),
            format!("weir fs unpin {path}, then evict it"),
        ),
        Errno::BUSY => {
            Failure::refused(message("programs change it all the time"), "try again when it is at rest")
        }
        Errno::TXTBSY => Failure::refused(
            message("programs have it open, or mapped"),
            "end them, and try again; or mount with --passthrough off",
        ),
        Errno::NXIO => Failure::refused(
            message("the file system has no tiers below the region"),
            "weir fs add-tier adds one, also while the file system is mounted",
        ),
        Errno::ROFS => {
            Failure::refused(message("its file system is mounted read-only"), "mount it without --read-only")
        }
        Errno::NOSPC if command == Command::Evict => Failure::environment(
            message("no tier has space for it, or all of them are read-only or gone"),
            "weir fs status shows the tiers",
        ),
        Errno::NOSPC => Failure::environment(
            message("the region has no space for it"),
            "evict or remove other files; weir fs status shows the space",
        ),
        Errno::FBIG => Failure::refused(
            message("it is too large for the region"),
            "files of up to a quarter of the region return to it; a larger one stays there if it is pinned \
             while it is empty: create a new file, pin it, and copy the contents into it",
        ),
        Errno::ISDIR | Errno::INVAL => Failure::usage(
            message("it is not a regular file"),
            "name a regular file; others stay in the region",
        ),
        errno => match io::Error::from(errno) {
            error if is_dead(&error) => dead_mount(file),
            error => Failure::os(verb, file, &error),
        },
    }
}

impl MoveDocument {
    /// Returns the result for people.
    pub(super) fn human(&self) -> String {
        let place = match &self.container {
            Some(container) => {
                format!("in tier {} ({}): {}", container.tier, container.class, container.path)
            }
            None => "in the region".to_owned(),
        };
        let pinned = if self.pinned { ", pinned" } else { "" };
        format!("{} is {place}{pinned}", self.file)
    }
}
