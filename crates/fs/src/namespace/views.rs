//! Contents of files where they are, without a copy (SCMFS, section 3: a read is `base + offset`).

use super::FileSystem;
use super::tree::Mapped;
use crate::error::{Error, Result};
use crate::layout::Ino;
use crate::layout::inode::{Form, Inode, Kind};
use crate::nvm::{ChunkPlace, Memory, WindowBytes, WindowRequest};
use std::ops::{Deref, Range};

/// Bytes of a file.
#[derive(Debug)]
pub enum View<'a> {
    /// In one piece of the region.
    Region(&'a [u8]),
    /// In several chunks, which are mapped one after the other.
    Window(WindowBytes<'a>),
    /// A copy: the bytes are in a container, or in a part of a sparse file that cannot be mapped.
    Copy(Vec<u8>),
}

impl Deref for View<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Region(bytes) => bytes,
            Self::Window(bytes) => bytes,
            Self::Copy(bytes) => bytes,
        }
    }
}

impl<M: Memory> FileSystem<M> {
    /// Returns bytes of a file, fewer than asked for at the end of the file. Those in the region are not
    /// copied, unless a hole is among the bytes of a small file.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn view(&self, ino: Ino, offset: u64, len: usize) -> Result<View<'_>> {
        let inode = self.readable(ino)?;
        let range = offset..offset.saturating_add(len as u64).min(inode.size).max(offset);
        if !range.is_empty() && !matches!(inode.form, Form::Container(_)) {
            let first = self.segment(&inode, offset);
            let view = match first.at {
                Some(at) if first.len >= range.end - offset => {
                    Some(View::Region(self.store.memory().bytes(at, (range.end - offset) as usize)))
                }
                _ => self.window(ino, &inode, &range).map(View::Window),
            };
            if let Some(view) = view {
                self.note_heat(ino, &inode, &range);
                return Ok(view);
            }
        }
        let mut bytes = vec![0; (range.end - offset) as usize];
        let read = self.read(ino, offset, &mut bytes)?;
        bytes.truncate(read);
        Ok(View::Copy(bytes))
    }

    /// Returns bytes of a file that has chunks as one slice, if they can be mapped so.
    fn window(&self, ino: Ino, inode: &Inode, bytes: &Range<u64>) -> Option<WindowBytes<'_>> {
        let Form::Tree { .. } = inode.form else { return None };
        let chunk_bytes = self.geometry().chunk_bytes;
        let chunks = bytes.start / chunk_bytes..bytes.end.div_ceil(chunk_bytes);
        let place = |index| match self.chunk_at(inode, index) {
            Some(Mapped { chunk, is_unwritten: false }) => ChunkPlace::At(self.geometry().chunk_at(chunk)),
            _ => ChunkPlace::Hole,
        };
        let places: Vec<ChunkPlace> = chunks.map(place).collect();
        self.store.memory().window(&WindowRequest {
            file: ino.0,
            file_bytes: inode.size,
            bytes: bytes.clone(),
            chunk_bytes,
            places: &places,
        })
    }

    /// Returns the inode of something with contents.
    pub(super) fn readable(&self, ino: Ino) -> Result<Inode> {
        let inode = self.inode(ino)?;
        match inode.kind() {
            Some(Kind::File | Kind::Symlink) => Ok(inode),
            Some(Kind::Directory) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }
}

#[cfg(test)]
mod tests;
