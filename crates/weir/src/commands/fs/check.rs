//! `weir fs check` verifies all metadata of a file system that is not mounted, and repairs it where
//! that takes no guessing.

use super::failures::{content_failure, open_failure};
use super::tiers;
use crate::exit::check as exit;
use crate::failure::{Failure, REPORT_DEFECT};
use crate::{progress, signals};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use weir_fs::check::Report;
use weir_fs::fuse;
use weir_fs::layout::PAGE_BYTES;
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Mapped;
use weir_fs::repair::{Outcome, Refusal};
use weir_model::{Bytes, ErrorKind};

/// The document of `weir fs check`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir fs check")]
pub struct CheckDocument {
    /// Path of the region.
    region: String,
    /// Nothing contradicts the format or itself, after the repair if there was one, and no container is
    /// missing.
    clean: bool,
    /// What contradicted the format or itself, 1000 at most.
    findings: Vec<String>,
    /// Findings beyond those in `findings` and `missing`.
    findings_omitted: u64,
    /// Containers and tiers that files of the region need and that are not there, 1000 at most. No repair
    /// brings them back.
    missing: Vec<String>,
    /// Directories found.
    directories: u64,
    /// Other files found.
    files: u64,
    /// Removed files that were open when the file system was last used; the next mount frees them.
    orphans: u64,
    /// Space in use in the region.
    used_bytes: u64,
    /// Files in containers.
    containers: u64,
    /// Containers that no file has, because of a crash; the next mount removes them.
    garbage_containers: u64,
    /// What the repair did; `null` without `--repair`, or if there was nothing to repair.
    repair: Option<RepairPart>,
}

/// What a repair did.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RepairPart {
    /// What was made right without a loss, 1000 at most.
    repaired: Vec<String>,
    /// What is lost, or can no longer be trusted, 1000 at most.
    lost: Vec<String>,
    /// Lines beyond those.
    omitted: u64,
}

/// Verifies the file system in a region; with `repair`, repairs it and verifies it again.
///
/// # Errors
/// Fails if it cannot be opened, or not be repaired. The failure carries the exit code that fsck would use.
pub(super) fn check(region: &Path, repair: bool, tiers: &[PathBuf]) -> Result<CheckDocument, Failure> {
    try_check(region, repair, tiers).map_err(|failure| {
        let code = match failure.kind {
            ErrorKind::Usage => exit::USAGE,
            ErrorKind::Corrupt => exit::UNREPAIRED,
            _ => exit::OPERATIONAL,
        };
        failure.with_exit_code(code)
    })
}

fn try_check(region: &Path, repair: bool, tiers: &[PathBuf]) -> Result<CheckDocument, Failure> {
    let may_cancel = signals::end_with(exit::CANCELLED)?;
    let tiers: Vec<_> = tiers.iter().map(|path| tiers::found(path)).collect::<Result<_, _>>()?;
    let memory = Mapped::open(region, repair).map_err(|error| open_failure(&error))?;
    let verified = verify(region, memory);
    if let Ok((Report { tier_table_is_damaged: false, .. }, _)) = &verified
        && !tiers.is_empty()
    {
        return Err(Failure::usage(
            format!("--tier: the tier table of region {} is not damaged", region.display()),
            "leave the option out; weir fs move-tier notes the new path of a tier's directory",
        ));
    }
    let (memory, found) = match verified {
        // A region that only lacks containers needs no repair.
        Ok(found) if found.0.findings.is_empty() || !repair => return Ok(document(region, found.0, None)),
        Ok((report, memory)) => (memory, Some(report)),
        // What keeps the file system from being opened may be repairable, too.
        Err(failure) if repair && failure.kind == ErrorKind::Corrupt => {
            (Mapped::open(region, true).map_err(|error| open_failure(&error))?, None)
        }
        Err(failure) => return Err(failure),
    };
    // What is written is complete or not there, but nobody would hear what was lost.
    may_cancel.store(false, Ordering::SeqCst);
    let repaired = progress::during("repairing the file system", || {
        weir_fs::repair::repair_with_tiers(memory, &tiers, fuse::now())
    });
    let (memory, Outcome { repaired, lost, more }) = repaired.map_err(|refusal| refused(region, &refusal))?;
    let (mut report, _) = verify(region, memory)?;
    if report.findings.is_empty() {
        let found = found.unwrap_or_default();
        (report.findings, report.more_findings) = (found.findings, found.more_findings);
        return Ok(document(region, report, Some(RepairPart { repaired, lost, omitted: more })));
    }
    Err(refused(region, &Refusal::Incomplete(report.findings)))
}

