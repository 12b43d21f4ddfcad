//! Model of a solid-state drive: flash dies behind a controller and a link, and a write buffer that drains
//! into them.
//!
//! - **Reads** are divided into flash pages; each occupies the die of its address. It waits for earlier reads
//!   and, if the die is programming or erasing, until that is suspended or, on drives that cannot suspend,
//!   until it completes.
//! - **Writes** complete when they are in the buffer. The buffer drains at the rate of the flash, where a
//!   write that does not continue one of the last few costs more because of the garbage collection it causes:
//!   in proportion to its length and, on drives before 2010, by an additional fixed time. With the buffer
//!   full, writes wait for room and so run at that rate. The drain occupies the dies in turn, with an erase
//!   for every filled block; reads slow it by the time they take from the dies.
//! - **FLUSH** waits until the buffer as of its submission is drained, **FUA** for its own program, unless
//!   the buffer is protected.
//!
//! The cost of a random write is either a parameter (the mean cost of collection, as measured on the drive),
//! or, with `spare`, follows from the state of the flash, which a [`FlashLog`] keeps.
//!
//! Not modelled: channels between controller and dies (the link and the dies impose the same limits), a
//! pseudo-SLC region that fills up after tens of gigabytes, wear.

use crate::completions::Completions;
use crate::pipe::{Pipe, duration};
use crate::{Timing, WriteCache};
use flash::{Flash, Work};
use std::collections::VecDeque;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

mod flash;
mod flash_log;

pub use flash_log::{CollectionCost, FlashLog, FlashSize, NewFlashLog, without_collection};

/// Parameters of an SSD.
#[derive(Clone, Copy, Debug)]
pub struct SsdParams {
    /// Number of parallel reads; at least 1.
    pub dies: u32,
    /// Bytes that a die reads at once; at least 1.
    pub page: Bytes,
    /// Time to read a page from the flash.
    pub read: Nanos,
    /// Time until a program or erase is suspended for a read; `None` if the drive cannot suspend them.
    pub suspend: Option<Nanos>,
    /// Time to erase a block.
    pub erase: Nanos,
    /// Pages per block; at least 1.
    pub block: u32,
    /// The controller's serial time per command, which limits the command rate.
    pub command: Nanos,
    /// Rate of the link towards the host, in bytes per second.
    pub read_rate: Bytes,
    /// Rate of the link towards the drive, in bytes per second.
    pub write_rate: Bytes,
    /// True if both directions of the link work at the same time.
    pub duplex: bool,
    /// Time from a write's arrival in the buffer to its acknowledgement.
    pub acknowledge: Nanos,
    /// Size of the write buffer.
    pub buffer: Bytes,
    /// Drain rate of the buffer for sequential writes, in bytes per second.
    pub drain_rate: Bytes,
    /// Number of concurrent sequential write streams that the drive recognizes; at least 1.
    pub streams: usize,
    /// Drain cost of a byte of a random write, in percent of a sequential one's.
    pub random_percent: u32,
    /// Additional cost of a random write, whatever its length: drives that map whole blocks copy one.
    pub random: Nanos,
    /// Over-provisioned flash, as a share of the total, 0 to 1: collection then follows from the state of the
    /// flash, and `random_percent` and `random` do not count. `None` for their mean cost.
    pub spare: Option<f64>,
    /// Time to program a page, for which a write that must be on the flash waits.
    pub program: Nanos,
    /// Time of a flush with an empty buffer.
    pub flush: Nanos,
}

/// Timing of an SSD. Every completion time is known at submission. Cost per command: a heap insertion and
/// removal, and a few nanoseconds per page.
#[derive(Debug)]
pub struct Ssd<L = Box<dyn FlashLog>> {
    params: SsdParams,
    cache: WriteCache,
    flash: Flash,
    inbound: Pipe,
    outbound: Pipe,
    /// The flash as the target of buffered writes; free when the buffer is empty.
    drain: Pipe,
    /// State of the flash, if collection follows from it.
    log: Option<L>,
    /// Offsets at which sequential writes would continue, the latest last.
    write_ends: VecDeque<DeviceOffset>,
    done: Completions,
}

