//! Validation and fitting of disk models: how well a model predicts service times measured on a real drive,
//! and fitting its parameters to such times.
//!
//! The input is a list of requests with issue times and measured service times. The model gets only the issue
//! times and predicts each service time ([`predict`]); [`compare`] compares the prediction with the
//! measurement. [`fit`] adjusts the parameters that are not published, or not precisely enough: the rotation
//! time to a few parts in a hundred million and the angle at which each zone begins (`spin.rs`), the
//! controller's times, the link, and the offset and scale of the seek curve (`descent.rs`). Layout, skews and
//! buffer stay unchanged.

use crate::disk::DiskParams;
use crate::{Disk, Timing, WriteCache};
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos, SECTOR};

mod accuracy;
mod descent;
mod spin;

pub use accuracy::{Accuracy, compare};

/// A request with its measured service time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Issue time, from some origin.
    pub at: Nanos,
    /// Read or write.
    pub kind: IoKind,
    /// Offset of the first byte.
    pub offset: DeviceOffset,
    /// Length.
    pub len: Bytes,
    /// Measured time from the issue to the completion.
    pub service_time: Nanos,
}

/// Position of the gap in a record, relative to the record's own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Between the completion of the previous request and the issue of the record's.
    Before,
    /// Between the completion of the record's request and the issue of the next.
    After,
}

/// A line of a trace that is not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine(
    /// Line number, from 1.
    pub usize,
);

impl std::fmt::Display for BadLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "line {}: a record is R or W, a word, first sector, sectors, service time and gap in us",
            self.0
        )
    }
}

impl std::error::Error for BadLine {}

/// Parses a validation trace of DiskSim: per line `R` or `W`, a word, first sector, sectors, measured service
/// time and gap, both in microseconds.
///
/// # Errors
/// Returns the first line that is not such a record.
pub fn parse(text: &str, gap: Gap) -> Result<Vec<Sample>, BadLine> {
    let mut now = Nanos(0);
    let mut samples = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (mut sample, pause) = record(line).ok_or(BadLine(number + 1))?;
        if gap == Gap::Before {
            now += pause;
        }
        sample.at = now;
        now += sample.service_time;
        if gap == Gap::After {
            now += pause;
        }
        samples.push(sample);
    }
    Ok(samples)
}

fn record(line: &str) -> Option<(Sample, Nanos)> {
    let mut words = line.split_ascii_whitespace();
    let kind = match words.next()? {
        "R" => IoKind::Read,
        "W" => IoKind::Write { fua: false },
        _ => return None,
    };
    let first: u64 = words.nth(1)?.parse().ok()?;
    let sectors: u64 = words.next()?.parse().ok()?;
    let mut time = || words.next()?.parse::<f64>().ok().filter(|us| (0.0..1e12).contains(us));
    let (took, pause) = (time()?, time()?);
    let nanos = |us: f64| Nanos((us * 1e3).round() as u64);
    let offset = DeviceOffset(first.checked_mul(SECTOR)?);
    let len = Bytes(sectors.checked_mul(SECTOR)?);
    Some((Sample { at: Nanos(0), kind, offset, len, service_time: nanos(took) }, nanos(pause)))
}

/// Predicts the service time of each request with the model, at the given issue times.
pub fn predict(params: &DiskParams, cache: WriteCache, samples: &[Sample]) -> Vec<Nanos> {
    let mut disk = Disk::new(params, params.capacity(), cache);
    let mut took = vec![Nanos(0); samples.len()];
    let mut collect = |disk: &mut Disk, until: Nanos| {
        while let Some(due) = disk.next().filter(|due| *due <= until) {
            if let Some(IoId(id)) = disk.pop(due) {
                took[id as usize] = due - samples[id as usize].at;
            }
        }
    };
    for (id, sample) in (0..).zip(samples) {
        collect(&mut disk, sample.at);
        disk.submit(sample.at, IoId(id), sample.kind, sample.offset, sample.len);
    }
    collect(&mut disk, Nanos::MAX);
    took
}

/// Fits the model to these samples. It replays them about a hundred times.
pub fn fit(params: &DiskParams, cache: WriteCache, samples: &[Sample]) -> DiskParams {
    let mut params = params.clone();
    spin::align(&mut params, cache, samples);
    descent::descend(&mut params, cache, samples);
    spin::align(&mut params, cache, samples);
    params
}

/// Selects the times of the reads or of the writes, which are judged separately.
pub fn select_times(samples: &[Sample], times: &[Nanos], reads: bool) -> Vec<Nanos> {
    let kept = samples.iter().zip(times).filter(|(sample, _)| (sample.kind == IoKind::Read) == reads);
    kept.map(|(_, &time)| time).collect()
}

#[cfg(test)]
mod tests;
