//! Cores, caches, TLBs and the bus.

use super::sets::{Found, Sets};
use super::{Cycles, LARGE_PAGE_BYTES, LINE_BYTES, PageSize, Picos, Place, SMALL_PAGE_BYTES};
use weir_model::Bytes;

/// Where the page tables are: above all other addresses.
const TABLES: u64 = 1 << 56;
/// Bytes of an entry of a page table.
const TABLE_ENTRY_BYTES: u64 = 8;

/// A TLB for pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbSpec {
    /// Number of entries.
    pub entries: usize,
    /// Entries of a set.
    pub ways: usize,
}

/// The properties of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineSpec {
    /// Number of cores.
    pub cores: usize,
    /// Time of a cycle.
    pub cycle: Picos,
    /// Number of caches; cores take turns to belong to one.
    pub caches: usize,
    /// Size of a cache.
    pub cache: Bytes,
    /// Lines of a set of a cache.
    pub cache_ways: usize,
    /// The TLB for pages of 4 KiB.
    pub small_tlb: TlbSpec,
    /// The TLB for pages of 2 MiB.
    pub large_tlb: TlbSpec,
    /// Work to read or to write a line that is in the cache.
    pub line_work: Cycles,
    /// Time of a line on the bus.
    pub transfer: Picos,
    /// Time until a line arrives that was not prefetched.
    pub latency: Picos,
    /// Work of a page walk, besides reading an entry of a table.
    pub walk: Cycles,
    /// Work to flush a line.
    pub flush: Cycles,
    /// Work of a fence, besides waiting for what was flushed.
    pub fence: Cycles,
}

/// What happened on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that no cache had.
    pub cache_misses: u64,
    /// Translations that no TLB had.
    pub tlb_misses: u64,
    /// Lines on the bus.
    pub transfers: u64,
    /// Lines that were flushed.
    pub flushes: u64,
}

#[derive(Clone, Debug)]
struct Core {
    small: Sets,
    large: Sets,
    now: Picos,
}

/// What an operation needs.
#[derive(Clone, Copy, Debug, Default)]
struct Need {
    work: Cycles,
    /// Work to read and write lines, which transfers overlap.
    line_work: Cycles,
    stalls: Picos,
    transfers: u64,
}

