//! The log.

use crate::config::{ConfigError, CopyTo, LogConfig};
use crate::counters::{Counters, Wear};
use crate::error::LogError;
use crate::free::{FreeSegments, Preference};
use crate::map::{AddressMap, RawPlace};
use crate::port::{Content, Erase, Place, Port, Stream, Valid};
use crate::segments::{SegmentInfo, SegmentState, Segments};
use std::collections::BTreeSet;
use weir_policy::reclaim::{LogSize, Reclaim, Segment};

mod clean;
mod preload;

/// Entries of the map that are read at the same time: about as many as a processor keeps misses in flight.
const BATCH: usize = 16;

/// An append point.
#[derive(Clone, Copy, Debug)]
struct AppendPoint {
    segment: Segment,
    /// Index of the page written next; the segment is full, or there is none, at the number of pages for
    /// data.
    next: u32,
}

/// A log: see the [crate](crate).
///
/// `M` maps addresses ([`DenseMap`](crate::DenseMap), [`SparseMap`](crate::SparseMap)), `R` selects victims.
/// The port is an argument of each call, so that several logs can write to one below them.
#[derive(Debug)]
pub struct Log<M: AddressMap, R> {
    config: LogConfig,
    /// The most valid pages, if the number of addresses alone does not keep them.
    limit: Option<u64>,
    /// Pages for data in a segment.
    data_pages: u32,
    map: M,
    policy: R,
    /// Address of each page, valid or not.
    addresses: Vec<M::Stored>,
    segments: Segments,
    /// The append points, and one more that is open only while wear is levelled.
    points: Vec<AppendPoint>,
    free: FreeSegments,
    /// Number of segments being erased.
    erasing: u32,
    /// Number of valid pages.
    valid: u64,
    /// Pages programmed since the last page of the journal.
    unjournaled: u32,
    /// Pages programmed: the policy's clock.
    now: u64,
    counters: Counters,
    /// Closed segments by erase count, if static wear levelling is on; and the highest erase count.
    closed_by_wear: BTreeSet<(u32, Segment)>,
    most_erases: u32,
}

impl<M: AddressMap, R: Reclaim> Log<M, R> {
    /// Creates an empty log. `policy` creates the policy of an empty log of the given size.
    ///
    /// # Errors
    /// Fails if the settings are invalid.
    pub fn new(config: LogConfig, map: M, policy: impl FnOnce(LogSize) -> R) -> Result<Self, ConfigError> {
        config.validate()?;
        let data_pages = config.data_pages();
        let none = AppendPoint { segment: Segment(0), next: data_pages };
        Ok(Self {
            limit: config.limit.filter(|limit| *limit < map.addresses()),
            data_pages,
            map,
            policy: policy(LogSize { segments: config.segments, pages: data_pages }),
            addresses: vec![M::Stored::default(); config.segments as usize * data_pages as usize],
            segments: Segments::new(config.segments, data_pages),
            points: vec![none; usize::from(config.append_points) + 1],
            free: FreeSegments::new(config.segments, config.wear.dynamic),
            erasing: 0,
            valid: 0,
            unjournaled: 0,
            now: 0,
            counters: Counters::default(),
            closed_by_wear: BTreeSet::new(),
            most_erases: 0,
            config,
        })
    }

    /// Writes the page of an address at an append point, and cleans first if that needs a segment and too few
    /// are free.
    ///
    /// # Errors
    /// See [`LogError`].
    #[inline]
    pub fn write(&mut self, address: u64, stream: Stream, port: &mut impl Port) -> Result<(), LogError> {
        if address >= self.map.addresses() {
            return Err(LogError::Address { address, addresses: self.map.addresses() });
        }
        if stream.0 >= self.config.append_points {
            return Err(LogError::Stream { stream, points: self.config.append_points });
        }
        if self.limit == Some(self.valid) && self.map.get(address).is_none() {
            return Err(LogError::Full { limit: self.valid });
        }
        let point = usize::from(stream.0);
        if !self.has_room(point) {
            self.open(point, port)?;
        }
        let raw = self.append(point, address);
        port.program(self.segments.place(raw), Content::User { address });
        self.counters.user += 1;
        match self.map.insert(address, raw) {
            Some(old) => self.invalidate(old),
            None => self.valid += 1,
        }
        self.end_program(point, port);
        Ok(())
    }

    /// Writes several addresses in order, like [`write`](Self::write) for each. With addresses far apart that
    /// is faster, because their entries of the map are [prefetched](Self::prefetch).
    ///
    /// # Errors
    /// As [`write`](Self::write); the addresses before the failed one are written.
    pub fn write_all(
        &mut self,
        addresses: &[u64],
        stream: Stream,
        port: &mut impl Port,
    ) -> Result<(), LogError> {
        for some in addresses.chunks(BATCH) {
            self.prefetch(some.iter().copied());
            for &address in some {
                self.write(address, stream, port)?;
            }
        }
        Ok(())
    }

    /// Reads the entries of addresses in the map, so that the processor waits for all of them at the same
    /// time and has them when they are used. Changes nothing.
    #[inline]
    pub fn prefetch(&self, addresses: impl Iterator<Item = u64>) {
        // Only the loads count.
        std::hint::black_box(addresses.filter(|address| self.exists(*address)).count());
    }

    /// Forgets an address; returns whether it was there.
    #[inline]
    pub fn trim(&mut self, address: u64) -> bool {
        let Some(old) = self.map.remove(address) else { return false };
        self.invalidate(old);
        self.valid -= 1;
        self.counters.trimmed += 1;
        true
    }

