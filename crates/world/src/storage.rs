//! Bytes on a simulated device, with what is *live* and what is *durable* kept apart.
//!
//! A write changes the live bytes, which is what reads see, and stays in the volatile cache until
//! a flush carries it over to the durable bytes. A power cut leaves the durable bytes and any
//! subset of what was in the cache or under way, chosen per write or per 512-byte sector.
//!
//! A sector of the durable bytes never goes back to an older write: a write that becomes durable
//! is cut out of every older one still cached.

use crate::Rng;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Range;
use weir_model::{BLOCK, Bytes, DeviceOffset, IoError, SECTOR};

/// What the cache may hold before it makes the oldest writes durable on its own accord, as the
/// caches of real devices do.
const CACHE_MAX: Bytes = Bytes::mib(64);

const PAGE: usize = BLOCK as usize;

/// The bytes of one simulated device. Sparse: a page costs memory once it is written.
#[derive(Debug)]
pub struct Storage {
    size: Bytes,
    sector: Bytes,
    write_cache: bool,
    pages: FxHashMap<u64, Box<Page>>,
    /// Completed, not durable, oldest first.
    cached: VecDeque<Write>,
    cached_bytes: u64,
    /// Writes that a failed flush gave up: still read back, never made durable by a later flush.
    forsaken: Vec<Write>,
    writes: u64,
}

#[derive(Debug)]
struct Page {
    live: [u8; PAGE],
    durable: [u8; PAGE],
}

#[derive(Debug)]
struct Write {
    number: u64,
    at: u64,
    bytes: Box<[u8]>,
}

impl Write {
    fn range(&self) -> Range<u64> {
        self.at..self.at + self.bytes.len() as u64
    }
}

/// A moment in the order of a device's writes: everything that had completed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

#[derive(Clone, Copy)]
enum Side {
    Live,
    Durable,
}

impl Storage {
    /// All zeros. Without `write_cache` every write is durable when it completes.
    #[must_use]
    pub fn new(size: Bytes, write_cache: bool) -> Self {
        Self {
            size,
            sector: Bytes(SECTOR),
            write_cache,
            pages: FxHashMap::default(),
            cached: VecDeque::new(),
            cached_bytes: 0,
            forsaken: Vec::new(),
            writes: 0,
        }
    }

    /// Accepts nothing shorter than this, nor anything that does not begin at a multiple of it:
    /// 512 (the usual) or 4096 bytes. A power cut still tears at 512.
    #[must_use]
    pub fn with_sector(mut self, sector: Bytes) -> Self {
        self.sector = sector;
        self
    }

    /// How long the device is.
    #[must_use]
    pub const fn size(&self) -> Bytes {
        self.size
    }

    /// Whether a range lies on the device in whole sectors: EINVAL if not in sectors,
    /// [`IoError::Short`] if past the end.
    pub fn check(&self, at: DeviceOffset, len: Bytes) -> Result<(), IoError> {
        const EINVAL: i32 = 22;
        if !at.0.is_multiple_of(self.sector.0) || !len.0.is_multiple_of(self.sector.0) {
            return Err(IoError::Os(EINVAL));
        }
        match at.0.checked_add(len.0) {
            Some(end) if end <= self.size.0 => Ok(()),
            _ => Err(IoError::Short),
        }
    }

    /// Reads live bytes. The range must have passed [`Self::check`].
    pub fn read(&self, at: DeviceOffset, bytes: &mut [u8]) {
        self.get(at.0, bytes, |page| &page.live);
    }

    /// Reads what would be left if the power failed now and nothing cached survived.
    pub fn read_durable(&self, at: DeviceOffset, bytes: &mut [u8]) {
        self.get(at.0, bytes, |page| &page.durable);
    }

    fn get(&self, at: u64, bytes: &mut [u8], side: fn(&Page) -> &[u8; PAGE]) {
        for (number, within, part) in pages_of(at, bytes.len()) {
            match self.pages.get(&number) {
                Some(page) => bytes[part.clone()].copy_from_slice(&side(page)[within..within + part.len()]),
                None => bytes[part].fill(0),
            }
        }
    }

    /// Writes: live at once, cached until flushed; durable at once with `fua`.
    /// The range must have passed [`Self::check`].
    pub fn write(&mut self, at: DeviceOffset, bytes: &[u8], fua: bool) {
        self.writes += 1;
        self.put(at.0, bytes, Side::Live);
        if fua || !self.write_cache {
            self.forget_older(at.0..at.0 + bytes.len() as u64);
            self.put(at.0, bytes, Side::Durable);
            return;
        }
        self.cached_bytes += bytes.len() as u64;
        self.cached.push_back(Write { number: self.writes, at: at.0, bytes: bytes.into() });
        while self.cached_bytes > CACHE_MAX.0 {
            self.make_oldest_durable();
        }
    }

    fn put(&mut self, at: u64, bytes: &[u8], side: Side) {
        for (number, within, part) in pages_of(at, bytes.len()) {
            let page = self
                .pages
                .entry(number)
                .or_insert_with(|| Box::new(Page { live: [0; PAGE], durable: [0; PAGE] }));
            let target = match side {
                Side::Live => &mut page.live,
                Side::Durable => &mut page.durable,
            };
            target[within..within + part.len()].copy_from_slice(&bytes[part]);
        }
    }