/// A machine in virtual time.
#[derive(Clone, Debug)]
pub struct Machine {
    spec: MachineSpec,
    caches: Vec<Sets>,
    cores: Vec<Core>,
    /// When the bus is free.
    bus_free: Picos,
    running: usize,
    need: Need,
    has_flushed: bool,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Machine {
    /// Creates a machine whose caches and TLBs are empty.
    pub fn new(spec: MachineSpec) -> Self {
        let tlb = |spec: TlbSpec| Sets::new(spec.entries, spec.ways);
        let core = Core { small: tlb(spec.small_tlb), large: tlb(spec.large_tlb), now: Picos(0) };
        let cache = Sets::new((spec.cache.0 / LINE_BYTES) as usize, spec.cache_ways);
        Self {
            caches: vec![cache; spec.caches.max(1)],
            cores: vec![core; spec.cores.max(1)],
            bus_free: Picos(0),
            running: 0,
            need: Need::default(),
            has_flushed: false,
            counts: Counts::default(),
            spec,
        }
    }

    /// Returns the properties.
    pub const fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// Returns what happened since the last [`restart`](Self::restart).
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns a core's time since the last [`restart`](Self::restart).
    pub fn now(&self, core: usize) -> Picos {
        self.cores[core].now
    }

    /// Sets all clocks and counts to 0; caches and TLBs stay as they are.
    pub fn restart(&mut self) {
        self.cores.iter_mut().for_each(|core| core.now = Picos(0));
        (self.bus_free, self.counts, self.need) = (Picos(0), Counts::default(), Need::default());
    }

    /// Begins an operation on a core.
    pub fn begin(&mut self, core: usize) {
        (self.running, self.need) = (core, Need::default());
    }

    /// Ends the operation: the core's clock advances by its time.
    pub fn end(&mut self) {
        let Need { work, line_work, stalls, transfers } = std::mem::take(&mut self.need);
        let start = self.cores[self.running].now;
        let passed = start + self.spec.cycle * line_work.0;
        let transferred = match transfers {
            0 => start,
            count => self.bus_free.max(start) + self.spec.transfer * count,
        };
        self.bus_free = self.bus_free.max(transferred);
        self.cores[self.running].now = passed.max(transferred) + self.spec.cycle * work.0 + stalls;
    }

    /// Works without memory.
    pub const fn work(&mut self, cycles: Cycles) {
        self.need.work.0 += cycles.0;
    }

    /// Reads bytes.
    pub fn read(&mut self, place: Place, len: u64) {
        self.pass(place, len, Access::Read);
    }

    /// Writes bytes.
    pub fn write(&mut self, place: Place, len: u64) {
        self.pass(place, len, Access::Write);
    }

    /// Copies bytes, a page at a time.
    pub fn copy(&mut self, from: Place, to: Place, len: u64) {
        let mut done = 0;
        while done < len {
            let now = (len - done).min(SMALL_PAGE_BYTES - (from.at.0 + done) % SMALL_PAGE_BYTES);
            self.read(from.plus(done), now);
            self.write(to.plus(done), now);
            done += now;
        }
    }

    fn pass(&mut self, place: Place, len: u64, access: Access) {
        let end = place.at.0 + len;
        let mut at = place.at.0;
        while at < end {
            let page_end = (at / SMALL_PAGE_BYTES + 1) * SMALL_PAGE_BYTES;
            self.translate(at, place.pages);
            let mut is_prefetched = false;
            for line in at / LINE_BYTES..end.min(page_end).div_ceil(LINE_BYTES) {
                self.need.line_work.0 += self.spec.line_work.0;
                let missed = self.touch(line, access);
                if missed && !is_prefetched {
                    self.need.stalls += self.spec.latency;
                    is_prefetched = true;
                }
            }
            at = page_end;
        }
    }

    /// Uses a line; returns whether the cache did not have it.
    fn touch(&mut self, line: u64, access: Access) -> bool {
        let cache = self.running % self.caches.len();
        let Found::Miss { evicted_changed } = self.caches[cache].access(line, access == Access::Write) else {
            return false;
        };
        self.counts.cache_misses += 1;
        self.transfer(1 + u64::from(evicted_changed));
        true
    }

    const fn transfer(&mut self, lines: u64) {
        self.need.transfers += lines;
        self.counts.transfers += lines;
    }

    /// Translates an address, by a page walk if the TLB has no entry.
    fn translate(&mut self, at: u64, pages: PageSize) {
        let core = &mut self.cores[self.running];
        // Entries for large pages are read from another part of the tables.
        let (tlb, page, entry) = match pages {
            PageSize::Small => {
                let page = at / SMALL_PAGE_BYTES;
                (&mut core.small, page, TABLES + page * TABLE_ENTRY_BYTES)
            }
            PageSize::Large => {
                let page = at / LARGE_PAGE_BYTES;
                (&mut core.large, page, 2 * TABLES + page * TABLE_ENTRY_BYTES)
            }
        };
        if tlb.access(page, false) == Found::Hit {
            return;
        }
        self.counts.tlb_misses += 1;
        self.need.stalls += self.spec.cycle * self.spec.walk.0;
        if self.touch(entry / LINE_BYTES, Access::Read) {
            self.need.stalls += self.spec.latency;
        }
    }

    /// Writes changed lines back and removes them from the cache, as CLFLUSH does.
    pub fn flush(&mut self, place: Place, len: u64) {
        if len == 0 {
            return;
        }
        let cache = self.running % self.caches.len();
        for line in place.at.0 / LINE_BYTES..(place.at.0 + len).div_ceil(LINE_BYTES) {
            self.need.work.0 += self.spec.flush.0;
            self.counts.flushes += 1;
            self.has_flushed = true;
            if self.caches[cache].remove(line) {
                self.transfer(1);
            }
        }
    }

    /// Waits until what was flushed has arrived.
    pub fn fence(&mut self) {
        self.work(self.spec.fence);
        if std::mem::take(&mut self.has_flushed) {
            self.need.stalls += self.spec.latency;
        }
    }
}
