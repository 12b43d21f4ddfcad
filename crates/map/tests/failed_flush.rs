//! A flush fails, the server ends, and the pool is opened again without a power loss: data that is not
//! durable is read all the same, and no later flush makes it durable. Nothing may build on it.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::Rng;
use support::pool::{self, META, Shape};
use support::store::MemStore;
use weir_map::create::{create_laid_out, read_superblock};
use weir_map::{Found, Hardening, Map, PAGE, Superblock, Whole};
use weir_model::{BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, PlaceId, PlaceKind, Store};

/// More flushes and writes than an opening makes here.
const MANY: u64 = 40;

/// Creates volumes, durable by a frame.
fn commit(map: &mut Map, store: &mut MemStore, names: std::ops::Range<u32>) {
    for name in names {
        map.create_volume(&format!("volume {name:020}"), Bytes::mib(1), Hardening::Flush, 1);
    }
    make_durable(map, store);
}

/// Makes all changes durable by a frame.
fn make_durable(map: &mut Map, store: &mut MemStore) {
    map.begin_commit();
    let mut bytes = Vec::new();
    while let Some(at) = map.next_frame(|_| None, &mut bytes) {
        store.write(META, at, &bytes).unwrap();
        store.flush(META).unwrap();
    }
    map.commit_durable(&mut Vec::new());
}

/// Sets up a pool with four volumes, the last two of which are only in the journal, and two roots that reach
/// pages.
fn pool() -> (MemStore, Vec<Superblock>, Map) {
    let sizes = pool::superblocks(Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 });
    let mut store = MemStore::new(sizes.len());
    pool::create(&mut store, &sizes).unwrap();
    let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
    for name in 0..2 {
        commit(&mut map, &mut store, name..name + 1);
        map.checkpoint_now(&mut store).unwrap();
    }
    commit(&mut map, &mut store, 2..4);
    (store, sizes, map)
}

/// Opens the pool with a power loss at every one of the writes, and again afterwards.
fn every_cut_is_survived(store: &MemStore, sizes: &[Superblock], volumes: usize, what: &str) {
    for (writes, seed) in (1..MANY).flat_map(|writes| (0..8).map(move |seed| (writes, seed))) {
        let mut store = store.clone();
        store.fail_after(writes);
        let _ = pool::open(&mut store, sizes);
        store.power_cut(&mut Rng(seed));
        let (map, _) = pool::open(&mut store, sizes)
            .unwrap_or_else(|error| panic!("{what}, cut at write {writes}, seed {seed}: {error}"));
        assert_eq!(map.catalogue().volumes.len(), volumes, "{what}, cut at write {writes}, seed {seed}");
    }
}

#[test]
fn of_a_root_written_when_opening() {
    let (store, sizes, map) = pool();
    drop(map);
    let mut failed = 0;
    for flushes in 0..MANY {
        let mut store = store.clone();
        store.fail_flush_after(META, flushes);
        failed += u64::from(pool::open(&mut store, &sizes).is_err());
        store.fail_flush_after(META, u64::MAX);
        every_cut_is_survived(&store, &sizes, 4, &format!("flush {flushes} failed"));
    }
    assert!((4..MANY).contains(&failed), "{failed} flushes failed while opening");
}

#[test]
fn of_a_root_written_while_serving() {
    let (mut store, sizes, mut map) = pool();
    map.begin_checkpoint().unwrap();
    // Recovery's first checkpoint takes more pages than the root before the previous one leaves.
    commit(&mut map, &mut store, 4..200);
    let mut bytes = Vec::new();
    while let Some(at) = map.next_pages(PAGE, &mut bytes) {
        store.write(META, at, &bytes).unwrap();
    }
    store.flush(META).unwrap();
    let (_, page, at) = map.finished_root().unwrap();
    store.write(META, at, &page[..]).unwrap();
    store.fail_flush(META);
    store.flush(META).unwrap_err();
    drop(map);
    every_cut_is_survived(&store, &sizes, 200, "the root's flush failed");
}

