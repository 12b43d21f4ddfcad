//! Selects the devices for a new pool's metadata: the one with the lowest measured flush response time, and a
//! second one that mirrors it.

use crate::failure::Failure;
use crate::pool_file::{DeviceEntry, PoolFile};
use std::time::Instant;
use weir_device::Devices;
use weir_model::{Bytes, DeviceClass, DeviceId, DeviceOffset, Nanos, Store};

/// Number of write-and-flush pairs measured on each device.
const TRIES: u32 = 5;
/// Resolution of the comparison. Response times in the same step count as equal, and the device that the pool
/// file names first wins.
const RESPONSE_RESOLUTION: Nanos = Nanos::micros(50);

/// Selects the metadata devices.
///
/// The pool file may declare one or two. Otherwise it selects the durable device with the lowest flush
/// response time, and mirrors it to the next best device that is not a hard disk, if there is one: no flush
/// should wait for a seek.
///
/// # Errors
/// Fails if no device may carry metadata, or if a device fails.
pub(super) fn select(pool: &PoolFile, devices: &mut Devices) -> Result<Vec<DeviceId>, Failure> {
    let numbered = || pool.devices.iter().zip((0u8..).map(DeviceId));
    let declared: Vec<_> =
        numbered().filter(|(entry, _)| entry.metadata == Some(true)).map(|(_, id)| id).collect();
    if !declared.is_empty() {
        return Ok(declared);
    }
    let mut candidates: Vec<(u64, DeviceId)> = Vec::new();
    for (entry, id) in numbered().filter(|(entry, _)| entry.metadata != Some(false) && entry.durable) {
        let response = match entry.pace {
            Some(pace) => modelled_response(pace, entry, devices, id),
            None => measure_response(devices, id).map_err(|error| {
                Failure::environment(
                    format!("device {}: a write and a flush failed: {error}", entry.name),
                    "see the kernel\'s log (dmesg), or use another device",
                )
            })?,
        };
        candidates.push((response.get() / RESPONSE_RESOLUTION.get(), id));
    }
    candidates.sort_unstable();
    let mut in_order = candidates.into_iter().map(|(_, id)| id);
    let first = in_order.next().ok_or_else(|| {
        Failure::usage(
            "no device may carry the pool's metadata",
            "leave out metadata = false, or declare durable = true, for at least one device",
        )
    })?;
    let is_disk = |id: DeviceId| devices.get(id).is_some_and(|device| device.class() == DeviceClass::Hdd);
    Ok([first].into_iter().chain(in_order.find(|id| !is_disk(*id))).collect())
}

/// Measures the response of a write and a flush: the least of [`TRIES`]. It writes the first page's own bytes
/// back, so that a device is unchanged if the pool is not created after all.
fn measure_response(devices: &mut Devices, id: DeviceId) -> Result<Nanos, weir_model::IoError> {
    let mut page = [0; 4096];
    devices.read(id, DeviceOffset(0), &mut page)?;
    let mut least = Nanos::MAX;
    for _ in 0..TRIES {
        let start = Instant::now();
        devices.write(id, DeviceOffset(0), &page)?;
        devices.flush(id)?;
        least = least.min(Nanos(start.elapsed().as_nanos() as u64));
    }
    Ok(least)
}

/// Returns the modelled drive's flush response time, averaged over the device. The served pool will see the
/// same response time.
fn modelled_response(pace: &str, entry: &DeviceEntry, devices: &Devices, id: DeviceId) -> Nanos {
    let size = devices.get(id).map(|device| device.size()).or(entry.size).unwrap_or(Bytes::gib(1));
    weir_timing::model(pace, size, weir_sim::flash_log)
        .map_or(Nanos::MAX, |mut model| weir_timing::flush_response(&mut *model, size))
}

#[cfg(test)]
mod tests {
    use crate::devices::PoolDescription;
    use crate::failure::Failure;
    use crate::pool_file::parse;
    use weir_model::ErrorKind;

    /// Selects among three devices that differ by these lines of the pool file.
    fn choose(lines: [&str; 3]) -> Result<Vec<u8>, Failure> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut text = "[pool]\nname = \"x\"\n".to_owned();
        for (index, line) in lines.iter().enumerate() {
            text += &format!(
                "[[device]]\nname = \"d{index}\"\npath = \"d{index}.img\"\nsize = \"64MiB\"\n{line}\n"
            );
        }
        let file = parse(&text).expect("a good pool file");
        let described = PoolDescription { file, path: folder.path().join("pool.toml") };
        let mut devices = described.open_to_create(|_| ()).expect("three devices");
        let chosen = super::select(&described.file, &mut devices)?;
        Ok(chosen.into_iter().map(|id| id.0).collect())
    }

    #[test]
    fn measuring_leaves_the_device_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "[pool]\nname = \"x\"\n[[device]]\nname = \"d\"\npath = \"d.img\"\n";
        let data: Vec<u8> = (0..64 << 20).map(|at: u32| (at / 512) as u8 | 1).collect();
        std::fs::write(folder.path().join("d.img"), &data).expect("a file");
        let described = PoolDescription {
            file: parse(text).expect("a pool file"),
            path: folder.path().join("pool.toml"),
        };
        let mut devices = described.open_to_create(|_| ()).expect("a device");
        super::select(&described.file, &mut devices).expect("one device");
        assert!(std::fs::read(folder.path().join("d.img")).expect("a file") == data);
    }

    #[test]
    fn metadata_goes_to_declared_or_fastest_flush_devices() {
        let paces = ["pace = \"hdd-7200\"", "pace = \"ssd-sata\"", "pace = \"nvm\""];
        assert_eq!(choose(paces).expect("two of them"), [2, 1]);
        let one = ["pace = \"hdd-7200\"\nmetadata = true", "pace = \"ssd-sata\"", "pace = \"nvm\""];
        assert_eq!(choose(one).expect("the declared one"), [0]);
        let two = ["pace = \"hdd-7200\"\nmetadata = true", "class = \"ssd\"", "metadata = true"];
        assert_eq!(choose(two).expect("the declared ones"), [0, 2]);
        let forbidden = ["pace = \"hdd-7200\"", "durable = false", "pace = \"nvm\"\nmetadata = false"];
        assert_eq!(choose(forbidden).expect("the only one left"), [0]);
        let disks = ["pace = \"hdd-7200\"", "pace = \"hdd-7200\"", "pace = \"ssd-sata\""];
        assert_eq!(choose(disks).expect("no disk mirrors it"), [2]);
        let none = choose(["durable = false", "metadata = false", "durable = false"]);
        assert_eq!(none.expect_err("none is left").kind, ErrorKind::Usage);
    }
}
