//! What caches hold, and how much of it: the words of eviction and of admission.

/// A block a cache may hold: its number among all blocks of a trace, densely from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u32);

impl Block {
    /// As an index of an array.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How large a cache is, and how many blocks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Blocks there are: their numbers are below this. At most 2^32 - 2^16.
    pub blocks: u32,
    /// Blocks the cache holds, at least 1.
    pub capacity: u32,
}

impl Room {
    /// A share of the capacity, rounded down.
    pub(crate) fn share(self, share: f64) -> u32 {
        (f64::from(self.capacity) * share) as u32
    }
}
