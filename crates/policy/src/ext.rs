//! Which blocks of a volume are a file system's metadata, by what an ext2, ext3 or ext4 superblock says.
//!
//! Source: our addition to Hystor (the paper's section on metadata blocks), whose authors considered it for
//! clients that tag nothing. The layout is that of the kernel's documentation of ext4 ("Data structures and algorithms").
//!
//! Found are the superblock and the group descriptors, each group's two bitmaps and its table of inodes: what lies where it does
//! from mkfs on. Not found are directories, the blocks of extent trees, the journal, and copies of superblocks. Nothing here is
//! trusted: what makes no sense is no file system, and there is a bound on what is remembered.

use weir_model::{BLOCK, Bytes};

/// Ranges remembered at most: a file system of 8 TB without flexible groups.
const RANGES_MAX: usize = 1 << 16;
/// Group descriptors looked at, at most, in bytes: those of 128 TiB.
const DESCRIPTORS_MAX: u64 = 64 << 20;
/// Where the superblock is.
const AT: usize = 1024;
const MAGIC: u16 = 0xEF53;
/// Descriptors elsewhere than behind the superblock: not understood.
const META_BG: u32 = 0x10;
/// Descriptors may be larger than 32 bytes, and their numbers of blocks have upper halves.
const WIDE: u32 = 0x80;

/// What a superblock says of where metadata is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a file-system block.
    block: u64,
    /// Blocks it has, all before its end.
    blocks: u64,
    /// The block the superblock is in.
    first: u64,
    groups: u64,
    /// Bytes of a descriptor.
    descriptor: u64,
    /// Blocks kept for more descriptors.
    reserved: u64,
    /// Blocks of a group's table of inodes.
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
    /// Reads it from a volume's first 4 KiB. `None` if there is no such file system, or one that does not fit a
    /// volume of that `size`.
    pub fn read(start: &[u8], size: Bytes) -> Option<Self> {
        let sb = start.get(AT..)?;
        let number = |at| u32_at(sb, at).map(u64::from);
        let incompatible = u32_at(sb, 0x60)?;
        if u16_at(sb, 0x38)? != MAGIC || incompatible & META_BG != 0 {
            return None;
        }
        let wide = incompatible & WIDE != 0;
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

    /// Where in the volume the group descriptors begin, and where they end, in bytes.
    pub fn descriptors(&self) -> (Bytes, Bytes) {
        let start = (self.first + 1) * self.block;
        (Bytes(start), Bytes((start + self.groups * self.descriptor).min(self.blocks * self.block)))
    }

    /// Notes the superblock and the descriptors.
    pub fn note_head(&self, found: &mut Ranges) {
        let end = self.descriptors().1.0.div_ceil(self.block) + self.reserved;
        self.note(found, 0, end);
    }

    /// Notes what the descriptors say that lie in these `bytes` of the volume, which begin at `at`. One that is cut off by the ends
    /// is left out.
    pub fn note_groups(&self, at: Bytes, bytes: &[u8], found: &mut Ranges) {
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
                self.note(found, number(low), blocks);
            }
        }
    }

    /// Notes file-system blocks; what begins beyond the end, or at none, is no metadata.
    fn note(&self, found: &mut Ranges, first: u64, count: u64) {
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
    /// Adds the blocks from `first` to before `end`. Beyond a bound on separate ranges they are forgotten. Cost: short where they
    /// come in order, as descriptors have them.
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

    /// Whether all these blocks are in it. Cost: a binary search.
    #[inline]
    pub fn contain(&self, first: u64, count: u64) -> bool {
        let at = self.0.partition_point(|(_, end)| *end <= first);
        self.0.get(at).is_some_and(|(from, end)| *from <= first && first + count <= *end)
    }

    /// How many bytes they are.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.0.iter().map(|(first, end)| (end - first) * BLOCK).sum())
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
