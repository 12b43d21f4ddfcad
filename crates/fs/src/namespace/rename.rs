//! Renaming, as one operation.

use super::FileSystem;
use super::names::check_name;
use crate::error::{Error, Result};
use crate::layout::dirent::Entry;
use crate::layout::inode::{Inode, Kind};
use crate::layout::{Ino, LINKS_MAX, Time};
use crate::nvm::Memory;

/// What a rename does if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameHow {
    /// It takes the place of the existing file.
    Replace,
    /// It fails (`RENAME_NOREPLACE`).
    NoReplace,
    /// It exchanges both (`RENAME_EXCHANGE`); the new name must exist.
    Exchange,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    parent: Ino,
    name: &'a [u8],
}

impl<M: Memory> FileSystem<M> {
    /// Renames `name` in `parent` to `new_name` in `new_parent`.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `IsDirectory`, `NotDirectory`; `Invalid` if a directory would
    /// become its own descendant; those of [`create_file`](Self::create_file).
    pub fn rename(
        &mut self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        how: RenameHow,
        now: Time,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        let (from, to) = (Place { parent, name }, Place { parent: new_parent, name: new_name });
        let replaced = self.transact(|fs| {
            let source = fs.find(&fs.directory(parent)?, name)?.ok_or(Error::NotFound)?;
            let target = fs.find(&fs.live_directory(new_parent)?, new_name)?;
            fs.check_ancestors(&source, new_parent)?;
            match (target, how) {
                (Some(_), RenameHow::NoReplace) => Err(Error::Exists),
                (None, RenameHow::Exchange) => Err(Error::NotFound),
                (Some(target), _) if target.ino == source.ino => Ok(None),
                (Some(target), RenameHow::Exchange) => {
                    fs.check_ancestors(&target, parent)?;
                    fs.exchange(from, &source, to, &target, now)?;
                    Ok(None)
                }
                (target, _) => {
                    fs.move_entry(from, &source, to, target.as_ref(), now)?;
                    Ok(target.map(|target| target.ino))
                }
            }
        })?;
        replaced.map_or(Ok(()), |ino| self.reclaim_if_orphan(ino))
    }

    /// Rejects a move of a directory into itself or a descendant.
    fn check_ancestors(&self, moved: &Entry, new_parent: Ino) -> Result<()> {
        let mut ancestor = new_parent;
        let mut left = self.inodes.count();
        while moved.kind == Kind::Directory && ancestor != Ino::ROOT {
            if ancestor == moved.ino {
                return Err(Error::Invalid);
            }
            let is_loop = || Error::Damaged(format!("directory {} is below itself", ancestor.0));
            left = left.checked_sub(1).ok_or_else(is_loop)?;
            ancestor = self.directory(ancestor)?.parent;
        }
        Ok(())
    }

    fn move_entry(
        &mut self,
        from: Place<'_>,
        source: &Entry,
        to: Place<'_>,
        target: Option<&Entry>,
        now: Time,
    ) -> Result<()> {
        let is_directory = source.kind == Kind::Directory;
        if let Some(target) = target {
            self.check_replaceable(source, target)?;
        }
        let mut directory = self.directory(from.parent)?;
        self.remove_entry(&mut directory, from.name)?;
        if is_directory {
            directory.links = directory.links.saturating_sub(1);
        }
        self.touch_directory(from.parent, directory, now);
        let mut directory = self.directory(to.parent)?;
        match target {
            Some(_) => self.replace_entry(&directory, to.name, source)?,
            None => {
                let entry = Entry { name: to.name.to_vec(), ..source.clone() };
                self.add_entry(to.parent, &mut directory, entry)?;
                if is_directory {
                    directory.links += 1;
                }
            }
        }
        if directory.links > LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        self.touch_directory(to.parent, directory, now);
        match target {
            Some(target) if is_directory => self.drop_directory(target.ino, now)?,
            Some(target) => self.drop_link(target.ino, now)?,
            None => {}
        }
        self.settle(source.ino, to.parent, now)
    }

    fn check_replaceable(&self, source: &Entry, target: &Entry) -> Result<()> {
        match (source.kind == Kind::Directory, target.kind == Kind::Directory) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (true, true) if self.directory(target.ino)?.entries > 0 => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    fn exchange(
        &mut self,
        from: Place<'_>,
        source: &Entry,
        to: Place<'_>,
        target: &Entry,
        now: Time,
    ) -> Result<()> {
        self.replace_entry(&self.directory(from.parent)?, from.name, target)?;
        self.replace_entry(&self.directory(to.parent)?, to.name, source)?;
        let subdirectories = |entry: &Entry| u32::from(entry.kind == Kind::Directory);
        for (place, gone, come) in [(from, source, target), (to, target, source)] {
            let mut directory = self.directory(place.parent)?;
            directory.links = directory.links.saturating_sub(subdirectories(gone)) + subdirectories(come);
            self.touch_directory(place.parent, directory, now);
        }
        self.settle(source.ino, to.parent, now)?;
        self.settle(target.ino, from.parent, now)
    }

    /// Notes the new parent of an inode that was moved.
    fn settle(&mut self, ino: Ino, parent: Ino, now: Time) -> Result<()> {
        let mut inode: Inode = self.inode(ino)?;
        inode.changed = now;
        inode.parent = parent;
        if inode.is_directory() {
            self.note_renamed(ino);
        }
        self.set_inode(ino, &inode);
        Ok(())
    }
}
