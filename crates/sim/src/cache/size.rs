//! Parsing of cache sizes, block sizes and shares.

use super::{BlockSize, BlockTrace};
use crate::units;
use std::fmt;
use weir_model::Bytes;

/// A cache size in the form the user gave it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Percentage of the blocks that a trace touches, rounded down.
    Percent(f64),
    /// Number of bytes; a remainder smaller than a block is unused.
    Bytes(Bytes),
    /// Number of blocks.
    Blocks(u32),
}

impl Size {
    /// Returns the size in blocks, at least one.
    pub fn of(self, trace: &BlockTrace) -> u32 {
        match self {
            Self::Percent(percent) => (f64::from(trace.blocks()) * percent / 100.0) as u32,
            Self::Bytes(bytes) => u32::try_from(bytes.0 / trace.block().bytes().0).unwrap_or(u32::MAX),
            Self::Blocks(blocks) => blocks,
        }
        .max(1)
    }

    /// Reports whether the size is valid for blocks of this size.
    pub fn fits(self, block: BlockSize) -> bool {
        match self {
            Self::Bytes(bytes) => (1..=u64::from(u32::MAX)).contains(&(bytes.0 / block.bytes().0)),
            Self::Percent(_) | Self::Blocks(_) => true,
        }
    }
}

impl fmt::Display for Size {
    /// Prints the size in the form that [`size`] parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => write!(f, "{}B", bytes.0),
            Self::Blocks(blocks) => write!(f, "{blocks}blk"),
        }
    }
}

/// Parses `10%`, `1GiB`, `26921blk`.
///
/// # Errors
/// Returns a description of the allowed forms.
pub fn size(text: &str) -> Result<Size, String> {
    let parsed = if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 1e6);
        percent.map(Size::Percent)
    } else if let Some(blocks) = text.strip_suffix("blk") {
        blocks.parse().ok().filter(|blocks| *blocks > 0).map(Size::Blocks)
    } else {
        units::size(text).ok().map(Size::Bytes)
    };
    parsed.ok_or_else(|| {
        "write a share of the trace's blocks, a size or a number of blocks: 10%, 1GiB, 26921blk".into()
    })
}

/// Parses `4KiB`.
///
/// # Errors
/// Returns a description of the allowed forms.
pub fn block_size(text: &str) -> Result<BlockSize, String> {
    let block = units::size(text).ok().and_then(BlockSize::new);
    block.ok_or_else(|| "write a power of two from 512B to 1GiB: 4KiB, 64KiB".into())
}

/// Parses `50%` as 0.5.
///
/// # Errors
/// Returns a description of the allowed forms.
pub fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
    percent
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .map(|percent: f64| percent / 100.0)
        .ok_or_else(|| "write a percentage above 0%, at most 100%".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shares_bytes_or_blocks() {
        assert_eq!(size("10%"), Ok(Size::Percent(10.0)));
        assert_eq!(size("1GiB"), Ok(Size::Bytes(Bytes::gib(1))));
        assert_eq!(size("26921blk"), Ok(Size::Blocks(26_921)));
        for same in ["12.5%", "4096B", "7blk"] {
            assert_eq!(size(same).map(|size| size.to_string()), Ok(same.into()));
        }
        for bad in ["", "0%", "-1%", "nan%", "1e9%", "0blk", "1.5blk", "blk", "0B", "10", "4EiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_of_blocks_are_powers_of_two() {
        assert_eq!(block_size("64KiB").map(|block| block.bytes()), Ok(Bytes::kib(64)));
        for bad in ["", "0", "4096", "256B", "3KiB", "2GiB"] {
            assert!(block_size(bad).is_err(), "{bad}");
        }
        let block = block_size("4KiB").expect("a size");
        let fits = |bytes| Size::Bytes(Bytes(bytes)).fits(block);
        assert_eq!((fits(4095), fits(4096), fits(1 << 43), fits(1 << 44)), (false, true, true, false));
    }

    #[test]
    fn shares_are_percentages_up_to_all() {
        assert_eq!((share("100%"), share("0.5%")), (Ok(1.0), Ok(0.005)));
        for bad in ["", "0%", "101%", "50", "x%"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
