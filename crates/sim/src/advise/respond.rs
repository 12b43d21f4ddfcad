//! How long a device takes for its part of a trace: its timing model is given the requests that come to it, at the times of
//! the trace, so that they queue as they would.

use super::demand::{Asked, Demand};
use super::split::{Home, Level, Sizes, Split, split};
use super::{EXTENT, HEADROOM};
use crate::place::outcome::Collected;
use crate::place::pool::scaled;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};
use weir_timing::Timing;
use weir_timing::drives::Drive;

/// What is asked for in less time than this is no load that goes on.
const SHORTEST: Nanos = Nanos::secs(10);
/// Requests a model is given at most, the last of the trace: enough for one in a hundred of them to be thousands.
const MOST: usize = 400_000;

/// Which part of a trace comes to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All: there are no other devices but its like.
    All,
    /// What this one of its set's kinds answers; what is copied to it, or brought home, besides.
    Of(Level, Sizes),
}

impl Part {
    /// The fast devices' slots, if there are fast devices.
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

/// A kind of devices and its part of the trace: what is to be found out for a set to be judged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// The modelled drive.
    pub model: String,
    /// What comes to it and to its like.
    pub part: Part,
    /// How many of them share that, extent by extent.
    pub devices: u32,
    /// Whether the trace stands for more than it touches, so that the drive's buffers are smaller in proportion.
    pub is_scaled: bool,
}

/// A command to a device; of requests a client waits for the answer.
struct DeviceCommand {
    at: Nanos,
    kind: IoKind,
    extent: u32,
    within: Bytes,
    len: Bytes,
    is_asked: bool,
}

impl Stream {
    /// Gives the drive's model its part of a trace that was split so.
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

    /// Extents a modelled drive has: those of its slots, or room for its part of the data and [`HEADROOM`].
    fn extents(&self, demand: &Demand) -> u32 {
        let all = (f64::from(demand.extents()) * HEADROOM).ceil() as u32;
        let slots = match self.part {
            Part::All => None,
            Part::Of(level, sizes) => sizes.of(level),
        };
        (slots.map_or(all, |slots| slots.0.min(all)) / self.devices).max(1)
    }

    /// All commands, in order of time.
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

/// What devices make of their part of a trace.
#[derive(Clone, Debug)]
pub(super) struct Played {
    pub(super) collected: Collected,
    /// The time until all is answered to the time in which it was asked for, of the device that takes longest.
    pub(super) load: f64,
}

/// A drive's model, and when each command came.
struct Device {
    timing: Box<dyn Timing>,
    /// From the first command to the last one.
    asked: Option<(Nanos, Nanos)>,
    /// When the last one ended.
    ended: Nanos,
    /// Of those that a client waits for.
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
            // A few requests in a moment say nothing of what comes in a second.
            let asked = last.since(first).max(SHORTEST);
            self.ended.since(first).0 as f64 / asked.0 as f64
        });
        (self.collected, load)
    }
}

/// What is found out in one go: all streams of a trace that is split in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The slots it is split at; whole if there are none.
    pub sizes: Option<Sizes>,
    /// What is to be played of it.
    pub streams: Vec<Stream>,
}

/// What was found out by a [`Job`].
#[derive(Clone, Debug)]
pub struct Found {
    /// Of its streams.
    pub(super) responses: Vec<(Stream, Played)>,
    /// Bytes written to each kind: the fastest, the second one, the slow one.
    pub(super) written: [Bytes; 3],
    /// Of the reads, the shares that the fast kinds answer.
    pub(super) hit_shares: [f64; 2],
}

impl Job {
    /// Splits the trace and gives each drive's model its part; those without a model are left out.
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

/// Bytes written to each kind: by clients, copied, and brought home.
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

/// Of the reads, the shares that the fast kinds answer.
fn hit_shares(demand: &Demand, split: &Split) -> [f64; 2] {
    let answered = demand.measured_requests().iter().zip(&split.answers);
    let reads = answered.filter(|(request, _)| !request.is_write);
    let mut counts = [0u64; 3];
    reads.for_each(|(_, answer)| counts[answer.by as usize] += 1);
    let all = counts.iter().sum::<u64>().max(1) as f64;
    [counts[0], counts[1]].map(|count| count as f64 / all)
}
