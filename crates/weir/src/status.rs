//! What `weir pool status` shows: a pool, its devices and their traffic, its volumes.
//!
//! The same document is printed with `--json`, so its fields are a promise: docs/guide.md
//! describes them, and a field may be added but not renamed.

use crate::output::table;
use crate::pool::devices::Described;
use serde::{Deserialize, Serialize};
use weir_device::PaceStats;
use weir_engine::PoolStatus;
use weir_map::Map;
use weir_model::{Bytes, Nanos};
use weir_serve::control::Hardening;

/// The state of a pool that no server holds.
pub const IDLE: &str = "idle";
/// The state of a pool that a server serves.
pub const SERVED: &str = "served";

/// A pool at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The pool.
    pub pool: PoolPart,
    /// Its devices, in the order of the pool file.
    pub devices: Vec<DevicePart>,
    /// Its volumes, by name.
    pub volumes: Vec<VolumePart>,
}

/// The pool as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolPart {
    /// Its name.
    pub name: String,
    /// Its random identity, in hexadecimal.
    pub id: String,
    /// `idle`, or `served` by a running server.
    pub state: String,
    /// The placement policy.
    pub policy: String,
    /// The extent size.
    pub extent_bytes: u64,
    /// Room for data on all devices.
    pub data_bytes: u64,
    /// How much of it is taken.
    pub used_bytes: u64,
    /// Room for metadata.
    pub metadata_bytes: u64,
    /// How much of it is taken.
    pub metadata_used_bytes: u64,
    /// Memory the map takes.
    pub map_memory_bytes: u64,
    /// The metadata can no longer be written: changes are refused.
    pub read_only: bool,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DevicePart {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// `nvm`, `ssd`, `hdd` or `remote`.
    pub class: String,
    /// Whether the pool's metadata lives here.
    pub metadata: bool,
    /// The modelled drive it is paced to.
    pub pace: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// Room for data on it.
    pub data_bytes: u64,
    /// How much of it is taken.
    pub used_bytes: u64,
    /// What it has done since the server started; absent while idle.
    pub traffic: Option<Traffic>,
}

/// What a device has done since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads.
    pub reads: Commands,
    /// Writes, the map's included.
    pub writes: Commands,
    /// Flushes.
    pub flushes: u64,
    /// Commands that failed.
    pub failed: u64,
    /// Commands in flight.
    pub in_flight: u64,
    /// Response to a 4 KiB read when the pool was idle.
    pub idle_response_ns: Option<u64>,
    /// A flush failed: writes since the last good one may be lost, and FLUSH fails.
    pub in_doubt: bool,
    /// Commands that a paced device answered later than its model wanted, of all its commands.
    pub overruns_share: f64,
    /// So many overruns (above 1 %, and more than 3) that the figures say nothing of the model.
    pub figures_invalid: bool,
}

/// Commands of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Commands {
    /// How many ended.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Their mean response, from submission to completion, recent ones counting more.
    pub response_ns: Option<u64>,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumePart {
    /// Its name, which is its NBD export name.
    pub name: String,
    /// The size clients see.
    pub size_bytes: u64,
    /// Space it takes on the devices.
    pub used_bytes: u64,
    /// When its map changes are durable: `flush` or `write`.
    pub hardening: Hardening,
}

impl Commands {
    /// The mean response, for people.
    pub fn response(self) -> String {
        self.response_ns.map_or("-".into(), |mean| Nanos(mean).to_string())
    }

    fn human(self) -> String {
        match self.response_ns {
            Some(mean) => format!("{} in {}", self.count, Nanos(mean)),
            None => self.count.to_string(),
        }
    }
}

impl From<(u64, Bytes, Option<Nanos>)> for Commands {
    fn from((count, bytes, response): (u64, Bytes, Option<Nanos>)) -> Self {
        Self { count, bytes: bytes.get(), response_ns: response.map(Nanos::get) }
    }
}

