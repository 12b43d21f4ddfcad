//! The outcome of an experiment.

use super::endurance::DeviceEndurance;
use super::meter::Meter;
use crate::load::ramp::{RampStep, RampStepPart};
use crate::responses::{Responses, ResponsesPart};
use schemars::JsonSchema;
use serde::Serialize;
use weir_engine::Spread;
use weir_model::{Bytes, Nanos};

/// The result of one policy.
// In JSON times are in nanoseconds and end in `_ns`, sizes are in bytes and end in `_bytes`.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Outcome {
    /// The placement policy.
    pub policy: String,
    /// Bytes per day that it may write to flash; absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_budget_bytes: Option<u64>,
    /// Virtual time that was measured, after the warm-up.
    #[serde(rename = "measured_ns", serialize_with = "nanos")]
    #[schemars(with = "u64")]
    pub measured: Nanos,
    /// Requests that arrived in that time.
    pub requests: u64,
    /// Requests of these that were not answered within as much time again: the pool cannot keep up.
    pub unanswered: u64,
    /// Requests answered per second.
    #[serde(rename = "requests_per_second")]
    pub rate: f64,
    /// Bytes of answered requests a second.
    #[serde(rename = "bytes_per_second")]
    pub bytes_rate: f64,
    /// Work a second that the load counts itself: transactions, operations or bytes. Absent if it counts
    /// none.
    #[serde(rename = "work_per_second", skip_serializing_if = "Option::is_none")]
    pub work_rate: Option<f64>,
    /// Bytes that the load's programs read and wrote a second, in memory or not, if it counts them.
    #[serde(skip)]
    pub transfer_rates: Option<[f64; 2]>,
    /// Response times of all requests.
    #[schemars(with = "ResponsesPart")]
    pub all: Responses,
    /// Response times of reads.
    #[schemars(with = "ResponsesPart")]
    pub reads: Responses,
    /// Response times of writes and TRIMs.
    #[schemars(with = "ResponsesPart")]
    pub writes: Responses,
    /// The devices, in the order of the pool file.
    pub devices: Vec<DeviceOutcome>,
    /// Bytes copied from one place to another.
    #[serde(rename = "migrated_bytes", serialize_with = "bytes")]
    #[schemars(with = "u64")]
    pub moved: Bytes,
    /// What migration and redirection gained or cost, as the engine estimates from sampled commands; `null`
    /// if there were too few to judge.
    #[serde(rename = "migration_estimate")]
    pub estimate: Option<EstimateOutcome>,
    /// Distribution of extents over the devices at the end.
    #[serde(skip)]
    pub spread: Spread,
    /// Times that the engine stopped migration because it made commands slower.
    pub stops: u32,
    /// The run in windows of time, warm-up included.
    #[schemars(with = "Vec<WindowPart>")]
    pub windows: Vec<Window>,
    /// The steps of the ramp by which the load arrived; absent if it arrived otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<RampStepPart>")]
    pub ramp: Vec<RampStep>,
    /// Virtual time at which the load began: the pool is filled before.
    #[serde(skip)]
    pub start: Nanos,
    /// Data commands by device from the start of the load to the end, including the mover's.
    #[serde(skip)]
    pub commands: Vec<Commands>,
    /// Digest, in hexadecimal, of the seed and of everything that happened: two runs share it only if they
    /// are the same.
    #[serde(serialize_with = "hexadecimal")]
    #[schemars(with = "String")]
    pub digest: u64,
}

/// The cost of sampled commands, and their counterfactual cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "MigrationEstimate")]
pub struct EstimateOutcome {
    /// Sampled commands.
    pub commands: u64,
    /// Mean cost of a sampled command, from its size and the queue of its device.
    #[serde(rename = "mean_ns", serialize_with = "nanos")]
    #[schemars(with = "u64")]
    pub mean: Nanos,
    /// Counterfactual mean cost of these commands had nothing migrated.
    #[serde(rename = "counterfactual_mean_ns", serialize_with = "nanos")]
    #[schemars(with = "u64")]
    pub without: Nanos,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Device")]
pub struct DeviceOutcome {
    /// The name in the pool file.
    pub name: String,
    /// The modelled drive.
    pub model: String,
    /// Capacity for data.
    #[serde(rename = "capacity_bytes", serialize_with = "bytes")]
    #[schemars(with = "u64")]
    pub room: Bytes,
    /// Capacity in use at the end.
    #[serde(rename = "used_bytes", serialize_with = "bytes")]
    #[schemars(with = "u64")]
    pub used: Bytes,
    /// Share of the reads and writes of all devices that this one carried out, 0 to 1.
    pub share: f64,
    /// Share of clients' commands that this device carried out, 0 to 1.
    #[serde(rename = "client_share")]
    pub served: f64,
    /// Share of the time in which it had a command in flight, 0 to 1.
    #[serde(rename = "busy_share")]
    pub load: f64,
    /// Mean number of commands in flight.
    #[serde(rename = "queue_depth")]
    pub queue: f64,
    /// Reads.
    #[schemars(with = "DirectionPart")]
    pub reads: DirectionOutcome,
    /// Writes.
    #[schemars(with = "DirectionPart")]
    pub writes: DirectionOutcome,
    /// Bytes of the map that were read or written.
    #[serde(rename = "metadata_transferred_bytes", serialize_with = "bytes")]
    #[schemars(with = "u64")]
    pub metadata: Bytes,
    /// Endurance of its flash; absent if that was not asked for, or the drive is no flash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endurance: Option<DeviceEndurance>,
}

/// A device's commands in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(into = "DirectionPart")]
pub struct DirectionOutcome {
    /// Commands.
    pub count: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Their mean response time.
    pub mean: Nanos,
}

/// Commands of a device in one direction.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Commands")]
struct DirectionPart {
    /// Commands.
    count: u64,
    /// Bytes that they transferred.
    bytes: u64,
    /// Mean response time; `null` if there were none.
    mean_ns: Option<u64>,
}

/// A device's commands for data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read: Bytes,
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub written: Bytes,
}

