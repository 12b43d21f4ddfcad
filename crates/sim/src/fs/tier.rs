//! A tier: the queues of a modelled drive, the file system on it, and what is measured of it.

use super::bottom::{Bottom, Piece};
use super::outcome::TierOutcome;
use super::plan::{Machine, TierPlan};
use crate::SimError;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use weir_model::{Bytes, IoId, IoKind, Nanos};
use weir_policy::distribution::{METER_PERIOD, RateMeter};
use weir_timing::Timing;
use weir_timing::drives::{self, DriveKind};
use weir_timing::ssd::without_collection;

/// Largest command; longer writes are divided, and adjacent ones merged up to it.
const COMMAND_MAX: u64 = 512 << 10;
/// Commands in flight at the drive.
const DEPTH: usize = 32;

/// Who waits for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A client's read.
    Client(usize),
    /// An eviction: so many bytes of the fast tier are free when it is done.
    Space(Bytes),
    /// Nobody.
    Nobody,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    kind: IoKind,
    piece: Piece,
    waiting: Waiting,
}

/// What is counted while the load is measured.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    read: Bytes,
    writes: u64,
    written: Bytes,
    evicted: Bytes,
    busy: Nanos,
}

/// A tier.
pub(super) struct Tier {
    drive: String,
    pub(super) bottom: Bottom,
    pub(super) seeks: bool,
    kind: &'static str,
    /// Accumulated service time of all data, in seconds, by the rates that distribution uses.
    pub(super) load: f64,
    timing: Box<dyn Timing>,
    reads: VecDeque<Command>,
    writes: VecDeque<Command>,
    in_flight: FxHashMap<IoId, Command>,
    submitted: u64,
    /// When the drive last became busy, or was last charged for being so.
    busy_since: Nanos,
    meter: RateMeter,
    /// Bytes of writes that nobody waits for and that are not done.
    background: u64,
    counts: Counts,
}

/// Returns whether a drive has an arm.
fn seeks(kind: &DriveKind) -> bool {
    match kind {
        DriveKind::Disk(_) => true,
        DriveKind::Ssd(_) | DriveKind::Memory(_) => false,
        DriveKind::Remote(_, behind) | DriveKind::Capped(_, behind) => seeks(&behind.kind),
    }
}

impl Tier {
    /// Creates an idle tier.
    ///
    /// # Errors
    /// Fails if the drive is unknown.
    pub(super) fn new(plan: &TierPlan, machine: &Machine) -> Result<Self, SimError> {
        let drive = drives::drive(&plan.drive).ok_or_else(|| SimError::UnknownDrive {
            device: plan.drive.clone(),
            model: plan.drive.clone(),
            known: drives::all().map(|(name, _)| name).collect::<Vec<_>>().join(", "),
        })?;
        Ok(Self {
            drive: plan.drive.clone(),
            bottom: Bottom::new(plan.bottom, plan.size, machine.directories),
            seeks: seeks(&drive.kind),
            kind: plan.bottom.name(),
            load: 0.0,
            timing: drive.timing(plan.size, drive.cache, without_collection),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            in_flight: FxHashMap::default(),
            submitted: 0,
            busy_since: Nanos(0),
            meter: RateMeter::new(METER_PERIOD),
            background: 0,
            counts: Counts::default(),
        })
    }

    /// Returns the measured rate; `None` before the first measurement.
    pub(super) fn rate(&mut self, now: Nanos) -> Option<f64> {
        self.meter.rate(now)
    }

    /// Returns the bytes of writes that nobody waits for and that are not done.
    pub(super) fn background(&self) -> Bytes {
        Bytes(self.background)
    }

