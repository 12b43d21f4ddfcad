//! Faults: wrappers around any device, which can be stacked.
//!
//! A fault is plain data ([`Fault`]). As a wrapper around a device ([`Faulty`]) it may complete commands
//! itself, hold back completions, or change them. A fault that never strikes is invisible: it passes the same
//! conformance tests as the bare device.

use crate::{DamagedSectors, Device, FaultKind, Rng, StopKind, Storage, WorldMemory};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use weir_map::superblock::ROOT_AT;
use weir_model::{
    BLOCK, Bytes, DeviceOffset, Errno, Io, IoCompletion, IoError, IoId, IoKind, Memory, Nanos, SECTOR,
};

/// Service time of a misdirected write, and of half of the commands that fail.
const FAST_FAILURE: Nanos = Nanos::micros(100);

/// Maximum service time of a command that fails.
const SLOW_FAILURE_MAX: Nanos = Nanos::millis(4);

/// A fault of a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Commands of some kinds to a range fail, at once or after up to 4 ms. A flush touches every range. A
    /// failed flush gives up the writes that it should have made durable, whatever its error, and so does a
    /// failed durable write: for many devices that is a write and a flush. In half of the cases it also gives
    /// up the writes that completed while it was in flight, as writeback in an operating system does.
    Errors {
        /// The kinds that fail.
        kinds: Kinds,
        /// The failing range of the device.
        range: Range<DeviceOffset>,
        /// Probability that a command fails, 0 to 1.
        chance: f64,
        /// Number of commands that fail before the fault is over; `u64::MAX` for permanently.
        times: u64,
        /// The error: [`Errno::EIO`], or [`Errno::ENOSPC`] and [`Errno::EDQUOT`] if a lower layer has no
        /// space for what it accepted.
        error: Errno,
    },
    /// The file is truncated, immediately and once: see [`Storage::truncate`].
    Truncate {
        /// Part of it that is kept, in thousandths.
        keep: u16,
        /// Whether it regains its size at once. Otherwise the next write behind its end extends it.
        regrow: bool,
    },
    /// The device accepts this many bytes that were never written before, then fails such writes with
    /// [`Errno::ENOSPC`]: a sparse file on a file system that fills up.
    Full {
        /// Room for new bytes, in whole 4 KiB pages.
        space: Bytes,
    },
    /// Commands take longer.
    Slow {
        /// Factor of the service time.
        factor: u64,
        /// Submission times of the affected commands.
        during: Range<Nanos>,
    },
    /// Completions due in this time come at its end; with an end of [`Nanos::MAX`], never.
    Hang {
        /// The time.
        during: Range<Nanos>,
    },
    /// Writes that begin in a range are acknowledged, and go elsewhere or nowhere.
    Misdirect {
        /// The range of their targets.
        range: Range<DeviceOffset>,
        /// Distance by which they are shifted, wrapping around at the end of the range; `None`: they are
        /// dropped.
        shift: Option<Bytes>,
        /// Probability that a write is misdirected, 0 to 1.
        chance: f64,
        /// Number of writes that are misdirected before the fault is over.
        times: u64,
    },
    /// From then on every command fails with [`IoError::Lost`].
    Vanish {
        /// When the device vanishes.
        at: Nanos,
    },
}

/// The kinds of commands that a fault affects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds {
    /// Reads.
    pub reads: bool,
    /// Writes.
    pub writes: bool,
    /// Flushes.
    pub flushes: bool,
}

impl Kinds {
    const fn contains(self, kind: IoKind) -> bool {
        match kind {
            IoKind::Read => self.reads,
            IoKind::Write { .. } => self.writes,
            IoKind::Flush => self.flushes,
        }
    }
}

