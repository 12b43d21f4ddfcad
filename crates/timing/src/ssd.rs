//! A solid-state drive: flash dies that read in parallel behind a controller and a link, and a
//! write buffer that drains into them.
//!
//! - **Reads** are cut into flash pages; each occupies the die that is free first. Dies are not
//!   told apart by address, so two reads collide only when all dies are busy. While buffered
//!   writes are being programmed, a read also waits for a program to be suspended.
//! - **Writes** complete when they are in the buffer. It drains at the rate of the flash,
//!   where a write that does not continue the previous one costs more, for the cleaning it causes.
//!   With the buffer full, writes wait for room and so go at that rate.
//! - **FLUSH** waits until the buffer as of its submission is drained, **FUA** for its own
//!   program, unless the buffer is protected.
//!
//! Not modelled: a pseudo-SLC region that runs full after tens of gigabytes, wear, and cleaning
//! by its state (that is the flash log's business).

use crate::completions::Completions;
use crate::pipe::{Pipe, duration};
use crate::{Timing, WriteCache};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

/// What makes one SSD different from another.
#[derive(Clone, Copy, Debug)]
pub struct SsdParams {
    /// Reads that proceed at the same time; at least 1.
    pub dies: u32,
    /// What a die reads at once; at least 1.
    pub page: Bytes,
    /// Reading a page from the flash.
    pub read: Nanos,
    /// A read's wait for a program to be suspended.
    pub suspend: Nanos,
    /// The controller's time per command, one after another: what limits commands a second.
    pub command: Nanos,
    /// The link towards the host, bytes a second.
    pub read_rate: Bytes,
    /// The link towards the drive, bytes a second.
    pub write_rate: Bytes,
    /// Whether both directions of the link work at the same time.
    pub duplex: bool,
    /// From a write's arrival in the buffer to its acknowledgement.
    pub acknowledge: Nanos,
    /// The write buffer's size.
    pub buffer: Bytes,
    /// The buffer's drain into the flash, bytes a second, for sequential writes.
    pub drain_rate: Bytes,
    /// What a byte of a random write costs to drain, in percent of a sequential one's.
    pub random_percent: u32,
    /// Programming a page: what a write that must be on the flash waits for.
    pub program: Nanos,
    /// A flush with nothing to drain.
    pub flush: Nanos,
}

/// An SSD's timing. Every completion time is known at submission: a command costs a heap
/// operation in and one out, a read also one per page.
#[derive(Debug)]
pub struct Ssd {
    params: SsdParams,
    cache: WriteCache,
    /// When each die is free, soonest first.
    dies: BinaryHeap<Reverse<Nanos>>,
    inbound: Pipe,
    outbound: Pipe,
    /// The flash as the target of buffered writes; free when the buffer is empty.
    drain: Pipe,
    /// Where a sequential write would go on.
    write_end: DeviceOffset,
    done: Completions,
}

impl Ssd {
    /// An idle drive.
    pub fn new(params: &SsdParams, cache: WriteCache) -> Self {
        Self {
            params: *params,
            cache,
            dies: (0..params.dies.max(1)).map(|_| Reverse(Nanos(0))).collect(),
            inbound: Pipe::default(),
            outbound: Pipe::default(),
            drain: Pipe::default(),
            write_end: DeviceOffset(0),
            done: Completions::default(),
        }
    }

    fn read(&mut self, now: Nanos, len: Bytes) -> Nanos {
        let p = &self.params;
        let link = if p.duplex { &mut self.outbound } else { &mut self.inbound };
        let sent = link.pass(now, p.command + duration(len, p.read_rate));
        let suspend = if self.drain.free() > now { p.suspend } else { Nanos(0) };
        let mut sensed = now;
        for _ in 0..len.0.div_ceil(p.page.0.max(1)) {
            let Some(mut die) = self.dies.peek_mut() else { break };
            let end = die.0.max(now + p.command) + p.read + suspend;
            *die = Reverse(end);
            sensed = sensed.max(end);
        }
        // The transfer follows the flash page by page: bound by the dies, or by the link.
        let last = duration(Bytes(len.0.min(p.page.0)), p.read_rate);
        (sensed + last).max(sent + p.read)
    }

    fn write(&mut self, now: Nanos, at: DeviceOffset, len: Bytes, fua: bool) -> Nanos {
        let p = &self.params;
        let arrived = self.inbound.pass(now, p.command + duration(len, p.write_rate));
        let percent = if at == self.write_end { 100 } else { u64::from(p.random_percent) };
        self.write_end = at + len;
        let charge = Nanos(duration(len, p.drain_rate).0 * percent / 100);
        // There is room once what is ahead drains within the rest of the buffer.
        let room = self.drain.free() - (duration(p.buffer, p.drain_rate) - charge);
        let drained = self.drain.pass(now, charge);
        match self.cache {
            WriteCache::None => arrived.max(drained) + p.program,
            WriteCache::Volatile if fua => arrived.max(room) + charge + p.program,
            _ => arrived.max(room) + p.acknowledge,
        }
    }
}

impl Timing for Ssd {
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, at: DeviceOffset, len: Bytes) {
        let end = match kind {
            IoKind::Read => self.read(now, len),
            IoKind::Write { fua } => self.write(now, at, len, fua),
            IoKind::Flush if self.cache == WriteCache::Volatile => {
                self.drain.free().max(now) + self.params.flush
            }
            IoKind::Flush => now + self.params.command,
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
