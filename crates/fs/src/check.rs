//! Verifies a file system: names, inodes and space must agree.

mod containers;
mod space;

use crate::error::{Error, Result};
use crate::layout::inode::{Form, INODE_BYTES, Inode};
use crate::layout::superblock::Superblock;
use crate::layout::tier::{Container, TierNumber};
use crate::layout::{BITMAP_SLOTS, Chunk, Geometry, Ino, Page};
use crate::namespace::FileSystem;
use crate::namespace::names::check_name;
use crate::nvm::Memory;
use rustc_hash::{FxHashMap, FxHashSet};
use space::Claims;

/// Findings that a report lists at most.
const FINDINGS_MAX: usize = 1000;

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What contradicts the format or itself, at most 1000 of it; empty in a clean file system.
    pub findings: Vec<String>,
    /// Findings beyond those that are listed.
    pub more_findings: u64,
    /// Directories found.
    pub directories: u64,
    /// Other files found.
    pub files: u64,
    /// Inodes without a name, which the next mount frees.
    pub orphans: u64,
    /// Pages in use.
    pub pages: u64,
    /// Files in containers.
    pub containers: u64,
    /// Containers that are missing or too short, and tiers that are gone, at most 1000; `findings` are about
    /// the region alone.
    pub missing: Vec<String>,
    /// Containers that no file has, which the next mount removes.
    pub garbage: u64,
    /// The tier table cannot be read; it is one of the `findings`.
    pub tier_table_is_damaged: bool,
}

impl Report {
    /// Returns whether nothing is wrong.
    pub const fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.missing.is_empty()
    }

    fn add_missing(&mut self, finding: String) {
        if self.missing.len() < FINDINGS_MAX { self.missing.push(finding) } else { self.more_findings += 1 }
    }

    fn add(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX { self.findings.push(finding) } else { self.more_findings += 1 }
    }

    /// Notes an error that ended a part of the check.
    fn unless_ok<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        result.inspect_err(|error| self.add(format!("{what}: {error}"))).ok()
    }
}

/// Verifies a whole file system. Takes memory for each inode, and a bit for each page of the region.
pub fn check<M: Memory>(fs: &FileSystem<M>) -> Report {
    let Examined { mut report, claims, .. } = examine(fs);
    claims.compare(fs, &mut report);
    report
}

/// Verifies a whole file system as [`check`] does, and that its containers are there and long enough.
pub fn check_with_containers<M: Memory>(fs: &FileSystem<M>) -> Report {
    let Examined { mut report, claims, containers, .. } = examine(fs);
    claims.compare(fs, &mut report);
    containers::check(fs, &containers, &mut report);
    report
}

/// What a file system has, and what is wrong with it apart from the chunk table.
pub(crate) struct Examined {
    report: Report,
    /// Space that files have.
    pub(crate) claims: Claims,
    /// Inodes with a wrong number of pages, and the right one.
    pub(crate) wrong_pages: Vec<(Ino, u64)>,
    /// Containers of files.
    containers: FxHashMap<Container, Ino>,
}

/// Walks a whole file system.
pub(crate) fn examine<M: Memory>(fs: &FileSystem<M>) -> Examined {
    let mut check = Check {
        fs,
        report: Report { tier_table_is_damaged: fs.has_damaged_tier_table(), ..Report::default() },
        claims: Claims::new(fs),
        names: FxHashMap::default(),
        wrong_pages: Vec::new(),
        containers: FxHashMap::default(),
        next_containers: Vec::new(),
    };
    let tiers = fs.load_tiers().inspect_err(|error| check.report.add(error.to_string())).unwrap_or_default();
    // None can be in a tier that was removed.
    check.next_containers = tiers.iter().map(|tier| if tier.is_removed() { 0 } else { tier.next }).collect();
    check.superblocks();
    check.names();
    check.lists();
    check.inodes();
    // Null files have nothing in their pages.
    check.report.pages = check.claims.count().saturating_sub(fs.roots().null_pages);
    let Check { report, claims, wrong_pages, containers, .. } = check;
    Examined { report, claims, wrong_pages, containers }
}

struct Check<'a, M> {
    fs: &'a FileSystem<M>,
    report: Report,
    claims: Claims,
    /// Inodes with a name or on a list, and how many names each has.
    names: FxHashMap<Ino, u32>,
    wrong_pages: Vec<(Ino, u64)>,
    /// Containers of files.
    containers: FxHashMap<Container, Ino>,
    /// Of each tier, the number of its next container.
    next_containers: Vec<u64>,
}

