//! The fast tier: which files' metadata and data are in it, and which space is free.

use super::plan::FastTier;
use rustc_hash::FxHashMap;
use weir_model::Bytes;
use weir_policy::eviction::items::{FileKey, Item, ItemEviction, Part};

/// Unit of space in NVM, as published.
const NVM_BLOCK: u64 = 1024;
/// A file whose data is a larger share of the fast tier than this goes to a tier below at once.
const LARGE_SHARE: u64 = 2;

/// A file that exists.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct File {
    /// Length of its data.
    pub(super) len: u64,
    /// The tier that has its container.
    pub(super) container: Option<usize>,
    /// Whether the container has the data, although it is in the fast tier too.
    pub(super) is_clean: bool,
}

/// What happened to the bytes of the fast tier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpaceCounts {
    pub(super) entered: u64,
    pub(super) evicted: u64,
    pub(super) evicted_clean: u64,
    pub(super) removed: u64,
    pub(super) promoted: u64,
    pub(super) resident_at_first: u64,
    pub(super) items_max: usize,
    pub(super) heap_max: usize,
}

/// The fast tier.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) items: ItemEviction,
    pub(super) files: FxHashMap<FileKey, File>,
    pub(super) size: Bytes,
    /// Bytes that are still being written to a tier.
    pub(super) releasing: Bytes,
    /// Size of metadata as an item; zero if it is none.
    metadata: Bytes,
    unit: u64,
    pub(super) counts: SpaceCounts,
}

pub(super) fn data(file: FileKey) -> Item {
    Item { file, part: Part::Data }
}

pub(super) fn metadata(file: FileKey) -> Item {
    Item { file, part: Part::Metadata }
}

impl Space {
    pub(super) fn new(fast: FastTier, metadata: Bytes, items: ItemEviction) -> Self {
        let (metadata, unit) = match fast {
            FastTier::Nvm(_) => (metadata, NVM_BLOCK),
            FastTier::Memory(_) => (Bytes(0), weir_model::BLOCK),
        };
        Self {
            items,
            files: FxHashMap::default(),
            size: fast.size(),
            releasing: Bytes(0),
            metadata,
            unit,
            counts: SpaceCounts::default(),
        }
    }

    /// Returns the space that data of this length takes.
    pub(super) fn space_of(&self, len: u64) -> Bytes {
        Bytes(len.div_ceil(self.unit) * self.unit)
    }

    /// Returns the size of metadata as an item; zero if it is none.
    pub(super) fn metadata_size(&self) -> Bytes {
        self.metadata
    }

    /// Whether data of this length is too large for the fast tier.
    pub(super) fn is_large(&self, len: u64) -> bool {
        self.space_of(len).0 > self.size.0 / LARGE_SHARE
    }

    pub(super) fn used(&self) -> Bytes {
        self.items.bytes() + self.releasing
    }

    /// Whether there is space for so much more.
    pub(super) fn fits(&self, more: Bytes) -> bool {
        self.used().0 + more.0 <= self.size.0
    }

    /// Accesses an item, which enters or grows if it was not in or smaller.
    pub(super) fn access(&mut self, item: Item, size: Bytes) {
        let before = self.items.bytes();
        self.items.access(item, size);
        self.counts.entered += self.items.bytes().0.saturating_sub(before.0);
        self.counts.items_max = self.counts.items_max.max(self.items.len());
        self.counts.heap_max = self.counts.heap_max.max(self.items.heap_bytes());
    }

    /// Accesses an item that is in, without a change of its size.
    pub(super) fn touch(&mut self, item: Item) {
        if let Some(size) = self.items.size(item) {
            self.items.access(item, size);
        }
    }

    /// Removes a file that was deleted. Returns what it was.
    pub(super) fn remove(&mut self, file: FileKey) -> File {
        for item in [data(file), metadata(file)] {
            self.counts.removed += self.items.remove(item).map_or(0, |size| size.0);
        }
        self.files.remove(&file).unwrap_or_default()
    }

    /// Begins to count.
    pub(super) fn restart_counts(&mut self) {
        self.counts = SpaceCounts { resident_at_first: self.items.bytes().0, ..SpaceCounts::default() };
    }
}
