//! `weir pool replace` puts a blank device in the place of a lost one.

use super::create::{FileChanges, fill_probe_areas, reserve_on};
use super::occupied::refuse_occupied;
use crate::args::Accept;
use crate::devices::{OpenedPool, PoolDescription, warn_of_readable_files};
use crate::failure::Failure;
use crate::pool::{self, RETRY_INTERVAL, refuse_served, retry_until_unlocked};
use crate::status::Status;
use crate::{output, progress};
use std::path::Path;
use weir_device::{Device, Devices};
use weir_map::create::read_superblock;
use weir_map::{NewDevice, Superblock};
use weir_model::DeviceId;

/// Replaces the device of this name with a blank one at the path that the pool file gives.
///
/// The pool must not be served, and the other devices must be present, except those that [`Accept`] exempts.
/// With `force` the new device need not be blank.
///
/// # Errors
/// Fails if the lost device alone holds data; if the new device is too small, not blank or in use; or if the
/// pool cannot be opened without the lost device. A file that was created for the new device is removed
/// again.
pub(crate) fn replace(pool_file: &Path, name: &str, accept: &Accept, force: bool) -> Result<Status, Failure> {
    let described = PoolDescription::read(pool_file)?;
    progress::during("replacing the device", || join_device(&described, name, accept, force))?;
    let status = pool::status_accepting(pool_file, accept)?;
    output::print_stderr(&format!(
        "device {name} is in the pool; second copies are made on it while the pool is served (weir serve)"
    ));
    Ok(status)
}

fn join_device(described: &PoolDescription, name: &str, accept: &Accept, force: bool) -> Result<(), Failure> {
    let (entry, id) = described.device(name)?;
    let mut others = accept.clone();
    others.without.push(name.to_owned());
    let opened = retry_until_unlocked(described, |wait| {
        refuse_served(described)?;
        described.open_pool(&others, wait.max(RETRY_INTERVAL))
    })?;
    let OpenedPool { mut devices, superblocks, options } = opened;
    let mut made = FileChanges::default();
    described.open_new(entry, id, &mut devices, |device| made.record(device))?;
    if !force {
        refuse_present(described, &mut devices, id)?;
        refuse_occupied(described, &mut devices, [id].into_iter().collect())?;
    }
    warn_of_readable_files(described, &devices)?;
    let new = devices.get(id).map(|device| NewDevice {
        name: entry.name.clone(),
        size: device.size(),
        class: device.class(),
    });
    let Some(new) = new else { return Ok(()) };
    let superblock = weir_map::replace(&mut devices, &superblocks, id, &new, &options)
        .map_err(|error| described.explain(error))?;
    made.commit();
    reserve_on(&devices, &superblock)?;
    fill_probe_areas(described, &mut devices, &superblock)
}

/// Refuses to replace a device that is present and belongs to this pool.
fn refuse_present(described: &PoolDescription, devices: &mut Devices, id: DeviceId) -> Result<(), Failure> {
    let Some(size) = devices.get(id).map(Device::size) else { return Ok(()) };
    let found = read_superblock(devices, id, size).ok().flatten();
    let is_own = |sb: &Superblock| sb.pool_name == described.file.name && sb.device == id;
    if !found.as_ref().is_some_and(is_own) {
        return Ok(());
    }
    Err(Failure::refused(
        format!("device {} is present: there is nothing to replace", described.name_and_path(id)),
        "start the server; or, to take it out because it fails, remove it and name a blank one in the pool file, or \
         pass --force to make this one new: what is on it is then lost",
    ))
}
