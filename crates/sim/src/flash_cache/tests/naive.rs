//! A cache in a log as simple as possible, with the same rules, that keeps the data.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Contents of a block: the number of the request that wrote it.
type Version = u64;

struct Naive {
    pages: usize,
    start: usize,
    capacity: usize,
    evict: Evict,
    /// Share of the capacity that may be dirty; `None` with write-through.
    dirty_share: Option<f64>,
    /// Closed segments in the order in which they were closed, as blocks with the places they were valid at.
    closed: VecDeque<Vec<u64>>,
    open: Vec<u64>,
    free: usize,
    /// Segment by a number that is never used again, and page, of each valid block.
    places: BTreeMap<u64, (u64, usize)>,
    numbers: VecDeque<u64>,
    open_number: u64,
    next_number: u64,
    /// The blocks in the order of their use, the last used at the end.
    used: Vec<u64>,
    /// Versions in the cache, in the backing store, and of the user.
    cached: BTreeMap<u64, Version>,
    stored: BTreeMap<u64, Version>,
    newest: BTreeMap<u64, Version>,
    dirty: Vec<u64>,
    hits: u64,
    copied: u64,
    dropped: u64,
    erases: u64,
    /// Fewest valid blocks after a drop.
    least_after_drop: usize,
}

impl Naive {
    fn new(plan: &FlashCache) -> Self {
        let config = plan.log.config(plan.capacity, Bytes(4096), &plan.evict).expect("valid settings");
        Self {
            pages: config.pages as usize,
            start: config.thresholds.start as usize,
            capacity: plan.capacity as usize,
            evict: plan.evict,
            dirty_share: plan.mode.dirty(),
            closed: VecDeque::new(),
            open: Vec::new(),
            free: config.segments as usize - 1,
            places: BTreeMap::new(),
            numbers: VecDeque::new(),
            open_number: 0,
            next_number: 1,
            used: Vec::new(),
            cached: BTreeMap::new(),
            stored: BTreeMap::new(),
            newest: BTreeMap::new(),
            dirty: Vec::new(),
            hits: 0,
            copied: 0,
            dropped: 0,
            erases: 0,
            least_after_drop: usize::MAX,
        }
    }

    fn write_back(&mut self, block: u64) {
        if let Some(at) = self.dirty.iter().position(|dirty| *dirty == block) {
            self.dirty.remove(at);
            self.stored.insert(block, self.cached[&block]);
        }
    }

    /// Writes back the dirty blocks of a victim that leave, each with the dirty ones of the victim at the
    /// adjacent addresses.
    fn write_back_with_neighbours(&mut self, of_victim: &BTreeSet<u64>, leaving: &BTreeSet<u64>) {
        let dirty: BTreeSet<u64> =
            of_victim.iter().copied().filter(|block| self.dirty.contains(block)).collect();
        for block in leaving.intersection(&dirty) {
            let below = (0..*block).rev().take_while(|other| dirty.contains(other));
            let above = (block + 1..).take_while(|other| dirty.contains(other));
            for written in below.chain([*block]).chain(above).collect::<Vec<_>>() {
                self.write_back(written);
            }
        }
    }

    fn take_free(&mut self) {
        assert!(self.free > 0, "no free segment");
        self.free -= 1;
        self.open_number = self.next_number;
        self.next_number += 1;
    }

    /// Appends a block, to an open segment with room.
    fn append(&mut self, block: u64) {
        self.places.insert(block, (self.open_number, self.open.len()));
        self.open.push(block);
        if self.open.len() == self.pages {
            self.closed.push_back(std::mem::take(&mut self.open));
            self.numbers.push_back(self.open_number);
            self.open_number = u64::MAX;
        }
    }

    /// Cleans the segment that was closed first.
    fn clean(&mut self) {
        let victim = self.closed.pop_front().expect("a victim");
        let number = self.numbers.pop_front().expect("a number");
        let pages = victim.into_iter().enumerate();
        let valid: Vec<_> =
            pages.filter(|(page, block)| self.places.get(block) == Some(&(number, *page))).collect();
        let dropped = match self.evict {
            Evict::Cleaner(Guarantee { share, .. }) => {
                self.places.len().saturating_sub((self.capacity as f64 * share) as usize).min(valid.len())
            }
            Evict::Cache(_) => 0,
        };
        let (leaving, staying) = valid.split_at(dropped);
        let leaving: BTreeSet<u64> = leaving.iter().map(|(_, block)| *block).collect();
        self.write_back_with_neighbours(&valid.iter().map(|(_, block)| *block).collect(), &leaving);
        for block in &leaving {
            self.places.remove(block);
            self.cached.remove(block);
            self.dropped += 1;
            self.least_after_drop = self.least_after_drop.min(self.places.len());
        }
        for (_, block) in staying {
            if self.open_number == u64::MAX {
                self.take_free();
            }
            self.append(*block);
            self.copied += 1;
        }
        self.erases += 1;
        self.free += 1;
    }

    fn write(&mut self, block: u64, version: Version) {
        while self.open_number == u64::MAX {
            if self.free > self.start {
                self.take_free();
            } else {
                self.clean();
            }
        }
        self.append(block);
        self.cached.insert(block, version);
    }

    fn evict_for(&mut self, block: u64) {
        if matches!(self.evict, Evict::Cache(_)) && self.places.len() == self.capacity {
            let leaving = self.used.remove(0);
            self.write_back(leaving);
            self.places.remove(&leaving);
            self.cached.remove(&leaving);
        }
        self.used.push(block);
    }

