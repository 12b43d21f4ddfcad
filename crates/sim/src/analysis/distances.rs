//! Stack distances: how many other blocks were used since a block was used last. A cache of C blocks under LRU hits exactly the
//! accesses whose distance is below C, so that one pass gives every size; they are counted by [`Stack`](crate::cache::Stack).

/// How often each distance came, and how many accesses were the first of their blocks. Takes 8 bytes a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances {
    counts: Vec<u64>,
    first: u64,
    accesses: u64,
}

impl Distances {
    /// Counts an access, by what [`Stack::touch`](crate::cache::Stack::touch) says of it.
    pub fn add(&mut self, depth: Option<u32>) {
        self.accesses += 1;
        let Some(depth) = depth else {
            self.first += 1;
            return;
        };
        // What was used last has depth 1, and nothing was used since.
        let at = depth as usize - 1;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
    }

    /// Of so many accesses.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Distinct blocks.
    pub fn blocks(&self) -> u64 {
        self.first
    }

    /// How often each distance came, from 0.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// What caches of these sizes, in blocks, miss under LRU; sizes ascend.
    pub fn misses(&self, sizes: &[u32]) -> Vec<u64> {
        let (mut hits, mut at) = (0, 0);
        let misses = sizes.iter().map(|size| {
            let end = (*size as usize).clamp(at, self.counts.len().max(at));
            hits += self.counts[at..end].iter().sum::<u64>();
            at = end;
            self.accesses - hits
        });
        misses.collect()
    }
}
