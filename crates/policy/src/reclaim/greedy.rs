//! `greedy`: the segment with the fewest valid pages, so that cleaning copies least now.
//!
//! Source: M. Rosenblum, J. K. Ousterhout, "The Design and Implementation of a Log-Structured File System",
//! ACM TOCS 10(1), 1992, section 3.5; its write amplification: P. Desnoyers, "Analytic Modeling of SSD Write
//! Performance", SYSTOR 2012.
//!
//! Rule: one queue of candidates per number of valid pages; the victim is the first of the lowest queue.
//! Among equals that is the one that has had its number for the longest time.
//!
//! Cost: constant time per event, eight bytes per segment. When not: with hot and cold data in separate
//! segments, where full cold segments with a few invalid pages are left to hold that space for long.

use super::buckets::Buckets;
use super::{LogSize, Reclaim, Segment};

/// Greedy selection.
#[derive(Debug)]
pub struct Greedy {
    by_valid: Buckets,
}

impl Greedy {
    /// Creates the policy of an empty log.
    pub fn new(size: LogSize) -> Self {
        Self { by_valid: Buckets::new(size.segments, size.pages + 1) }
    }
}

impl Reclaim for Greedy {
    fn closed(&mut self, segment: Segment, valid: u32, _: u64) {
        self.by_valid.push(valid, segment);
    }

    #[inline]
    fn invalidated(&mut self, segment: Segment, valid: u32, _: u64) {
        self.by_valid.remove(segment);
        self.by_valid.push(valid, segment);
    }

    fn removed(&mut self, segment: Segment, _: u32) {
        self.by_valid.remove(segment);
    }

    fn victim(&mut self, _: u64) -> Option<Segment> {
        let lowest = self.by_valid.lowest()?;
        self.by_valid.first(lowest)
    }
}
