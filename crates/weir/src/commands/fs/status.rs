//! `weir fs status` shows a file system's space, files and wear.

use super::blocked::waits_for;
use super::failures::{content_failure, dead_mount, is_dead, mount_of, open_failure};
use super::region::durability;
use super::tiers;
use crate::failure::Failure;
use crate::output::{Width, table};
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;
use weir_fs::error::Error;
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Mapped;
use weir_fs::report::{self, LimitsPart, Mount, Status, TierPart};
use weir_model::Bytes;

/// Returns the state of the file system that is mounted at a directory, or that a region holds.
///
/// # Errors
/// Fails if there is no file system, or if it cannot be read.
pub(super) fn status(path: &Path) -> Result<Status, Failure> {
    let found = path.metadata().map_err(|error| match error.kind() {
        _ if is_dead(&error) => dead_mount(path),
        io::ErrorKind::NotFound => Failure::usage(
            format!("there is no region or directory {}", path.display()),
            "check the path; findmnt --types fuse,fuse.weir lists mounts",
        ),
        _ => Failure::os("find", path, &error),
    })?;
    if !found.is_dir() {
        return of_region(path);
    }
    ask(path, report::STATUS)?.ok_or_else(|| {
        Failure::usage(
            format!("no file system of weir is mounted at {}", path.display()),
            "name the directory of a mount, or a region; findmnt --types fuse,fuse.weir lists mounts",
        )
    })
}

/// Returns the state of the file system in a region, mounted or not.
pub(super) fn of_region(region: &Path) -> Result<Status, Failure> {
    // A mount whose server has ended does not answer; the region can be opened then.
    if let Some(mount) = mount_of(region)
        && let Ok(Some(status)) = ask(&mount.directory, report::STATUS)
    {
        return Ok(status);
    }
    let memory = Mapped::open(region, false).map_err(|error| open_failure(&error))?;
    let durability = durability(&memory);
    let fs = FileSystem::open_read_only_with(memory, tiers::leniently)
        .map_err(|error| content_failure(region, &error))?;
    if fs.has_damaged_tier_table() {
        return Err(content_failure(region, &Error::TierTable));
    }
    let region = region.canonicalize().map_err(|error| Failure::os("find", region, &error))?;
    Ok(Status::of(&fs, &region, durability, None))
}

/// Asks the server of the mount that a file is in; `None` if the file is in no mount of weir.
///
/// # Errors
/// Fails if there is no such file, or if the server has ended.
pub(super) fn ask<T: DeserializeOwned>(path: &Path, attribute: &str) -> Result<Option<T>, Failure> {
    let mut value = vec![0; report::BYTES_MAX];
    match rustix::fs::getxattr(path, attribute, &mut value[..]) {
        // Another file system may keep an attribute of this name, but not with this content.
        Ok(len) => Ok(serde_json::from_slice(&value[..len]).ok()),
        Err(error) => match io::Error::from(error) {
            error if is_dead(&error) => Err(dead_mount(path)),
            error if [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied].contains(&error.kind()) => {
                Err(Failure::os("read", path, &error))
            }
            _ => Ok(None),
        },
    }
}

