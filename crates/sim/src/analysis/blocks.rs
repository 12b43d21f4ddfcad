//! Statistics of single blocks, for a bounded number of blocks.
//!
//! As long as they fit, all blocks are tracked. Whenever there are too many, the half with the greater hashes
//! is dropped, and each of the others counts twice as much from then on: the fixed-size variant of SHARDS (C.
//! A. Waldspurger et al., FAST 2015, section 3.2) with a rate that is a power of two. Only a block's address
//! decides whether it is tracked, so every access to a tracked block is known.

use super::distances::Distances;
use super::distribution::{DistributionCollector, Spread};
use super::sample::hash;
use crate::cache::{Numbers, Stack};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::Nanos;

/// The tracked blocks. Memory: about 50 bytes per block, up to twice as much while tables grow.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks_max: usize,
    numbers: Numbers,
    states: Vec<State>,
    times: [DistributionCollector; 4],
    stack: Stack,
    distances: Distances,
    halvings: u32,
}

/// State of a tracked block.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Time of the last access, doubled, plus 1 if it was a write.
    last: u64,
    accesses: u32,
    /// [`READ`], [`WRITTEN`], and one bit for each admission policy that would have admitted it.
    flags: u16,
}

const READ: u16 = 1;
const WRITTEN: u16 = 2;
/// Bit of the first admission policy.
const ADMITTED: u32 = 2;

/// Times between consecutive accesses to a block, in nanoseconds, by what the two accesses are.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReuseTimes {
    /// From a write to a read.
    pub read_after_write: Spread,
    /// From a write to a write.
    pub write_after_write: Spread,
    /// From a read to a read.
    pub read_after_read: Spread,
    /// From a read to a write.
    pub write_after_read: Spread,
}

/// A sample of the blocks, each of which stands for several.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Sampled")]
pub struct LookedAt {
    /// Blocks in the sample.
    pub blocks: u64,
    /// Share of all blocks: one half, one quarter, and so on.
    pub share: f64,
    /// One standard error of numbers of blocks, as a share of all blocks.
    pub error: f64,
}

impl Blocks {
    /// Creates an empty table that tracks at most `most` blocks.
    pub(super) fn new(most: u32) -> Self {
        Self {
            blocks_max: most.clamp(1, BLOCKS_MAX) as usize,
            numbers: Numbers::default(),
            states: Vec::new(),
            times: Default::default(),
            stack: Stack::new(0),
            distances: Distances::default(),
            halvings: 0,
        }
    }

    /// Records an access; `admitted` has one bit for each admission policy that would have admitted the
    /// block.
    #[inline]
    pub(super) fn access(&mut self, key: u64, is_write: bool, at: Nanos, admitted: u16) {
        if !is_tracked(key, self.halvings) {
            return;
        }
        let block = self.numbers.number(key);
        let now = at.0.min(u64::MAX >> 1) << 1 | u64::from(is_write);
        if block.index() == self.states.len() {
            self.states.push(State::default());
        } else {
            let last = self.states[block.index()].last;
            let time = (now >> 1).saturating_sub(last >> 1);
            self.times[(last & 1) as usize | usize::from(is_write) << 1]
                .add_many(time, self.distances.unit());
        }
        let state = &mut self.states[block.index()];
        state.last = now;
        state.accesses = state.accesses.saturating_add(1);
        state.flags |= if is_write { WRITTEN } else { READ } | admitted << ADMITTED;
        self.distances.add(self.stack.touch(block));
        while self.states.len() > self.blocks_max {
            self.halve();
        }
    }

    /// Drops half of the blocks.
    #[cold]
    fn halve(&mut self) {
        self.halvings += 1;
        let kept = self.numbers.retain(|key| is_tracked(key, self.halvings));
        for (new, old) in kept.iter().enumerate() {
            self.states[new] = self.states[*old as usize];
        }
        self.states.truncate(kept.len());
        self.stack.retain(&kept);
        self.distances.halve();
    }

    fn extrapolate(&self, looked_at: usize) -> u64 {
        looked_at as u64 * self.distances.unit()
    }

    fn count_flagged(&self, flag: u16) -> u64 {
        self.extrapolate(self.states.iter().filter(|state| state.flags & flag != 0).count())
    }

    /// Returns the number of distinct blocks.
    pub(super) fn count(&self) -> u64 {
        self.extrapolate(self.states.len())
    }

    /// Returns the number of distinct blocks that were read.
    pub(super) fn read(&self) -> u64 {
        self.count_flagged(READ)
    }

    /// Returns the number of distinct blocks that were written.
    pub(super) fn written(&self) -> u64 {
        self.count_flagged(WRITTEN)
    }

    /// Returns the number of distinct blocks that the nth admission policy would have admitted.
    pub(super) fn admitted(&self, nth: usize) -> u64 {
        self.count_flagged(1 << (ADMITTED + nth as u32))
    }

    /// Returns the number of accesses to each tracked block.
    pub(super) fn accesses(&self) -> impl ExactSizeIterator<Item = u32> {
        self.states.iter().map(|state| state.accesses)
    }

    pub(super) fn distances(&self) -> &Distances {
        &self.distances
    }

    pub(super) fn reuse_times(&self) -> ReuseTimes {
        let [read_after_read, read_after_write, write_after_read, write_after_write] =
            self.times.each_ref().map(DistributionCollector::spread);
        ReuseTimes { read_after_write, write_after_write, read_after_read, write_after_read }
    }

    /// Describes the tracked blocks; `None` if these are all.
    pub(super) fn looked_at(&self) -> Option<LookedAt> {
        let (blocks, share) = (self.states.len() as u64, 1.0 / self.distances.unit() as f64);
        // Each block is tracked with this probability: a binomial distribution.
        let error = ((1.0 - share) / (blocks as f64).max(1.0)).sqrt();
        (self.halvings > 0).then_some(LookedAt { blocks, share, error })
    }
}

/// Reports whether a block is tracked after this many halvings.
#[inline]
fn is_tracked(key: u64, halvings: u32) -> bool {
    hash(key).leading_zeros() >= halvings
}

/// Maximum number of blocks, which have 32-bit numbers.
const BLOCKS_MAX: u32 = u32::MAX - (1 << 16);
