//! The pool's buffer memory: data is named by handle and rarely touched.
//!
//! One contiguous, page-aligned region, cut by a buddy allocator into power-of-two runs of
//! 4 KiB blocks. The real driver's region is registered with its ring; the simulated world's is
//! a vector.

use crate::{BLOCK, Bytes};

/// A run of bytes in the pool's buffer memory. A handle, not a pointer: whoever holds it by the
/// rules of [`Request`](crate::Request) and [`Io`](crate::Io) may use the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// First byte, counted from the region's start.
    pub at: u64,
    /// Length in bytes.
    pub len: u32,
}

impl Buffer {
    /// No bytes.
    pub const EMPTY: Self = Self { at: 0, len: 0 };

    /// The part from `start`, `len` bytes long, both in bytes.
    ///
    /// # Panics
    /// If the part is not within the buffer.
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

/// How large buffer memory may become for what [`Memory::make_up`] is asked, in multiples of what it was at first.
pub const GROWTH: u64 = 4;

/// The pool's buffer memory, as the engine and the protocol servers use it.
pub trait Memory {
    /// Takes a buffer of at least one block. `len` is rounded up to whole blocks; the handle's
    /// length is that, though the run set aside is the next power of two. `None` when no run
    /// that long is free: wait until something is given back. Its contents are arbitrary.
    fn take(&mut self, len: Bytes) -> Option<Buffer>;
    /// Gives back a buffer exactly as it was taken.
    fn give(&mut self, buffer: Buffer);
    /// Reads a buffer the caller owns.
    fn bytes(&self, buffer: Buffer) -> &[u8];
    /// Changes a buffer the caller owns.
    fn bytes_mut(&mut self, buffer: Buffer) -> &mut [u8];
    /// Bytes not taken.
    fn free(&self) -> Bytes;
    /// Makes up for bytes that are taken and may never be given back: as many more are free from now on, as long
    /// as the region has not grown to [`GROWTH`] times what it was.
    fn make_up(&mut self, bytes: Bytes);

    /// Copies between two buffers of equal length that the caller owns and that do not overlap.
    fn copy(&mut self, from: Buffer, to: Buffer);
}

/// A buddy allocator over blocks: who has which run. Last given, first taken, so that hot
/// buffers stay in the processor's cache.
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
    /// Inside a run, or the start of a taken one.
    NotFree,
    Free {
        level: u8,
        position: u32,
    },
}

impl Buddy {
    /// Runs of 1 to `1 << (LEVELS - 1)` blocks: 4 KiB to 4 MiB.
    pub const LEVELS: usize = 11;

    /// All `blocks` free.
    pub fn new(blocks: u32) -> Self {
        let mut buddy = Self {
            free: Default::default(),
            state: vec![Start::NotFree; blocks as usize],
            free_blocks: blocks,
        };
        buddy.free_from(0);
        // Low addresses first.
        for level in 0..Self::LEVELS {
            buddy.free[level].reverse();
            for (position, &at) in buddy.free[level].iter().enumerate() {
                buddy.state[at as usize] = Start::Free { level: level as u8, position: position as u32 };
            }
        }
        buddy
    }

    /// As many more blocks, free, as these bytes take, up to [`GROWTH`] times as many as there were `at_first`.
    pub fn make_up(&mut self, bytes: Bytes, at_first: u32) {
        let old = self.blocks();
        let most = u64::from(at_first) * GROWTH - u64::from(old);
        let more = bytes.0.div_ceil(BLOCK).min(most) as u32;
        self.state.resize((old + more) as usize, Start::NotFree);
        self.free_blocks += more;
        self.free_from(old);
    }

    /// Everything from this block on is free, in runs as long as may be.
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

    /// Blocks, free or not.
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

    /// The first block of a free run of at least `blocks`, now taken.
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

    /// Gives back a run taken with the same number of blocks.
    ///
    /// # Panics
    /// If the run is (partly) free already.
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

    /// Blocks in free runs.
    pub fn free_blocks(&self) -> u32 {
        self.free_blocks
    }
}

/// Buffer memory in a plain vector: for tests, benchmarks and the simulated world.
#[derive(Debug)]
pub struct HeapMemory {
    bytes: Vec<u8>,
    buddy: Buddy,
    /// What it was at first.
    blocks: u32,
}

impl HeapMemory {
    /// A region of `size`, rounded up to whole blocks.
    pub fn new(size: Bytes) -> Self {
        let blocks = size.0.div_ceil(BLOCK);
        let blocks = u32::try_from(blocks).expect("less than 16 TiB");
        Self { bytes: vec![0; as_bytes(blocks)], buddy: Buddy::new(blocks), blocks }
    }

    /// How much it has [grown](Memory::make_up) to replace buffers that may never be given back.
    pub fn grown(&self) -> Bytes {
        Bytes(u64::from(self.buddy.blocks() - self.blocks) * BLOCK)
    }

    /// Everything is free again, whoever took it, and as much as at first; the bytes stay as they are.
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
    fn make_up(&mut self, bytes: Bytes) {
        self.buddy.make_up(bytes, self.blocks);
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
