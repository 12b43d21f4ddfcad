//! Models of the file systems below: where a container lies, and which metadata is written with it.
//!
//! - **ext4**: containers are spread over directories, each of which has a region of the device of its own;
//!   delayed allocation makes each write contiguous, one after another in the region. Changed metadata (a
//!   block of 16 inodes, the directory's block, the region's bitmap) goes to the journal in the middle of the
//!   device at each commit, and to its place at every sixth, as after 30 s.
//! - **nilfs2**: everything is appended to a log: data, and with each commit a block of inodes for every 32
//!   files, a block of addresses for every 128 blocks, and a summary. The cleaner copies what is valid of
//!   two segments of 8 MiB at each commit once the log has ten.
//! - **FAT**: data goes to the next free clusters, wherever its directory is. Both copies of the table and
//!   the directories' blocks are written in place, at the start of the device, at each commit.
//!
//! Freed space is not used again: loads write less than the devices hold.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use weir_model::{BLOCK, Bytes, DeviceOffset};
use weir_policy::eviction::items::FileKey;

/// A kind of file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BottomFs {
    /// A journalling file system.
    #[default]
    Ext4,
    /// A log-structured file system.
    Nilfs2,
    /// A file system with a table.
    Fat,
}

impl BottomFs {
    /// All kinds, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("ext4", Self::Ext4), ("nilfs2", Self::Nilfs2), ("fat", Self::Fat)];

    /// Returns the kind of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// A contiguous part of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    pub(super) at: DeviceOffset,
    pub(super) len: Bytes,
}

/// Inodes in a block of ext4, and of nilfs2.
const INODES_PER_BLOCK: [u64; 2] = [16, 32];
/// Addresses of data blocks in a block of nilfs2.
const ADDRESSES_PER_BLOCK: u64 = 128;
/// A cluster of FAT, and the bytes of its entry in the table.
const CLUSTER: u64 = 4096;
const ENTRY: u64 = 4;
/// A segment of nilfs2, those that its cleaner takes at a time, and the number from which on it runs.
const SEGMENT: u64 = 8 << 20;
const CLEANED: u64 = 2;
const UNCLEANED: u64 = 10;
/// Blocks before the data of an ext4 region, or of a FAT: inodes, directories, tables.
const METADATA_AREA: u64 = 16 << 20;
/// The journal of ext4, and the commits after which changed blocks are written in place.
const JOURNAL: u64 = 128 << 20;
const COMMITS_IN_PLACE: u64 = 6;

#[derive(Clone, Debug, Default)]
struct Container {
    pieces: SmallVec<[Piece; 1]>,
    /// The number of the container in its directory (ext4) or in the file system (nilfs2).
    inode: u64,
}

/// A file system on a device of a tier.
#[derive(Debug)]
pub(super) struct Bottom {
    kind: BottomFs,
    size: u64,
    containers: FxHashMap<FileKey, Container>,
    /// The next free byte of each region: one for each directory with ext4, otherwise only the first.
    regions: Vec<Region>,
    journal: u64,
    /// Changed blocks of metadata, by place.
    changed: BTreeSet<u64>,
    /// Those that are in the journal only, and the number of commits.
    unwritten: BTreeSet<u64>,
    commits: u64,
    /// Files changed, and blocks written, since the last commit.
    changed_files: u64,
    written_blocks: u64,
    /// Bytes of nilfs2's log, and those of them that are valid.
    log: u64,
    valid: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Region {
    begin: u64,
    next: u64,
    inodes: u64,
}

impl Bottom {
    pub(super) fn new(kind: BottomFs, size: Bytes, directories: u64) -> Self {
        let size = size.0 / BLOCK * BLOCK;
        let count = if kind == BottomFs::Ext4 { directories.max(1) } else { 1 };
        let region = |nth: u64| {
            let begin = size / count * nth / BLOCK * BLOCK;
            let area = if kind == BottomFs::Nilfs2 { 0 } else { METADATA_AREA.min(size / count / 8) };
            Region { begin, next: begin + area / BLOCK * BLOCK, inodes: 0 }
        };
        Self {
            kind,
            size,
            containers: FxHashMap::default(),
            regions: (0..count).map(region).collect(),
            journal: 0,
            changed: BTreeSet::new(),
            unwritten: BTreeSet::new(),
            commits: 0,
            changed_files: 0,
            written_blocks: 0,
            log: 0,
            valid: 0,
        }
    }

    fn region(&self, file: FileKey) -> usize {
        // Spread as by a hash of the number.
        (weir_model::rng::mix(file.0) % self.regions.len() as u64) as usize
    }

