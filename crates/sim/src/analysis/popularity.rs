//! Hot spots: the skew of accesses over blocks, and the hottest regions.

use crate::cache::split_key;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::ops::RangeInclusive;

/// How unevenly blocks are accessed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Popularity {
    /// Shares of the accesses that go to the most popular blocks.
    pub shares: Vec<Share>,
    /// The regions of 1 MiB with the most accesses, in descending order; at most ten.
    pub regions: Vec<Region>,
    /// Accesses by which the count of each region may be too low; 0 if at most 65,536 regions are touched.
    pub regions_undercount: u64,
}

/// The most popular blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Share {
    /// Share of the blocks, 0 to 1; at least one block.
    pub of_blocks: f64,
    /// Share of the accesses that go to these blocks, 0 to 1.
    pub of_accesses: f64,
}

/// A region of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Region {
    /// Number of the disk, in the order of appearance in the trace.
    pub disk: u32,
    /// First block of the region, counted from the start of the disk.
    pub first_block: u64,
    /// Number of accesses to its blocks.
    pub accesses: u64,
    /// Number of distinct blocks accessed.
    pub blocks: u32,
}

/// Number of regions listed.
pub(super) const REGIONS_LISTED: usize = 10;
/// Blocks per region: 1 MiB.
pub const REGION_BLOCKS: u64 = 256;
/// Number of regions whose accesses are counted: 64 GiB.
pub const REGIONS_COUNTED_MAX: usize = 1 << 16;

const SHARES: [f64; 4] = [0.001, 0.01, 0.1, 0.2];

/// Computes the shares from the number of accesses to each block.
pub(super) fn shares(accesses: impl Iterator<Item = u32>) -> Vec<Share> {
    let mut counts: Vec<_> = accesses.collect();
    counts.sort_unstable_by_key(|count| Reverse(*count));
    let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let share = |of_blocks: f64| {
        let most = ((counts.len() as f64 * of_blocks) as usize).max(1).min(counts.len());
        let sum: u64 = counts[..most].iter().map(|count| u64::from(*count)).sum();
        Share { of_blocks, of_accesses: sum as f64 / all.max(1) as f64 }
    };
    SHARES.map(share).into()
}

/// Counts accesses by region, for a bounded number of regions. When there are more, the median of the counts
/// is subtracted from all of them, and regions with nothing left are dropped: a region with many accesses
/// stays, and misses no more than was subtracted.
///
/// Source: J. Misra, D. Gries, "Finding repeated elements", Science of Computer Programming 2, 1982; with the
/// median as in D. Anderson et al., "A high-performance algorithm for identifying frequent items in data
/// streams", IMC 2017: of n accesses at most n divided by half the number of counted regions are missing.
/// Memory: 50 to 100 bytes per region.
#[derive(Debug)]
pub(super) struct Regions {
    regions_max: usize,
    /// Regions by number: the home of their blocks divided by the size of a region.
    counted: FxHashMap<u64, RegionCount>,
    undercount: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct RegionCount {
    accesses: u64,
    /// Accessed blocks of the region: one bit each.
    blocks: [u64; REGION_BLOCKS as usize / 64],
}

impl Regions {
    pub(super) fn new(most: usize) -> Self {
        Self { regions_max: most, counted: FxHashMap::default(), undercount: 0 }
    }

    /// Counts an access to each of these blocks, given as [`block_keys`](crate::cache::block_keys).
    pub(super) fn add(&mut self, homes: RangeInclusive<u64>) {
        let (first, last) = homes.into_inner();
        for region in first / REGION_BLOCKS..=last / REGION_BLOCKS {
            let counted = self.counted.entry(region).or_default();
            let start = first.max(region * REGION_BLOCKS) % REGION_BLOCKS;
            let end = last.min(region * REGION_BLOCKS + (REGION_BLOCKS - 1)) % REGION_BLOCKS;
            counted.accesses += end - start + 1;
            for block in start as usize..=end as usize {
                counted.blocks[block / 64] |= 1 << (block % 64);
            }
            if self.counted.len() > self.regions_max {
                self.subtract_median();
            }
        }
    }

    #[cold]
    fn subtract_median(&mut self) {
        let mut counts: Vec<_> = self.counted.values().map(|counted| counted.accesses).collect();
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable(middle);
        self.undercount += *median;
        self.counted.retain(|_, counted| {
            counted.accesses = counted.accesses.saturating_sub(*median);
            counted.accesses > 0
        });
    }

    /// Returns the regions with the most accesses, and how many accesses each may miss.
    pub(super) fn hottest(&self) -> (Vec<Region>, u64) {
        let region = |(region, counted): (&u64, &RegionCount)| {
            let (disk, first_block) = split_key(region * REGION_BLOCKS);
            let blocks = counted.blocks.iter().map(|word| word.count_ones()).sum();
            Region { disk, first_block, accesses: counted.accesses, blocks }
        };
        let mut regions: Vec<_> = self.counted.iter().map(region).collect();
        regions.sort_unstable_by_key(|region| (Reverse(region.accesses), region.disk, region.first_block));
        regions.truncate(REGIONS_LISTED);
        (regions, self.undercount)
    }
}
