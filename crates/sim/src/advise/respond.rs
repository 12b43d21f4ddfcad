//! How long a device takes for its part of a trace: its timing model is given the requests that come to it, at the times of
//! the trace, so that they queue as they would.

use super::demand::{Asked, Demand};
use super::split::{Home, Slots, Split, split};
use super::{EXTENT, HEADROOM};
use crate::outcome::Collected;
use crate::pool::scaled;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};
use weir_timing::Timing;
use weir_timing::drives::Drive;

/// Requests a model is given at most, the last of the trace: enough for one in a hundred of them to be thousands.
const MOST: usize = 400_000;

/// Which part of a trace comes to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All: there are no other devices but its like.
    All,
    /// What the fast devices answer, and what is copied there, besides.
    Fast(Slots),
    /// The rest, and what is brought home, besides.
    Slow(Slots),
}

impl Part {
    /// The fast devices' slots, if there are fast devices.
    pub fn slots(self) -> Option<Slots> {
        match self {
            Self::All => None,
            Self::Fast(slots) | Self::Slow(slots) => Some(slots),
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
struct Command {
    at: Nanos,
    kind: IoKind,
    extent: u32,
    within: Bytes,
    len: Bytes,
    is_asked: bool,
}

impl Stream {
    /// Gives the drive's model its part of a trace that was split so.
    pub(super) fn play(&self, demand: &Demand, split: &Split, drive: &Drive) -> Collected {
        let room = Bytes(u64::from(self.extents(demand)) * EXTENT.bytes().0);
        let drive = if self.is_scaled { scaled(drive, room) } else { drive.clone() };
        let mut collected = Collected::new();
        for number in 0..self.devices {
            let mut device = Device::new(drive.timing(room, drive.cache));
            self.each(demand, split, |command| {
                if command.extent % self.devices == number {
                    let extent = command.extent / self.devices % self.extents(demand);
                    let at = DeviceOffset(u64::from(extent) * EXTENT.bytes().0) + command.within;
                    device.submit(&command, at);
                }
            });
            collected.merge(&device.finish());
        }
        collected
    }

    /// Extents a modelled drive has: those of its slots, or room for its part of the data and [`HEADROOM`].
    fn extents(&self, demand: &Demand) -> u32 {
        let all = (f64::from(demand.extents()) * HEADROOM).ceil() as u32;
        let slots = match self.part {
            Part::Fast(slots) => slots.0.min(all),
            Part::All | Part::Slow(_) => all,
        };
        (slots / self.devices).max(1)
    }

    /// All commands, in order of time.
    fn each(&self, demand: &Demand, split: &Split, mut take: impl FnMut(Command)) {
        let requests = demand.measured_requests();
        let from = requests.len().saturating_sub(MOST);
        let mut home = split.home.iter().skip_while(|home| home.at < requests[from].at).peekable();
        for (number, request) in requests.iter().enumerate().skip(from) {
            if matches!(self.part, Part::Slow(_)) {
                while let Some(home) = home.next_if(|home| home.at <= request.at) {
                    take(Command::bringing(home));
                }
            }
            let own = matches!(self.part, Part::Fast(_));
            let hit = split.hits.get(number).is_none_or(|hit| *hit);
            match self.part {
                Part::All => take(Command::asked(request)),
                _ if hit == own => take(Command::asked(request)),
                Part::Fast(_) => take(Command::copying(request)),
                Part::Slow(_) => {}
            }
        }
    }
}

impl Command {
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

/// A drive's model, and when each command came.
struct Device {
    timing: Box<dyn Timing>,
    /// Of those that a client waits for.
    came: Vec<Option<Nanos>>,
    collected: Collected,
}

impl Device {
    fn new(timing: Box<dyn Timing>) -> Self {
        Self { timing, came: Vec::new(), collected: Collected::new() }
    }

    fn submit(&mut self, command: &Command, at: DeviceOffset) {
        self.pass(command.at);
        let id = IoId(self.came.len() as u64);
        self.came.push(command.is_asked.then_some(command.at));
        self.timing.submit(command.at, id, command.kind, at, command.len);
    }

    fn pass(&mut self, now: Nanos) {
        while let Some(due) = self.timing.next().filter(|due| *due <= now) {
            if let Some(id) = self.timing.pop(due)
                && let Some(came) = self.came[id.0 as usize]
            {
                self.collected.add(due - came);
            }
        }
    }

    fn finish(mut self) -> Collected {
        self.pass(Nanos::MAX);
        self.collected
    }
}

/// What is found out in one go: all streams of a trace that is split in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The slots it is split at; whole if there are none.
    pub slots: Option<Slots>,
    /// What is to be played of it.
    pub streams: Vec<Stream>,
}

/// What was found out by a [`Job`].
#[derive(Clone, Debug)]
pub struct Found {
    /// Of its streams.
    pub(super) responses: Vec<(Stream, Collected)>,
    /// Bytes written to fast devices, and to slow ones.
    pub(super) written: [Bytes; 2],
    /// Of the reads, the share that fast devices answer.
    pub(super) hit_share: f64,
}

impl Job {
    /// Splits the trace and gives each drive's model its part; those without a model are left out.
    pub(super) fn play(&self, demand: &Demand) -> Found {
        let split = self.slots.map_or_else(Split::default, |slots| split(demand, slots));
        let drive = |stream: &Stream| Some((stream.clone(), weir_timing::drives::drive(&stream.model)?));
        let played = |(stream, drive): (Stream, &Drive)| {
            let collected = stream.play(demand, &split, drive);
            (stream, collected)
        };
        let responses = self.streams.iter().filter_map(drive).map(played).collect();
        let requests = demand.measured_requests().iter();
        let reads = || requests.clone().zip(&split.hits).filter(|(request, _)| !request.is_write);
        let hits = reads().filter(|(_, hit)| **hit).count() as f64;
        let home = Bytes(split.home.iter().map(|home| home.len.0).sum());
        let (written, hit_share) = match self.slots {
            None => ([Bytes(0), demand.written()], 1.0),
            Some(_) => ([demand.written() + split.copied, home], hits / (reads().count() as f64).max(1.0)),
        };
        Found { responses, written, hit_share }
    }
}
