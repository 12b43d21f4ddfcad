//! Tiers that are found by the markers of their directories.

use super::marker::{self, Marker};
use super::{Role, Tier, TierNumber, files};
use crate::error::TierError;
use std::path::{Path, PathBuf};

/// A directory that says that it is that of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTier {
    /// Path of the directory, without links.
    pub path: PathBuf,
    /// What its marker says.
    pub marker: Marker,
    /// Number above those of all containers that are there.
    pub next: u64,
    /// How many containers are there.
    pub containers: u64,
}

impl FoundTier {
    /// Reads the marker of a directory, and looks which containers are there.
    ///
    /// # Errors
    /// Says why it is the directory of no tier, or cannot be read.
    pub fn at(directory: &Path) -> Result<Self, TierError> {
        let os = |error: std::io::Error| TierError::Os(error.to_string());
        if !directory.is_dir() {
            return Err(TierError::NoDirectory);
        }
        let path = directory.canonicalize().map_err(os)?;
        let marker = Marker::read(&path).map_err(os)?.ok_or(TierError::NoMarker)?;
        let numbers = files::list_what_is_there(&path).map_err(os)?;
        // Numbers beyond were never given to a container.
        let known = numbers.iter().copied().filter(|number| *number < Tier::NUMBER_END);
        let next = known.max().map_or(1, |number| number + 1);
        Ok(Self { path, marker, next, containers: numbers.len() as u64 })
    }

    /// Returns the tier that the directory says to be, if a region with this UUID and these tiers has it.
    pub fn number_in(&self, region: [u8; 16], tiers: &[Tier]) -> Option<TierNumber> {
        let number = self.marker.number;
        let tier = tiers.get(number.0 as usize).filter(|tier| !tier.is_removed())?;
        (self.marker.region == region && tier.uuid == self.marker.tier).then_some(number)
    }

    /// Returns whether the directory is what an interrupted change of the region's tiers has left: a marker
    /// for a tier that it does not have, and no container.
    pub fn is_left_over(&self, region: [u8; 16], tiers: &[Tier]) -> bool {
        self.marker.region == region && self.number_in(region, tiers).is_none() && self.containers == 0
    }

    /// Returns the entry of the tier table for it.
    pub fn tier(&self) -> Tier {
        let Self { path, marker, next, .. } = self;
        let role = if marker::is_leaving(path) { Role::Leaving } else { Role::Active };
        Tier { class: marker.class, role, path: path.clone(), uuid: marker.tier, next: *next }
    }
}