/// Returns the state for people.
pub(super) fn human(status: &Status, width: Width) -> String {
    let place = status.mount.as_ref().map_or("not mounted".to_owned(), |mount| {
        let access = if mount.read_only { ", read-only" } else { "" };
        format!("mounted at {} by process {}{access}", mount.directory, mount.pid)
    });
    let durable = match status.durability.as_str() {
        "each_operation" => "changes of names are durable at once, data after fsync",
        _ => "changes are durable after fsync, or within the mount's interval",
    };
    let size = |bytes: u64| Bytes(bytes).to_string();
    let row = [
        size(status.region_bytes),
        size(status.usable_bytes),
        size(status.used_bytes),
        size(status.free_bytes),
        status.files.to_string(),
        status.null_files.to_string(),
        format!("{} to {}", status.wear_least, status.wear_most),
    ];
    let heading = ["SIZE", "USABLE", "USED", "FREE", "FILES", "NULL FILES", "WEAR"];
    let mut text = format!(
        "file system in {} ({}), format {}\n{place}; {durable}\n\n{}",
        status.region,
        status.id,
        status.format_version,
        table(width, heading, [row])
    );
    if let Some(mount) = status.mount.as_ref().filter(|_| !status.tiers.is_empty()) {
        text += &format!("\n{}\n", passthrough(mount));
    }
    if !status.tiers.is_empty() {
        text += &format!("\n{}", tier_table(status, width));
    }
    if let Some(limits) = &status.limits {
        text += &format!("\n{}\n", limits_summary(limits));
    }
    match status.pinned_files {
        0 => {}
        1 => text += &format!("\n1 file of {} is pinned to the region\n", size(status.pinned_bytes)),
        files => {
            text += &format!("\n{files} files of {} are pinned to the region\n", size(status.pinned_bytes));
        }
    }
    if status.lost_files > 0 {
        text += &format!(
            "\nLOST: the data of {} files was lost with a tier. Reading them fails; restore them from a \
             backup, or remove them (weir fs explain FILE tells which)\n",
            status.lost_files
        );
    }
    if status.mount.as_ref().is_some_and(|mount| mount.failed) {
        text += "\nFAILED: a flush of the region, or of a tier, failed; nothing can be changed any more, and \
                 the last changes may be lost. Unmount it, see the kernel's log (dmesg), and check it\n";
    }
    text
}

/// Returns how many users and groups have limits.
fn limits_summary(limits: &LimitsPart) -> String {
    let LimitsPart { owners, at_limit, state } = limits;
    let state = match state.as_str() {
        "counting" => "not enforced before usage is counted",
        "not_mounted" => "enforced once it is mounted",
        _ => "enforced",
    };
    let owners = match owners {
        1 => "1 user or group".to_owned(),
        owners => format!("{owners} users and groups"),
    };
    format!("limits of {owners}, {state}; {at_limit} at the limit (weir fs quota)")
}

/// Returns who reads and writes files in tiers.
fn passthrough(mount: &Mount) -> String {
    let files = match mount.passthrough_files {
        0 => "none now".to_owned(),
        1 => "1 file now".to_owned(),
        files => format!("{files} files now"),
    };
    match (mount.passthrough, &mount.passthrough_problem) {
        (true, None) => format!("open files in tiers bypass the server (passthrough): {files}"),
        (true, Some(problem)) => {
            format!("open files in tiers bypass the server (passthrough), but not all: {problem}; {files}")
        }
        (false, problem) => {
            format!("files in tiers are without passthrough: {}", problem.as_deref().unwrap_or("unknown"))
        }
    }
}

/// Returns the tiers for people, with the way out for those that cannot be used.
fn tier_table(status: &Status, width: Width) -> String {
    let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| Bytes(bytes).to_string());
    let row = |tier: &TierPart| {
        [
            tier.tier.to_string(),
            tier.class.clone(),
            tier.path.clone(),
            tier.files.to_string(),
            size(Some(tier.used_bytes)),
            size(tier.free_bytes),
            if is_leaving(tier) { "leaving".to_owned() } else { tier.state.replace('_', "-") },
        ]
    };
    let heading = ["TIER", "CLASS", "DIRECTORY", "FILES", "USED", "FREE", "STATE"];
    let mut text = table(width, heading, status.tiers.iter().map(row));
    let is_mounted = status.mount.as_ref().is_some_and(|mount| !mount.read_only);
    for tier in &status.tiers {
        let path = &tier.path;
        match (tier.state.as_str(), &tier.problem) {
            ("gone", Some(problem)) => {
                text += &format!(
                    "\nGONE: {path}: {problem}. Its files cannot be read until the directory is there, and \
                     used by nothing else; at another path: weir fs move-tier; lost: weir fs remove-tier \
                     --lost\n"
                );
            }
            ("read_only", _) => {
                text += &format!(
                    "\nREAD-ONLY: {path}: nothing is evicted to it, and its files cannot be changed, \
                     until its file system is writable again\n"
                );
            }
            _ if tier.leaving && is_mounted => {
                let waits =
                    tier.blocked.as_ref().map(|blocked| format!("; it waits for {}", waits_for(blocked)));
                text += &format!(
                    "\nLEAVING: {path}: the server moves its files elsewhere and removes it{}. weir fs \
                     add-tier keeps it\n",
                    waits.unwrap_or_default()
                );
            }
            _ if tier.leaving => {
                text += &format!(
                    "\nLEAVING: {path}: no file goes to it. The next mount, or weir fs remove-tier, moves \
                     its files elsewhere and removes it; weir fs add-tier keeps it\n"
                );
            }
            _ => {}
        }
    }
    text
}

