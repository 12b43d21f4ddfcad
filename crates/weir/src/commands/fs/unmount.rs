//! `weir fs unmount` unmounts a file system and waits until its server has ended.

use super::status::ask;
use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use weir_fs::fuse::{MountPoint, UnmountError, mounts, unmount as unmount_directory};
use weir_fs::report::{self, Status};

/// Longest time to wait for the server: it makes everything durable before it ends.
const SERVER_TIMEOUT_SECONDS: i64 = 60;

/// The document of `weir fs unmount`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir fs unmount")]
pub struct UnmountDocument {
    /// The directory.
    directory: String,
    /// Path of the region.
    region: String,
    /// The server has ended: everything is durable, and the region can be used again. `false` only with
    /// `--lazy`, while programs use it.
    ended: bool,
}

impl UnmountDocument {
    /// Returns the result for people.
    pub(super) fn human(&self) -> String {
        let state = match self.ended {
            true => "everything is durable",
            false => "its server ends when no program uses it any more",
        };
        format!("unmounted {} from {}; {state}", self.region, self.directory)
    }
}

/// Unmounts a file system.
///
/// # Errors
/// Fails if none is mounted there, if it is in use and not `lazy`, or if its server does not end.
pub(super) fn unmount(directory: &Path, lazy: bool) -> Result<UnmountDocument, Failure> {
    let mount = find(directory)?;
    let server = server(&mount);
    unmount_directory(&mount.directory, lazy).map_err(|error| failure(&error))?;
    let ended = match server {
        Some(server) => wait(&server, if lazy { 1 } else { SERVER_TIMEOUT_SECONDS }),
        // It had ended before.
        None => true,
    };
    if !ended && !lazy {
        return Err(Failure::environment(
            format!(
                "the server of {} has not ended {SERVER_TIMEOUT_SECONDS} s after {} was unmounted",
                mount.region.display(),
                mount.directory.display()
            ),
            "it may still write to a slow device; it holds the region until then (weir fs status says so)",
        ));
    }
    let (directory, region) = (mount.directory.display().to_string(), mount.region.display().to_string());
    Ok(UnmountDocument { directory, region, ended })
}

/// Returns the mount at a directory. The directory itself is not followed: its server may have ended.
fn find(directory: &Path) -> Result<MountPoint, Failure> {
    let table = Path::new("/proc/self/mountinfo");
    let mounts = mounts().map_err(|error| Failure::os("read", table, &error))?;
    let wanted = canonical(directory).map_err(|error| Failure::os("find", directory, &error))?;
    mounts.iter().rfind(|mount| mount.directory == wanted).cloned().ok_or_else(|| {
        let all: Vec<_> = mounts.iter().map(|mount| mount.directory.display().to_string()).collect();
        let help = match all.as_slice() {
            [] => "no file system of weir is mounted".to_owned(),
            all => format!("mounted are {}", all.join(", ")),
        };
        Failure::usage(format!("no file system of weir is mounted at {}", directory.display()), help)
    })
}

fn canonical(directory: &Path) -> std::io::Result<PathBuf> {
    // Of a mount whose server has ended, only the directory above can be looked at.
    directory.canonicalize().or_else(|error| match (directory.parent(), directory.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => Err(error),
    })
}

/// Returns the process that serves a mount; `None` if it has ended.
fn server(mount: &MountPoint) -> Option<OwnedFd> {
    let status: Status = ask(&mount.directory, report::STATUS).ok()??;
    let pid = Pid::from_raw(status.mount?.pid.try_into().ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits for the end of a process; returns whether it came in time.
fn wait(process: &OwnedFd, seconds: i64) -> bool {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

fn failure(error: &UnmountError) -> Failure {
    let message = error.to_string();
    match error {
        UnmountError::Busy(directory) => Failure::refused(
            message,
            format!(
                "end the programs that use it (fuser -vm {} lists them), or pass --lazy",
                directory.display()
            ),
        ),
        UnmountError::NoHelper(_) => {
            Failure::environment(message, "install it (Debian package fuse3), or unmount as root")
        }
        UnmountError::Refused { .. } => {
            Failure::environment(message, "unmount as the user who mounted, or as root")
        }
    }
}
