//! `weir pool create`: devices become a pool.

use super::devices::{Described, new_id, refuse_occupied};
use super::metadata;
use crate::failure::Failure;
use std::path::PathBuf;
use std::time::Duration;
use weir_device::Devices;
use weir_map::{NewDevice, NewPool, Superblock};
use weir_model::{Bytes, DeviceOffset};

/// Makes the pool the file describes. Everything on its devices is lost; with `force`, also what
/// weir recognises.
///
/// # Errors
/// If a device cannot be used, or holds something and `force` is not given. Then nothing was
/// changed.
pub(super) fn create(described: &Described, force: bool) -> Result<(), Failure> {
    let made = MadeFiles::watch(described);
    let mut devices = described.open_devices(Duration::ZERO, true)?;
    if !force {
        refuse_occupied(described, &mut devices)?;
    }
    let new = new_pool(described, &mut devices)?;
    reserve(described, &new, &devices)?;
    weir_map::create(&mut devices, &new).map_err(|error| described.explain(error))?;
    made.keep();
    Ok(())
}

/// Has the file systems set aside the space for all metadata, so that one which fills up later does not
/// stop the pool from writing its map.
fn reserve(described: &Described, new: &NewPool, devices: &Devices) -> Result<(), Failure> {
    let layout = weir_map::create::layout(new).map_err(|error| described.explain(error))?;
    for sb in &layout {
        let Some(device) = devices.get(sb.device) else { continue };
        let page = Bytes(weir_map::PAGE as u64);
        let metadata = match sb.is_metadata_member() {
            true => Bytes(sb.pages_at().0 + sb.meta_pages * page.0),
            false => page,
        };
        device.reserve(DeviceOffset(0), metadata)?;
        device.reserve(Superblock::second_at(sb.size), page)?;
    }
    Ok(())
}

fn new_pool(described: &Described, devices: &mut Devices) -> Result<NewPool, Failure> {
    let entries = &described.file.devices;
    let in_order = entries.iter().zip(devices.iter()).map(|(entry, (_, device))| NewDevice {
        name: entry.name.clone(),
        size: device.size(),
        class: device.class(),
    });
    let in_order = in_order.collect();
    Ok(NewPool {
        id: new_id(),
        name: described.file.name.clone(),
        extent: described.file.extent,
        devices: in_order,
        metadata: metadata::choose(&described.file, devices)?,
    })
}

/// Files that opening the devices made: removed again unless the pool comes to be.
#[derive(Debug)]
struct MadeFiles(Vec<PathBuf>);

impl MadeFiles {
    fn watch(described: &Described) -> Self {
        let paths = described.file.devices.iter().map(|device| described.device_path(device));
        Self(paths.filter(|path| !path.exists()).collect())
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
