//! The steps of a history as plain data, so that a history can be printed, shrunk and repeated.

use super::Submission;
use crate::net::NetAction;
use crate::{Fault, StopKind};
use std::fmt;
use weir_engine::Activity;
use weir_map::Hardening;
use weir_model::{Bytes, Nanos, Op, VolumeOffset};

/// One step of a history.
#[derive(Clone, PartialEq)]
pub enum HistoryStep {
    /// Submit a request; earlier ones continue.
    Request(RequestSpec),
    /// Let time pass until this many requests are answered, or none is in flight.
    Wait(usize),
    /// Let this much time pass, whatever the state of the requests in flight.
    Pass(Nanos),
    /// Jump the clock ahead, before anything notices.
    Jump {
        /// Number of events until then, while the following steps continue; 0 means at once.
        after: u64,
        /// Length of the jump.
        time: Nanos,
    },
    /// Wait for the requests of a volume's clients, remove the volume and create another one in its place.
    Replace(Replacement),
    /// Give several operator commands, one after the other without waiting, while clients send requests; then
    /// wait for them.
    Submit(Vec<Submission>),
    /// Stop the engine and the devices in whatever state, and open the pool again. A pending crash comes at
    /// once when the next one is reached.
    Crash(Crash),
    /// Do the same in a copy of the pool, which itself continues: the copy's power fails, and after the crash
    /// all volumes are read.
    CrashCopy(Crash),
    /// Do the same as soon as the engine is doing this, if that comes before the next crash.
    CrashCopyDuring(Activity, Crash),
    /// Do the same as soon as a FLUSH or a change with FUA succeeds, if that comes before the next crash.
    CrashCopyAfterDurable(Crash),
    /// Make a device (given modulo the number of devices) fail from now on, until the next power loss: times
    /// count from now. Failures because of it are correct; replies must still be right.
    Break(usize, Fault),
    /// Stop the engine gracefully, and open the pool again.
    Restart,
    /// Read all volumes.
    Check,
    /// Audit the devices: redundancy is complete, or soon is.
    Audit,
    /// Test on a copy of the pool what happens without one of its devices.
    Lose(DeviceLoss),
    /// Change a setting while clients continue.
    Tune(SettingChange),
    /// An action of a client or operator of a served pool; no effect without a server.
    Net(NetAction),
}

/// A setting to change; volumes are given by index, modulo their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingChange {
    /// The pool's placement policy.
    PoolPolicy(&'static str),
    /// A volume's own policy; `None` removes it.
    VolumePolicy(usize, Option<&'static str>),
    /// When a volume's map is durable.
    Hardening(usize, Hardening),
}

/// The permanent loss of a device in a copy of the pool, and its return.
#[derive(Clone, PartialEq)]
pub struct DeviceLoss {
    /// Index of the device, modulo the number of devices.
    pub device: usize,
    /// Requests of clients while it is missing.
    pub requests: Vec<RequestSpec>,
}

/// A client's request.
#[derive(Clone, Copy, PartialEq)]
pub struct RequestSpec {
    /// Index of the volume, modulo the number of volumes.
    pub volume: usize,
    /// Operation.
    pub op: Op,
    /// Offset; limited to the volume.
    pub offset: VolumeOffset,
    /// Length; limited to the volume.
    pub len: Bytes,
    /// Whether it must be durable before the reply.
    pub fua: bool,
}

/// The replacement of a volume by another one.
#[derive(Clone, PartialEq)]
pub struct Replacement {
    /// Index of the volume, modulo the number of volumes.
    pub volume: usize,
    /// Requests of clients of the other volumes once the removal has begun. Requests for this volume go to
    /// the next one; with a single volume there are none.
    pub meanwhile: Vec<RequestSpec>,
}

/// An abrupt stop with everything in flight.
#[derive(Clone, PartialEq)]
pub struct Crash {
    /// Number of events until then, while the following steps continue; 0 means at once.
    pub after: u64,
    /// What the devices keep.
    pub kind: StopKind,
    /// Selects bits that flip before the pool is opened, for power losses only.
    pub rot: Option<u64>,
    /// Further stops while the pool is opened.
    pub recovery_crashes: Vec<RecoveryCrash>,
}

/// An abrupt stop while the pool is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryCrash {
    /// Number of the blocking write at which it occurs; if there are fewer, it occurs once the pool is open.
    pub write: u64,
    /// What the devices keep.
    pub kind: StopKind,
}

const fn word(how: StopKind) -> &'static str {
    match how {
        StopKind::Kill => "kill",
        StopKind::PowerLoss => "power cut",
    }
}

impl Crash {
    /// Makes a power loss that occurs now.
    #[must_use]
    pub const fn power_loss_now() -> Self {
        Self { after: 0, kind: StopKind::PowerLoss, rot: None, recovery_crashes: Vec::new() }
    }
}

impl HistoryStep {
    /// Reports whether a copy of the pool crashes: the history itself is the same with and without the step.
    #[must_use]
    pub const fn crashes_copy(&self) -> bool {
        matches!(self, Self::CrashCopy(_) | Self::CrashCopyDuring(..) | Self::CrashCopyAfterDurable(_))
    }
}

impl RequestSpec {
    /// Reports whether success says that something is durable.
    pub(crate) const fn claims_durable(&self) -> bool {
        matches!(self.op, Op::Flush) || (self.fua && self.op.changes())
    }
}

impl fmt::Debug for HistoryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(ask) => ask.fmt(f),
            Self::Wait(answers) => write!(f, "wait for {answers}"),
            Self::Pass(time) => write!(f, "let {} ns pass", time.0),
            Self::Jump { after: 0, time } => write!(f, "the clock jumps by {} ns", time.0),
            Self::Jump { after, time } => write!(f, "the clock jumps by {} ns after {after} events", time.0),
            Self::Replace(Replacement { volume, meanwhile }) => {
                write!(f, "replace volume {volume}")?;
                meanwhile.iter().try_for_each(|ask| write!(f, "; meanwhile {ask:?}"))
            }
            Self::Submit(all) => write!(f, "at once: {all:?}"),
            Self::Break(device, fault) => write!(f, "device {device}: {fault:?}"),
            Self::Crash(crash) => crash.fmt(f),
            Self::CrashCopy(crash) => write!(f, "in a copy of the pool: {crash:?}"),
            Self::CrashCopyDuring(activity, crash) => {
                write!(f, "in a copy of the pool, with {activity}: {crash:?}")
            }
            Self::CrashCopyAfterDurable(crash) => {
                write!(f, "in a copy of the pool, when something is durable: {crash:?}")
            }
            Self::Restart => f.write_str("restart"),
            Self::Check => f.write_str("check"),
            Self::Audit => f.write_str("audit"),
            Self::Tune(tune) => tune.fmt(f),
            Self::Lose(DeviceLoss { device, requests: asks }) => {
                write!(f, "lose device {device} in a copy of the pool")?;
                asks.iter().try_for_each(|ask| write!(f, "; meanwhile {ask:?}"))
            }
            Self::Net(act) => act.fmt(f),
        }
    }
}

impl fmt::Debug for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, kind: how, rot, recovery_crashes: again } = self;
        f.write_str(word(*how))?;
        if *after > 0 {
            write!(f, " after {after} events")?;
        }
        if let Some(rot) = rot {
            write!(f, ", bit rot {rot}")?;
        }
        again.iter().try_for_each(|RecoveryCrash { write, kind: how }| {
            write!(f, ", {} at write {write} of opening", word(*how))
        })
    }
}

impl fmt::Debug for RequestSpec {
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
