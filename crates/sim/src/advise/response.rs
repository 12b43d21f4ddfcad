//! Response times of a device for its part of a trace: its timing model gets the requests that reach it, at
//! the times of the trace, so that they queue as on the device.

use super::demand::{Demand, ExtentAccess};
use super::split::{Level, Sizes, Split, WriteBack, split};
use super::{EXTENT, HEADROOM};
use crate::place::pool::scaled;
use crate::responses::ResponseHistogram;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};
use weir_timing::Timing;
use weir_timing::drives::Drive;
use weir_world::flash_log;

/// Minimum time over which the load is computed; a shorter trace is no sustained load.
const LOAD_TIME_MIN: Nanos = Nanos::secs(10);
/// Maximum number of requests given to a model, the last of the trace: enough for one in a hundred of them to
/// be thousands.
const REQUESTS_MAX: usize = 400_000;

/// The part of a trace that reaches a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TracePart {
    /// All of it: the set has only one kind of device.
    Whole,
    /// The requests served by this kind of the set, plus its share of copies and write-back.
    Level(Level, Sizes),
}

impl TracePart {
    /// Returns the slots of the fast devices, if there are fast devices.
    pub fn sizes(self) -> Option<Sizes> {
        match self {
            Self::Whole => None,
            Self::Level(_, sizes) => Some(sizes),
        }
    }

    fn level(self) -> Option<Level> {
        match self {
            Self::Whole => None,
            Self::Level(level, _) => Some(level),
        }
    }
}

/// A kind of device and its part of the trace: one simulation that judging a set needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// Modelled drive.
    pub model: String,
    /// The part of the trace that reaches these devices.
    pub part: TracePart,
    /// Number of devices that share it, extent by extent.
    pub devices: u32,
    /// True if the trace represents more data than it touches, so that the drive's buffers are scaled down.
    pub is_scaled: bool,
}

/// A device command; a client waits for some of them.
struct DeviceCommand {
    at: Nanos,
    kind: IoKind,
    extent: u32,
    offset: Bytes,
    len: Bytes,
    is_client: bool,
}

impl Stream {
    /// Plays the drive's part of a split trace to its model.
    pub(super) fn play(&self, demand: &Demand, split: &Split, drive: &Drive) -> StreamOutcome {
        let room = Bytes(u64::from(self.extents(demand)) * EXTENT.bytes().0);
        let drive = if self.is_scaled { scaled(drive, room) } else { drive.clone() };
        let mut played = StreamOutcome { responses: ResponseHistogram::new(), load: 0.0 };
        for number in 0..self.devices {
            let mut device = ModelledDevice::new(drive.timing(room, drive.cache, flash_log));
            self.for_each(demand, split, |command| {
                if command.extent % self.devices == number {
                    let extent = command.extent / self.devices % self.extents(demand);
                    let at = DeviceOffset(u64::from(extent) * EXTENT.bytes().0) + command.offset;
                    device.submit(&command, at);
                }
            });
            let (collected, load) = device.finish();
            played.responses.merge(&collected);
            played.load = played.load.max(load);
        }
        played
    }

    /// Returns the number of extents of a modelled drive: those of its slots, or room for its part of the
    /// data and [`HEADROOM`].
    fn extents(&self, demand: &Demand) -> u32 {
        let all = (f64::from(demand.extents()) * HEADROOM).ceil() as u32;
        let slots = match self.part {
            TracePart::Whole => None,
            TracePart::Level(level, sizes) => sizes.of(level),
        };
        (slots.map_or(all, |slots| slots.0.min(all)) / self.devices).max(1)
    }

    /// Passes all commands to `take`, in time order.
    fn for_each(&self, demand: &Demand, split: &Split, mut take: impl FnMut(DeviceCommand)) {
        let requests = demand.measured_requests();
        let from = requests.len().saturating_sub(REQUESTS_MAX);
        let mut home = split.write_backs.iter().skip_while(|home| home.at < requests[from].at).peekable();
        for (number, request) in requests.iter().enumerate().skip(from) {
            if self.part.level() == Some(Level::Slow) {
                while let Some(home) = home.next_if(|home| home.at <= request.at) {
                    take(DeviceCommand::for_write_back(home));
                }
            }
            match (self.part.level(), split.services.get(number)) {
                (Some(level), Some(answer)) if answer.served_by != level => {
                    if answer.copied_to == Some(level) {
                        take(DeviceCommand::for_copy(request));
                    }
                }
                _ => take(DeviceCommand::for_request(request)),
            }
        }
    }
}

impl DeviceCommand {
    fn for_request(request: &ExtentAccess) -> Self {
        let kind = if request.is_write { IoKind::Write { fua: false } } else { IoKind::Read };
        let ExtentAccess { at, extent, within, len, .. } = *request;
        Self { at, kind, extent, offset: within, len, is_client: true }
    }

    fn for_copy(request: &ExtentAccess) -> Self {
        Self { kind: IoKind::Write { fua: false }, is_client: false, ..Self::for_request(request) }
    }

