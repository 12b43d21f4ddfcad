//! Writes to a device that no flush has covered yet.

use weir_model::{BlockRange, ExtentKey};

/// The number of unflushed writes of one device that starts a commit.
pub(crate) const UNFLUSHED_MAX: usize = 65_536;

/// The meaning of a completed write for the durability of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteEffect {
    /// The blocks are in doubt if the next flush fails: no other place has this data for certain, or the map
    /// may still give up the location.
    Volatile,
    /// The write is durable: it settles earlier doubts about the blocks.
    Durable,
}

/// A write that has ended since the last flush of its device, successfully or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnflushedWrite {
    pub(crate) key: ExtentKey,
    pub(crate) range: BlockRange,
    pub(crate) effect: WriteEffect,
}

impl UnflushedWrite {
    /// Returns a record of blocks that no other place has for certain.
    pub(crate) const fn volatile(key: ExtentKey, range: BlockRange) -> Self {
        Self { key, range, effect: WriteEffect::Volatile }
    }
}
