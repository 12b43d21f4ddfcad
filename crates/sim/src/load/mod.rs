//! What is asked of a pool: from a trace ([`Replay`]) or synthetic ([`Synthetic`], [`Postmark`], several of
//! them side by side), block by block or by programs that use [`files`].

pub mod dbench;
pub mod files;
pub mod mix;
mod parse;
pub mod postmark;
pub mod process;
mod replay;
mod side_by_side;
pub mod synthetic;

pub use parse::{NAMED_LOADS, NamedLoad, is_synthetic, parse, records};
pub use postmark::Postmark;
pub use replay::Replay;
pub use synthetic::Synthetic;

use std::ops::Range;
use weir_model::{Bytes, ExtentIndex, ExtentSize, Nanos, Op, VolumeOffset};

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, counted from the load's start.
    pub at: Nanos,
    /// To which of the load's volumes.
    pub volume: usize,
    /// [`Op::Read`], [`Op::Write`], [`Op::Trim`] or [`Op::Flush`].
    pub op: Op,
    /// Its first byte, a multiple of 512.
    pub offset: VolumeOffset,
    /// Its length, a multiple of 512, at least 512; a flush has none.
    pub len: Bytes,
}

/// One of those who ask in a closed loop, counted from 0: it waits for the answer before it asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client(pub usize);

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It asks for this, then.
    Ask(Arrival),
    /// It asks for nothing before then, which is later than now.
    Wait(Nanos),
}

impl Next {
    /// When.
    pub const fn at(&self) -> Nanos {
        match self {
            Self::Ask(arrival) => arrival.at,
            Self::Wait(at) => *at,
        }
    }
}

/// What one volume has of the load's data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The volume's size.
    pub size: Bytes,
    /// The extents that hold data before the load begins, as runs in ascending order.
    pub extents: Vec<Range<ExtentIndex>>,
}

impl Space {
    /// How many extents hold data.
    pub fn count(&self) -> u64 {
        self.extents.iter().map(|run| run.end.0 - run.start.0).sum()
    }

    /// What either of two loads has on the same volume.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
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

    /// All bytes from the volume's start.
    pub fn all(size: Bytes, extent: ExtentSize) -> Self {
        let count = extent.count(size);
        Self {
            size: Bytes(count * extent.bytes().0),
            extents: std::iter::once(ExtentIndex(0)..ExtentIndex(count)).collect(),
        }
    }
}

/// A source of requests, endless.
pub trait Load {
    /// Its volumes, and what of them holds data, in extents of this size.
    fn spaces(&self, extent: ExtentSize) -> Vec<Space>;

    /// How long it takes by its own clock; what comes then is a repetition.
    fn lasts(&self) -> Nanos;

    /// The next request of an open loop. `now` is the time of the last arrival since the load's start;
    /// times never go backwards.
    fn next(&mut self, now: Nanos) -> Arrival;

    /// The next request in a closed loop of a client that has none under way at `now`: it comes at once, or
    /// when the client has thought about the last answer.
    fn next_of(&mut self, client: Client, now: Nanos) -> Next {
        let Client(_) = client;
        Next::Ask(Arrival { at: now, ..self.next(now) })
    }

    /// What has been done so far, in the load's own measure (transactions, operations), if it has one.
    fn done(&self) -> Option<u64> {
        None
    }
}
