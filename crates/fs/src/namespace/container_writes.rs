//! Writes to files in containers without holding up the file system: a tier may take long to answer, or not
//! answer at all.
//!
//! The bytes go to the container while other operations go on; size and times change afterwards. If anything
//! else has changed the container, or the file has left it, the bytes are written once more, as an operation
//! of its own: nothing is acknowledged before it is where the file is.

use super::containers::Tiers;
use super::{FileSystem, lock};
use crate::error::{Error, Result};
use crate::layout::inode::{Form, Inode};
use crate::layout::tier::Container;
use crate::layout::{Ino, Time};
use crate::nvm::Memory;
use crate::tiers::Containers;
use rustc_hash::FxHashMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// A write to a container in progress. It ends with [`FileSystem::finish_container_write`].
#[derive(Debug)]
pub struct ContainerWrite {
    ino: Ino,
    container: Container,
    offset: u64,
    /// Size of the file when the write began: as much the container has at least.
    size: u64,
    containers: Arc<dyn Containers>,
}

impl ContainerWrite {
    /// Writes the bytes to the container. This may take as long as its tier likes.
    ///
    /// # Errors
    /// Returns the operating system's error; `UnexpectedEof` if the container lacks bytes of the file.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        // Once it is longer, what it lacks would read as zeros.
        if self.containers.len(self.container)? < self.size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.containers.write(self.container, self.offset, bytes)
    }
}

/// The containers that are being written, by how many writes, and whether anything else has changed them
/// since.
#[derive(Debug, Default)]
pub(super) struct Writing(FxHashMap<Container, (u32, bool)>);

impl Writing {
    /// Notes a change of a container beside writes to it.
    pub(super) fn disturb(&mut self, container: Container) {
        if let Some((_, is_disturbed)) = self.0.get_mut(&container) {
            *is_disturbed = true;
        }
    }

    fn begin(&mut self, container: Container) {
        self.0.entry(container).or_default().0 += 1;
    }

    /// Returns whether nothing else has changed the container.
    fn finish(&mut self, container: Container) -> bool {
        let Some((writes, is_disturbed)) = self.0.get_mut(&container) else { return false };
        *writes -= 1;
        let is_undisturbed = !*is_disturbed;
        if *writes == 0 {
            self.0.remove(&container);
        }
        is_undisturbed
    }
}

impl Tiers {
    /// Notes that a container is changed beside writes to it, or is about to be.
    pub(super) fn disturb(&self, container: Container) {
        lock(&self.writing).disturb(container);
    }
}

impl<M: Memory> FileSystem<M> {
    /// Begins a write of `len` bytes to a file in a container; `None` if it has to be done by
    /// [`write`](Self::write): the file is in the region, the write leaves a gap behind its end, or more than
    /// its size and data may change.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn begin_container_write(&self, ino: Ino, offset: u64, len: u64) -> Result<Option<ContainerWrite>> {
        let inode = self.file(ino)?;
        let Form::Container(container) = inode.form else { return Ok(None) };
        let end = offset.saturating_add(len);
        let is_plain = !self.read_only
            && !inode.is_passthrough
            && offset <= inode.size
            && end <= self.geometry().file_bytes_max()
            && (end <= inode.size || !self.has_byte_limit(&inode));
        if !is_plain {
            return Ok(None);
        }
        lock(&self.tiers.writing).begin(container);
        let (size, containers) = (inode.size, self.containers());
        Ok(Some(ContainerWrite { ino, container, offset, size, containers }))
    }

    /// Ends a write to a container, which is acknowledged after this: sets size and times, or writes the
    /// bytes once more if the container has changed otherwise. Returns how many bytes are written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish_container_write(
        &mut self,
        write: &ContainerWrite,
        written: io::Result<()>,
        bytes: &[u8],
        now: Time,
    ) -> Result<usize> {
        let ContainerWrite { ino, container, offset, .. } = *write;
        let is_undisturbed = lock(&self.tiers.writing).finish(container);
        let inode = self.file(ino)?;
        let is_same = is_undisturbed && inode.form == Form::Container(container) && !inode.is_passthrough;
        match written {
            Ok(()) if is_same => {}
            Err(error) if is_same && error.kind() != ErrorKind::StorageFull => {
                return Err(Error::Container(error));
            }
            _ => return self.write(ino, offset, bytes, now),
        }
        self.tiers.note_written(container);
        let end = offset + bytes.len() as u64;
        self.stage(|fs| {
            let inode = fs.file(ino)?;
            let inode = Inode { size: inode.size.max(end), modified: now, changed: now, ..inode };
            fs.set_inode(ino, &inode);
            fs.note_heat(ino, &inode, &(offset..end));
            Ok(())
        })?;
        Ok(bytes.len())
    }
}

#[cfg(test)]
mod tests;
