//! The tiers of a file system: their directories, and how commands open them.

use crate::failure::Failure;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_fs::error::{Error, Result, TierError};
use weir_fs::layout::superblock::Superblock;
use weir_fs::tiers::{Class, ContainerFiles, Containers, FoundTier, Tier, TierNumber, marker};

/// A directory that `weir fs create` got.
#[derive(Clone, Debug)]
pub(super) struct NewTier {
    pub(super) class: Class,
    pub(super) path: PathBuf,
}

/// Returns the directories of the command line, those of flash first.
pub(super) fn named(flash: Vec<PathBuf>, disk: Vec<PathBuf>) -> Vec<NewTier> {
    let tier = |class| move |path| NewTier { class, path };
    flash.into_iter().map(tier(Class::Flash)).chain(disk.into_iter().map(tier(Class::Disk))).collect()
}

/// Returns the tiers of a new region.
///
/// # Errors
/// Fails if a directory does not exist, is named twice, or is that of a tier already.
pub(super) fn verified(named: &[NewTier]) -> Result<Vec<Tier>, Failure> {
    let tiers = directories(named)?;
    if let Some(tier) = tiers.iter().find(|tier| marker::path(&tier.path).exists()) {
        return Err(in_use_as_tier(&tier.path));
    }
    if weir_fs::layout::tier::encode(&tiers).is_none() {
        return Err(paths_too_long());
    }
    Ok(tiers)
}

/// Returns new tiers in these directories, without links in their paths.
///
/// # Errors
/// Fails if a directory does not exist or is named twice.
pub(super) fn directories(named: &[NewTier]) -> Result<Vec<Tier>, Failure> {
    let mut tiers: Vec<Tier> = Vec::new();
    for NewTier { class, path } in named {
        let found = path.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::usage(
                format!("there is no directory {}", path.display()),
                format!("create it on the {} file system: mkdir {}", class.name(), path.display()),
            ),
            _ => Failure::os("find", path, &error),
        })?;
        if !found.is_dir() {
            let message = format!("{} is not a directory", path.display());
            return Err(Failure::usage(message, "name a directory for containers"));
        }
        if tiers.iter().any(|tier| tier.path == found) {
            let message = format!("directory {} is named twice", path.display());
            return Err(Failure::usage(message, "name it once, with --flash or --disk"));
        }
        tiers.push(Tier::new(*class, found, uuid::Uuid::new_v4().into_bytes()));
    }
    Ok(tiers)
}

pub(super) fn paths_too_long() -> Failure {
    Failure::usage(
        "the paths of the directories have too many bytes together",
        "name fewer directories, or such with shorter paths; about 4000 bytes fit",
    )
}

/// Returns the paths of the tiers that were not removed.
pub(super) fn paths(tiers: &[Tier]) -> Vec<String> {
    let known = tiers.iter().filter(|tier| !tier.is_removed());
    known.map(|tier| tier.path.display().to_string()).collect()
}

/// Returns the help for a directory that is none of the tiers with these paths.
pub(super) fn choice(paths: &[String]) -> String {
    match paths.is_empty() {
        true => "the file system has no tiers".to_owned(),
        false => format!("name one of its directories: {}", paths.join(", ")),
    }
}

/// Returns the failure for a directory that is none of the tiers with these paths.
pub(super) fn no_tier_at(directory: &Path, paths: &[String]) -> Failure {
    Failure::usage(format!("the file system has no tier at {}", directory.display()), choice(paths))
}

/// Returns the failure for a region without a tier table.
pub(super) fn no_tier_table(region: &Path) -> Failure {
    Failure::refused(
        format!("region {} was made without a tier table", region.display()),
        "create a new one (weir fs create), and copy the files",
    )
}

pub(super) fn in_use_as_tier(directory: &Path) -> Failure {
    Failure::refused(
        format!("directory {} holds the containers of another file system", directory.display()),
        format!(
            "name another one; if that file system is gone, remove {} and containers there",
            marker::NAME
        ),
    )
}

