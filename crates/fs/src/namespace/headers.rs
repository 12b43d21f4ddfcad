//! Headers: what containers tell about their files, for a rescue without the region.
//!
//! They are written in the background; what makes one old is noted until then.

use super::FileSystem;
use crate::error::Result;
use crate::layout::Ino;
use crate::layout::inode::{Form, Inode};
use crate::layout::tier::Container;
use crate::nvm::Memory;
use crate::tiers::Header;
use rustc_hash::FxHashMap;

/// Names in directories, by inode.
type Names = FxHashMap<Ino, FxHashMap<Ino, Vec<u8>>>;

impl<M: Memory> FileSystem<M> {
    /// Returns what a container tells about its file. The path is empty if a directory on it is large.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn header(&self, ino: Ino) -> Result<Header> {
        const ENTRIES_MAX: u64 = 4096;
        self.header_with(ino, &mut Names::default(), ENTRIES_MAX)
    }

    /// Returns what the containers of these files tell about them; each directory is read once.
    pub fn headers(&self, files: &[Ino]) -> Vec<(Container, Header)> {
        let mut names = Names::default();
        let mut headers = Vec::new();
        for ino in files {
            if let Ok(Inode { form: Form::Container(container), .. }) = self.raw_inode(*ino)
                && let Ok(header) = self.header_with(*ino, &mut names, u64::MAX)
            {
                headers.push((container, header));
            }
        }
        headers
    }

    fn header_with(&self, ino: Ino, names: &mut Names, entries_max: u64) -> Result<Header> {
        let inode = self.inode(ino)?;
        // With a list of accesses, the mode has the list's mask in place of what the group may do.
        let has_list = inode.attributes.is_some() && self.attribute(ino, super::ACCESS_LIST).is_ok();
        Ok(Header {
            region: self.superblock.uuid,
            ino: ino.0,
            generation: inode.generation,
            mode: if has_list { inode.mode & !0o070 } else { inode.mode },
            uid: inode.uid,
            gid: inode.gid,
            size: (!inode.is_passthrough).then_some(inode.size),
            modified: inode.modified,
            accessed: inode.accessed,
            path: self.path_of(ino, &inode, names, entries_max).unwrap_or_default(),
        })
    }

    /// Returns a path of a file, by its directory; `None` if that no longer has it, or a directory is too
    /// large.
    fn path_of(&self, ino: Ino, inode: &Inode, names: &mut Names, entries_max: u64) -> Option<Vec<u8>> {
        const DEPTH_MAX: usize = 1024;
        let (mut ino, mut parent, mut path) = (ino, inode.parent, Vec::new());
        for _ in 0..DEPTH_MAX {
            let directory = self.inode(parent).ok().filter(Inode::is_directory)?;
            if directory.entries > entries_max {
                return None;
            }
            let names = names.entry(parent).or_insert_with(|| {
                let entries = self.list(parent, 0, usize::MAX).unwrap_or_default();
                entries.into_iter().map(|entry| (entry.ino, entry.name)).collect()
            });
            let name = names.get(&ino)?;
            path = if path.is_empty() { name.clone() } else { [&name[..], b"/", &path].concat() };
            if parent == Ino::ROOT {
                return Some(path);
            }
            (ino, parent) = (parent, directory.parent);
        }
        None
    }

    /// Takes up to `max` files in containers whose headers are old.
    pub fn take_stale_headers(&mut self, max: usize) -> Vec<Ino> {
        std::iter::from_fn(|| self.tiers.stale.pop_first()).take(max).collect()
    }

    /// Returns whether headers are old.
    pub fn has_stale_headers(&self) -> bool {
        !self.tiers.stale.is_empty()
    }

    /// Notes that a directory was renamed.
    pub(super) fn note_renamed(&mut self, ino: Ino) {
        if !self.tiers.table.is_empty() {
            self.tiers.renamed.insert(ino);
        }
    }

    /// Takes a directory that was renamed, below which headers are old.
    pub fn take_renamed(&mut self) -> Option<Ino> {
        self.tiers.renamed.pop_first()
    }

    /// Notes which of these files have old headers because their paths have changed.
    pub fn note_moved(&mut self, files: &[Ino]) {
        for ino in files {
            if self.raw_inode(*ino).is_ok_and(|inode| matches!(inode.form, Form::Container(_))) {
                self.tiers.stale.insert(*ino);
            }
        }
    }
}
