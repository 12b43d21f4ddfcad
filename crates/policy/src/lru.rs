//! A bounded table of recently used keys.

use rustc_hash::FxHashMap;
use std::hash::Hash;
use weir_model::Bytes;

const NONE: u32 = u32::MAX;

/// The neighbours of a key in the order of use.
#[derive(Clone, Copy, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

/// Keys with values in the order of their last use; beyond a bound the least recently used one is forgotten.
/// Cost: a look-up of the key's number, and a few loads to reorder.
#[derive(Clone, Debug)]
pub struct Lru<K, V> {
    capacity: usize,
    index: FxHashMap<K, u32>,
    /// By number. Links are apart, because reordering needs nothing else: more of them fit a cache.
    items: Vec<(K, V)>,
    links: Vec<Links>,
    free: Vec<u32>,
    newest: u32,
    /// The key of that number, which is often requested next.
    newest_key: Option<K>,
    oldest: u32,
}

impl<K: Copy + Eq + Hash, V: Copy> Lru<K, V> {
    /// Creates a table of at most `most` keys, at least one.
    pub fn new(capacity: usize) -> Self {
        let most = capacity.clamp(1, NONE as usize);
        Self {
            capacity: most,
            index: FxHashMap::default(),
            items: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            newest_key: None,
            oldest: NONE,
        }
    }

    const ITEM_BYTES: usize = size_of::<(K, V)>() + size_of::<Links>();
    /// An entry of the hash table.
    const INDEX_BYTES: usize = size_of::<(K, u32)>() + 1;

    /// The memory of an entry in bytes, including its share of the hash table when that is fullest.
    pub const ENTRY_BYTES: usize = Self::ITEM_BYTES + 8 * Self::INDEX_BYTES / 7;

    /// The memory of an entry in bytes just after the hash table has doubled.
    pub const ENTRY_BYTES_MAX: usize = Self::ITEM_BYTES + 16 * Self::INDEX_BYTES / 7;

    /// Returns the memory it has taken.
    pub fn memory(&self) -> Bytes {
        let items = self.items.capacity() * size_of::<(K, V)>() + self.links.capacity() * size_of::<Links>();
        Bytes(
            (items
                + self.free.capacity() * size_of::<u32>()
                + self.index.capacity() * (8 * Self::INDEX_BYTES / 7)) as u64,
        )
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    /// Returns the number of a key.
    #[inline]
    fn find(&self, key: &K) -> Option<u32> {
        if self.newest_key == Some(*key) { Some(self.newest) } else { self.index.get(key).copied() }
    }

    /// Returns the value of a key, and makes it the most recently used.
    #[inline]
    pub fn touch(&mut self, key: K) -> Option<&mut V> {
        if self.newest_key != Some(key) && !self.make_newest(&key) {
            return None;
        }
        self.newest_mut()
    }

    /// Makes a key the most recently used, if it is in the table.
    #[inline(never)]
    fn make_newest(&mut self, key: &K) -> bool {
        let Some(at) = self.index.get(key).copied() else { return false };
        self.unlink(at);
        self.link_newest(at, *key);
        true
    }

    /// Returns the value of the most recently used key.
    #[inline]
    pub fn newest_mut(&mut self) -> Option<&mut V> {
        self.items.get_mut(self.newest as usize).map(|(_, value)| value)
    }

    /// Returns the value of a key without changing the order.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key).map(|at| &self.items[at as usize].1)
    }

