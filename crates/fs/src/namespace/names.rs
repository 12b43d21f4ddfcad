//! Names: lookup, creation, links and removal.

use super::FileSystem;
use crate::error::{Error, Result};
use crate::layout::dirent::Entry;
use crate::layout::inode::{Inode, Kind};
use crate::layout::{Ino, LINKS_MAX, NAME_BYTES_MAX, Time};
use crate::nvm::Memory;

/// Longest target of a symbolic link, in bytes.
const TARGET_BYTES_MAX: usize = 4095;

/// What to create.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// Type.
    pub kind: Kind,
    /// Permissions, with the set-id and sticky bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory has the set-group-id bit and so decides.
    pub gid: u32,
    /// Device number of a special file.
    pub device: u32,
    /// Target of a symbolic link.
    pub target: &'a [u8],
    /// Extended attributes, in their stored form: see `docs/reference/fs-format.md`.
    pub attributes: &'a [u8],
}

impl<M: Memory> FileSystem<M> {
    /// Finds a name in a directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NameTooLong`.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<(Ino, Inode)> {
        let directory = self.directory(parent)?;
        let entry = self.find(&directory, name)?.ok_or(Error::NotFound)?;
        let inode = self.inode(entry.ino)?;
        Ok((entry.ino, inode))
    }

    /// Creates a file of any type under a name that does not exist.
    ///
    /// # Errors
    /// `Exists`, `NoSpace`, `OverQuota`, `NotFound` if the directory was removed, `NotDirectory`,
    /// `NameTooLong`, `Invalid` for an empty name or target.
    pub fn create_file(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &New<'_>,
        now: Time,
    ) -> Result<(Ino, Inode)> {
        check_name(name)?;
        let is_link = new.kind == Kind::Symlink;
        if is_link && (new.target.is_empty() || new.target.len() > TARGET_BYTES_MAX) {
            return Err(if new.target.is_empty() { Error::Invalid } else { Error::NameTooLong });
        }
        self.transact(|fs| {
            let mut directory = fs.live_directory(parent)?;
            if fs.find(&directory, name)?.is_some() {
                return Err(Error::Exists);
            }
            let (ino, mut inode) = fs.create_inode(parent, &directory, new, now)?;
            if is_link {
                fs.map_for_write(ino, &mut inode, 0..new.target.len() as u64)?;
                let at = fs.segment(&inode, 0).at;
                let at = at.ok_or_else(|| Error::Damaged("a mapped page is a hole".to_owned()))?;
                fs.store.store_data(at, new.target)?;
                inode.size = new.target.len() as u64;
                fs.set_inode(ino, &inode);
            }
            if new.kind != Kind::Directory {
                inode.parent = parent;
                fs.set_inode(ino, &inode);
            }
            let entry = Entry { hash: 0, ino, kind: new.kind, name: name.to_vec() };
            fs.add_entry(parent, &mut directory, entry)?;
            if new.kind == Kind::Directory {
                directory.links += 1;
            }
            fs.touch_directory(parent, directory, now);
            Ok((ino, inode))
        })
    }

    pub(super) fn create_inode(
        &mut self,
        parent: Ino,
        directory: &Inode,
        new: &New<'_>,
        now: Time,
    ) -> Result<(Ino, Inode)> {
        let mut mode = new.kind.mode_bits() | new.permissions & 0o7777;
        let mut gid = new.gid;
        if directory.mode & libc::S_ISGID != 0 {
            gid = directory.gid;
            if new.kind == Kind::Directory {
                mode |= libc::S_ISGID;
            }
        }
        if directory.links >= LINKS_MAX && new.kind == Kind::Directory {
            return Err(Error::TooManyLinks);
        }
        let mut inode = Inode::new(mode, new.uid, gid, now, 0);
        inode.device = new.device;
        let reused = if new.kind == Kind::File { self.take_null_file(&mut inode)? } else { None };
        let ino = match reused {
            Some(ino) => ino,
            None => self.new_inode(inode)?,
        };
        if new.kind == Kind::Directory {
            self.new_directory(ino, parent)?;
        }
        let mut inode = self.raw_inode(ino)?;
        if !new.attributes.is_empty() {
            self.store_attributes(&mut inode, new.attributes)?;
            self.set_inode(ino, &inode);
        }
        Ok((ino, inode))
    }

    /// Returns a directory that still has a name (or is the root).
    pub(super) fn live_directory(&self, ino: Ino) -> Result<Inode> {
        let directory = self.directory(ino)?;
        if directory.links == 0 { Err(Error::NotFound) } else { Ok(directory) }
    }

    /// Stores a directory whose entries have changed.
    pub(super) fn touch_directory(&mut self, ino: Ino, mut directory: Inode, now: Time) {
        (directory.modified, directory.changed) = (now, now);
        self.set_inode(ino, &directory);
    }

    /// Gives a file one more name, or its first one.
    ///
    /// # Errors
    /// `Exists`, `NotPermitted` for directories, `TooManyLinks`, `NotFound` if the file has lost its last
    /// name or may not get a first one, and those of [`create_file`](Self::create_file).
    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8], now: Time) -> Result<Inode> {
        check_name(name)?;
        let linked = self.transact(|fs| {
            let mut inode = fs.inode(ino)?;
            let mut directory = fs.live_directory(parent)?;
            let kind = inode.kind().filter(|kind| *kind != Kind::Directory).ok_or(Error::NotPermitted)?;
            if fs.find(&directory, name)?.is_some() {
                return Err(Error::Exists);
            }
            if inode.links == 0 {
                fs.leave_orphans(ino, &mut inode)?;
            }
            if inode.links >= LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            inode.links += 1;
            inode.parent = parent;
            inode.changed = now;
            fs.set_inode(ino, &inode);
            fs.add_entry(parent, &mut directory, Entry { hash: 0, ino, kind, name: name.to_vec() })?;
            fs.touch_directory(parent, directory, now);
            Ok(inode)
        })?;
        self.linkable.remove(&ino);
        Ok(linked)
    }

    /// Removes a name of a file. A file without any name is freed once nothing refers to it.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `NotDirectory`, `NameTooLong`.
    pub fn unlink(&mut self, parent: Ino, name: &[u8], now: Time) -> Result<()> {
        let ino = self.transact(|fs| {
            let mut directory = fs.directory(parent)?;
            let entry = fs.find(&directory, name)?.ok_or(Error::NotFound)?;
            if entry.kind == Kind::Directory {
                return Err(Error::IsDirectory);
            }
            fs.remove_entry(&mut directory, name)?;
            fs.touch_directory(parent, directory, now);
            fs.drop_link(entry.ino, now)?;
            Ok(entry.ino)
        })?;
        self.reclaim_if_orphan(ino)
    }

    /// Removes one link of a file that is no directory.
    pub(super) fn drop_link(&mut self, ino: Ino, now: Time) -> Result<()> {
        let mut inode = self.inode(ino)?;
        inode.changed = now;
        inode.links = inode.links.saturating_sub(1);
        if inode.links == 0 {
            self.make_orphan(ino, &mut inode)?;
        }
        self.set_inode(ino, &inode);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotEmpty`, `NotFound`, `NotDirectory`, `NameTooLong`.
    pub fn remove_directory(&mut self, parent: Ino, name: &[u8], now: Time) -> Result<()> {
        let ino = self.transact(|fs| {
            let mut directory = fs.directory(parent)?;
            let entry = fs.find(&directory, name)?.ok_or(Error::NotFound)?;
            if entry.kind != Kind::Directory {
                return Err(Error::NotDirectory);
            }
            fs.remove_entry(&mut directory, name)?;
            directory.links = directory.links.saturating_sub(1);
            fs.touch_directory(parent, directory, now);
            fs.drop_directory(entry.ino, now)?;
            Ok(entry.ino)
        })?;
        self.reclaim_if_orphan(ino)
    }

    /// Makes an empty directory an orphan.
    pub(super) fn drop_directory(&mut self, ino: Ino, now: Time) -> Result<()> {
        let mut inode = self.directory(ino)?;
        if inode.entries > 0 {
            return Err(Error::NotEmpty);
        }
        inode.changed = now;
        self.make_orphan(ino, &mut inode)?;
        self.set_inode(ino, &inode);
        Ok(())
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` if it is none, `NotFound`.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        if inode.kind() != Some(Kind::Symlink) || inode.size > TARGET_BYTES_MAX as u64 {
            return Err(Error::Invalid);
        }
        let mut target = vec![0; inode.size as usize];
        self.read(ino, 0, &mut target)?;
        Ok(target)
    }
}

/// Rejects names that no directory may have.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        name if name.len() > NAME_BYTES_MAX => Err(Error::NameTooLong),
        b"" | b"." | b".." => Err(Error::Invalid),
        name if name.contains(&b'/') || name.contains(&0) => Err(Error::Invalid),
        _ => Ok(()),
    }
}
