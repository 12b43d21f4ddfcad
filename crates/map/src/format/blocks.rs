//! Sets of 4 KiB blocks within one extent.

use smallvec::SmallVec;
use weir_model::BlockRange;

/// A set of blocks of an extent, one bit each. Sets of the same pool have the same width, so they compare
/// equal exactly if they contain the same blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockSet {
    /// Block 0 is bit 0 of word 0. Bits past the extent's end are zero.
    words: SmallVec<[u64; 2]>,
}

impl BlockSet {
    /// Returns the empty set of an extent of `blocks`.
    #[inline]
    pub fn none(blocks: u16) -> Self {
        Self { words: SmallVec::from_elem(0, usize::from(blocks).div_ceil(64)) }
    }

    /// Returns the set of all blocks of an extent of `blocks`.
    pub fn all(blocks: u16) -> Self {
        let mut set = Self::none(blocks);
        set.insert(BlockRange { first: 0, count: blocks });
        set
    }

    /// Calls `f` for each word that a range touches, with the mask of the range's bits in it.
    #[inline]
    fn for_words(range: BlockRange, mut f: impl FnMut(usize, u64)) {
        let (mut at, end) = (u32::from(range.first), u32::from(range.end()));
        while at < end {
            let bit = at % 64;
            let count = (64 - bit).min(end - at);
            let mask = (u64::MAX >> (64 - count)) << bit;
            f((at / 64) as usize, mask);
            at += count;
        }
    }

    /// Adds the blocks.
    #[inline]
    pub fn insert(&mut self, range: BlockRange) {
        Self::for_words(range, |w, mask| self.words[w] |= mask);
    }

    /// Removes the blocks.
    #[inline]
    pub fn remove(&mut self, range: BlockRange) {
        Self::for_words(range, |w, mask| self.words[w] &= !mask);
    }