impl<M: Memory> Check<'_, M> {
    /// Verifies both copies of the superblock; the file system was opened with one that is intact.
    fn superblocks(&mut self) {
        for (copy, at) in [("first", 0), ("second", Geometry::COPY_AT)] {
            let page = self.fs.store().bytes(at);
            let found = Superblock::decode(&page);
            let what = format!("{copy} copy of the superblock");
            let same = self.report.unless_ok(&what, found).is_none_or(|found| found == *self.fs.superblock());
            if !same {
                self.report.add(format!("{what}: it differs from the other one"));
            }
        }
    }

    /// Walks all directories from the root.
    fn names(&mut self) {
        self.names.insert(Ino::ROOT, 1);
        let mut left = vec![Ino::ROOT];
        while let Some(ino) = left.pop() {
            self.report.directories += 1;
            let found = self.directory(ino, &mut left);
            self.report.unless_ok(&format!("directory {}", ino.0), found);
        }
    }

    fn directory(&mut self, ino: Ino, left: &mut Vec<Ino>) -> Result<()> {
        let directory = self.fs.inode(ino)?;
        if ino == Ino::ROOT && !directory.is_directory() {
            return Err(Error::NotDirectory);
        }
        let (mut entries, mut subdirectories) = (0, 0);
        let mut names = FxHashSet::default();
        for bucket in 0..directory.buckets {
            for (page, bytes) in self.fs.chain(self.fs.bucket_page(&directory, bucket)?)? {
                for entry in FileSystem::<M>::entries(page, &bytes)? {
                    let what = format!("directory {}, {:?}", ino.0, String::from_utf8_lossy(&entry.name));
                    entries += 1;
                    let is_placed = check_name(&entry.name).is_ok()
                        && entry.hash == self.fs.position(&entry.name)
                        && FileSystem::<M>::is_in_bucket(entry.hash, bucket, directory.buckets);
                    if !is_placed || !names.insert(entry.hash) {
                        self.report.add(format!("{what}: it is in the wrong bucket, or there twice"));
                    }
                    let Some(inode) = self.report.unless_ok(&what, self.fs.inode(entry.ino)) else {
                        continue;
                    };
                    if inode.kind() != Some(entry.kind) {
                        self.report.add(format!("{what}: its type is not that of inode {}", entry.ino.0));
                    }
                    let count = self.names.entry(entry.ino).or_default();
                    *count += 1;
                    if inode.is_directory() {
                        subdirectories += 1;
                        if *count > 1 || inode.parent != ino {
                            self.report
                                .add(format!("{what}: this directory belongs to inode {}", inode.parent.0));
                        } else {
                            left.push(entry.ino);
                        }
                    } else if *count == 1 {
                        self.report.files += 1;
                    }
                }
            }
        }
        if directory.entries != entries || directory.links != subdirectories + 2 {
            let (told, links) = (directory.entries, directory.links);
            let text = format!("directory {}: {told} entries and {links} links", ino.0);
            self.report.add(format!("{text}, but {entries} names and {subdirectories} subdirectories"));
        }
        Ok(())
    }

    /// Walks the lists of orphans and of null files.
    fn lists(&mut self) {
        let roots = self.fs.roots();
        let (mut previous, mut next) = (None, roots.orphans);
        while let Some(ino) = next {
            let Some(inode) = self.listed("orphans", ino) else { break };
            if inode.links != 0 || inode.mode == 0 || inode.previous != previous {
                self.report.add(format!("inode {} is on the list of orphans, but is none", ino.0));
            }
            self.report.orphans += 1;
            (previous, next) = (Some(ino), inode.next);
        }
        let (mut count, mut pages, mut next) = (0, 0, roots.null_files);
        while let Some(ino) = next {
            let Some(inode) = self.listed("null files", ino) else { break };
            if inode.mode != 0 || inode.size != 0 || !matches!(inode.form, Form::Run { .. }) {
                self.report.add(format!("inode {} is on the list of null files, but is none", ino.0));
            }
            (count, pages, next) = (count + 1, pages + inode.pages, inode.next);
        }
        if (count, pages) != (roots.null_count, roots.null_pages) {
            self.report.add(format!("the list of null files has {count} with {pages} pages: {roots:?}"));
        }
    }

    /// Notes an inode of a list; `None` if it cannot be there.
    fn listed(&mut self, list: &str, ino: Ino) -> Option<Inode> {
        if self.names.insert(ino, 0).is_some() {
            self.report
                .add(format!("inode {} is on the list of {list}, but has a name or is there twice", ino.0));
            return None;
        }
        self.report.unless_ok(&format!("list of {list}, inode {}", ino.0), self.fs.sound_inode(ino))
    }

    /// Compares the bitmaps of inodes with what was found, and collects the space that inodes have.
    fn inodes(&mut self) {
        let geometry = self.fs.superblock().geometry;
        let mut allocated = FxHashSet::default();
        if self.fs.roots().inode_chunks > geometry.chunks() {
            self.report.add(format!("the inode map has {} chunks", self.fs.roots().inode_chunks));
        }
        for (index, chunk) in (0..).zip(self.fs.inode_chunks()) {
            if !geometry.is_for_files(chunk) {
                self.report.add(format!("the inode map names chunk {}", chunk.0));
                continue;
            }
            if let Some(slot) = self.fs.wrong_bitmap_bits(chunk).next() {
                self.report.add(format!("chunk {}: bit {slot} of its bitmap is not set", chunk.0));
            }
            let bitmap = self.fs.inode_bitmap(chunk);
            self.free_inodes(index, chunk, &bitmap);
            let slots = BITMAP_SLOTS..geometry.chunk_inodes();
            let used = slots.clone().filter(|slot| bitmap[*slot as usize / 8] & 1 << (slot % 8) != 0);
            let used: Vec<_> = used.map(|slot| geometry.ino_of(index, slot)).collect();
            let free = slots.count() as u64 - used.len() as u64;
            allocated.extend(used);
            self.claims.inodes(chunk, index, free);
        }
        let mut inos: Vec<_> = self.names.iter().map(|(ino, count)| (*ino, *count)).collect();
        inos.sort_unstable();
        for (ino, names) in inos {
            if !allocated.remove(&ino) {
                self.report.add(format!("inode {} is in use, but its bit says that it is free", ino.0));
            }
            let found = self.inode(ino, names);
            self.report.unless_ok(&format!("inode {}", ino.0), found);
        }
        let mut lost: Vec<_> = allocated.into_iter().collect();
        lost.sort_unstable();
        for ino in lost {
            self.report.add(format!("inode {} is allocated, but has no name", ino.0));
        }
    }

    /// Verifies that inodes which the bitmap says are free look so.
    fn free_inodes(&mut self, index: u64, chunk: Chunk, bitmap: &[u8]) {
        let geometry = self.fs.superblock().geometry;
        for slot in BITMAP_SLOTS..geometry.chunk_inodes() {
            let is_free = bitmap[slot as usize / 8] & 1 << (slot % 8) == 0;
            let at = geometry.chunk_at(chunk) + slot * INODE_BYTES;
            let ino = geometry.ino_of(index, slot);
            if is_free && self.fs.store().load_u32(at) != 0 && !self.names.contains_key(&ino) {
                self.report.add(format!("inode {} has neither a name nor its bit, but a mode", ino.0));
            }
        }
    }

    fn inode(&mut self, ino: Ino, names: u32) -> Result<()> {
        let inode = self.fs.sound_inode(ino)?;
        if !inode.is_directory() && inode.mode != 0 && inode.links != names {
            self.report.add(format!("inode {} has {names} names, but {} links", ino.0, inode.links));
        }
        let before = self.claims.count();
        match inode.form {
            Form::Empty => {}
            Form::Container(container) => self.container(ino, container),
            Form::Run { first, pages } => drop(self.claim(ino, first, pages)),
            Form::Tree { root, height } => self.tree(ino, root, height, 0)?,
        }
        if let Some((first, pages)) = inode.attributes {
            self.claim(ino, first, pages);
            self.fs.attributes(ino).or_else(|error| match error {
                Error::NotFound => Ok(Vec::new()),
                error => Err(error),
            })?;
        }
        if inode.is_directory() {
            for bucket in 0..inode.buckets {
                for (page, _) in self.fs.chain(self.fs.bucket_page(&inode, bucket)?)?.into_iter().skip(1) {
                    self.claim(ino, page, 1);
                }
            }
        }
        let found = self.claims.count() - before;
        if found != inode.pages {
            self.report.add(format!("inode {} has {found} pages, but says {}", ino.0, inode.pages));
            self.wrong_pages.push((ino, found));
        }
        if ino == Ino::ROOT {
            self.fs.stored_limits()?;
        }
        Ok(())
    }

    /// Notes the container of an inode.
    fn container(&mut self, ino: Ino, container: Container) {
        let Container { tier: TierNumber(tier), number } = container;
        if container == Container::lost(ino) {
            return;
        }
        if let Some(other) = self.containers.insert(container, ino) {
            self.report
                .add(format!("inode {}: inode {} has its container {number} of tier {tier}", ino.0, other.0));
        }
        let next = self.next_containers.get(tier as usize).copied().unwrap_or(0);
        // Without a table, one finding is enough.
        if number >= next && !self.fs.has_damaged_tier_table() {
            self.report
                .add(format!("inode {}: container {number} of tier {tier}, whose next is {next}", ino.0));
        }
    }

    /// Notes pages of an inode; returns whether all of them are its own.
    fn claim(&mut self, ino: Ino, first: Page, pages: u32) -> bool {
        let mut is_own = true;
        for page in first.0..first.0 + u64::from(pages) {
            if !self.claims.page(Page(page)) {
                self.report.add(format!("inode {}: page {page} does not exist or belongs to several", ino.0));
                is_own = false;
            }
        }
        is_own
    }

    fn tree(&mut self, ino: Ino, page: Page, height: u32, base: u64) -> Result<()> {
        use crate::layout::inode::{TREE_BITS, UNWRITTEN};
        if !self.fs.is_possible(page, 1) {
            return Err(Error::Damaged(format!("its tree has page {}", page.0)));
        }
        // A tree that comes back to one of its pages would have no end.
        if !self.claim(ino, page, 1) {
            return Ok(());
        }
        for (slot, entry) in self.fs.tree_entries(page) {
            let index = base + (slot << ((height - 1) * TREE_BITS));
            if height > 1 {
                self.tree(ino, Page(u64::from(entry)), height - 1, index)?;
            } else if !self.claims.chunk(Chunk(entry & !UNWRITTEN), ino, index) {
                self.report.add(format!("inode {}: chunk {} belongs to several", ino.0, entry & !UNWRITTEN));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
