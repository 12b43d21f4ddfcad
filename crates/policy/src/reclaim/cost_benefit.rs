//! `cost-benefit`, `cost-benefit-2u`: the segment whose cleaning gains most space for longest at least cost.
//!
//! Source: M. Rosenblum, J. K. Ousterhout, "The Design and Implementation of a Log-Structured File System",
//! ACM TOCS 10(1), 1992, section 3.6, for `(1 - u) * age / (1 + u)`: the cleaner reads the whole segment and
//! writes the share u that is valid. A. Kawaguchi, S. Nishioka, H. Motoda, "A Flash-Memory Based File
//! System", USENIX 1995, for `(1 - u) * age / 2u`: it reads and writes only what is valid.
//!
//! Rule: u is the valid share of the segment; its age is the time since it was last modified, that is closed
//! or one of its pages invalidated, in pages that the log has programmed. Segments without valid pages go
//! first: the second form is infinite there. (The file system's age is that of a segment's youngest data
//! instead.)
//!
//! Cost: of the segments with the same number of valid pages the one unmodified for longest has the highest
//! score, so a selection looks at one segment per number of valid pages. Sixteen bytes per segment. When not:
//! with uniform writes, where greedy copies less.

use super::buckets::Buckets;
use super::{LogSize, Reclaim, Segment};

/// The cost by which the benefit is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostForm {
    /// `1 + u`: a read of the segment and a write of what is valid.
    ReadAndWrite,
    /// `2u`: a read and a write of what is valid.
    TwoCopies,
}

/// Cost-benefit selection.
#[derive(Debug)]
pub struct CostBenefit {
    pages: u32,
    form: CostForm,
    /// Candidates by number of valid pages, in the order of their last modification.
    by_valid: Buckets,
    modified: Vec<u64>,
}

impl CostBenefit {
    /// Creates the policy of an empty log.
    pub fn new(size: LogSize, form: CostForm) -> Self {
        Self {
            pages: size.pages,
            form,
            by_valid: Buckets::new(size.segments, size.pages + 1),
            modified: vec![0; size.segments as usize],
        }
    }

    fn score(&self, valid: u32, modified: u64, now: u64) -> f64 {
        let used = f64::from(valid) / f64::from(self.pages);
        // A segment modified by the very last program has some age too: otherwise its space would not count.
        let age = (now - modified + 1) as f64;
        let cost = match self.form {
            CostForm::ReadAndWrite => 1.0 + used,
            CostForm::TwoCopies => 2.0 * used,
        };
        (1.0 - used) * age / cost
    }
}

impl Reclaim for CostBenefit {
    fn closed(&mut self, segment: Segment, valid: u32, now: u64) {
        self.modified[segment.0 as usize] = now;
        self.by_valid.push(valid, segment);
    }

    #[inline]
    fn invalidated(&mut self, segment: Segment, valid: u32, now: u64) {
        self.modified[segment.0 as usize] = now;
        self.by_valid.remove(segment);
        self.by_valid.push(valid, segment);
    }

    fn removed(&mut self, segment: Segment, _: u32) {
        self.by_valid.remove(segment);
    }

    fn victim(&mut self, now: u64) -> Option<Segment> {
        let lowest = self.by_valid.lowest()?;
        let mut best = self.by_valid.first(lowest)?;
        if lowest == 0 {
            return Some(best);
        }
        let mut highest = self.score(lowest, self.modified[best.0 as usize], now);
        for valid in lowest + 1..=self.pages {
            let Some(first) = self.by_valid.first(valid) else { continue };
            let score = self.score(valid, self.modified[first.0 as usize], now);
            if score > highest {
                (best, highest) = (first, score);
            }
        }
        Some(best)
    }
}
