//! Garbage: containers that no file has, because of a crash between their creation and the commit, or between
//! a commit and their removal.

use super::FileSystem;
use crate::layout::inode::{Form, INODE_BYTES, Inode};
use crate::layout::tier::Container;
use crate::layout::{BITMAP_SLOTS, Ino};
use crate::nvm::Memory;
use rustc_hash::FxHashSet;

/// A walk over all inodes, in steps between which the file system may change.
#[derive(Debug, Default)]
pub struct Scan {
    /// Index of the next chunk of inodes.
    next: usize,
    /// Containers of files.
    referenced: FxHashSet<Container>,
}

impl Scan {
    /// Returns whether a file has this container, as far as the walk has come.
    pub fn has(&self, container: Container) -> bool {
        self.referenced.contains(&container)
    }
}

impl<M: Memory> FileSystem<M> {
    /// Looks at the next inodes; returns whether there may be more.
    pub fn scan(&self, scan: &mut Scan) -> bool {
        let mut referenced = std::mem::take(&mut scan.referenced);
        let has_more = self.scan_with(scan, |ino, inode| match inode.form {
            Form::Container(container) => {
                referenced.insert(container);
                if inode.is_passthrough {
                    self.note_flagged(ino);
                }
            }
            _ if inode.mode & libc::S_IFMT == libc::S_IFREG => self.note_resident(ino, inode),
            _ => {}
        });
        scan.referenced = referenced;
        has_more
    }

    /// Calls `look` with the next inodes; returns whether there may be more.
    pub(crate) fn scan_with(&self, scan: &mut Scan, mut look: impl FnMut(Ino, &Inode)) -> bool {
        let Some(chunk) = self.inode_chunks().nth(scan.next) else { return false };
        let (geometry, index) = (self.geometry(), scan.next as u64);
        scan.next += 1;
        if !geometry.is_for_files(chunk) {
            return true;
        }
        let bitmap = self.inode_bitmap(chunk);
        for slot in BITMAP_SLOTS..geometry.chunk_inodes() {
            if bitmap[slot as usize / 8] & 1 << (slot % 8) == 0 {
                continue;
            }
            let bytes = self.store.bytes(geometry.chunk_at(chunk) + slot * INODE_BYTES);
            if let (inode, true) = Inode::decode_lenient(&bytes) {
                look(geometry.ino_of(index, slot), &inode);
            }
        }
        true
    }

    /// Removes a container that no file has, by a complete scan; returns whether it did. A container that was
    /// created since the mount, or that the next commit removes, stays.
    pub fn remove_garbage(&self, container: Container, scan: &Scan) -> bool {
        let (Some(then), Ok(now)) = (self.tiers().get(container.tier.0 as usize), self.load_tiers()) else {
            return false;
        };
        let is_new = (then.next..now[container.tier.0 as usize].next).contains(&container.number);
        let is_needed = is_new || scan.has(container) || self.tiers.obsolete.contains(&container);
        !is_needed && !self.read_only && self.tiers.port.remove(container).is_ok()
    }
}
