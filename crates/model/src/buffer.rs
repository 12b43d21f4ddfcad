//! The pool's buffer memory: data is named by handle and rarely touched.
//!
//! The memory is one contiguous, page-aligned region, split by a buddy allocator into power-of-two runs of 4
//! KiB blocks. The real driver's region is registered with its ring; the simulated world's is a vector.

use crate::{BLOCK, Bytes};

/// A run of bytes in the pool's buffer memory. It is a handle, not a pointer: its owner, by the rules of
/// [`Request`](crate::Request) and [`Io`](crate::Io), may use the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// The first byte, as an offset in the region.
    pub at: u64,
    /// The length in bytes.
    pub len: u32,
}

impl Buffer {
    /// The empty buffer.
    pub const EMPTY: Self = Self { at: 0, len: 0 };

    /// Returns the part from `start`, `len` bytes long, both in bytes.
    ///
    /// # Panics
    /// Panics if the part is not within the buffer.
    #[inline]
    #[must_use]
    pub fn part(self, start: u32, len: u32) -> Self {
        assert!(
            u64::from(start) + u64::from(len) <= u64::from(self.len),
            "part {start}+{len} of a {} byte buffer",
            self.len
        );
        Self { at: self.at + u64::from(start), len }
    }
}

/// The maximum size to which [`Memory::grow`] may grow buffer memory, as a multiple of its initial size.
pub const GROWTH_MAX: u64 = 4;

/// The pool's buffer memory, as the engine and the protocol servers use it.
pub trait Memory {
    /// Takes a buffer of at least one block. `len` is rounded up to whole blocks; the handle's length is
    /// that, although the run allocated is the next power of two. Returns `None` if no run that long is free:
    /// wait until a buffer is returned. The contents are arbitrary.
    fn take(&mut self, len: Bytes) -> Option<Buffer>;
    /// Returns a buffer exactly as it was taken.
    fn give(&mut self, buffer: Buffer);
    /// Reads a buffer the caller owns.
    fn bytes(&self, buffer: Buffer) -> &[u8];
    /// Changes a buffer the caller owns.
    fn bytes_mut(&mut self, buffer: Buffer) -> &mut [u8];
    /// Returns the number of free bytes.
    fn free(&self) -> Bytes;
    /// Replaces bytes that are taken and may never be returned: as many more become free, as long as the
    /// region has not grown to [`GROWTH_MAX`] times its initial size.
    fn grow(&mut self, bytes: Bytes);

    /// Copies between two buffers of equal length that the caller owns and that do not overlap.
    fn copy(&mut self, from: Buffer, to: Buffer);
}

/// A buddy allocator over blocks. The run freed last is allocated first, so that hot buffers stay in the
/// processor's cache.
///
/// `take` and `give` cost one step per level split or merged, at most [`Self::LEVELS`].
#[derive(Debug)]
pub struct Buddy {
    /// Free runs of `1 << level` blocks, by first block.
    free: [Vec<u32>; Self::LEVELS],
    /// For each block that starts a free run: its level and its position in `free`.
    state: Vec<Start>,
    free_blocks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The block is inside a run, or starts a taken one.
    NotFree,
    Free {
        level: u8,
        position: u32,
    },
}

impl Buddy {
    /// Runs of 1 to `1 << (LEVELS - 1)` blocks: 4 KiB to 4 MiB.
    pub const LEVELS: usize = 11;

    /// Creates an allocator with all `blocks` free.
    pub fn new(blocks: u32) -> Self {
        let mut buddy = Self {
            free: Default::default(),
            state: vec![Start::NotFree; blocks as usize],
            free_blocks: blocks,
        };
        buddy.free_from(0);
        // Low addresses come first.
        for level in 0..Self::LEVELS {
            buddy.free[level].reverse();
            for (position, &at) in buddy.free[level].iter().enumerate() {
                buddy.state[at as usize] = Start::Free { level: level as u8, position: position as u32 };
            }
        }
        buddy
    }

    /// Adds as many free blocks as these bytes need, up to [`GROWTH_MAX`] times the `initial_blocks` blocks.
    pub fn grow(&mut self, bytes: Bytes, initial_blocks: u32) {
        let old = self.blocks();
        let most = u64::from(initial_blocks) * GROWTH_MAX - u64::from(old);
        let more = bytes.0.div_ceil(BLOCK).min(most) as u32;
        self.state.resize((old + more) as usize, Start::NotFree);
        self.free_blocks += more;
        self.free_from(old);
    }

    /// Frees everything from this block on, in the longest possible runs.
    fn free_from(&mut self, first: u32) {
        let (mut at, end) = (first, self.state.len() as u32);
        while at < end {
            let fits = (end - at).ilog2();
            let aligned = if at == 0 { 31 } else { at.trailing_zeros() };
            let level = fits.min(aligned).min(Self::LEVELS as u32 - 1) as usize;
            self.push(at, level);
            at += 1 << level;
        }
    }

