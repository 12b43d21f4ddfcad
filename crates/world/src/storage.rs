//! Bytes of a simulated device, in two versions: *live* and *durable*.
//!
//! A write changes the live bytes, which reads return, and stays in the volatile cache until a flush makes it
//! durable. A power loss leaves the durable bytes and any subset of the writes in the cache or in flight,
//! chosen per write or per 512-byte sector.
//!
//! A durable sector never reverts to an older write: a write that becomes durable is removed from every older
//! one still cached.

use crate::{DamagedSectors, Rng};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use weir_model::{BLOCK, Bytes, DeviceOffset, Errno, IoError, SECTOR};

/// Capacity of the cache, above which the oldest writes become durable, as in the caches of real devices.
const CACHE_MAX: Bytes = Bytes::mib(64);

const PAGE: usize = BLOCK as usize;

/// The bytes of one simulated device. They are sparse: a page uses memory once it is written. A clone shares
/// its pages until either is written.
#[derive(Clone, Debug)]
pub struct Storage {
    size: Bytes,
    /// Current length: less than the size after a truncation.
    len: u64,
    sector: Bytes,
    write_cache: bool,
    pages: FxHashMap<u64, Page>,
    /// Completed but not durable writes, oldest first.
    cached: VecDeque<Write>,
    cached_bytes: u64,
    /// Writes that a failed flush gave up: still readable, never made durable by a later flush.
    failed_flush_writes: Vec<Write>,
    writes: u64,
    /// Damaged sectors of the live and of the durable bytes.
    damaged: [DamagedSectors; 2],
}

#[derive(Clone, Debug)]
struct Page {
    live: Rc<[u8; PAGE]>,
    /// `None` if they are the live bytes.
    durable: Option<Rc<[u8; PAGE]>>,
}

impl Page {
    fn durable(&self) -> &Rc<[u8; PAGE]> {
        self.durable.as_ref().unwrap_or(&self.live)
    }

    /// Writes a part of the live or the durable bytes, or of both.
    fn put(&mut self, within: usize, bytes: &[u8], side: Side) {
        let is_whole = bytes.len() == PAGE;
        let target = match side {
            Side::Both if is_whole || self.durable.is_none() => {
                self.durable = None;
                &mut self.live
            }
            Side::Both => {
                self.put(within, bytes, Side::Live);
                return self.put(within, bytes, Side::Durable);
            }
            Side::Live => {
                self.durable.get_or_insert_with(|| Rc::clone(&self.live));
                &mut self.live
            }
            Side::Durable => self.durable.get_or_insert_with(|| Rc::clone(&self.live)),
        };
        match <&[u8; PAGE]>::try_from(bytes) {
            // A shared page is not copied first, to be overwritten.
            Ok(whole) if Rc::get_mut(target).is_none() => *target = Rc::new(*whole),
            _ => Rc::make_mut(target)[within..within + bytes.len()].copy_from_slice(bytes),
        }
    }
}

/// Bytes of a write.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    number: u64,
    at: u64,
    bytes: Box<[u8]>,
    damaged: DamagedSectors,
}

impl Write {
    /// Makes a write that was submitted and never completed.
    pub(crate) fn in_flight(at: DeviceOffset, bytes: Box<[u8]>, spoilt: DamagedSectors) -> Self {
        Self { number: 0, at: at.0, bytes, damaged: spoilt }
    }

    fn range(&self) -> Range<u64> {
        self.at..self.at + self.bytes.len() as u64
    }

    /// Returns a part of it, in whole sectors.
    fn part(&self, range: Range<u64>) -> Self {
        let within = (range.start - self.at) as usize..(range.end - self.at) as usize;
        let spoilt = self.damaged.part(sectors(&(range.start - self.at..range.end - self.at)));
        Self { number: self.number, at: range.start, bytes: self.bytes[within].into(), damaged: spoilt }
    }

    /// Returns all of it, in pieces of `len` bytes.
    pub(crate) fn parts(self, len: u64) -> impl Iterator<Item = Self> {
        let end = self.range().end;
        self.range().step_by(len as usize).map(move |at| self.part(at..end.min(at + len)))
    }
}

/// Returns the numbers of the sectors in a byte range.
fn sectors(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR..range.end.div_ceil(SECTOR)
}

