//! What requests of the kernel need beyond one call of the file system.

use super::acl::{self, Inherited};
use super::opens::Opens;
use super::quotas::WriteFor;
use super::{Event, Shared, background, now};
use crate::error::{Error, Result};
use crate::layout::Ino;
use crate::layout::dirent::FIRST_POSITION;
use crate::layout::inode::{Form, Inode, Kind};
use crate::namespace::{Change, FileSystem, New, SetAttribute};
use crate::nvm::Memory;
use crate::report::{self, Command, Explanation, Status};
use fuser::{BackingId, INodeNo, Notifier, OpenFlags, Request};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

/// Entries of a directory that are read at a time.
const LISTED: usize = 128;
/// Attribute with a program's capabilities, which a change of its contents clears.
const CAPABILITY: &[u8] = b"security.capability";

thread_local! {
    /// What a thread read of a container last. It has the size of the largest request, at most 1 MiB.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Answers the kernel.
pub(super) struct Handler<M> {
    pub(super) shared: Shared<M>,
    /// Tells the kernel that attributes have changed; set once the mount exists.
    notifier: Arc<OnceLock<Notifier>>,
    place: Place,
    pub(super) opens: Opens,
    /// Dropped last: whoever hears of the end finds the file system unshared.
    _ended: TellEnd,
}

/// Tells the thread that waits for the end of the mount, when it is dropped.
#[derive(Debug)]
pub(super) struct TellEnd(pub(super) Sender<Event>);

impl Drop for TellEnd {
    fn drop(&mut self) {
        // Nobody receives this if the mount was not possible.
        let _ = self.0.send(Event::Ended);
    }
}

/// Where the file system is, for its status.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) region: PathBuf,
    pub(super) directory: PathBuf,
}

/// Returns the file system's form of the number of an inode.
pub(super) fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

impl<M: Memory> Handler<M> {
    pub(super) const fn new(
        shared: Shared<M>,
        notifier: Arc<OnceLock<Notifier>>,
        place: Place,
        opens: Opens,
        ended: TellEnd,
    ) -> Self {
        Self { shared, notifier, place, opens, _ended: ended }
    }

