//! Chunk trees: which chunks a large file has.
//!
//! A page of a tree has 1024 entries of 32 bits. A leaf's entry is a chunk, perhaps marked as unwritten; an
//! entry above is the page below, as its number. 0 is a hole.

use super::FileSystem;
use crate::error::{Error, Result};
use crate::layout::chunk::{Purpose, Use};
use crate::layout::inode::{Form, Inode, TREE_BITS, UNWRITTEN};
use crate::layout::{Chunk, Ino, PAGE_BYTES, Page};
use crate::nvm::Memory;
use std::ops::Range;

const ENTRIES: u64 = 1 << TREE_BITS;

/// A chunk of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) chunk: Chunk,
    /// Reads as zeros: nothing has been written to it since it was allocated.
    pub(crate) is_unwritten: bool,
}

impl Mapped {
    pub(crate) const fn decode(entry: u32) -> Option<Self> {
        if entry == 0 {
            return None;
        }
        Some(Self { chunk: Chunk(entry & !UNWRITTEN), is_unwritten: entry & UNWRITTEN != 0 })
    }

    const fn encode(self) -> u32 {
        self.chunk.0 | if self.is_unwritten { UNWRITTEN } else { 0 }
    }
}

/// Returns the address of entry `slot` of a page of a tree.
const fn entry_at(page: Page, slot: u64) -> u64 {
    page.address() + slot * 4
}

/// Returns the number of chunks that a tree of this height can list.
const fn capacity(height: u32) -> u64 {
    1 << (height * TREE_BITS)
}

impl<M: Memory> FileSystem<M> {
    /// Returns the chunk with this index in the file; `None` if it is a hole.
    pub(crate) fn chunk_at(&self, inode: &Inode, index: u64) -> Option<Mapped> {
        let Form::Tree { root, height } = inode.form else { return None };
        if index >= capacity(height) {
            return None;
        }
        let mut page = root;
        for level in (1..height).rev() {
            let below = self.store.load_u32(entry_at(page, index >> (level * TREE_BITS) & (ENTRIES - 1)));
            page = Page(u64::from(below));
            // A page that the region does not have is damage, which a check reports; here it is a hole.
            if below == 0 || !self.is_possible(page, 1) {
                return None;
            }
        }
        self.decode(self.store.load_u32(entry_at(page, index & (ENTRIES - 1))))
    }

    fn decode(&self, entry: u32) -> Option<Mapped> {
        Mapped::decode(entry).filter(|mapped| self.geometry().is_for_files(mapped.chunk))
    }

    /// Returns the first chunk of the file with at least this index.
    pub(crate) fn next_chunk(&self, inode: &Inode, index: u64) -> Option<(u64, Mapped)> {
        let Form::Tree { root, height } = inode.form else { return None };
        self.next_below(root, height, index)
    }

    fn next_below(&self, page: Page, height: u32, index: u64) -> Option<(u64, Mapped)> {
        let span = capacity(height - 1);
        for slot in index / span..ENTRIES {
            let entry = self.store.load_u32(entry_at(page, slot));
            if entry == 0 {
                continue;
            }
            let base = slot * span;
            if height == 1 {
                match self.decode(entry) {
                    Some(mapped) => return Some((base, mapped)),
                    None => continue,
                }
            }
            if !self.is_possible(Page(u64::from(entry)), 1) {
                continue;
            }
            let below = self.next_below(Page(u64::from(entry)), height - 1, index.saturating_sub(base));
            if let Some((found, mapped)) = below {
                return Some((base + found, mapped));
            }
        }
        None
    }

    /// Sets the chunk with this index, which may have been a hole; adds pages to the tree as needed.
    pub(crate) fn set_chunk(&mut self, inode: &mut Inode, index: u64, mapped: Mapped) -> Result<()> {
        let (mut root, mut height) = match inode.form {
            Form::Tree { root, height } => (root, height),
            Form::Empty => (self.new_tree_page(inode)?, 1),
            Form::Run { .. } | Form::Container(_) => {
                return Err(Error::Damaged("a file without a tree has no chunks".to_owned()));
            }
        };
        while index >= capacity(height) {
            if height == 3 {
                return Err(Error::TooLarge);
            }
            let above = self.new_tree_page(inode)?;
            self.set_entry(above, 0, root)?;
            (root, height) = (above, height + 1);
        }
        inode.form = Form::Tree { root, height };
        let mut page = root;
        for level in (1..height).rev() {
            let slot = index >> (level * TREE_BITS) & (ENTRIES - 1);
            let below = self.store.load_u32(entry_at(page, slot));
            page = match below {
                0 => {
                    let new = self.new_tree_page(inode)?;
                    self.set_entry(page, slot, new)?;
                    new
                }
                number => self.tree_page(number)?,
            };
        }
        self.store.stage(entry_at(page, index & (ENTRIES - 1)), &mapped.encode().to_le_bytes());
        Ok(())
    }