/// A point in the order of a device's writes: everything that had completed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Live,
    Durable,
    Both,
}

impl Storage {
    /// Creates a device with all zeros. Without `write_cache` every write is durable when it completes.
    #[must_use]
    pub fn new(size: Bytes, write_cache: bool) -> Self {
        Self {
            size,
            len: size.0,
            sector: Bytes(SECTOR),
            write_cache,
            pages: FxHashMap::default(),
            cached: VecDeque::new(),
            cached_bytes: 0,
            failed_flush_writes: Vec::new(),
            writes: 0,
            damaged: Default::default(),
        }
    }

    /// Sets the sector size, 512 (the default) or 4096 bytes: commands must be multiples of it, and aligned.
    /// A power loss still tears at 512.
    #[must_use]
    pub fn with_sector(mut self, sector: Bytes) -> Self {
        self.sector = sector;
        self
    }

    /// Creates another device like it, with all zeros.
    #[must_use]
    pub fn blank(&self) -> Self {
        Self::new(self.size, self.write_cache).with_sector(self.sector)
    }

    /// Returns the size.
    #[must_use]
    pub const fn size(&self) -> Bytes {
        self.size
    }

    /// Checks that a range is on the device and in whole sectors: otherwise EINVAL if it is not in sectors,
    /// [`IoError::Short`] if it is past the end.
    pub fn check(&self, at: DeviceOffset, len: Bytes) -> Result<(), IoError> {
        if !at.0.is_multiple_of(self.sector.0) || !len.0.is_multiple_of(self.sector.0) {
            return Err(IoError::Os(Errno::EINVAL));
        }
        match at.0.checked_add(len.0) {
            Some(end) if end <= self.size.0 => Ok(()),
            _ => Err(IoError::Short),
        }
    }

    /// Checks that a range can be read: also [`IoError::Short`] if it is past the end of a truncated device.
    pub fn check_read(&self, at: DeviceOffset, len: Bytes) -> Result<(), IoError> {
        self.check(at, len)?;
        if at.0 + len.0 <= self.len { Ok(()) } else { Err(IoError::Short) }
    }

    /// Truncates the device to this length, a multiple of 512, like a file: bytes behind it can no longer be
    /// read, until a write behind the end extends the device again, with zeros where it does not write. The
    /// removed sectors are damaged.
    pub fn truncate(&mut self, len: Bytes) {
        if len.0 >= self.len {
            return;
        }
        let gone = len.0..self.len;
        self.forget_older(gone.clone());
        for page in self.written_pages(DeviceOffset(gone.start / BLOCK * BLOCK)..DeviceOffset(gone.end)) {
            let (start, end) = (page.0.max(gone.start), (page.0 + BLOCK).min(gone.end));
            let (zeros, all) =
                (vec![0; (end - start) as usize], DamagedSectors::first((end - start) / SECTOR));
            self.put(start, &zeros, &all, Side::Both);
        }
        self.len = len.0;
    }

    /// Restores the size, with zeros in the removed part.
    pub fn regrow(&mut self) {
        self.len = self.size.0;
    }

    /// Reads live bytes. The range must have passed [`Self::check`].
    pub fn read(&self, at: DeviceOffset, bytes: &mut [u8]) {
        self.get(at.0, bytes, |page| &page.live);
    }

    /// Reads what would remain if the power failed now and nothing cached survived.
    pub fn read_durable(&self, at: DeviceOffset, bytes: &mut [u8]) {
        self.get(at.0, bytes, |page| page.durable());
    }

    fn get(&self, at: u64, bytes: &mut [u8], side: fn(&Page) -> &[u8; PAGE]) {
        for (number, within, part) in pages_of(at, bytes.len()) {
            match self.pages.get(&number) {
                Some(page) => bytes[part.clone()].copy_from_slice(&side(page)[within..within + part.len()]),
                None => bytes[part].fill(0),
            }
        }
    }

    /// Writes: live at once, cached until flushed; durable at once with `fua`. The range must have passed
    /// [`Self::check`].
    pub fn write(&mut self, at: DeviceOffset, bytes: &[u8], fua: bool) {
        self.write_damaged(at, bytes, &DamagedSectors::default(), fua);
    }