    fn for_write_back(home: &WriteBack) -> Self {
        let WriteBack { at, extent, len } = *home;
        Self { at, kind: IoKind::Write { fua: false }, extent, offset: Bytes(0), len, is_client: false }
    }
}

/// Response times and load of devices with their part of a trace.
#[derive(Clone, Debug)]
pub(super) struct StreamOutcome {
    pub(super) responses: ResponseHistogram,
    /// Ratio of the time until everything is answered to the time in which it was requested, for the slowest
    /// device.
    pub(super) load: f64,
}

/// A drive's model with the times of its commands.
struct ModelledDevice {
    timing: Box<dyn Timing>,
    /// Times of the first and the last command.
    command_span: Option<(Nanos, Nanos)>,
    /// Completion of the last one.
    completed_at: Nanos,
    /// Start times of the commands that a client waits for.
    start_times: Vec<Option<Nanos>>,
    responses: ResponseHistogram,
}

impl ModelledDevice {
    fn new(timing: Box<dyn Timing>) -> Self {
        let collected = ResponseHistogram::new();
        Self {
            timing,
            command_span: None,
            completed_at: Nanos(0),
            start_times: Vec::new(),
            responses: collected,
        }
    }

    fn submit(&mut self, command: &DeviceCommand, at: DeviceOffset) {
        self.advance(command.at);
        let first = self.command_span.map_or(command.at, |(first, _)| first);
        self.command_span = Some((first, command.at));
        let id = IoId(self.start_times.len() as u64);
        self.start_times.push(command.is_client.then_some(command.at));
        self.timing.submit(command.at, id, command.kind, at, command.len);
    }

    fn advance(&mut self, now: Nanos) {
        while let Some(due) = self.timing.next().filter(|due| *due <= now) {
            self.completed_at = self.completed_at.max(due);
            if let Some(id) = self.timing.pop(due)
                && let Some(came) = self.start_times[id.0 as usize]
            {
                self.responses.add(due - came);
            }
        }
    }

    fn finish(mut self) -> (ResponseHistogram, f64) {
        self.advance(Nanos::MAX);
        let load = self.command_span.map_or(0.0, |(first, last)| {
            // A few requests at one moment say nothing about a sustained rate.
            let asked = last.since(first).max(LOAD_TIME_MIN);
            self.completed_at.since(first).0 as f64 / asked.0 as f64
        });
        (self.responses, load)
    }
}

/// A unit of work: all streams of a trace that is split in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The slots at which it is split; `None` for no split.
    pub sizes: Option<Sizes>,
    /// The streams to play.
    pub streams: Vec<Stream>,
}

/// Results of a [`Job`].
#[derive(Clone, Debug)]
pub struct JobOutcome {
    /// Results by stream.
    pub(super) responses: Vec<(Stream, StreamOutcome)>,
    /// Bytes written to each kind: the fastest, the second, the slow one.
    pub(super) written: [Bytes; 3],
    /// Shares of the reads that the fast kinds serve.
    pub(super) hit_shares: [f64; 2],
}

impl Job {
    /// Splits the trace and plays each drive's part to its model; drives without a model are left out.
    pub(super) fn play(&self, demand: &Demand) -> JobOutcome {
        let split = self.sizes.map_or_else(Split::default, |sizes| split(demand, sizes));
        let drive = |stream: &Stream| Some((stream.clone(), weir_timing::drives::drive(&stream.model)?));
        let played = |(stream, drive): (Stream, &Drive)| {
            let played = stream.play(demand, &split, drive);
            (stream, played)
        };
        let responses = self.streams.iter().filter_map(drive).map(played).collect();
        let (written, hit_shares) = match self.sizes {
            None => ([Bytes(0), Bytes(0), demand.written()], [1.0, 0.0]),
            Some(_) => (written(demand, &split), hit_shares(demand, &split)),
        };
        JobOutcome { responses, written, hit_shares }
    }
}

/// Returns the bytes written to each kind: by clients, by copies, and by write-back.
pub(super) fn written(demand: &Demand, split: &Split) -> [Bytes; 3] {
    let home = Bytes(split.write_backs.iter().map(|home| home.len.0).sum());
    let mut written = [split.copied[0], split.copied[1], home];
    for (request, answer) in demand.measured_requests().iter().zip(&split.services) {
        if request.is_write {
            written[answer.served_by as usize] += request.len;
        }
    }
    written
}

/// Returns the shares of the reads that the fast kinds serve.
pub(super) fn hit_shares(demand: &Demand, split: &Split) -> [f64; 2] {
    let answered = demand.measured_requests().iter().zip(&split.services);
    let reads = answered.filter(|(request, _)| !request.is_write);
    let mut counts = [0u64; 3];
    reads.for_each(|(_, answer)| counts[answer.served_by as usize] += 1);
    let all = counts.iter().sum::<u64>().max(1) as f64;
    [counts[0], counts[1]].map(|count| count as f64 / all)
}