    /// Whether no command is queued or in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.reads.is_empty() && self.writes.is_empty()
    }

    /// Queues a read for a client.
    pub(super) fn read(&mut self, piece: Piece, client: usize) {
        let kind = IoKind::Read;
        self.reads.push_back(Command { kind, piece, waiting: Waiting::Client(client) });
    }

    /// Queues a read that nobody waits for.
    pub(super) fn read_in_background(&mut self, piece: Piece) {
        self.reads.push_back(Command { kind: IoKind::Read, piece, waiting: Waiting::Nobody });
    }

    /// Queues a batch of evicted items: their places, and the bytes of the fast tier that each takes. Nobody
    /// waits for those that fit into `buffered_max` with what waits already; returns the bytes of the fast
    /// tier that these took.
    pub(super) fn evict(&mut self, mut batch: Vec<(Piece, Bytes)>, buffered_max: Bytes) -> Bytes {
        let mut room = Bytes(buffered_max.0.saturating_sub(self.background));
        let (mut buffered, mut free) = (Vec::new(), Bytes(0));
        batch.retain(|(piece, space)| {
            let is_buffered = piece.len <= room;
            if is_buffered {
                room = Bytes(room.0 - piece.len.0);
                free += *space;
                buffered.push(*piece);
            }
            !is_buffered
        });
        self.counts.evicted += free;
        self.write_in_background(buffered);
        batch.sort_unstable();
        let mut merged: Vec<(Piece, Bytes)> = Vec::with_capacity(batch.len());
        for (piece, space) in batch {
            self.counts.evicted += space;
            match merged.last_mut() {
                Some((last, of_last)) if joins(last, &piece) => {
                    last.len += piece.len;
                    *of_last += space;
                }
                _ => merged.push((piece, space)),
            }
        }
        for (piece, space) in merged {
            self.queue_write(piece, Waiting::Space(space));
        }
        free
    }

    /// Queues writes that nobody waits for.
    pub(super) fn write_in_background(&mut self, mut pieces: Vec<Piece>) {
        pieces.sort_unstable();
        let mut merged: Vec<Piece> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match merged.last_mut() {
                Some(last) if joins(last, &piece) => last.len += piece.len,
                _ => merged.push(piece),
            }
        }
        for piece in merged {
            self.background += piece.len.0;
            self.queue_write(piece, Waiting::Nobody);
        }
    }

    fn queue_write(&mut self, piece: Piece, waiting: Waiting) {
        let kind = IoKind::Write { fua: false };
        let mut rest = piece;
        // Space is free when the last part is written.
        while rest.len.0 > COMMAND_MAX {
            let first = Piece { len: Bytes(COMMAND_MAX), ..rest };
            let waiting = if waiting == Waiting::Nobody { waiting } else { Waiting::Space(Bytes(0)) };
            self.writes.push_back(Command { kind, piece: first, waiting });
            rest = Piece { at: rest.at + first.len, len: rest.len - first.len };
        }
        self.writes.push_back(Command { kind, piece: rest, waiting });
    }

    /// Submits what the drive takes.
    pub(super) fn submit(&mut self, now: Nanos) {
        while self.in_flight.len() < DEPTH {
            let next = self.reads.pop_front().or_else(|| self.writes.pop_front());
            let Some(command) = next else { return };
            if self.in_flight.is_empty() {
                self.busy_since = now;
            }
            let id = IoId(self.submitted);
            self.submitted += 1;
            self.timing.submit(now, id, command.kind, command.piece.at, command.piece.len);
            self.in_flight.insert(id, command);
        }
    }

    /// Returns when the drive is to be asked next.
    pub(super) fn next(&self) -> Option<Nanos> {
        if self.in_flight.is_empty() { None } else { self.timing.next() }
    }

    /// Returns who waited for a command that is done by `now`; `None` if there are no more.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<Waiting> {
        let command =
            std::iter::from_fn(|| self.timing.pop(now)).find_map(|id| self.in_flight.remove(&id))?;
        let len = command.piece.len;
        let busy = now.since(self.busy_since);
        self.busy_since = now;
        self.meter.record(now, len, busy);
        self.counts.busy += busy;
        if command.kind == IoKind::Read {
            self.counts.reads += 1;
            self.counts.read += len;
        } else {
            self.counts.writes += 1;
            self.counts.written += len;
            if command.waiting == Waiting::Nobody {
                self.background -= len.0;
            }
        }
        Some(command.waiting)
    }

    /// Begins to count.
    pub(super) fn restart_counts(&mut self) {
        self.counts = Counts::default();
    }

    /// Returns what was measured in this time; the shares of evicted bytes are filled in later.
    pub(super) fn outcome(&self, measured: Nanos) -> TierOutcome {
        let Counts { reads, read, writes, written, evicted, busy } = self.counts;
        TierOutcome {
            drive: self.drive.clone(),
            file_system: self.kind.to_owned(),
            seeks: self.seeks,
            reads,
            read_bytes: read.0,
            writes,
            written_bytes: written.0,
            evicted_bytes: evicted.0,
            evicted_share: None,
            busy: busy.as_secs_f64() / measured.as_secs_f64().max(f64::MIN_POSITIVE),
            bytes_per_busy_second: (busy > Nanos(0))
                .then(|| (read.0 + written.0) as f64 / busy.as_secs_f64()),
        }
    }
}

/// Whether a piece continues another one, and both together are one command.
fn joins(last: &Piece, piece: &Piece) -> bool {
    last.at + last.len == piece.at && last.len.0 + piece.len.0 <= COMMAND_MAX
}
