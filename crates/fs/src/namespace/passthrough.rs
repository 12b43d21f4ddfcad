//! Files in containers that the kernel reads and writes without the server (FUSE passthrough).
//!
//! What keeps them whole:
//!
//! - Before the kernel may write, the inode is flagged, durably. While it is, length and times of the
//!   container are those of the file, also after a crash.
//! - A file that the kernel has open this way, or that is mapped, stays in its container, and every change of
//!   its size happens there at once.
//! - The flag goes once nobody has the container open or mapped; then size and times are the inode's again.

use super::{FileSystem, lock};
use crate::error::{Error, Result};
use crate::layout::inode::{Form, Inode};
use crate::layout::tier::Container;
use crate::layout::{Ino, Time};
use crate::nvm::Memory;
use rustc_hash::FxHashSet;
use std::sync::Mutex;

/// Permissions that end with a write, which the server must see.
const PRIVILEGES: u32 = libc::S_ISUID | libc::S_ISGID;

/// Files that the kernel accesses without the server.
#[derive(Debug, Default)]
pub(super) struct Passthrough {
    /// Open now.
    open: Mutex<FxHashSet<Ino>>,
    /// Open now or some time ago, or flagged: programs may have their containers mapped.
    mapped: Mutex<FxHashSet<Ino>>,
    /// Flagged since the last commit.
    fresh: FxHashSet<Ino>,
}

impl Passthrough {
    pub(super) fn committed(&mut self) {
        self.fresh.clear();
    }

    fn is_open(&self, ino: Ino) -> bool {
        lock(&self.open).contains(&ino)
    }
}

impl<M: Memory> FileSystem<M> {
    /// Takes size and times of a flagged file from its container. If that is gone, the last known ones stay.
    pub(super) fn follow_container(&self, inode: &mut Inode) {
        let Form::Container(container) = inode.form else { return };
        let Ok(stat) = self.tiers.port.stat(container) else { return };
        inode.size = stat.len;
        inode.accessed = stat.accessed;
        if stat.modified != inode.modified {
            inode.modified = stat.modified;
            inode.changed = inode.changed.max(stat.modified);
        }
    }

    /// Returns the container through which the kernel may access a file that nobody has open; `None` if the
    /// server has to.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid`, `NotFound`.
    pub fn passthrough_container(&self, ino: Ino) -> Result<Option<Container>> {
        let inode = self.file(ino)?;
        let Form::Container(container) = inode.form else { return Ok(None) };
        // A file that leaves its tier does so as soon as nobody has it open this way.
        if !self.read_only && !self.tiers.is_active(container.tier) {
            return Ok(None);
        }
        if inode.mode & PRIVILEGES != 0 || inode.attributes.is_some() && self.has_capability(ino) {
            return Ok(None);
        }
        // Whoever reads what a container lacks must get an error.
        let len = self.tiers.port.len(container).unwrap_or(0);
        let is_usable = if self.read_only { len == inode.size } else { len >= inode.size };
        Ok(is_usable.then_some(container))
    }

    fn has_capability(&self, ino: Ino) -> bool {
        self.attribute(ino, b"security.capability").is_ok()
    }

    /// Notes that the kernel begins to access a file in a container without the server, or that it no longer
    /// has the file open. Until then the file does not move.
    pub fn set_passthrough(&self, ino: Ino, is_open: bool) {
        if is_open {
            lock(&self.tiers.passthrough.open).insert(ino);
            lock(&self.tiers.passthrough.mapped).insert(ino);
        } else {
            lock(&self.tiers.passthrough.open).remove(&ino);
        }
    }

    /// Notes a flagged file that a walk over all inodes has found.
    pub(super) fn note_flagged(&self, ino: Ino) {
        lock(&self.tiers.passthrough.mapped).insert(ino);
    }

    /// Returns the number of files that the kernel accesses without the server.
    pub fn passthrough_files(&self) -> u64 {
        lock(&self.tiers.passthrough.open).len() as u64
    }

    /// Returns whether the kernel may access a file without the server now, to read or also to write it.
    ///
    /// # Errors
    /// `Container` if the container cannot be used; `NotFound`.
    pub fn is_ready_for_passthrough(&self, ino: Ino, writes: bool) -> Result<bool> {
        let inode = self.file(ino)?;
        let Form::Container(container) = inode.form else { return Err(Error::Changing) };
        if inode.is_passthrough {
            return Ok(!self.tiers.passthrough.fresh.contains(&ino));
        }
        Ok(!writes && self.tiers.port.len(container).map_err(Error::Container)? == inode.size)
    }

    /// Prepares a container for access without the server. What this changes must be durable, by a
    /// [`sync`](Self::sync), before the kernel writes.
    ///
    /// # Errors
    /// `Container` if the container cannot be used; those of an operation.
    pub fn prepare_passthrough(&mut self, ino: Ino, writes: bool) -> Result<()> {
        let inode = self.file(ino)?;
        let Form::Container(container) = inode.form else { return Err(Error::Changing) };
        if inode.is_passthrough {
            return Ok(());
        }
        self.reject_short(&inode, container)?;
        if self.tiers.port.len(container).map_err(Error::Container)? > inode.size {
            // The kernel would read the bytes beyond the size. The last durable size may need them.
            self.commit()?;
            self.tiers.disturb(container);
            self.tiers.port.set_len(container, inode.size).map_err(Error::Container)?;
        }
        if !writes {
            return Ok(());
        }
        self.stage(|fs| {
            let mut inode = fs.file(ino)?;
            inode.is_passthrough = true;
            fs.set_container_times(&inode)?;
            fs.set_inode(ino, &inode);
            Ok(())
        })?;
        self.tiers.passthrough.fresh.insert(ino);
        self.note_flagged(ino);
        // The old header would have a rescue cut off what the kernel adds.
        if let Ok(mut header) = self.header(ino) {
            if let (true, Ok(Some(old))) = (header.path.is_empty(), self.tiers.port.header(container)) {
                header.path = old.path;
            }
            let _ = self.tiers.port.set_header(container, &header);
        }
        Ok(())
    }

