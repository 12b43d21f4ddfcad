//! Refuses devices that already hold something, so that no pool overwrites them without `--force`.

use crate::devices::PoolDescription;
use crate::failure::Failure;
use weir_device::{Device, Devices};
use weir_map::MapError;
use weir_map::create::read_superblock;
use weir_model::{DeviceId, DeviceSet};

/// Refuses those of `these` devices that are not blank; the message says what each one holds.
///
/// # Errors
/// Fails if a device is not blank or cannot be read. No device has been changed then.
pub(super) fn refuse_occupied(
    described: &PoolDescription,
    devices: &mut Devices,
    candidates: DeviceSet,
) -> Result<(), Failure> {
    let mut occupied = Vec::new();
    let entries = described.file.devices.iter().zip((0u8..).map(DeviceId));
    for (entry, id) in entries.filter(|(_, id)| candidates.contains(*id)) {
        if let Some(holds) = contents(described, devices, id)? {
            let path = described.device_path(entry);
            occupied.push(format!("device {:?}: {} holds {holds}", entry.name, path.display()));
        }
    }
    match occupied.len() {
        0 => Ok(()),
        1 => {
            Err(Failure::refused(occupied.concat(), "choose another device, or pass --force to overwrite it"))
        }
        _ => Err(Failure::refused(
            occupied.join("\n"),
            "choose other devices, or pass --force to overwrite all of them",
        )),
    }
}

/// Returns what a device holds, as the end of the sentence "the device holds ..."; `None` if it is blank.
fn contents(
    described: &PoolDescription,
    devices: &mut Devices,
    id: DeviceId,
) -> Result<Option<String>, Failure> {
    let Some(size) = devices.get(id).map(Device::size) else { return Ok(None) };
    match read_superblock(devices, id, size) {
        Ok(None) => {}
        Ok(Some(found)) => {
            return Ok(Some(format!(
                "device {:?} of pool {} ({})",
                found.device_name, found.pool_name, found.pool
            )));
        }
        Err(MapError::Damaged { .. }) => return Ok(Some("the damaged superblock of a weir pool".into())),
        Err(MapError::Unknown { .. }) => return Ok(Some("a weir pool of a newer version".into())),
        Err(error) => return Err(described.explain(error)),
    }
    let Some(device) = devices.get(id) else { return Ok(None) };
    Ok(device.contents()?.map(|contents| contents.to_string()))
}
