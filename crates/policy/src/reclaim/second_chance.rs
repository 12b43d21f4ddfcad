//! `second-chance`: the oldest segment, unless it is fuller than the mean and has not been passed over yet.
//!
//! Source: the second chance of page replacement (F. J. Corbato, "A Paging Experiment with the Multics
//! System", 1968) with the condition of Random++ in B. Van Houdt, "A Mean Field Model for a Class of Garbage
//! Collection Algorithms in Flash-based Solid State Drives", SIGMETRICS 2013. No publication that we know
//! combines them.
//!
//! Rule: a queue in the order in which segments were closed. If the first one has more valid pages than the
//! mean of all candidates and has not been passed over since it was closed, it goes to the end; else it is
//! the victim. So no segment is passed over twice, and hot data has one more round to become invalid.
//!
//! Cost: constant time, amortised; thirteen bytes per segment. When not: with uniform writes, where age
//! already orders segments by their valid pages.

use super::buckets::Buckets;
use super::{LogSize, Reclaim, Segment};

/// Oldest first, with a second chance.
#[derive(Debug)]
pub struct SecondChance {
    queue: Buckets,
    valid: Vec<u32>,
    passed_over: Vec<bool>,
    /// Number of candidates, and of their valid pages.
    candidates: u64,
    all_valid: u64,
}

impl SecondChance {
    /// Creates the policy of an empty log.
    pub fn new(size: LogSize) -> Self {
        Self {
            queue: Buckets::new(size.segments, 1),
            valid: vec![0; size.segments as usize],
            passed_over: vec![false; size.segments as usize],
            candidates: 0,
            all_valid: 0,
        }
    }
}

impl Reclaim for SecondChance {
    fn closed(&mut self, segment: Segment, valid: u32, _: u64) {
        self.queue.push(0, segment);
        self.valid[segment.0 as usize] = valid;
        self.passed_over[segment.0 as usize] = false;
        self.candidates += 1;
        self.all_valid += u64::from(valid);
    }

    #[inline]
    fn invalidated(&mut self, segment: Segment, valid: u32, _: u64) {
        self.valid[segment.0 as usize] = valid;
        self.all_valid -= 1;
    }

    fn removed(&mut self, segment: Segment, valid: u32) {
        self.queue.remove(segment);
        self.candidates -= 1;
        self.all_valid -= u64::from(valid);
    }

    fn victim(&mut self, _: u64) -> Option<Segment> {
        loop {
            let first = self.queue.first(0)?;
            let at = first.0 as usize;
            let is_full = u64::from(self.valid[at]) * self.candidates > self.all_valid;
            if !is_full || self.passed_over[at] {
                return Some(first);
            }
            self.passed_over[at] = true;
            self.queue.remove(first);
            self.queue.push(0, first);
        }
    }
}
