//! `weir fs check` verifies all metadata of a file system that is not mounted.

use super::failures::{content_failure, open_failure};
use crate::exit::check as exit;
use crate::failure::Failure;
use crate::{progress, signals};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use weir_fs::layout::PAGE_BYTES;
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Mapped;
use weir_model::{Bytes, ErrorKind};

/// The document of `weir fs check`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir fs check")]
pub struct CheckDocument {
    /// Path of the region.
    region: String,
    /// Nothing contradicts the format or itself.
    clean: bool,
    /// What does, 1000 at most.
    findings: Vec<String>,
    /// Findings beyond those in `findings`.
    findings_omitted: u64,
    /// Directories found.
    directories: u64,
    /// Other files found.
    files: u64,
    /// Removed files that were open when the file system was last used; the next mount frees them.
    orphans: u64,
    /// Space in use.
    used_bytes: u64,
}

/// Verifies the file system in a region.
///
/// # Errors
/// Fails if it cannot be opened. The failure carries the exit code that fsck would use.
pub(super) fn check(region: &Path) -> Result<CheckDocument, Failure> {
    try_check(region).map_err(|failure| {
        let code = match failure.kind {
            ErrorKind::Usage => exit::USAGE,
            ErrorKind::Corrupt => exit::UNREPAIRED,
            _ => exit::OPERATIONAL,
        };
        failure.with_exit_code(code)
    })
}

fn try_check(region: &Path) -> Result<CheckDocument, Failure> {
    signals::end_with(exit::CANCELLED)?;
    let memory = Mapped::open(region, false).map_err(|error| open_failure(&error))?;
    let fs = FileSystem::open_read_only(memory).map_err(|error| content_failure(region, &error))?;
    let report = progress::during("checking the file system", || weir_fs::check::check(&fs));
    Ok(CheckDocument {
        region: region.display().to_string(),
        clean: report.is_clean(),
        findings: report.findings,
        findings_omitted: report.more_findings,
        directories: report.directories,
        files: report.files,
        orphans: report.orphans,
        used_bytes: report.pages * PAGE_BYTES,
    })
}

impl CheckDocument {
    /// Returns the exit code, which follows fsck's.
    pub(super) const fn exit_code(&self) -> u8 {
        if self.clean { exit::CLEAN } else { exit::UNREPAIRED }
    }

    /// Returns the report for people.
    pub(super) fn human(&self) -> String {
        let mut text = format!(
            "checked {} directories and {} other files with {} in {}\n",
            self.directories,
            self.files,
            Bytes(self.used_bytes),
            self.region
        );
        if self.orphans > 0 {
            text += &format!("{} removed files have space that the next mount frees\n", self.orphans);
        }
        self.findings.iter().for_each(|finding| text += &format!("- {finding}\n"));
        if self.findings_omitted > 0 {
            text += &format!("... and {} more\n", self.findings_omitted);
        }
        text += if self.clean {
            "clean"
        } else {
            "not clean: copy what can be read from weir fs mount --read-only, or restore a backup; weir \
             cannot repair a file system yet"
        };
        text
    }
}
