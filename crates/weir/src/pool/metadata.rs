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
