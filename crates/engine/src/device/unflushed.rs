//! What was written to a device and not flushed since.

use weir_model::{BlockRange, ExtentKey};

/// Writes of one device that are not durable, beyond which a commit begins by itself.
pub(crate) const UNFLUSHED_MAX: usize = 65_536;

/// How a write that completed stands to the blocks it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// The blocks are in doubt if the next flush fails: nothing else holds this, or the map may yet give up
    /// where it went.
    Data,
    /// It is durable: it settles what was in question before.
    Durable,
}

/// A write that ended since the last flush of its device, well or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unflushed {
    pub(crate) key: ExtentKey,
    pub(crate) range: BlockRange,
    pub(crate) wrote: Wrote,
}

impl Unflushed {
    /// Blocks that nothing else holds for certain.
    pub(crate) const fn data(key: ExtentKey, range: BlockRange) -> Self {
        Self { key, range, wrote: Wrote::Data }
    }
}
