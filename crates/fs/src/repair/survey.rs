//! Reads all inodes and directories of a file system that may be damaged.

use crate::layout::dirent;
use crate::layout::inode::{Form, Inode, Kind, TREE_BITS};
use crate::layout::tier::Container;
use crate::layout::{BITMAP_SLOTS, Chunk, Ino, PAGE_BYTES, Page};
use crate::namespace::FileSystem;
use crate::namespace::names::check_name;
use crate::namespace::tree::Mapped;
use crate::nvm::Memory;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// An inode that is in use, as far as its bytes or its bit say so, and what the repair decided about it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The bitmap says that it is in use.
    pub(super) is_marked: bool,
    /// The inode as decided; at first as it is stored.
    pub(super) inode: Inode,
    /// Its form is one that this version knows.
    pub(super) has_form: bool,
    /// Chunks of its tree.
    pub(super) chunks: BTreeMap<u64, Mapped>,
    /// Pages of its tree.
    pub(super) tree: Vec<Page>,
    /// Its tree has to be written again, to list `chunks`.
    pub(super) rewrite_tree: bool,
    /// Its run is shared and has to be copied.
    pub(super) copy_run: bool,
    /// Its attributes share their pages and have to be copied.
    pub(super) copy_attributes: bool,
    /// Names that it keeps.
    pub(super) names: u32,
}

/// A record of a directory.
#[derive(Clone, Debug)]
pub(super) struct Name {
    /// Where it is.
    pub(super) page: Page,
    /// Offset in the page.
    pub(super) at: usize,
    /// The inode.
    pub(super) ino: Ino,
    /// The type that the record has.
    pub(super) kind: Option<Kind>,
    pub(super) name: Vec<u8>,
    /// The directory keeps it.
    pub(super) is_kept: bool,
}

/// The names of a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) names: Vec<Name>,
    /// Pages of its chains beyond the first of each.
    pub(super) overflow: Vec<Page>,
    /// It has to be written again with the names that it keeps.
    pub(super) rewrite: bool,
    /// A part of it could not be read.
    pub(super) is_torn: bool,
    /// Number of buckets and size as they are stored.
    pub(super) stored: (u32, u64),
}

/// What a file system has.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) found: BTreeMap<Ino, Found>,
    pub(super) directories: BTreeMap<Ino, Directory>,
    /// Files that get a name in `lost+found`.
    pub(super) nameless: Vec<Ino>,
    /// Removed files that the next mount frees.
    pub(super) orphans: Vec<Ino>,
    /// Null files that stay.
    pub(super) null_files: Vec<Ino>,
    /// Inodes that become free.
    pub(super) erased: Vec<Ino>,
}

impl Survey {
    /// Reads all inodes.
    pub(super) fn read<M: Memory>(fs: &FileSystem<M>) -> Self {
        let geometry = fs.superblock().geometry;
        let mut survey = Self::default();
        for (index, chunk) in (0..).zip(fs.inode_chunks()) {
            let bitmap = fs.inode_bitmap(chunk);
            for slot in BITMAP_SLOTS..geometry.chunk_inodes() {
                let is_marked = bitmap[slot as usize / 8] & 1 << (slot % 8) != 0;
                let bytes = fs.store().bytes(geometry.chunk_at(chunk) + slot * 256);
                let (mut inode, mut has_form) = Inode::decode_lenient(&bytes);
                if let Form::Container(container) = inode.form
                    && container != Container::lost(geometry.ino_of(index, slot))
                    && fs
                        .tiers()
                        .get(container.tier.0 as usize)
                        .is_none_or(|tier| tier.is_removed() || container.number >= tier.next)
                {
                    (inode.form, has_form) = (Form::Empty, false);
                }
                if is_marked || inode.mode != 0 {
                    let found = Found::new(is_marked, inode, has_form);
                    survey.found.insert(geometry.ino_of(index, slot), found);
                }
            }
        }
        survey
    }
}

impl Found {
    pub(super) const fn new(is_marked: bool, inode: Inode, has_form: bool) -> Self {
        Self {
            is_marked,
            inode,
            has_form,
            chunks: BTreeMap::new(),
            tree: Vec::new(),
            rewrite_tree: false,
            copy_run: false,
            copy_attributes: false,
            names: 0,
        }
    }
}

/// Reads the chunks that a tree lists; `rewrite_tree` is set if some of it cannot be.
pub(super) fn read_tree<M: Memory>(fs: &FileSystem<M>, found: &mut Found) {
    let Form::Tree { root, height } = found.inode.form else { return };
    let mut seen = FxHashSet::default();
    let mut left = vec![(root, height, 0_u64)];
    while let Some((page, height, base)) = left.pop() {
        if !fs.is_possible(page, 1) || !seen.insert(page) {
            found.rewrite_tree = true;
            continue;
        }
        found.tree.push(page);
        for (slot, entry) in fs.tree_entries(page) {
            let index = base + (slot << ((height - 1) * TREE_BITS));
            if height > 1 {
                left.push((Page(entry.into()), height - 1, index));
            } else if let Some(mapped) = Mapped::decode(entry) {
                found.chunks.insert(index, mapped);
            }
        }
    }
}

/// Reads the names of a directory with this number of buckets.
pub(super) fn read_directory<M: Memory>(fs: &FileSystem<M>, found: &Found, buckets: u32) -> Directory {
    let mut directory = Directory::default();
    let mut seen = FxHashSet::default();
    let mut hashes = FxHashSet::default();
    for bucket in 0..buckets {
        let mut next = bucket_page(fs, found, bucket);
        let mut is_first = true;
        directory.is_torn |= next.is_none();
        while let Some(page) = next.take() {
            if !fs.is_possible(page, 1) || !seen.insert(page) {
                directory.is_torn = true;
                break;
            }
            let bytes = fs.store().bytes(page.address());
            let (records, is_whole) = dirent::sound_records(&bytes);
            let used: Vec<_> = records.iter().filter(|record| record.ino.0 != 0).collect();
            let is_placed = |hash| FileSystem::<M>::is_in_bucket(hash, bucket, buckets);
            // A chain that goes astray ends in a page of something else.
            if !is_first && (!is_whole || used.iter().any(|it| !is_placed(fs.position(it.name)))) {
                directory.is_torn = true;
                break;
            }
            directory.is_torn |= !is_whole;
            if !is_first {
                directory.overflow.push(page);
            }
            for record in used {
                let hash = fs.position(record.name);
                let is_sound = hash == record.hash && check_name(record.name).is_ok();
                directory.rewrite |= !is_placed(hash) || !hashes.insert(hash);
                directory.names.push(Name {
                    page,
                    at: record.at,
                    ino: record.ino,
                    kind: Kind::of_code(record.code),
                    name: record.name.to_vec(),
                    is_kept: is_sound,
                });
            }
            is_first = false;
            next = dirent::next_page(&bytes);
        }
    }
    directory.rewrite |= directory.is_torn;
    directory
}

fn bucket_page<M: Memory>(fs: &FileSystem<M>, found: &Found, bucket: u32) -> Option<Page> {
    let geometry = fs.superblock().geometry;
    match found.inode.form {
        Form::Empty | Form::Container(_) => None,
        Form::Run { first, pages } => (bucket < pages).then_some(Page(first.0 + u64::from(bucket))),
        Form::Tree { .. } => {
            let at = u64::from(bucket) * PAGE_BYTES;
            let chunk: Chunk = found.chunks.get(&(at / geometry.chunk_bytes))?.chunk;
            Some(Page((geometry.chunk_at(chunk) + at % geometry.chunk_bytes) / PAGE_BYTES))
        }
    }
}