impl Commands {
    pub(crate) fn of(meter: &Meter) -> Self {
        let (reads, writes) =
            (meter.reads.since(meter.metadata_reads), meter.writes.since(meter.metadata_writes));
        Self { reads: reads.count, read: reads.bytes, writes: writes.count, written: writes.bytes }
    }
}

/// A window of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "WindowPart")]
pub struct Window {
    /// Start of the window, from the start of the load.
    pub start: Nanos,
    /// Requests answered per second.
    pub rate: f64,
    /// The load's own unit of work, per second.
    pub work: f64,
    /// Mean response time; zero if there were no requests.
    pub mean: Nanos,
    /// The 99th percentile of their responses.
    pub p99: Nanos,
    /// Bytes that the mover copied.
    pub moved: Bytes,
    /// Utilization of each device.
    pub loads: Vec<f64>,
    /// Share of each device in all reads and writes.
    pub shares: Vec<f64>,
    /// Bytes that each device read and wrote, and its capacity in use at the end of the window.
    pub devices: Vec<DeviceWindow>,
}

/// A device in a window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceWindow {
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Capacity in use at the end.
    pub used: Bytes,
}

/// A window of time of a run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Window")]
struct WindowPart {
    /// Start of the window, counted from the start of the load.
    start_ns: u64,
    /// Requests answered a second.
    requests_per_second: f64,
    /// Work a second that the load counts itself; 0 if it counts none.
    work_per_second: f64,
    /// Mean response time; `null` if no request was answered.
    mean_ns: Option<u64>,
    /// 99th percentile of the response times; `null` if no request was answered.
    p99_ns: Option<u64>,
    /// Bytes copied from one place to another.
    migrated_bytes: u64,
    /// For each device, in the order of `devices`: the share of the time in which it had a command in flight.
    busy_shares: Vec<f64>,
    /// For each device, in the order of `devices`: its share of the reads and writes of all devices.
    shares: Vec<f64>,
}

impl From<DirectionOutcome> for DirectionPart {
    fn from(outcome: DirectionOutcome) -> Self {
        let DirectionOutcome { count, bytes, mean } = outcome;
        Self { count, bytes: bytes.0, mean_ns: (count > 0).then_some(mean.0) }
    }
}

impl From<Window> for WindowPart {
    fn from(window: Window) -> Self {
        let answered = |time: Nanos| (window.rate > 0.0).then_some(time.0);
        Self {
            start_ns: window.start.0,
            requests_per_second: window.rate,
            work_per_second: window.work,
            mean_ns: answered(window.mean),
            p99_ns: answered(window.p99),
            migrated_bytes: window.moved.0,
            busy_shares: window.loads,
            shares: window.shares,
        }
    }
}

impl Outcome {
    /// Returns the share of clients' commands that flash carried out, 0 to 1, if endurance was asked for.
    pub fn flash_share(&self) -> f64 {
        let flash = self.devices.iter().filter(|device| device.endurance.is_some());
        flash.map(|device| device.served).sum()
    }

    /// Returns a warning with figures if the pool could not keep up.
    pub fn cannot_keep_up(&self) -> Option<String> {
        (self.unanswered > 0).then(|| {
            let seconds = self.measured.as_secs_f64().max(1e-9);
            format!(
                "cannot keep up: {:.0} of {:.0} requests/s answered, {} of {} requests never",
                self.rate,
                self.requests as f64 / seconds,
                self.unanswered,
                self.requests
            )
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn nanos<S: serde::Serializer>(time: &Nanos, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(time.0)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn bytes<S: serde::Serializer>(size: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(size.0)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn hexadecimal<S: serde::Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{number:016x}"))
}

/// Returns each device's share of all reads and writes.
pub(crate) fn shares(meters: &[Meter]) -> Vec<f64> {
    let counts: Vec<_> = meters.iter().map(|meter| meter.reads.count + meter.writes.count).collect();
    shares_of(&counts)
}

/// Returns each count as a share of the sum.
pub(crate) fn shares_of(counts: &[u64]) -> Vec<f64> {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|count| *count as f64 / all).collect()
}

/// Returns the utilization of each device over `time`.
pub(crate) fn loads(meters: &[Meter], time: Nanos) -> Vec<f64> {
    meters.iter().map(|meter| meter.busy.0 as f64 / time.0.max(1) as f64).collect()
}
