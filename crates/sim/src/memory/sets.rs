//! A set-associative table that forgets the least recently used key of a set: a cache, or a TLB.

/// What an access found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Hit,
    /// The key is there now; the key that left was changed, or not.
    Miss {
        evicted_changed: bool,
    },
}

/// The table. Each set has its keys in one row, the most recent first.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    /// Keys, with a mark of change in the lowest bit.
    rows: Vec<u64>,
    ways: usize,
}

const EMPTY: u64 = u64::MAX;

impl Sets {
    /// Creates an empty table of so many entries, at least one set.
    pub(super) fn new(entries: usize, ways: usize) -> Self {
        let ways = ways.max(1);
        Self { rows: vec![EMPTY; (entries / ways).max(1) * ways], ways }
    }

    fn row(&mut self, key: u64) -> &mut [u64] {
        let sets = self.rows.len() / self.ways;
        let first = (key % sets as u64) as usize * self.ways;
        &mut self.rows[first..first + self.ways]
    }

    /// Uses a key, which takes the place of another if it is new; `changes` marks it.
    pub(super) fn access(&mut self, key: u64, changes: bool) -> Found {
        let row = self.row(key);
        let mark = u64::from(changes);
        if let Some(at) = row.iter().position(|entry| *entry != EMPTY && entry >> 1 == key) {
            let entry = row[at] | mark;
            row.copy_within(..at, 1);
            row[0] = entry;
            return Found::Hit;
        }
        let last = row[row.len() - 1];
        row.copy_within(..row.len() - 1, 1);
        row[0] = key << 1 | mark;
        Found::Miss { evicted_changed: last != EMPTY && last & 1 == 1 }
    }

    /// Removes a key; returns whether it was there and changed.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        let row = self.row(key);
        let Some(at) = row.iter().position(|entry| *entry != EMPTY && entry >> 1 == key) else {
            return false;
        };
        let changed = row[at] & 1 == 1;
        row.copy_within(at + 1.., at);
        row[row.len() - 1] = EMPTY;
        changed
    }
}
