//! `weir fs unmount` unmounts a file system and waits until its server has ended.

use super::failures::is_dead;
use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use schemars::JsonSchema;
use serde::Serialize;
use std::fs::File;
use std::io;
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
    /// The server has ended, and the region can be used again. `false` with `--lazy` while programs use the
    /// file system, and if the server does not answer this user.
    ended: bool,
    /// What the next mount finds.
    content: Content,
    /// There is a file at the region's path.
    #[serde(skip)]
    is_there: bool,
}

/// What the next mount of a file system finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Content {
    /// Every change: the server made all of them durable and ended.
    AllChanges,
    /// The last commit: the server had ended before, because it was killed or crashed, and later changes are
    /// lost.
    LastCommit,
    /// What this mount found: it was read-only.
    Unchanged,
    /// Not decided yet: the server has not ended. It makes every change durable when it does.
    Pending,
}

impl UnmountDocument {
    /// Returns the result for people.
    pub(super) fn human(&self) -> String {
        let state = match self.content {
            Content::AllChanges => "; everything is durable",
            Content::LastCommit => {
                "; its server had ended before: the next mount finds the last commit, and changes since then \
                 are lost"
            }
            Content::Unchanged if self.ended => "",
            Content::Unchanged | Content::Pending => "; its server ends when no program uses it any more",
        };
        let there = match self.is_there {
            true => "",
            false => "; there is no file at its path any more: if it was removed, what it had is lost",
        };
        format!("unmounted {} from {}{state}{there}", self.region, self.directory)
    }
}

/// Unmounts a file system.
///
/// # Errors
/// Fails if none is mounted there, if it is in use and not `lazy`, or if its server does not end.
pub(super) fn unmount(directory: &Path, lazy: bool) -> Result<UnmountDocument, Failure> {
    let mount = find(directory)?;
    let server = server(&mount);
    // Nobody learns how the server ends, so that what it does last is asked for first.
    let synced = match &server {
        Server::Runs(_) if !lazy && !mount.is_read_only => make_durable(&mount.directory),
        _ => Ok(()),
    };
    unmount_directory(&mount.directory, lazy).map_err(|error| failure(&error))?;
    let ended = match &server {
        Server::Runs(process) => wait(process, if lazy { 1 } else { SERVER_TIMEOUT_SECONDS }),
        Server::HadEnded => true,
        Server::Unknown => false,
    };
    if !ended && !lazy && matches!(server, Server::Runs(_)) {
        return Err(Failure::environment(
            format!(
                "the server of {} has not ended {SERVER_TIMEOUT_SECONDS} s after {} was unmounted",
                mount.region.display(),
                mount.directory.display()
            ),
            "it may still write to a slow device; it holds the region until then (weir fs status says so)",
        ));
    }
    if let Err(error) = synced {
        return Err(Failure::environment(
            format!("cannot make the last changes of {} durable: {error}", mount.region.display()),
            format!(
                "{} is unmounted; the next mount finds what was durable before; see the kernel's log \
                 (dmesg), then weir fs check",
                mount.directory.display()
            ),
        ));
    }
    let (directory, region) = (mount.directory.display().to_string(), mount.region.display().to_string());
    let content = match server {
        _ if mount.is_read_only => Content::Unchanged,
        Server::HadEnded => Content::LastCommit,
        Server::Runs(_) if ended => Content::AllChanges,
        Server::Runs(_) | Server::Unknown => Content::Pending,
    };
    let is_there = mount.region.exists();
    Ok(UnmountDocument { directory, region, ended, content, is_there })
}

/// Makes all changes durable, those that the kernel holds back included.
fn make_durable(directory: &Path) -> io::Result<()> {
    // Not even root may look into the mount of a user who does not share it.
    let Ok(root) = File::open(directory) else { return Ok(()) };
    rustix::fs::syncfs(&root)?;
    root.sync_all()
}

/// Returns the mount at a directory. The directory itself is not followed: its server may have ended.
fn find(directory: &Path) -> Result<MountPoint, Failure> {
    let table = Path::new("/proc/self/mountinfo");
    let mounts = mounts().map_err(|error| Failure::os("read", table, &error))?;
    let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let wanted = match canonical(directory) {
        Ok(_) if directory.symlink_metadata().is_err_and(|error| is_absent(&error)) => {
            Err(no_directory(directory))
        }
        Err(error) if is_absent(&error) => Err(no_directory(directory)),
        found => found.map_err(|error| Failure::os("find", directory, &error)),
    }?;
    mounts.iter().rfind(|mount| mount.directory == wanted).cloned().ok_or_else(|| {
        let all: Vec<_> = mounts.iter().map(|mount| mount.directory.display().to_string()).collect();
        let help = match all.as_slice() {
            [] => "check the path; findmnt lists everything that is mounted".to_owned(),
            all => format!("name one of the mounted ones: {}", all.join(", ")),
        };
        Failure::usage(format!("no file system of weir is mounted at {}", directory.display()), help)
    })
}

fn no_directory(directory: &Path) -> Failure {
    Failure::usage(
        format!("there is no directory {}", directory.display()),
        "check the path; findmnt lists everything that is mounted",
    )
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

/// The process that serves a mount.
#[derive(Debug)]
enum Server {
    /// It runs.
    Runs(OwnedFd),
    /// It ended without unmounting.
    HadEnded,
    /// It does not answer this user.
    Unknown,
}

/// Finds the process that serves a mount.
fn server(mount: &MountPoint) -> Server {
    let mut value = vec![0; report::BYTES_MAX];
    let len = match rustix::fs::getxattr(&mount.directory, report::STATUS, &mut value[..]) {
        Ok(len) => len,
        Err(error) if is_dead(&io::Error::from(error)) => return Server::HadEnded,
        Err(_) => return Server::Unknown,
    };
    let pid = || {
        let status: Status = serde_json::from_slice(&value[..len]).ok()?;
        Pid::from_raw(status.mount?.pid.try_into().ok()?)
    };
    match pid().map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Some(Ok(process)) => Server::Runs(process),
        // It was killed after it had answered.
        Some(Err(rustix::io::Errno::SRCH)) => Server::HadEnded,
        Some(Err(_)) | None => Server::Unknown,
    }
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
