//! Files without a name, which may get their first one later (`O_TMPFILE`).
//!
//! Such a file is an orphan from the beginning: it is on the list of those, so a power loss frees it. That it
//! may get a name is not stored, because nothing refers to an orphan after a mount.

use super::{FileSystem, New};
use crate::error::{Error, Result};
use crate::layout::inode::{Inode, Kind};
use crate::layout::{Ino, Time};
use crate::nvm::Memory;

impl<M: Memory> FileSystem<M> {
    /// Creates a regular file without a name, with what a new file in the directory inherits. It lives as
    /// long as there are references: see [`refer`](Self::refer). If it `is_linkable`, [`link`](Self::link)
    /// gives it its first name.
    ///
    /// # Errors
    /// `NoSpace`, `OverQuota`, `NotFound` if the directory was removed, `NotDirectory`, `Invalid` for another
    /// type.
    pub fn create_unnamed(
        &mut self,
        directory: Ino,
        new: &New<'_>,
        is_linkable: bool,
        now: Time,
    ) -> Result<(Ino, Inode)> {
        if new.kind != Kind::File {
            return Err(Error::Invalid);
        }
        let (ino, inode) = self.transact(|fs| {
            let parent = fs.live_directory(directory)?;
            let (ino, mut inode) = fs.create_inode(directory, &parent, new, now)?;
            fs.make_orphan(ino, &mut inode)?;
            fs.set_inode(ino, &inode);
            Ok((ino, inode))
        })?;
        if is_linkable {
            self.linkable.insert(ino);
        }
        Ok((ino, inode))
    }

    /// Takes a file that is about to get its first name off the list of orphans.
    ///
    /// # Errors
    /// `NotFound` if the file may not get one: it had one, or was created to stay without.
    pub(super) fn leave_orphans(&mut self, ino: Ino, inode: &mut Inode) -> Result<()> {
        if !self.linkable.contains(&ino) {
            return Err(Error::NotFound);
        }
        self.remove_orphan(inode)
    }
}

#[cfg(test)]
mod tests;
