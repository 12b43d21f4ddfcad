//! Changes of the tiers of a mounted file system, which its owner asks for.

use super::handler::Handler;
use super::quotas::is_administrator;
use crate::error::{Error, Result, TierError};
use crate::layout::tier::{Class, TierNumber};
use crate::nvm::Memory;
use crate::report::TierCommand;
use crate::tiers::{ContainerFiles, FoundTier, Tier};
use std::path::{Path, PathBuf};

impl<M: Memory> Handler<M> {
    /// Carries out a command that changes the tiers.
    ///
    /// # Errors
    /// `NotPermitted` if the caller is neither root nor the server's user; `Invalid` for a directory that
    /// cannot be that of a tier, or if the paths of all tiers do not fit into the table; `Exists` if it is
    /// that of a tier; `NotFound` if a directory to remove is none of a tier; `NotSupported` without a tier
    /// table; `Container` if the directory refuses.
    pub(super) fn change_tiers(&self, caller: u32, command: &TierCommand) -> Result<()> {
        if !is_administrator(caller) {
            return Err(Error::NotPermitted);
        }
        match command {
            TierCommand::Add { class, path } => self.add_tier(*class, path),
            TierCommand::Remove { path } => self.remove_tier(path),
        }
    }

    /// Adds a tier, or keeps one that is leaving.
    fn add_tier(&self, class: Class, path: &Path) -> Result<()> {
        // The server would wait for itself.
        if !path.is_absolute() || path.starts_with(&self.place().directory) {
            return Err(Error::Invalid);
        }
        self.shared.sync()?;
        let found = found(path)?;
        let mut fs = self.shared.write();
        let region = fs.superblock().uuid;
        if let Some(found) = found {
            if !found.is_left_over(region, fs.tiers()) {
                let leaving = found.number_in(region, fs.tiers()).filter(|number| fs.is_leaving(*number));
                return fs.set_leaving(leaving.ok_or(Error::Exists)?, false);
            }
            ContainerFiles::discard(&[found.tier()]);
        }
        fs.add_tier(class, path.to_owned(), uuid()?).map(drop)
    }

    /// Begins to remove a tier; the rest happens in the background.
    fn remove_tier(&self, path: &PathBuf) -> Result<()> {
        let is_it = |tier: &Tier| !tier.is_removed() && tier.path == *path;
        let place = self.shared.read().tiers().iter().position(is_it);
        if let Some(place) = place {
            // Most of what the commit needs is durable then.
            self.shared.sync()?;
            return self.shared.write().set_leaving(TierNumber(place as u32), true);
        }
        let fs = self.shared.write();
        match found(path)? {
            Some(found) if found.is_left_over(fs.superblock().uuid, fs.tiers()) => {
                ContainerFiles::discard(&[found.tier()]);
                Ok(())
            }
            _ => Err(Error::NotFound),
        }
    }
}

/// Returns the tier that a directory says to be; `None` if it has no marker.
fn found(path: &Path) -> Result<Option<FoundTier>> {
    match FoundTier::at(path) {
        Ok(found) => Ok(Some(found)),
        Err(TierError::NoMarker) => Ok(None),
        Err(TierError::NoDirectory) => Err(Error::NotFound),
        Err(_) => Err(Error::Invalid),
    }
}

/// Returns a random UUID.
fn uuid() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::Io(errno.into()))?;
    Ok(bytes)
}
