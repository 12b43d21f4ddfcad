//! Response times of a device for its part of a trace: its timing model gets the requests that reach it, at
//! the times of the trace, so that they queue as on the device.

use super::demand::{Asked, Demand};
use super::split::{Home, Level, Sizes, Split, split};
use super::{EXTENT, HEADROOM};
use crate::place::outcome::Collected;
use crate::place::pool::scaled;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};
use weir_timing::Timing;
use weir_timing::drives::Drive;

/// Minimum time over which the load is computed; a shorter trace is no sustained load.
const SHORTEST: Nanos = Nanos::secs(10);
/// Maximum number of requests given to a model, the last of the trace: enough for one in a hundred of them to
/// be thousands.
const MOST: usize = 400_000;

/// The part of a trace that reaches a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All of it: the set has only one kind of device.
    All,
    /// The requests served by this kind of the set, plus its share of copies and write-back.
    Of(Level, Sizes),
}

impl Part {
    /// Returns the slots of the fast devices, if there are fast devices.
    pub fn sizes(self) -> Option<Sizes> {
        match self {
            Self::All => None,
            Self::Of(_, sizes) => Some(sizes),
        }
    }

    fn level(self) -> Option<Level> {
        match self {
            Self::All => None,
            Self::Of(level, _) => Some(level),
        }
    }
}

/// A kind of device and its part of the trace: one simulation that judging a set needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// Modelled drive.
    pub model: String,
    /// The part of the trace that reaches these devices.
    pub part: Part,
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
    within: Bytes,
    len: Bytes,
    is_asked: bool,
}

impl Stream {
    /// Plays the drive's part of a split trace to its model.
    pub(super) fn play(&self, demand: &Demand, split: &Split, drive: &Drive) -> Played {
        let room = Bytes(u64::from(self.extents(demand)) * EXTENT.bytes().0);
        let drive = if self.is_scaled { scaled(drive, room) } else { drive.clone() };
        let mut played = Played { collected: Collected::new(), load: 0.0 };
        for number in 0..self.devices {
            let mut device = Device::new(drive.timing(room, drive.cache));
            self.each(demand, split, |command| {
                if command.extent % self.devices == number {
                    let extent = command.extent / self.devices % self.extents(demand);
                    let at = DeviceOffset(u64::from(extent) * EXTENT.bytes().0) + command.within;
                    device.submit(&command, at);
                }
            });
            let (collected, load) = device.finish();
            played.collected.merge(&collected);
            played.load = played.load.max(load);
        }
        played
    }

    /// Returns the number of extents of a modelled drive: those of its slots, or room for its part of the
    /// data and [`HEADROOM`].
    fn extents(&self, demand: &Demand) -> u32 {
        let all = (f64::from(demand.extents()) * HEADROOM).ceil() as u32;
        let slots = match self.part {
            Part::All => None,
            Part::Of(level, sizes) => sizes.of(level),
        };
        (slots.map_or(all, |slots| slots.0.min(all)) / self.devices).max(1)
    }

    /// Passes all commands to `take`, in time order.
    fn each(&self, demand: &Demand, split: &Split, mut take: impl FnMut(DeviceCommand)) {
        let requests = demand.measured_requests();
        let from = requests.len().saturating_sub(MOST);
        let mut home = split.home.iter().skip_while(|home| home.at < requests[from].at).peekable();
        for (number, request) in requests.iter().enumerate().skip(from) {
            if self.part.level() == Some(Level::Slow) {
                while let Some(home) = home.next_if(|home| home.at <= request.at) {
                    take(DeviceCommand::bringing(home));
                }
            }
            match (self.part.level(), split.answers.get(number)) {
                (Some(level), Some(answer)) if answer.by != level => {
                    if answer.copied_to == Some(level) {
                        take(DeviceCommand::copying(request));
                    }
                }
                _ => take(DeviceCommand::asked(request)),
            }
        }
    }
}