    /// Reports that an erase in flight is complete: the segment is free.
    ///
    /// # Panics
    /// Panics if the segment is not being erased.
    pub fn erased(&mut self, segment: Segment) {
        let info = self.segments.get_mut(segment);
        assert_eq!(info.state, SegmentState::Erasing, "segment {} is not being erased", segment.0);
        info.state = SegmentState::Free;
        let erases = info.erases;
        self.erasing -= 1;
        self.free.push(segment, erases);
    }

    /// Returns whether an address is in the log.
    #[inline]
    pub fn exists(&self, address: u64) -> bool {
        self.map.get(address).is_some()
    }

    /// Returns where an address is.
    pub fn find(&self, address: u64) -> Option<Place> {
        self.map.get(address).map(|raw| self.segments.place(raw))
    }

    /// Returns the number of valid pages.
    pub const fn valid(&self) -> u64 {
        self.valid
    }

    /// Returns the number of free segments, without those being erased.
    pub fn free_segments(&self) -> u32 {
        self.free.len()
    }

    /// Returns the settings.
    pub const fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Returns what the log has done.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the distribution of erase counts. Cost: a pass over all segments.
    pub fn wear(&self) -> Wear {
        Wear::of(self.segments.iter().map(|segment| segment.erases))
    }

    /// Returns all segments.
    pub fn segments(&self) -> impl Iterator<Item = SegmentInfo> + '_ {
        self.segments.iter().copied()
    }

    /// Returns a histogram of the closed segments by valid share, in `bars` bars of equal width; a full
    /// segment counts to the last one. Cost: a pass over all segments.
    pub fn valid_histogram(&self, bars: usize) -> Vec<u64> {
        let mut histogram = vec![0; bars.max(1)];
        for segment in self.segments.iter().filter(|segment| segment.state == SegmentState::Closed) {
            let bar = segment.valid as usize * bars / self.data_pages as usize;
            histogram[bar.min(bars.max(1) - 1)] += 1;
        }
        histogram
    }

    #[inline]
    fn has_room(&self, point: usize) -> bool {
        self.points[point].next < self.data_pages
    }

    /// Puts an address into the next page of an append point, which has room.
    #[inline]
    fn append(&mut self, point: usize, address: u64) -> RawPlace {
        let AppendPoint { segment, next } = &mut self.points[point];
        let raw = self.segments.raw(*segment, *next);
        self.addresses[segment.0 as usize * self.data_pages as usize + *next as usize] = M::store(address);
        *next += 1;
        self.segments.set_valid(raw);
        raw
    }

    /// Counts a programmed page, adds a page of the journal if it is time, and closes a full segment.
    #[inline]
    fn end_program(&mut self, point: usize, port: &mut impl Port) {
        self.now += 1;
        if self.config.metadata.journal_every > 0 {
            self.journal(point, port);
        }
        if !self.has_room(point) {
            self.close(point, port);
        }
    }

    #[cold]
    fn journal(&mut self, point: usize, port: &mut impl Port) {
        self.unjournaled += 1;
        if self.unjournaled >= self.config.metadata.journal_every && self.has_room(point) {
            self.unjournaled -= self.config.metadata.journal_every;
            let AppendPoint { segment, next } = self.points[point];
            self.points[point].next += 1;
            self.program_metadata(Place { segment, page: next }, port);
        }
    }

    fn program_metadata(&mut self, place: Place, port: &mut impl Port) {
        port.program(place, Content::Metadata);
        self.counters.metadata += 1;
        self.now += 1;
    }

    /// Closes the segment of an append point, and programs its summary.
    fn close(&mut self, point: usize, port: &mut impl Port) {
        let segment = self.points[point].segment;
        self.points[point].next = self.data_pages;
        for page in self.data_pages..self.config.pages {
            self.program_metadata(Place { segment, page }, port);
        }
        self.mark_closed(segment);
    }

    fn mark_closed(&mut self, segment: Segment) {
        let info = self.segments.get_mut(segment);
        info.state = SegmentState::Closed;
        let (valid, erases) = (info.valid, info.erases);
        if self.config.wear.max_gap.is_some() {
            self.closed_by_wear.insert((erases, segment));
        }
        self.policy.closed(segment, valid, self.now);
    }

    #[inline]
    fn invalidate(&mut self, raw: RawPlace) {
        let (segment, info) = self.segments.set_invalid(raw);
        if info.state == SegmentState::Closed {
            self.policy.invalidated(segment, info.valid, self.now);
        }
    }

    /// Takes a free segment for an append point without room.
    fn take_free(&mut self, point: usize, preference: Preference) -> Option<()> {
        let segment = self.free.take(preference)?;
        let info = self.segments.get_mut(segment);
        (info.state, info.stream) =
            (SegmentState::Open, Stream((point as u8).min(self.config.append_points - 1)));
        self.points[point] = AppendPoint { segment, next: 0 };
        Some(())
    }

    /// Returns the append point for copies from a segment.
    fn copy_point(&self, segment: Segment) -> usize {
        let last = self.config.append_points - 1;
        let from = self.segments.get(segment).stream.0.min(last);
        usize::from(match self.config.copies {
            CopyTo::Same => from,
            CopyTo::Last => last,
            CopyTo::Next => last.min(from + 1),
        })
    }

    /// Returns which free segment suits an append point: with copies apart, what is at the last point stays
    /// valid.
    fn preference(&self, point: usize) -> Preference {
        let is_last = point + 1 >= usize::from(self.config.append_points);
        let apart = self.config.append_points > 1 && self.config.copies != CopyTo::Same;
        if apart && is_last { Preference::MostWorn } else { Preference::LeastWorn }
    }
}
