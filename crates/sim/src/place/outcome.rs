//! The outcome of an experiment.

use super::meter::Meter;
use hdrhistogram::Histogram;
use serde::Serialize;
use serde::ser::SerializeStruct as _;
use weir_engine::Spread;
use weir_model::{Bytes, Nanos};

/// The outcome of one policy. In JSON, times are nanoseconds and end in `_ns`, sizes are bytes and end in
/// `_bytes`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Policy name.
    pub policy: String,
    /// Virtual time measured, after the warm-up.
    #[serde(rename = "measured_ns", serialize_with = "nanos")]
    pub measured: Nanos,
    /// Requests that arrived in that time.
    pub requests: u64,
    /// Of these, requests not answered within the same time again: the pool could not keep up.
    pub unanswered: u64,
    /// Requests answered per second.
    #[serde(rename = "requests_per_second")]
    pub rate: f64,
    /// Their bytes per second.
    #[serde(rename = "bytes_per_second")]
    pub bytes_rate: f64,
    /// The load's own unit of work (transactions, operations) per second, if it has one.
    #[serde(rename = "work_per_second", skip_serializing_if = "Option::is_none")]
    pub work_rate: Option<f64>,
    /// Response times of all requests, of reads, and of writes (including TRIMs).
    pub all: Responses,
    /// Response times of reads.
    pub reads: Responses,
    /// Response times of writes.
    pub writes: Responses,
    /// The devices, in the pool's order.
    pub devices: Vec<DeviceOutcome>,
    /// Bytes that the mover copied.
    #[serde(rename = "moved_bytes", serialize_with = "bytes")]
    pub moved: Bytes,
    /// The engine's own estimate of the effect of migration and redirection; `None` if it could not judge.
    pub estimate: Option<EstimateOutcome>,
    /// Distribution of extents over the devices at the end.
    #[serde(skip)]
    pub spread: Spread,
    /// Number of times the engine stopped migration because of it.
    pub stops: u32,
    /// The same figures over time, including the warm-up.
    pub windows: Vec<Window>,
    /// Data commands by device from the start of the load to the end, including the mover's.
    #[serde(skip)]
    pub commands: Vec<Commands>,
    /// Digest of the seed and all events: two runs have the same digest only if they were identical.
    #[serde(serialize_with = "hexadecimal")]
    pub digest: u64,
}

/// Estimated service times of the commands of sampled extents: actual, and counterfactual without migration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EstimateOutcome {
    /// Number of commands.
    pub commands: u64,
    /// Mean service time.
    #[serde(rename = "mean_ns", serialize_with = "nanos")]
    pub mean: Nanos,
    /// Mean counterfactual service time without migration.
    #[serde(rename = "without_ns", serialize_with = "nanos")]
    pub without: Nanos,
}

/// Response times of requests. In JSON, times are `null` if there were no requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Responses {
    /// Number of requests.
    pub count: u64,
    /// Mean response time.
    pub mean: Nanos,
    /// Median.
    pub p50: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// 99.9th percentile.
    pub p999: Nanos,
    /// Maximum.
    pub max: Nanos,
}

/// Measurements of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceOutcome {
    /// Device name.
    pub name: String,
    /// Modelled drive.
    pub model: String,
    /// Space for data.
    #[serde(rename = "room_bytes", serialize_with = "bytes")]
    pub room: Bytes,
    /// Space used at the end.
    #[serde(rename = "used_bytes", serialize_with = "bytes")]
    pub used: Bytes,
    /// Its share of all devices' reads and writes, 0 to 1.
    pub share: f64,
    /// Its share of clients' reads and writes alone.
    pub served: f64,
    /// Utilization, 0 to 1.
    pub load: f64,
    /// Mean queue depth.
    pub queue: f64,
    /// Reads, their bytes and their mean response time.
    pub reads: DirectionOutcome,
    /// Writes, their bytes and their mean response time.
    pub writes: DirectionOutcome,
    /// Bytes of metadata read or written.
    #[serde(rename = "metadata_bytes", serialize_with = "bytes")]
    pub metadata: Bytes,
}

/// A device's commands in one direction. In JSON, the mean is `null` if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DirectionOutcome {
    /// Number of commands.
    pub count: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Mean response time.
    pub mean: Nanos,
}

/// A device's data commands.
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

/// Measurements of a time window. In JSON, its response times are `null` if no request was answered in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Start of the window, from the start of the load.
    pub start: Nanos,
    /// Requests answered per second.
    pub rate: f64,
    /// The load's own unit of work, per second.
    pub work: f64,
    /// Mean response time; zero if there were no requests.
    pub mean: Nanos,
    /// 99th percentile of the response times.
    pub p99: Nanos,
    /// Bytes that the mover copied.
    pub moved: Bytes,
    /// Utilization of each device.
    pub loads: Vec<f64>,
    /// Share of each device in all reads and writes.
    pub shares: Vec<f64>,
}

