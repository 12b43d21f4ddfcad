//! Which device gets a new pool's metadata: the one whose flush answers first, as measured.

use crate::failure::Failure;
use crate::pool_file::{DeviceEntry, PoolFile};
use std::time::Instant;
use weir_device::Devices;
use weir_model::{Bytes, DeviceId, DeviceOffset, IoId, IoKind, Nanos, Store};

/// Write-and-flush pairs tried on each device.
const TRIES: u32 = 5;
/// Responses closer than this count as equal; the device named first wins.
const GRAIN: Nanos = Nanos::micros(50);

/// Chooses the metadata device: the one declared, else the durable one with the lowest flush
/// response. Overwrites the first page of the devices it measures.
///
/// # Errors
/// If no device may carry metadata, or one fails.
pub(super) fn choose(pool: &PoolFile, devices: &mut Devices) -> Result<DeviceId, Failure> {
    let mut best: Option<(u64, DeviceId)> = None;
    for (entry, id) in pool.devices.iter().zip(0u8..) {
        let id = DeviceId(id);
        if entry.metadata == Some(true) {
            return Ok(id);
        }
        if entry.metadata == Some(false) || !entry.durable {
            continue;
        }
        let response = match entry.pace {
            Some(pace) => modelled(pace, entry, devices, id),
            None => measured(devices, id).map_err(|error| {
                Failure::environment(
                    format!("device {}: a write and a flush failed: {error}", entry.name),
                    "",
                )
            })?,
        };
        let steps = response.get() / GRAIN.get();
        if best.is_none_or(|(least, _)| steps < least) {
            best = Some((steps, id));
        }
    }
    best.map(|(_, id)| id).ok_or_else(|| {
        Failure::usage(
            "no device may carry the pool's metadata",
            "leave out metadata = false, or declare durable = true, for at least one device",
        )
    })
}

fn measured(devices: &mut Devices, id: DeviceId) -> Result<Nanos, weir_model::IoError> {
    let mut least = Nanos::MAX;
    for _ in 0..TRIES {
        let start = Instant::now();
        devices.write(id, DeviceOffset(0), &[0; 4096])?;
        devices.flush(id)?;
        least = least.min(Nanos(start.elapsed().as_nanos() as u64));
    }
    Ok(least)
}

/// What the modelled drive would take: it is what the pool will meet when it is served.
fn modelled(pace: &str, entry: &DeviceEntry, devices: &Devices, id: DeviceId) -> Nanos {
    let size = devices.get(id).map(|device| device.size()).or(entry.size).unwrap_or(Bytes::gib(1));
    let Some(mut model) = weir_timing::model(pace, size) else { return Nanos::MAX };
    let mut now = Nanos(0);
    for (id, kind, len) in [(1, IoKind::Write { fua: false }, Bytes(4096)), (2, IoKind::Flush, Bytes(0))] {
        model.submit(now, IoId(id), kind, DeviceOffset(0), len);
        while let Some(due) = model.next() {
            now = now.max(due);
            if model.pop(due) == Some(IoId(id)) {
                break;
            }
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use crate::failure::Failure;
    use crate::pool::devices::Described;
    use crate::pool_file::parse;
    use std::time::Duration;
    use weir_model::{DeviceId, ErrorKind};

    /// Chooses among three devices that differ by these lines of the pool file.
    fn choose(lines: [&str; 3]) -> Result<DeviceId, Failure> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut text = "[pool]\nname = \"x\"\n".to_owned();
        for (index, line) in lines.iter().enumerate() {
            text += &format!(
                "[[device]]\nname = \"d{index}\"\npath = \"d{index}.img\"\nsize = \"64MiB\"\n{line}\n"
            );
        }
        let file = parse(&text).expect("a good pool file");
        let described = Described { file, path: folder.path().join("pool.toml") };
        let mut devices = described.open_devices(Duration::ZERO, true).expect("three devices");
        super::choose(&described.file, &mut devices)
    }

    #[test]
    fn the_device_with_the_fastest_flush_is_chosen_unless_one_is_declared() {
        let paces = ["pace = \"hdd-7200\"", "pace = \"ssd-sata\"", "pace = \"nvm\""];
        assert_eq!(choose(paces).expect("one of them"), DeviceId(2));
        let declared = ["pace = \"hdd-7200\"\nmetadata = true", "pace = \"ssd-sata\"", "pace = \"nvm\""];
        assert_eq!(choose(declared).expect("the declared one"), DeviceId(0));
        let forbidden = ["pace = \"hdd-7200\"", "durable = false", "pace = \"nvm\"\nmetadata = false"];
        assert_eq!(choose(forbidden).expect("the only one left"), DeviceId(0));
        let none = choose(["durable = false", "metadata = false", "durable = false"]);
        assert_eq!(none.expect_err("none is left").kind, ErrorKind::Usage);
    }
}