    /// Pages of 4 KiB within a range that were ever written, by their addresses, in order.
    #[must_use]
    pub fn written_pages(&self, range: Range<DeviceOffset>) -> Vec<DeviceOffset> {
        let pages = self.pages.keys().map(|number| DeviceOffset(number * BLOCK));
        let mut pages: Vec<_> = pages.filter(|at| range.contains(at)).collect();
        pages.sort_unstable();
        pages
    }

    /// Bits of a byte change by themselves, where anything was ever written. A second time changes
    /// them back.
    pub fn rot(&mut self, at: DeviceOffset, bits: u8) {
        if let Some(page) = self.pages.get_mut(&(at.0 / BLOCK)) {
            let within = (at.0 % BLOCK) as usize;
            page.live[within] ^= bits;
            page.durable[within] ^= bits;
        }
    }

    /// Everything completed so far: what a flush submitted now will cover.
    #[must_use]
    pub const fn mark(&self) -> Mark {
        Mark(self.writes)
    }

    /// Makes durable what had completed at `mark`, except what an earlier failed flush gave up.
    pub fn flush(&mut self, mark: Mark) {
        while self.cached.front().is_some_and(|write| write.number <= mark.0) {
            self.make_oldest_durable();
        }
    }

    /// A flush failed: what is cached can still be read, and no later flush makes it durable.
    pub fn forsake(&mut self) {
        self.forsaken.extend(self.cached.drain(..));
        self.cached_bytes = 0;
    }

    fn make_oldest_durable(&mut self) {
        if let Some(write) = self.cached.pop_front() {
            self.cached_bytes -= write.bytes.len() as u64;
            cut_out(&mut self.forsaken, &write.range());
            self.put(write.at, &write.bytes, Side::Durable);
        }
    }

    /// Nothing cached may come back over this range: something newer is durable there.
    fn forget_older(&mut self, range: Range<u64>) {
        cut_out(&mut self.forsaken, &range);
        if self.cached.iter().any(|write| overlap(&write.range(), &range)) {
            let mut cached = std::mem::take(&mut self.cached).into();
            cut_out(&mut cached, &range);
            self.cached = cached.into();
            self.cached_bytes = self.cached.iter().map(|write| write.bytes.len() as u64).sum();
        }
    }

    /// The power fails. Of what was cached, and of `under_way` (writes submitted and never
    /// answered), some survives: every write as a whole, not at all, or sector by sector.
    /// Afterwards live and durable are the same.
    pub fn power_cut(&mut self, under_way: Vec<(DeviceOffset, Box<[u8]>)>, rng: &mut Rng) {
        let mut writes = std::mem::take(&mut self.forsaken);
        writes.extend(self.cached.drain(..));
        self.cached_bytes = 0;
        writes.extend(under_way.into_iter().map(|(at, bytes)| Write { number: 0, at: at.0, bytes }));
        // Cuts at which nothing, almost nothing or almost everything survives find other
        // mistakes than those where everything is a coin's toss.
        let survival = [0.0, 0.05, 0.5, 0.5, 0.95, 1.0][rng.below(6) as usize];
        // Which one of several writes to a sector stays is decided by who survives.
        for write in &writes {
            self.survive(write, survival, rng);
        }
        for write in &writes {
            for (number, ..) in pages_of(write.at, write.bytes.len()) {
                if let Some(page) = self.pages.get_mut(&number) {
                    page.live = page.durable;
                }
            }
        }
    }

    fn survive(&mut self, write: &Write, survival: f64, rng: &mut Rng) {
        let torn = rng.chance(0.5);
        let whole = rng.chance(survival);
        if !torn {
            if whole {
                self.put(write.at, &write.bytes, Side::Durable);
            }
            return;
        }
        for (index, sector) in write.bytes.chunks(SECTOR as usize).enumerate() {
            if rng.chance(survival) {
                self.put(write.at + index as u64 * SECTOR, sector, Side::Durable);
            }
        }
    }
}

/// The pages a range touches: page number, first byte in the page, and which of the range's bytes.
fn pages_of(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let here = at + done as u64;
        let within = (here % BLOCK) as usize;
        let part = done..len.min(done + PAGE - within);
        done = part.end;
        Some((here / BLOCK, within, part))
    })
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Takes a range out of every write, leaving what lies before and behind it.
fn cut_out(writes: &mut Vec<Write>, range: &Range<u64>) {
    if !writes.iter().any(|write| overlap(&write.range(), range)) {
        return;
    }
    let mut kept = Vec::with_capacity(writes.len() + 1);
    for write in writes.drain(..) {
        let own = write.range();
        if !overlap(&own, range) {
            kept.push(write);
            continue;
        }
        for piece in [own.start..range.start, range.end..own.end] {
            if piece.start < piece.end {
                let within = (piece.start - own.start) as usize..(piece.end - own.start) as usize;
                let bytes = write.bytes[within].into();
                kept.push(Write { number: write.number, at: piece.start, bytes });
            }
        }
    }
    *writes = kept;
}

#[cfg(test)]
mod tests;
