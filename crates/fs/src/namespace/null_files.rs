//! Null files: removed files whose inode and run of pages the next new file takes over (SCMFS, section 3).
//!
//! They spare the allocation of an inode and of pages. When space runs short, they are the first to be freed.

use super::FileSystem;
use crate::error::{Error, Result};
use crate::layout::inode::{Form, Inode, Kind};
use crate::layout::{Ino, PAGE_BYTES};
use crate::nvm::Memory;

/// Largest run of a null file; a longer one is freed, as few new files need it.
const PAGES_MAX: u32 = 16;
/// Largest number of null files.
const COUNT_MAX: u32 = 1024;
/// Null files that one operation frees.
const FREED_MAX: usize = 32;

impl<M: Memory> FileSystem<M> {
    /// Sets whether removed files become null files, as they do by default. Those that exist stay.
    pub const fn set_keeps_null_files(&mut self, keeps: bool) {
        self.keeps_null_files = keeps;
    }

    /// Makes a removed file a null file, if it suits; its attributes are freed.
    pub(super) fn make_null_file(&mut self, ino: Ino, inode: &mut Inode) -> Result<bool> {
        let Form::Run { pages, .. } = inode.form else { return Ok(false) };
        let mut roots = self.roots();
        // A small region would lose a noticeable part of its space.
        let pages_max = self.geometry().size / PAGE_BYTES / 32;
        let suits = self.keeps_null_files
            && pages <= PAGES_MAX
            && roots.null_pages.saturating_add(pages.into()) <= pages_max;
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