    /// Takes space in a region, wrapping around at its end.
    fn take(&mut self, region: usize, len: u64) -> Piece {
        let end = self.regions.get(region + 1).map_or(self.size, |next| next.begin);
        let of = &mut self.regions[region];
        let len = len.div_ceil(BLOCK).max(1) * BLOCK;
        if of.next + len > end {
            of.next = of.begin;
        }
        let piece = Piece { at: DeviceOffset(of.next), len: Bytes(len) };
        of.next += len;
        piece
    }

    /// Marks the metadata of a file as changed.
    fn change(&mut self, file: FileKey) {
        self.changed_files += 1;
        let region = self.region(file);
        let Region { begin, .. } = self.regions[region];
        let inode = self.containers.get(&file).map_or(0, |container| container.inode);
        match self.kind {
            BottomFs::Ext4 => {
                let table = begin + 2 * BLOCK + inode / INODES_PER_BLOCK[0] * BLOCK;
                self.changed.extend([begin, begin + BLOCK, table]);
            }
            BottomFs::Nilfs2 => {}
            BottomFs::Fat => {
                let directory = METADATA_AREA / 2 + weir_model::rng::mix(file.0) % 150 * BLOCK;
                self.changed.insert(directory);
            }
        }
    }

    /// Writes data to a container, new or at its end.
    pub(super) fn write(&mut self, file: FileKey, len: Bytes) -> Piece {
        let region = self.region(file);
        let piece = self.take(region, len.0);
        if !self.containers.contains_key(&file) {
            let of = &mut self.regions[region];
            let container = Container { pieces: SmallVec::new(), inode: of.inodes };
            of.inodes += 1;
            self.containers.insert(file, container);
        }
        if let Some(container) = self.containers.get_mut(&file) {
            container.pieces.push(piece);
        }
        self.written_blocks += piece.len.0 / BLOCK;
        (self.log, self.valid) = (self.log + piece.len.0, self.valid + piece.len.0);
        if self.kind == BottomFs::Fat {
            let clusters = piece.at.0 / CLUSTER..(piece.at.0 + piece.len.0) / CLUSTER;
            let (first, last) = (clusters.start * ENTRY / BLOCK, clusters.end * ENTRY / BLOCK);
            for block in first..=last {
                // Both copies of the table.
                let at = block * BLOCK % (METADATA_AREA / 4);
                self.changed.extend([at, METADATA_AREA / 4 + at]);
            }
        }
        self.change(file);
        piece
    }

    /// Rewrites the data of a container: its old place is freed.
    pub(super) fn rewrite(&mut self, file: FileKey, len: Bytes) -> Piece {
        if let Some(container) = self.containers.get_mut(&file) {
            self.valid -= container.pieces.iter().map(|piece| piece.len.0).sum::<u64>();
            container.pieces.clear();
        }
        self.write(file, len)
    }

    /// Returns the pieces of a container, or the first block of it.
    pub(super) fn pieces(&self, file: FileKey, only_header: bool) -> SmallVec<[Piece; 1]> {
        let Some(container) = self.containers.get(&file) else { return SmallVec::new() };
        if !only_header {
            return container.pieces.clone();
        }
        let first = container.pieces.first().map(|piece| Piece { len: Bytes(BLOCK), ..*piece });
        first.into_iter().collect()
    }

    /// Changes the header of a container in place: its metadata.
    pub(super) fn change_header(&mut self, file: FileKey) {
        if self.containers.contains_key(&file) {
            self.change(file);
        }
    }

    /// Removes a container, if there is one.
    pub(super) fn remove(&mut self, file: FileKey) {
        if self.containers.contains_key(&file) {
            self.change(file);
        }
        if let Some(container) = self.containers.remove(&file) {
            self.valid -= container.pieces.iter().map(|piece| piece.len.0).sum::<u64>();
        }
    }

