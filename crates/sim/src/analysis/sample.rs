//! A sample of a trace: the blocks with small hashes, with every access to them.
//!
//! Source: C. A. Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015, sections 3.1 and
//! 3.2: blocks are chosen by a hash of their address, so either all accesses to a block are in the sample or
//! none. Caches for the sample are scaled down in proportion. [`Sampling::blocks_max`] selects their
//! fixed-size variant: the rate is lowered as blocks are added, and accesses to blocks that leave the sample
//! are dropped.
//!
//! The total number of blocks is estimated with a bitmap: K.-Y. Whang et al., "A linear-time probabilistic
//! counting algorithm for database applications", ACM TODS 15(2), 1990.

use crate::cache::share;
use rustc_hash::FxHashMap;
use std::str::FromStr;
use weir_policy::eviction::{AccessKind, Block};

/// Size of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Share of the blocks, above 0 and up to 1.
    pub share: f64,
    /// Number of blocks up to which more than that share is sampled: a small trace is taken whole.
    pub whole_up_to: usize,
    /// Maximum number of blocks, regardless of the share. With it the sample uses constant memory.
    pub blocks_max: Option<usize>,
}

impl Sampling {
    /// Samples this share of the blocks, however many or few they are.
    pub const fn fixed(share: f64) -> Self {
        Self { share, whole_up_to: 0, blocks_max: None }
    }

    /// Samples all blocks, or, if there are more than `blocks`, between half that number and all of it.
    pub const fn at_most(blocks: usize) -> Self {
        Self { share: 1.0, whole_up_to: 0, blocks_max: Some(blocks) }
    }
}

impl Default for Sampling {
    /// 1 %, but at least 2^13 blocks where there are as many, and at most 2^16 blocks.
    fn default() -> Self {
        Self { share: 0.01, whole_up_to: 1 << 13, blocks_max: Some(1 << 16) }
    }
}

impl FromStr for Sampling {
    type Err = String;

    /// Parses `1%` and `100000blk`.
    fn from_str(text: &str) -> Result<Self, String> {
        let blocks = text.strip_suffix("blk").and_then(|blocks| blocks.parse().ok());
        match blocks.filter(|blocks| *blocks > 0) {
            Some(blocks) => Ok(Self::at_most(blocks)),
            None => {
                share(text).map(Self::fixed).map_err(|allowed| allowed + ", or a number of blocks: 100000blk")
            }
        }
    }
}

/// Takes a sample. Most accesses cost a hash and a bit. Memory: 256 KiB, about 30 bytes per block in the
/// sample and 4 bytes per access to it; up to twice 32 MiB for accesses if [`Sampling::blocks_max`] is set.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// Blocks with hashes up to this are in the sample.
    limit: u64,
    numbers: FxHashMap<u64, u32>,
    /// Keys of the blocks, by number.
    keys: Vec<u64>,
    accesses: Vec<Access>,
    seen: u64,
    /// True if there is no room for anything more.
    is_full: bool,
    /// One bit for each value of the hash's lowest bits that has occurred.
    hash_bitmap: Vec<u64>,
}

/// Number of a block, with the lowest bit set for a write.
#[derive(Clone, Copy, Debug)]
struct Access(u32);

impl Access {
    fn number(self) -> usize {
        self.0 as usize >> 1
    }

    fn used(self) -> AccessKind {
        if self.0 & 1 == 0 { AccessKind::Read } else { AccessKind::Write }
    }
}

/// A sample of a trace.
#[derive(Debug)]
pub struct Sample {
    /// Probability that a block is in it, above 0 and up to 1.
    pub probability: f64,
    /// Number of distinct blocks of the whole trace; an estimate, unless they were counted.
    pub distinct_blocks: f64,
    /// Number of accesses it stands for.
    pub seen: u64,
    /// Whether the sample covers the whole trace. Otherwise it covers the accesses up to the point where a
    /// few blocks alone used all the room.
    pub is_whole: bool,
    keys: Vec<u64>,
    accesses: Vec<Access>,
}