impl Ssd {
    /// Creates an idle, empty drive of this size. `new_log` creates its log, if collection follows from the
    /// state of the flash.
    pub fn new(params: &SsdParams, capacity: Bytes, cache: WriteCache, new_log: NewFlashLog) -> Self {
        let pages = capacity.0.div_ceil(params.page.0.max(1));
        let log = params.spare.map(|spare| new_log(FlashSize { pages, block: params.block.max(1), spare }));
        Self::with_log(params, cache, log)
    }
}

impl<L: FlashLog> Ssd<L> {
    /// Creates an idle drive whose flash is in the state of this log; `None` for the mean cost of collection.
    pub fn with_log(params: &SsdParams, cache: WriteCache, log: Option<L>) -> Self {
        // All dies together program as fast as the buffer drains, including erases.
        let page = duration(Bytes(params.page.0 * u64::from(params.dies.max(1))), params.drain_rate);
        let block = params.block.max(1);
        let work = Work {
            read: params.read,
            program: page - Nanos(params.erase.0 / u64::from(block)),
            erase: params.erase,
            block,
            suspend: params.suspend,
        };
        Self {
            params: *params,
            cache,
            log,
            flash: Flash::new(params.dies, params.page, work),
            inbound: Pipe::default(),
            outbound: Pipe::default(),
            drain: Pipe::default(),
            write_ends: VecDeque::from([DeviceOffset(0)]),
            done: Completions::default(),
        }
    }

    /// Returns the log, if collection follows from the state of the flash.
    pub fn log(&self) -> Option<&L> {
        self.log.as_ref()
    }

    /// Returns the log for changes that take no time: TRIM, and what was written before the simulation.
    pub fn log_mut(&mut self) -> Option<&mut L> {
        self.log.as_mut()
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
        // The transfer follows the flash page by page: limited by the dies, or by the link.
        let last = duration(Bytes(len.0.min(page)), p.read_rate);
        (sensed + last).max(sent + p.read)
    }

    fn write(&mut self, now: Nanos, at: DeviceOffset, len: Bytes, fua: bool) -> Nanos {
        let arrived = self.inbound.pass(now, self.params.command + duration(len, self.params.write_rate));
        let sequential = self.continues(at, len);
        let (programmed, besides) = self.program_cost(at, len, sequential);
        let p = &self.params;
        let charge = duration(programmed, p.drain_rate) + besides;
        // There is room once the data ahead drains to the size of the rest of the buffer.
        let room = self.drain.free() - (duration(p.buffer, p.drain_rate) - charge);
        self.flash.program(self.drain.free().max(now), programmed, besides);
        let drained = self.drain.pass(now, charge);
        match self.cache {
            WriteCache::None => arrived.max(drained) + p.program,
            WriteCache::Volatile if fua => arrived.max(room) + charge + p.program,
            _ => arrived.max(room) + p.acknowledge,
        }
    }

    /// Returns the number of bytes that a write programs, including collection, and the additional time on
    /// the flash.
    fn program_cost(&mut self, at: DeviceOffset, len: Bytes, sequential: bool) -> (Bytes, Nanos) {
        let p = &self.params;
        let Some(log) = &mut self.log else {
            let percent = if sequential { 100 } else { u64::from(p.random_percent) };
            let besides = if sequential { Nanos(0) } else { p.random };
            return (Bytes(len.0 * percent / 100), besides);
        };
        let page = p.page.0.max(1);
        let pages = at.0 / page..at.0.saturating_add(len.0).div_ceil(page);
        let written = pages.end - pages.start;
        let (mut copied, mut metadata) = (0, 0);
        for page in pages {
            let cost = log.write(page);
            copied += cost.copied;
            metadata += cost.metadata;
        }
        let reads = Nanos(copied * p.read.0 / self.flash.dies());
        (Bytes((written + copied + metadata) * page), reads)
    }

    /// Reports whether a write continues one of the last ones, and records its end as the place to continue.
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

impl<L: FlashLog> Timing for Ssd<L> {
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
