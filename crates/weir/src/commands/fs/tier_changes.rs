//! `weir fs add-tier`, `move-tier` and `remove-tier` change the tiers of a file system that is not mounted.

use super::failures::{content_failure, open_failure};
use super::tiers::{self, NewTier};
use crate::failure::Failure;
use crate::progress;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use weir_fs::error::Error;
use weir_fs::layout::Ino;
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Mapped;
use weir_fs::report::Status;
use weir_fs::tiers::{ContainerFiles, FoundTier, Role, Tier, TierNumber, TierState, allocated_bytes};
use weir_model::Bytes;

type Fs = FileSystem<Mapped>;

/// Opens the file system in a region to change it; tiers may be missing if `may_lack`.
fn open(region: &Path, may_lack: bool) -> Result<Fs, Failure> {
    let memory = Mapped::open(region, true).map_err(|error| open_failure(&error))?;
    let durability = super::region::durability(&memory);
    let fs = FileSystem::open_with(memory, durability, |superblock, found| {
        tiers::open(superblock, found, true, |_| may_lack)
    });
    fs.map_err(|error| content_failure(region, &error))
}

/// Returns the tier that a directory says to be, if the file system has it.
fn known(fs: &Fs, found: &FoundTier) -> Option<TierNumber> {
    let number = found.marker.number;
    let tier = fs.tiers().get(number.0 as usize).filter(|tier| !tier.is_removed())?;
    (found.marker.region == fs.superblock().uuid && tier.uuid == found.marker.tier).then_some(number)
}

/// Returns whether a directory is what an interrupted command has left: a marker of the region for a tier
/// that it does not have, and no container.
fn is_left_over(fs: &Fs, found: &FoundTier) -> bool {
    found.marker.region == fs.superblock().uuid && known(fs, found).is_none() && found.containers == 0
}

fn failure(region: &Path, error: &Error) -> Failure {
    match error {
        Error::Invalid => tiers::paths_too_long(),
        Error::NotSupported => Failure::refused(
            format!("region {} was made without a tier table", region.display()),
            "create a new one (weir fs create), and copy the files",
        ),
        error => content_failure(region, error),
    }
}

/// Adds tiers; those among them that are leaving are kept.
///
/// # Errors
/// Fails if a directory does not exist or is another tier's, or if the region is in use. Tiers before it on
/// the command line may have been added.
pub(super) fn add(region: &Path, named: &[NewTier]) -> Result<Status, Failure> {
    let new = tiers::directories(named)?;
    let mut fs = open(region, false)?;
    for tier in new {
        match FoundTier::at(&tier.path).ok() {
            Some(found) if is_left_over(&fs, &found) => {
                ContainerFiles::discard(std::slice::from_ref(&tier));
            }
            Some(found) => {
                let leaving = known(&fs, &found).filter(|number| role(&fs, *number) == Some(Role::Leaving));
                let number = leaving.ok_or_else(|| already_a_tier(&fs, &found))?;
                fs.set_leaving(number, false).map_err(|error| failure(region, &error))?;
                continue;
            }
            None => {}
        }
        let path = tier.path.clone();
        fs.add_tier(tier.class, tier.path, tier.uuid).map_err(|error| match &error {
            Error::Container(error) => Failure::os("prepare", &path, error),
            error => failure(region, error),
        })?;
    }
    drop(fs);
    super::status::of_region(region)
}

fn role(fs: &Fs, number: TierNumber) -> Option<Role> {
    fs.tiers().get(number.0 as usize).map(|tier| tier.role)
}

fn already_a_tier(fs: &Fs, found: &FoundTier) -> Failure {
    let path = found.path.display();
    match known(fs, found) {
        Some(number) => Failure::refused(
            format!("directory {path} is tier {} of this file system already", number.0),
            "name another one; if it is at another path now: weir fs move-tier",
        ),
        None => tiers::in_use_as_tier(&found.path),
    }
}

/// Notes that the directories of tiers are at these paths.
///
/// # Errors
/// Fails if a directory is none of the file system's tiers, or if the one at its old path says to be the same
/// tier.
pub(super) fn set_paths(region: &Path, directories: &[PathBuf]) -> Result<Status, Failure> {
    let found: Vec<_> = directories.iter().map(|path| tiers::found(path)).collect::<Result<_, _>>()?;
    let mut fs = open(region, true)?;
    let mut paths: Vec<(TierNumber, PathBuf)> = Vec::new();
    for tier in found {
        let number = known(&fs, &tier).ok_or_else(|| {
            Failure::refused(
                format!(
                    "directory {} is none of the tiers of region {}",
                    tier.path.display(),
                    region.display()
                ),
                "weir fs status lists them; the file weir.tier says whose a directory is",
            )
        })?;
        let old = fs.tiers()[number.0 as usize].path.clone();
        let named = paths.iter().find(|(other, _)| *other == number).map(|(_, path)| path.clone());
        for other in [Some(old), named].into_iter().flatten() {
            if is_copy(&other, &tier) {
                return Err(two_directories(number, &other, &tier.path));
            }
        }
        paths.push((number, tier.path));
    }
    fs.set_tier_paths(&paths).map_err(|error| failure(region, &error))?;
    drop(fs);
    super::status::of_region(region)
}

