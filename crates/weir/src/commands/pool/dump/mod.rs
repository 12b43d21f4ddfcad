//! `weir pool dump` saves all metadata of a pool to one file, and `weir pool restore` writes it back.

pub mod dump_format;
mod restore;

pub use restore::restore;

use super::check;
use crate::devices::PoolDescription;
use crate::failure::Failure;
use crate::files;
use crate::progress;
use dump_format::{DumpIdentity, PAYLOAD_MAX, Position, Writer};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use weir_device::Devices;
use weir_map::check::Report;
use weir_map::superblock::{JOURNAL_AT, ROOT_AT};
use weir_map::{PAGE, Superblock};
use weir_model::{Bytes, DeviceId, DeviceOffset, ErrorKind, Store as _};

/// The result of a dump or a restore.
#[derive(Debug)]
pub struct DumpOutcome {
    action: &'static str,
    file: PathBuf,
    pool: String,
    pages: u64,
    clean: bool,
}

/// The document of `weir pool dump` and `pool restore`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir pool dump")]
pub struct DumpDocument<'a> {
    /// Name of the pool.
    pool: &'a str,
    /// The dump.
    file: String,
    /// Pages of metadata that were saved or restored.
    pages: u64,
    /// The metadata are clean, as `weir pool check` says it.
    clean: bool,
}

impl DumpOutcome {
    /// Returns the document that `--json` prints.
    pub fn document(&self) -> DumpDocument<'_> {
        let file = self.file.display().to_string();
        DumpDocument { pool: &self.pool, file, pages: self.pages, clean: self.clean }
    }

    /// Returns the text that is printed without `--json`.
    pub fn human(&self) -> String {
        let doubt = if self.clean { "" } else { "; weir pool check reports damage in it" };
        format!("{} {}: {} pages of metadata{doubt}", self.action, self.file.display(), self.pages)
    }
}

/// A contiguous range of a device that holds metadata.
#[derive(Clone, Copy, Debug)]
struct Region {
    device: DeviceId,
    at: DeviceOffset,
    len: Bytes,
}

/// Returns all regions of a device that do not hold user data: its superblocks and, on a metadata device,
/// roots, journal and metadata pages.
fn regions(sb: &Superblock) -> Vec<Region> {
    let region =
        |at: DeviceOffset, pages: u64| Region { device: sb.device, at, len: Bytes(pages * PAGE as u64) };
    let mut regions = vec![region(DeviceOffset(0), 1), region(Superblock::second_at(sb.size), 1)];
    if sb.is_metadata_member() {
        regions.extend(ROOT_AT.map(|at| region(at, 1)));
        regions.push(region(JOURNAL_AT, sb.journal_pages + sb.meta_pages));
    }
    regions
}

/// Returns the pool's position, as a check found it.
fn position(report: &Report) -> Position {
    let generation = report.superblocks.iter().flatten().map(|sb| sb.generation).max().unwrap_or(0);
    let (root, frame) = report.position.map_or((0, 0), |position| (position.root, position.frame));
    Position { generation, root, frame }
}

