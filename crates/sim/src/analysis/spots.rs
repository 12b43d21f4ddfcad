//! Hot spots: how much of what is asked for goes to how few blocks, and where they are.

use crate::cache::place;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How uneven blocks are asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Popularity {
    /// Shares of the accesses that go to shares of the blocks, the most popular ones first.
    pub shares: Vec<Share>,
    /// The regions with most accesses, most first; at most [`REGIONS`].
    pub regions: Vec<Region>,
}

/// The most popular blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Of the blocks; at least one.
    pub of_blocks: f64,
    /// Of the accesses.
    pub of_accesses: f64,
}

/// A region of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// The number of the disk, in the order of appearance.
    pub disk: u32,
    /// The first block, counted from the start of the disk.
    pub first_block: u64,
    /// Accesses to its blocks.
    pub accesses: u64,
    /// Distinct blocks of it that are accessed.
    pub blocks: u32,
}

/// As many regions are named.
pub(super) const REGIONS: usize = 10;
/// A region is of so many blocks: 1 MiB.
pub const REGION_BLOCKS: u64 = 256;

const SHARES: [f64; 4] = [0.001, 0.01, 0.1, 0.2];

/// Blocks by key, and the accesses to each in the same order.
pub(super) fn popularity(keys: &[u64], accesses: impl Iterator<Item = u32>) -> Popularity {
    let mut counts: Vec<u32> = Vec::with_capacity(keys.len());
    let mut regions: BTreeMap<(u32, u64), (u64, u32)> = BTreeMap::new();
    for (key, count) in keys.iter().zip(accesses) {
        let (disk, block) = place(*key);
        let region = regions.entry((disk, block / REGION_BLOCKS)).or_default();
        *region = (region.0 + u64::from(count), region.1 + 1);
        counts.push(count);
    }
    counts.sort_unstable_by_key(|count| Reverse(*count));
    let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let share = |of_blocks: f64| {
        let most = ((counts.len() as f64 * of_blocks) as usize).max(1).min(counts.len());
        let sum: u64 = counts[..most].iter().map(|count| u64::from(*count)).sum();
        Share { of_blocks, of_accesses: sum as f64 / all.max(1) as f64 }
    };
    let region = |((disk, number), (accesses, blocks)): ((u32, u64), (u64, u32))| Region {
        disk,
        first_block: number * REGION_BLOCKS,
        accesses,
        blocks,
    };
    let mut regions: Vec<_> = regions.into_iter().map(region).collect();
    regions.sort_by_key(|region| Reverse(region.accesses));
    regions.truncate(REGIONS);
    Popularity { shares: SHARES.map(share).into(), regions }
}
