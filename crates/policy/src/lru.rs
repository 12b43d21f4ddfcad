//! A bounded table of recently used keys.

use rustc_hash::FxHashMap;
use std::hash::Hash;
use weir_model::Bytes;

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    newer: u32,
    older: u32,
}

/// Keys with values in the order of their last use; beyond a bound the least recently used one is forgotten.
/// Cost: a hash look-up, and a few loads to reorder.
#[derive(Clone, Debug)]
pub struct Lru<K, V> {
    capacity: usize,
    index: FxHashMap<K, u32>,
    entries: Vec<Entry<K, V>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl<K: Copy + Eq + Hash, V: Copy> Lru<K, V> {
    /// Creates a table of at most `most` keys, at least one.
    pub fn new(capacity: usize) -> Self {
        let most = capacity.clamp(1, NONE as usize);
        let (index, entries, free) = (FxHashMap::default(), Vec::new(), Vec::new());
        Self { capacity: most, index, entries, free, newest: NONE, oldest: NONE }
    }

    /// The memory of an entry in bytes, including its share of the hash table when that is fullest.
    pub const ENTRY_BYTES: usize = size_of::<Entry<K, V>>() + 8 * (size_of::<(K, u32)>() + 1) / 7;

    /// The memory of an entry in bytes just after the hash table has doubled.
    pub const ENTRY_BYTES_MAX: usize = size_of::<Entry<K, V>>() + 16 * (size_of::<(K, u32)>() + 1) / 7;

    /// Returns the memory it has taken.
    pub fn memory(&self) -> Bytes {
        let entries =
            self.entries.capacity() * size_of::<Entry<K, V>>() + self.free.capacity() * size_of::<u32>();
        Bytes((entries + self.index.capacity() * 8 * (size_of::<(K, u32)>() + 1) / 7) as u64)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the maximum number of keys.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the maximum, at least one. Returns the forgotten entries, oldest first.
    pub fn set_capacity(&mut self, capacity: usize) -> Vec<(K, V)> {
        self.capacity = capacity.clamp(1, NONE as usize);
        let mut gone = Vec::new();
        while self.len() > self.capacity {
            gone.extend(self.pop_oldest());
        }
        gone
    }

    /// Returns the index of a key's entry. The key used last is often requested next.
    #[inline]
    fn find(&self, key: &K) -> Option<u32> {
        match self.entries.get(self.newest as usize) {
            Some(newest) if newest.key == *key => Some(self.newest),
            _ => self.index.get(key).copied(),
        }
    }

    /// Returns the value of a key, and makes it the most recently used.
    #[inline]
    pub fn touch(&mut self, key: K) -> Option<&mut V> {
        let is_newest = self.entries.get(self.newest as usize).is_some_and(|newest| newest.key == key);
        if !is_newest && !self.make_newest(&key) {
            return None;
        }
        self.newest_mut()
    }

    /// Makes a key the most recently used, if it is in the table.
    #[inline(never)]
    fn make_newest(&mut self, key: &K) -> bool {
        let Some(at) = self.index.get(key).copied() else { return false };
        if at != self.newest {
            self.unlink(at);
            self.link_newest(at);
        }
        true
    }

    /// Returns the value of the most recently used key.
    #[inline]
    pub fn newest_mut(&mut self) -> Option<&mut V> {
        self.entries.get_mut(self.newest as usize).map(|entry| &mut entry.value)
    }

    /// Returns the value of a key without changing the order.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key).map(|at| &self.entries[at as usize].value)
    }

    /// Returns the value of a key, mutably, without changing the order.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).map(|at| &mut self.entries[at as usize].value)
    }

    /// Sets the value of a key, as the most recently used. Returns the entry that is forgotten or replaced.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some(old) = self.touch(key) {
            return Some((key, std::mem::replace(old, value)));
        }
        let gone = if self.len() == self.capacity { self.pop_oldest() } else { None };
        let entry = Entry { key, value, newer: NONE, older: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                if self.entries.len() == self.entries.capacity() {
                    // Doubles the capacity, but not beyond the maximum.
                    let len = self.entries.len();
                    self.entries.reserve_exact(len.max(4).min(self.capacity - len));
                }
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(key, at);
        self.link_newest(at);
        gone
    }

    /// Removes the least recently used entry.
    pub fn pop_oldest(&mut self) -> Option<(K, V)> {
        let key = self.entries.get(self.oldest as usize)?.key;
        self.remove(&key).map(|value| (key, value))
    }

    /// Removes a key. Returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.index.remove(key)?;
        self.unlink(at);
        self.free.push(at);
        Some(self.entries[at as usize].value)
    }

    /// Iterates from the most to the least recently used.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> + '_ {
        self.walk(self.newest, |entry| entry.older)
    }

    /// Iterates from the least to the most recently used.
    pub fn iter_oldest(&self) -> impl Iterator<Item = (K, &V)> + '_ {
        self.walk(self.oldest, |entry| entry.newer)
    }

    fn walk(&self, from: u32, next: fn(&Entry<K, V>) -> u32) -> impl Iterator<Item = (K, &V)> + '_ {
        let entry = |at: u32| self.entries.get(at as usize);
        std::iter::successors(entry(from), move |e| entry(next(e))).map(|e| (e.key, &e.value))
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let before = self.newest;
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, before);
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a naive twin: a vector, the most recently used first.
        #[test]
        fn matches_vector_model(most in 1usize..6, steps in prop::collection::vec((0u8..5, 0u8..9), 0..80)) {
            let mut lru = Lru::new(most);
            let mut twin: Vec<(u8, u32)> = Vec::new();
            for (step, (what, key)) in steps.into_iter().enumerate() {
                let at = twin.iter().position(|(k, _)| *k == key);
                let value = step as u32;
                match what {
                    0 | 1 => {
                        let gone = match at {
                            Some(at) => Some(twin.remove(at)),
                            None if twin.len() == most => twin.pop(),
                            None => None,
                        };
                        twin.insert(0, (key, value));
                        prop_assert_eq!(lru.insert(key, value), gone);
                    }
                    2 => {
                        if let Some(at) = at {
                            let entry = twin.remove(at);
                            twin.insert(0, entry);
                        }
                        prop_assert_eq!(lru.touch(key).copied(), at.map(|_| twin[0].1));
                    }
                    3 => prop_assert_eq!(lru.remove(&key), at.map(|at| twin.remove(at).1)),
                    _ => prop_assert_eq!(lru.pop_oldest(), twin.pop()),
                }
                prop_assert_eq!(lru.newest_mut().copied(), twin.first().map(|(_, v)| *v));
                let all: Vec<_> = lru.iter().map(|(k, v)| (k, *v)).collect();
                prop_assert_eq!(&all, &twin);
                let mut back: Vec<_> = lru.iter_oldest().map(|(k, v)| (k, *v)).collect();
                back.reverse();
                prop_assert_eq!((&back, lru.len()), (&twin, twin.len()));
            }
        }
    }

    #[test]
    fn shrinking_evicts_oldest() {
        let mut lru = Lru::new(4);
        (0..6).for_each(|i| assert!(lru.insert(i, i).is_none() || i >= 4));
        assert_eq!(lru.set_capacity(2), [(2, 2), (3, 3)]);
        assert_eq!(lru.iter().map(|(k, _)| k).collect::<Vec<_>>(), [5, 4]);
    }
}
