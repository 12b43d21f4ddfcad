//! `oldest`: the segment that was closed first, as if the log were a ring.
//!
//! Source: J. Yang, "Improving Performance for Flash-Based Storage Systems", dissertation, University of
//! California, Santa Cruz, 2014, section 3.5.2 (OLDEST, or tail-drop); analysed as LRU by P. Desnoyers,
//! "Analytic Modeling of SSD Write Performance", SYSTOR 2012.
//!
//! Rule: a queue in the order in which segments were closed.
//!
//! Cost: constant time, eight bytes per segment; segments wear evenly. When not: with data that stays valid,
//! which it copies once a round.

use super::buckets::Buckets;
use super::{LogSize, Reclaim, Segment};

/// Oldest first.
#[derive(Debug)]
pub struct Oldest {
    queue: Buckets,
}

impl Oldest {
    /// Creates the policy of an empty log.
    pub fn new(size: LogSize) -> Self {
        Self { queue: Buckets::new(size.segments, 1) }
    }
}

impl Reclaim for Oldest {
    fn closed(&mut self, segment: Segment, _: u32, _: u64) {
        self.queue.push(0, segment);
    }

    #[inline]
    fn invalidated(&mut self, _: Segment, _: u32, _: u64) {}

    fn removed(&mut self, segment: Segment, _: u32) {
        self.queue.remove(segment);
    }

    fn victim(&mut self, _: u64) -> Option<Segment> {
        self.queue.first(0)
    }
}
