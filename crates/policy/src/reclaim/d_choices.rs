//! `d-choices`: of d segments drawn at random the one with the fewest valid pages.
//!
//! Source: B. Van Houdt, "A Mean Field Model for a Class of Garbage Collection Algorithms in Flash-based
//! Solid State Drives", SIGMETRICS 2013; Y. Li, P. P. C. Lee, J. C. S. Lui, "Stochastic Modeling of
//! Large-Scale Solid-State Storage Systems", SIGMETRICS 2013 (randomized greedy).
//!
//! Rule: draw d candidates, with repetition; of equals the one drawn first. d = 10 is close to greedy.
//!
//! Cost: d random reads per victim and constant time per event; twelve bytes per segment. The draws come from
//! a generator with the given seed. When not: where greedy's queues cost nothing, as here; drives use it
//! because it needs no order.

use super::{LogSize, Reclaim, Segment};
use weir_model::{Rng, Seed};

/// The best of d random candidates.
#[derive(Debug)]
pub struct DChoices {
    choices: u32,
    random: Rng,
    candidates: Vec<Segment>,
    /// Index of each candidate in `candidates`.
    positions: Vec<u32>,
    valid: Vec<u32>,
}

impl DChoices {
    /// Creates the policy of an empty log; it draws `choices` candidates, at least one.
    pub fn new(size: LogSize, choices: u32, seed: Seed) -> Self {
        Self {
            choices: choices.max(1),
            random: Rng::new(seed),
            candidates: Vec::with_capacity(size.segments as usize),
            positions: vec![0; size.segments as usize],
            valid: vec![0; size.segments as usize],
        }
    }
}

impl Reclaim for DChoices {
    fn closed(&mut self, segment: Segment, valid: u32, _: u64) {
        self.positions[segment.0 as usize] = self.candidates.len() as u32;
        self.candidates.push(segment);
        self.valid[segment.0 as usize] = valid;
    }

    #[inline]
    fn invalidated(&mut self, segment: Segment, valid: u32, _: u64) {
        self.valid[segment.0 as usize] = valid;
    }

    fn removed(&mut self, segment: Segment, _: u32) {
        let at = self.positions[segment.0 as usize];
        self.candidates.swap_remove(at as usize);
        if let Some(moved) = self.candidates.get(at as usize) {
            self.positions[moved.0 as usize] = at;
        }
    }

    fn victim(&mut self, _: u64) -> Option<Segment> {
        let Self { choices, random, candidates, valid, .. } = self;
        let drawn = (0..*choices).filter_map(|_| random.pick(candidates));
        drawn.min_by_key(|segment| valid[segment.0 as usize])
    }
}