#[test]
fn of_a_superblock_written_when_creating() {
    let sizes = pool::superblocks(Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 });
    let mut opened = 0;
    for (device, flushes) in sizes.iter().flat_map(|sb| (0..MANY).map(move |flushes| (sb.device, flushes))) {
        let mut store = MemStore::new(sizes.len());
        store.fail_flush_after(device, flushes);
        if create_laid_out(&mut store, &sizes).is_ok() {
            continue;
        }
        let read = |sb: &Superblock| matches!(read_superblock(&mut store, sb.device, sb.size), Ok(Some(_)));
        if !sizes.iter().all(read) {
            continue;
        }
        opened += 1;
        drop(pool::open(&mut store, &sizes).unwrap());
        for seed in 0..8 {
            let mut store = store.clone();
            store.power_cut(&mut Rng(seed));
            pool::open(&mut store, &sizes)
                .unwrap_or_else(|error| panic!("{device}, flush {flushes}, seed {seed}: {error}"));
        }
    }
    assert!(opened > 0, "no pool looked complete though its creation failed");
}

/// A pool with an extent in two places, all of it under a durable intent.
struct TwoCopies {
    store: MemStore,
    sizes: Vec<Superblock>,
    map: Map,
    key: ExtentKey,
    wholes: [Whole; 2],
}

impl TwoCopies {
    fn new() -> Self {
        Self::of(2)
    }

