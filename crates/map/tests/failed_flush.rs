//! A flush fails, the server ends, and the pool is opened again without a power cut: what was not made
//! durable is read all the same, and no later flush makes it durable. Nothing may build on it.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::Rng;
use support::pool::{self, META, Shape};
use support::store::MemStore;
use weir_map::{Hardening, Map, PAGE, Superblock};
use weir_model::{Bytes, Store};

/// More flushes and writes than opening takes here.
const MANY: u64 = 40;

/// Volumes, durable by a frame.
fn commit(map: &mut Map, store: &mut MemStore, names: std::ops::Range<u32>) {
    for name in names {
        map.create_volume(&format!("volume {name:020}"), Bytes::mib(1), Hardening::Flush, 1);
    }
    map.begin_commit();
    let mut bytes = Vec::new();
    while let Some(at) = map.next_frame(|_| None, &mut bytes) {
        store.write(META, at, &bytes).unwrap();
        store.flush(META).unwrap();
    }
    map.commit_durable(&mut Vec::new());
}

/// A pool with four volumes, the last two of which are only in the journal, and two roots that reach
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

/// Opens the pool while the power fails at every one of the writes, and again afterwards.
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
