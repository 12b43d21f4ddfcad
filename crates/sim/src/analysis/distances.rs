//! Stack distances: the number of other blocks used since a block's last use. An LRU cache of C blocks hits
//! exactly the accesses with a distance below C, so one pass covers all sizes; [`Stack`](crate::cache::Stack)
//! computes the distances.

/// A histogram of distances, and the number of first accesses. Memory: 8 bytes per block.
///
/// If one of 2^n blocks is tracked, each stands for that many: for as many accesses, and for as many blocks
/// between two accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances {
    /// Number of accesses by distance, in units of [`Self::unit`].
    counts: Vec<u64>,
    first: u64,
    /// Number of times that half of the blocks were dropped.
    halvings: u32,
}

impl Distances {
    /// Counts an access with the depth returned by [`Stack::touch`](crate::cache::Stack::touch).
    pub fn add(&mut self, depth: Option<u32>) {
        let unit = self.unit();
        let Some(depth) = depth else {
            self.first += unit;
            return;
        };
        // The block used last has depth 1 and distance 0.
        let at = depth as usize - 1;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += unit;
    }

    /// Makes each tracked block stand for twice as many from now on.
    pub(super) fn halve(&mut self) {
        self.halvings += 1;
        self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
    }

    /// Returns the number of blocks that one tracked block stands for.
    pub(super) fn unit(&self) -> u64 {
        1 << self.halvings
    }

    /// Returns the number of accesses.
    pub fn accesses(&self) -> u64 {
        self.first + self.counts.iter().sum::<u64>()
    }

    /// Returns the number of distinct blocks.
    pub fn blocks(&self) -> u64 {
        self.first
    }

    /// Returns each distance and its number of accesses, ascending; for a bin of several distances, the
    /// middle one.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let middle = |at: u64| at * self.unit() + self.unit() / 2;
        (0..).zip(&self.counts).map(move |(at, count)| (middle(at), *count))
    }

    /// Returns the LRU misses of caches of these sizes, in blocks; sizes ascend.
    pub fn misses(&self, sizes: &[u64]) -> Vec<u64> {
        let (mut missed, mut at) = (self.accesses(), 0);
        let small = |size: u64| (size.saturating_add(self.unit() / 2) / self.unit()).max(1);
        let misses = sizes.iter().map(|size| {
            let end = usize::try_from(small(*size)).unwrap_or(usize::MAX);
            let end = end.min(self.counts.len()).max(at);
            missed -= self.counts[at..end].iter().sum::<u64>();
            at = end;
            missed
        });
        misses.collect()
    }
}
