//! What an experiment came to.

use super::meter::Meter;
use hdrhistogram::Histogram;
use serde::Serialize;
use serde::ser::SerializeStruct as _;
use weir_engine::Spread;
use weir_model::{Bytes, Nanos};

/// What one policy came to. In JSON times are nanoseconds and end in `_ns`, sizes are bytes and end in
/// `_bytes`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: String,
    /// Virtual time measured, after the warm-up.
    #[serde(rename = "measured_ns", serialize_with = "nanos")]
    pub measured: Nanos,
    /// Requests that arrived in that time.
    pub requests: u64,
    /// Of them, not answered within as much time again: the pool could not keep up.
    pub unanswered: u64,
    /// Requests answered a second.
    #[serde(rename = "requests_per_second")]
    pub rate: f64,
    /// Bytes of them a second.
    #[serde(rename = "bytes_per_second")]
    pub bytes_rate: f64,
    /// What the load counts of its own work (transactions, operations) a second, if it does.
    #[serde(rename = "work_per_second", skip_serializing_if = "Option::is_none")]
    pub work_rate: Option<f64>,
    /// Responses to all, to reads and to writes (TRIMs among them).
    pub all: Responses,
    /// See there.
    pub reads: Responses,
    /// See there.
    pub writes: Responses,
    /// The devices, in the pool's order.
    pub devices: Vec<DeviceOutcome>,
    /// Bytes copied from one place to another.
    #[serde(rename = "moved_bytes", serialize_with = "bytes")]
    pub moved: Bytes,
    /// What moving and redirecting came to by the engine's own estimate; `None` if it could not judge.
    pub estimate: Option<EstimateOutcome>,
    /// How extents lie on the devices at the end.
    #[serde(skip)]
    pub spread: Spread,
    /// How often the engine stopped moves for it.
    pub stops: u32,
    /// The same, as it went, warm-up included.
    pub windows: Vec<Window>,
    /// By device, its commands for data from the load's start to the end, the mover's among them.
    #[serde(skip)]
    pub commands: Vec<Commands>,
    /// Of the seed and everything that happened: two runs share it only if they were the same.
    #[serde(serialize_with = "hexadecimal")]
    pub digest: u64,
}

/// What the commands of sampled extents took, by their price, and would have taken had nothing moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EstimateOutcome {
    /// How many there were.
    pub commands: u64,
    /// What one took on average.
    #[serde(rename = "mean_ns", serialize_with = "nanos")]
    pub mean: Nanos,
    /// … and would have taken.
    #[serde(rename = "without_ns", serialize_with = "nanos")]
    pub without: Nanos,
}

/// How long requests took. In JSON times are `null` if there were none: no request took no time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Responses {
    /// Requests.
    pub count: u64,
    /// Their mean response.
    pub mean: Nanos,
    /// Half of them took no longer.
    pub p50: Nanos,
    /// … 99 of 100.
    pub p99: Nanos,
    /// … 999 of 1000.
    pub p999: Nanos,
    /// The longest.
    pub max: Nanos,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceOutcome {
    /// Its name.
    pub name: String,
    /// The drive it is modelled after.
    pub model: String,
    /// Room for data.
    #[serde(rename = "room_bytes", serialize_with = "bytes")]
    pub room: Bytes,
    /// Of it, taken at the end.
    #[serde(rename = "used_bytes", serialize_with = "bytes")]
    pub used: Bytes,
    /// What of all devices' reads and writes it carried out, 0 to 1.
    pub share: f64,
    /// … of clients' alone.
    pub served: f64,
    /// The share of time in which it had something to do, 0 to 1.
    pub load: f64,
    /// Commands it had on average.
    pub queue: f64,
    /// Reads, their bytes and their mean response.
    pub reads: DirectionOutcome,
    /// Writes likewise.
    pub writes: DirectionOutcome,
    /// Bytes of the map's, read or written.
    #[serde(rename = "metadata_bytes", serialize_with = "bytes")]
    pub metadata: Bytes,
}

/// A device's commands in one direction. In JSON the mean is `null` if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DirectionOutcome {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Mean response.
    pub mean: Nanos,
}

/// A device's commands for data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Reads.
    pub reads: u64,
    /// Their bytes.
    pub read: Bytes,
    /// Writes.
    pub writes: u64,
    /// Their bytes.
    pub written: Bytes,
}

impl Commands {
    pub(crate) fn of(meter: &Meter) -> Self {
        let (reads, writes) =
            (meter.reads.since(meter.metadata_reads), meter.writes.since(meter.metadata_writes));
        Self { reads: reads.count, read: reads.bytes, writes: writes.count, written: writes.bytes }
    }
}

/// A stretch of time. In JSON its responses are `null` if nothing was answered in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Its start, from the load's.
    pub start: Nanos,
    /// Requests answered in it a second.
    pub rate: f64,
    /// What the load counts of its own work, a second.
    pub work: f64,
    /// Their mean response; zero if there were none.
    pub mean: Nanos,
    /// … and what 99 of 100 took at most.
    pub p99: Nanos,
    /// Bytes moved in it.
    pub moved: Bytes,
    /// The share of time each device had something to do.
    pub loads: Vec<f64>,
    /// What each device carried out of all reads and writes.
    pub shares: Vec<f64>,
}

impl Responses {
    /// A time of theirs; `None` if there were none.
    pub fn known(&self, time: Nanos) -> Option<Nanos> {
        (self.count > 0).then_some(time)
    }

    /// What is to be said where the slowest of 100 requests make up most of the mean: it is far above what 99
    /// of 100 take.
    pub fn heavy_tail(&self) -> Option<String> {
        let Self { mean, p99, p999, max, .. } = *self;
        // The others take this much of the mean at most.
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
    /// What is to be said where the pool could not keep up: by how much.
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

/// Responses as they are collected.
#[derive(Clone, Debug)]
pub(crate) struct Collected(Histogram<u64>);

impl Collected {
    pub(crate) fn new() -> Self {
        // Three digits, as long as times go.
        Self(Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are possible")))
    }

    #[inline]
    pub(crate) fn add(&mut self, response: Nanos) {
        // It grows to hold whatever comes.
        let _always = self.0.record(response.0);
    }

    /// With what another one has.
    pub(crate) fn merge(&mut self, other: &Self) {
        // It grows to hold whatever comes.
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

/// What each device carried out of all reads and writes.
pub(crate) fn shares(meters: &[Meter]) -> Vec<f64> {
    let counts: Vec<_> = meters.iter().map(|meter| meter.reads.count + meter.writes.count).collect();
    parts(&counts)
}

/// Each count as a part of all.
pub(crate) fn parts(counts: &[u64]) -> Vec<f64> {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|count| *count as f64 / all).collect()
}

/// The share of `time` in which each device had something to do.
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
