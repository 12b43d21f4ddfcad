//! `weighted`, `cost-benefit-closed`: the segment with the highest score, of those that need a look at every
//! candidate.
//!
//! Source: J. Yang, "Improving Performance for Flash-Based Storage Systems", dissertation, University of
//! California, Santa Cruz, 2014, section 3.7, for `space * w1 + age * w2 + VSC * w3`, and section 3.5.2 for
//! cost-benefit with the age of a segment, not of its last invalidation.
//!
//! Rule: u is the valid share of the segment, its age the time since it was closed, in pages that the log has
//! programmed. Cost-benefit is `(1 - u) * age / (1 + u)`. The weighted sum takes `1 - u` for space, the age
//! relative to that of the oldest candidate, and for VSC the share of the segment's pages that are valid and
//! may be dropped, because their owners have more than they are guaranteed: each is from 0 to 1, which the
//! text leaves open. Of equal scores the segment closed first. Segments without valid pages go first.
//!
//! Cost: a pass over all candidates for each victim; twelve bytes per segment.

use super::{LogSize, Reclaim, Segment};

/// Weights of the parts of a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Of the invalid share of the segment, w1.
    pub space: f64,
    /// Of its age relative to the oldest one, w2.
    pub age: f64,
    /// Of the share of its pages that may be dropped, w3.
    pub excess: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { space: 1.0, age: 1.0, excess: 1.0 }
    }
}

/// What is highest for the victim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Score {
    /// `(1 - u) * age / (1 + u)`.
    CostBenefit,
    /// The weighted sum of space, age and excess.
    Weighted(Weights),
}

/// A candidate.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    valid: u32,
    /// The time when it was closed.
    closed: u64,
}

/// Selection of the highest score.
#[derive(Debug)]
pub struct Scored {
    pages: u32,
    score: Score,
    candidates: Vec<Option<Candidate>>,
}

impl Scored {
    /// Creates the policy of an empty log.
    pub fn new(size: LogSize, score: Score) -> Self {
        Self { pages: size.pages, score, candidates: vec![None; size.segments as usize] }
    }

    fn candidates(&self) -> impl Iterator<Item = (Segment, Candidate)> + '_ {
        (0..).zip(&self.candidates).filter_map(|(at, candidate)| Some((Segment(at), (*candidate)?)))
    }

    fn score(&self, candidate: Candidate, (now, oldest): (u64, u64), excess: impl FnOnce() -> f64) -> f64 {
        let used = f64::from(candidate.valid) / f64::from(self.pages);
        // A segment closed by the very last program has some age too.
        let age = |closed: u64| (now - closed + 1) as f64;
        match self.score {
            Score::CostBenefit => (1.0 - used) * age(candidate.closed) / (1.0 + used),
            Score::Weighted(Weights { space, age: of_age, excess: of_excess }) => {
                let weighed = if of_excess == 0.0 { 0.0 } else { of_excess * excess() };
                space * (1.0 - used) + of_age * age(candidate.closed) / age(oldest) + weighed
            }
        }
    }
}

impl Reclaim for Scored {
    fn closed(&mut self, segment: Segment, valid: u32, now: u64) {
        self.candidates[segment.0 as usize] = Some(Candidate { valid, closed: now });
    }

    #[inline]
    fn invalidated(&mut self, segment: Segment, valid: u32, _: u64) {
        if let Some(candidate) = &mut self.candidates[segment.0 as usize] {
            candidate.valid = valid;
        }
    }

    fn removed(&mut self, segment: Segment, _: u32) {
        self.candidates[segment.0 as usize] = None;
    }

    fn victim(&mut self, now: u64) -> Option<Segment> {
        self.victim_of_owners(now, &mut |_| 0.0)
    }

    fn victim_of_owners(&mut self, now: u64, excess: &mut dyn FnMut(Segment) -> f64) -> Option<Segment> {
        let oldest = self.candidates().map(|(_, candidate)| candidate.closed).min()?;
        let mut best: Option<(f64, u64, Segment)> = None;
        for (segment, candidate) in self.candidates() {
            let score = match candidate.valid {
                0 => f64::INFINITY,
                _ => self.score(candidate, (now, oldest), || excess(segment)),
            };
            let is_better = best.is_none_or(|(highest, closed, _)| {
                score > highest || (score == highest && candidate.closed < closed)
            });
            if is_better {
                best = Some((score, candidate.closed, segment));
            }
        }
        best.map(|(_, _, segment)| segment)
    }
}
