//! Tables: the location of the newest durable copy of each numbered object.
//!
//! A table is a radix tree of 168 pointers per page, kept flat in memory: level 0 has a pointer per object,
//! level *k* a pointer per page of level *k - 1*.

use crate::format::page::{PAYLOAD, PageNumber};
use std::collections::BTreeSet;

/// The number of pointers in a table page.
pub const FANOUT: usize = PAYLOAD / Pointer::BYTES;

/// The location of a page, and the sequence it must carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The page number; [`PageNumber::NONE`] for no page.
    pub number: PageNumber,
    /// The sequence.
    pub sequence: u64,
    /// The number of owners of the object: 1 until snapshots share pages, 0 for no page.
    pub count: u32,
}

impl Pointer {
    /// The size on disk, in bytes.
    pub const BYTES: usize = 24;
    /// The pointer to nothing.
    pub const NONE: Self = Self { number: PageNumber::NONE, sequence: 0, count: 0 };

    /// Whether it points to nothing.
    pub const fn is_none(self) -> bool {
        self.number.0 == u64::MAX
    }

    /// Encodes the pointer.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.number.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Decodes a pointer.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let count = u32::from_le_bytes(std::array::from_fn(|i| bytes[16 + i]));
        Self { number: PageNumber(u64_at(0)), sequence: u64_at(8), count }
    }
}

/// A table in memory.
#[derive(Clone, Debug, Default)]
pub struct Table {
    levels: Vec<Vec<Pointer>>,
    /// Per level, the table pages (of that level's pointers) that differ from the disk's.
    dirty: Vec<BTreeSet<u32>>,
}

impl Table {
    /// Returns the number of ids that the table covers.
    pub fn len(&self) -> usize {
        self.levels.first().map_or(0, Vec::len)
    }

    /// Whether it covers no id.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the levels of table pages needed for `len` ids.
    pub fn height(len: usize) -> usize {
        let (mut height, mut pages) = (0, len);
        while pages > 1 || (height == 0 && pages == 1) {
            pages = pages.div_ceil(FANOUT);
            height += 1;
        }
        height
    }

    /// Returns the pointer of an object; [`Pointer::NONE`] if it was never stored.
    pub fn get(&self, id: usize) -> Pointer {
        self.levels.first().and_then(|l| l.get(id)).copied().unwrap_or(Pointer::NONE)
    }

    /// Returns the pointer to table page `index` whose pointers are of `level`.
    pub(crate) fn page_pointer(&self, level: usize, index: usize) -> Pointer {
        self.levels.get(level + 1).and_then(|l| l.get(index)).copied().unwrap_or(Pointer::NONE)
    }

    /// Sets an object's pointer and returns the old one.
    pub fn set(&mut self, id: usize, pointer: Pointer) -> Pointer {
        self.grow(id + 1);
        self.set_at(0, id, pointer)
    }