/// A device with one fault.
pub struct Faulty<D> {
    device: D,
    fault: Fault,
    rng: Rng,
    /// Submission time of each command inside the device.
    started: BTreeMap<IoId, Nanos>,
    /// Completions held back, by their due time.
    delayed: BTreeMap<(Nanos, IoId), Result<(), IoError>>,
    /// Failing flushes and durable writes that give up everything cached when they complete.
    failing_flushes: BTreeSet<IoId>,
    /// Pages written, while there is room.
    pages: FxHashSet<u64>,
    /// The faults it has injected since the last query.
    injected: Vec<FaultKind>,
}

impl Fault {
    /// Returns the same fault with its times counted from `start` on.
    #[must_use]
    pub fn from(self, start: Nanos) -> Self {
        let shift = |during: Range<Nanos>| {
            Nanos(start.0.saturating_add(during.start.0))..Nanos(start.0.saturating_add(during.end.0))
        };
        match self {
            Self::Slow { factor, during } => Self::Slow { factor, during: shift(during) },
            Self::Hang { during } => Self::Hang { during: shift(during) },
            Self::Vanish { at } => Self::Vanish { at: Nanos(start.0.saturating_add(at.0)) },
            other => other,
        }
    }

    /// Reports whether it may strike a command submitted at `now` or later.
    fn may_strike(&self, now: Nanos) -> bool {
        match self {
            Self::Errors { times, .. } | Self::Misdirect { times, .. } => *times > 0,
            Self::Slow { during, .. } | Self::Hang { during } => now < during.end,
            Self::Full { .. } | Self::Vanish { .. } => true,
            // It strikes once, when it is added.
            Self::Truncate { .. } => false,
        }
    }
}

