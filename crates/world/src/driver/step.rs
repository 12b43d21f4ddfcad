//! What a test does to a pool, as plain data: a history can be printed, shrunk and repeated.

use super::Submission;
use crate::net::Act;
use crate::{Fault, Stop};
use std::fmt;
use weir_engine::Activity;
use weir_map::Hardening;
use weir_model::{Bytes, Nanos, Op, VolumeOffset};

/// One step of a history.
#[derive(Clone, PartialEq)]
pub enum HistoryStep {
    /// Submit a request; what is earlier goes on meanwhile.
    Ask(Ask),
    /// Let time pass until so many requests are answered, or none are under way.
    Wait(usize),
    /// Let this much time pass, wherever that leaves the requests under way.
    Pass(Nanos),
    /// The clock jumps ahead, before anything is noticed of it.
    Jump {
        /// How many events pass before, while the steps that follow go on; 0: it jumps at once.
        after: u64,
        /// By how much.
        time: Nanos,
    },
    /// Wait for what a volume's clients asked, remove it and create another one in its place.
    Replace(Replace),
    /// Several commands of operators, one after the other without waiting, while clients ask; then wait
    /// for them.
    Tell(Vec<Submission>),
    /// Stop the engine and the devices wherever they then are, and open the pool again. One still to
    /// come comes at once when the next one is reached.
    Crash(Crash),
    /// The same in a copy of the pool, which itself goes on: its power fails, and
    /// after the crash all volumes are read.
    CrashCopy(Crash),
    /// The same as soon as the engine is in the middle of this, if that comes before the next crash.
    CrashCopyDuring(Activity, Crash),
    /// From now on something is wrong with a device (taken modulo the number of devices), until the
    /// next power cut: times count from now. What fails because of it is in order, what is answered
    /// must still be right.
    Break(usize, Fault),
    /// Stop the engine in good order, and open the pool again.
    Restart,
    /// Read all volumes.
    Check,
    /// Look at the devices themselves: redundancy is complete, or soon is.
    Audit,
    /// Try on a copy of the pool what becomes of it without one of its devices.
    Lose(Lose),
    /// Change something while clients go on.
    Tune(Tune),
    /// What a client of a served pool does, or whoever looks after it; without a server, nothing.
    Net(Act),
}

/// What an operator changes; volumes by their position, taken modulo their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tune {
    /// The pool's placement policy.
    PoolPolicy(&'static str),
    /// A volume's own one, or that it has none.
    VolumePolicy(usize, Option<&'static str>),
    /// When a volume's map is durable.
    Hardening(usize, Hardening),
}

/// A device is lost for good, in a copy of the pool, and returns as it was.
#[derive(Clone, PartialEq)]
pub struct Lose {
    /// The device, by its number; taken modulo the number of devices.
    pub device: usize,
    /// What clients ask while it is not there.
    pub asks: Vec<Ask>,
}

/// A client's request.
#[derive(Clone, Copy, PartialEq)]
pub struct Ask {
    /// The volume, by its position; taken modulo the number of volumes.
    pub volume: usize,
    /// What to do.
    pub op: Op,
    /// Where; cut to the volume's end.
    pub offset: VolumeOffset,
    /// How much; cut to the volume's end.
    pub len: Bytes,
    /// Do not answer before it is durable.
    pub fua: bool,
}

/// A volume makes way for another one.
#[derive(Clone, PartialEq)]
pub struct Replace {
    /// The volume, by its position; taken modulo the number of volumes.
    pub volume: usize,
    /// What the clients of the other volumes ask once the removal has begun. What this one's would ask
    /// goes to the next volume; with a single one nothing is asked.
    pub meanwhile: Vec<Ask>,
}

/// The end of everything under way.
#[derive(Clone, PartialEq)]
pub struct Crash {
    /// How many events pass before, while the steps that follow go on; 0: it comes at once.
    pub after: u64,
    /// What the devices keep.
    pub how: Stop,
    /// Bits that change before the pool is opened, for power cuts only; a number that says which.
    pub rot: Option<u64>,
    /// Everything stops again while the pool is opened.
    pub again: Vec<Again>,
}

/// Everything stops while the pool is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// At this many blocking writes; once it is open, if there are fewer.
    pub write: u64,
    /// What the devices keep.
    pub how: Stop,
}

const fn word(how: Stop) -> &'static str {
    match how {
        Stop::Kill => "kill",
        Stop::PowerCut => "power cut",
    }
}

impl Crash {
    /// A power cut, now.
    #[must_use]
    pub const fn at_once() -> Self {
        Self { after: 0, how: Stop::PowerCut, rot: None, again: Vec::new() }
    }
}

impl fmt::Debug for HistoryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(ask) => ask.fmt(f),
            Self::Wait(answers) => write!(f, "wait for {answers}"),
            Self::Pass(time) => write!(f, "let {} ns pass", time.0),
            Self::Jump { after: 0, time } => write!(f, "the clock jumps by {} ns", time.0),
            Self::Jump { after, time } => write!(f, "the clock jumps by {} ns after {after} events", time.0),
            Self::Replace(Replace { volume, meanwhile }) => {
                write!(f, "replace volume {volume}")?;
                meanwhile.iter().try_for_each(|ask| write!(f, "; meanwhile {ask:?}"))
            }
            Self::Tell(all) => write!(f, "at once: {all:?}"),
            Self::Break(device, fault) => write!(f, "device {device}: {fault:?}"),
            Self::Crash(crash) => crash.fmt(f),
            Self::CrashCopy(crash) => write!(f, "in a copy of the pool: {crash:?}"),
            Self::CrashCopyDuring(activity, crash) => {
                write!(f, "in a copy of the pool, with {activity}: {crash:?}")
            }
            Self::Restart => f.write_str("restart"),
            Self::Check => f.write_str("check"),
            Self::Audit => f.write_str("audit"),
            Self::Tune(tune) => tune.fmt(f),
            Self::Lose(Lose { device, asks }) => {
                write!(f, "lose device {device} in a copy of the pool")?;
                asks.iter().try_for_each(|ask| write!(f, "; meanwhile {ask:?}"))
            }
            Self::Net(act) => act.fmt(f),
        }
    }
}

impl fmt::Debug for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, how, rot, again } = self;
        f.write_str(word(*how))?;
        if *after > 0 {
            write!(f, " after {after} events")?;
        }
        if let Some(rot) = rot {
            write!(f, ", bit rot {rot}")?;
        }
        again
            .iter()
            .try_for_each(|Again { write, how }| write!(f, ", {} at write {write} of opening", word(*how)))
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => return write!(f, "flush volume {}", self.volume),
            Op::Trim => "trim",
            Op::WriteZeroes { no_hole: false } => "zero",
            Op::WriteZeroes { no_hole: true } => "zero, keeping space,",
        };
        let fua = if self.fua { " fua" } else { "" };
        // Exact, so that a history can be typed in again.
        let kib = self.len.0 as f64 / 1024.0;
        write!(f, "{what}{fua} {kib} KiB of volume {} at {}", self.volume, self.offset)
    }
}
