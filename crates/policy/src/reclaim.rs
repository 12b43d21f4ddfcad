//! Reclaim: which segment of a log is cleaned next.
//!
//! A log (`weir-flash`) writes segments from their first page to their last, never in place. A full segment
//! is *closed* and loses valid pages as its data is overwritten elsewhere. The cleaner takes a closed
//! segment, the *victim*, copies its valid pages and erases it.
//!
//! There is one file per policy. Each keeps its own state, told by [`Reclaim`]'s calls; time is the number of
//! pages that the log has programmed, so that a log at rest does not age.

mod buckets;
mod cost_benefit;
mod d_choices;
mod greedy;
mod oldest;
mod scored;
mod second_chance;
#[cfg(test)]
mod tests;

pub use cost_benefit::{CostBenefit, CostForm};
pub use d_choices::DChoices;
pub use greedy::Greedy;
pub use oldest::Oldest;
pub use scored::{Score, Scored, Weights};
pub use second_chance::SecondChance;

use std::fmt;
use weir_model::Seed;

/// A segment of a log, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(pub u32);

/// Size of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSize {
    /// Number of segments.
    pub segments: u32,
    /// Largest number of valid pages in a segment.
    pub pages: u32,
}

/// Selects the segments to clean.
///
/// The candidates are the segments that were closed and not removed since. `valid` is a segment's number of
/// valid pages after the event, at most [`LogSize::pages`]; `now` is the number of pages that the log has
/// programmed, and never decreases.
pub trait Reclaim: fmt::Debug {
    /// A segment is full and becomes a candidate.
    fn closed(&mut self, segment: Segment, valid: u32, now: u64);

    /// A page of a candidate became invalid.
    fn invalidated(&mut self, segment: Segment, valid: u32, now: u64);

    /// A segment is no candidate any more.
    fn removed(&mut self, segment: Segment, valid: u32);

    /// Returns the next victim, which remains a candidate until it is removed; `None` without candidates.
    fn victim(&mut self, now: u64) -> Option<Segment>;

    /// Returns the next victim, as [`victim`](Self::victim) does, for a log with several owners of data.
    /// `excess` returns the share of a candidate's pages that are valid and may be dropped, because their
    /// owners have more than they are guaranteed. Only policies that weigh it call it.
    fn victim_of_owners(&mut self, now: u64, excess: &mut dyn FnMut(Segment) -> f64) -> Option<Segment> {
        let _ = excess;
        self.victim(now)
    }
}

impl<R: Reclaim + ?Sized> Reclaim for Box<R> {
    fn closed(&mut self, segment: Segment, valid: u32, now: u64) {
        (**self).closed(segment, valid, now);
    }
    #[inline]
    fn invalidated(&mut self, segment: Segment, valid: u32, now: u64) {
        (**self).invalidated(segment, valid, now);
    }
    fn removed(&mut self, segment: Segment, valid: u32) {
        (**self).removed(segment, valid);
    }
    fn victim(&mut self, now: u64) -> Option<Segment> {
        (**self).victim(now)
    }
    fn victim_of_owners(&mut self, now: u64, excess: &mut dyn FnMut(Segment) -> f64) -> Option<Segment> {
        (**self).victim_of_owners(now, excess)
    }
}

/// A policy, by name.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimPolicy {
    /// Name, in commands and reports.
    pub name: &'static str,
    /// The victim, in a phrase.
    pub victim: &'static str,
    /// Creates it for an empty log. Policies that draw random numbers use the seed.
    pub create: fn(LogSize, Seed) -> Box<dyn Reclaim + Send>,
}

/// Number of candidates that `d-choices` draws: Van Houdt finds 10 close to greedy.
pub const CHOICES: u32 = 10;

/// All policies.
pub const ALL: &[ReclaimPolicy] = &[
    ReclaimPolicy {
        name: "greedy",
        victim: "the segment with the fewest valid pages",
        create: |size, _| Box::new(Greedy::new(size)),
    },
    ReclaimPolicy {
        name: "cost-benefit",
        victim: "the segment with the largest (1 - u) * age / (1 + u), u its valid share",
        create: |size, _| Box::new(CostBenefit::new(size, CostForm::ReadAndWrite)),
    },
    ReclaimPolicy {
        name: "cost-benefit-2u",
        victim: "the segment with the largest (1 - u) * age / 2u, u its valid share",
        create: |size, _| Box::new(CostBenefit::new(size, CostForm::TwoCopies)),
    },
    ReclaimPolicy {
        name: "cost-benefit-closed",
        victim: "the segment with the largest (1 - u) * age / (1 + u), its age that of its youngest page",
        create: |size, _| Box::new(Scored::new(size, Score::CostBenefit)),
    },
    ReclaimPolicy {
        name: "weighted",
        victim: "the segment with the largest sum of its invalid share, its age and its owners' excess",
        create: |size, _| Box::new(Scored::new(size, Score::Weighted(Weights::default()))),
    },
    ReclaimPolicy {
        name: "oldest",
        victim: "the segment that was closed first",
        create: |size, _| Box::new(Oldest::new(size)),
    },
    ReclaimPolicy {
        name: "d-choices",
        victim: "of 10 segments drawn at random the one with the fewest valid pages",
        create: |size, seed| Box::new(DChoices::new(size, CHOICES, seed)),
    },
    ReclaimPolicy {
        name: "second-chance",
        victim: "the segment that was closed first, passed over once if it is fuller than the mean",
        create: |size, _| Box::new(SecondChance::new(size)),
    },
];

/// Returns the policy of this name; `None` if it is unknown.
pub fn by_name(name: &str) -> Option<&'static ReclaimPolicy> {
    ALL.iter().find(|policy| policy.name == name)
}
