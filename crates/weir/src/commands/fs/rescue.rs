//! `weir fs rescue` restores files from the directories of tiers alone.

use super::tiers::no_tier;
use crate::failure::Failure;
use crate::progress;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use weir_fs::tiers::rescue::{Rescued, marker, regions, rescue as rescue_tier};
use weir_model::Bytes;

/// The document of `weir fs rescue`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir fs rescue")]
pub struct RescueDocument {
    /// Directory that the files were restored to.
    target: String,
    /// Files restored.
    files: u64,
    /// Bytes of these.
    bytes: u64,
    /// Files among them whose name is unknown; they are in `lost+found`.
    nameless: u64,
    /// Containers that could not be restored, or not with all that they had, 1000 at most.
    problems: Vec<String>,
    /// Problems beyond those.
    problems_omitted: u64,
}

/// Restores the files of these tiers.
///
/// # Errors
/// Fails if a directory is none of a tier, if they belong to several regions, or if the target cannot be
/// created.
pub(super) fn rescue(directories: &[PathBuf], target: &Path) -> Result<RescueDocument, Failure> {
    let no_tier = |directory: &Path, error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => no_tier(directory),
        _ => Failure::os("read", directory, &error),
    };
    let markers = directories.iter().map(|path| marker(path).map_err(|error| no_tier(path, error)));
    let markers: Vec<_> = markers.collect::<Result<_, _>>()?;
    if regions(&markers).len() > 1 {
        return Err(Failure::usage(
            "the directories belong to different file systems",
            "restore each file system on its own; the files weir.tier say whose a directory is",
        ));
    }
    let named: BTreeSet<u32> = markers.iter().map(|marker| marker.number.0).collect();
    if named.len() < markers.len() {
        return Err(Failure::usage("two of the directories are the same tier", "name each directory once"));
    }
    std::fs::create_dir_all(target).map_err(|error| Failure::os("create", target, &error))?;
    let mut rescued = Rescued::default();
    progress::during("restoring files", || {
        directories.iter().try_for_each(|directory| {
            rescue_tier(directory, target, &mut rescued)
                .map_err(|error| Failure::os("read", directory, &error))
        })
    })?;
    Ok(RescueDocument {
        target: target.display().to_string(),
        files: rescued.files,
        bytes: rescued.bytes,
        nameless: rescued.nameless,
        problems: rescued.problems,
        problems_omitted: rescued.more_problems,
    })
}

impl RescueDocument {
    /// Returns the result for people.
    pub(super) fn human(&self) -> String {
        let mut text = format!("restored {} files with {} to {}", self.files, Bytes(self.bytes), self.target);
        if self.nameless > 0 {
            text += &format!("; {} of them have no name and are in lost+found", self.nameless);
        }
        self.problems.iter().for_each(|line| text += &format!("\n- {line}"));
        if self.problems_omitted > 0 {
            text += &format!("\n... and {} more", self.problems_omitted);
        }
        text
    }
}