impl DeviceCommand {
    fn asked(request: &Asked) -> Self {
        let kind = if request.is_write { IoKind::Write { fua: false } } else { IoKind::Read };
        let Asked { at, extent, within, len, .. } = *request;
        Self { at, kind, extent, within, len, is_asked: true }
    }

    fn copying(request: &Asked) -> Self {
        Self { kind: IoKind::Write { fua: false }, is_asked: false, ..Self::asked(request) }
    }

    fn bringing(home: &Home) -> Self {
        let Home { at, extent, len } = *home;
        Self { at, kind: IoKind::Write { fua: false }, extent, within: Bytes(0), len, is_asked: false }
    }
}

/// Response times and load of devices with their part of a trace.
#[derive(Clone, Debug)]
pub(super) struct Played {
    pub(super) collected: Collected,
    /// Ratio of the time until everything is answered to the time in which it was requested, for the slowest
    /// device.
    pub(super) load: f64,
}

/// A drive's model with the times of its commands.
struct Device {
    timing: Box<dyn Timing>,
    /// Times of the first and the last command.
    asked: Option<(Nanos, Nanos)>,
    /// Completion of the last one.
    ended: Nanos,
    /// Start times of the commands that a client waits for.
    came: Vec<Option<Nanos>>,
    collected: Collected,
}

impl Device {
    fn new(timing: Box<dyn Timing>) -> Self {
        let collected = Collected::new();
        Self { timing, asked: None, ended: Nanos(0), came: Vec::new(), collected }
    }

    fn submit(&mut self, command: &DeviceCommand, at: DeviceOffset) {
        self.pass(command.at);
        let first = self.asked.map_or(command.at, |(first, _)| first);
        self.asked = Some((first, command.at));
        let id = IoId(self.came.len() as u64);
        self.came.push(command.is_asked.then_some(command.at));
        self.timing.submit(command.at, id, command.kind, at, command.len);
    }

    fn pass(&mut self, now: Nanos) {
        while let Some(due) = self.timing.next().filter(|due| *due <= now) {
            self.ended = self.ended.max(due);
            if let Some(id) = self.timing.pop(due)
                && let Some(came) = self.came[id.0 as usize]
            {
                self.collected.add(due - came);
            }
        }
    }

    fn finish(mut self) -> (Collected, f64) {
        self.pass(Nanos::MAX);
        let load = self.asked.map_or(0.0, |(first, last)| {
            // A few requests at one moment say nothing about a sustained rate.
            let asked = last.since(first).max(SHORTEST);
            self.ended.since(first).0 as f64 / asked.0 as f64
        });
        (self.collected, load)
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
pub struct Found {
    /// Results by stream.
    pub(super) responses: Vec<(Stream, Played)>,
    /// Bytes written to each kind: the fastest, the second, the slow one.
    pub(super) written: [Bytes; 3],
    /// Shares of the reads that the fast kinds serve.
    pub(super) hit_shares: [f64; 2],
}

impl Job {
    /// Splits the trace and plays each drive's part to its model; drives without a model are left out.
    pub(super) fn play(&self, demand: &Demand) -> Found {
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
        Found { responses, written, hit_shares }
    }
}

/// Returns the bytes written to each kind: by clients, by copies, and by write-back.
fn written(demand: &Demand, split: &Split) -> [Bytes; 3] {
    let home = Bytes(split.home.iter().map(|home| home.len.0).sum());
    let mut written = [split.copied[0], split.copied[1], home];
    for (request, answer) in demand.measured_requests().iter().zip(&split.answers) {
        if request.is_write {
            written[answer.by as usize] += request.len;
        }
    }
    written
}

/// Returns the shares of the reads that the fast kinds serve.
fn hit_shares(demand: &Demand, split: &Split) -> [f64; 2] {
    let answered = demand.measured_requests().iter().zip(&split.answers);
    let reads = answered.filter(|(request, _)| !request.is_write);
    let mut counts = [0u64; 3];
    reads.for_each(|(_, answer)| counts[answer.by as usize] += 1);
    let all = counts.iter().sum::<u64>().max(1) as f64;
    [counts[0], counts[1]].map(|count| count as f64 / all)
}