    /// Returns the value of a key, mutably, without changing the order.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).map(|at| &mut self.items[at as usize].1)
    }

    /// Sets the value of a key, as the most recently used. Returns the entry that is forgotten or replaced.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some(old) = self.touch(key) {
            return Some((key, std::mem::replace(old, value)));
        }
        let gone = if self.len() == self.capacity { self.pop_oldest() } else { None };
        let at = match self.free.pop() {
            Some(at) => {
                self.items[at as usize] = (key, value);
                at
            }
            None => {
                let len = self.items.len();
                if len == self.items.capacity() {
                    // Doubles the capacity, but not beyond the maximum.
                    let more = len.max(4).min(self.capacity - len);
                    self.items.reserve_exact(more);
                    self.links.reserve_exact(more);
                }
                self.items.push((key, value));
                self.links.push(Links { newer: NONE, older: NONE });
                len as u32
            }
        };
        self.index.insert(key, at);
        self.link_newest(at, key);
        gone
    }

    /// Removes the least recently used entry.
    pub fn pop_oldest(&mut self) -> Option<(K, V)> {
        let key = self.items.get(self.oldest as usize)?.0;
        self.remove(&key).map(|value| (key, value))
    }

    /// Removes a key. Returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.index.remove(key)?;
        self.unlink(at);
        self.free.push(at);
        self.newest_key = self.items.get(self.newest as usize).map(|(key, _)| *key);
        Some(self.items[at as usize].1)
    }

    /// Iterates from the most to the least recently used.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> + '_ {
        self.walk(self.newest, |links| links.older)
    }

    /// Iterates from the least to the most recently used.
    pub fn iter_oldest(&self) -> impl Iterator<Item = (K, &V)> + '_ {
        self.walk(self.oldest, |links| links.newer)
    }

    fn walk(&self, from: u32, next: fn(&Links) -> u32) -> impl Iterator<Item = (K, &V)> + '_ {
        let numbers = std::iter::successors(Some(from), move |at| self.links.get(*at as usize).map(next));
        numbers.map_while(|at| self.items.get(at as usize)).map(|(key, value)| (*key, value))
    }

    fn unlink(&mut self, at: u32) {
        let Links { newer, older } = self.links[at as usize];
        match self.links.get_mut(newer as usize) {
            Some(links) => links.older = older,
            None => self.newest = older,
        }
        match self.links.get_mut(older as usize) {
            Some(links) => links.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, at: u32, key: K) {
        let before = self.newest;
        self.links[at as usize] = Links { newer: NONE, older: before };
        match self.links.get_mut(before as usize) {
            Some(links) => links.newer = at,
            None => self.oldest = at,
        }
        (self.newest, self.newest_key) = (at, Some(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseError;

    /// Compares a step with a naive twin: a vector, the most recently used first.
    fn step(
        lru: &mut Lru<u8, u32>,
        twin: &mut Vec<(u8, u32)>,
        (most, what, key, value): (usize, u8, u8, u32),
    ) -> Result<(), TestCaseError> {
        let at = twin.iter().position(|(k, _)| *k == key);
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
        let value = |key: u8| twin.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        prop_assert_eq!(lru.get(&key).copied(), value(key));
        let all: Vec<_> = lru.iter().map(|(k, v)| (k, *v)).collect();
        prop_assert_eq!(&all, &*twin);
        let mut back: Vec<_> = lru.iter_oldest().map(|(k, v)| (k, *v)).collect();
        back.reverse();
        prop_assert_eq!((&back, lru.len()), (&*twin, twin.len()));
        Ok(())
    }

    proptest! {
        #[test]
        fn matches_vector_model(most in 1usize..6, steps in prop::collection::vec((0u8..5, 0u8..9), 0..80)) {
            let (mut lru, mut twin): (Lru<u8, u32>, _) = (Lru::new(most), Vec::new());
            for (value, (what, key)) in (0..).zip(steps) {
                step(&mut lru, &mut twin, (most, what, key, value))?;
            }
        }
    }

    #[test]
    fn shrinking_evicts_oldest() {
        let mut lru: Lru<u8, u8> = Lru::new(4);
        (0..6).for_each(|i| assert!(lru.insert(i, i).is_none() || i >= 4));
        assert_eq!(lru.set_capacity(2), [(2, 2), (3, 3)]);
        assert_eq!(lru.iter().map(|(k, _)| k).collect::<Vec<_>>(), [5, 4]);
    }
}
