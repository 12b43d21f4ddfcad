//! The blocks and the size of caches: types shared by eviction and admission.

/// A block that a cache may contain: its number among all blocks of a trace, densely from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u32);

impl Block {
    /// Returns the index in an array.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The size of a cache, and the number of blocks that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// The number of blocks: block numbers are below this. At most 2^32 - 2^16.
    pub blocks: u32,
    /// The capacity of the cache in blocks, at least 1.
    pub capacity: u32,
}

impl CacheSize {
    /// Returns a share of the capacity, rounded down.
    pub(crate) fn share(self, share: f64) -> u32 {
        (f64::from(self.capacity) * share) as u32
    }
}
