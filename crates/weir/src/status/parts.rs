//! Measurements of devices and of migration, as part of the status.

use super::DevicePart;
use crate::output::{Width, table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_engine::{CacheStatus, Load, MoverShare, MoverStatus, MovesStatus, ResponsesBySize};
use weir_model::{BLOCK, Bytes, Nanos};

/// The load of a device over the last complete second, or longer if no command has ended since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Load")]
pub struct LoadPart {
    /// Reads a second.
    pub reads_per_second: f64,
    /// Writes a second.
    pub writes_per_second: f64,
    /// Bytes read a second.
    pub read_bytes_per_second: f64,
    /// Bytes written a second.
    pub written_bytes_per_second: f64,
    /// Share of the time in which it had a command in flight, 0 to 1.
    pub busy_share: f64,
    /// Mean number of commands in flight.
    pub queue_depth: f64,
}

impl From<Load> for LoadPart {
    fn from(load: Load) -> Self {
        Self {
            reads_per_second: load.reads,
            writes_per_second: load.writes,
            read_bytes_per_second: load.read_bytes,
            written_bytes_per_second: load.written_bytes,
            busy_share: load.busy,
            queue_depth: load.depth,
        }
    }
}

impl LoadPart {
    /// Formats the load for people.
    pub(super) fn human(self) -> String {
        format!("{:.0} %, {:.1} deep", 100.0 * self.busy_share, self.queue_depth)
    }
}

/// The extent cache in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ExtentCache")]
pub struct CachePart {
    /// Memory that it may use; 0 if there is no cache.
    pub size_bytes: u64,
    /// Memory that it uses.
    pub used_bytes: u64,
    /// Parts of reads, by extent, that it answered since the server started.
    pub hits: u64,
    /// Parts of reads, by extent, that it did not answer.
    pub misses: u64,
}

impl From<CacheStatus> for CachePart {
    fn from(cache: CacheStatus) -> Self {
        let CacheStatus { size, memory_used: held, hits, misses } = cache;
        Self { size_bytes: size.get(), used_bytes: held.get(), hits, misses }
    }
}

/// Migrations since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Migration")]
pub struct MigrationPart {
    /// Migrations and copies in flight.
    pub in_flight: u64,
    /// Bytes copied to another place.
    pub copied_bytes: u64,
    /// Bytes dropped from one of several places.
    pub dropped_bytes: u64,
    /// Bytes not copied because a client overwrote them meanwhile.
    pub overwritten_bytes: u64,
    /// Bytes copied from a client's read, so that the mover did not read them.
    #[serde(default)]
    pub piggybacked_bytes: u64,
}

impl From<MoverStatus> for MigrationPart {
    fn from(mover: MoverStatus) -> Self {
        Self {
            in_flight: mover.in_flight as u64,
            copied_bytes: mover.copied * BLOCK,
            dropped_bytes: mover.dropped * BLOCK,
            overwritten_bytes: mover.skipped * BLOCK,
            piggybacked_bytes: mover.piggybacked * BLOCK,
        }
    }
}

/// What migration gains or costs, as the engine estimates from sampled commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MigrationEstimate {
    /// Time for which migration stays stopped, because it made commands slower; `null` while it is not
    /// stopped.
    pub stopped_ns: Option<u64>,
    /// Times that migration was stopped since the server started, or the policy was set.
    pub stops: u32,
    /// Sampled commands in the last complete window; 0 before the first.
    pub commands: u64,
    /// Mean cost of a sampled command, from its size and the queue of its device.
    pub mean_ns: u64,
    /// Counterfactual mean cost of these commands had nothing migrated.
    pub counterfactual_mean_ns: u64,
}

impl From<MovesStatus> for MigrationEstimate {
    fn from(moves: MovesStatus) -> Self {
        let last = moves.last_window.unwrap_or_default();
        let (took, without) = last.mean();
        Self {
            stopped_ns: moves.stopped.map(Nanos::get),
            stops: moves.stops,
            commands: last.commands,
            mean_ns: took.get(),
            counterfactual_mean_ns: without.get(),
        }
    }
}

