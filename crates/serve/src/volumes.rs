//! What the server needs of whoever keeps the volumes: the engine's face, and nothing else of it.

use crate::nbd::Export;
use weir_model::{Bytes, ErrorKind, Io, IoDone, Memory, Nanos, Reply, Request, VolumeId, VolumeOffset};

/// Volumes, driven by events as [`weir_engine`] is: requests and completions in, device commands
/// and replies out. Implemented by the engine, and by [`Ram`](crate::Ram) for tests of the server.
pub trait Volumes {
    /// From a client.
    fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M);
    /// From a device.
    fn complete<M: Memory>(&mut self, now: Nanos, done: IoDone, memory: &mut M);
    /// Rounds and deadlines.
    fn tick<M: Memory>(&mut self, now: Nanos, memory: &mut M);
    /// To a device.
    fn next_io(&mut self) -> Option<Io>;
    /// To a client.
    fn next_reply(&mut self) -> Option<Reply>;
    /// When to tick at the latest.
    fn deadline(&self) -> Option<Nanos>;
    /// Whether another request may be submitted.
    fn can_accept(&self) -> bool;
    /// The volumes there are, by name.
    fn exports(&self) -> Vec<Export>;
    /// Which parts of a range hold data: runs from its start that follow each other, at most
    /// `of.most`, none longer than `of.len` in all. Nothing if there is no such volume.
    fn runs(&self, of: RunsOf, runs: &mut Vec<Run>);
    /// Makes or removes a volume; answered by [`next_change`](Self::next_change) under `id`.
    fn change(&mut self, now: Nanos, id: ChangeId, change: Change);
    /// A change that is durable, or was refused.
    fn next_change(&mut self) -> Option<(ChangeId, Result<(), Refusal>)>;
    /// No more requests will come: bring everything to rest on the devices.
    fn begin_stop(&mut self, now: Nanos);
    /// Everything is at rest.
    fn stopped(&self) -> bool;
}

/// A question: which parts of a range hold data.
#[derive(Clone, Copy, Debug)]
pub struct RunsOf {
    /// Of which volume.
    pub volume: VolumeId,
    /// From where.
    pub offset: VolumeOffset,
    /// How far.
    pub len: Bytes,
    /// The most runs to be told.
    pub most: usize,
}

/// Bytes that are all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many.
    pub len: Bytes,
    /// They hold data; otherwise they are a hole and read as zeros.
    pub data: bool,
}

/// Names a change while it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeId(pub u64);

/// A change to the volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new one.
    Create {
        /// Its name.
        name: String,
        /// Its size.
        size: Bytes,
    },
    /// One less.
    Remove {
        /// Its name.
        name: String,
    },
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the user has to do about it.
    pub kind: ErrorKind,
    /// What happened, and the way out.
    pub message: String,
}