impl Status {
    /// From what the engine says, and what only the pool file and the devices know.
    pub fn new(
        state: &str,
        described: &Described,
        map: &Map,
        engine: PoolStatus,
        paces: &[Option<PaceStats>],
    ) -> Self {
        let page = |pages: u32| u64::from(pages) * weir_map::PAGE as u64;
        let used = |device: &weir_engine::DeviceStatus| (device.total - device.free).get();
        let pool = PoolPart {
            name: engine.name,
            id: map.pool().to_string(),
            state: state.to_owned(),
            policy: engine.policy.to_owned(),
            extent_bytes: engine.extent.get(),
            data_bytes: engine.devices.iter().map(|device| device.total.get()).sum(),
            used_bytes: engine.devices.iter().map(used).sum(),
            metadata_bytes: page(engine.metadata.pages),
            metadata_used_bytes: page(engine.metadata.pages - engine.metadata.free),
            map_memory_bytes: engine.memory.total().get(),
            read_only: engine.read_only,
        };
        let parts = described.file.devices.iter().zip(map.devices()).zip(engine.devices);
        let devices = parts.map(|((entry, superblock), device)| {
            let pace = paces.get(device.id.index()).copied().flatten().unwrap_or_default();
            DevicePart {
                path: described.device_path(entry).display().to_string(),
                class: device.class.name().to_owned(),
                metadata: device.metadata,
                pace: entry.pace.map(str::to_owned),
                size_bytes: superblock.size.get(),
                data_bytes: device.total.get(),
                used_bytes: used(&device),
                traffic: (state == SERVED).then(|| Traffic {
                    reads: (device.reads.0, device.reads.1, device.read_response).into(),
                    writes: (device.writes.0, device.writes.1, device.write_response).into(),
                    flushes: device.flushes,
                    failed: device.errors,
                    in_flight: device.in_flight,
                    idle_response_ns: device.idle_response.map(Nanos::get),
                    in_doubt: device.in_doubt,
                    overruns_share: pace.overrun_share(),
                    figures_invalid: !pace.valid(),
                }),
                name: device.name,
            }
        });
        let volumes = engine.volumes.into_iter().map(|volume| VolumePart {
            name: volume.name,
            size_bytes: volume.size.get(),
            used_bytes: volume.allocated.get(),
            hardening: volume.hardening.into(),
        });
        let mut status = Self { pool, devices: devices.collect(), volumes: volumes.collect() };
        status.volumes.sort_by(|a, b| a.name.cmp(&b.name));
        status
    }

    /// For people.
    pub fn human(&self) -> String {
        let pool = &self.pool;
        let size = |bytes| Bytes(bytes).to_string();
        let mut text = format!(
            "pool {} ({}), {}{}, policy {}, extents of {}\n\n",
            pool.name,
            pool.id,
            pool.state,
            if pool.read_only { ", READ-ONLY: its metadata cannot be written" } else { "" },
            pool.policy,
            size(pool.extent_bytes)
        );
        text += &table(
            ["DEVICE", "CLASS", "USED", "OF", "READS", "WRITES", "FLUSHES", "FAILED", "NOTES"],
            self.devices.iter().map(|device| {
                let traffic = device.traffic.unwrap_or_default();
                [
                    device.name.clone(),
                    device.class.clone(),
                    size(device.used_bytes),
                    size(device.data_bytes),
                    traffic.reads.human(),
                    traffic.writes.human(),
                    traffic.flushes.to_string(),
                    traffic.failed.to_string(),
                    device.notes(),
                ]
            }),
        );
        text.push('\n');
        text + &volumes_table(&self.volumes)
    }

    /// What must be said about devices whose figures are not to be trusted.
    pub fn warnings(&self) -> Vec<String> {
        match self.overrun() {
            late if late.is_empty() => Vec::new(),
            late => vec![format!("figures invalid: {}; {OVERRUN_WHY}", late.join(", "))],
        }
    }

    /// The paced devices that came too late too often, each with how often.
    pub fn overrun(&self) -> Vec<String> {
        let late = self.devices.iter().filter_map(|device| {
            let traffic = device.traffic.filter(|traffic| traffic.figures_invalid)?;
            Some(format!("{} {:.1} %", device.name, 100.0 * traffic.overruns_share))
        });
        late.collect()
    }
}

/// What it means when a device is named by [`Status::overrun`].
pub const OVERRUN_WHY: &str = "so many commands were answered later than the modelled drive would have (more than 1 %): \
     this machine is too slow or too busy, or the files are not in memory";

impl DevicePart {
    fn notes(&self) -> String {
        let pace = self.pace.as_ref().map(|pace| format!("paced as {pace}"));
        let metadata = self.metadata.then(|| "metadata".to_owned());
        let invalid =
            self.traffic.filter(|traffic| traffic.figures_invalid).map(|_| "figures invalid".to_owned());
        [metadata, pace, invalid].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// The volumes, for people.
pub fn volumes_table(volumes: &[VolumePart]) -> String {
    if volumes.is_empty() {
        return "no volumes; make one with: weir volume create NAME --size 100GiB\n".into();
    }
    table(
        ["VOLUME", "SIZE", "USED", "HARDENING"],
        volumes.iter().map(|volume| {
            [
                volume.name.clone(),
                Bytes(volume.size_bytes).to_string(),
                Bytes(volume.used_bytes).to_string(),
                volume.hardening.to_string(),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_and_warned_about() {
        let reads = Commands { count: 100, bytes: 409_600, response_ns: Some(10_000) };
        let traffic = Traffic { reads, overruns_share: 0.05, figures_invalid: true, ..Traffic::default() };
        let device = DevicePart {
            name: "slow".into(),
            pace: Some("hdd-7200".into()),
            traffic: Some(traffic),
            metadata: true,
            ..DevicePart::default()
        };
        let status = Status { devices: vec![device], ..Status::default() };
        let text = status.human();
        for part in
            ["slow", "100 in 10.0 us", "metadata, paced as hdd-7200, figures invalid", "weir volume create"]
        {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(status.warnings()[0].contains("slow 5.0 %"), "{:?}", status.warnings());
        let json = serde_json::to_string(&status).expect("it is JSON");
        assert_eq!(serde_json::from_str::<Status>(&json).ok(), Some(status));
    }
}