    /// Writes bytes of which some sectors are damaged, counted from their start.
    pub fn write_damaged(&mut self, at: DeviceOffset, bytes: &[u8], spoilt: &DamagedSectors, fua: bool) {
        if self.write_live(at, bytes, spoilt, fua) {
            self.cache(at, bytes.into(), spoilt.clone());
        }
    }

    /// Does the same without copying the bytes.
    pub(crate) fn write_owned(
        &mut self,
        at: DeviceOffset,
        bytes: Box<[u8]>,
        spoilt: DamagedSectors,
        fua: bool,
    ) {
        if self.write_live(at, &bytes, &spoilt, fua) {
            self.cache(at, bytes, spoilt);
        }
    }

    /// Changes the live bytes; returns whether the cache must keep them.
    fn write_live(&mut self, at: DeviceOffset, bytes: &[u8], spoilt: &DamagedSectors, fua: bool) -> bool {
        self.writes += 1;
        self.len = self.len.max(at.0 + bytes.len() as u64);
        let volatile = self.write_cache && !fua;
        if volatile {
            self.put(at.0, bytes, spoilt, Side::Live);
        } else {
            self.forget_older(at.0..at.0 + bytes.len() as u64);
            self.put(at.0, bytes, spoilt, Side::Both);
        }
        volatile
    }

    fn cache(&mut self, at: DeviceOffset, bytes: Box<[u8]>, spoilt: DamagedSectors) {
        self.cached_bytes += bytes.len() as u64;
        self.cached.push_back(Write { number: self.writes, at: at.0, bytes, damaged: spoilt });
        while self.cached_bytes > CACHE_MAX.0 {
            self.make_oldest_durable();
        }
    }

    /// Executes a write whose completion nobody waits for.
    pub(crate) fn execute(&mut self, write: &Write) {
        self.write_damaged(DeviceOffset(write.at), &write.bytes, &write.damaged, false);
    }

    /// Loses a write: the old contents stay, and count as damaged. The range must have passed
    /// [`Self::check`].
    pub fn lose_write(&mut self, at: DeviceOffset, len: Bytes, fua: bool) {
        let mut bytes = vec![0; len.0 as usize];
        self.read(at, &mut bytes);
        self.write_damaged(at, &bytes, &DamagedSectors::first(len.0 / SECTOR), fua);
    }

    /// Returns the damaged sectors of a range of live bytes, counted from its start.
    #[must_use]
    pub fn damaged_sectors(&self, at: DeviceOffset, len: Bytes) -> DamagedSectors {
        self.damaged[Side::Live as usize].part(sectors(&(at.0..at.0 + len.0)))
    }

    /// Reports whether any live sector in a range is damaged.
    #[must_use]
    pub fn is_damaged(&self, range: Range<DeviceOffset>) -> bool {
        self.damaged[Side::Live as usize].touches(sectors(&(range.start.0..range.end.0)))
    }

    fn put(&mut self, at: u64, bytes: &[u8], spoilt: &DamagedSectors, side: Side) {
        for (marks, of) in self.damaged.iter_mut().zip([Side::Live, Side::Durable]) {
            let is_meant = side == of || side == Side::Both;
            if is_meant && !(marks.is_empty() && spoilt.is_empty()) {
                marks.put(sectors(&(at..at + bytes.len() as u64)), spoilt);
            }
        }
        for (number, within, part) in pages_of(at, bytes.len()) {
            let page = self.pages.entry(number);
            let page = page.or_insert_with(|| Page { live: Rc::new([0; PAGE]), durable: None });
            page.put(within, &bytes[part], side);
        }
    }

    /// Returns the addresses of the 4 KiB pages within a range that were ever written, in order.
    #[must_use]
    pub fn written_pages(&self, range: Range<DeviceOffset>) -> Vec<DeviceOffset> {
        let pages = self.pages.keys().map(|number| DeviceOffset(number * BLOCK));
        let mut pages: Vec<_> = pages.filter(|at| range.contains(at)).collect();
        pages.sort_unstable();
        pages
    }

    /// Flips bits of a byte, if anything was ever written there.
    pub fn rot(&mut self, at: DeviceOffset, bits: u8) {
        self.flip(at, bits, &DamagedSectors::first(1));
    }

    /// Restores the bits, for a sector with no other damage.
    pub fn restore_bits(&mut self, at: DeviceOffset, bits: u8) {
        self.flip(at, bits, &DamagedSectors::default());
    }

