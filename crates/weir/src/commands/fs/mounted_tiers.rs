//! `weir fs add-tier` and `remove-tier` of a mounted file system: its server does the work.

use super::blocked::{file_of, waits_for};
use super::failures::{dead_mount, is_dead, mount_of, not_administrator};
use super::status::{ask, status};
use super::tier_changes::{already_a_tier, no_space_elsewhere, unreadable, verify_space};
use super::tiers::{self, NewTier};
use crate::failure::Failure;
use crate::{output, progress};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_fs::report::{STATUS, Status, TierCommand, TierPart};
use weir_fs::tiers::{FoundTier, Tier, TierNumber, header};

/// How often the server is asked how far it is.
const PERIOD: Duration = Duration::from_millis(200);
/// How long space may take to become free after files were removed.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// Returns the directory at which a file system is mounted whose region or mount this is; `None` if it is not
/// mounted.
///
/// # Errors
/// Fails if the path is a directory, but not that of a mount; or if the server of the mount has ended.
pub(super) fn find(path: &Path) -> Result<Option<PathBuf>, Failure> {
    if path.is_dir() {
        return Ok(status(path)?.mount.map(|mount| PathBuf::from(mount.directory)));
    }
    let mount = mount_of(path).map(|mount| mount.directory);
    // A mount whose server has ended does not answer; the region can be opened then.
    Ok(mount.filter(|mount| matches!(ask::<Status>(mount, STATUS), Ok(Some(_)))))
}

/// Returns the failure of `remove-tier --lost`.
pub(super) fn unmount_first(mount: &Path) -> Failure {
    Failure::refused(
        format!("--lost: the file system is mounted at {}", mount.display()),
        format!("unmount it first: weir fs unmount {}", mount.display()),
    )
}

/// Asks the server to change the tiers.
fn send(mount: &Path, command: &TierCommand) -> Result<(), Errno> {
    let (attribute, value) = command.attribute();
    rustix::fs::setxattr(mount, attribute, &value, XattrFlags::empty())
}

/// Adds tiers; those among them that are leaving are kept.
///
/// # Errors
/// Fails if the server refuses one. Tiers before it on the command line were added.
pub(super) fn add(mount: &Path, named: &[NewTier]) -> Result<Status, Failure> {
    let new = tiers::directories(named)?;
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    for tier in &new {
        let Tier { class, path, .. } = tier;
        if device(path) == device(mount) {
            return Err(inside(path));
        }
        send(mount, &TierCommand::Add { class: *class, path: path.clone() })
            .map_err(|errno| not_added(mount, path, errno))?;
    }
    status(mount)
}

fn inside(path: &Path) -> Failure {
    Failure::usage(
        format!("directory {} is in the file system itself", path.display()),
        "name a directory of another file system",
    )
}

fn not_added(mount: &Path, path: &Path, errno: Errno) -> Failure {
    match errno {
        Errno::EXIST => already_a_tier(path, number_of(mount, path)),
        Errno::INVAL if FoundTier::at(path).is_err() => tiers::paths_too_long(),
        Errno::INVAL => inside(path),
        Errno::OPNOTSUPP => tiers::no_tier_table(mount),
        errno => refused(mount, "prepare", path, errno),
    }
}

/// Returns the tier of the mounted file system that a directory says to be.
fn number_of(mount: &Path, path: &Path) -> Option<TierNumber> {
    let (found, status) = (FoundTier::at(path).ok()?, status(mount).ok()?);
    let number = found.marker.number;
    let is_known = status.tiers.iter().any(|tier| tier.tier == number.0);
    (is_known && header::hex(&found.marker.region) == status.id).then_some(number)
}

/// Returns the failure for what both commands meet.
fn refused(mount: &Path, what: &'static str, path: &Path, errno: Errno) -> Failure {
    match errno {
        Errno::PERM | Errno::ACCESS if what == "remove" || errno == Errno::PERM => {
            not_administrator(mount, "tiers")
        }
        Errno::ROFS => read_only(mount),
        errno => match io::Error::from(errno) {
            error if is_dead(&error) => dead_mount(mount),
            error => Failure::os(what, path, &error),
        },
    }
}

