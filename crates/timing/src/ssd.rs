//! A solid-state drive: flash dies behind a controller and a link, and a write buffer that drains into them.
//!
//! - **Reads** are cut into flash pages; each occupies the die its address says. It waits for the reads
//!   before it, and where the die is programming or erasing until that is suspended, or, on drives
//!   that cannot, until it ends.
//! - **Writes** complete when they are in the buffer. It drains at the rate of the flash,
//!   where a write that does not continue one of the last few costs more, for the collection it causes: in
//!   proportion to its length, on drives before 2010 a fixed time besides.
//!   With the buffer full, writes wait for room and so go at that rate. What drains occupies the dies in turn,
//!   with an erase for every block that fills; reads slow it by the time they take from the dies.
//! - **FLUSH** waits until the buffer as of its submission is drained, **FUA** for its own
//!   program, unless the buffer is protected.
//!
//! What a random write costs is either a parameter (the mean collection of the drive as it was measured), or,
//! with `spare`, follows from the state of the flash: pages are mapped, blocks collected as they are needed.
//!
//! Not modelled: channels between controller and dies (the link and the dies limit what they would), a
//! pseudo-SLC region that runs full after tens of gigabytes, wear.

use crate::completions::Completions;
use crate::pipe::{Pipe, duration};
use crate::{Timing, WriteCache};
use flash::{Flash, Work};
use log::Log;
use std::collections::VecDeque;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

mod flash;
mod log;

/// What makes one SSD different from another.
#[derive(Clone, Copy, Debug)]
pub struct SsdParams {
    /// Reads that proceed at the same time; at least 1.
    pub dies: u32,
    /// What a die reads at once; at least 1.
    pub page: Bytes,
    /// Reading a page from the flash.
    pub read: Nanos,
    /// A read's wait for a program or erase to be suspended; `None` if the drive cannot suspend them.
    pub suspend: Option<Nanos>,
    /// Erasing a block.
    pub erase: Nanos,
    /// Pages of a block; at least 1.
    pub block: u32,
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
    /// Writes that continue one another, told apart at the same time; at least 1.
    pub streams: usize,
    /// What a byte of a random write costs to drain, in percent of a sequential one's.
    pub random_percent: u32,
    /// What a random write costs besides, whatever its length: drives that map whole blocks copy one.
    pub random: Nanos,
    /// Flash there is beyond the drive's size, as a share of both together, 0 to 1: collection follows from the
    /// state of the flash, and `random_percent` and `random` do not count. `None` for their mean cost.
    pub spare: Option<f64>,
    /// Programming a page: what a write that must be on the flash waits for.
    pub program: Nanos,
    /// A flush with nothing to drain.
    pub flush: Nanos,
}

/// An SSD's timing. Every completion time is known at submission: a command costs a heap
/// operation in and one out, and some nanoseconds for each page.
#[derive(Debug)]
pub struct Ssd {
    params: SsdParams,
    cache: WriteCache,
    flash: Flash,
    inbound: Pipe,
    outbound: Pipe,
    /// The flash as the target of buffered writes; free when the buffer is empty.
    drain: Pipe,
    /// The state of the flash, if collection follows from it.
    log: Option<Log>,
    /// Where sequential writes would go on, the latest last.
    write_ends: VecDeque<DeviceOffset>,
    done: Completions,
}

impl Ssd {
    /// An idle drive of this size, nothing on it yet.
    pub fn new(params: &SsdParams, capacity: Bytes, cache: WriteCache) -> Self {
        // All dies together program as fast as the buffer drains, erases included.
        let page = duration(Bytes(params.page.0 * u64::from(params.dies.max(1))), params.drain_rate);
        let block = params.block.max(1);
        let work = Work {
            read: params.read,
            program: page - Nanos(params.erase.0 / u64::from(block)),
            erase: params.erase,
            block,
            suspend: params.suspend,
        };
        let pages = u32::try_from(capacity.0.div_ceil(params.page.0.max(1))).unwrap_or(u32::MAX / 2);
        Self {
            params: *params,
            cache,
            log: params.spare.map(|spare| Log::new(pages, block, spare)),
            flash: Flash::new(params.dies, params.page, work),
            inbound: Pipe::default(),
            outbound: Pipe::default(),
            drain: Pipe::default(),
            write_ends: VecDeque::from([DeviceOffset(0)]),
            done: Completions::default(),
        }
    }

    fn read(&mut self, now: Nanos, at: DeviceOffset, len: Bytes) -> Nanos {
        let p = &self.params;
        let link = if p.duplex { &mut self.outbound } else { &mut self.inbound };
        let sent = link.pass(now, p.command + duration(len, p.read_rate));
        let page = p.page.0.max(1);
        let mut sensed = now;
        let mut lost = Nanos(0);
        for page in at.0 / page..at.0.saturating_add(len.0).div_ceil(page) {
            let (end, taken) = self.flash.read(now + p.command, page);
            sensed = sensed.max(end);
            lost += taken;
        }
        if self.drain.free() > now {
            self.drain.pass(now, Nanos(lost.0 / self.flash.dies()));
        }
        // The transfer follows the flash page by page: bound by the dies, or by the link.
        let last = duration(Bytes(len.0.min(page)), p.read_rate);
        (sensed + last).max(sent + p.read)
    }

    fn write(&mut self, now: Nanos, at: DeviceOffset, len: Bytes, fua: bool) -> Nanos {
        let arrived = self.inbound.pass(now, self.params.command + duration(len, self.params.write_rate));
        let sequential = self.continues(at, len);
        let (programmed, besides) = self.costs(at, len, sequential);
        let p = &self.params;
        let charge = duration(programmed, p.drain_rate) + besides;
        // There is room once what is ahead drains within the rest of the buffer.
        let room = self.drain.free() - (duration(p.buffer, p.drain_rate) - charge);
        self.flash.program(self.drain.free().max(now), programmed, besides);
        let drained = self.drain.pass(now, charge);
        match self.cache {
            WriteCache::None => arrived.max(drained) + p.program,
            WriteCache::Volatile if fua => arrived.max(room) + charge + p.program,
            _ => arrived.max(room) + p.acknowledge,
        }
    }

    /// What a write programs, collection included, and what time it costs the flash besides.
    fn costs(&mut self, at: DeviceOffset, len: Bytes, sequential: bool) -> (Bytes, Nanos) {
        let p = &self.params;
        let Some(log) = &mut self.log else {
            let percent = if sequential { 100 } else { u64::from(p.random_percent) };
            let besides = if sequential { Nanos(0) } else { p.random };
            return (Bytes(len.0 * percent / 100), besides);
        };
        let page = p.page.0.max(1);
        let pages = at.0 / page..at.0.saturating_add(len.0).div_ceil(page);
        let written = pages.end - pages.start;
        let copied: u64 = pages.map(|page| u64::from(log.write(page).copied)).sum();
        let reads = Nanos(copied * p.read.0 / self.flash.dies());
        (Bytes((written + copied) * page), reads)
    }

    /// Whether a write goes on where one of the last ended, which from now on is where it ends.
    fn continues(&mut self, at: DeviceOffset, len: Bytes) -> bool {
        let known = self.write_ends.iter().position(|end| *end == at);
        if let Some(known) = known {
            self.write_ends.remove(known);
        }
        self.write_ends.push_back(at + len);
        while self.write_ends.len() > self.params.streams.max(1) {
            self.write_ends.pop_front();
        }
        known.is_some()
    }
}

impl Timing for Ssd {
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, at: DeviceOffset, len: Bytes) {
        let end = match kind {
            IoKind::Read => self.read(now, at, len),
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
