//! Membership of blocks in the cache, with one bit for each member.

use super::Block;

/// One byte per block.
#[derive(Debug)]
pub(super) struct ReferenceBits(Vec<Mark>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Out,
    Unused,
    Used,
}

impl ReferenceBits {
    pub(super) fn new(blocks: u32) -> Self {
        Self(vec![Mark::Out; blocks as usize])
    }

    /// Sets the bit of a block that is in the cache. Returns whether it is.
    #[inline]
    pub(super) fn hit(&mut self, block: Block) -> bool {
        let mark = &mut self.0[block.index()];
        let is_in = *mark != Mark::Out;
        if is_in {
            *mark = Mark::Used;
        }
        is_in
    }

    /// Inserts the block with its bit clear.
    #[inline]
    pub(super) fn insert(&mut self, block: Block) {
        self.0[block.index()] = Mark::Unused;
    }

    /// Removes the block. Returns whether it was in.
    #[inline]
    pub(super) fn remove(&mut self, block: Block) -> bool {
        std::mem::replace(&mut self.0[block.index()], Mark::Out) != Mark::Out
    }

    /// Clears the bit of a block that is in the cache. Returns whether it was set.
    #[inline]
    pub(super) fn clear(&mut self, block: Block) -> bool {
        std::mem::replace(&mut self.0[block.index()], Mark::Unused) == Mark::Used
    }
}
