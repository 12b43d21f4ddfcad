//! Where the bytes of a file are in the region.

use super::FileSystem;
use crate::error::Result;
use crate::layout::inode::{Form, Inode};
use crate::layout::{Chunk, Ino, PAGE_BYTES};
use crate::nvm::Memory;

/// Consecutive bytes of a file that are consecutive in the region, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Number of bytes, as far as space is allocated; it may reach beyond the file's size.
    pub len: u64,
    /// Address of the first byte in the region.
    pub at: u64,
    /// Reads as zeros: nothing has been written there since it was allocated.
    pub is_unwritten: bool,
    /// Largest wear of the chunks: how often one of them was allocated.
    pub wear: u32,
}

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The inode.
    pub inode: Inode,
    /// Where the bytes are, by offset; what lies between is a hole.
    pub ranges: Vec<Located>,
    /// Ranges beyond those.
    pub more_ranges: u64,
}

impl<M: Memory> FileSystem<M> {
    /// Returns where the bytes of a file are, in at most `max` ranges. Reads the file's whole tree.
    ///
    /// # Errors
    /// `NotFound`; `Damaged` if the chunk table contradicts the format.
    pub fn locate(&self, ino: Ino, max: usize) -> Result<Location> {
        let inode = self.inode(ino)?;
        let mut location = Location { inode, ranges: Vec::new(), more_ranges: 0 };
        let geometry = self.geometry();
        match inode.form {
            Form::Empty | Form::Container(_) => {}
            Form::Run { first, pages } => {
                let (chunk, _) = geometry.chunk_of(first);
                let len = u64::from(pages) * PAGE_BYTES;
                let wear = self.space.entry(&self.store, chunk)?.wear;
                location.add(Located { offset: 0, len, at: first.address(), is_unwritten: false, wear }, max);
            }
            Form::Tree { .. } => {
                let mut pending: Option<Located> = None;
                let mut next = 0;
                while let Some((index, mapped)) = self.next_chunk(&inode, next) {
                    let found = self.located_chunk(index, mapped.chunk, mapped.is_unwritten)?;
                    pending = match pending {
                        Some(range) => match joined(range, found) {
                            Some(longer) => Some(longer),
                            None => {
                                location.add(range, max);
                                Some(found)
                            }
                        },
                        None => Some(found),
                    };
                    next = index + 1;
                }
                pending.into_iter().for_each(|range| location.add(range, max));
            }
        }
        Ok(location)
    }

    fn located_chunk(&self, index: u64, chunk: Chunk, is_unwritten: bool) -> Result<Located> {
        let geometry = self.geometry();
        let len = geometry.chunk_bytes;
        let wear = self.space.entry(&self.store, chunk)?.wear;
        Ok(Located { offset: index * len, len, at: geometry.chunk_at(chunk), is_unwritten, wear })
    }
}

impl Location {
    fn add(&mut self, range: Located, max: usize) {
        if self.ranges.len() < max { self.ranges.push(range) } else { self.more_ranges += 1 }
    }
}

/// Returns both ranges as one if the second continues the first, in the file and in the region.
fn joined(first: Located, second: Located) -> Option<Located> {
    let continues = first.offset + first.len == second.offset
        && first.at + first.len == second.at
        && first.is_unwritten == second.is_unwritten;
    continues.then(|| Located { len: first.len + second.len, wear: first.wear.max(second.wear), ..first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_that_continue_are_joined() {
        let first = Located { offset: 0, len: 10, at: 100, is_unwritten: false, wear: 1 };
        let second = Located { offset: 10, len: 5, at: 110, is_unwritten: false, wear: 3 };
        assert_eq!(joined(first, second), Some(Located { len: 15, wear: 3, ..first }));
        for other in [
            Located { offset: 11, ..second },
            Located { at: 111, ..second },
            Located { is_unwritten: true, ..second },
        ] {
            assert_eq!(joined(first, other), None, "{other:?}");
        }
    }
}