impl MigrationEstimate {
    /// Returns the warning about the migration of `policy`, if there is one.
    pub fn warning(&self, policy: &str) -> Option<String> {
        let (took, without) = (Nanos(self.mean_ns), Nanos(self.counterfactual_mean_ns));
        let again = Nanos(self.stopped_ns?);
        Some(format!(
            "policy {policy} moves nothing for {again}: requests took {took}, and would have taken {without} had \
             nothing moved; it then tries again"
        ))
    }

    /// Formats for people what migration gained or cost; `None` if nothing is known.
    pub fn human(&self) -> Option<String> {
        let (took, without) = (Nanos(self.mean_ns), Nanos(self.counterfactual_mean_ns));
        (self.commands > 0).then(|| format!("{took} a command, and without moves {without}, as estimated"))
    }
}

/// The share of a device that the mover may use, and has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Mover")]
pub struct MoverPart {
    /// Most of the device's time that the mover may use while clients use it, 0 to 1: `mover_share`, which is
    /// halved as long as migration delays clients' commands.
    pub share: f64,
    /// Service time that the mover has used since the server started.
    pub service_time_ns: u64,
    /// 99th percentile of the response times of clients' commands that met no migration; `null` before the
    /// first.
    pub p99_ns: Option<u64>,
    /// 99th percentile of the response times of clients' commands that met a migration; `null` before the
    /// first.
    pub p99_during_migration_ns: Option<u64>,
}

impl From<MoverShare> for MoverPart {
    fn from(mover: MoverShare) -> Self {
        Self {
            share: mover.share,
            service_time_ns: mover.service_time.get(),
            p99_ns: mover.p99.map(Nanos::get),
            p99_during_migration_ns: mover.p99_during_moves.map(Nanos::get),
        }
    }
}

/// Response times of commands in one direction and of similar size. Percentiles are up to an eighth too high.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Responses")]
pub struct ResponsesPart {
    /// `reads` or `writes`.
    #[schemars(extend("enum" = ["reads", "writes"]))]
    pub direction: String,
    /// Size of the longest of these commands; `null` for the class above 256 KiB.
    pub up_to_bytes: Option<u64>,
    /// Commands that ended.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

impl From<&ResponsesBySize> for ResponsesPart {
    fn from(part: &ResponsesBySize) -> Self {
        let responses = part.responses;
        Self {
            direction: if part.write { "writes" } else { "reads" }.to_owned(),
            up_to_bytes: part.size.max_len().map(Bytes::get),
            count: responses.count,
            p50_ns: responses.median.get(),
            p99_ns: responses.p99.get(),
            p999_ns: responses.p999.get(),
            max_ns: responses.longest.get(),
        }
    }
}

impl ResponsesPart {
    fn size(&self) -> String {
        self.up_to_bytes.map_or_else(|| "longer".to_owned(), |most| format!("to {}", Bytes(most)))
    }
}

/// Returns the table of the response times of all devices for people; empty if there are none.
pub(super) fn responses_table(devices: &[DevicePart], width: Width) -> String {
    let rows = devices.iter().flat_map(|device| device.responses.iter().map(move |part| (device, part)));
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    let time = |ns| Nanos(ns).to_string();
    let cells = rows.map(|(device, part)| {
        [
            device.name.clone(),
            format!("{} {}", part.direction, part.size()),
            part.count.to_string(),
            time(part.p50_ns),
            time(part.p99_ns),
            time(part.p999_ns),
            time(part.max_ns),
        ]
    });
    format!(
        "\n{}",
        table(width, ["DEVICE", "RESPONSES TO", "COUNT", "MEDIAN", "P99", "P99.9", "LONGEST"], cells)
    )
}
