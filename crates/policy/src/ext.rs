//! Location of a file system's metadata blocks in a volume, by its ext2, ext3 or ext4 superblock.
//!
//! Source: our addition to Hystor (the paper's section on metadata blocks), whose authors considered it for
//! clients that tag nothing. The layout is that of the kernel's documentation of ext4 ("Data structures and
//! algorithms").
//!
//! The module finds the superblock and the group descriptors, each group's two bitmaps and its table of
//! inodes, which mkfs places once. It does not find directories, the blocks of extent trees, the journal, or
//! copies of superblocks. It trusts nothing on the volume: inconsistent values mean that there is no file
//! system, and the memory is bounded.

use weir_model::{BLOCK, Bytes};

/// The maximum number of ranges remembered: enough for a file system of 8 TB without flexible groups.
const RANGES_MAX: usize = 1 << 16;
/// The maximum bytes of group descriptors read: those of 128 TiB.
const DESCRIPTORS_MAX: u64 = 64 << 20;
/// The offset of the superblock.
const SUPERBLOCK_OFFSET: usize = 1024;
const MAGIC: u16 = 0xEF53;
/// The flag for descriptors that are not directly after the superblock: not supported.
const META_BG: u32 = 0x10;
/// The flag for descriptors that may be larger than 32 bytes, with upper halves of block numbers.
const WIDE_DESCRIPTORS: u32 = 0x80;

/// The layout of a file system's metadata, from its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The size of a file-system block in bytes.
    block: u64,
    /// The number of its blocks.
    blocks: u64,
    /// The block that contains the superblock.
    first: u64,
    groups: u64,
    /// The size of a descriptor in bytes.
    descriptor: u64,
    /// The number of blocks reserved for more descriptors.
    reserved: u64,
    /// The number of blocks in a group's table of inodes.
    table: u64,
    uuid: [u8; 16],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

impl Layout {
    /// Decodes it from a volume's first 4 KiB. `None` if there is no such file system, or one that does not
    /// fit a volume of that `size`.
    pub fn read(start: &[u8], size: Bytes) -> Option<Self> {
        let sb = start.get(SUPERBLOCK_OFFSET..)?;
        let number = |at| u32_at(sb, at).map(u64::from);
        let incompatible = u32_at(sb, 0x60)?;
        if u16_at(sb, 0x38)? != MAGIC || incompatible & META_BG != 0 {
            return None;
        }
        let wide = incompatible & WIDE_DESCRIPTORS != 0;
        let block = 1024u64.checked_shl(u32_at(sb, 0x18)?).filter(|block| (1024..=65_536).contains(block))?;
        let high = if wide { number(0x150)? } else { 0 };
        let (blocks, first) = (high << 32 | number(0x04)?, number(0x14)?);
        let (per_group, inodes) = (number(0x20)?, number(0x28)?);
        let inode = if number(0x4C)? == 0 { 128 } else { u64::from(u16_at(sb, 0x58)?) };
        let descriptor = if wide { u64::from(u16_at(sb, 0xFE)?) } else { 32 };
        let sound = blocks > first
            && first <= 1
            && blocks.checked_mul(block).is_some_and(|bytes| bytes <= size.0)
            && (1..=8 * block).contains(&per_group)
            && (1..=8 * block).contains(&inodes)
            && (128..=block).contains(&inode)
            && (32..=1024).contains(&descriptor)
            && descriptor.is_power_of_two();
        let groups = (blocks.saturating_sub(first)).div_ceil(per_group.max(1));
        let sound = sound && groups.saturating_mul(descriptor) <= DESCRIPTORS_MAX;
        sound.then_some(Self {
            block,
            blocks,
            first,
            groups,
            descriptor,
            reserved: u64::from(u16_at(sb, 0xCE)?),
            table: (inodes * inode).div_ceil(block),
            uuid: sb.get(0x68..)?.first_chunk().copied()?,
        })
    }

    /// Returns the start and end of the group descriptors in the volume, in bytes.
    pub fn descriptors(&self) -> (Bytes, Bytes) {
        let start = (self.first + 1) * self.block;
        (Bytes(start), Bytes((start + self.groups * self.descriptor).min(self.blocks * self.block)))
    }

    /// Adds the superblock and the descriptors to `found`.
    pub fn add_superblock_ranges(&self, found: &mut Ranges) {
        let end = self.descriptors().1.0.div_ceil(self.block) + self.reserved;
        self.add_blocks(found, 0, end);
    }

    /// Adds the metadata of the descriptors in these `bytes` of the volume, which begin at `at`. A descriptor
    /// that is cut off at either end is skipped.
    pub fn add_group_ranges(&self, at: Bytes, bytes: &[u8], found: &mut Ranges) {
        let (start, end) = self.descriptors();
        let wide = self.descriptor >= 64;
        let first = start.0.max(at.0).next_multiple_of(self.descriptor);
        for here in (first..end.0).step_by(self.descriptor as usize) {
            let within = usize::try_from(here - at.0).ok();
            let end = |from: usize| from.checked_add(self.descriptor as usize);
            let Some(one) = within.and_then(|from| bytes.get(from..end(from)?)) else { return };
            let number = |low: usize| {
                let high = if wide { u32_at(one, 0x20 + low).unwrap_or(0) } else { 0 };
                u64::from(high) << 32 | u64::from(u32_at(one, low).unwrap_or(0))
            };
            for (low, blocks) in [(0, 1), (4, 1), (8, self.table)] {
                self.add_blocks(found, number(low), blocks);
            }
        }
    }

    /// Adds file-system blocks; those beyond the end, or at block zero, are no metadata.
    fn add_blocks(&self, found: &mut Ranges, first: u64, count: u64) {
        if first < self.blocks && (first > 0 || count > 1) {
            let end = first.saturating_add(count).min(self.blocks);
            found.insert(first * self.block / BLOCK, (end * self.block).div_ceil(BLOCK));
        }
    }
}

/// Ranges of a volume's 4 KiB blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds the blocks from `first` to before `end`. Beyond a bound on separate ranges they are dropped.
    /// Cost: low if they are added in order, as descriptors list them.
    fn insert(&mut self, first: u64, end: u64) {
        let at = self.0.partition_point(|(_, e)| *e < first);
        let past = at + self.0[at..].partition_point(|(f, _)| *f <= end);
        if at == past {
            if self.0.len() < RANGES_MAX {
                self.0.insert(at, (first, end));
            }
            return;
        }
        let merged = (first.min(self.0[at].0), end.max(self.0[past - 1].1));
        self.0.splice(at..past, [merged]);
    }

    /// Whether all these blocks are in the ranges. Cost: a binary search.
    #[inline]
    pub fn contains(&self, first: u64, count: u64) -> bool {
        let at = self.0.partition_point(|(_, end)| *end <= first);
        self.0.get(at).is_some_and(|(from, end)| *from <= first && first + count <= *end)
    }

    /// Returns the bytes of all ranges.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.0.iter().map(|(first, end)| (end - first) * BLOCK).sum())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