fn verify(region: &Path, memory: Mapped) -> Result<(Report, Mapped), Failure> {
    let fs = FileSystem::open_read_only_with(memory, tiers::unless_in_use);
    let fs = fs.map_err(|error| content_failure(region, &error))?;
    let report = progress::during("checking the file system", || weir_fs::check::check_with_containers(&fs));
    Ok((report, fs.into_memory()))
}

fn document(region: &Path, report: Report, repair: Option<RepairPart>) -> CheckDocument {
    CheckDocument {
        region: region.display().to_string(),
        clean: report.missing.is_empty() && (report.findings.is_empty() || repair.is_some()),
        findings: report.findings,
        findings_omitted: report.more_findings,
        missing: report.missing,
        directories: report.directories,
        files: report.files,
        orphans: report.orphans,
        used_bytes: report.pages * PAGE_BYTES,
        containers: report.containers,
        garbage_containers: report.garbage,
        repair,
    }
}

fn refused(region: &Path, refusal: &Refusal) -> Failure {
    let message = format!("region {}: {refusal}", region.display());
    let help = match refusal {
        Refusal::Unusable(error) => return content_failure(region, error),
        Refusal::Incomplete(_) => REPORT_DEFECT,
        Refusal::TierNotNamed { .. } => {
            "each directory of a tier has a file weir.tier, which says its number; if one is lost, copy what \
             can be read from weir fs mount --read-only"
        }
        Refusal::Ambiguous(_) | Refusal::NoSpace(_) => {
            "restore it from a backup, or copy what can be read from weir fs mount --read-only"
        }
    };
    Failure::new(ErrorKind::Corrupt, message, help)
}

impl CheckDocument {
    /// Returns the exit code, which follows fsck's.
    pub(super) const fn exit_code(&self) -> u8 {
        match (self.clean, &self.repair) {
            (true, None) => exit::CLEAN,
            (true, Some(_)) => exit::REPAIRED,
            (false, _) => exit::UNREPAIRED,
        }
    }

    /// Returns the report for people.
    pub(super) fn human(&self) -> String {
        let mut text = format!(
            "checked {} and {} with {} in {}\n",
            counted(self.directories, "directory", "directories"),
            counted(self.files, "other file", "other files"),
            Bytes(self.used_bytes),
            self.region
        );
        if self.orphans > 0 {
            text += &format!("{} files without a name have space that the next mount frees\n", self.orphans);
        }
        if self.garbage_containers > 0 {
            text += &format!(
                "{} containers belong to no file; the next mount removes them\n",
                self.garbage_containers
            );
        }
        list(&mut text, "", &self.findings, self.findings_omitted);
        list(&mut text, "missing:\n", &self.missing, 0);
        if let Some(RepairPart { repaired, lost, omitted }) = &self.repair {
            list(&mut text, "repaired:\n", repaired, 0);
            list(&mut text, "lost, or in doubt:\n", lost, *omitted);
        }
        text + match (&self.repair, self.findings.is_empty(), self.missing.is_empty()) {
            (None, false, _) => {
                "not clean: weir fs check --repair repairs what takes no guessing; copy the region first"
            }
            (None, true, true) => "clean",
            (Some(_), _, true) => "clean after the repair",
            (..) => {
                "the region is clean, but containers cannot be read: mount their file system, put them back, \
                 or unmount what uses them; if they are lost, remove their files, or their tier (weir fs \
                 remove-tier --lost)"
            }
        }
    }
}

fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

fn list(text: &mut String, heading: &str, lines: &[String], omitted: u64) {
    if !lines.is_empty() {
        *text += heading;
    }
    lines.iter().for_each(|line| *text += &format!("- {line}\n"));
    if omitted > 0 {
        *text += &format!("... and {omitted} more\n");
    }
}