    fn grow(&mut self, len: usize) {
        let len = len.max(self.len());
        let (mut level, mut pointers) = (0, len);
        loop {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
                self.dirty.push(BTreeSet::new());
            }
            let have = self.levels[level].len();
            if have < pointers {
                self.levels[level].resize(pointers, Pointer::NONE);
                // The last table page of the level gets longer: it is rewritten even if no pointer changed.
                let changed = (have.saturating_sub(1) / FANOUT)..pointers.div_ceil(FANOUT);
                self.dirty[level].extend(changed.map(|p| p as u32));
            }
            if pointers == 1 && level > 0 {
                break;
            }
            pointers = pointers.div_ceil(FANOUT);
            level += 1;
        }
        // The topmost pointer is in the root, not in a table page.
        self.dirty[level].clear();
    }

    pub(crate) fn set_at(&mut self, level: usize, index: usize, pointer: Pointer) -> Pointer {
        if level + 1 < self.levels.len() {
            self.dirty[level].insert((index / FANOUT) as u32);
        }
        std::mem::replace(&mut self.levels[level][index], pointer)
    }

    /// Returns the pointer to the topmost table page.
    pub fn top(&self) -> Pointer {
        self.levels.last().filter(|_| self.levels.len() > 1).map_or(Pointer::NONE, |l| l[0])
    }

    /// Takes one table page that differs from the disk's: its level, index and payload. The lowest level
    /// comes first, so that a page's own pointer is set before its parent is written.
    pub(crate) fn take_dirty(&mut self) -> Option<(usize, usize, Vec<u8>)> {
        let level = self.dirty.iter().position(|d| !d.is_empty())?;
        let index = self.dirty[level].pop_first()? as usize;
        Some((level, index, self.payload(level, index)))
    }

    /// Whether some table page differs from the disk's.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.iter().any(|d| !d.is_empty())
    }

    /// Returns the number of table pages for `len` ids.
    pub(crate) fn pages_for(len: usize) -> usize {
        let (mut all, mut pages) = (0, len);
        for _ in 0..Self::height(len) {
            pages = pages.div_ceil(FANOUT);
            all += pages;
        }
        all
    }

    fn payload(&self, level: usize, index: usize) -> Vec<u8> {
        let all = &self.levels[level];
        let end = ((index + 1) * FANOUT).min(all.len());
        all[index * FANOUT..end].iter().flat_map(|p| p.encode()).collect()
    }

    /// Stores a table page read from disk. Returns `false` if its length is wrong.
    pub(crate) fn load(&mut self, level: usize, index: usize, payload: &[u8]) -> bool {
        let start = index * FANOUT;
        let Some(all) = self.levels.get_mut(level) else { return false };
        let end = ((index + 1) * FANOUT).min(all.len());
        if start >= end || payload.len() != (end - start) * Pointer::BYTES {
            return false;
        }
        let (chunks, _) = payload.as_chunks::<{ Pointer::BYTES }>();
        for (pointer, bytes) in all[start..end].iter_mut().zip(chunks) {
            *pointer = Pointer::decode(bytes);
        }
        true
    }

    /// Creates a table of `len` ids whose pages are yet to be [loaded](Self::load), with its top.
    pub(crate) fn unloaded(len: usize, top: Pointer) -> Self {
        let mut table = Self::default();
        if len > 0 {
            table.grow(len);
            let last = table.levels.len() - 1;
            table.levels[last][0] = top;
        }
        table.dirty.iter_mut().for_each(BTreeSet::clear);
        table
    }

    /// Returns the levels of pointers, including the objects' level; table pages are at all levels but the
    /// last.
    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Returns the pointers of all objects.
    pub(crate) fn objects(&self) -> &[Pointer] {
        self.levels.first().map_or(&[], Vec::as_slice)
    }

    /// Returns the pointers of a level.
    pub(crate) fn level(&self, level: usize) -> &[Pointer] {
        &self.levels[level]
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.levels.iter().map(|l| l.capacity() * size_of::<Pointer>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(n: u64) -> Pointer {
        Pointer { number: PageNumber(n), sequence: 2 * n, count: 1 }
    }

    #[test]
    fn dirty_pages_round_trip() {
        for len in [1, 2, FANOUT, FANOUT + 1, FANOUT * FANOUT, FANOUT * FANOUT + 3] {
            let mut table = Table::default();
            let mut stored = std::collections::BTreeMap::new();
            let mut number = 0;
            for round in 0..3usize {
                for id in (round..len).step_by(7) {
                    table.set(id, pointer((id + 1000 * round) as u64));
                }
                table.grow(len);
                while let Some((level, index, payload)) = table.take_dirty() {
                    number += 1;
                    table.set_at(level + 1, index, pointer(number));
                    stored.insert((level, index), (number, payload));
                }
                assert_eq!(table.levels() - 1, Table::height(len), "{len} ids");
            }
            let mut loaded = Table::unloaded(table.len(), table.top());
            for level in (0..loaded.levels() - 1).rev() {
                for index in 0..loaded.level(level + 1).len() {
                    let at = loaded.page_pointer(level, index);
                    let (number, payload) = &stored[&(level, index)];
                    assert_eq!(at, pointer(*number));
                    assert!(loaded.load(level, index, payload));
                }
            }
            assert_eq!(loaded.levels, table.levels);
        }
    }
}