/// Saves all metadata of the pool to a new file. The pool must not be served.
///
/// The dump holds every page that is not all zeros, unchanged, even if the page is damaged.
///
/// # Errors
/// Fails if the file exists or cannot be written, or if the devices cannot be opened or read.
pub fn dump(pool_file: &Path, to: &Path) -> Result<DumpOutcome, Failure> {
    let described = PoolDescription::read(pool_file)?;
    files::refuse_kernel_folder(to)?;
    let mut devices = check::open(&described)?;
    let report = check::report(&described, &mut devices, "checking the pool");
    let Some(first) = report.superblocks.iter().flatten().next() else {
        return Err(Failure::new(
            ErrorKind::Corrupt,
            "no device has a valid superblock, so the metadata cannot be found",
            "copy the devices as a whole; weir pool check says more",
        ));
    };
    let sizes = check::sizes(&described, &devices).into_iter().map(Option::unwrap_or_default).collect();
    let saved = DumpIdentity { pool: first.pool, position: position(&report), sizes };
    let exists = || {
        Failure::refused(
            format!("{} exists", to.display()),
            "name a file that does not; dumps are never overwritten",
        )
    };
    if to.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let (part, file) = files::create_part(to, 0o600)?;
    let regions = report.superblocks.iter().flatten().flat_map(regions);
    let written = progress::during("saving the metadata", || {
        save(&mut devices, &saved, regions, BufWriter::new(file)).and_then(|(pages, file)| {
            let file = file.into_inner().map_err(|error| DumpError::File(error.into_error()))?;
            file.sync_all().map_err(DumpError::File)?;
            Ok(pages)
        })
    });
    let pages = written.map_err(|stopped| {
        let _ = std::fs::remove_file(&part);
        stopped.explain(&described, to)
    })?;
    rename_new(&part, to).map_err(|error| {
        let _ = std::fs::remove_file(&part);
        if error.kind() == io::ErrorKind::AlreadyExists { exists() } else { Failure::os("write", to, &error) }
    })?;
    let clean = report.is_clean();
    Ok(DumpOutcome { action: "saved to", file: to.to_owned(), pool: described.file.name, pages, clean })
}

/// Gives a file a name that no file has, durably.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let renamed = renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
    match renamed {
        // The file system cannot exclude that another program takes the name meanwhile.
        Err(Errno::INVAL | Errno::NOSYS) if to.symlink_metadata().is_err() => std::fs::rename(from, to)?,
        renamed => renamed?,
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The error that ended a dump or a restore.
enum DumpError {
    File(io::Error),
    Device(weir_map::MapError),
}

impl DumpError {
    fn explain(self, described: &PoolDescription, file: &Path) -> Failure {
        match self {
            Self::File(error) => Failure::os("use", file, &error),
            Self::Device(error) => described.explain(error),
        }
    }
}

fn device_error(region: Region, what: &'static str) -> impl FnOnce(weir_model::IoError) -> DumpError {
    move |error| {
        DumpError::Device(weir_map::MapError::Io { device: region.device, what, at: region.at, error })
    }
}

/// Writes those pages of the regions that are not all zeros. Returns their number and the writer.
fn save<W: io::Write>(
    devices: &mut Devices,
    saved: &DumpIdentity,
    regions: impl Iterator<Item = Region>,
    to: W,
) -> Result<(u64, W), DumpError> {
    let mut writer = Writer::new(to, saved).map_err(DumpError::File)?;
    let (mut pages, mut bytes) = (0, vec![0; PAYLOAD_MAX]);
    for region in regions {
        let mut done = 0;
        while done < region.len.0 {
            let len = (region.len.0 - done).min(PAYLOAD_MAX as u64) as usize;
            let at = DeviceOffset(region.at.0 + done);
            let part = Region { at, ..region };
            devices.read(region.device, at, &mut bytes[..len]).map_err(device_error(part, "read"))?;
            for (first, count) in runs(&bytes[..len]) {
                let start = DeviceOffset(at.0 + (first * PAGE) as u64);
                let run = &bytes[first * PAGE..(first + count) * PAGE];
                writer.pages(region.device, start, run).map_err(DumpError::File)?;
                pages += count as u64;
            }
            done += len as u64;
        }
    }
    Ok((pages, writer.end().map_err(DumpError::File)?))
}

/// Returns the runs of pages that are not all zeros: the index of the first page and the number of pages.
fn runs(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (i, page) in bytes.chunks(PAGE).enumerate() {
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        match runs.last_mut() {
            Some((first, count)) if *first + *count == i => *count += 1,
            _ => runs.push((i, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another program may create the file while the dump is written.
    #[test]
    fn a_name_that_was_taken_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let [part, to] = ["dump.1.part", "dump"].map(|name| folder.path().join(name));
        std::fs::write(&part, "whole").expect("written");
        std::fs::write(&to, "another's").expect("written");
        let refused = rename_new(&part, &to).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read(&to).expect("it is there"), b"another's");
        std::fs::remove_file(&to).expect("removed");
        rename_new(&part, &to).expect("renamed");
        assert_eq!(std::fs::read(&to).expect("it is there"), b"whole");
        assert!(!part.exists());
    }
}