    /// Commits the changes of metadata. Returns what is read and what is written.
    pub(super) fn commit(&mut self) -> (Vec<Piece>, Vec<Piece>) {
        let changed = std::mem::take(&mut self.changed);
        let files = std::mem::take(&mut self.changed_files);
        let blocks = std::mem::take(&mut self.written_blocks);
        let in_place = |changed: BTreeSet<u64>| {
            changed.into_iter().map(|at| Piece { at: DeviceOffset(at), len: Bytes(BLOCK) })
        };
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        self.commits += 1;
        match self.kind {
            BottomFs::Ext4 => {
                if files > 0 {
                    // A descriptor and a commit record.
                    let len = (changed.len() as u64 + 2) * BLOCK;
                    let begin = (self.size / 2).saturating_sub(JOURNAL / 2) / BLOCK * BLOCK;
                    let at = begin + self.journal % JOURNAL;
                    self.journal += len;
                    writes.push(Piece { at: DeviceOffset(at), len: Bytes(len) });
                    self.unwritten.extend(changed);
                }
                if self.commits.is_multiple_of(COMMITS_IN_PLACE) {
                    writes.extend(in_place(std::mem::take(&mut self.unwritten)));
                }
            }
            BottomFs::Nilfs2 if files == 0 => {}
            BottomFs::Nilfs2 => {
                let metadata = files.div_ceil(INODES_PER_BLOCK[1]) + blocks.div_ceil(ADDRESSES_PER_BLOCK) + 2;
                writes.push(self.take(0, metadata * BLOCK));
                self.log += metadata * BLOCK;
                if self.log > UNCLEANED * SEGMENT {
                    let share = self.valid as f64 / self.log as f64;
                    let live = (share * (CLEANED * SEGMENT) as f64) as u64;
                    reads.push(Piece { at: DeviceOffset(0), len: Bytes(CLEANED * SEGMENT) });
                    writes.push(self.take(0, live));
                    self.log -= CLEANED * SEGMENT - live;
                }
            }
            BottomFs::Fat => writes.extend(in_place(changed)),
        }
        (reads, writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bottom(kind: BottomFs) -> Bottom {
        Bottom::new(kind, Bytes::gib(8), 10)
    }

    #[test]
    fn names_are_parsed() {
        for (name, kind) in BottomFs::ALL {
            assert_eq!((BottomFs::by_name(name), kind.name()), (Some(kind), name));
        }
        assert_eq!(BottomFs::by_name("xfs"), None);
    }

    #[test]
    fn containers_do_not_overlap() {
        for (_, kind) in BottomFs::ALL {
            let mut bottom = bottom(kind);
            let mut pieces: Vec<Piece> = (0..500).map(|n| bottom.write(FileKey(n), Bytes(n * 100))).collect();
            pieces.sort_unstable();
            for pair in pieces.windows(2) {
                assert!(pair[0].at.0 + pair[0].len.0 <= pair[1].at.0, "{kind:?}: {pair:?}");
            }
            assert!(pieces.iter().all(|piece| piece.at.0 + piece.len.0 <= 8 << 30));
            let written = bottom.pieces(FileKey(123), false);
            assert_eq!(
                written.iter().map(|piece| piece.len.0).sum::<u64>(),
                12_300_u64.next_multiple_of(BLOCK)
            );
            assert_eq!(bottom.pieces(FileKey(123), true)[0].len, Bytes(BLOCK));
            bottom.remove(FileKey(123));
            assert!(bottom.pieces(FileKey(123), false).is_empty());
        }
    }

    /// ext4 spreads containers over its regions, the others write one after another.
    #[test]
    fn only_ext4_scatters_what_is_written_together() {
        let far = |kind| {
            let mut bottom = bottom(kind);
            let places: Vec<_> = (0..50).map(|n| bottom.write(FileKey(n), Bytes(BLOCK)).at.0).collect();
            places.windows(2).filter(|pair| pair[1].abs_diff(pair[0]) > BLOCK).count()
        };
        assert!(far(BottomFs::Ext4) > 30);
        assert_eq!((far(BottomFs::Nilfs2), far(BottomFs::Fat)), (0, 0));
    }

    #[test]
    fn commits_write_the_metadata_once() {
        for (_, kind) in BottomFs::ALL {
            let mut bottom = bottom(kind);
            for n in 0..200 {
                bottom.write(FileKey(n), Bytes(BLOCK));
            }
            let blocks = |bottom: &mut Bottom| -> u64 {
                bottom.commit().1.iter().map(|piece| piece.len.0 / BLOCK).sum()
            };
            let all = (0..COMMITS_IN_PLACE).map(|_| blocks(&mut bottom)).sum::<u64>();
            // ext4: ten regions with a bitmap, a directory and about two blocks of inodes, twice.
            let expected = match kind {
                BottomFs::Ext4 => 70..110,
                BottomFs::Nilfs2 => 8..12,
                BottomFs::Fat => 100..250,
            };
            assert!(expected.contains(&all), "{kind:?}: {all}");
            let later = (0..COMMITS_IN_PLACE).map(|_| blocks(&mut bottom)).sum::<u64>();
            assert_eq!(later, 0, "{kind:?}: nothing changed since");
        }
    }
}
