//! Eviction of items of any size: the metadata and the data of files, as separate items.
//!
//! An access to a file's data is one to its metadata too, and metadata never leaves before its data: while
//! the data is in, the metadata is no candidate (TridentFS, section 3.4). Which candidate leaves first is up
//! to a [`Ranking`]; [`ITEM_EVICTION`](super::ITEM_EVICTION) lists the policies.
//!
//! Cost per access: two hash look-ups; a candidate whose rank rose is moved in the heap only when it comes to
//! the top, so that an access usually leaves the heap alone.

use rustc_hash::FxHashMap;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;
use weir_model::Bytes;

/// A file, numbered as its owner likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u64);

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The inode.
    Metadata,
    /// The contents, or the entries of a directory.
    Data,
}

/// What enters and leaves: a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// The file.
    pub file: FileKey,
    /// The part.
    pub part: Part,
}

/// What happened to an item since it was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The number of accesses to any item until it was inserted.
    pub inserted: u64,
    /// The number of accesses to any item until its last access.
    pub accessed: u64,
    /// The number of evictions until its last access.
    pub clock: u64,
    /// The number of its accesses; the insertion is the first.
    pub accesses: u64,
    /// Its size.
    pub size: Bytes,
}

/// Ranks items: the one with the lowest rank leaves first; of equal ones, the one accessed longest ago.
pub trait Ranking: fmt::Debug + Send {
    /// Returns an item's rank. Called at each of its accesses only: until the next one the rank stays.
    fn rank(&self, item: &History) -> f64;

    /// Reports that the item of this rank was evicted.
    fn evicted(&mut self, rank: f64) {
        let _ = rank;
    }
}

/// Settings of the policies; each takes those that it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemSettings {
    /// The weight of accesses per byte beside recency, in bytes (`trident`).
    pub omega: f64,
}

impl Default for ItemSettings {
    fn default() -> Self {
        Self { omega: super::OMEGA }
    }
}

/// An eviction policy for items.
#[derive(Clone, Copy, Debug)]
pub struct ItemEvictionPolicy {
    /// Its name.
    pub name: &'static str,
    /// The item that leaves first.
    pub evicts: &'static str,
    ranking: fn(&ItemSettings) -> Box<dyn Ranking>,
}

impl ItemEvictionPolicy {
    pub(super) const fn new(
        name: &'static str,
        evicts: &'static str,
        ranking: fn(&ItemSettings) -> Box<dyn Ranking>,
    ) -> Self {
        Self { name, evicts, ranking }
    }

    /// Returns the policy of this name; `None` if there is none.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        super::ITEM_EVICTION.iter().find(|policy| policy.name == name)
    }

    /// Creates the policy of an empty tier.
    pub fn start(&self, settings: &ItemSettings) -> ItemEviction {
        ItemEviction::new((self.ranking)(settings))
    }
}

/// A rank and the access at which it was given: the order in which items leave.
#[derive(Clone, Copy, Debug)]
struct Order {
    rank: f64,
    accessed: u64,
}

impl Ord for Order {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.total_cmp(&other.rank).then(self.accessed.cmp(&other.accessed))
    }
}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Order {}

#[derive(Clone, Copy, Debug)]
struct Entry {
    history: History,
    order: Order,
    /// The order with which it is in the heap, no later than `order`; `None` if it is not there.
    queued: Option<Order>,
}

/// The items of a tier, without data, and the order in which they leave.
#[derive(Debug)]
pub struct ItemEviction {
    ranking: Box<dyn Ranking>,
    entries: FxHashMap<Item, Entry>,
    /// Candidates. An entry that is not `queued` with this order is obsolete.
    heap: BinaryHeap<Reverse<(Order, Item)>>,
    bytes: Bytes,
    accesses: u64,
    evictions: u64,
}

/// The obsolete entries of the heap are removed when they are more than the items and this number.
const OBSOLETE_MIN: usize = 64;

impl ItemEviction {
    /// Creates the policy of an empty tier.
    pub fn new(ranking: Box<dyn Ranking>) -> Self {
        Self {
            ranking,
            entries: FxHashMap::default(),
            heap: BinaryHeap::new(),
            bytes: Bytes(0),
            accesses: 0,
            evictions: 0,
        }
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the sum of the items' sizes.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Whether an item is in.
    pub fn contains(&self, item: Item) -> bool {
        self.entries.contains_key(&item)
    }

    /// Returns the size of an item; `None` if it is not in.
    pub fn size(&self, item: Item) -> Option<Bytes> {
        self.entries.get(&item).map(|entry| entry.history.size)
    }

    /// Returns the memory of the heap in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Reverse<(Order, Item)>>()
    }

