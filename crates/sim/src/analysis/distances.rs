//! Stack distances: how many other blocks were used since a block was used last. A cache of C blocks under LRU hits exactly the
//! accesses whose distance is below C, so that one pass gives every size; they are counted by [`Stack`](crate::cache::Stack).

/// How often each distance came, and how many accesses were the first of their blocks. Takes 8 bytes a block.
///
/// If one of 2^n blocks is looked at, each stands for so many: for as many accesses, and for as many blocks between two accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances {
    /// How often a distance came, in the units of [`Self::unit`].
    counts: Vec<u64>,
    first: u64,
    /// So many times the half of the blocks was given up.
    halvings: u32,
}

impl Distances {
    /// Counts an access, by what [`Stack::touch`](crate::cache::Stack::touch) says of it.
    pub fn add(&mut self, depth: Option<u32>) {
        let unit = self.unit();
        let Some(depth) = depth else {
            self.first += unit;
            return;
        };
        // What was used last has depth 1, and nothing was used since.
        let at = depth as usize - 1;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += unit;
    }

    /// From now on each block that is looked at stands for twice as many.
    pub(super) fn halve(&mut self) {
        self.halvings += 1;
        self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
    }

    /// The blocks that one block stands for.
    pub(super) fn unit(&self) -> u64 {
        1 << self.halvings
    }

    /// Of so many accesses.
    pub fn accesses(&self) -> u64 {
        self.first + self.counts.iter().sum::<u64>()
    }

    /// Distinct blocks.
    pub fn blocks(&self) -> u64 {
        self.first
    }

    /// Each distance and how often it came, ascending. Of distances that are not told apart the middle.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let middle = |at: u64| at * self.unit() + self.unit() / 2;
        (0..).zip(&self.counts).map(move |(at, count)| (middle(at), *count))
    }

    /// What caches of these sizes, in blocks, miss under LRU; sizes ascend.
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
