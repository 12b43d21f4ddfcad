//! Creates the demo's folder, in memory if there is enough space, and removes it afterwards.

use crate::failure::Failure;
use std::path::{Path, PathBuf};
use weir_model::Bytes;

/// A folder for the demo's files. Dropping the value removes it with everything in it.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
    in_memory: bool,
}

impl Scratch {
    /// Creates a folder with space for `needed`.
    ///
    /// The folder is in `wanted` if given; otherwise in the first memory-backed folder with enough space, or
    /// else in the folder for temporary files.
    pub(super) fn new(wanted: Option<&Path>, needed: Bytes) -> Result<Self, Failure> {
        let (parent, in_memory) = match wanted {
            Some(folder) => (folder.to_owned(), is_memory(folder)),
            None => select_folder(needed),
        };
        let free = free_space(&parent).map_err(|error| Failure::os("use", &parent, &error))?;
        if free < needed {
            return Err(Failure::environment(
                format!("{} has {free} free, and the demo needs {needed}", parent.display()),
                "free some space there, or name another folder with --scratch DIR",
            ));
        }
        let folder = parent.join(format!("weir-demo-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| Failure::os("create", &folder, &error))?;
        Ok(Self { folder, in_memory })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether the files are in memory, which fast models need for exact pacing.
    pub(super) fn in_memory(&self) -> bool {
        self.in_memory
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "the demo's folder could not be removed");
        }
    }
}

fn select_folder(needed: Bytes) -> (PathBuf, bool) {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = runtime.into_iter().chain(["/dev/shm".into(), "/run/shm".into()]);
    for place in places {
        let writable = rustix::fs::access(&place, rustix::fs::Access::WRITE_OK).is_ok();
        if writable && is_memory(&place) && free_space(&place).is_ok_and(|free| free >= needed) {
            return (place, true);
        }
    }
    (std::env::temp_dir(), false)
}

fn free_space(folder: &Path) -> std::io::Result<Bytes> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(Bytes(found.f_bavail.saturating_mul(found.f_frsize)))
}

fn is_memory(folder: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::statfs(folder).is_ok_and(|found| found.f_type == TMPFS)
}
