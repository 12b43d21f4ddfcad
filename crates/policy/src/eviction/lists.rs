//! Doubly linked lists of blocks in one array.

use super::Block;

/// `N` lists in one array of links, 8 bytes per block; a block is in at most one of them.
///
/// Each list is a ring closed by an entry of its own, after those of the blocks, so that there are no special
/// cases.
#[derive(Debug)]
pub(super) struct Lists<const N: usize> {
    links: Vec<Link>,
    lens: [u32; N],
}

/// The neighbours of an entry. The closing entry is newer than the newest and older than the oldest.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

/// The link of a block that is in no list.
const UNLINKED: Link = Link { newer: u32::MAX, older: u32::MAX };

impl<const N: usize> Lists<N> {
    /// Creates empty lists for blocks with numbers below `blocks`.
    pub(super) fn new(blocks: u32) -> Self {
        let mut links = vec![UNLINKED; blocks as usize + N];
        for (at, link) in links.iter_mut().enumerate().skip(blocks as usize) {
            *link = Link { newer: at as u32, older: at as u32 };
        }
        Self { links, lens: [0; N] }
    }

    #[inline]
    pub(super) fn len(&self, list: usize) -> u32 {
        self.lens[list]
    }

    /// Whether a block is in any list.
    #[inline]
    pub(super) fn contains(&self, block: Block) -> bool {
        self.links[block.index()].newer != UNLINKED.newer
    }

    #[inline]
    pub(super) fn oldest(&self, list: usize) -> Option<Block> {
        let end = self.end(list);
        self.block_at(self.links[end].newer)
    }

    /// Returns the block inserted in its list next after this one.
    #[inline]
    pub(super) fn newer(&self, block: Block) -> Option<Block> {
        self.block_at(self.links[block.index()].newer)
    }

    /// Puts a block that is in no list at the newest end of one.
    #[inline]
    pub(super) fn push(&mut self, list: usize, block: Block) {
        self.lens[list] += 1;
        self.link(list, block);
    }

    /// Removes a block from the list it is in.
    #[inline]
    pub(super) fn remove(&mut self, list: usize, block: Block) {
        self.lens[list] -= 1;
        self.unlink(block);
        self.links[block.index()] = UNLINKED;
    }

    /// Makes a block of a list its newest.
    #[inline]
    pub(super) fn move_to_newest(&mut self, list: usize, block: Block) {
        self.unlink(block);
        self.link(list, block);
    }

    /// Moves a block from one list to the newest end of another.
    #[inline]
    pub(super) fn shift(&mut self, from: usize, to: usize, block: Block) {
        self.lens[from] -= 1;
        self.lens[to] += 1;
        self.move_to_newest(to, block);
    }

    #[inline]
    fn end(&self, list: usize) -> usize {
        self.links.len() - N + list
    }

    #[inline]
    fn block_at(&self, at: u32) -> Option<Block> {
        ((at as usize) < self.links.len() - N).then_some(Block(at))
    }

    #[inline]
    fn link(&mut self, list: usize, block: Block) {
        let end = self.end(list);
        let older = self.links[end].older;
        self.links[block.index()] = Link { newer: end as u32, older };
        self.links[older as usize].newer = block.0;
        self.links[end].older = block.0;
    }

    #[inline]
    fn unlink(&mut self, block: Block) {
        let Link { newer, older } = self.links[block.index()];
        self.links[newer as usize].older = older;
        self.links[older as usize].newer = newer;
    }
}
