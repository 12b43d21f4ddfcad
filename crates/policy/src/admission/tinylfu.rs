//! `tinylfu`: what is missed comes in if it was asked for more often lately than what would leave for it.
//!
//! Source: G. Einziger, R. Friedman, B. Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM Transactions
//! on Storage 13(4), 2017.
//!
//! Rule: a sketch counts how often blocks were asked for among the last W accesses (all counts are halved after W), without
//! the first time, of which a doorkeeper of one bit a block knows. While there is room everything comes in.
//!
//! Constants: W = 10 times the capacity, counters of four bits in four rows, one a row for each block that can be asked for
//! twice in W, or up to twice that. The doorkeeper is exact, for blocks are numbered densely. A tie keeps what is there.
//!
//! When not: where what is new is soon asked for several times and then no more; it stays out.

use super::sketch::Sketch;
use super::{Admission, Block};
use crate::cached::Room;

/// Accesses of the sample for each block of the capacity.
const SAMPLE: u64 = 10;

/// Admits by frequency.
#[derive(Debug)]
pub struct TinyLfu {
    sketch: Sketch,
    /// Asked for since the counts were last halved: a bit a block.
    doorkeeper: Vec<u64>,
    accesses: u64,
    sample: u64,
}

impl TinyLfu {
    /// Nothing asked for yet.
    pub fn new(room: Room) -> Self {
        let sample = SAMPLE * u64::from(room.capacity);
        let counted = (sample / 2).min(room.blocks.into());
        Self {
            sketch: Sketch::new(counted as usize),
            doorkeeper: vec![0; (room.blocks as usize).div_ceil(64)],
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
