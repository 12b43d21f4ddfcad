//! `weir fs add-tier`, `move-tier` and `remove-tier` change the tiers of a file system that is not mounted;
//! `mounted_tiers` those of one that is.

use super::failures::{content_failure, open_failure};
use super::tiers::{self, NewTier};
use crate::failure::Failure;
use crate::{output, progress};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use weir_fs::error::Error;
use weir_fs::layout::Ino;
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Mapped;
use weir_fs::report::Status;
use weir_fs::tiers::{ContainerFiles, FoundTier, Tier, TierNumber, TierState, allocated_bytes};
use weir_model::Bytes;

pub(super) type Fs = FileSystem<Mapped>;

/// Opens the file system in a region to change it; tiers may be missing if `may_lack`.
pub(super) fn open(region: &Path, may_lack: bool) -> Result<Fs, Failure> {
    let memory = Mapped::open(region, true).map_err(|error| open_failure(&error))?;
    let durability = super::region::durability(&memory);
    let fs = FileSystem::open_with(memory, durability, |superblock, found| {
        tiers::open(superblock, found, true, |_| may_lack)
    });
    fs.map_err(|error| content_failure(region, &error))
}

fn failure(region: &Path, error: &Error) -> Failure {
    match error {
        Error::Invalid => tiers::paths_too_long(),
        Error::NotSupported => tiers::no_tier_table(region),
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
            Some(found) if found.is_left_over(fs.superblock().uuid, fs.tiers()) => {
                ContainerFiles::discard(std::slice::from_ref(&tier));
            }
            Some(found) => {
                let number = found.number_in(fs.superblock().uuid, fs.tiers());
                let leaving = number.filter(|number| fs.is_leaving(*number));
                let number = leaving.ok_or_else(|| already_a_tier(&found.path, number))?;
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

/// Returns the failure for a directory that is that of a tier: of this one, or of another file system.
pub(super) fn already_a_tier(directory: &Path, number: Option<TierNumber>) -> Failure {
    match number {
        Some(number) => Failure::refused(
            format!("directory {} is tier {} of this file system already", directory.display(), number.0),
            "name another one; if it is at another path now: weir fs move-tier",
        ),
        None => tiers::in_use_as_tier(directory),
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
        let number = tier.number_in(fs.superblock().uuid, fs.tiers()).ok_or_else(|| {
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
            let is_left_over = |found: &FoundTier| found.is_left_over(fs.superblock().uuid, fs.tiers());
            let found = FoundTier::at(directory).ok().filter(is_left_over);
            let found = found.ok_or_else(|| tiers::no_tier_at(directory, &tiers::paths(fs.tiers())))?;
            ContainerFiles::discard(&[found.tier()]);
            drop(fs);
            return super::status::of_region(region);
        }
    };
    let path = fs.tiers()[number.0 as usize].path.clone();
    verify_space(&Status::of(&fs, region, fs.durability(), None), number)?;
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

/// Removes a tier that is lost; the files in it lose their data. With `accepts_loss` false it only tells
/// which.
///
/// # Errors
/// Fails if there is no tier in the directory, if it is there, or if files lose their data and `accepts_loss`
/// is false: nothing has changed then.
pub(super) fn remove_lost(region: &Path, directory: &Path, accepts_loss: bool) -> Result<Status, Failure> {
    let mut fs = open(region, true)?;
    let number = position(&fs, directory);
    let number = number.ok_or_else(|| tiers::no_tier_at(directory, &tiers::paths(fs.tiers())))?;
    let path = fs.tiers()[number.0 as usize].path.clone();
    if !matches!(fs.containers().state(number), TierState::Gone(_)) {
        return Err(Failure::refused(
            format!("--lost: tier {} ({}) is there", number.0, path.display()),
            "leave the option out: its files move elsewhere",
        ));
    }
    let files = fs.files_in_tier(number);
    let names: Vec<_> = files.iter().map(|ino| name_of(&fs, *ino)).collect();
    if !files.is_empty() && !accepts_loss {
        return Err(loses(number, &path, &names));
    }
    fs.set_leaving(number, true).map_err(|error| failure(region, &error))?;
    fs.lose_files(number).map_err(|error| failure(region, &error))?;
    fs.remove_tier(number).map_err(|error| failure(region, &error))?;
    for name in &names {
        output::print_stderr(&format!("lost: {name}"));
    }
    drop(fs);
    super::status::of_region(region)
}

/// Returns the failure for a removal by which these files lose their data.
fn loses(number: TierNumber, path: &Path, names: &[String]) -> Failure {
    const SHOWN: usize = 5;
    let mut shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        shown += ", ...";
    }
    Failure::refused(
        format!(
            "tier {} ({}) has the data of {} files, which its removal loses: {shown}",
            number.0,
            path.display(),
            names.len()
        ),
        "put the directory back if there is any way; to lose the data, pass --accept-loss: the files stay, \
         and reading them fails",
    )
}

/// Returns the path of a file, with its inode and size.
fn name_of(fs: &Fs, ino: Ino) -> String {
    let header = fs.header(ino).unwrap_or_default();
    let size = fs.inode(ino).map_or(Bytes(0), |inode| Bytes(inode.size));
    format!("{:?} (inode {}, {size})", String::from_utf8_lossy(&header.path), ino.0)
}

/// Returns the tier in a directory, by its path.
fn position(fs: &Fs, directory: &Path) -> Option<TierNumber> {
    let is_it = |tier: &Tier| !tier.is_removed() && tiers::is_named(tier, &[directory.to_owned()]);
    fs.tiers().iter().position(is_it).map(|place| TierNumber(place as u32))
}

/// Rejects the removal of a tier whose files certainly have no space elsewhere.
///
/// # Errors
/// Fails if they have none, or if the directory of the tier cannot be read.
pub(super) fn verify_space(status: &Status, number: TierNumber) -> Result<(), Failure> {
    let Some(leaving) = status.tiers.iter().find(|tier| tier.tier == number.0) else { return Ok(()) };
    let path = Path::new(&leaving.path);
    let device = |path: &Path| path.metadata().map(|found| found.dev());
    let needed = allocated_bytes(path).map_err(|error| Failure::os("read", path, &error))?;
    let own = device(path).map_err(|error| Failure::os("read", path, &error))?;
    let (mut free, mut devices) = (status.free_bytes, Vec::new());
    for tier in &status.tiers {
        if tier.tier == number.0 || tier.leaving || tier.state != "ready" {
            continue;
        }
        let (Ok(other), Some(bytes)) = (device(Path::new(&tier.path)), tier.free_bytes) else { continue };
        if other == own {
            // What moves there frees as much as it takes.
            return Ok(());
        }
        if !devices.contains(&other) {
            devices.push(other);
            free += bytes;
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
    let name = name_of(fs, ino);
    match error {
        Error::NoTier => no_space_elsewhere(tier, region, &name),
        Error::Container(error) => unreadable(tier, &format!("{name}: {error}")),
        Error::InUse => Failure::environment(
            format!("cannot remove tier {}: programs still have {name} open", tier.display()),
            "the server was killed while they used its mount, and they still write to the file; end them, \
             then repeat the command",
        ),
        error => failure(region, error),
    }
}

/// Returns the failure for a file that no other tier, nor the region, has space for.
pub(super) fn no_space_elsewhere(tier: &Path, region: &Path, file: &str) -> Failure {
    let (tier, region) = (tier.display(), region.display());
    Failure::environment(
        format!("cannot remove tier {tier}: there is no space elsewhere for {file}"),
        format!(
            "files that were moved stay where they are; free space, or add a tier, which files of more than \
             a quarter of the region need, then repeat the command; or keep the tier: weir fs add-tier \
             {region} with the same directory"
        ),
    )
}

/// Returns the failure for a file whose container cannot be read.
pub(super) fn unreadable(tier: &Path, file: &str) -> Failure {
    Failure::environment(
        format!("cannot remove tier {}: cannot read {file}", tier.display()),
        "put its container back, or remove the file from a mount, then repeat the command; weir fs check \
         lists what is missing",
    )
}
