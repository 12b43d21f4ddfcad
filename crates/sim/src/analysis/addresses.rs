//! Where requests begin: histograms over the addresses, by direction and sequentiality.

use super::timeline::REGIONS;
use schemars::JsonSchema;
use serde::Serialize;

/// Requests of the four kinds in a region: `[is_write][is_sequential]`.
type Kinds = [[u64; 2]; 2];

/// Counts the requests that begin in each of at most [`REGIONS`] regions, which double their width whenever
/// there are too many. Memory is constant.
#[derive(Debug, Default)]
pub(super) struct AddressCollector {
    /// Regions have 2^this blocks.
    region: u32,
    /// Number of the first region.
    first: u64,
    regions: Vec<Kinds>,
}

/// Requests by the address at which they begin. Each disk begins at block 0. Sequential is a request that
/// begins where any of the last 32 requests to the same disk ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Addresses {
    /// Blocks of a region.
    pub region_blocks: u64,
    /// First block of the first region.
    pub first_block: u64,
    /// Reads that are sequential, in each of at most 64 consecutive regions.
    pub sequential_reads: Vec<u64>,
    /// All other reads.
    pub other_reads: Vec<u64>,
    /// Writes that are sequential.
    pub sequential_writes: Vec<u64>,
    /// All other writes.
    pub other_writes: Vec<u64>,
}

impl AddressCollector {
    /// Adds a request that begins in this block.
    pub(super) fn add(&mut self, block: u64, is_write: bool, is_sequential: bool) {
        if self.regions.is_empty() {
            self.first = block >> self.region;
        }
        loop {
            let at = block >> self.region;
            let end = (self.first + self.regions.len() as u64).max(at + 1);
            if end - self.first.min(at) <= REGIONS {
                break;
            }
            self.widen();
        }
        let at = block >> self.region;
        let missing = self.first.saturating_sub(at) as usize;
        self.regions.splice(0..0, std::iter::repeat_n(Kinds::default(), missing));
        self.first = self.first.min(at);
        let index = (at - self.first) as usize;
        if index >= self.regions.len() {
            self.regions.resize(index + 1, Kinds::default());
        }
        self.regions[index][usize::from(is_write)][usize::from(is_sequential)] += 1;
    }

    fn widen(&mut self) {
        let first = self.first / 2;
        let mut wide: Vec<Kinds> = Vec::new();
        for (number, narrow) in (self.first..).zip(std::mem::take(&mut self.regions)) {
            let index = (number / 2 - first) as usize;
            wide.resize(index + 1, Kinds::default());
            for (sums, counts) in wide[index].iter_mut().flatten().zip(narrow.iter().flatten()) {
                *sums += counts;
            }
        }
        (self.region, self.first, self.regions) = (self.region + 1, first, wide);
    }

    /// Returns the histograms.
    pub(super) fn finish(self) -> Addresses {
        let of = |is_write: usize, is_sequential: usize| {
            self.regions.iter().map(|kinds| kinds[is_write][is_sequential]).collect()
        };
        Addresses {
            region_blocks: 1 << self.region,
            first_block: self.first << self.region,
            sequential_reads: of(0, 1),
            other_reads: of(0, 0),
            sequential_writes: of(1, 1),
            other_writes: of(1, 0),
        }
    }
}
