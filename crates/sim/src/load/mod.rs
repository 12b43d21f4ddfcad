//! Loads: sources of requests to a pool, from a trace ([`Replay`]) or synthetic ([`Synthetic`], [`Postmark`],
//! several of them concurrently), block by block or by programs that use [`file_system`].

pub mod block_costs;
mod concurrent;
pub mod dbench;
pub mod file_system;
pub mod mix;
pub mod operations;
mod parse;
mod paused;
pub mod postmark;
pub mod process;
pub mod ramp;
pub mod random_reads;
mod replay;
pub mod synthetic;

pub use parse::{NAMED_LOADS, NamedLoad, is_synthetic, parse, records};
pub use paused::Paused;
pub use postmark::Postmark;
pub use ramp::{Ramp, RampStep};
pub use replay::Replay;
pub use synthetic::Synthetic;

use std::ops::Range;
use weir_model::{Bytes, ExtentIndex, ExtentSize, Hint, Nanos, Op, VolumeOffset};

/// An arriving request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Arrival time, from the start of the load.
    pub at: Nanos,
    /// Index of the load's volume.
    pub volume: usize,
    /// [`Op::Read`], [`Op::Write`], [`Op::Trim`] or [`Op::Flush`].
    pub op: Op,
    /// Offset of its first byte, a multiple of 512.
    pub offset: VolumeOffset,
    /// Length, a multiple of 512, at least 512; a flush has none.
    pub len: Bytes,
    /// What the load knows about the blocks.
    pub hint: Hint,
}

/// A client of a closed loop, numbered from 0: it waits for the reply before its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client(pub usize);

/// The next action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAction {
    /// It sends this request at the request's time.
    Send(Arrival),
    /// It sends nothing before this time, which is in the future.
    Wait(Nanos),
}

impl ClientAction {
    /// Returns the time of the action.
    pub const fn at(&self) -> Nanos {
        match self {
            Self::Send(arrival) => arrival.at,
            Self::Wait(at) => *at,
        }
    }
}

/// The load's data on one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeData {
    /// Size of the volume.
    pub size: Bytes,
    /// Extents that contain data before the load begins, as runs in ascending order.
    pub extents: Vec<Range<ExtentIndex>>,
}

impl VolumeData {
    /// Returns the number of extents that contain data.
    pub fn count(&self) -> u64 {
        self.extents.iter().map(|run| run.end.0 - run.start.0).sum()
    }

    /// Returns the union of two loads' data on the same volume.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        let size = self.size.max(other.size);
        let mut runs: Vec<_> = self.extents.into_iter().chain(other.extents).collect();
        runs.sort_unstable_by_key(|run| run.start);
        let mut extents: Vec<Range<ExtentIndex>> = Vec::with_capacity(runs.len());
        for run in runs {
            match extents.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => extents.push(run),
            }
        }
        Self { size, extents }
    }

    /// Makes a space with data in all bytes from the volume's start.
    pub fn filled(size: Bytes, extent: ExtentSize) -> Self {
        let count = extent.count(size);
        Self {
            size: Bytes(count * extent.bytes().0),
            extents: std::iter::once(ExtentIndex(0)..ExtentIndex(count)).collect(),
        }
    }
}

/// An endless source of requests.
pub trait Load {
    /// Returns its volumes and their data, in extents of this size.
    fn volumes(&self, extent: ExtentSize) -> Vec<VolumeData>;

    /// Returns the duration of one repetition, by the load's own clock.
    fn duration(&self) -> Nanos;

    /// Returns the next request of an open loop. `now` is the time of the last arrival since the load's
    /// start; times never go backwards.
    fn next_arrival(&mut self, now: Nanos) -> Arrival;

    /// Returns the next action of a client of a closed loop that has no request in flight at `now`: a request
    /// at once, or after the client's think time.
    fn next_action(&mut self, client: Client, now: Nanos) -> ClientAction {
        let Client(_) = client;
        ClientAction::Send(Arrival { at: now, ..self.next_arrival(now) })
    }

    /// Returns the work done so far, in the load's own unit (transactions, operations), if it has one.
    fn work_done(&self) -> Option<u64> {
        None
    }

    /// Returns the bytes that programs have read and written so far, in memory or not, if the load counts
    /// them.
    fn transferred(&self) -> Option<Transferred> {
        None
    }

    /// Returns the steps of the ramp by which its operations arrive, if they do; else none.
    fn ramp_steps(&self) -> Vec<RampStep> {
        Vec::new()
    }

    /// Returns what its blocks cost in a closed loop, if the load keeps an account of it.
    fn block_costs(&self) -> Option<&block_costs::BlockCosts> {
        None
    }
}

/// Bytes that programs have read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
}