    /// Creates one whose volume wants this many copies.
    fn of(copies: u8) -> Self {
        let sizes =
            pool::superblocks_of(Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 }, &[50; 3]);
        let mut store = MemStore::new(sizes.len());
        pool::create(&mut store, &sizes).unwrap();
        let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
        let volume = map.create_volume("copied", Bytes::mib(1), Hardening::Flush, copies);
        make_durable(&mut map, &mut store);
        let key = ExtentKey { volume, index: ExtentIndex(3) };
        let all = BlockRange { first: 0, count: map.extent().blocks() };
        let wholes = [DeviceId(1), DeviceId(2)].map(|device| map.allocate(device).unwrap());
        wholes.into_iter().for_each(|whole| map.place(key, whole));
        let mut new = Self { store, sizes, map, key, wholes };
        new.write(1);
        wholes.into_iter().for_each(|whole| new.store.flush(whole.device).unwrap());
        new.map.written_duplexed(key, wholes, all, [None; 2]);
        make_durable(&mut new.map, &mut new.store);
        new.map.intend(key, all);
        make_durable(&mut new.map, &mut new.store);
        new
    }

    /// Writes both places completely.
    fn write(&mut self, byte: u8) {
        for whole in self.wholes {
            self.store.write(whole.device, self.map.address(whole, 0), &[byte; 65536]).unwrap();
        }
    }

    /// Returns the page of a device with a block of one of the places.
    fn page(&self, whole: Whole, block: u64) -> u64 {
        self.map.address(whole, 0).0 / PAGE as u64 + block
    }

    fn open_again(&mut self) {
        self.map = pool::open(&mut self.store, &self.sizes).unwrap().0;
    }

    /// Returns the devices that are valid for a block.
    fn holders(&self, block: u16) -> Vec<DeviceId> {
        let Found::Record(record) = self.map.find(self.key) else { panic!("{:?}", self.map.find(self.key)) };
        record.places.iter().filter(|p| p.valid.contains(block)).map(|p| p.at.id().device).collect()
    }

    /// Returns the blocks with an intent.
    fn intended(&self) -> Vec<u16> {
        match self.map.find(self.key) {
            Found::Record(record) => record.intent.iter().flat_map(|intent| intent.iter()).collect(),
            Found::Empty | Found::Direct(_) => Vec::new(),
        }
    }

    fn read(&self, store: &mut MemStore, whole: Whole) -> Vec<u8> {
        let mut bytes = vec![0; 65536];
        store.read(whole.device, self.map.address(whole, 0), &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn of_a_copy_that_is_chosen() {
    let mut pool = TwoCopies::new();
    pool.write(2);
    for whole in pool.wholes {
        pool.store.fail_flush(whole.device);
        pool.store.flush(whole.device).unwrap_err();
    }
    // Data read now, and perhaps copied, is still there after a power loss.
    pool.open_again();
    let chosen = pool.wholes[0];
    assert!((0..16).all(|block| pool.holders(block) == [chosen.device]));
    let found = pool.read(&mut pool.store.clone(), chosen);
    assert_eq!(found, [2; 65536]);
    for seed in 0..8 {
        let mut store = pool.store.clone();
        store.power_cut(&mut Rng(seed));
        assert_eq!(pool.read(&mut store, chosen), found, "seed {seed}");
    }
}

#[test]
fn a_copy_that_cannot_be_written_again_is_not_chosen() {
    let mut pool = TwoCopies::new();
    pool.store.fail_read(DeviceId(1), pool.page(pool.wholes[0], 0));
    pool.open_again();
    assert!((0..16).all(|block| pool.holders(block) == [DeviceId(2)]));
}

#[test]
fn a_sector_that_cannot_be_read_decides_for_its_block_only() {
    let mut pool = TwoCopies::new();
    let bad = [0, 1].map(|copy| pool.page(pool.wholes[copy], 3 + copy as u64));
    pool.store.spoil(DeviceId(1), bad[0]);
    pool.store.spoil(DeviceId(2), bad[1]);
    pool.open_again();
    let holders: Vec<_> = (0..16).map(|block| pool.holders(block)).collect();
    let second = |block| if block == 3 { DeviceId(2) } else { DeviceId(1) };
    assert_eq!(holders, (0..16).map(|block| vec![second(block)]).collect::<Vec<_>>());
}

#[test]
fn what_no_device_takes_again_is_not_left_to_one_that_is_away() {
    let mut pool = TwoCopies::new();
    pool.store.spoil(DeviceId(2), pool.page(pool.wholes[1], 5));
    pool.store.set_broken(DeviceId(1), true);
    pool.map = pool::open_without(&mut pool.store, &pool.sizes, &[DeviceId(1)]).unwrap().0;
    assert!((0..16).all(|block| pool.holders(block) == [DeviceId(2)]));
    assert_eq!(pool.intended(), [5], "what could not be settled is left to a later opening");
}

#[test]
fn of_the_only_place_of_blocks_that_are_in_doubt() {
    for copies in [1, 2] {
        let mut pool = TwoCopies::of(copies);
        let [first, second] = pool.wholes;
        let all = BlockRange { first: 0, count: 16 };
        assert!(pool.map.dropped(pool.key, PlaceId { device: second.device, kind: PlaceKind::Whole }, all));
        make_durable(&mut pool.map, &mut pool.store);
        assert_eq!(pool.intended().len(), 16);
        pool.write(2);
        pool.store.fail_flush(first.device);
        pool.store.flush(first.device).unwrap_err();
        pool.open_again();
        assert_eq!(pool.intended(), [0; 0]);
        for seed in 0..8 {
            let mut store = pool.store.clone();
            store.power_cut(&mut Rng(seed));
            assert_eq!(pool.read(&mut store, first), [2; 65536], "seed {seed}");
        }
    }
}

#[test]
fn where_one_copy_is_wanted_an_intent_lets_nobody_write_one_of_two_places() {
    for copies in [1, 2] {
        let pool = TwoCopies::of(copies);
        let place = |whole: Whole| PlaceId { device: whole.device, kind: PlaceKind::Whole };
        let may = |whole| pool.map.may_overwrite(pool.key, place(whole), BlockRange { first: 3, count: 2 });
        assert_eq!(pool.wholes.map(may), [copies == 2; 2]);
    }
}
