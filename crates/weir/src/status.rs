//! What `weir pool status` shows: a pool, its devices and their traffic, its volumes.
//!
//! The same document is printed with `--json`, so its fields are a promise: docs/guide.md
//! describes them, and a field may be added but not renamed.

use crate::output::table;
use serde::{Deserialize, Serialize};
use weir_model::{Bytes, Nanos};

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
    /// Writes.
    pub writes: Commands,
    /// Flushes.
    pub flushes: Commands,
    /// Commands a paced device answered later than its model wanted.
    pub overruns: u64,
    /// Whether there were so many overruns (above 1 %) that the figures say nothing of the model.
    pub figures_invalid: bool,
}

/// Commands of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Commands {
    /// How many ended.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Their response times, from submission to completion, added up.
    pub response_ns: u64,
    /// How many failed.
    pub failed: u64,
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
}

impl Commands {
    /// What was done since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            response_ns: self.response_ns.saturating_sub(earlier.response_ns),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }
    /// The mean response; `None` if there was none.
    pub fn mean(self) -> Option<Nanos> {
        self.response_ns.checked_div(self.count).map(Nanos)
    }
    /// Of both kinds together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            response_ns: self.response_ns + other.response_ns,
            failed: self.failed + other.failed,
        }
    }
}

/// Commands that came too late, of all of a paced device's: above this the figures are invalid.
pub const OVERRUNS_MAX: f64 = 0.01;

impl Status {
    /// For people.
    pub fn human(&self) -> String {
        let pool = &self.pool;
        let size = |bytes| Bytes(bytes).to_string();
        let mut text = format!(
            "pool {} ({}), {}, policy {}, extents of {}\n\n",
            pool.name,
            pool.id,
            pool.state,
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
                    commands(traffic.reads),
                    commands(traffic.writes),
                    commands(traffic.flushes),
                    traffic.reads.and(traffic.writes).and(traffic.flushes).failed.to_string(),
                    device.notes(),
                ]
            }),
        );
        text.push('\n');
        text + &volumes_table(&self.volumes)
    }

    /// What must be said about devices whose figures are not to be trusted.
    pub fn warnings(&self) -> Vec<String> {
        let invalid = self.devices.iter().filter(|device| device.traffic.is_some_and(|t| t.figures_invalid));
        invalid
            .map(|device| {
                let traffic = device.traffic.unwrap_or_default();
                let commands = traffic.reads.and(traffic.writes).and(traffic.flushes).count.max(1);
                format!(
                    "figures invalid: device {} answered {:.1} % of its commands later than its model {} wanted; \
                     this machine is too slow or too busy for it, or its file is not in memory",
                    device.name,
                    100.0 * traffic.overruns as f64 / commands as f64,
                    device.pace.as_deref().unwrap_or_default(),
                )
            })
            .collect()
    }
}

impl DevicePart {
    fn notes(&self) -> String {
        let pace = self.pace.as_ref().map(|pace| format!("paced as {pace}"));
        let metadata = self.metadata.then(|| "metadata".to_owned());
        let invalid = self.traffic.filter(|traffic| traffic.figures_invalid).map(|_| "figures invalid".to_owned());
        [metadata, pace, invalid].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// The volumes, for people.
pub fn volumes_table(volumes: &[VolumePart]) -> String {
    if volumes.is_empty() {
        return "no volumes; make one with: weir volume create NAME --size 100GiB\n".into();
    }
    table(
        ["VOLUME", "SIZE", "USED"],
        volumes.iter().map(|volume| {
            [volume.name.clone(), Bytes(volume.size_bytes).to_string(), Bytes(volume.used_bytes).to_string()]
        }),
    )
}

fn commands(commands: Commands) -> String {
    match commands.mean() {
        None => "-".into(),
        Some(mean) => format!("{} in {mean}", commands.count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_and_warned_about() {
        let reads = Commands { count: 100, bytes: 409_600, response_ns: 1_000_000, failed: 1 };
        let traffic = Traffic { reads, overruns: 5, figures_invalid: true, ..Traffic::default() };
        let device = DevicePart {
            name: "slow".into(),
            pace: Some("hdd-7200".into()),
            traffic: Some(traffic),
            metadata: true,
            ..DevicePart::default()
        };
        let status = Status { devices: vec![device], ..Status::default() };
        let text = status.human();
        for part in ["slow", "100 in 10.0 us", "metadata, paced as hdd-7200, figures invalid", "weir volume create"] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(status.warnings()[0].contains("5.0 %"), "{:?}", status.warnings());
        let json = serde_json::to_string(&status).expect("it is JSON");
        assert_eq!(serde_json::from_str::<Status>(&json).ok(), Some(status));
    }
}
