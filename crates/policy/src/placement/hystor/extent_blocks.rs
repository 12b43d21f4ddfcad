//! Blocks of an extent.

use smallvec::SmallVec;
use weir_model::BlockRange;

/// Blocks of an extent, one bit each: a word for extents of up to 256 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExtentBlocks(SmallVec<[u64; 2]>);

impl ExtentBlocks {
    /// Returns the blocks of a sub-region's extent: of `count` blocks, a power of two, from `first` on.
    #[inline]
    pub(super) fn of_sub_region(bits: &[u64], first: u16, count: u16) -> Self {
        let word = usize::from(first / 64);
        if count < 64 {
            Self(SmallVec::from_slice(&[bits[word] >> (first % 64) & !(u64::MAX << count)]))
        } else {
            Self(SmallVec::from_slice(&bits[word..word + usize::from(count / 64)]))
        }
    }

    /// Returns the number of blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    /// Whether a block is one of them.
    pub(super) fn contains(&self, block: u16) -> bool {
        self.0.get(usize::from(block / 64)).is_some_and(|bits| bits >> (block % 64) & 1 != 0)
    }

    /// Iterates over the blocks in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..).zip(&self.0).flat_map(|(word, bits)| {
            let mut bits = *bits;
            std::iter::from_fn(move || {
                let block = (bits != 0).then(|| bits.trailing_zeros() as u16)?;
                bits &= bits - 1;
                Some(word * 64 + block)
            })
        })
    }

    /// Removes the first run of consecutive blocks and returns it; it is empty if there are none.
    pub(super) fn take_run(&mut self) -> BlockRange {
        let first = self.iter().next().unwrap_or(0);
        let count = self.iter().zip(first..).take_while(|(block, next)| block == next).count() as u16;
        (first..first + count).for_each(|block| self.remove(block));
        BlockRange { first, count }
    }

    /// Removes a block.
    pub(super) fn remove(&mut self, block: u16) {
        self.0[usize::from(block / 64)] &= !(1 << (block % 64));
    }

    /// Keeps the blocks for which this is true.
    pub(super) fn retain(&mut self, is_kept: impl Fn(u16) -> bool) {
        for (word, bits) in (0..).zip(&mut self.0) {
            let mut left = *bits;
            while left != 0 {
                let bit = left.trailing_zeros() as u16;
                left &= left - 1;
                if !is_kept(word * 64 + bit) {
                    *bits &= !(1 << bit);
                }
            }
        }
    }
}

impl FromIterator<u16> for ExtentBlocks {
    fn from_iter<I: IntoIterator<Item = u16>>(blocks: I) -> Self {
        let mut bits = SmallVec::new();
        for block in blocks {
            let word = usize::from(block / 64);
            if bits.len() <= word {
                bits.resize(word + 1, 0);
            }
            bits[word] |= 1 << (block % 64);
        }
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Bits against a set.
        #[test]
        fn blocks_are_those_of_a_set(
            blocks in prop::collection::btree_set(0_u16..1024, 0..200),
            shift in 2_u32..=10,
        ) {
            let count = 1 << shift;
            let mut bits = [0_u64; 16];
            blocks.iter().for_each(|block| bits[usize::from(block / 64)] |= 1 << (block % 64));
            for first in (0..1024).step_by(usize::from(count)) {
                let of_extent = blocks.range(first..first + count).map(|block| block - first);
                let mut set: BTreeSet<u16> = of_extent.collect();
                let mut found = ExtentBlocks::of_sub_region(&bits, first, count);
                prop_assert_eq!(found.len(), set.len());
                prop_assert!((0..count).all(|block| found.contains(block) == set.contains(&block)));
                prop_assert!(found.iter().eq(set.iter().copied()));
                let mut odd = found.clone();
                odd.retain(|block| block % 2 == 1);
                prop_assert!(odd.iter().eq(set.iter().copied().filter(|block| block % 2 == 1)));
                let collected: ExtentBlocks = set.iter().copied().collect();
                prop_assert!(collected.iter().eq(found.iter()));
                while let Some(from) = set.first().copied() {
                    let run = found.take_run();
                    prop_assert_eq!(run.first, from);
                    prop_assert!((run.first..run.end()).all(|block| set.remove(&block)));
                    prop_assert!(!set.contains(&run.end()), "the run is longer");
                }
                prop_assert!(found.is_empty());
                prop_assert_eq!(found.take_run().count, 0);
            }
        }
    }
}
