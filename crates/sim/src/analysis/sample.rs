//! A part of a trace that stands for all of it: the blocks whose hash is small, with every access to them.
//!
//! Source: C. A. Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015, sections 3.1 and 3.2: blocks are
//! chosen by a hash of their address, so that an access to a block is in the sample if every other one is. Caches
//! of the sample are as much smaller as the sample is. Their fixed-size variant is meant by [`Sampling::most`]: the rate is
//! lowered as blocks come, and accesses to blocks that are out of the sample then are forgotten.
//!
//! How many blocks there are in all is estimated with a bitmap: K.-Y. Whang et al., "A linear-time probabilistic counting
//! algorithm for database applications", ACM TODS 15(2), 1990.

use crate::cache::share;
use rustc_hash::FxHashMap;
use std::str::FromStr;
use weir_policy::eviction::{Block, Use};

/// How much of a trace is to be in the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The share of the blocks, above 0, to 1.
    pub share: f64,
    /// Of so few blocks more than that share: what is few is taken whole.
    pub few: usize,
    /// At most so many blocks, however small a share that is. Then the sample takes constant memory.
    pub most: Option<usize>,
}

impl Sampling {
    /// This share of the blocks, however many or few they are.
    pub const fn fixed(share: f64) -> Self {
        Self { share, few: 0, most: None }
    }

    /// All blocks, or so many if there are more: between this number and half of it.
    pub const fn at_most(blocks: usize) -> Self {
        Self { share: 1.0, few: 0, most: Some(blocks) }
    }
}

impl Default for Sampling {
    /// 1 %, of at most 2^13 blocks all, and no more than 2^16 blocks.
    fn default() -> Self {
        Self { share: 0.01, few: 1 << 13, most: Some(1 << 16) }
    }
}

impl FromStr for Sampling {
    type Err = String;

    /// Reads `1%` and `100000blk`.
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

/// Takes a sample. Of most accesses it needs a hash and a bit; it takes 256 KiB, about 30 bytes a block in the sample and 4 bytes an
/// access to it: up to twice 32 MiB for accesses if [`Sampling::most`] is given.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// Blocks with hashes up to this are in.
    limit: u64,
    numbers: FxHashMap<u64, u32>,
    /// What the blocks are called, by number.
    keys: Vec<u64>,
    accesses: Vec<Access>,
    seen: u64,
    /// There is room for nothing more.
    is_over: bool,
    /// A bit for each value of the hash's lowest bits that came.
    came: Vec<u64>,
}

/// The number of a block, and in the lowest bit whether it is written.
#[derive(Clone, Copy, Debug)]
struct Access(u32);

impl Access {
    fn number(self) -> usize {
        self.0 as usize >> 1
    }

    fn used(self) -> Use {
        if self.0 & 1 == 0 { Use::Read } else { Use::Write }
    }
}

/// A sample of a trace.
#[derive(Debug)]
pub struct Sample {
    /// The chance of a block to be in it, above 0, to 1.
    pub chance: f64,
    /// Distinct blocks of the whole trace: about as many, unless they were counted.
    pub all: f64,
    /// Accesses it stands for.
    pub seen: u64,
    /// Whether the sample is of the whole trace. If it is not, it is of the accesses up to one after which a few blocks alone
    /// took all the room.
    pub is_whole: bool,
    keys: Vec<u64>,
    accesses: Vec<Access>,
}

