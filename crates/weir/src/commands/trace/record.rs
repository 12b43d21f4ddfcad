//! `weir trace record` records the requests to served volumes, or to a block device, as a trace.

mod device;
mod volumes;

use super::args::RecordArgs;
use super::output::{Output, TraceWriter, WriteOutcome, merged_disks_note};
use crate::failure::Failure;
use crate::signals::interruption;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_trace::Record;

/// Interval at which the recorder checks whether to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which the recorder saves the recorded requests. A killed recorder loses no more than that.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// The document of `weir trace record`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir trace record")]
pub(crate) struct Recorded {
    /// Names of the volumes, or the path of the device.
    disks: Vec<String>,
    /// Format of the trace.
    format: String,
    /// Requests written.
    requests: u64,
    /// Duration of the recording in seconds.
    seconds: f64,
    /// Requests lost because they arrived faster than they could be recorded.
    dropped: u64,
    /// Requests left out because the format cannot represent them.
    unrepresentable_requests: u64,
    /// What was lost or left out, a sentence each.
    notes: Vec<String>,
}

impl Recorded {
    /// Returns the text that is printed without `--json`.
    pub(super) fn human(&self) -> String {
        let Self { disks, format, requests, seconds, .. } = self;
        let mut text =
            format!("{requests} requests to {} in {seconds:.3} s, as {format}\n", disks.join(", "));
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        text
    }
}

/// Records until the time is over, the number of requests is reached or a signal arrives.
///
/// # Errors
/// Fails if nothing can be recorded, or if the trace cannot be written. The requests written by then remain,
/// as an incomplete trace. If this process is killed, the [saved](SAVE_INTERVAL) requests remain in the
/// temporary file.
pub(super) fn record(pool_file: &Path, args: &RecordArgs) -> Result<Recorded, Failure> {
    refuse_duplicates(&args.volumes)?;
    let until = StopCondition::new(args)?;
    let output = Output::create(&args.out, args.force)?.keep_incomplete();
    output.write(&args.format, |traced| {
        let mut taken = RecordedTrace::new(traced, args.requests.unwrap_or(u64::MAX));
        let came = match &args.device {
            Some(device) => device::record(device, &until, &mut taken),
            None => volumes::record(pool_file, &args.volumes, &until, &mut taken),
        }?;
        let RecordedTrace { requests, unrepresentable: unsaid, .. } = taken;
        let mut notes = came.notes;
        if came.dropped > 0 {
            notes.push(format!("{} requests are missing that came too fast to be recorded", came.dropped));
        }
        if unsaid > 0 {
            let format = &args.format.name;
            notes.push(format!("{unsaid} requests were left out that {format} has no way to say"));
        }
        notes.extend(merged_disks_note(&args.format, came.disks.len()));
        Ok(Recorded {
            disks: came.disks,
            format: args.format.name.clone().into_owned(),
            requests,
            seconds: came.duration.as_secs_f64(),
            dropped: came.dropped,
            unrepresentable_requests: unsaid,
            notes,
        })
    })
}

/// Refuses a volume that is named twice: all its requests would be recorded under the first name.
fn refuse_duplicates(volumes: &[String]) -> Result<(), Failure> {
    let again = (1..volumes.len()).find(|at| volumes[..*at].contains(&volumes[*at]));
    match again {
        Some(at) => Err(Failure::usage(format!("volume {} is named twice", volumes[at]), "name it once")),
        None => Ok(()),
    }
}

/// The end of a recording.
struct StopCondition {
    duration: Option<Duration>,
    interrupted: Arc<AtomicBool>,
}

impl StopCondition {
    fn new(args: &RecordArgs) -> Result<Self, Failure> {
        let duration = args.duration.map(|duration| Duration::from_nanos(duration.0));
        Ok(Self { duration, interrupted: interruption()? })
    }

    /// Returns whether a recording that began at `began` is to end.
    fn is_over(&self, began: Instant) -> bool {
        let is_late = self.duration.is_some_and(|duration| began.elapsed() >= duration);
        is_late || self.interrupted.load(Ordering::Relaxed)
    }
}

/// The result of a recording.
struct RecordingOutcome {
    disks: Vec<String>,
    duration: Duration,
    dropped: u64,
    notes: Vec<String>,
}

/// The trace that is written, with the number of requests in it.
struct RecordedTrace<'t, 'o> {
    writer: &'t mut TraceWriter<'o>,
    requests_max: u64,
    requests: u64,
    unrepresentable: u64,
    /// Number of requests at the last save, and its time.
    last_save: (u64, Instant),
}

impl<'t, 'o> RecordedTrace<'t, 'o> {
    fn new(traced: &'t mut TraceWriter<'o>, most: u64) -> Self {
        Self {
            writer: traced,
            requests_max: most,
            requests: 0,
            unrepresentable: 0,
            last_save: (0, Instant::now()),
        }
    }

    /// Saves the trace if it is time. Returns whether more requests are wanted.
    fn save_if_due(&mut self) -> Result<bool, Failure> {
        let (requests, at) = self.last_save;
        if requests == self.requests || at.elapsed() < SAVE_INTERVAL {
            return Ok(true);
        }
        self.last_save = (self.requests, Instant::now());
        self.writer.save()
    }

    /// Writes a request. Returns whether more requests are wanted.
    fn write(&mut self, record: &Record, disk: &str) -> Result<bool, Failure> {
        if self.requests >= self.requests_max {
            return Ok(false);
        }
        match self.writer.write(record, disk)? {
            WriteOutcome::Written => self.requests += 1,
            WriteOutcome::Unrepresentable => self.unrepresentable += 1,
            WriteOutcome::OutputClosed => return Ok(false),
        }
        Ok(self.requests < self.requests_max && self.save_if_due()?)
    }
}
