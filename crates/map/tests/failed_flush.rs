//! A flush fails, the server ends, and the pool is opened again without a power loss: data that is not
//! durable is read all the same, and no later flush makes it durable. Nothing may build on it.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::Rng;
use support::pool::{self, META, Shape};
use support::store::MemStore;
use weir_map::create::{create_with_layout, read_superblock};
use weir_map::{ExtentState, Hardening, Map, PAGE, Superblock, Whole};
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
    map.finish_commit(&mut Vec::new());
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
fn check_every_crash_point(store: &MemStore, sizes: &[Superblock], volumes: usize, what: &str) {
    for (writes, seed) in (1..MANY).flat_map(|writes| (0..8).map(move |seed| (writes, seed))) {
        let mut store = store.clone();
        store.fail_after(writes);
        let _ = pool::open(&mut store, sizes);
        store.power_loss(&mut Rng(seed));
        let (map, _) = pool::open(&mut store, sizes)
            .unwrap_or_else(|error| panic!("{what}, cut at write {writes}, seed {seed}: {error}"));
        assert_eq!(map.catalogue().volumes.len(), volumes, "{what}, cut at write {writes}, seed {seed}");
    }
}

#[test]
fn root_at_opening_survives_failed_flush() {
    let (store, sizes, map) = pool();
    drop(map);
    let mut failed = 0;
    for flushes in 0..MANY {
        let mut store = store.clone();
        store.fail_flush_after(META, flushes);
        failed += u64::from(pool::open(&mut store, &sizes).is_err());
        store.fail_flush_after(META, u64::MAX);
        check_every_crash_point(&store, &sizes, 4, &format!("flush {flushes} failed"));
    }
    assert!((4..MANY).contains(&failed), "{failed} flushes failed while opening");
}

#[test]
fn root_while_serving_survives_failed_flush() {
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
    check_every_crash_point(&store, &sizes, 200, "the root's flush failed");
}

#[test]
fn superblock_at_creation_survives_failed_flush() {
    let sizes = pool::superblocks(Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 });
    let mut opened = 0;
    for (device, flushes) in sizes.iter().flat_map(|sb| (0..MANY).map(move |flushes| (sb.device, flushes))) {
        let mut store = MemStore::new(sizes.len());
        store.fail_flush_after(device, flushes);
        if create_with_layout(&mut store, &sizes).is_ok() {
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
            store.power_loss(&mut Rng(seed));
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
        wholes.into_iter().for_each(|whole| map.attach_place(key, whole));
        let mut new = Self { store, sizes, map, key, wholes };
        new.write(1);
        wholes.into_iter().for_each(|whole| new.store.flush(whole.device).unwrap());
        new.map.mark_duplexed_written(key, wholes, all, [None; 2]);
        make_durable(&mut new.map, &mut new.store);
        new.map.open_intent(key, all);
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

    fn reopen(&mut self) {
        self.map = pool::open(&mut self.store, &self.sizes).unwrap().0;
    }

    /// Returns the devices that are valid for a block.
    fn holders(&self, block: u16) -> Vec<DeviceId> {
        let ExtentState::Record(record) = self.map.find(self.key) else {
            panic!("{:?}", self.map.find(self.key))
        };
        record.places.iter().filter(|p| p.valid.contains(block)).map(|p| p.at.id().device).collect()
    }

    /// Returns the blocks with an intent.
    fn blocks_with_intent(&self) -> Vec<u16> {
        match self.map.find(self.key) {
            ExtentState::Record(record) => record.intent.iter().flat_map(|intent| intent.iter()).collect(),
            ExtentState::Empty | ExtentState::Direct(_) => Vec::new(),
        }
    }

    fn read(&self, store: &mut MemStore, whole: Whole) -> Vec<u8> {
        let mut bytes = vec![0; 65536];
        store.read(whole.device, self.map.address(whole, 0), &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn selected_copy_survives_failed_flush() {
    let mut pool = TwoCopies::new();
    pool.write(2);
    for whole in pool.wholes {
        pool.store.fail_flush(whole.device);
        pool.store.flush(whole.device).unwrap_err();
    }
    // Data read now, and perhaps copied, is still there after a power loss.
    pool.reopen();
    let chosen = pool.wholes[0];
    assert!((0..16).all(|block| pool.holders(block) == [chosen.device]));
    let found = pool.read(&mut pool.store.clone(), chosen);
    assert_eq!(found, [2; 65536]);
    for seed in 0..8 {
        let mut store = pool.store.clone();
        store.power_loss(&mut Rng(seed));
        assert_eq!(pool.read(&mut store, chosen), found, "seed {seed}");
    }
}

#[test]
fn unwritable_copy_is_not_selected() {
    let mut pool = TwoCopies::new();
    pool.store.fail_read(DeviceId(1), pool.page(pool.wholes[0], 0));
    pool.reopen();
    assert!((0..16).all(|block| pool.holders(block) == [DeviceId(2)]));
}

#[test]
fn unreadable_sector_affects_only_its_block() {
    let mut pool = TwoCopies::new();
    let bad = [0, 1].map(|copy| pool.page(pool.wholes[copy], 3 + copy as u64));
    pool.store.corrupt_page(DeviceId(1), bad[0]);
    pool.store.corrupt_page(DeviceId(2), bad[1]);
    pool.reopen();
    let holders: Vec<_> = (0..16).map(|block| pool.holders(block)).collect();
    let second = |block| if block == 3 { DeviceId(2) } else { DeviceId(1) };
    assert_eq!(holders, (0..16).map(|block| vec![second(block)]).collect::<Vec<_>>());
}

#[test]
fn unwritable_block_keeps_present_copy() {
    let mut pool = TwoCopies::new();
    pool.store.corrupt_page(DeviceId(2), pool.page(pool.wholes[1], 5));
    pool.store.set_broken(DeviceId(1), true);
    pool.map = pool::open_without(&mut pool.store, &pool.sizes, &[DeviceId(1)]).unwrap().0;
    assert!((0..16).all(|block| pool.holders(block) == [DeviceId(2)]));
    assert_eq!(pool.blocks_with_intent(), [5], "what could not be settled is left to a later opening");
}

#[test]
fn doubtful_only_place_survives_failed_flush() {
    for copies in [1, 2] {
        let mut pool = TwoCopies::of(copies);
        let [first, second] = pool.wholes;
        let all = BlockRange { first: 0, count: 16 };
        assert!(pool.map.drop_copy(pool.key, PlaceId { device: second.device, kind: PlaceKind::Whole }, all));
        make_durable(&mut pool.map, &mut pool.store);
        assert_eq!(pool.blocks_with_intent().len(), 16);
        pool.write(2);
        pool.store.fail_flush(first.device);
        pool.store.flush(first.device).unwrap_err();
        pool.reopen();
        assert_eq!(pool.blocks_with_intent(), [0; 0]);
        for seed in 0..8 {
            let mut store = pool.store.clone();
            store.power_loss(&mut Rng(seed));
            assert_eq!(pool.read(&mut store, first), [2; 65536], "seed {seed}");
        }
    }
}

#[test]
fn intent_blocks_overwrite_of_single_copy() {
    for copies in [1, 2] {
        let pool = TwoCopies::of(copies);
        let place = |whole: Whole| PlaceId { device: whole.device, kind: PlaceKind::Whole };
        let may = |whole| pool.map.may_overwrite(pool.key, place(whole), BlockRange { first: 3, count: 2 });
        assert_eq!(pool.wholes.map(may), [copies == 2; 2]);
    }
}