impl Responses {
    /// Returns one of the response times; `None` if there were no requests.
    pub fn known(&self, time: Nanos) -> Option<Nanos> {
        (self.count > 0).then_some(time)
    }

    /// Returns a warning if the slowest 1 % of the requests account for most of the mean, which is then far
    /// above the 99th percentile.
    pub fn heavy_tail(&self) -> Option<String> {
        let Self { mean, p99, p999, max, .. } = *self;
        // The largest possible contribution of the other requests to the mean.
        let others = 0.99 * p99.as_secs_f64();
        let share = 1.0 - others / mean.as_secs_f64().max(f64::MIN_POSITIVE);
        (self.count > 0 && share > 0.5).then(|| {
            format!(
                "the mean ({mean}) is above what 99 of 100 requests take ({p99}): the slowest 1 in 100 make \
                 up {:.0} % of it or more (999 of 1000 take at most {p999}, the slowest {max}), as where a \
                 burst comes faster than the devices answer",
                (share * 100.0).floor()
            )
        })
    }
}

impl Serialize for Responses {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let time = |time| self.known(time).map(|time| time.0);
        let mut fields = to.serialize_struct("Responses", 6)?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("mean_ns", &time(self.mean))?;
        fields.serialize_field("p50_ns", &time(self.p50))?;
        fields.serialize_field("p99_ns", &time(self.p99))?;
        fields.serialize_field("p999_ns", &time(self.p999))?;
        fields.serialize_field("max_ns", &time(self.max))?;
        fields.end()
    }
}

impl Serialize for DirectionOutcome {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("DirectionOutcome", 3)?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("bytes", &self.bytes.0)?;
        fields.serialize_field("mean_ns", &(self.count > 0).then_some(self.mean.0))?;
        fields.end()
    }
}

impl Serialize for Window {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let answered = |time: Nanos| (self.rate > 0.0).then_some(time.0);
        let mut fields = to.serialize_struct("Window", 8)?;
        fields.serialize_field("start_ns", &self.start.0)?;
        fields.serialize_field("requests_per_second", &self.rate)?;
        fields.serialize_field("work_per_second", &self.work)?;
        fields.serialize_field("mean_ns", &answered(self.mean))?;
        fields.serialize_field("p99_ns", &answered(self.p99))?;
        fields.serialize_field("moved_bytes", &self.moved.0)?;
        fields.serialize_field("loads", &self.loads)?;
        fields.serialize_field("shares", &self.shares)?;
        fields.end()
    }
}

impl Outcome {
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

/// Collects response times.
#[derive(Clone, Debug)]
pub(crate) struct Collected(Histogram<u64>);

impl Collected {
    pub(crate) fn new() -> Self {
        // Three digits, over the whole range of times.
        Self(Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are possible")))
    }

    #[inline]
    pub(crate) fn add(&mut self, response: Nanos) {
        // The histogram resizes itself, so recording never fails.
        let _always = self.0.record(response.0);
    }

    /// Adds the times of another collection.
    pub(crate) fn merge(&mut self, other: &Self) {
        // The histogram resizes itself, so adding never fails.
        let _always = self.0.add(&other.0);
    }

    pub(crate) fn take(&mut self) -> Responses {
        let responses = self.responses();
        self.0.reset();
        responses
    }

    pub(crate) fn responses(&self) -> Responses {
        if self.0.is_empty() {
            return Responses::default();
        }
        let quantile = |q| Nanos(self.0.value_at_quantile(q));
        Responses {
            count: self.0.len(),
            mean: Nanos(self.0.mean() as u64),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: Nanos(self.0.max()),
        }
    }
}

/// Returns each device's share of all reads and writes.
pub(crate) fn shares(meters: &[Meter]) -> Vec<f64> {
    let counts: Vec<_> = meters.iter().map(|meter| meter.reads.count + meter.writes.count).collect();
    parts(&counts)
}

/// Returns each count as a share of the sum.
pub(crate) fn parts(counts: &[u64]) -> Vec<f64> {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|count| *count as f64 / all).collect()
}

/// Returns the utilization of each device over `time`.
pub(crate) fn loads(meters: &[Meter], time: Nanos) -> Vec<f64> {
    meters.iter().map(|meter| meter.busy.0 as f64 / time.0.max(1) as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_said_to_make_up_most_of_the_mean_only_where_it_must() {
        let of =
            |mean| Responses { count: 1000, mean: Nanos(mean), p99: Nanos(77_100), ..Responses::default() };
        // 99 of 100 may take 77.1 us each, which is 76.3 us of the mean.
        for mean in [77_000, 77_140, 99_000, 152_000] {
            assert_eq!(of(mean).heavy_tail(), None, "{mean}");
        }
        let said = of(308_000).heavy_tail().expect("a word");
        assert!(said.contains("the mean (308.0 us) is above"), "{said}");
        assert!(said.contains("the slowest 1 in 100 make up 75 % of it or more"), "{said}");
        assert_eq!(Responses { count: 0, ..of(308_000) }.heavy_tail(), None);
    }
}