    fn set_entry(&mut self, page: Page, slot: u64, below: Page) -> Result<()> {
        let number = u32::try_from(below.0).map_err(|_| Error::TooLarge)?;
        self.store.stage(entry_at(page, slot), &number.to_le_bytes());
        Ok(())
    }

    fn new_tree_page(&mut self, inode: &mut Inode) -> Result<Page> {
        let page = self.space.take_pages(&mut self.store, 1, Purpose::Metadata)?;
        self.store.zero_data(page.address(), PAGE_BYTES)?;
        inode.pages += 1;
        Ok(page)
    }

    /// Allocates the chunk with this index of a file.
    pub(crate) fn allocate_chunk(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        index: u64,
        is_unwritten: bool,
    ) -> Result<Mapped> {
        let chunk = self.space.take_chunk(&mut self.store, Use::Data, ino.0, index)?;
        let mapped = Mapped { chunk, is_unwritten };
        self.set_chunk(inode, index, mapped)?;
        inode.pages += self.geometry().chunk_pages();
        Ok(mapped)
    }

    /// Frees up to `max` chunks with indices in the range, and pages of the tree that then list nothing.
    /// Returns whether none is left in the range. A tree without any chunk is freed.
    pub(super) fn free_chunks(&mut self, inode: &mut Inode, range: Range<u64>, max: u32) -> Result<bool> {
        let Form::Tree { root, height } = inode.form else { return Ok(true) };
        let mut left = max;
        let is_empty = self.free_below(inode, root, height, 0, &range, &mut left)?;
        if is_empty {
            self.free_tree_page(inode, root)?;
            inode.form = Form::Empty;
            return Ok(true);
        }
        Ok(left > 0)
    }

    /// Returns whether the page lists nothing any more.
    fn free_below(
        &mut self,
        inode: &mut Inode,
        page: Page,
        height: u32,
        base: u64,
        range: &Range<u64>,
        left: &mut u32,
    ) -> Result<bool> {
        let span = capacity(height - 1);
        let mut is_empty = true;
        for (slot, entry) in self.tree_entries(page) {
            let start = base + slot * span;
            let overlaps = start < range.end && start + span > range.start;
            if !overlaps || *left == 0 {
                is_empty = false;
                continue;
            }
            if height == 1 {
                self.space.free_chunk(&mut self.store, Chunk(entry & !UNWRITTEN))?;
                inode.forget_pages(self.geometry().chunk_pages())?;
                *left -= 1;
            } else {
                let below = self.tree_page(entry)?;
                if !self.free_below(inode, below, height - 1, start, range, left)? {
                    is_empty = false;
                    continue;
                }
                self.free_tree_page(inode, below)?;
            }
            self.store.stage(entry_at(page, slot), &0_u32.to_le_bytes());
        }
        Ok(is_empty)
    }

    fn free_tree_page(&mut self, inode: &mut Inode, page: Page) -> Result<()> {
        inode.forget_pages(1)?;
        self.space.free_pages_at(&mut self.store, page, 1)
    }

    fn tree_page(&self, number: u32) -> Result<Page> {
        let page = Page(number.into());
        let wrong = || Error::Damaged(format!("a tree has page {number}"));
        self.is_possible(page, 1).then_some(page).ok_or_else(wrong)
    }

    /// Returns the entries of a page of a tree that are no holes, with their slots.
    pub(crate) fn tree_entries(&self, page: Page) -> Vec<(u64, u32)> {
        let bytes = self.page_bytes_at(page);
        let entries = bytes.as_chunks::<4>().0.iter().map(|entry| u32::from_le_bytes(*entry));
        (0..).zip(entries).filter(|(_, entry)| *entry != 0).collect()
    }
}