    /// Returns the number of blocks, free or not.
    pub fn blocks(&self) -> u32 {
        self.state.len() as u32
    }

    fn level(blocks: u32) -> usize {
        blocks.max(1).next_power_of_two().ilog2() as usize
    }

    fn push(&mut self, at: u32, level: usize) {
        self.state[at as usize] = Start::Free { level: level as u8, position: self.free[level].len() as u32 };
        self.free[level].push(at);
    }

    fn remove(&mut self, level: usize, position: u32) {
        let list = &mut self.free[level];
        let at = list.swap_remove(position as usize);
        self.state[at as usize] = Start::NotFree;
        if let Some(&moved) = list.get(position as usize) {
            self.state[moved as usize] = Start::Free { level: level as u8, position };
        }
    }

    /// Takes a free run of at least `blocks`. Returns its first block.
    pub fn take(&mut self, blocks: u32) -> Option<u32> {
        let wanted = Self::level(blocks);
        let mut level = (wanted..Self::LEVELS).find(|&l| !self.free[l].is_empty())?;
        let at = *self.free[level].last()?;
        self.remove(level, self.free[level].len() as u32 - 1);
        while level > wanted {
            level -= 1;
            self.push(at + (1 << level), level);
        }
        self.free_blocks -= 1 << wanted;
        Some(at)
    }

    /// Frees a run that was taken with the same number of blocks.
    ///
    /// # Panics
    /// Panics if the run is free already, even in part.
    pub fn give(&mut self, at: u32, blocks: u32) {
        let mut level = Self::level(blocks);
        let mut at = at;
        assert_eq!(self.state[at as usize], Start::NotFree, "buffer given back twice");
        self.free_blocks += 1 << level;
        while level + 1 < Self::LEVELS {
            let buddy = at ^ (1 << level);
            match self.state.get(buddy as usize) {
                Some(&Start::Free { level: l, position }) if usize::from(l) == level => {
                    self.remove(level, position);
                    at = at.min(buddy);
                    level += 1;
                }
                _ => break,
            }
        }
        self.push(at, level);
    }

    /// Returns the number of blocks in free runs.
    pub fn free_blocks(&self) -> u32 {
        self.free_blocks
    }
}

/// Buffer memory in a plain vector: for tests, benchmarks and the simulated world.
#[derive(Debug)]
pub struct HeapMemory {
    bytes: Vec<u8>,
    buddy: Buddy,
    /// The initial number of blocks.
    blocks: u32,
}

impl HeapMemory {
    /// Creates a region of `size`, rounded up to whole blocks.
    pub fn new(size: Bytes) -> Self {
        let blocks = size.0.div_ceil(BLOCK);
        let blocks = u32::try_from(blocks).expect("less than 16 TiB");
        Self { bytes: vec![0; as_bytes(blocks)], buddy: Buddy::new(blocks), blocks }
    }

    /// Returns how much it has [grown](Memory::grow) to replace buffers that may never be returned.
    pub fn grown(&self) -> Bytes {
        Bytes(u64::from(self.buddy.blocks() - self.blocks) * BLOCK)
    }

    /// Frees everything, whoever took it, and shrinks to the initial size; the bytes stay as they are.
    pub fn reset(&mut self) {
        self.bytes.truncate(as_bytes(self.blocks));
        self.buddy = Buddy::new(self.blocks);
    }
}

impl Memory for HeapMemory {
    fn take(&mut self, len: Bytes) -> Option<Buffer> {
        let blocks = len.0.div_ceil(BLOCK).max(1) as u32;
        let at = self.buddy.take(blocks)?;
        Some(Buffer { at: u64::from(at) * BLOCK, len: blocks * BLOCK as u32 })
    }
    fn give(&mut self, buffer: Buffer) {
        self.buddy.give((buffer.at / BLOCK) as u32, buffer.len / BLOCK as u32);
    }
    #[inline]
    fn bytes(&self, buffer: Buffer) -> &[u8] {
        &self.bytes[buffer.at as usize..][..buffer.len as usize]
    }
    #[inline]
    fn bytes_mut(&mut self, buffer: Buffer) -> &mut [u8] {
        &mut self.bytes[buffer.at as usize..][..buffer.len as usize]
    }
    fn free(&self) -> Bytes {
        Bytes(u64::from(self.buddy.free_blocks()) * BLOCK)
    }
    fn grow(&mut self, bytes: Bytes) {
        self.buddy.grow(bytes, self.blocks);
        self.bytes.resize(as_bytes(self.buddy.blocks()), 0);
    }
    fn copy(&mut self, from: Buffer, to: Buffer) {
        assert_eq!(from.len, to.len, "copy between buffers of different length");
        let (from, to, len) = (from.at as usize, to.at as usize, from.len as usize);
        self.bytes.copy_within(from..from + len, to);
    }
}

fn as_bytes(blocks: u32) -> usize {
    blocks as usize * BLOCK as usize
}

#[cfg(test)]
mod tests;