/// A hash of 64 bits, each of which depends on all of the key (SplitMix64's last steps).
#[inline]
pub(super) const fn hash(key: u64) -> u64 {
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// Hashes up to this are so many of all.
fn limit_of(share: f64) -> u64 {
    // From 2^64 up it is the greatest.
    (share * 2f64.powi(64)) as u64
}

impl Sampler {
    /// Nothing sampled yet.
    pub fn new(sampling: Sampling) -> Self {
        let limit = if sampling.few > 0 { u64::MAX } else { limit_of(sampling.share) };
        let (numbers, keys, accesses) = (FxHashMap::default(), Vec::new(), Vec::new());
        Self { sampling, limit, numbers, keys, accesses, seen: 0, is_over: false, came: vec![0; CAME / 64] }
    }

    /// An access to a block, which is called by any number that no other one has.
    #[inline]
    pub fn take(&mut self, key: u64, used: Use) {
        if self.is_over {
            return;
        }
        self.seen += 1;
        let hash = hash(key);
        let bit = hash as usize % CAME;
        self.came[bit / 64] |= 1 << (bit % 64);
        if hash <= self.limit {
            self.keep(key, used);
        }
    }

    #[inline(never)]
    fn keep(&mut self, key: u64, used: Use) {
        let Self { numbers, keys, .. } = self;
        let number = *numbers.entry(key).or_insert_with(|| {
            keys.push(key);
            keys.len() as u32 - 1
        });
        self.accesses.push(Access(number << 1 | u32::from(used == Use::Write)));
        while let Some(limit) = self.lower() {
            self.thin(limit);
        }
    }

    /// What is to be the limit if there is too much.
    #[inline]
    fn lower(&mut self) -> Option<u64> {
        let Sampling { share, few, most } = self.sampling;
        let (blocks, is_long) = (self.keys.len(), self.accesses.len() > ACCESSES);
        if blocks <= few.min(most.unwrap_or(few)) && !is_long {
            return None;
        }
        let least = limit_of(share);
        let is_many = most.is_some_and(|most| blocks > most);
        if is_long && !is_many && blocks <= FEWEST {
            // There might be none left.
            self.is_over = most.is_some();
            return None;
        }
        if self.limit > least {
            return Some((self.limit / 2).max(least));
        }
        (is_many || is_long && most.is_some()).then_some(self.limit / 2)
    }

    /// Leaves out blocks with hashes above a lower limit.
    fn thin(&mut self, limit: u64) {
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

    /// The sample.
    pub fn finish(self) -> Sample {
        let chance = (self.limit as f64 + 1.0) / 2f64.powi(64);
        let free: u32 = self.came.iter().map(|word| word.count_zeros()).sum();
        let all = match (self.limit, free) {
            (u64::MAX, _) => self.keys.len() as f64,
            // More than can be told so.
            (_, ..FREE_LEAST) => self.keys.len() as f64 / chance,
            _ => -(CAME as f64) * (f64::from(free) / CAME as f64).ln(),
        };
        let all = all.max(self.keys.len() as f64);
        Sample {
            chance,
            all,
            seen: self.seen,
            is_whole: !self.is_over,
            keys: self.keys,
            accesses: self.accesses,
        }
    }
}

/// The rate is lowered, too, when there are more accesses, which take 4 bytes each.
const ACCESSES: usize = 1 << 23;
/// It is not lowered because of accesses when there are so few blocks.
const FEWEST: usize = 64;
/// Bits that tell how many blocks there are: 10 million to less than 1 %.
const CAME: usize = 1 << 21;
/// With fewer of them free nothing is told.
const FREE_LEAST: u32 = 1 << 10;

impl Sample {
    /// The same sample of a trace of which it is known how many distinct blocks it has.
    #[must_use]
    pub fn of(self, blocks: u64) -> Self {
        Self { all: if self.is_whole { blocks as f64 } else { self.all }, ..self }
    }

    /// The share of the trace's blocks that is in it; nothing of nothing is all.
    pub fn rate(&self) -> f64 {
        if self.all > 0.0 { self.keys.len() as f64 / self.all } else { 1.0 }
    }

    /// Blocks in it.
    pub fn blocks(&self) -> usize {
        self.keys.len()
    }

    /// Accesses in it, in order.
    pub fn accesses(&self) -> impl ExactSizeIterator<Item = (Block, Use)> + '_ {
        self.accesses.iter().map(|access| (Block(access.number() as u32), access.used()))
    }

    /// The accesses to each of `count` groups of the blocks, which are as good samples; `count` is a power of two.
    pub(super) fn groups(&self, count: u64) -> Vec<Vec<(Block, Use)>> {
        // Other bits than those that choose the sample.
        let of: Vec<_> = self.keys.iter().map(|key| (hash(*key) & (count - 1)) as usize).collect();
        let mut groups = vec![Vec::new(); count as usize];
        for (block, used) in self.accesses() {
            groups[of[block.index()]].push((block, used));
        }
        groups
    }
}