    /// Accesses an item, which is inserted if it is not in; `size` is its size from now on. An access to data
    /// is one to the file's metadata too, if that is in.
    pub fn access(&mut self, item: Item, size: Bytes) {
        self.accesses += 1;
        if item.part == Part::Data {
            let metadata = Item { part: Part::Metadata, ..item };
            if let Some(entry) = self.entries.get(&metadata) {
                self.touch(metadata, entry.history.size);
            }
        }
        self.touch(item, size);
    }

    /// Changes the size of an item without an access, if it is in.
    pub fn resize(&mut self, item: Item, size: Bytes) {
        let Some(entry) = self.entries.get_mut(&item) else { return };
        self.bytes = Bytes(self.bytes.0 - entry.history.size.0 + size.0);
        entry.history.size = size;
        entry.order.rank = self.ranking.rank(&entry.history);
        self.queue(item);
    }

    fn touch(&mut self, item: Item, size: Bytes) {
        let (accessed, clock) = (self.accesses, self.evictions);
        let new = History { inserted: accessed, accessed, clock, accesses: 0, size: Bytes(0) };
        let before = self.entries.get(&item);
        let mut history = before.map_or(new, |entry| entry.history);
        self.bytes = Bytes(self.bytes.0 - history.size.0 + size.0);
        history = History { accessed, clock, accesses: history.accesses + 1, size, ..history };
        let order = Order { rank: self.ranking.rank(&history), accessed };
        let queued = before.and_then(|entry| entry.queued);
        self.entries.insert(item, Entry { history, order, queued });
        if item.part == Part::Data {
            // The metadata is no candidate any more.
            if let Some(metadata) = self.entries.get_mut(&Item { part: Part::Metadata, ..item }) {
                metadata.queued = None;
            }
        }
        self.queue(item);
    }

    /// Whether an item may leave now.
    fn is_candidate(&self, item: Item) -> bool {
        item.part == Part::Data || !self.contains(Item { part: Part::Data, ..item })
    }

    /// Puts a candidate into the heap, unless it is there with this order or an earlier one.
    fn queue(&mut self, item: Item) {
        if !self.is_candidate(item) {
            return;
        }
        let Some(entry) = self.entries.get_mut(&item) else { return };
        let order = entry.order;
        if entry.queued.is_none_or(|queued| order < queued) {
            entry.queued = Some(order);
            self.heap.push(Reverse((order, item)));
            if self.heap.len() > 2 * self.entries.len() + OBSOLETE_MIN {
                let entries = &self.entries;
                self.heap.retain(|Reverse((order, item))| {
                    entries.get(item).is_some_and(|entry| entry.queued == Some(*order))
                });
            }
        }
    }

    /// Returns the item that leaves next, with its history; `None` if there are no items. It stays until it
    /// is evicted or removed.
    pub fn victim(&mut self) -> Option<(Item, History)> {
        loop {
            let Reverse((queued, item)) = *self.heap.peek()?;
            match self.entries.get_mut(&item) {
                Some(entry) if entry.queued == Some(queued) && entry.order == queued => {
                    return Some((item, entry.history));
                }
                // Its rank has risen since it was queued.
                Some(entry) if entry.queued == Some(queued) => {
                    entry.queued = None;
                    self.heap.pop();
                    self.queue(item);
                }
                _ => drop(self.heap.pop()),
            }
        }
    }

    /// Evicts the item that leaves next. The clock of evictions ticks.
    pub fn evict(&mut self) -> Option<(Item, History)> {
        let (item, history) = self.victim()?;
        let rank = self.entries.get(&item).map_or(0.0, |entry| entry.order.rank);
        self.remove(item);
        self.evictions += 1;
        self.ranking.evicted(rank);
        Some((item, history))
    }

    /// Removes an item that was deleted. Returns its size if it was in.
    pub fn remove(&mut self, item: Item) -> Option<Bytes> {
        let entry = self.entries.remove(&item)?;
        self.bytes = Bytes(self.bytes.0 - entry.history.size.0);
        if item.part == Part::Data {
            self.queue(Item { part: Part::Metadata, ..item });
        }
        Some(entry.history.size)
    }

    /// Returns the rank that an item with this history has if it is accessed now: to compare it with the
    /// [`lowest_rank`](Self::lowest_rank).
    pub fn rank_now(&self, accesses: u64, size: Bytes) -> f64 {
        let (accessed, clock) = (self.accesses, self.evictions);
        self.ranking.rank(&History { inserted: accessed, accessed, clock, accesses, size })
    }

    /// Returns the rank of the item that leaves next; `None` if there are no items.
    pub fn lowest_rank(&mut self) -> Option<f64> {
        let (item, _) = self.victim()?;
        self.entries.get(&item).map(|entry| entry.order.rank)
    }
}

#[cfg(test)]
mod tests;
