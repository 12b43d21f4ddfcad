//! Byte-addressable persistent memory: a latency, and a bandwidth per direction that all
//! accesses share.
//!
//! What reached the memory controller survives a power cut, so a write is durable when it
//! completes and a flush is a fence.

use crate::Timing;
use crate::completions::Completions;
use crate::pipe::{Pipe, duration};
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

/// What makes one memory different from another.
#[derive(Clone, Copy, Debug)]
pub struct MemoryParams {
    /// From a read's start to its first byte.
    pub read_latency: Nanos,
    /// From a write's start to the point where it is durable, without its transfer.
    pub write_latency: Nanos,
    /// Bytes a second, all reads together.
    pub read_rate: Bytes,
    /// Bytes a second, all writes together.
    pub write_rate: Bytes,
    /// A fence.
    pub flush: Nanos,
}

/// Persistent memory's timing. A command costs one heap operation in and one out.
#[derive(Debug)]
pub struct PersistentMemory {
    params: MemoryParams,
    reads: Pipe,
    writes: Pipe,
    done: Completions,
}

impl PersistentMemory {
    /// Idle memory.
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
