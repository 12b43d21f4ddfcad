//! Segments: their state, and which of their pages are valid.

use crate::map::RawPlace;
use crate::{Place, Stream};
use weir_policy::reclaim::Segment;

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentState {
    /// Erased.
    Free,
    /// At an append point.
    Open,
    /// Full; it can be cleaned.
    Closed,
    /// Being erased.
    Erasing,
}

/// A segment, as reports show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// State.
    pub state: SegmentState,
    /// Number of valid pages.
    pub valid: u32,
    /// Number of erases.
    pub erases: u32,
    /// The append point that last wrote it.
    pub stream: Stream,
}

/// All segments.
#[derive(Debug)]
pub(crate) struct Segments {
    all: Vec<SegmentInfo>,
    /// A bit for each raw place: set if the page is valid.
    valid: Vec<u64>,
    /// A segment begins at each multiple of `1 << shift`; at least 6, so that segments share no word.
    shift: u32,
}

impl Segments {
    pub(crate) fn new(segments: u32, pages: u32) -> Self {
        let shift = shift(pages);
        let info = SegmentInfo { state: SegmentState::Free, valid: 0, erases: 0, stream: Stream(0) };
        let words = (segments as usize) << (shift - 6);
        Self { all: vec![info; segments as usize], valid: vec![0; words], shift }
    }

    #[inline]
    pub(crate) fn get(&self, segment: Segment) -> &SegmentInfo {
        &self.all[segment.0 as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, segment: Segment) -> &mut SegmentInfo {
        &mut self.all[segment.0 as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SegmentInfo> + Clone {
        self.all.iter()
    }

    #[inline]
    pub(crate) fn raw(&self, segment: Segment, page: u32) -> RawPlace {
        (segment.0 << self.shift) | page
    }

    #[inline]
    pub(crate) fn place(&self, raw: RawPlace) -> Place {
        Place { segment: Segment(raw >> self.shift), page: raw & ((1 << self.shift) - 1) }
    }

    #[inline]
    pub(crate) fn set_valid(&mut self, raw: RawPlace) {
        self.valid[(raw >> 6) as usize] |= 1 << (raw & 63);
        self.all[(raw >> self.shift) as usize].valid += 1;
    }

    /// Marks a valid page invalid; returns its segment.
    #[inline]
    pub(crate) fn set_invalid(&mut self, raw: RawPlace) -> (Segment, SegmentInfo) {
        self.valid[(raw >> 6) as usize] &= !(1 << (raw & 63));
        let segment = raw >> self.shift;
        let info = &mut self.all[segment as usize];
        info.valid -= 1;
        (Segment(segment), *info)
    }

    /// Number of words of valid bits in a segment.
    pub(crate) fn words(&self) -> u32 {
        1 << (self.shift - 6)
    }

    /// Returns the valid pages of a segment, in ascending order.
    pub(crate) fn valid_pages(&self, segment: Segment) -> impl Iterator<Item = u32> + '_ {
        let first = (segment.0 << (self.shift - 6)) as usize;
        (0..).zip(&self.valid[first..first + self.words() as usize]).flat_map(|(word, bits)| {
            let mut bits = *bits;
            std::iter::from_fn(move || {
                let page = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(word * 64 + page)
            })
        })
    }

    /// Returns and clears a word of a segment's valid bits.
    #[inline]
    pub(crate) fn take_word(&mut self, segment: Segment, word: u32) -> u64 {
        std::mem::take(&mut self.valid[((segment.0 << (self.shift - 6)) + word) as usize])
    }
}

/// Returns the distance of segments in raw places, as a power of two.
pub(crate) fn shift(pages: u32) -> u32 {
    pages.next_power_of_two().trailing_zeros().max(6)
}
