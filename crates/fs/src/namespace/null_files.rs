//! Null files: removed files whose inode and run of pages the next new file takes over (SCMFS, section 3).
//!
//! They spare the allocation of an inode and of pages. If few are left, a mount makes some ahead of need.
//! When space runs short, they are the first to be freed.

use super::FileSystem;
use crate::error::{Error, Result};
use crate::layout::chunk::Purpose;
use crate::layout::inode::{Form, Inode, Kind};
use crate::layout::superblock::Roots;
use crate::layout::{Ino, PAGE_BYTES, Time};
use crate::nvm::Memory;

/// Largest run of a null file; a longer one is freed, as few new files need it.
const PAGES_MAX: u32 = 16;
/// Largest number of null files.
const COUNT_MAX: u32 = 1024;
/// Null files that one operation frees.
const FREED_MAX: usize = 32;
/// Null files that a mount keeps ready.
const STOCK: u32 = 128;
/// Pages of one that is made ahead of need.
const STOCK_PAGES: u32 = 1;
/// Null files that one operation makes.
const MADE_MAX: u32 = 32;

impl<M: Memory> FileSystem<M> {
    /// Sets whether removed files become null files, as they do by default. Those that exist stay.
    pub const fn set_keeps_null_files(&mut self, keeps: bool) {
        self.keeps_null_files = keeps;
    }

    /// Returns whether so few null files are left that a mount should make some.
    pub fn lacks_null_files(&self) -> bool {
        self.keeps_null_files && !self.read_only && self.roots().null_count < STOCK / 2
    }

    /// Makes some null files ahead of need, as long as there are fewer than a mount keeps ready and space is
    /// plenty; returns whether to go on.
    ///
    /// # Errors
    /// Those of any change: `ReadOnly`, `Failed`, `Io`, `Damaged`.
    pub fn make_null_files(&mut self) -> Result<bool> {
        let usage = self.usage();
        if usage.free_pages < usage.pages / 4 {
            return Ok(false);
        }
        self.stage(|fs| {
            let before = fs.roots().null_count;
            let wanted = STOCK.saturating_sub(before).min(MADE_MAX);
            for _ in 0..wanted {
                if !fs.may_reserve(&fs.roots(), STOCK_PAGES) {
                    break;
                }
                match fs.new_null_file() {
                    Err(Error::NoSpace) => break,
                    made => made?,
                }
            }
            let count = fs.roots().null_count;
            Ok(count > before && count < STOCK)
        })
    }

    /// Makes a null file of nothing. With `NoSpace`, nothing has changed.
    fn new_null_file(&mut self) -> Result<()> {
        let mut inode = Inode { links: 0, ..Inode::new(0, 0, 0, Time::default(), 0) };
        let ino = self.new_inode(inode)?;
        let mut roots = self.roots();
        let first = match self.space.take_pages(&mut self.store, STOCK_PAGES, Purpose::Data) {
            Ok(first) => first,
            Err(error) => {
                self.free_inode(ino, &inode)?;
                return Err(error);
            }
        };
        inode.generation = self.raw_inode(ino)?.generation;
        inode.form = Form::Run { first, pages: STOCK_PAGES };
        (inode.pages, inode.next) = (STOCK_PAGES.into(), roots.null_files);
        self.set_inode(ino, &inode);
        self.fresh_null_files.insert(ino);
        roots.null_files = Some(ino);
        roots.null_count += 1;
        roots.null_pages += u64::from(STOCK_PAGES);
        self.set_roots(&roots);
        Ok(())
    }

    /// Makes a removed file a null file, if it suits; its attributes are freed.
    pub(super) fn make_null_file(&mut self, ino: Ino, inode: &mut Inode) -> Result<bool> {
        let Form::Run { pages, .. } = inode.form else { return Ok(false) };
        let mut roots = self.roots();
        let suits = self.keeps_null_files && pages <= PAGES_MAX && self.may_reserve(&roots, pages);
        if inode.kind() != Some(Kind::File) || roots.null_count >= COUNT_MAX || !suits {
            return Ok(false);
        }
        self.store_attributes(inode, &[])?;
        (inode.mode, inode.size, inode.next) = (0, 0, roots.null_files);
        self.set_inode(ino, inode);
        self.fresh_null_files.insert(ino);
        roots.null_files = Some(ino);
        roots.null_count += 1;
        roots.null_pages += u64::from(pages);
        self.set_roots(&roots);
        Ok(true)
    }

    /// Returns whether null files may have so many pages more: a small region would lose a noticeable part of
    /// its space.
    fn may_reserve(&self, roots: &Roots, pages: u32) -> bool {
        roots.null_pages.saturating_add(pages.into()) <= self.geometry().size / PAGE_BYTES / 32
    }

    /// Makes a null file, if there is one that a commit has made durable, the new file `inode`, which keeps
    /// its run.
    pub(super) fn take_null_file(&mut self, inode: &mut Inode) -> Result<Option<Ino>> {
        if self.roots().null_files.is_some_and(|ino| self.fresh_null_files.contains(&ino)) {
            return Ok(None);
        }
        let Some((ino, null)) = self.pop_null_file()? else { return Ok(None) };
        (inode.form, inode.pages) = (null.form, null.pages);
        inode.generation = null.generation.wrapping_add(1);
        self.set_inode(ino, inode);
        self.slack.note(ino);
        Ok(Some(ino))
    }

    fn pop_null_file(&mut self) -> Result<Option<(Ino, Inode)>> {
        let mut roots = self.roots();
        let Some(ino) = roots.null_files else {
            return match roots.null_count {
                0 => Ok(None),
                count => Err(Error::Damaged(format!("the list of null files lacks {count} of them"))),
            };
        };
        let null = self.raw_inode(ino)?;
        if null.mode != 0 || roots.null_count == 0 || roots.null_pages < null.pages {
            return Err(Error::Damaged(format!("inode {} is no null file, but is on their list", ino.0)));
        }
        roots.null_files = null.next;
        roots.null_count -= 1;
        roots.null_pages -= null.pages;
        self.set_roots(&roots);
        Ok(Some((ino, null)))
    }

    /// Frees all null files.
    pub(super) fn free_null_files(&mut self) -> Result<()> {
        while self.roots().null_count > 0 {
            self.stage(|fs| {
                for _ in 0..FREED_MAX {
                    let Some((ino, mut null)) = fs.pop_null_file()? else { break };
                    fs.free_all(&mut null)?;
                    fs.free_inode(ino, &null)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