pub(super) fn read_only(mount: &Path) -> Failure {
    Failure::refused(
        format!("the file system at {} is mounted read-only", mount.display()),
        "unmount it, and repeat the command; or mount it without --read-only",
    )
}

/// Rejects the removal of a tier as [`verify_space`] does. Files that were removed just before do not count:
/// the kernel tells the server later, and their space is free once that is durable.
///
/// # Errors
/// As [`verify_space`]; and if the file system cannot be synced.
fn verify_space_soon(mount: &Path, before: &Status, number: TierNumber) -> Result<(), Failure> {
    let mut verified = verify_space(before, number);
    let until = Instant::now() + SETTLING_TIME;
    while verified.is_err() && Instant::now() < until {
        let synced = File::open(mount).and_then(|root| root.sync_all());
        synced.map_err(|error| Failure::os("sync", mount, &error))?;
        std::thread::sleep(PERIOD);
        verified = verify_space(&status(mount)?, number);
    }
    verified
}

/// Has the server remove a tier, and waits until it is removed if `waits`.
///
/// # Errors
/// Fails if there is no tier in the directory, or if files in it cannot move. Then the tier is leaving,
/// unless that could be told before, and the server goes on as soon as it can.
pub(super) fn remove(mount: &Path, directory: &Path, waits: bool) -> Result<Status, Failure> {
    let before = status(mount)?;
    let path = tiers::resolved(directory).unwrap_or_else(|| directory.to_owned());
    let is_it = |tier: &&TierPart| [directory, &path].contains(&Path::new(&tier.path));
    let found = before.tiers.iter().find(is_it);
    if before.mount.as_ref().is_some_and(|mount| mount.read_only) {
        return Err(read_only(mount));
    }
    if let Some(tier) = found {
        verify_space_soon(mount, &before, TierNumber(tier.tier))?;
    }
    let path = found.map_or(path, |tier| PathBuf::from(&tier.path));
    send(mount, &TierCommand::Remove { path: path.clone() }).map_err(|errno| match errno {
        Errno::NOENT => {
            let paths = before.tiers.iter().map(|tier| tier.path.clone()).collect::<Vec<_>>();
            tiers::no_tier_at(directory, &paths)
        }
        errno => refused(mount, "remove", &path, errno),
    })?;
    match (found, waits) {
        (Some(tier), true) => wait(mount, &before.region, tier),
        _ => status(mount),
    }
}

/// Waits until a tier is removed; says what the server waits for.
fn wait(mount: &Path, region: &str, tier: &TierPart) -> Result<Status, Failure> {
    let mut said = None;
    progress::during("moving files to other tiers", || {
        loop {
            let now: Status = ask(mount, STATUS)?.ok_or_else(|| unmounted(mount, region, tier))?;
            if now.region != region {
                return Err(unmounted(mount, region, tier));
            }
            let is_it = |other: &&TierPart| (other.tier, &other.path) == (tier.tier, &tier.path);
            let Some(left) = now.tiers.iter().find(is_it) else { return Ok(now) };
            if !left.leaving {
                let message = format!("tier {} was kept: another command added it again", tier.path);
                return Err(Failure::refused(message, "repeat the command to remove it"));
            }
            if let Some(blocked) = &left.blocked {
                let file = file_of(blocked);
                match blocked.reason.as_str() {
                    "no_space" => return Err(no_space_elsewhere(Path::new(&tier.path), mount, &file)),
                    "unreadable" => return Err(unreadable(Path::new(&tier.path), &file)),
                    _ => {}
                }
                if said.as_ref() != Some(blocked) {
                    output::print_stderr(&format!("waiting for {}", waits_for(blocked)));
                    said = Some(blocked.clone());
                }
            }
            std::thread::sleep(PERIOD);
        }
    })
}

fn unmounted(mount: &Path, region: &str, tier: &TierPart) -> Failure {
    Failure::environment(
        format!("the file system was unmounted from {} while files moved", mount.display()),
        format!("the next mount goes on; or now: weir fs remove-tier {region} {}", tier.path),
    )
}