impl<D: Device + 'static> Faulty<D> {
    /// Creates a device with a fault. `rng` makes the fault's random choices.
    pub fn new(device: D, fault: Fault, rng: Rng) -> Self {
        Self {
            device,
            fault,
            rng,
            started: BTreeMap::new(),
            delayed: BTreeMap::new(),
            failing_flushes: BTreeSet::new(),
            pages: FxHashSet::default(),
            injected: Vec::new(),
        }
    }

    /// Returns the strike for a command of this kind.
    fn fault_kind(&self, kind: IoKind) -> FaultKind {
        match (&self.fault, kind) {
            (Fault::Errors { times: u64::MAX, .. }, IoKind::Read) => FaultKind::ReadErrors,
            (Fault::Errors { times: u64::MAX, .. }, IoKind::Write { .. }) => FaultKind::WriteErrors,
            (Fault::Errors { times: u64::MAX, .. }, IoKind::Flush) => FaultKind::FlushErrors,
            (Fault::Errors { .. }, IoKind::Read) => FaultKind::ReadError,
            (Fault::Errors { .. }, IoKind::Write { .. }) => FaultKind::WriteError,
            (Fault::Errors { .. }, IoKind::Flush) => FaultKind::FlushError,
            (Fault::Full { .. }, _) => FaultKind::Full,
            (Fault::Slow { .. }, _) => FaultKind::Slow,
            (Fault::Hang { .. }, _) => FaultKind::Hang,
            (Fault::Vanish { .. }, _) => FaultKind::Vanish,
            (Fault::Truncate { .. }, _) => FaultKind::Truncated,
            (Fault::Misdirect { shift: None, .. }, _) => FaultKind::LostWrite,
            (Fault::Misdirect { .. }, _) => FaultKind::MisdirectedWrite,
        }
    }

    /// Returns the error with which the fault completes a command in place of the device.
    fn refuse(&mut self, now: Nanos, io: &Io) -> Option<IoError> {
        match &mut self.fault {
            Fault::Errors { kinds, range, chance, times, error } => {
                let everywhere = io.kind == IoKind::Flush;
                let touched = io.at < range.end && range.start < io.at + io.len();
                let strikes = *times > 0
                    && kinds.contains(io.kind)
                    && (everywhere || touched)
                    && self.rng.chance(*chance);
                if strikes {
                    *times = if *times == u64::MAX { u64::MAX } else { *times - 1 };
                }
                strikes.then_some(IoError::Os(*error))
            }
            Fault::Full { space: room } if matches!(io.kind, IoKind::Write { .. }) => {
                let touched = io.at.0 / BLOCK..(io.at.0 + io.len().0).div_ceil(BLOCK);
                let new = touched.clone().filter(|page| !self.pages.contains(page)).count() as u64;
                if (self.pages.len() as u64 + new) * BLOCK > room.0 {
                    return Some(IoError::Os(Errno::ENOSPC));
                }
                self.pages.extend(touched);
                None
            }
            Fault::Vanish { at } => (now >= *at).then_some(IoError::Lost),
            Fault::Full { .. }
            | Fault::Slow { .. }
            | Fault::Hang { .. }
            | Fault::Misdirect { .. }
            | Fault::Truncate { .. } => None,
        }
    }

    /// Executes a misdirected write; returns whether the command was one.
    fn misdirect_write(&mut self, io: &Io, memory: &WorldMemory) -> bool {
        let Fault::Misdirect { range, shift: further, chance, times } = &mut self.fault else { return false };
        let IoKind::Write { fua } = io.kind else { return false };
        let storage = self.device.storage();
        let goes_well = storage.check(io.at, io.len()).is_ok() && !has_lost_other_root(storage, io);
        if *times == 0 || !goes_well || !range.contains(&io.at) || !self.rng.chance(*chance) {
            return false;
        }
        storage.lose_write(io.at, io.len(), fua);
        if let Some(further) = further {
            let room = (range.end.0 - range.start.0).saturating_sub(io.len().0).max(SECTOR);
            let within = (io.at.0 - range.start.0 + further.0) % room / BLOCK * BLOCK;
            let to = DeviceOffset(range.start.0 + within);
            if storage.check(to, io.len()).is_ok() {
                let all = DamagedSectors::first(io.len().0 / SECTOR);
                storage.write_damaged(to, memory.bytes(io.buffer), &all, fua);
            }
        }
        *times -= 1;
        true
    }

    /// Carries out the first sectors of a write that fails, or all of them: nobody learns how many.
    fn write_partly(&mut self, io: &Io, memory: &WorldMemory) {
        let sectors = 1 + self.rng.below(io.len().0 / SECTOR);
        let part = io.buffer.part(0, (sectors * SECTOR) as u32);
        let storage = self.device.storage();
        if storage.check(io.at, io.len()).is_ok() {
            storage.write_damaged(io.at, memory.bytes(part), &memory.damaged_sectors(part), false);
        }
    }

    /// Returns when the device's completion at `now` is passed on, and its result.
    fn delay(&self, now: Nanos, done: IoCompletion) -> (Nanos, Result<(), IoError>) {
        let started = self.started.get(&done.id).copied().unwrap_or(now);
        match &self.fault {
            Fault::Slow { factor, during } if during.contains(&started) => {
                (started + Nanos(now.since(started).0.saturating_mul(*factor)), done.result)
            }
            Fault::Hang { during } if during.contains(&now) => (during.end, done.result),
            Fault::Vanish { at } if now >= *at => (now, Err(IoError::Lost)),
            _ => (now, done.result),
        }
    }
}

/// Reports whether a command concerns a root, of a device whose other root is damaged. A member that lost
/// both is an older file of itself, and not to be told from one: the pool is refused, as it must be.
fn has_lost_other_root(storage: &Storage, io: &Io) -> bool {
    let [first, second] = ROOT_AT;
    let other = match io.at {
        at if at == first => second,
        at if at == second => first,
        _ => return false,
    };
    storage.is_damaged(other..other + io.len())
}

