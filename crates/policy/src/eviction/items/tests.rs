//! Every policy compared with a naive twin: a vector of items that is searched for the lowest rank.

use super::*;
use crate::eviction::{ITEM_EVICTION, Trident};
use proptest::prelude::*;

/// An item of the twin.
#[derive(Clone, Copy, Debug)]
struct NaiveItem {
    item: Item,
    history: History,
    rank: f64,
}

/// The rules as published, without a heap.
struct Naive {
    policy: &'static str,
    omega: f64,
    items: Vec<NaiveItem>,
    accesses: u64,
    evictions: u64,
    last_rank: f64,
}

impl Naive {
    fn rank(&self, history: &History) -> f64 {
        let (accesses, size) = (history.accesses as f64, history.size.0.max(1) as f64);
        match self.policy {
            "trident" => history.clock as f64 + self.omega * accesses / size,
            "gdsf" => self.last_rank + accesses / size,
            "lru" => history.accessed as f64,
            "fifo" => history.inserted as f64,
            other => unreachable!("{other} has no twin"),
        }
    }

    fn position(&self, item: Item) -> Option<usize> {
        self.items.iter().position(|entry| entry.item == item)
    }

    fn touch(&mut self, item: Item, size: Bytes) {
        let (now, clock) = (self.accesses, self.evictions);
        let new = History { inserted: now, accessed: now, clock, accesses: 0, size };
        let at = self.position(item);
        let mut history = at.map_or(new, |at| self.items.remove(at).history);
        (history.accessed, history.clock, history.size) = (now, clock, size);
        history.accesses += 1;
        self.items.push(NaiveItem { item, history, rank: self.rank(&history) });
    }

    fn access(&mut self, item: Item, size: Bytes) {
        self.accesses += 1;
        let metadata = Item { part: Part::Metadata, ..item };
        if let Some(at) = self.position(metadata).filter(|_| item.part == Part::Data) {
            self.touch(metadata, self.items[at].history.size);
        }
        self.touch(item, size);
    }

    fn victim(&self) -> Option<NaiveItem> {
        let has_data = |file| self.position(Item { file, part: Part::Data }).is_some();
        let may_leave = |entry: &&NaiveItem| entry.item.part == Part::Data || !has_data(entry.item.file);
        let order = |entry: &NaiveItem| Order { rank: entry.rank, accessed: entry.history.accessed };
        self.items.iter().filter(may_leave).copied().min_by_key(|entry| (order(entry), entry.item))
    }

    fn evict(&mut self) -> Option<Item> {
        let victim = self.victim()?;
        self.items.retain(|entry| entry.item != victim.item);
        self.evictions += 1;
        self.last_rank = victim.rank;
        Some(victim.item)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access(Item, Bytes),
    Remove(Item),
    Evict,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let item = (0u64..8, any::<bool>()).prop_map(|(file, is_data)| Item {
        file: FileKey(file),
        part: if is_data { Part::Data } else { Part::Metadata },
    });
    let step = (item, 1u64..5000, 0u8..10).prop_map(|(item, size, what)| match what {
        0..6 => Step::Access(item, Bytes(size)),
        6 => Step::Remove(item),
        _ => Step::Evict,
    });
    prop::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn policies_match_their_naive_twins(steps in steps(), omega in prop_oneof![Just(0.0), 1.0..20_000.0]) {
        for policy in ITEM_EVICTION {
            let mut items = policy.start(&ItemSettings { omega });
            let mut twin = Naive {
                policy: policy.name, omega, items: Vec::new(), accesses: 0, evictions: 0, last_rank: 0.0,
            };
            for step in &steps {
                match *step {
                    Step::Access(item, size) => {
                        items.access(item, size);
                        twin.access(item, size);
                    }
                    Step::Remove(item) => {
                        let at = twin.position(item);
                        let size = at.map(|at| twin.items.remove(at).history.size);
                        prop_assert_eq!(items.remove(item), size);
                    }
                    Step::Evict => {
                        let evicted = items.evict().map(|(item, _)| item);
                        prop_assert_eq!(evicted, twin.evict(), "{}", policy.name);
                    }
                }
                let victim = twin.victim();
                prop_assert_eq!(items.victim(), victim.map(|entry| (entry.item, entry.history)));
                prop_assert_eq!(items.lowest_rank(), victim.map(|entry| entry.rank));
                let bytes = twin.items.iter().map(|entry| entry.history.size.0).sum();
                prop_assert_eq!((items.bytes(), items.len()), (Bytes(bytes), twin.items.len()));
            }
        }
    }

    /// Obsolete entries of the heap are bounded by the items.
    #[test]
    fn the_heap_stays_small(sizes in prop::collection::vec(1u64..10_000, 2000..2001)) {
        let mut items = ItemEviction::new(Box::new(Trident { omega: 1e6 }));
        for (nth, size) in sizes.into_iter().enumerate() {
            let item = Item { file: FileKey(nth as u64 % 10), part: Part::Data };
            // Growth lowers the rank, which queues the item again.
            items.access(item, Bytes(size * nth as u64));
        }
        prop_assert!(items.heap.len() <= 2 * 10 + OBSOLETE_MIN + 1, "{}", items.heap.len());
    }
}

fn data(file: u64) -> Item {
    Item { file: FileKey(file), part: Part::Data }
}

/// Equation (1), with numbers.
#[test]
fn recency_frequency_and_size_make_the_score() {
    let history = History { inserted: 1, accessed: 9, clock: 7, accesses: 3, size: Bytes(600) };
    assert!((Trident { omega: 1000.0 }.rank(&history) - 12.0).abs() < 1e-12);
    let mut items = ItemEviction::new(Box::new(Trident { omega: 1000.0 }));
    // Of the same age, the large one leaves before the small one, that before one accessed twice.
    items.access(data(1), Bytes(500));
    items.access(data(2), Bytes(1000));
    items.access(data(3), Bytes(500));
    items.access(data(3), Bytes(500));
    let order: Vec<_> = std::iter::from_fn(|| items.evict()).map(|(item, _)| item.file.0).collect();
    assert_eq!(order, [2, 1, 3]);
}

#[test]
fn metadata_leaves_after_its_data_and_shares_its_accesses() {
    let metadata = Item { file: FileKey(1), part: Part::Metadata };
    for policy in ITEM_EVICTION {
        let mut items = policy.start(&ItemSettings::default());
        items.access(metadata, Bytes(1 << 40));
        items.access(data(1), Bytes(1));
        assert_eq!(items.entries[&metadata].history.accesses, 2, "{}", policy.name);
        assert_eq!(items.evict().map(|(item, _)| item), Some(data(1)), "{}", policy.name);
        assert_eq!(items.evict().map(|(item, _)| item), Some(metadata), "{}", policy.name);
        assert_eq!((items.evict(), items.bytes()), (None, Bytes(0)));
    }
}

#[test]
fn a_new_size_changes_the_rank_without_an_access() {
    let mut items = ItemEviction::new(Box::new(Trident { omega: 1000.0 }));
    let item = |file| Item { file: FileKey(file), part: Part::Data };
    items.access(item(1), Bytes(10));
    items.access(item(2), Bytes(20));
    items.resize(item(1), Bytes(30));
    items.resize(item(3), Bytes(1));
    assert_eq!((items.len(), items.bytes()), (2, Bytes(50)));
    let (victim, history) = items.victim().expect("there are items");
    assert_eq!((victim, history.accesses, history.size), (item(1), 1, Bytes(30)));
    items.resize(item(1), Bytes(5));
    assert_eq!(items.victim().map(|(victim, _)| victim), Some(item(2)));
}
