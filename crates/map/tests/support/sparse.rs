//! Extents far apart, as many as are admitted.

use super::pool::{META, POOL, Shape, create, open, superblocks};
use super::store::MemStore;
use super::twin::{State, key};
use weir_map::root::Root;
use weir_map::superblock::ROOT_AT;
use weir_map::{ExtentState, Hardening, Location, Map, PAGE, SpaceReservation, Superblock};
use weir_model::{BlockRange, Bytes, DeviceId, Store, VolumeId};

pub struct Sparse {
    store: MemStore,
    superblocks: Vec<Superblock>,
    map: Map,
    volume: VolumeId,
    /// The distance between two extents.
    distance: u64,
    blocks: u16,
}

impl Sparse {
    pub fn new(shape: Shape, power: u32) -> Self {
        let superblocks = superblocks(shape);
        let mut store = MemStore::new(2);
        create(&mut store, &superblocks).expect("nothing is wrong with the devices");
        let (mut map, _) = open(&mut store, &superblocks).expect("a new pool opens");
        let volume = map.create_volume("sparse", Bytes(1 << 62), Hardening::Flush, 1);
        let blocks = map.extent().blocks();
        let mut sparse = Self { store, superblocks, map, volume, distance: 100u64.pow(power), blocks };
        sparse.commit();
        sparse
    }

    /// Runs steps that pick an extent and an operation.
    pub fn run(&mut self, steps: &[(u64, u8)]) {
        for (pick, kind) in steps {
            let key = key(self.volume, pick % 150 * self.distance % (1 << 46));
            let first = BlockRange { first: 0, count: 1 };
            let all = BlockRange { first: 0, count: self.blocks };
            match (kind, self.map.find(key)) {
                (0..=33, ExtentState::Empty) if self.map.has_metadata_space() => {
                    let device = DeviceId((pick % 2) as u8);
                    if let Some(whole) = self.map.allocate(device) {
                        self.map.attach_place(key, whole);
                        let range = if kind % 8 > 0 { all } else { first };
                        self.map.mark_written(key, whole, range, None);
                    }
                }
                (34, _) => {
                    self.map.clear_blocks(key, all, SpaceReservation::Release);
                    self.map.release_empty_places(key);
                }
                (35, _) => self.commit(),
                (36, _) => self.checkpoint(),
                (37.., _) => self.move_all(),
                _ => {}
            }
        }
        (0..4).for_each(|_| self.move_all());
    }

    /// Repeatedly writes as many extents as are admitted, each time others, and frees them all, with no
    /// checkpoint in between; then writes some that stay, through checkpoints.
    pub fn churn(&mut self, rounds: u64) {
        for round in 0..rounds {
            let filled = self.fill(round * 1000);
            for n in filled {
                let key = key(self.volume, n * self.distance % (1 << 46));
                self.map.clear_blocks(
                    key,
                    BlockRange { first: 0, count: self.blocks },
                    SpaceReservation::Release,
                );
                self.map.release_empty_places(key);
            }
            self.commit();
        }
        let kept = self.fill(0);
        for _ in 0..4 {
            self.touch(kept.clone());
            self.commit();
            self.checkpoint();
        }
    }

    /// Changes the leaves of these extents: clears or writes the first block.
    fn touch(&mut self, extents: std::ops::Range<u64>) {
        let first = BlockRange { first: 0, count: 1 };
        for n in extents {
            let key = key(self.volume, n * self.distance % (1 << 46));
            let whole = match self.map.find(key) {
                ExtentState::Direct(_) => None,
                ExtentState::Record(record) => match record.places[0].at {
                    Location::Whole(whole) => Some(whole),
                    Location::Fine { .. } => None,
                },
                ExtentState::Empty => None,
            };
            match whole {
                Some(whole) => self.map.mark_written(key, whole, first, None),
                None => self.map.clear_blocks(key, first, SpaceReservation::Unchanged),
            }
        }
    }

    fn fill(&mut self, first: u64) -> std::ops::Range<u64> {
        let all = BlockRange { first: 0, count: self.blocks };
        let mut n = first;
        while self.map.has_metadata_space() && n - first < 1000 {
            let Some(whole) = self.map.allocate(DeviceId((n % 2) as u8)) else { break };
            let key = key(self.volume, n * self.distance % (1 << 46));
            self.map.attach_place(key, whole);
            self.map.mark_written(key, whole, all, None);
            n += 1;
        }
        self.commit();
        first..n
    }

    /// Changes every leaf, and makes that durable.
    fn move_all(&mut self) {
        let all = BlockRange { first: 0, count: self.blocks };
        for n in 0..150 {
            let key = key(self.volume, n * self.distance % (1 << 46));
            if let ExtentState::Direct(old) = self.map.find(key)
                && let Some(new) = self.map.allocate(old.device)
            {
                self.map.attach_place(key, new);
                self.map.mark_written(key, new, all, None);
                self.map.release_empty_places(key);
            }
        }
        self.commit();
        self.checkpoint();
    }

    fn commit(&mut self) {
        let (mut bytes, mut released) = (Vec::new(), Vec::new());
        self.map.begin_commit();
        loop {
            while !self.map.has_journal_space() {
                self.map.finish_commit(&mut released);
                self.checkpoint();
            }
            let Some(to) = self.map.next_frame(|_| None, &mut bytes) else { break };
            self.store.write(META, to, &bytes).expect("nothing fails here");
            self.store.flush(META).expect("nothing fails here");
        }
        self.map.finish_commit(&mut released);
        released.into_iter().for_each(|chunk| self.map.reuse(chunk));
    }

    fn checkpoint(&mut self) {
        let mut bytes = Vec::new();
        self.map.begin_checkpoint().expect("room was kept for it");
        while let Some(to) = self.map.next_pages(16 * PAGE, &mut bytes) {
            self.store.write(META, to, &bytes).expect("nothing fails here");
        }
        self.store.flush(META).expect("nothing fails here");
        self.check_older_root();
        let (root, page, to) = self.map.finished_root().expect("all pages were taken");
        self.store.write(META, to, &page[..]).expect("nothing fails here");
        self.store.flush(META).expect("nothing fails here");
        self.map.finish_checkpoint(root);
    }

    /// Checks, with every page of the next checkpoint written but not its root, that the older of the two
    /// roots and the journal after it contain everything too, in case the newer root is damaged.
    fn check_older_root(&self) {
        let slots = ROOT_AT.map(|at| at.0 / PAGE as u64);
        let sequence = |n: &u64| Root::decode(&self.store.page(META, *n), POOL).map(|r| r.sequence);
        let newest = slots.into_iter().max_by_key(sequence).expect("there are two");
        let mut store = self.store.clone();
        store.set_page(META, newest, [0; PAGE]);
        let (map, _) = open(&mut store, &self.superblocks).expect("the older root is whole");
        assert_eq!(State::of(&map), State::of(&self.map), "what the older root leads to");
    }
}