    /// Gives the container of a flagged file the times of the inode.
    pub(super) fn set_container_times(&mut self, inode: &Inode) -> Result<()> {
        let (Form::Container(container), true) = (inode.form, inode.is_passthrough) else { return Ok(()) };
        self.change_container(container, |port| port.set_times(container, inode.accessed, inode.modified))
    }

    /// Flags a file whose size is about to change while the kernel has it open for reading without the
    /// server: the change has to happen in the container at once.
    pub(super) fn flag_if_open(&mut self, ino: Ino) -> Result<()> {
        if self.tiers.passthrough.is_open(ino) && !self.file(ino)?.is_passthrough {
            self.prepare_passthrough(ino, true)?;
            self.commit()?;
        }
        Ok(())
    }

    /// Rejects a move of a file whose container others may have open or mapped.
    pub(super) fn reject_in_use(&self, ino: Ino, inode: &Inode, container: Container) -> Result<()> {
        if self.tiers.passthrough.is_open(ino) {
            return Err(Error::InUse);
        }
        if !inode.is_passthrough && !lock(&self.tiers.passthrough.mapped).contains(&ino) {
            return Ok(());
        }
        let is_used = match self.tiers.port.is_used_by_others(container) {
            Ok(is_used) => is_used,
            // Mappings keep the kernel's reference to the inode.
            Err(_) => self.is_referenced(ino),
        };
        if is_used { Err(Error::InUse) } else { Ok(()) }
    }

    /// Returns the files that the kernel no longer has open without the server, but that may be mapped or
    /// flagged, and of flagged ones the container, which should be durable before
    /// [`end_passthrough`](Self::end_passthrough).
    pub fn unsettled(&self) -> Vec<(Ino, Option<Container>)> {
        let open = lock(&self.tiers.passthrough.open).clone();
        let mapped = lock(&self.tiers.passthrough.mapped);
        let flagged = |ino: Ino| match self.raw_inode(ino) {
            Ok(Inode { form: Form::Container(container), is_passthrough: true, .. }) => Some(container),
            _ => None,
        };
        mapped.difference(&open).map(|ino| (*ino, flagged(*ino))).collect()
    }

    /// Returns the containers that the kernel may have written without the server.
    pub fn flagged_containers(&self) -> Vec<Container> {
        let mapped = lock(&self.tiers.passthrough.mapped);
        let flagged = mapped.iter().filter_map(|ino| match self.raw_inode(*ino).ok()? {
            Inode { form: Form::Container(container), is_passthrough: true, .. } => Some(container),
            _ => None,
        });
        flagged.collect()
    }

    /// Ends the time in which a file's size and times are those of its container, if nobody has that open or
    /// mapped. Otherwise nothing happens, and it is to be tried again.
    ///
    /// # Errors
    /// Those of an operation.
    pub fn end_passthrough(&mut self, ino: Ino) -> Result<()> {
        let inode = match self.raw_inode(ino) {
            Ok(inode) if matches!(inode.form, Form::Container(_)) => inode,
            _ => {
                lock(&self.tiers.passthrough.mapped).remove(&ino);
                return Ok(());
            }
        };
        let Form::Container(container) = inode.form else { return Ok(()) };
        if self.reject_in_use(ino, &inode, container).is_err() {
            return Ok(());
        }
        if inode.is_passthrough {
            let max = self.geometry().file_bytes_max();
            match self.tiers.port.stat(container) {
                Ok(stat) if stat.len <= max => {}
                // Its size cannot be stored, or is unknown while its tier is gone.
                _ => return Ok(()),
            }
            self.stage(|fs| {
                let mut inode = fs.inode(ino)?;
                fs.change_container(container, |port| port.note_change(container))?;
                inode.is_passthrough = false;
                if inode.size == 0 {
                    fs.resize_container(ino, &mut inode, container, 0)?;
                }
                fs.set_inode(ino, &inode);
                Ok(())
            })?;
        }
        lock(&self.tiers.passthrough.mapped).remove(&ino);
        Ok(())
    }

    /// Notes that the kernel has no file open any more, and ends passthrough for all that are not mapped.
    ///
    /// # Errors
    /// Those of an operation.
    pub fn end_all_passthrough(&mut self) -> Result<()> {
        lock(&self.tiers.passthrough.open).clear();
        self.unsettled().into_iter().try_for_each(|(ino, _)| self.end_passthrough(ino))
    }

    /// Notes that a program has closed a file which the kernel accessed without the server: that was an
    /// access to its contents.
    pub fn note_passthrough(&self, ino: Ino, was_read: bool, now: Time) {
        let Ok(inode) = self.inode(ino) else { return };
        self.note_heat(ino, &inode, &(0..inode.size));
        if was_read {
            self.note_access(ino, now);
        }
    }
}

#[cfg(test)]
mod tests;