fn is_leaving(tier: &TierPart) -> bool {
    tier.leaving && tier.state != "gone"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::testing::{LONG_NAME, assert_fits};
    use weir_fs::report::BlockedPart;

    fn sample() -> Status {
        Status {
            region: "/srv/region".to_owned(),
            id: "ab".repeat(16),
            format_version: 1,
            mount: None,
            durability: "sync".to_owned(),
            region_bytes: 4 << 30,
            chunk_bytes: 2 << 20,
            usable_bytes: 4 << 30,
            used_bytes: 1 << 20,
            free_bytes: 3 << 30,
            files: 12,
            files_free: 1000,
            null_files: 0,
            null_file_bytes: 0,
            wear_least: 0,
            wear_most: 7,
            tiers: vec![gone()],
            lost_files: 3,
            pinned_files: 1,
            pinned_bytes: 5 << 20,
            limits: None,
        }
    }

    fn gone() -> TierPart {
        TierPart {
            tier: 0,
            class: "disk".to_owned(),
            path: "/mnt/disk/weir".to_owned(),
            state: "gone".to_owned(),
            problem: Some("the directory is not there".to_owned()),
            leaving: false,
            blocked: None,
            files: 3,
            used_bytes: 1 << 20,
            total_bytes: None,
            free_bytes: None,
        }
    }

    #[test]
    fn status_is_formatted() {
        let mut status = sample();
        status.limits = Some(LimitsPart { owners: 3, at_limit: 1, state: "not_mounted".to_owned() });
        let text = human(&status, Width::UNLIMITED);
        for part in [
            "limits of 3 users and groups, enforced once it is mounted; 1 at the limit",
            "not mounted",
            "/srv/region",
            "4 GiB",
            "0 to 7",
            "after fsync",
            "GONE: /mnt/disk/weir",
            "1 file of 5 MiB is pinned",
            "LOST: the data of 3 files",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        status.tiers.push(TierPart { state: "ready".to_owned(), leaving: true, ..gone() });
        assert!(human(&status, Width::UNLIMITED).contains("LEAVING: /mnt/disk/weir: no file goes to it"));
        status.mount = Some(Mount {
            directory: "/mnt".to_owned(),
            pid: 812,
            read_only: true,
            commits: 3,
            failed: true,
            passthrough: true,
            passthrough_files: 2,
            passthrough_problem: None,
            omega: 4096.0,
        });
        let text = human(&status, Width::UNLIMITED);
        for part in ["mounted at /mnt by process 812, read-only", "FAILED", "(passthrough): 2 files"] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        if let Some(mount) = &mut status.mount {
            (mount.passthrough, mount.passthrough_problem) = (false, Some("a reason".to_owned()));
            mount.read_only = false;
        }
        let blocked = |reason: &str, files| BlockedPart {
            reason: reason.to_owned(),
            files,
            path: "a/b".to_owned(),
            inode: 7,
        };
        for (blocked, part) in [
            (blocked("in_use", 1), "it waits for programs to close and unmap \"a/b\" (inode 7)."),
            (blocked("changing", 2), "to stop changing 2 files, one of them \"a/b\" (inode 7)."),
            (blocked("no_space", 1), "waits for space elsewhere for"),
            (blocked("unreadable", 1), "which cannot be read."),
        ] {
            status.tiers[1].blocked = Some(blocked);
            let text = human(&status, Width::UNLIMITED);
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(human(&status, Width::UNLIMITED).contains("without passthrough: a reason"));
    }

    #[test]
    fn status_fits_the_terminal() {
        let status = Status { region: LONG_NAME.to_owned(), ..sample() };
        assert_fits(|width| width.fold(&human(&status, width)));
    }
}