    fn flip(&mut self, at: DeviceOffset, bits: u8, spoilt: &DamagedSectors) {
        let Some(page) = self.pages.get_mut(&(at.0 / BLOCK)) else { return };
        let within = (at.0 % BLOCK) as usize;
        Rc::make_mut(&mut page.live)[within] ^= bits;
        if let Some(durable) = &mut page.durable {
            Rc::make_mut(durable)[within] ^= bits;
        }
        for side in &mut self.damaged {
            side.put(sectors(&(at.0..at.0 + 1)), spoilt);
        }
    }

    /// Returns the current point in the order of writes: a flush submitted now covers everything before it.
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

    /// Fails a flush: cached writes can still be read, and no later flush makes them durable.
    pub fn fail_flush(&mut self) {
        self.failed_flush_writes.extend(self.cached.drain(..));
        self.cached_bytes = 0;
    }

    /// Lets the next flush make durable what a failed one gave up.
    pub(crate) fn requeue_failed_writes(&mut self) {
        let newer = std::mem::take(&mut self.cached);
        self.cached = std::mem::take(&mut self.failed_flush_writes).into();
        self.cached.extend(newer);
        self.cached_bytes = self.cached.iter().map(|write| write.bytes.len() as u64).sum();
    }

    fn make_oldest_durable(&mut self) {
        if let Some(write) = self.cached.pop_front() {
            self.cached_bytes -= write.bytes.len() as u64;
            subtract_range(&mut self.failed_flush_writes, &write.range());
            self.put(write.at, &write.bytes, &write.damaged, Side::Durable);
        }
    }

    /// Removes this range from all cached writes, because newer contents are durable there.
    fn forget_older(&mut self, range: Range<u64>) {
        subtract_range(&mut self.failed_flush_writes, &range);
        if self.cached.iter().any(|write| overlap(&write.range(), &range)) {
            let mut cached = std::mem::take(&mut self.cached).into();
            subtract_range(&mut cached, &range);
            self.cached = cached.into();
            self.cached_bytes = self.cached.iter().map(|write| write.bytes.len() as u64).sum();
        }
    }

    /// Fails the power. Some of the cached writes, and of `under_way` (writes submitted and never completed),
    /// survive: every write as a whole, not at all, or sector by sector. Afterwards live and durable bytes
    /// are the same.
    pub(crate) fn lose_power(&mut self, under_way: Vec<Write>, rng: &mut Rng) {
        let mut writes = std::mem::take(&mut self.failed_flush_writes);
        writes.extend(self.cached.drain(..));
        self.cached_bytes = 0;
        writes.extend(under_way);
        // Power losses in which nothing, almost nothing or almost everything survives find other mistakes
        // than those in which everything is decided by a coin toss.
        let survival = [0.0, 0.05, 0.5, 0.5, 0.95, 1.0][rng.below(6) as usize];
        // The surviving writes decide which of several writes to a sector remains.
        for write in &writes {
            self.survive(write, survival, rng);
        }
        for write in &writes {
            for (number, ..) in pages_of(write.at, write.bytes.len()) {
                if let Some(page) = self.pages.get_mut(&number) {
                    page.live = page.durable.take().unwrap_or_else(|| Rc::clone(&page.live));
                }
            }
        }
        self.damaged[Side::Live as usize] = self.damaged[Side::Durable as usize].clone();
    }

    fn survive(&mut self, write: &Write, survival: f64, rng: &mut Rng) {
        let torn = rng.chance(0.5);
        let whole = rng.chance(survival);
        if !torn {
            if whole {
                self.put(write.at, &write.bytes, &write.damaged, Side::Durable);
            }
            return;
        }
        for (index, sector) in (0..).zip(write.bytes.chunks(SECTOR as usize)) {
            if rng.chance(survival) {
                let spoilt = write.damaged.part(index..index + 1);
                self.put(write.at + index * SECTOR, sector, &spoilt, Side::Durable);
            }
        }
    }
}

/// Returns the pages of a range: page number, first byte in the page, and the part of the range.
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

/// Removes a range from every write, keeping the parts before and behind it.
fn subtract_range(writes: &mut Vec<Write>, range: &Range<u64>) {
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
                kept.push(write.part(piece));
            }
        }
    }
    *writes = kept;
}

#[cfg(test)]
mod tests;