    fn access(&mut self, block: u64, is_write: bool, version: Version) {
        let is_hit = self.places.contains_key(&block);
        self.hits += u64::from(is_hit);
        if is_hit {
            // What the user reads is what it last wrote.
            assert_eq!(self.cached[&block], self.newest.get(&block).copied().unwrap_or(0));
            self.used.retain(|other| *other != block);
            self.used.push(block);
        } else {
            assert_eq!(self.stored.get(&block), self.newest.get(&block), "block {block} is lost");
            self.evict_for(block);
        }
        if is_write {
            self.newest.insert(block, version);
        } else if is_hit {
            return;
        }
        self.write(block, self.newest.get(&block).copied().unwrap_or(0));
        match self.dirty_share {
            Some(share) if is_write && !self.dirty.contains(&block) => {
                let most = ((self.capacity as f64 * share) as usize).max(1);
                if self.dirty.len() == most {
                    self.write_back(self.dirty[0]);
                }
                self.dirty.push(block);
            }
            None if is_write => drop(self.stored.insert(block, version)),
            _ => {}
        }
    }
}

fn evictions() -> impl Strategy<Value = Evict> {
    prop_oneof![Just(lru()), (0..=4).prop_map(|quarters| gc(f64::from(quarters) / 4.0))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn cache_equals_its_naive_twin(
        evict in evictions(),
        dirty in prop_oneof![Just(None), (0.05_f64..1.0).prop_map(Some)],
        capacity in 20_u32..60,
        requests in prop::collection::vec((any::<bool>(), 0_u64..150, 0_u8..10), 1..600),
    ) {
        let mode = dirty.map_or(WriteMode::Through, |dirty| WriteMode::Back { dirty });
        let mut plan = FlashCache { mode, ..cache(capacity, evict) };
        plan.log.victims = Victims::Policy(reclaim::by_name("oldest").expect("it is listed"));
        // Most requests go to few blocks.
        let near = |block: u64, kind: u8| if kind < 7 { block % 40 } else { block };
        let op = |is_write| if is_write { Op::Write } else { Op::Read };
        let records: Vec<_> = requests.iter().map(|(w, b, k)| record(op(*w), near(*b, *k), 1)).collect();
        let trace = load(&records);
        let mut naive = Naive::new(&plan);
        for (version, (is_write, block, kind)) in (1..).zip(&requests) {
            naive.access(near(*block, *kind), *is_write, version);
        }
        let mut player = Player::new(&trace, &plan).expect("a cache");
        player.play(0).expect("it goes on");
        for (number, key) in (0..).zip(trace.keys()) {
            let is_in = player.contains(weir_policy::eviction::Block(number));
            prop_assert_eq!(is_in, naive.places.contains_key(key), "block {}", key);
        }
        let outcome = player.finish();
        let all = outcome.cache.all();
        prop_assert_eq!(all.accesses - all.misses, naive.hits);
        let pages = outcome.flash.pages;
        let done = (pages.copied, pages.dropped, pages.erases);
        prop_assert_eq!(done, (naive.copied, naive.dropped, naive.erases));
        prop_assert_eq!(outcome.cache.dirty, naive.dirty.len() as u64);
        prop_assert_eq!(outcome.flash.valid_pages, naive.places.len() as u64);
        // The guarantee is kept, and everything the user wrote is somewhere.
        if let Evict::Cleaner(guarantee) = plan.evict {
            let least = (f64::from(capacity) * guarantee.share) as usize;
            prop_assert!(naive.least_after_drop >= least);
        }
        for (block, newest) in &naive.newest {
            let is_dirty = naive.dirty.contains(block);
            let somewhere = if is_dirty { naive.cached.get(block) } else { naive.stored.get(block) };
            prop_assert_eq!(Some(newest), somewhere);
        }
    }

    /// The guarantee is kept at every moment, by any victim policy, with containers or without.
    #[test]
    fn guarantee_is_never_undercut(
        share in 0.0_f64..1.0,
        policy in 0..reclaim::ALL.len(),
        is_split: bool,
        whole: bool,
        blocks in prop::collection::vec(0_u64..200, 200..600),
    ) {
        let drop = if whole { Drop::Segment } else { Drop::Page };
        let evict = Evict::Cleaner(Guarantee { share, drop });
        let mut plan = FlashCache { mode: WriteMode::Back { dirty: 0.5 }, ..cache(50, evict) };
        plan.log.victims = Victims::Policy(&reclaim::ALL[policy]);
        if is_split {
            plan.containers = vec![Container { size: Bytes(100 * 4096), share: 0.5 }];
        }
        let records: Vec<_> = blocks.iter().map(|block| record(Op::Write, *block, 1)).collect();
        let trace = load(&records);
        let mut player = Player::new(&trace, &plan).expect("a cache");
        let mut most = vec![0; player.owners().len()];
        for end in 0..trace.requests() {
            player.play_one(end).expect("it goes on");
            for (most, owner) in most.iter_mut().zip(player.owners()) {
                *most = owner.valid.max(*most);
                // Once so much was cached, it stays; nothing is trimmed here.
                prop_assert!(owner.valid >= owner.guarantee.min(*most), "{:?}", owner);
            }
        }
    }
}