    /// Adds the blocks of another set.
    pub fn union(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(w, o)| *w |= o);
    }

    /// Removes the blocks that are not in another set.
    pub fn intersect(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(w, o)| *w &= o);
    }

    /// Removes the blocks that are in another set.
    pub fn subtract(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(w, o)| *w &= !o);
    }

    /// Returns how many blocks before this one are in the set.
    #[inline]
    pub fn rank(&self, block: u16) -> usize {
        let (word, bit) = (usize::from(block / 64), block % 64);
        let within = (self.words[word] & ((1 << bit) - 1)).count_ones();
        if word == 0 {
            return within as usize;
        }
        let before: u32 = self.words[..word].iter().map(|w| w.count_ones()).sum();
        (before + within) as usize
    }

    /// Returns an empty set of the same width.
    #[must_use]
    pub fn empty_like(&self) -> Self {
        Self { words: SmallVec::from_elem(0, self.words.len()) }
    }

    /// Returns the first run of blocks at or after `from`.
    pub fn next_run(&self, from: u16, end: u16) -> Option<BlockRange> {
        let first = (from..end).find(|b| self.contains(*b))?;
        Some(self.run(first, end).0)
    }

    /// Whether the block is in the set.
    #[inline]
    pub fn contains(&self, block: u16) -> bool {
        self.words[usize::from(block / 64)] >> (block % 64) & 1 == 1
    }

    /// Whether every block of the range is in the set.
    #[inline]
    pub fn contains_all(&self, range: BlockRange) -> bool {
        let mut all = true;
        Self::for_words(range, |w, mask| all &= self.words[w] & mask == mask);
        all
    }

    /// Whether some block of the range is in the set.
    #[inline]
    pub fn contains_any(&self, range: BlockRange) -> bool {
        let mut any = false;
        Self::for_words(range, |w, mask| any |= self.words[w] & mask != 0);
        any
    }

    /// Whether some block is in both sets.
    #[inline]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Returns the number of blocks.
    #[inline]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    /// Returns the number of blocks that are in none of the other sets.
    #[inline]
    pub fn count_outside<'a>(&self, others: impl Iterator<Item = &'a Self> + Clone) -> u32 {
        let in_others = |w: usize| others.clone().fold(0, |all, other| all | other.words[w]);
        self.words.iter().enumerate().map(|(w, word)| (word & !in_others(w)).count_ones()).sum()
    }

    /// Returns the number of blocks within the range.
    #[inline]
    pub fn count_in(&self, range: BlockRange) -> u32 {
        let mut count = 0;
        Self::for_words(range, |w, mask| count += (self.words[w] & mask).count_ones());
        count
    }

    /// Iterates over the blocks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.words.iter().enumerate().flat_map(|(w, &word)| {
            std::iter::successors(Some(word), |bits| Some(bits & bits.wrapping_sub(1)))
                .take_while(|bits| *bits != 0)
                .map(move |bits| (w * 64) as u16 + bits.trailing_zeros() as u16)
        })
    }

    /// Returns the longest run from `first`, at most to `end`, of blocks that are all in the set or all
    /// outside, and which of the two. The range must not be empty.
    pub fn run(&self, first: u16, end: u16) -> (BlockRange, bool) {
        let inside = self.contains(first);
        let past = (first + 1..end).find(|&b| self.contains(b) != inside).unwrap_or(end);
        (BlockRange { first, count: past - first }, inside)
    }

    /// Returns the size on disk of a bitmap of an extent of `blocks`, in bytes.
    pub const fn encoded_len(blocks: u16) -> usize {
        (blocks / 8) as usize
    }

    /// Appends the bitmap, block 0 in bit 0 of the first byte.
    pub fn encode(&self, blocks: u16, out: &mut Vec<u8>) {
        let end = out.len() + Self::encoded_len(blocks);
        self.words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.truncate(end);
    }

    /// Reads a bitmap of exactly [`Self::encoded_len`] bytes.
    pub fn decode(blocks: u16, bytes: &[u8]) -> Self {
        let mut set = Self::none(blocks);
        for (i, byte) in bytes.iter().enumerate().take(Self::encoded_len(blocks)) {
            set.words[i / 8] |= u64::from(*byte) << (8 * (i % 8));
        }
        set
    }

    /// Returns the first 32 blocks as a word, for extents that have no more.
    #[inline]
    pub(crate) fn low_u32(&self) -> u32 {
        self.words[0] as u32
    }

    /// Returns the set of the blocks of `low`, for extents of at most 32 blocks.
    #[inline]
    pub(crate) fn from_low_u32(low: u32) -> Self {
        Self { words: SmallVec::from_elem(u64::from(low), 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a naive twin: one flag per block.
        #[test]
        fn agrees_with_one_flag_per_block(
            log in 4u32..=10,
            steps in prop::collection::vec((any::<bool>(), 0u16..1024, 0u16..1024), 0..40),
        ) {
            let blocks = 1u16 << log;
            let mut set = BlockSet::none(blocks);
            let mut twin = vec![false; usize::from(blocks)];
            for (insert, a, b) in steps {
                let (first, end) = (a % blocks, (a % blocks + b % blocks + 1).min(blocks));
                let range = BlockRange { first, count: end - first };
                if insert { set.insert(range) } else { set.remove(range) }
                twin[usize::from(first)..usize::from(end)].fill(insert);
                let (run, inside) = set.run(first, blocks);
                prop_assert!(inside == insert && run.end() >= end);
                let rank = twin[..usize::from(first)].iter().filter(|t| **t).count();
                prop_assert_eq!(set.rank(first), rank);
                let within = twin[usize::from(first)..usize::from(end)].iter().filter(|t| **t).count();
                prop_assert_eq!(set.count_in(range) as usize, within);
                let next = (first..blocks).find(|b| twin[usize::from(*b)]);
                prop_assert_eq!(set.next_run(first, blocks).map(|r| r.first), next);
            }
            let expected: Vec<u16> = (0..blocks).filter(|b| twin[usize::from(*b)]).collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(set.count() as usize, expected.len());
            let (half, quarter) = (blocks / 2, blocks / 4);
            let (mut low, mut middle) = (set.empty_like(), set.empty_like());
            low.insert(BlockRange { first: 0, count: quarter });
            middle.insert(BlockRange { first: quarter / 2, count: half });
            let outside = |b: &&u16| **b >= quarter && !(quarter / 2..quarter / 2 + half).contains(*b);
            let count = set.count_outside([&low, &middle].into_iter()) as usize;
            prop_assert_eq!(count, expected.iter().filter(outside).count());
            prop_assert_eq!(set.count_outside([].into_iter()) as usize, expected.len());
            prop_assert_eq!(set.intersects(&middle), expected.iter().any(|b| middle.contains(*b)));
            let mut bytes = Vec::new();
            set.encode(blocks, &mut bytes);
            prop_assert_eq!(bytes.len(), BlockSet::encoded_len(blocks));
            prop_assert_eq!(BlockSet::decode(blocks, &bytes), set);
        }
    }
}
