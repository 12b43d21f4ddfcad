//! Extents far apart, as many as are admitted.

use super::history::{META, Shape, create, open, superblocks};
use super::store::MemStore;
use super::twin::key;
use weir_map::{Found, Hardening, KeepSpace, Map};
use weir_model::{BlockRange, Bytes, DeviceId, Store, VolumeId};

pub struct Sparse {
    store: MemStore,
    map: Map,
    volume: VolumeId,
    /// Extents from one to the next.
    distance: u64,
    blocks: u16,
}

impl Sparse {
    pub fn new(shape: Shape, power: u32) -> Self {
        let superblocks = superblocks(shape);
        let mut store = MemStore::new(2);
        create(&mut store, &superblocks).expect("nothing is wrong with the devices");
        let (mut map, _) = open(&mut store, &superblocks).expect("a new pool opens");
        let volume = map.create_volume("sparse", Bytes(1 << 62), Hardening::Flush);
        let blocks = map.extent().blocks();
        let mut sparse = Self { store, map, volume, distance: 100u64.pow(power), blocks };
        sparse.commit();
        sparse
    }

    /// Steps pick an extent, and what to do with it.
    pub fn run(&mut self, steps: &[(u64, u8)]) {
        for (pick, kind) in steps {
            let key = key(self.volume, pick % 150 * self.distance % (1 << 46));
            let first = BlockRange { first: 0, count: 1 };
            let all = BlockRange { first: 0, count: self.blocks };
            match (kind, self.map.find(key)) {
                (0..=5, Found::Empty) if self.map.has_metadata_room() => {
                    let device = DeviceId((pick % 2) as u8);
                    if let Some(whole) = self.map.allocate(device) {
                        self.map.place(key, whole);
                        let range = if kind % 2 == 0 { all } else { first };
                        self.map.written(key, whole, range, None);
                    }
                }
                (6, _) => {
                    self.map.cleared(key, all, KeepSpace::No);
                    self.map.give_back(key);
                }
                (7 | 8, _) => self.commit(),
                (9, _) => self.checkpoint(),
                _ => {}
            }
        }
        self.commit();
        (0..3).for_each(|_| self.checkpoint());
    }

    fn commit(&mut self) {
        let (mut bytes, mut released) = (Vec::new(), Vec::new());
        self.map.begin_commit();
        loop {
            while !self.map.has_journal_room() {
                self.map.commit_durable(&mut released);
                self.checkpoint();
            }
            let Some(to) = self.map.next_frame(|_| None, &mut bytes) else { break };
            self.store.write(to.device, to.at, &bytes).expect("nothing fails here");
            self.store.flush(META).expect("nothing fails here");
        }
        self.map.commit_durable(&mut released);
        released.into_iter().for_each(|whole| self.map.reuse(whole));
    }

    fn checkpoint(&mut self) {
        self.map.checkpoint_now(&mut self.store).expect("room was kept for it");
    }
}
