//! Extents and blocks: the division of volumes and devices.

use crate::{BLOCK, Bytes, DeviceId, VolumeId, VolumeOffset};
use std::fmt;

/// The number of an extent within a volume: extent *i* covers the bytes from `i * extent size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentIndex(pub u64);

/// The number of an extent-sized piece of a device's data area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceExtent(pub u32);

/// One extent of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentKey {
    /// The volume.
    pub volume: VolumeId,
    /// The extent in it.
    pub index: ExtentIndex,
}

/// The pool's extent size: a power of two from 64 KiB to 4 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtentSize {
    shift: u8,
}

impl ExtentSize {
    /// 64 KiB.
    pub const MIN: Bytes = Bytes::kib(64);
    /// 4 MiB.
    pub const MAX: Bytes = Bytes::mib(4);
    /// 128 KiB.
    pub const DEFAULT: Self = Self { shift: 17 };
    /// Blocks in the largest extent.
    pub const BLOCKS_MAX: usize = (Self::MAX.0 / BLOCK) as usize;

    /// `None` unless `bytes` is a power of two from [`Self::MIN`] to [`Self::MAX`].
    pub const fn new(bytes: Bytes) -> Option<Self> {
        if bytes.0.is_power_of_two() && bytes.0 >= Self::MIN.0 && bytes.0 <= Self::MAX.0 {
            Some(Self { shift: bytes.0.trailing_zeros() as u8 })
        } else {
            None
        }
    }
    /// Returns the size in bytes.
    #[inline]
    pub const fn bytes(self) -> Bytes {
        Bytes(1 << self.shift)
    }
    /// Returns the number of 4 KiB blocks in an extent: 16 to 1024.
    #[inline]
    pub const fn blocks(self) -> u16 {
        1 << (self.shift - 12)
    }
    /// Returns the extent that contains a byte.
    #[inline]
    pub const fn index(self, at: VolumeOffset) -> ExtentIndex {
        ExtentIndex(at.0 >> self.shift)
    }
    /// Returns the offset of a byte in its extent.
    #[inline]
    pub const fn within(self, at: VolumeOffset) -> u32 {
        (at.0 & (self.bytes().0 - 1)) as u32
    }
    /// Returns the number of extents of a volume of this size; the last one may extend beyond its end.
    #[inline]
    pub const fn count(self, size: Bytes) -> u64 {
        size.0.div_ceil(self.bytes().0)
    }
    /// Returns the offset of extent `index` of a volume.
    #[inline]
    pub const fn start(self, index: ExtentIndex) -> VolumeOffset {
        VolumeOffset(index.0 << self.shift)
    }
}

/// The kinds of places an extent can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlaceKind {
    /// A whole extent of a device.
    Whole,
    /// Slots of one block each, in shared device extents.
    Fine,
}

/// The name of one of an extent's places, which has at most one of each kind on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaceId {
    /// The place's device.
    pub device: DeviceId,
    /// Its kind.
    pub kind: PlaceKind,
}

/// Bytes within one extent: `len` bytes from `start`, sector-aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte, as an offset in the extent.
    pub start: u32,
    /// The number of bytes, at least 1.
    pub len: u32,
}

impl Span {
    /// Returns the end, one past the last byte.
    #[inline]
    pub const fn end(self) -> u32 {
        self.start + self.len
    }
    /// Returns the blocks touched, including partly covered ones.
    #[inline]
    pub const fn touched(self) -> BlockRange {
        let first = self.start / BLOCK as u32;
        let end = self.end().div_ceil(BLOCK as u32);
        BlockRange { first: first as u16, count: (end - first) as u16 }
    }
    /// Returns the blocks completely covered; may be empty.
    #[inline]
    pub const fn covered(self) -> BlockRange {
        let first = self.start.div_ceil(BLOCK as u32);
        let end = self.end() / BLOCK as u32;
        let count = end.saturating_sub(first);
        BlockRange { first: first as u16, count: count as u16 }
    }
}

/// A run of blocks within one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block, as an index in the extent.
    pub first: u16,
    /// The number of blocks; zero is an empty run.
    pub count: u16,
}

impl BlockRange {
    /// Returns the end, one past the last block.
    #[inline]
    pub const fn end(self) -> u16 {
        self.first + self.count
    }
    /// Whether the run is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }
    /// Whether the two runs share a block.
    #[inline]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first < other.end() && other.first < self.end()
    }
    /// Whether a block is in the run.
    #[inline]
    pub const fn contains(self, block: u16) -> bool {
        block >= self.first && block < self.end()
    }
}

impl fmt::Display for ExtentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} extent {}", self.volume.0, self.index.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_sizes_are_powers_of_two_in_range() {
        for (kib, good) in [(32, false), (64, true), (96, false), (128, true), (4096, true), (8192, false)] {
            assert_eq!(ExtentSize::new(Bytes::kib(kib)).is_some(), good, "{kib} KiB");
        }
        assert_eq!(ExtentSize::new(Bytes::mib(4)).map(ExtentSize::blocks), Some(1024));
    }

    #[test]
    fn spans_round_outwards_and_inwards() {
        let whole = |first, count| BlockRange { first, count };
        let span = Span { start: 512, len: 4096 };
        assert_eq!(span.touched(), whole(0, 2));
        assert!(span.covered().is_empty());
        let span = Span { start: 4096, len: 8192 };
        assert_eq!(span.touched(), whole(1, 2));
        assert_eq!(span.covered(), whole(1, 2));
        assert!(whole(1, 2).overlaps(whole(2, 1)));
        assert!(!whole(1, 2).overlaps(whole(3, 1)));
    }
}
