//! The operating system's memory: data of containers that was read or written lately.

use weir_model::Bytes;
use weir_policy::Lru;
use weir_policy::eviction::items::Item;

/// Least recently used, by item.
#[derive(Debug)]
pub struct PageCache {
    size: Bytes,
    used: Bytes,
    items: Lru<Item, u64>,
}

impl PageCache {
    /// Creates an empty cache.
    pub fn new(size: Bytes) -> Self {
        Self { size, used: Bytes(0), items: Lru::new(u32::MAX as usize - 1) }
    }

    /// Whether an item is in; if so, this is a use.
    pub fn hit(&mut self, item: Item) -> bool {
        self.items.touch(item).is_some()
    }

    /// Inserts an item or changes its size, and forgets the oldest ones for it.
    pub fn insert(&mut self, item: Item, size: Bytes) {
        self.remove(item);
        if size > self.size {
            return;
        }
        self.items.insert(item, size.0);
        self.used += size;
        while self.used > self.size {
            let Some((_, size)) = self.items.pop_oldest() else { break };
            self.used = self.used - Bytes(size);
        }
    }

    /// Removes an item.
    pub fn remove(&mut self, item: Item) {
        if let Some(size) = self.items.remove(&item) {
            self.used = self.used - Bytes(size);
        }
    }
}