/// Returns a 64-bit hash of which each bit depends on the whole key (SplitMix64's last steps).
#[inline]
pub(super) const fn hash(key: u64) -> u64 {
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// Returns the largest hash of the given share of all hashes.
fn limit_of(share: f64) -> u64 {
    // The cast saturates at 2^64.
    (share * 2f64.powi(64)) as u64
}

impl Sampler {
    /// Creates an empty sampler.
    pub fn new(sampling: Sampling) -> Self {
        let limit = if sampling.whole_up_to > 0 { u64::MAX } else { limit_of(sampling.share) };
        let (numbers, keys, accesses) = (FxHashMap::default(), Vec::new(), Vec::new());
        Self {
            sampling,
            limit,
            numbers,
            keys,
            accesses,
            seen: 0,
            is_full: false,
            hash_bitmap: vec![0; BITMAP_BITS / 64],
        }
    }

    /// Adds an access to a block, identified by a unique number.
    #[inline]
    pub fn take(&mut self, key: u64, used: AccessKind) {
        if self.is_full {
            return;
        }
        self.seen += 1;
        let hash = hash(key);
        let bit = hash as usize % BITMAP_BITS;
        self.hash_bitmap[bit / 64] |= 1 << (bit % 64);
        if hash <= self.limit {
            self.insert(key, used);
        }
    }

    #[inline(never)]
    fn insert(&mut self, key: u64, used: AccessKind) {
        let Self { numbers, keys, .. } = self;
        let number = *numbers.entry(key).or_insert_with(|| {
            keys.push(key);
            keys.len() as u32 - 1
        });
        self.accesses.push(Access(number << 1 | u32::from(used == AccessKind::Write)));
        while let Some(limit) = self.lower_limit() {
            self.drop_above(limit);
        }
    }

    /// Returns the new limit, if there are too many blocks or accesses.
    #[inline]
    fn lower_limit(&mut self) -> Option<u64> {
        let Sampling { share, whole_up_to: few, blocks_max: most } = self.sampling;
        let (blocks, is_long) = (self.keys.len(), self.accesses.len() > ACCESSES_MAX);
        if blocks <= few.min(most.unwrap_or(few)) && !is_long {
            return None;
        }
        let least = limit_of(share);
        let is_many = most.is_some_and(|most| blocks > most);
        if is_long && !is_many && blocks <= BLOCKS_MIN {
            // A lower limit might leave no blocks.
            self.is_full = most.is_some();
            return None;
        }
        if self.limit > least {
            return Some((self.limit / 2).max(least));
        }
        (is_many || is_long && most.is_some()).then_some(self.limit / 2)
    }

    /// Drops blocks with hashes above a lower limit.
    fn drop_above(&mut self, limit: u64) {
        self.limit = limit;
        let mut renumbered = vec![None; self.keys.len()];
        let keys: Vec<_> = self.keys.drain(..).enumerate().filter(|(_, key)| hash(*key) <= limit).collect();
        self.numbers.clear();
        for (new, (old, key)) in (0..).zip(keys) {
            renumbered[old] = Some(new);
            self.numbers.insert(key, new);
            self.keys.push(key);
        }
        self.accesses.retain_mut(|access| {
            let new = renumbered[access.number()];
            access.0 = new.unwrap_or(0) << 1 | access.0 & 1;
            new.is_some()
        });
    }

    /// Returns the sample.
    pub fn finish(self) -> Sample {
        let chance = (self.limit as f64 + 1.0) / 2f64.powi(64);
        let free: u32 = self.hash_bitmap.iter().map(|word| word.count_zeros()).sum();
        let all = match (self.limit, free) {
            (u64::MAX, _) => self.keys.len() as f64,
            // There are too many blocks for the bitmap.
            (_, ..FREE_BITS_MIN) => self.keys.len() as f64 / chance,
            _ => -(BITMAP_BITS as f64) * (f64::from(free) / BITMAP_BITS as f64).ln(),
        };
        let all = all.max(self.keys.len() as f64);
        Sample {
            probability: chance,
            distinct_blocks: all,
            seen: self.seen,
            is_whole: !self.is_full,
            keys: self.keys,
            accesses: self.accesses,
        }
    }
}

/// Number of accesses above which the rate is lowered as well; each takes 4 bytes.
const ACCESSES_MAX: usize = 1 << 23;
/// The rate is not lowered because of accesses with this few blocks.
const BLOCKS_MIN: usize = 64;
/// Number of bits of the bitmap: it estimates 10 million blocks with an error below 1 %.
const BITMAP_BITS: usize = 1 << 21;
/// Minimum number of unset bits for an estimate.
const FREE_BITS_MIN: u32 = 1 << 10;

impl Sample {
    /// Sets the known number of distinct blocks of the trace.
    #[must_use]
    pub fn of(self, blocks: u64) -> Self {
        Self { distinct_blocks: if self.is_whole { blocks as f64 } else { self.distinct_blocks }, ..self }
    }

    /// Returns the share of the trace's blocks that is in the sample; 1 for an empty trace.
    pub fn rate(&self) -> f64 {
        if self.distinct_blocks > 0.0 { self.keys.len() as f64 / self.distinct_blocks } else { 1.0 }
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.keys.len()
    }

    /// Returns the accesses, in order.
    pub fn accesses(&self) -> impl ExactSizeIterator<Item = (Block, AccessKind)> + '_ {
        self.accesses.iter().map(|access| (Block(access.number() as u32), access.used()))
    }

    /// Divides the accesses into `count` groups by block, each a sample of its own; `count` is a power of
    /// two.
    pub(super) fn groups(&self, count: u64) -> Vec<Vec<(Block, AccessKind)>> {
        // These are other bits than those that choose the sample.
        let of: Vec<_> = self.keys.iter().map(|key| (hash(*key) & (count - 1)) as usize).collect();
        let mut groups = vec![Vec::new(); count as usize];
        for (block, used) in self.accesses() {
            groups[of[block.index()]].push((block, used));
        }
        groups
    }
}
