//! Model of byte-addressable persistent memory: a latency, and a bandwidth per direction that all accesses
//! share.
//!
//! Data that has reached the memory controller survives a power failure, so a write is durable when it
//! completes and a flush is a fence.

use crate::Timing;
use crate::completions::Completions;
use crate::pipe::{Pipe, duration};
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

/// Parameters of a memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryParams {
    /// Time from a read's start to its first byte.
    pub read_latency: Nanos,
    /// Time from a write's start until it is durable, without its transfer.
    pub write_latency: Nanos,
    /// Read bandwidth, in bytes per second.
    pub read_rate: Bytes,
    /// Write bandwidth, in bytes per second.
    pub write_rate: Bytes,
    /// Time of a fence.
    pub flush: Nanos,
}

/// Timing of persistent memory. Cost per command: one heap insertion and one removal.
#[derive(Debug)]
pub struct PersistentMemory {
    params: MemoryParams,
    reads: Pipe,
    writes: Pipe,
    done: Completions,
}

impl PersistentMemory {
    /// Creates an idle memory.
    pub fn new(params: &MemoryParams) -> Self {
        Self {
            params: *params,
            reads: Pipe::default(),
            writes: Pipe::default(),
            done: Completions::default(),
        }
    }
}

impl Timing for PersistentMemory {
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, _at: DeviceOffset, len: Bytes) {
        let p = &self.params;
        let end = match kind {
            IoKind::Read => self.reads.pass(now, duration(len, p.read_rate)) + p.read_latency,
            IoKind::Write { .. } => self.writes.pass(now, duration(len, p.write_rate)) + p.write_latency,
            IoKind::Flush => now + p.flush,
        };
        self.done.push(end, id);
    }
    fn next(&self) -> Option<Nanos> {
        self.done.next()
    }
    fn pop(&mut self, now: Nanos) -> Option<IoId> {
        self.done.pop(now)
    }
}
