//! `tinylfu`: a missed block enters if it was accessed more often recently than the one that would leave for
//! it.
//!
//! Source: G. Einziger, R. Friedman, B. Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM
//! Transactions on Storage 13(4), 2017.
//!
//! Rule: a sketch counts the accesses of blocks among the last W (all counts are halved after W), without the
//! first access of each, which a doorkeeper of one bit per block records. While there is space every block
//! enters.
//!
//! Constants: W = 10 times the capacity, counters of four bits in four rows, one per row for each block that
//! can be accessed twice in W, or up to twice that. The doorkeeper is exact, because blocks are numbered
//! densely. In a tie the cached block stays.
//!
//! When not: where new blocks are soon accessed several times and then no more; they stay out.

use super::sketch::Sketch;
use super::{Admission, Block};
use crate::cache::CacheSize;

/// The number of accesses in the sample per block of the capacity.
const SAMPLE: u64 = 10;

/// An admission policy by frequency.
#[derive(Debug)]
pub struct TinyLfu {
    sketch: Sketch,
    /// The blocks accessed since the counts were last halved: one bit per block.
    doorkeeper: Vec<u64>,
    accesses: u64,
    sample: u64,
}

impl TinyLfu {
    /// Creates a policy without accesses.
    pub fn new(size: CacheSize) -> Self {
        let sample = SAMPLE * u64::from(size.capacity);
        let counted = (sample / 2).min(size.blocks.into());
        Self {
            sketch: Sketch::new(counted as usize),
            doorkeeper: vec![0; (size.blocks as usize).div_ceil(64)],
            accesses: 0,
            sample,
        }
    }

    fn count(&self, block: Block) -> u8 {
        self.sketch.count(block) + u8::from(self.doorkeeper[block.index() / 64] >> (block.0 % 64) & 1 == 1)
    }
}

impl Admission for TinyLfu {
    fn block(&mut self, block: Block) {
        let bit = 1 << (block.0 % 64);
        let word = &mut self.doorkeeper[block.index() / 64];
        if *word & bit == 0 {
            *word |= bit;
        } else {
            self.sketch.increment(block);
        }
        self.accesses += 1;
        if self.accesses >= self.sample {
            self.accesses /= 2;
            self.sketch.halve();
            self.doorkeeper.fill(0);
        }
    }

    fn may_replace(&mut self, missed: Block, leaving: Block) -> bool {
        self.count(missed) > self.count(leaving)
    }
}
