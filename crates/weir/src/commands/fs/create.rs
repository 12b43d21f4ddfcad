//! `weir fs create` makes a file system in a new file.

use super::failures::{content_failure, open_failure};
use super::tiers::{self, NewTier};
use crate::failure::Failure;
use crate::files::refuse_kernel_folder;
use crate::progress;
use std::path::Path;
use weir_fs::fuse;
use weir_fs::layout::Geometry;
use weir_fs::layout::superblock::Superblock;
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Mapped;
use weir_fs::report::Status;
use weir_fs::tiers::{ContainerFiles, Tier};
use weir_model::Bytes;

/// Creates the file and the file system in it.
///
/// # Errors
/// Fails if the file exists and `force` is not given, or if it cannot be made; a new file is removed then.
pub(super) fn create(path: &Path, size: Bytes, force: bool, named: &[NewTier]) -> Result<Status, Failure> {
    let geometry = Geometry::new(size.get(), Geometry::CHUNK_BYTES).ok_or_else(|| {
        let least = Bytes(Geometry::size_min(Geometry::CHUNK_BYTES));
        Failure::usage(
            format!("a region cannot have {size}"),
            format!("write a size of at least {least} and less than 16 TiB"),
        )
    })?;
    refuse_kernel_folder(path)?;
    if !force && path.symlink_metadata().is_ok() {
        let held = match Mapped::open(path, false).ok().map(FileSystem::open_read_only) {
            Some(Ok(_)) => " and holds a file system of weir",
            _ => "",
        };
        return Err(Failure::refused(
            format!("{} exists{held}", path.display()),
            "name another file, or pass --force to overwrite it; what is in it is lost",
        ));
    }
    let tiers = tiers::verified(named)?;
    let uuid = uuid::Uuid::new_v4().into_bytes();
    tiers::prepare(&tiers, uuid)?;
    progress::during("creating the file system", || make(path, geometry, uuid, &tiers, force))
        .inspect_err(|_| ContainerFiles::discard(&tiers))?;
    super::status::of_region(path)
}

fn make(path: &Path, geometry: Geometry, uuid: [u8; 16], tiers: &[Tier], force: bool) -> Result<(), Failure> {
    let memory = Mapped::create(path, geometry.size, force).map_err(|error| open_failure(&error))?;
    let hash_key = uuid::Uuid::new_v4().into_bytes();
    let superblock = Superblock { geometry, uuid, hash_key, has_tiers: true };
    let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let made = FileSystem::create_with_tiers(memory, &superblock, tiers, owner, fuse::now());
    made.map(|_| ()).map_err(|error| content_failure(path, &error))
}