/// Returns the tier whose directory this is, by its marker.
///
/// # Errors
/// Fails if it is the directory of no tier.
pub(super) fn found(directory: &Path) -> Result<FoundTier, Failure> {
    FoundTier::at(directory).map_err(|error| match error {
        TierError::NoDirectory => Failure::usage(
            format!("there is no directory {}", directory.display()),
            "check the path, and that its file system is mounted",
        ),
        TierError::NoMarker => no_tier(directory),
        error => Failure::environment(format!("{}: {error}", directory.display()), "see to that first"),
    })
}

pub(super) fn no_tier(directory: &Path) -> Failure {
    Failure::usage(
        format!("{} is not the directory of a tier", directory.display()),
        format!("name a directory that has a file {}", marker::NAME),
    )
}

/// Makes the directories those of the region.
///
/// # Errors
/// Fails if the system refuses; nothing is left then.
pub(super) fn prepare(tiers: &[Tier], region: [u8; 16]) -> Result<(), Failure> {
    ContainerFiles::create(tiers, region).map_err(|(path, error)| match error.kind() {
        io::ErrorKind::AlreadyExists => in_use_as_tier(&path),
        _ => Failure::os("prepare", &path, &error),
    })
}

/// Opens the tiers of a region to read them, as far as they can be used.
pub(super) fn leniently(superblock: &Superblock, tiers: &[Tier]) -> Result<Arc<dyn Containers>> {
    open(superblock, tiers, false, |_| true)
}

/// Opens the tiers of a region to check it: as [`leniently`], unless another process uses one, of which
/// nothing would be known.
pub(super) fn unless_in_use(superblock: &Superblock, tiers: &[Tier]) -> Result<Arc<dyn Containers>> {
    let opened = ContainerFiles::open(tiers, superblock.uuid, false, |_| true);
    let containers = opened.map_err(|(number, reason)| unusable(tiers, number, reason))?;
    for number in (0..tiers.len() as u32).map(TierNumber) {
        if let Err(TierError::InUse) = containers.verify(number) {
            return Err(unusable(tiers, number, TierError::InUse));
        }
    }
    Ok(Arc::new(containers))
}

/// Opens the tiers of a region; those that may lack are left out if they cannot be used.
pub(super) fn open(
    superblock: &Superblock,
    tiers: &[Tier],
    writable: bool,
    may_lack: impl Fn(&Tier) -> bool,
) -> Result<Arc<dyn Containers>> {
    match ContainerFiles::open(tiers, superblock.uuid, writable, may_lack) {
        Ok(containers) => Ok(Arc::new(containers)),
        Err((number, reason)) => Err(unusable(tiers, number, reason)),
    }
}

fn unusable(tiers: &[Tier], number: TierNumber, reason: TierError) -> Error {
    let Tier { class, path, .. } = &tiers[number.0 as usize];
    Error::Tier { number: number.0, class: class.name(), path: path.clone(), reason }
}

/// Returns whether `--without` names this tier.
pub(super) fn is_named(tier: &Tier, without: &[PathBuf]) -> bool {
    without.iter().any(|path| *path == tier.path || resolved(path).as_ref() == Some(&tier.path))
}

/// Returns the path without links, even if its last part does not exist.
pub(super) fn resolved(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let name = path.file_name()?;
    path.canonicalize().ok().or_else(|| Some(path.parent()?.canonicalize().ok()?.join(name)))
}

/// Returns the way out for a tier that cannot be used.
pub(super) fn way_out(path: &Path, reason: &TierError) -> String {
    let path = path.display();
    match reason {
        TierError::InUse => "wait until that process has ended, or unmount the file system".to_owned(),
        TierError::OtherRegion(_) | TierError::OtherTier(_) => format!(
            "put the right directory at {path}; each has a file {} that says whose it is; or mount \
             without it: weir fs mount --without {path} REGION DIR",
            marker::NAME
        ),
        _ => format!(
            "mount its file system, or put the directory back; if it is at another path now: weir fs \
             move-tier REGION DIR; if it is lost, read the other files: weir fs mount --without {path} \
             REGION DIR"
        ),
    }
}