impl<D: Device + 'static> Device for Faulty<D> {
    fn submit(&mut self, now: Nanos, io: Io, memory: &mut WorldMemory) {
        let strike = self.fault_kind(io.kind);
        if self.misdirect_write(&io, memory) {
            self.injected.push(strike);
            self.delayed.insert((now + FAST_FAILURE, io.id), Ok(()));
            return;
        }
        let Some(error) = self.refuse(now, &io) else {
            self.started.insert(io.id, now);
            return self.device.submit(now, io, memory);
        };
        self.injected.push(strike);
        let promised = matches!(io.kind, IoKind::Flush | IoKind::Write { fua: true });
        let mut takes = FAST_FAILURE;
        if matches!(self.fault, Fault::Errors { .. }) {
            if self.rng.chance(0.5) {
                takes = Nanos(1 + self.rng.below(SLOW_FAILURE_MAX.0));
            }
            if matches!(io.kind, IoKind::Write { .. }) && self.rng.chance(0.5) {
                self.write_partly(&io, memory);
            }
            if promised {
                self.device.storage().fail_flush();
                if self.rng.chance(0.5) {
                    self.failing_flushes.insert(io.id);
                }
            }
        }
        self.delayed.insert((now + takes, io.id), Err(error));
    }

    fn next(&self) -> Option<Nanos> {
        let held = self.delayed.first_key_value().map(|(key, _)| key.0).filter(|at| *at < Nanos::MAX);
        held.into_iter().chain(self.device.next()).min()
    }

    fn pop(&mut self, now: Nanos, memory: &mut WorldMemory) -> Option<IoCompletion> {
        while let Some(due) = self.device.next().filter(|due| *due <= now) {
            let Some(done) = self.device.pop(due, memory) else { break };
            let (release, result) = self.delay(due, done);
            if release > due || result != done.result {
                self.injected.push(self.fault_kind(IoKind::Read));
            }
            self.started.remove(&done.id);
            self.delayed.insert((release, done.id), result);
        }
        let first = self.delayed.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, id), result) = first.remove_entry();
        if self.failing_flushes.remove(&id) {
            self.device.storage().fail_flush();
        }
        Some(IoCompletion { id, result })
    }

    fn stop(&mut self, how: StopKind) {
        self.started.clear();
        self.delayed.clear();
        self.failing_flushes.clear();
        self.device.stop(how);
    }

    fn storage(&mut self) -> &mut Storage {
        self.device.storage()
    }

    fn after_power_loss(&self, rng: &mut Rng) -> Storage {
        self.device.after_power_loss(rng)
    }

    fn take_faults(&mut self, all: &mut Vec<FaultKind>) {
        all.append(&mut self.injected);
        self.device.take_faults(all);
    }

    fn may_fail(&self, now: Nanos) -> bool {
        self.fault.may_strike(now) || self.device.may_fail(now)
    }

    fn into_healthy(self: Box<Self>) -> Box<dyn Device> {
        Box::new(self.device).into_healthy()
    }
}

impl Device for Box<dyn Device> {
    fn submit(&mut self, now: Nanos, io: Io, memory: &mut WorldMemory) {
        (**self).submit(now, io, memory);
    }
    fn next(&self) -> Option<Nanos> {
        (**self).next()
    }
    fn pop(&mut self, now: Nanos, memory: &mut WorldMemory) -> Option<IoCompletion> {
        (**self).pop(now, memory)
    }
    fn stop(&mut self, how: StopKind) {
        (**self).stop(how);
    }
    fn storage(&mut self) -> &mut Storage {
        (**self).storage()
    }
    fn after_power_loss(&self, rng: &mut Rng) -> Storage {
        (**self).after_power_loss(rng)
    }
    fn take_faults(&mut self, all: &mut Vec<FaultKind>) {
        (**self).take_faults(all);
    }
    fn may_fail(&self, now: Nanos) -> bool {
        (**self).may_fail(now)
    }
    fn into_healthy(self: Box<Self>) -> Box<dyn Device> {
        (*self).into_healthy()
    }
}