/// Returns whether another directory has the marker of this one.
fn is_copy(path: &Path, tier: &FoundTier) -> bool {
    let inode = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    FoundTier::at(path).is_ok_and(|other| other.marker == tier.marker) && inode(path) != inode(&tier.path)
}

fn two_directories(number: TierNumber, one: &Path, other: &Path) -> Failure {
    Failure::refused(
        format!("{} and {} both say that they are tier {}", one.display(), other.display(), number.0),
        "one is a copy: remove the file weir.tier from the one that is not to be used",
    )
}

/// Removes a tier, after its files have moved.
///
/// # Errors
/// Fails if there is no tier in the directory, or if there is no space for its files elsewhere. Then the tier
/// is leaving, unless that could be told before, and the command can be repeated.
pub(super) fn remove(region: &Path, directory: &Path) -> Result<Status, Failure> {
    let mut fs = open(region, false)?;
    let number = match position(&fs, directory) {
        Some(number) => number,
        None => {
            let found = FoundTier::at(directory).ok().filter(|found| is_left_over(&fs, found));
            let found = found.ok_or_else(|| {
                let message = format!("the file system has no tier at {}", directory.display());
                Failure::usage(message, tiers::choice(fs.tiers()))
            })?;
            ContainerFiles::discard(&[found.tier()]);
            drop(fs);
            return super::status::of_region(region);
        }
    };
    let path = fs.tiers()[number.0 as usize].path.clone();
    verify_space(&fs, number)?;
    fs.set_leaving(number, true).map_err(|error| failure(region, &error))?;
    progress::during("moving files to other tiers", || fs.empty_tier(number))
        .map_err(|(ino, error)| not_moved(region, &fs, &path, (ino, &error)))?;
    fs.remove_tier(number).map_err(|error| match &error {
        Error::Container(error) => Failure {
            help: format!("the tier is removed; remove the file weir.tier from {}", path.display()),
            ..Failure::os("clean up", &path, error)
        },
        error => failure(region, error),
    })?;
    drop(fs);
    super::status::of_region(region)
}

/// Returns the tier in a directory, by its path.
fn position(fs: &Fs, directory: &Path) -> Option<TierNumber> {
    let is_it = |tier: &Tier| !tier.is_removed() && tiers::is_named(tier, &[directory.to_owned()]);
    fs.tiers().iter().position(is_it).map(|place| TierNumber(place as u32))
}

/// Rejects the removal of a tier whose files certainly have no space elsewhere.
fn verify_space(fs: &Fs, number: TierNumber) -> Result<(), Failure> {
    let containers = fs.containers();
    let path = &fs.tiers()[number.0 as usize].path;
    let needed = allocated_bytes(path).map_err(|error| Failure::os("read", path, &error))?;
    let own = containers.space(number).map_err(|error| Failure::os("read", path, &error))?.device;
    let (used, total) = fs.fill();
    let (mut free, mut devices) = (total - used, Vec::new());
    for (other, tier) in (0..).map(TierNumber).zip(fs.tiers()) {
        if other == number || tier.role != Role::Active || containers.state(other) != TierState::Ready {
            continue;
        }
        let Ok(space) = containers.space(other) else { continue };
        if space.device == own {
            // What moves there frees as much as it takes.
            return Ok(());
        }
        if !devices.contains(&space.device) {
            devices.push(space.device);
            free += space.free_bytes;
        }
    }
    if needed <= free {
        return Ok(());
    }
    Err(Failure::refused(
        format!(
            "cannot remove tier {} ({}): its files have {}, but other tiers and the region only {} of space",
            number.0,
            path.display(),
            Bytes(needed),
            Bytes(free)
        ),
        "add a tier (weir fs add-tier), or remove files; nothing was changed",
    ))
}

/// Returns the failure for a file that could not leave its tier.
fn not_moved(region: &Path, fs: &Fs, tier: &Path, (ino, error): (Ino, &Error)) -> Failure {
    let header = fs.header(ino).unwrap_or_default();
    let size = fs.inode(ino).map_or(Bytes(0), |inode| Bytes(inode.size));
    let name = format!("{:?} (inode {}, {size})", String::from_utf8_lossy(&header.path), ino.0);
    let (tier, region) = (tier.display(), region.display());
    match error {
        Error::NoTier => Failure::environment(
            format!("cannot remove tier {tier}: there is no space elsewhere for {name}"),
            format!(
                "files that were moved stay where they are; free space or add a tier, then repeat the \
                 command; or keep the tier: weir fs add-tier {region} with the same directory"
            ),
        ),
        Error::Container(error) => Failure::environment(
            format!("cannot remove tier {tier}: cannot read {name}: {error}"),
            "put its container back, or remove the file from a mount, then repeat the command; weir fs check \
             lists what is missing",
        ),
        Error::InUse => Failure::environment(
            format!("cannot remove tier {tier}: programs still have {name} open"),
            "the server was killed while they used its mount, and they still write to the file; end them, \
             then repeat the command",
        ),
        error => failure(Path::new(&region.to_string()), error),
    }
}