    pub(super) const fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the value of an extended attribute: one that is stored, or a report about the file or the file
    /// system.
    pub(super) fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let fs = self.shared.read();
        let report = if name == report::STATUS.as_bytes() {
            let mount = report::Mount {
                directory: self.place.directory.display().to_string(),
                pid: std::process::id(),
                read_only: fs.is_read_only(),
                commits: fs.store().commits(),
                failed: fs.store().has_failed(),
                passthrough: self.opens.is_passthrough(),
                passthrough_files: fs.passthrough_files(),
                passthrough_problem: self.opens.problem().filter(|_| !fs.tiers().is_empty()),
                omega: fs.omega(),
            };
            serde_json::to_vec(&Status::of(&fs, &self.place.region, fs.durability(), Some(mount)))
        } else if name == report::EXPLAIN.as_bytes() {
            serde_json::to_vec(&Explanation::of(&fs, ino)?)
        } else {
            return fs.attribute(ino, name);
        };
        report.map_err(|error| Error::Io(error.into()))
    }

    /// Opens a file. Returns what the kernel knows its container by, if it is to use that; `register` makes a
    /// container known to the kernel.
    pub(super) fn open_file(
        &self,
        request: &Request,
        ino: Ino,
        flags: OpenFlags,
        register: impl FnOnce(&File) -> io::Result<BackingId>,
    ) -> Result<Option<Arc<BackingId>>> {
        let truncates = flags.0 & libc::O_TRUNC != 0;
        let writes = truncates || flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let is_passthrough = self.opens.enter(&self.shared.read(), ino, !truncates)?;
        let prepared = if is_passthrough { self.prepare_passthrough(ino, writes) } else { Ok(()) };
        let emptied = prepared.and_then(|()| match truncates {
            true => {
                self.set_attributes(request, ino, Change { size: Some(0), ..Change::default() }).map(drop)
            }
            false => Ok(()),
        });
        let fs = self.shared.read();
        match emptied {
            Ok(()) => Ok(self.opens.backing(&fs, ino, register)),
            Err(error) => {
                self.opens.leave(&fs, ino);
                Err(error)
            }
        }
    }

    /// Prepares a container for the kernel's use: before it writes, that it may is durable.
    fn prepare_passthrough(&self, ino: Ino, writes: bool) -> Result<()> {
        if self.shared.read().is_ready_for_passthrough(ino, writes)? {
            return Ok(());
        }
        self.shared.write().prepare_passthrough(ino, writes)?;
        if writes {
            self.shared.sync()?;
            self.invalidate_attributes(ino);
        }
        Ok(())
    }

    /// Has the kernel ask for a file's attributes again.
    fn invalidate_attributes(&self, ino: Ino) {
        if let Some(notifier) = self.notifier.get() {
            // A negative offset: the attributes, not the contents. The kernel may not have the inode.
            let _ = notifier.inval_inode(INodeNo(ino.0), -1, 0);
        }
    }

    /// Notes that the kernel has closed a file.
    pub(super) fn close_file(&self, ino: Ino) {
        let fs = self.shared.read();
        if let Some(was_read) = self.opens.leave(&fs, ino) {
            fs.note_passthrough(ino, was_read, now());
        }
    }

    /// Makes a file, and all changes of the file system, durable.
    pub(super) fn sync_file(&self, ino: Ino) -> Result<()> {
        let (containers, inode) = {
            let fs = self.shared.read();
            (fs.containers(), fs.inode(ino)?)
        };
        if let (Form::Container(container), true) = (inode.form, inode.is_passthrough) {
            containers.sync_written_by_others(container).map_err(Error::Container)?;
        }
        self.shared.sync()
    }

    /// Reads bytes of a file and has them answered. Those in the region are not copied, so that changes wait
    /// until they are answered. A read of a container, which may wait for a disk, holds up none.
    pub(super) fn read<R>(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        answer: impl FnOnce(Result<&[u8]>) -> R,
    ) -> R {
        let fs = self.shared.read();
        fs.note_access(ino, now());
        let (container, len) = match fs.container_to_read(ino, offset, len) {
            Ok(Some(found)) => found,
            Ok(None) => match fs.view(ino, offset, len) {
                Ok(view) => return answer(Ok(&view)),
                Err(error) => return answer(Err(error)),
            },
            Err(error) => return answer(Err(error)),
        };
        let containers = fs.containers();
        drop(fs);
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            let bytes = &mut buffer[..len];
            let read = match containers.read(container, offset, bytes) {
                Ok(read) if read == len => Ok(len),
                // The file may have moved or become shorter meanwhile; if not, this fails, too.
                _ => self.shared.read().read(ino, offset, bytes),
            };
            answer(read.map(|read| &buffer[..read]))
        })
    }

    /// Writes bytes to a file; returns how many. A write to a container, which may wait for a disk, holds up
    /// no other request.
    pub(super) fn write(
        &self,
        request: &Request,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        ends_privileges: bool,
    ) -> Result<usize> {
        // From a write that has begun to its end, nothing may return.
        if has_privileges(&self.shared.read(), ino, ends_privileges)? {
            self.end_privileges(&mut WriteFor::new(&self.shared, request), ino, ends_privileges)?;
        }
        let begun = self.shared.read().begin_container_write(ino, offset, bytes.len() as u64)?;
        let written = begun.map(|write| (write.write(bytes), write));
        let mut fs = WriteFor::new(&self.shared, request);
        match written {
            Some((written, write)) => fs.finish_container_write(&write, written, bytes, now()),
            None => fs.write(ino, offset, bytes, now()),
        }
    }

    /// Carries out a command on a file.
    pub(super) fn command(&self, ino: Ino, command: Command) -> Result<()> {
        let set_pinned = |is_pinned| self.shared.write().pin(ino, is_pinned, now());
        let (has_tiers, inode) = {
            let fs = self.shared.read();
            (!fs.tiers().is_empty(), fs.inode(ino)?)
        };
        match (inode.kind(), command) {
            _ if !has_tiers => return Err(Error::NoSuchOffset),
            (Some(Kind::Directory), _) => return Err(Error::IsDirectory),
            (Some(Kind::File), Command::Evict) if matches!(inode.form, Form::Container(_)) => {}
            (Some(Kind::File), Command::Evict) => self.evict(ino, inode.size)?,
            (Some(Kind::File), Command::Promote) => background::promote(&self.shared, ino)?,
            (Some(Kind::File), Command::Pin) => {
                set_pinned(true)?;
                background::promote(&self.shared, ino).inspect_err(|_| drop(set_pinned(inode.is_pinned)))?;
            }
            (Some(Kind::File), Command::Unpin) => set_pinned(false)?,
            _ => return Err(Error::Invalid),
        }
        self.shared.sync()
    }

    /// Evicts a file; tries again a few times if programs change it.
    fn evict(&self, ino: Ino, size: u64) -> Result<()> {
        const ATTEMPTS: u32 = 3;
        let order = self.shared.read().targets(&[size]).remove(0);
        let mut evicted = Err(Error::Changing);
        for _ in 0..ATTEMPTS {
            if matches!(evicted, Err(Error::Changing)) {
                evicted = background::evict(&self.shared, ino, &order);
            }
        }
        evicted
    }

    /// Takes from a file what a change of its contents by another user takes away.
    pub(super) fn end_privileges(
        &self,
        fs: &mut FileSystem<M>,
        ino: Ino,
        also_permissions: bool,
    ) -> Result<()> {
        let inode = fs.inode(ino)?;
        if also_permissions && has_set_id(&inode) {
            let permissions = Some(without_privileges(inode.mode & 0o7777));
            fs.set_attributes(ino, &Change { permissions, ..Change::default() }, now())?;
            self.invalidate_attributes(ino);
        }
        if inode.attributes.is_some() { clear_capability(fs, ino) } else { Ok(()) }
    }

    /// Creates a file; it has one reference, the kernel's, which also has it open if `opens`.
    pub(super) fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, umask, device): (u32, u32, u32),
        target: &[u8],
        opens: bool,
    ) -> Result<(Ino, Inode)> {
        let kind = Kind::of_mode(mode).ok_or(Error::Invalid)?;
        let mut fs = WriteFor::new(&self.shared, request);
        let Inherited { permissions, attributes } = inherited(&fs, ino(parent), kind, (mode, umask))?;
        let (uid, gid) = (request.uid(), request.gid());
        let new = New { kind, permissions, uid, gid, device, target, attributes: &attributes };
        let (ino, inode) = fs.create_file(ino(parent), name.as_bytes(), &new, now())?;
        self.note_created(&fs, ino, opens)?;
        Ok((ino, inode))
    }

    /// Creates and opens a file without a name; it has one reference, the kernel's.
    pub(super) fn create_unnamed(
        &self,
        request: &Request,
        parent: INodeNo,
        (mode, umask): (u32, u32),
        is_linkable: bool,
    ) -> Result<(Ino, Inode)> {
        let kind = Kind::File;
        let mut fs = WriteFor::new(&self.shared, request);
        let Inherited { permissions, attributes } = inherited(&fs, ino(parent), kind, (mode, umask))?;
        let (uid, gid) = (request.uid(), request.gid());
        let new = New { kind, permissions, uid, gid, device: 0, target: &[], attributes: &attributes };
        let (ino, inode) = fs.create_unnamed(ino(parent), &new, is_linkable, now())?;
        self.note_created(&fs, ino, true)?;
        Ok((ino, inode))
    }

    /// Notes the kernel's reference to a new file, and that it has it open if it `opens` it.
    fn note_created(&self, fs: &FileSystem<M>, ino: Ino, opens: bool) -> Result<()> {
        fs.refer(ino);
        if opens && self.opens.is_asked() {
            self.opens.enter(fs, ino, false)?;
        }
        Ok(())
    }

    pub(super) fn set_attributes(&self, request: &Request, ino: Ino, mut change: Change) -> Result<Inode> {
        let mut fs = WriteFor::new(&self.shared, request);
        let inode = fs.inode(ino)?;
        let is_root = request.uid() == 0;
        let changes_owner = change.uid.is_some() || change.gid.is_some();
        if inode.kind() == Some(Kind::File) && (changes_owner || change.size.is_some() && !is_root) {
            let permissions = change.permissions.unwrap_or(inode.mode & 0o7777);
            change.permissions = Some(without_privileges(permissions));
        }
        if inode.attributes.is_some() && (changes_owner || change.size.is_some()) {
            clear_capability(&mut fs, ino)?;
        }
        if let (Some(permissions), Some(_)) = (change.permissions, inode.attributes)
            && let Ok(list) = fs.attribute(ino, acl::ACCESS)
            && let Some(list) = acl::with_permissions(&list, permissions)
        {
            fs.set_attribute(ino, acl::ACCESS, &list, SetAttribute::Always, now())?;
        }
        fs.set_attributes(ino, &change, now())
    }

    /// Sets the list that decides about accesses, and the permissions with it.
    pub(super) fn set_access_list(&self, request: &Request, ino: Ino, list: &[u8]) -> Result<()> {
        let (permissions, is_more) = acl::permissions(list).ok_or(Error::Invalid)?;
        let mut fs = self.shared.write();
        let inode = fs.inode(ino)?;
        let is_member = request.uid() == 0 || request.gid() == inode.gid;
        let kept = inode.mode & if is_member { 0o7000 } else { 0o5000 };
        if is_more {
            fs.set_attribute(ino, acl::ACCESS, list, SetAttribute::Always, now())?;
        } else if inode.attributes.is_some() {
            remove_attribute(&mut fs, ino, acl::ACCESS)?;
        }
        let change = Change { permissions: Some(kept | permissions), ..Change::default() };
        fs.set_attributes(ino, &change, now()).map(|_| ())
    }

    /// Calls `add` with each entry from `offset` on, with its offset, until it returns that there is no
    /// space.
    pub(super) fn list(
        fs: &FileSystem<M>,
        directory: Ino,
        offset: u64,
        mut add: impl FnMut(Ino, u64, Kind, &[u8]) -> bool,
    ) -> Result<()> {
        let parent = fs.inode(directory)?.parent;
        for (position, ino, name) in [(1, directory, &b"."[..]), (2, parent, b"..")] {
            if offset < position && add(ino, position, Kind::Directory, name) {
                return Ok(());
            }
        }
        let mut after = offset.max(FIRST_POSITION - 1);
        loop {
            let entries = fs.list(directory, after, LISTED)?;
            let Some(last) = entries.last() else { return Ok(()) };
            after = last.hash;
            for entry in &entries {
                if add(entry.ino, entry.hash, entry.kind, &entry.name) {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns what a new file in a directory inherits.
fn inherited<M: Memory>(
    fs: &FileSystem<M>,
    parent: Ino,
    kind: Kind,
    (mode, umask): (u32, u32),
) -> Result<Inherited> {
    let default = match fs.inode(parent)?.attributes {
        Some(_) if kind != Kind::Symlink => fs.attribute(parent, acl::DEFAULT).ok(),
        _ => None,
    };
    let umask = if kind == Kind::Symlink { 0 } else { umask };
    Ok(acl::inherit(default.as_deref(), mode & 0o7777, umask, kind == Kind::Directory))
}

/// Returns permissions without those that a change of contents or owner takes away.
const fn without_privileges(permissions: u32) -> u32 {
    let group = if permissions & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
    permissions & !(libc::S_ISUID | group)
}

const fn has_set_id(inode: &Inode) -> bool {
    let permissions = inode.mode & 0o7777;
    permissions != without_privileges(permissions)
}

/// Returns whether a change of a file's contents takes something from it.
fn has_privileges<M: Memory>(fs: &FileSystem<M>, ino: Ino, also_permissions: bool) -> Result<bool> {
    let inode = fs.inode(ino)?;
    Ok(also_permissions && has_set_id(&inode)
        || inode.attributes.is_some() && fs.attribute(ino, CAPABILITY).is_ok())
}

fn clear_capability<M: Memory>(fs: &mut FileSystem<M>, ino: Ino) -> Result<()> {
    remove_attribute(fs, ino, CAPABILITY)
}

/// Removes an attribute, if it is there.
fn remove_attribute<M: Memory>(fs: &mut FileSystem<M>, ino: Ino, name: &[u8]) -> Result<()> {
    match fs.remove_attribute(ino, name, now()) {
        Err(Error::NoAttribute) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests;
